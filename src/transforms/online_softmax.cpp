// The maximum of long rows and the sum of exponentials beside it, in one walk over each row on GPUs: a row that is not walked again need
// not wait in registers, nor be read twice.
#include <limits>

#include "ops/core/builder.h"
#include "ops/core/op_def.h"
#include "transforms/pass.h"
#include "transforms/passes.h"

namespace tatara {
namespace {

constexpr int64_t kHeldWell = 1 << 14;    // elements of rows that lie in registers with several on a multiprocessor
constexpr int64_t kThreads = 1024;        // of a block, which each hold
constexpr int64_t kVectorsPerThread = 8;  // of 16 bytes of a row
constexpr int64_t kVectorBytes = 16;
constexpr int64_t kLookedUpShare = 8;  // results with less elements than that part of a tensor walk over no row

/// amax(x), and sum(exp(x - amax(x))) over the same dims. With `guarded` an infinite maximum is left out of the difference.
struct Pair {
  NodeId largest, shifted, exponent, sum;
  bool guarded;
};

class Finder {
 public:
  explicit Finder(const Graph& g) : g_(g), users_(g.num_values()), escapes_(g.num_values(), false) {
    for (size_t n = 0; n < g.num_nodes(); ++n) {
      for_each_operand(g.node(static_cast<NodeId>(n)), [&](ValueId v) { users(v).push_back(static_cast<NodeId>(n)); });
    }
    for (const GraphOutput& output : g.outputs()) escape(output.value);
    for (const InputWrite& write : g.input_writes()) escape(write.value);
  }

  std::optional<Pair> pair_of(NodeId largest) {
    const Node& max = g_.node(largest);
    if (max.op->name != "amax" || max.args.size() < 3) return std::nullopt;
    const ValueId x = std::get<TensorArg>(max.args[0]).value;
    const TensorType& type = g_.type(x);
    if (type.device.kind != DeviceKind::kCuda || (type.dtype != DType::kFloat32 && type.dtype != DType::kFloat64)) {
      return std::nullopt;
    }
    if (const auto pair = pair_by(largest, x, max.outputs[0], false)) return pair;
    for (const NodeId n : users(max.outputs[0])) {
      const Node& node = g_.node(n);
      if (!is_guard(node, max.outputs[0])) continue;
      if (const auto pair = pair_by(largest, x, node.outputs[0], true)) return pair;
    }
    return std::nullopt;
  }

 private:
  std::optional<Pair> pair_by(NodeId largest, ValueId x, ValueId less, bool guarded) {
    for (const NodeId shifted : users(less)) {
      if (!is_difference(g_.node(shifted), x, less)) continue;
      for (const NodeId exponent : users(g_.node(shifted).outputs[0])) {
        if (g_.node(exponent).op->name != "exp") continue;
        for (const NodeId sum : users(g_.node(exponent).outputs[0])) {
          if (!is_sum_beside(g_.node(sum), g_.node(largest))) continue;
          const Pair pair{largest, shifted, exponent, sum, guarded};
          if (pays(pair)) return pair;
        }
      }
    }
    return std::nullopt;
  }

  std::vector<NodeId>& users(ValueId v) { return users_[static_cast<size_t>(v)]; }
  void escape(ValueId v) {
    if (v != kNoValue) escapes_[static_cast<size_t>(v)] = true;
  }

  static ValueId operand_of(const Node& node, size_t i = 0) {
    const auto* arg = i < node.args.size() ? std::get_if<TensorArg>(&node.args[i]) : nullptr;
    return arg == nullptr ? kNoValue : arg->value;
  }
  const Node* maker(ValueId v, std::string_view op) const {
    const Node* node = v == kNoValue ? nullptr : g_.producer(v);
    return node != nullptr && node->op->name == op ? node : nullptr;
  }

  /// where(abs(max) == inf, 0, max)
  bool is_guard(const Node& node, ValueId max) const {
    if (node.op->name != "where" || operand_of(node, 2) != max) return false;
    const Node* zero = maker(operand_of(node, 1), "full");
    const auto* fill = zero == nullptr ? nullptr : std::get_if<Scalar>(&zero->args[1]);
    const Node* infinite = maker(operand_of(node, 0), "eq");
    const Node* magnitude = infinite == nullptr ? nullptr : maker(operand_of(*infinite), "abs");
    if (fill == nullptr || magnitude == nullptr || operand_of(*magnitude) != max) return false;
    const auto* number = std::get_if<double>(fill);
    const auto* bound = std::get_if<Scalar>(&infinite->args[1]);
    const auto* inf = bound == nullptr ? nullptr : std::get_if<double>(bound);
    return number != nullptr && *number == 0 && inf != nullptr && *inf == std::numeric_limits<double>::infinity();
  }

  bool is_difference(const Node& node, ValueId x, ValueId less) const {
    if (node.op->name != "sub" || node.args.size() < 2) return false;
    if (operand_of(node) != x || operand_of(node, 1) != less) return false;
    if (node.args.size() < 3) return true;
    const auto* alpha = std::get_if<Scalar>(&node.args[2]);
    const auto* number = alpha == nullptr ? nullptr : std::get_if<int64_t>(alpha);
    return number != nullptr && *number == 1;
  }

  /// A sum over the same dims as the maximum, of the same form.
  bool is_sum_beside(const Node& sum, const Node& max) const {
    if (sum.op->name != "sum" || sum.args.size() < 3 || sum.again != max.again) return false;
    const auto* dims = std::get_if<SymInts>(&sum.args[1]);
    const auto* others = std::get_if<SymInts>(&max.args[1]);
    if (dims == nullptr || others == nullptr || !(dims->values == others->values)) return false;
    const TensorType &a = g_.type(sum.outputs[0]), &b = g_.type(max.outputs[0]);
    return a.dtype == b.dtype && a.sizes == b.sizes && a.dim() == g_.type(operand_of(max)).dim();
  }

  bool pays(const Pair& pair) {
    const Node& max = g_.node(pair.largest);
    const TensorType& type = g_.type(operand_of(max));
    Expr row = g_.ctx().constant(1);
    for (const Expr d : std::get<SymInts>(max.args[1]).values) {
      if (!d.is_const()) return false;
      const int64_t dim = d.const_value() < 0 ? d.const_value() + type.dim() : d.const_value();
      row = row * type.sizes[static_cast<size_t>(dim)];
    }
    const int64_t length = g_.ctx().evaluate_hint(row).value_or(0);
    // Rows of unknown length are read anew by each walk.
    if (!row.is_const()) return length > kHeldWell;
    const int64_t vector = kVectorBytes / dtype_size(type.dtype);
    const int64_t lanes = length % vector == 0 ? vector : 1;
    if (length > kThreads * kVectorsPerThread * lanes) return true;
    return length > kHeldWell && !walked(pair);
  }

  /// Whether something beside the pair needs all of the row.
  bool walked(const Pair& pair) {
    std::vector<ValueId> open{g_.node(pair.shifted).outputs[0], g_.node(pair.exponent).outputs[0]};
    std::vector<bool> seen(g_.num_values(), false);
    while (!open.empty()) {
      const ValueId v = open.back();
      open.pop_back();
      if (seen[static_cast<size_t>(v)]) continue;
      seen[static_cast<size_t>(v)] = true;
      if (escapes_[static_cast<size_t>(v)]) return true;
      for (const NodeId n : users(v)) {
        if (n == pair.exponent || n == pair.sum) continue;
        const Node& user = g_.node(n);
        for (const ValueId result : user.outputs) {
          if (looks_up(v, result)) continue;
          if (user.op->kind != OpKind::kPointwise) return true;
          open.push_back(result);
        }
      }
    }
    return false;
  }

  /// Whether the result is made of a few of the elements, by an operator that reads no others.
  bool looks_up(ValueId v, ValueId result) const {
    const Node& user = *g_.producer(result);
    if (user.op->kind != OpKind::kIndexing && user.op->kind != OpKind::kView) return false;
    const auto elements = [&](ValueId x) { return g_.ctx().evaluate_hint(g_.type(x).numel(g_.ctx())); };
    const auto all = elements(v), some = elements(result);
    return all && some && *some * kLookedUpShare <= *all;
  }

  const Graph& g_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<bool> escapes_;
};

}  // namespace

Graph online_softmax(const Graph& graph, const PassOptions& options) {
  return run_pass("online_softmax", graph, options, [](const Graph& g) {
    GraphCopy copy(g);
    Finder finder(g);
    std::vector<bool> done(g.num_nodes(), false);
    for (size_t n = 0; n < g.num_nodes(); ++n) {
      const Node& node = g.node(static_cast<NodeId>(n));
      if (done[n]) continue;
      const std::optional<Pair> pair = finder.pair_of(static_cast<NodeId>(n));
      if (!pair) {
        copy.copy(node);
        continue;
      }
      GraphBuilder b(copy.to());
      b.set_location(node.location);
      const std::vector<ValueId> parts = b.op_multi("_softmax_parts", copy.args(node));
      copy.to().node(copy.to().value(parts[0]).producer).take_marks(node);
      copy.set(node.outputs[0], parts[0]);
      ValueId sum = parts[1];
      if (pair->guarded) {
        const double inf = std::numeric_limits<double>::infinity();
        sum = b.where(b.binary("eq", b.unary("abs", parts[0]), Scalar(inf)), b.unary("exp", parts[0]), sum);
      }
      copy.set(g.node(pair->sum).outputs[0], sum);
      done[static_cast<size_t>(pair->sum)] = true;
    }
    return copy.finish();
  });
}

}  // namespace tatara
