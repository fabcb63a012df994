// Random numbers that depend on nothing but the generator, drawn by one loop before the turns that read them: rows of a stack. The order in
// which numbers are drawn stays, and with it their bits; turns read a row each, as they read other tensors.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/core/builder.h"
#include "ops/core/op_def.h"
#include "ops/rules/derivative.h"
#include "ops/rules/draws.h"
#include "ops/rules/loop_node.h"
#include "support/str_cat.h"
#include "transforms/pass.h"
#include "transforms/passes.h"

namespace tatara {
namespace {

constexpr size_t kFewestDraws = 24;             // of each kind
constexpr size_t kLongestRound = 16;            // draws of a turn
constexpr int64_t kMostDrawnBytes = 256 << 20;  // of the rows, which are there at once

/// Draws one after the other, with none between them, of which each is like the one a round before.
struct DrawRounds {
  std::vector<size_t> nodes;
  size_t round = 1;
};

class DrawAhead {
 public:
  explicit DrawAhead(const Graph& graph) : graph_(graph) {}

  /// False: there is nothing to draw ahead.
  bool find() {
    std::vector<std::pair<size_t, std::string>> run;
    for (size_t n = 0; n < graph_.num_nodes(); ++n) {
      const Node& node = graph_.node(static_cast<NodeId>(n));
      if (!node.op->draws() && !node.op->traits.varies && node.rule == nullptr) continue;
      std::string kind = is_plain(node) ? kind_of(node) : std::string();
      if (!kind.empty()) {
        run.emplace_back(n, std::move(kind));
        continue;
      }
      take_rounds(run);
      run.clear();
    }
    take_rounds(run);
    return !rounds_.empty();
  }

  Graph draw() {
    GraphCopy copy(graph_);
    GraphBuilder builder(copy.to());
    std::map<size_t, std::pair<ValueId, int64_t>> rows;  // of drawing nodes: the stack, and the row in it
    size_t next = 0;
    for (size_t n = 0; n < graph_.num_nodes(); ++n) {
      const Node& node = graph_.node(static_cast<NodeId>(n));
      const size_t first_new = copy.to().num_nodes();
      builder.set_location(node.location);
      if (next < rounds_.size() && rounds_[next].nodes.front() == n) add_draws(rounds_[next++], builder, rows);
      const auto row = rows.find(n);
      if (row == rows.end()) {
        copy.copy(node);
        continue;
      }
      copy.set(node.outputs[0],
               builder.op("select", {TensorArg{row->second.first}, Scalar(int64_t{0}), Scalar(row->second.second)}));
      for (size_t i = first_new; i < copy.to().num_nodes(); ++i)
        copy.to().node(static_cast<NodeId>(i)).take_marks(node);
    }
    return copy.finish();
  }

 private:
  bool is_plain(const Node& node) const {
    if (node.region != nullptr || node.again != 0 || node.rule != nullptr || !node.op->draws() ||
        node.outputs.size() != 1)
      return false;
    if (OpRegistry::global().find(node.op->name) != node.op) return false;
    bool fine = fits(graph_.type(node.outputs[0]));
    const bool by_type = draws_by_type(*node.op);
    for_each_operand(node, [&](ValueId v) { fine = fine && by_type && fits(graph_.type(v)); });
    for_each_integer(node, [&](Expr e) { fine = fine && e.is_const(); });
    return fine;
  }

  bool fits(const TensorType& type) const {
    const bool constant = std::all_of(type.sizes.begin(), type.sizes.end(), [](Expr e) { return e.is_const(); });
    return constant && type.device.kind == DeviceKind::kCpu && !type.is_wrapped_number &&
           type.strides == contiguous_strides(graph_.ctx(), type.sizes);
  }

  /// Nodes of one kind are called alike.
  std::string kind_of(const Node& node) const {
    Graph alone(graph_.ctx_ptr());
    add_draw(alone, node);
    return str_cat(print_graph(alone), node.no_grad, node.closed, node.derived);
  }

  /// Of operands there is the type alone.
  ValueId add_draw(Graph& to, const Node& node) const {
    GraphBuilder builder(to);
    std::vector<Arg> args = with_operands(node.args, [&](ValueId v) { return zeros_of(builder, graph_.type(v)); });
    const NodeId id = to.add_node(node.op, std::move(args), {graph_.type(node.outputs[0])}, node.location);
    return to.node(id).outputs[0];
  }

  void take_rounds(const std::vector<std::pair<size_t, std::string>>& run) {
    for (size_t at = 0; at + kFewestDraws <= run.size();) {
      size_t best = 0, length = 0;
      for (size_t round = 1; round <= kLongestRound; ++round) {
        size_t end = at + round;
        while (end < run.size() && run[end].second == run[end - round].second) ++end;
        const size_t count = (end - at) / round;
        if (end <= run.size() && count >= kFewestDraws && count * round > length) {
          best = round;
          length = count * round;
        }
      }
      if (best > 0) {
        DrawRounds rounds{{}, best};
        for (size_t i = 0; i < length; ++i) rounds.nodes.push_back(run[at + i].first);
        if (bytes_of(rounds) <= kMostDrawnBytes) rounds_.push_back(std::move(rounds));
      }
      at += std::max<size_t>(1, length);
    }
  }

  int64_t bytes_of(const DrawRounds& rounds) const {
    int64_t bytes = 0;
    for (size_t i = 0; i < rounds.round; ++i) {
      const TensorType& type = graph_.type(graph_.node(static_cast<NodeId>(rounds.nodes[i])).outputs[0]);
      bytes += type.numel(graph_.ctx()).const_value() * dtype_size(type.dtype);
    }
    return bytes * static_cast<int64_t>(rounds.nodes.size() / rounds.round);
  }

  void add_draws(const DrawRounds& rounds, GraphBuilder& builder,
                 std::map<size_t, std::pair<ValueId, int64_t>>& rows) const {
    Graph body(graph_.ctx_ptr());
    for (size_t i = 0; i < rounds.round; ++i) {
      body.add_output(add_draw(body, graph_.node(static_cast<NodeId>(rounds.nodes[i]))));
    }
    LoopForm form;
    form.body = std::make_shared<const Graph>(std::move(body));
    form.turns = static_cast<int64_t>(rounds.nodes.size() / rounds.round);
    const std::vector<ValueId> stacks = add_draw_loop(builder, form);
    for (size_t i = 0; i < rounds.nodes.size(); ++i) {
      rows[rounds.nodes[i]] = {stacks[i % rounds.round], static_cast<int64_t>(i / rounds.round)};
    }
  }

  const Graph& graph_;
  std::vector<DrawRounds> rounds_;
};

}  // namespace

Graph draw_ahead(const Graph& graph, const PassOptions& options) {
  return run_pass("draw_ahead", graph, options, [](const Graph& g) {
    DrawAhead ahead(g);
    return ahead.find() ? ahead.draw() : g;
  });
}

}  // namespace tatara
