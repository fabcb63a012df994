// Gradients of parts of a tensor (rows that a loop reads, chunks, two halves): each is zeros with the part written, and they are added
// up. Where parts don't meet that is one tensor with all of them: an element is no longer computed from as many terms as there are parts.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "ops/core/builder.h"
#include "ops/core/op_def.h"
#include "transforms/pass.h"
#include "transforms/passes.h"

namespace tatara {
namespace {

constexpr size_t kMostJoined = 8;  // parts that a kernel joins: of more each is written to its place

/// Zeros, but for elements [start, end) of a dimension.
struct PaddedPart {
  ValueId value = kNoValue;
  const Node* node = nullptr;
  int64_t dim = 0, start = 0, end = 0;
};

/// Parts that don't meet, all of one dimension and of one operator.
struct Parts {
  std::vector<PaddedPart> parts;
  std::map<int64_t, int64_t> ends;  // by their start

  bool takes(const PaddedPart& part) const {
    const PaddedPart& first = parts.front();
    if (part.node->op != first.node->op || part.dim != first.dim) return false;
    const auto behind = ends.lower_bound(part.start);
    if (behind != ends.end() && behind->first < part.end) return false;
    return behind == ends.begin() || std::prev(behind)->second <= part.start;
  }
  void add(const PaddedPart& part) {
    parts.push_back(part);
    ends.emplace(part.start, part.end);
  }
  bool cover(int64_t length) const {
    int64_t at = 0;
    for (const auto& [start, end] : ends) {
      if (start != at) return false;
      at = end;
    }
    return at == length;
  }
};

/// Terms of a sum: each a value, or parts that are joined.
struct Terms {
  std::vector<std::pair<ValueId, size_t>> order;  // a value, or kNoValue and the number of the parts
  std::vector<Parts> parts;
};

class PartSums {
 public:
  explicit PartSums(const Graph& graph)
      : graph_(graph), select_(&op("select_scatter")), slice_(&op("slice_scatter")), add_(&op("add")) {}

  /// By its last addition, each sum in which parts are joined.
  std::map<ValueId, Terms> find() const {
    std::map<ValueId, Terms> sums;
    const std::vector<Node>& nodes = graph_.nodes();
    const auto is_part = [this](const Node& node) { return node.op == select_ || node.op == slice_; };
    if (std::count_if(nodes.begin(), nodes.end(), is_part) < 2) return sums;
    const std::vector<int> uses = graph_.use_counts();
    std::vector<bool> within(graph_.num_values(), false);  // an addition that is a term of another one
    for (const Node& node : nodes) {
      if (!is_sum(node)) continue;
      for (const ValueId v : operands(node)) {
        const Node* term = graph_.producer(v);
        within[static_cast<size_t>(v)] =
            uses[static_cast<size_t>(v)] == 1 && term != nullptr && is_sum(*term) && term->again == node.again;
      }
    }
    for (const Node& node : nodes) {
      if (!is_sum(node) || within[static_cast<size_t>(node.outputs[0])]) continue;
      Terms terms = terms_of(node, uses, within);
      const auto joins = [this](const Parts& each) { return each.parts.size() > 1 && worth(each); };
      if (std::any_of(terms.parts.begin(), terms.parts.end(), joins)) sums.emplace(node.outputs[0], std::move(terms));
    }
    return sums;
  }

  ValueId emit(const Node& node, const Terms& terms, GraphCopy& copy) const {
    GraphBuilder b(copy.to());
    b.set_location(node.location);
    ValueId sum = kNoValue;
    for (const auto& [value, number] : terms.order) {
      const ValueId term = value != kNoValue ? copy[value] : join(b, terms.parts[number], copy);
      sum = sum == kNoValue ? term : b.binary("add", sum, term);
    }
    return sum;
  }

 private:
  static const OpDef& op(const char* name) { return OpRegistry::global().get(name); }

  static std::pair<ValueId, ValueId> both(const Node& node) {
    const auto* a = std::get_if<TensorArg>(&node.args[0]);
    const auto* b = std::get_if<TensorArg>(&node.args[1]);
    return {a == nullptr ? kNoValue : a->value, b == nullptr ? kNoValue : b->value};
  }
  static std::vector<ValueId> operands(const Node& node) {
    const auto [a, b] = both(node);
    return {a, b};
  }

  /// Of two tensors of one type, of which it has that type.
  bool is_sum(const Node& node) const {
    if (node.op != add_) return false;
    const auto [a, b] = both(node);
    const auto* alpha = std::get_if<Scalar>(&node.args[2]);
    const auto* factor = alpha == nullptr ? nullptr : std::get_if<int64_t>(alpha);
    if (a == kNoValue || b == kNoValue || factor == nullptr || *factor != 1) return false;
    const TensorType& type = graph_.type(node.outputs[0]);
    return graph_.type(a) == type && graph_.type(b) == type && type.dtype != DType::kBool;
  }

  std::optional<PaddedPart> part_of(ValueId v) const {
    const Node* node = graph_.producer(v);
    if (node == nullptr || (node->op != select_ && node->op != slice_)) return std::nullopt;
    const Node* base = graph_.producer(std::get<TensorArg>(node->args[0]).value);
    if (base == nullptr || !fills_zeros(*base)) return std::nullopt;
    const TensorType& type = graph_.type(v);
    const auto integer = [&](size_t arg) -> std::optional<int64_t> {
      const auto* scalar = std::get_if<Scalar>(&node->args[arg]);
      const auto* number = scalar == nullptr ? nullptr : std::get_if<int64_t>(scalar);
      const auto* expr = scalar == nullptr ? nullptr : std::get_if<Expr>(scalar);
      if (number != nullptr) return *number;
      if (expr != nullptr && expr->is_const()) return expr->const_value();
      return std::nullopt;
    };
    const std::optional<int64_t> dim = integer(2), start = integer(3);
    if (!dim || !start) return std::nullopt;
    PaddedPart part{v, node, *dim < 0 ? *dim + type.dim() : *dim, *start, *start + 1};
    const Expr size = type.sizes[static_cast<size_t>(part.dim)];
    if (!size.is_const() || *start < 0 || *start >= size.const_value()) return std::nullopt;
    if (node->op == slice_) {
      const Expr length = graph_.type(std::get<TensorArg>(node->args[1]).value).sizes[static_cast<size_t>(part.dim)];
      if (integer(5) != 1 || !length.is_const() || length.is_const(0)) return std::nullopt;
      part.end = part.start + length.const_value();
    }
    return part;
  }

  /// In the order of the sum.
  Terms terms_of(const Node& sum, const std::vector<int>& uses, const std::vector<bool>& within) const {
    Terms terms;
    std::vector<ValueId> left{sum.outputs[0]};
    while (!left.empty()) {
      const ValueId v = left.back();
      left.pop_back();
      if (v == sum.outputs[0] || within[static_cast<size_t>(v)]) {
        const auto [a, b] = both(*graph_.producer(v));
        left.push_back(b);
        left.push_back(a);
        continue;
      }
      const std::optional<PaddedPart> part = uses[static_cast<size_t>(v)] == 1 ? part_of(v) : std::nullopt;
      if (!part || part->node->again != sum.again) {
        terms.order.emplace_back(v, 0);
        continue;
      }
      const auto found =
          std::find_if(terms.parts.begin(), terms.parts.end(), [&](const Parts& p) { return p.takes(*part); });
      if (found != terms.parts.end()) {
        found->add(*part);
        continue;
      }
      terms.order.emplace_back(kNoValue, terms.parts.size());
      terms.parts.emplace_back().add(*part);
    }
    return terms;
  }

  /// On a GPU each place is a kernel of its own, which takes longer to compile than one kernel of all terms.
  bool worth(const Parts& parts) const {
    return parts.parts.size() <= kMostJoined || graph_.type(parts.parts.front().value).device.kind == DeviceKind::kCpu;
  }

  ValueId join(GraphBuilder& b, const Parts& parts, const GraphCopy& copy) const {
    const PaddedPart& first = parts.parts.front();
    if (parts.parts.size() == 1 || !worth(parts)) {
      ValueId sum = copy[first.value];
      for (size_t i = 1; i < parts.parts.size(); ++i) sum = b.binary("add", sum, copy[parts.parts[i].value]);
      return sum;
    }
    const auto source = [&](const PaddedPart& part) { return copy[std::get<TensorArg>(part.node->args[1]).value]; };
    const TensorType& type = graph_.type(first.value);
    if (parts.parts.size() <= kMostJoined && parts.cover(type.sizes[static_cast<size_t>(first.dim)].const_value())) {
      std::vector<PaddedPart> in_order = parts.parts;
      std::sort(in_order.begin(), in_order.end(),
                [](const PaddedPart& a, const PaddedPart& c) { return a.start < c.start; });
      TensorList list;
      for (const PaddedPart& part : in_order) {
        list.values.push_back(part.node->op == select_ ? b.unsqueeze(source(part), part.dim) : source(part));
      }
      const ValueId joined = b.op("cat", {list, Scalar(first.dim)});
      if (b.type(joined) == type) return joined;
    }
    ValueId whole = copy[std::get<TensorArg>(first.node->args[0]).value];
    for (const PaddedPart& part : parts.parts) {
      std::vector<Arg> args = part.node->args;
      args[0] = TensorArg{whole};
      args[1] = TensorArg{source(part)};
      whole = b.op(part.node->op->name, std::move(args));
    }
    return whole;
  }

  const Graph& graph_;
  const OpDef *select_, *slice_, *add_;
};

}  // namespace

Graph sum_parts(const Graph& graph, const PassOptions& options) {
  return run_pass("sum_parts", graph, options, [](const Graph& g) {
    const PartSums parts(g);
    const std::map<ValueId, Terms> sums = parts.find();
    if (sums.empty()) return g;
    GraphCopy copy(g);
    for (const Node& node : g.nodes()) {
      const auto found = node.outputs.size() == 1 ? sums.find(node.outputs[0]) : sums.end();
      if (found == sums.end()) {
        copy.copy(node);
        continue;
      }
      const size_t before = copy.to().num_nodes();
      copy.set(node.outputs[0], parts.emit(node, found->second, copy));
      for (size_t n = before; n < copy.to().num_nodes(); ++n) copy.to().node(static_cast<NodeId>(n)).take_marks(node);
    }
    return copy.finish();
  });
}

}  // namespace tatara
