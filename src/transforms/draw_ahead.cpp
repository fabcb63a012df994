// Random numbers that depend on nothing but the generator, drawn by one loop before the turns that read them: rows of a stack. The order in
// which numbers are drawn stays, and with it their bits; turns read a row each, as they read other tensors.
#include <algorithm>
#include <set>
#include <utility>

#include "ops/core/builder.h"
#include "ops/core/op_def.h"
#include "ops/rules/loop_node.h"
#include "support/str_cat.h"
#include "transforms/pass.h"
#include "transforms/passes.h"

namespace tatara {
namespace {

constexpr size_t kFewestDraws = 24;        // of each kind
constexpr size_t kLongestRound = 16;       // draws of a turn
constexpr int64_t kMostBytes = 256 << 20;  // of the rows, which are there at once

/// Draws one after the other, with none between them, of which each is like the one a round before.
struct DrawRounds {
  size_t first = 0, round = 0, count = 0;  // of the draws; `count` rounds
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
    size_t next = 0;
    for (size_t n = 0; n < graph_.num_nodes(); ++n) {
      if (next < rounds_.size() && rounds_[next].front() == n) add_draws(rounds_[next++], copy);
      const Node& node = graph_.node(static_cast<NodeId>(n));
      if (!drawn_.contains(n)) copy.copy(node);
    }
    return copy.finish();
  }

 private:
  bool is_plain(const Node& node) const {
    if (node.region != nullptr || node.again != 0 || node.rule != nullptr || !node.op->draws() || node.outputs.size() != 1) return false;
    if (OpRegistry::global().find(node.op->name) != node.op) return false;
    bool fine = fits(graph_.type(node.outputs[0]));
    for_each_operand(node, [&](ValueId) { fine = false; });
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
    alone.add_node(node.op, node.args, {graph_.type(node.outputs[0])});
    return str_cat(print_graph(alone), node.no_grad, node.closed, node.derived);
  }

  void take_rounds(const std::vector<std::pair<size_t, std::string>>& run) {
    for (size_t at = 0; at + kFewestDraws <= run.size();) {
      DrawRounds best;
      for (size_t round = 1; round <= kLongestRound; ++round) {
        size_t end = at + round;
        while (end < run.size() && run[end].second == run[end - round].second) ++end;
        const size_t count = (end - at) / round;
        if (count >= kFewestDraws && count * round > best.count * best.round) best = {at, round, count};
      }
      if (best.count == 0 || bytes_of(run, best) > kMostBytes) {
        at += std::max<size_t>(1, best.count * best.round);
        continue;
      }
      std::vector<size_t>& nodes = rounds_.emplace_back();
      for (size_t i = 0; i < best.count * best.round; ++i) nodes.push_back(run[at + i].first);
      drawn_.insert(nodes.begin(), nodes.end());
      round_of_.push_back(best.round);
      at += nodes.size();
    }
  }

  int64_t bytes_of(const std::vector<std::pair<size_t, std::string>>& run, const DrawRounds& rounds) const {
    int64_t bytes = 0;
    for (size_t i = 0; i < rounds.round; ++i) {
      const Node& node = graph_.node(static_cast<NodeId>(run[rounds.first + i].first));
      const TensorType& type = graph_.type(node.outputs[0]);
      bytes += type.numel(graph_.ctx()).const_value() * dtype_size(type.dtype);
    }
    return bytes * static_cast<int64_t>(rounds.count);
  }

  void add_draws(const std::vector<size_t>& nodes, GraphCopy& copy) const {
    const size_t round = round_of_[static_cast<size_t>(
        std::find_if(rounds_.begin(), rounds_.end(), [&](const auto& each) { return &each == &nodes; }) -
        rounds_.begin())];
    Graph body(graph_.ctx_ptr());
    for (size_t i = 0; i < round; ++i) {
      const Node& node = graph_.node(static_cast<NodeId>(nodes[i]));
      const NodeId id = body.add_node(node.op, node.args, {graph_.type(node.outputs[0])}, node.location);
      body.add_output(body.node(id).outputs[0]);
    }
    LoopForm form;
    form.body = std::make_shared<const Graph>(std::move(body));
    form.turns = static_cast<int64_t>(nodes.size() / round);
    GraphBuilder builder(copy.to());
    const size_t first_new = copy.to().num_nodes();
    builder.set_location(graph_.node(static_cast<NodeId>(nodes.front())).location);
    const std::vector<ValueId> stacks = add_draw_loop(builder, form);
    for (size_t i = 0; i < nodes.size(); ++i) {
      const Node& node = graph_.node(static_cast<NodeId>(nodes[i]));
      builder.set_location(node.location);
      copy.set(node.outputs[0], builder.op("select", {TensorArg{stacks[i % round]}, Scalar(int64_t{0}),
                                                      Scalar(static_cast<int64_t>(i / round))}));
    }
    const Node& model = graph_.node(static_cast<NodeId>(nodes.front()));
    for (size_t n = first_new; n < copy.to().num_nodes(); ++n) copy.to().node(static_cast<NodeId>(n)).take_marks(model);
  }

  const Graph& graph_;
  std::vector<std::vector<size_t>> rounds_;  // nodes
  std::vector<size_t> round_of_;
  std::set<size_t> drawn_;
};

}  // namespace

Graph draw_ahead(const Graph& graph, const PassOptions& options) {
  return run_pass("draw_ahead", graph, options, [](const Graph& g) {
    DrawAhead ahead(g);
    return ahead.find() ? ahead.draw() : g;
  });
}

}  // namespace tatara
