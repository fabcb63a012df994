// Writes to a part of a tensor (a row of a buffer, the border of a grid): only that part is stored, in place. As expressions over the
// whole tensor, which is what the inverses of views are, they would read and write all of it.
#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "ops/core/builder.h"
#include "ops/core/op_def.h"
#include "ops/core/view_util.h"
#include "support/str_cat.h"
#include "transforms/pass.h"
#include "transforms/passes.h"

namespace tatara {
namespace {

constexpr size_t kMany = 4, kManyOnGpu = 8;  // writes to a tensor that is made here
constexpr int64_t kPart = 2;                 // times as many elements as are written, at least, has the whole

/// A value that is `base` with the elements of `source` at `at`.
struct Part {
  ValueId base = kNoValue, source = kNoValue;
  ops::IndexMap at;  // from indices of the source to indices of the base
};

/// Where each dimension of the base is: start + step * (index of the source's dimension `from`).
struct Place {
  std::vector<Expr> start, step, from;
};

class PartWrites {
 public:
  using Found = std::unordered_map<ValueId, std::pair<Part, Place>>;

  explicit PartWrites(const Graph& graph) : graph_(graph), ctx_(graph.ctx()) {
    for (const char* view : {"slice", "select", "diagonal"}) {
      inverses_.emplace(&OpRegistry::global().get(str_cat(view, "_scatter")), &OpRegistry::global().get(view));
    }
  }

  /// The values that are what they were before with a part written, where that is to be done in place: those that an input becomes
  /// one after the other, and those of many writes to a tensor that is made here. (A few are one kernel with whatever makes and reads it.)
  Found find() const {
    Found all;
    const std::vector<Node>& nodes = graph_.nodes();
    const auto writes = [this](const Node& node) { return inverses_.contains(node.op); };
    if (std::none_of(nodes.begin(), nodes.end(), writes)) return all;
    for (const InputWrite& write : graph_.input_writes()) add_chain(write.value, 1, all);
    for (size_t n = graph_.num_nodes(); n-- > 0;) {
      const Node& node = graph_.node(static_cast<NodeId>(n));
      if (node.outputs.size() != 1 || all.contains(node.outputs[0])) continue;
      const bool on_gpu = graph_.type(node.outputs[0]).device.kind == DeviceKind::kCuda;
      add_chain(node.outputs[0], on_gpu ? kManyOnGpu : kMany, all);
    }
    return all;
  }

 private:
  /// From the last write on; fewer than `least` are left as they are.
  void add_chain(ValueId v, size_t least, Found& all) const {
    Found chain;
    for (;;) {
      std::optional<Part> part = part_of(v);
      if (!part || !worth(*part) || graph_.type(part->base).strides != graph_.type(v).strides) break;
      std::optional<Place> place = place_of(*part);
      if (!place) break;
      const ValueId before = part->base;
      chain.emplace(v, std::pair{std::move(*part), std::move(*place)});
      v = before;
    }
    if (chain.size() >= least) all.merge(chain);
  }

  std::vector<Expr> symbols(ValueId v) const {
    std::vector<Expr> result;
    const std::vector<Expr>& sizes = graph_.type(v).sizes;
    for (size_t d = 0; d < sizes.size(); ++d) {
      const bool one = sizes[d].is_const(1);
      result.push_back(one ? ctx_.constant(0) : ctx_.loop_symbol(str_cat("_w", d, "_", sizes[d].str()), sizes[d]));
    }
    return result;
  }
  std::vector<Expr> simple(std::vector<Expr> exprs) const {
    for (Expr& e : exprs) e = ctx_.simplify(e);
    return exprs;
  }
  bool same(const std::vector<Expr>& a, const std::vector<Expr>& b) const { return simple(a) == simple(b); }

  /// From indices of `view` to indices of `base`, of which it is a view.
  std::optional<ops::IndexMap> map_to(ValueId view, ValueId base) const {
    ops::IndexMap all = [](std::span<const Expr> at) { return std::vector<Expr>(at.begin(), at.end()); };
    while (view != base) {
      const Node* node = graph_.producer(view);
      ops::IndexMap map = node == nullptr ? nullptr : ops::view_map(graph_, *node);
      if (!map) return std::nullopt;
      all = [all, map = std::move(map)](std::span<const Expr> at) { return map(all(at)); };
      view = std::get<TensorArg>(node->args[0]).value;
    }
    return all;
  }

  std::optional<Part> part_of(ValueId v) const {
    const Node* node = graph_.producer(v);
    if (node == nullptr) return std::nullopt;
    if (const auto found = inverses_.find(node->op); found != inverses_.end()) return inverse(*node, *found->second);
    const auto* operand = node->args.empty() ? nullptr : std::get_if<TensorArg>(&node->args[0]);
    if (operand == nullptr) return std::nullopt;
    if (node->op->traits.copies_to_strides) return part_of(operand->value);
    if (node->op->kind == OpKind::kView) return rearranged(v, operand->value);
    return std::nullopt;
  }

  /// What one view of the base replaces; itself maybe the view with a part of it written.
  std::optional<Part> inverse(const Node& node, const OpDef& view) const {
    Part part{std::get<TensorArg>(node.args[0]).value, std::get<TensorArg>(node.args[1]).value, nullptr};
    Node viewed;
    viewed.op = &view;
    viewed.args = {node.args[0]};
    viewed.args.insert(viewed.args.end(), node.args.begin() + 2, node.args.end());
    viewed.outputs = {part.source};
    part.at = ops::view_map(graph_, viewed);
    if (!part.at) return std::nullopt;
    const std::optional<Part> inner = part_of(part.source);
    if (!inner) return part;
    const auto known = map_to(inner->base, part.base);
    const std::vector<Expr> at = symbols(inner->base);
    if (!known || !same((*known)(at), part.at(at))) return part;
    return Part{part.base, inner->source,
                [outer = part.at, at = inner->at](std::span<const Expr> i) { return outer(at(i)); }};
  }

  /// A view of a view of the base, in which a part was written, that has the base's elements where they were (a transpose, twice).
  std::optional<Part> rearranged(ValueId v, ValueId operand) const {
    const std::optional<Part> inner = part_of(operand);
    if (!inner) return std::nullopt;  // most views are of none
    const auto back = map_to(v, operand);
    const Node* made = graph_.producer(inner->base);
    if (!back || made == nullptr || made->op->kind != OpKind::kView) return std::nullopt;
    const ValueId base = std::get<TensorArg>(made->args[0]).value;
    const auto map = map_to(inner->base, base);
    const std::vector<Expr> at = symbols(v);
    if (!map || graph_.type(base).sizes != graph_.type(v).sizes || !same((*map)((*back)(at)), at)) return std::nullopt;
    return Part{base, inner->source,
                [outer = *map, inside = inner->at](std::span<const Expr> i) { return outer(inside(i)); }};
  }

  bool worth(const Part& part) const {
    const auto elements = [&](ValueId v) { return ctx_.evaluate_hint(graph_.type(v).numel(ctx_)).value_or(64); };
    return kPart * elements(part.source) <= elements(part.base);
  }

  std::optional<Place> place_of(const Part& part) const {
    const std::vector<Expr> dims = symbols(part.source);
    const std::vector<Expr> at = simple(part.at(dims));
    const std::vector<Expr> start = simple(part.at(std::vector<Expr>(dims.size(), ctx_.constant(0))));
    std::vector<bool> used(dims.size(), false);
    Place place;
    for (size_t d = 0; d < at.size(); ++d) {
      int64_t from = -1;
      Expr step = ctx_.constant(0);
      for (size_t k = 0; k < dims.size(); ++k) {
        if (!dims[k].is_symbol() || !at[d].contains(dims[k])) continue;
        if (from >= 0) return std::nullopt;
        from = static_cast<int64_t>(k);
        step = at[d].coefficient_of(dims[k]);
        used[k] = true;
      }
      if (!step.valid() || (from >= 0 && (!step.is_const() || step.is_const(0)))) return std::nullopt;
      const Expr whole = from < 0 ? start[d] : start[d] + step * dims[static_cast<size_t>(from)];
      if (!(ctx_.simplify(whole) == at[d])) return std::nullopt;
      place.start.push_back(start[d]);
      place.step.push_back(step);
      place.from.push_back(ctx_.constant(from));
    }
    for (size_t k = 0; k < dims.size(); ++k) {
      if (dims[k].is_symbol() && !used[k]) return std::nullopt;
    }
    return place;
  }

  const Graph& graph_;
  ExprContext& ctx_;
  std::unordered_map<const OpDef*, const OpDef*> inverses_;  // of views
};

}  // namespace

Graph write_parts(const Graph& graph, const PassOptions& options) {
  return run_pass("write_parts", graph, options, [](const Graph& g) {
    const auto parts = PartWrites(g).find();
    GraphCopy copy(g);
    for (const Node& node : g.nodes()) {
      const auto found = node.outputs.size() == 1 ? parts.find(node.outputs[0]) : parts.end();
      if (found == parts.end()) {
        copy.copy(node);
        continue;
      }
      const auto& [part, place] = found->second;
      GraphBuilder b(copy.to());
      b.set_location(node.location);
      copy.set(node.outputs[0], b.op("write_part", {TensorArg{copy[part.base]}, TensorArg{copy[part.source]},
                                                    SymInts{place.start}, SymInts{place.step}, SymInts{place.from}}));
    }
    return copy.finish();
  });
}

}  // namespace tatara
