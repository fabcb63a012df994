// Writes to a part of a tensor (a row of a buffer, the border of a grid): only that part is stored, in place. As expressions over the
// whole tensor, which is what the inverses of views are, they would read and write all of it. And reads of what was written in part:
// each is of what was written there, or of what was there before.
#include <algorithm>
#include <numeric>
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
constexpr int64_t kSmallPart = 32;           // the same where one write is enough
constexpr int64_t kLargeWhole = 1 << 14;     // elements, for that

/// A value that is `base` with the elements of `source` at `at`.
struct Part {
  ValueId base = kNoValue, source = kNoValue;
  ops::IndexMap at;  // from indices of the source to indices of the base
};

/// Where each dimension of the base is: start + step * (index of the source's dimension `from`).
struct Place {
  std::vector<Expr> start, step, from;
};

/// Where the parts are that inverses of views write, and what views read.
class PartMaps {
 public:
  explicit PartMaps(const Graph& graph) : graph_(graph), ctx_(graph.ctx()) {
    for (const char* view : {"slice", "select", "diagonal"}) {
      inverses_.emplace(&OpRegistry::global().get(str_cat(view, "_scatter")), &OpRegistry::global().get(view));
    }
  }

 protected:
  bool writes_parts() const {
    const std::vector<Node>& nodes = graph_.nodes();
    return std::any_of(nodes.begin(), nodes.end(), [this](const Node& node) { return inverses_.contains(node.op); });
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

  /// What one view of the base replaces.
  std::optional<Part> replaced(const Node& node, const OpDef& view) const {
    Part part{std::get<TensorArg>(node.args[0]).value, std::get<TensorArg>(node.args[1]).value, nullptr};
    Node viewed;
    viewed.op = &view;
    viewed.args = {node.args[0]};
    viewed.args.insert(viewed.args.end(), node.args.begin() + 2, node.args.end());
    viewed.outputs = {part.source};
    part.at = ops::view_map(graph_, viewed);
    return part.at ? std::optional(std::move(part)) : std::nullopt;
  }

  /// The same, where that is maybe the view with a part of it written.
  std::optional<Part> inverse(const Node& node, const OpDef& view) const {
    std::optional<Part> part = replaced(node, view);
    if (!part) return std::nullopt;
    const std::optional<Part> inner = part_of(part->source);
    if (!inner) return part;
    const auto known = map_to(inner->base, part->base);
    const std::vector<Expr> at = symbols(inner->base);
    if (!known || !same((*known)(at), part->at(at))) return part;
    return Part{part->base, inner->source,
                [outer = part->at, at = inner->at](std::span<const Expr> i) { return outer(at(i)); }};
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

class PartWrites : public PartMaps {
 public:
  using PartMaps::PartMaps;
  using Found = std::unordered_map<ValueId, std::pair<Part, Place>>;

  /// The values that are what they were before with a part written, where that is to be done in place: those that an input becomes
  /// one after the other, those of many writes to a tensor that is made here, and those of small parts of a large result that nothing
  /// else reads. (A few others are one kernel with whatever makes and reads it.)
  Found find() const {
    Found all;
    if (!writes_parts()) return all;
    for (const InputWrite& write : graph_.input_writes()) add_chain(write.value, 1, all);
    for (size_t n = graph_.num_nodes(); n-- > 0;) {
      const Node& node = graph_.node(static_cast<NodeId>(n));
      if (node.outputs.size() != 1 || all.contains(node.outputs[0])) continue;
      const bool on_gpu = graph_.type(node.outputs[0]).device.kind == DeviceKind::kCuda;
      add_chain(node.outputs[0], on_gpu ? kManyOnGpu : kMany, all);
    }
    const std::vector<int> uses = graph_.use_counts();
    for (const GraphOutput& output : graph_.outputs()) {
      const ValueId v = output.value;
      if (v == kNoValue || graph_.producer(v) == nullptr || all.contains(v)) continue;
      if (graph_.type(v).device.kind == DeviceKind::kCpu && uses[static_cast<size_t>(v)] == 1 &&
          elements(v) >= kLargeWhole) {
        add_chain(v, 1, all, kSmallPart);
      }
    }
    return all;
  }

 private:
  /// From the last write on; fewer than `least` are left as they are.
  void add_chain(ValueId v, size_t least, Found& all, int64_t times = kPart) const {
    Found chain;
    for (;;) {
      std::optional<Part> part = part_of(v);
      if (!part || times * elements(part->source) > elements(part->base)) break;
      if (graph_.type(part->base).strides != graph_.type(v).strides) break;
      std::optional<Place> place = place_of(*part);
      if (!place) break;
      const ValueId before = part->base;
      chain.emplace(v, std::pair{std::move(*part), std::move(*place)});
      v = before;
    }
    const auto is_result = [v](const GraphOutput& output) { return output.value == v; };
    if (times > kPart && std::ranges::any_of(graph_.outputs(), is_result)) return;  // it is needed as it was
    if (chain.size() >= least) all.merge(chain);
  }

  int64_t elements(ValueId v) const { return ctx_.evaluate_hint(graph_.type(v).numel(ctx_)).value_or(64); }
};

/// What views read of tensors that a part was written to before.
class PartReads : public PartMaps {
 public:
  explicit PartReads(const Graph& graph) : PartMaps(graph), escapes_(escaping_values(graph)), by_host_(host_reads()) {}

  /// The values that are what their base is: what is written to them is there already (`x[0] += 1` writes twice).
  const std::unordered_map<ValueId, ValueId>& find_unchanged() {
    if (!writes_parts()) return unchanged_;
    for (const Node& node : graph_.nodes()) {
      const auto found = inverses_.find(node.op);
      if (found == inverses_.end()) continue;
      const std::optional<Part> part = replaced(node, *found->second);
      if (!part || !(graph_.type(part->base) == graph_.type(node.outputs[0]))) continue;
      const Root base = root_of(part->base);
      if (!has_already(base, *part)) continue;
      if (escapes_[static_cast<size_t>(node.outputs[0])]) {
        // What escapes keeps an identity of its own.
        const bool own = base.chain.empty() && graph_.producer(base.value) != nullptr;
        if (!own || escapes_[static_cast<size_t>(base.value)]) continue;
        escapes_[static_cast<size_t>(base.value)] = true;
      }
      unchanged_.emplace(node.outputs[0], part->base);
    }
    return unchanged_;
  }

  /// What a view reads instead: `source`, or the views `chain` (the last is the first one taken) of it.
  struct Read {
    ValueId source = kNoValue;
    std::vector<const Node*> chain;
  };
  std::unordered_map<ValueId, Read> find(const PartWrites::Found& in_place) const {
    std::unordered_map<ValueId, Read> all;
    if (!writes_parts()) return all;
    for (const Node& node : graph_.nodes()) {
      if (node.op->kind != OpKind::kView || node.outputs.size() != 1) continue;
      if (escapes_[static_cast<size_t>(node.outputs[0])]) continue;
      if (auto read = read_of(node.outputs[0], in_place)) all.emplace(node.outputs[0], std::move(*read));
    }
    return all;
  }

 private:
  static constexpr int kMostSteps = 8;  // writes that are looked through

  struct Root {
    ValueId value = kNoValue;  // no view
    ops::IndexMap at;
    std::vector<const Node*> chain;  // from the view down
  };

  /// What has the same elements, of the same type but for its strides: a copy tells nothing new.
  ValueId copied(ValueId v) const {
    for (;;) {
      const Node* node = graph_.producer(v);
      if (node == nullptr || node->op->draws()) return v;
      const bool repeats = node->op->traits.repeats_operand || node->op->traits.copies_to_strides;
      if (!repeats && node->op->name != "copy") return v;
      const auto* operand = std::get_if<TensorArg>(&node->args[repeats ? 0 : 1]);
      if (operand == nullptr || operand->value == kNoValue) return v;
      const TensorType &in = graph_.type(operand->value), &out = graph_.type(v);
      if (in.dtype != out.dtype || in.sizes != out.sizes || !(in.device == out.device)) return v;
      v = operand->value;
    }
  }

  /// Whether the part's base has the part's elements, as it is or because they were written to it last.
  bool has_already(const Root& base, const Part& part) const {
    const ValueId source = copied(part.source);
    const std::vector<Expr> at = symbols(part.source), places = base.at(part.at(at));
    const Root root = root_of(source);
    if (root.value == base.value && same(root.at(at), places)) return true;
    const Node* node = graph_.producer(base.value);
    const auto found = node == nullptr ? inverses_.end() : inverses_.find(node->op);
    const auto last = found == inverses_.end() ? std::nullopt : replaced(*node, *found->second);
    return last && copied(last->source) == source &&
           graph_.type(last->source).dtype == graph_.type(part.source).dtype &&
           graph_.type(last->source).sizes == graph_.type(part.source).sizes && same(last->at(at), places);
  }

  std::vector<bool> host_reads() const {
    std::vector<bool> reads(graph_.num_values(), false);
    for (size_t n = graph_.num_nodes(); n-- > 0;) {
      const Node& node = graph_.node(static_cast<NodeId>(n));
      const bool view = node.op->kind == OpKind::kView;
      const bool read = view ? std::any_of(node.outputs.begin(), node.outputs.end(),
                                           [&](ValueId v) { return reads[static_cast<size_t>(v)]; })
                             : node.op->kind == OpKind::kHost || !node.op->lower;
      if (read) for_each_operand(node, [&](ValueId v) { reads[static_cast<size_t>(v)] = true; });
    }
    return reads;
  }

  Root root_of(ValueId v) const {
    Root root{v, [](std::span<const Expr> at) { return std::vector<Expr>(at.begin(), at.end()); }, {}};
    for (;;) {
      if (const auto same_as = unchanged_.find(root.value); same_as != unchanged_.end()) {
        root.value = same_as->second;
        continue;
      }
      const Node* node = graph_.producer(root.value);
      ops::IndexMap map = node == nullptr ? nullptr : ops::view_map(graph_, *node);
      const ValueId operand = map ? std::get<TensorArg>(node->args[0]).value : kNoValue;
      if (!map || graph_.type(operand).dtype != graph_.type(root.value).dtype) return root;
      root.at = [all = root.at, map = std::move(map)](std::span<const Expr> at) { return map(all(at)); };
      root.chain.push_back(node);
      root.value = operand;
    }
  }

  std::optional<Read> read_of(ValueId v, const PartWrites::Found& in_place) const {
    std::optional<Read> read;
    Root root = root_of(v);
    for (int step = 0; step < kMostSteps && !in_place.contains(root.value); ++step) {
      const Node* node = graph_.producer(root.value);
      const auto found = node == nullptr ? inverses_.end() : inverses_.find(node->op);
      const auto part = found == inverses_.end() ? std::nullopt : replaced(*node, *found->second);
      if (!part) return read;
      const TensorType &type = graph_.type(v), &source = graph_.type(part->source);
      const std::vector<Expr> at = symbols(v);
      if (type.dtype != source.dtype || graph_.type(part->base).dtype != type.dtype) return read;
      if (type.sizes == source.sizes && same(root.at(at), part->at(at))) {
        // The host may look at strides.
        if (type.strides == source.strides || !by_host_[static_cast<size_t>(v)]) read = Read{part->source, {}};
        return read;
      }
      const bool as_before = graph_.type(part->base).strides == graph_.type(root.value).strides;
      if (!as_before || !apart(root.at(at), v, *part)) return read;
      read = Read{part->base, root.chain};
      Root before = root_of(part->base);
      root.value = before.value;
      root.at = [outer = std::move(root.at), inner = std::move(before.at)](std::span<const Expr> i) {
        return inner(outer(i));
      };
      root.chain.insert(root.chain.end(), before.chain.begin(), before.chain.end());
    }
    return read;
  }

  /// The first and the last of the places along a dimension, and how far they are from each other.
  struct Row {
    Expr first, last;
    int64_t step = 0;
  };
  std::vector<Row> rows(const std::vector<Expr>& at, const std::vector<Expr>& dims,
                        const std::vector<Expr>& sizes) const {
    std::vector<Row> result;
    for (const Expr place : simple(at)) {
      Row row{place, place, 0};
      for (size_t d = 0; d < dims.size() && row.first.valid(); ++d) {
        if (!dims[d].is_symbol() || !place.contains(dims[d])) continue;
        const Expr step = place.coefficient_of(dims[d]);
        const bool known = step.valid() && step.is_const() && step.const_value() > 0 && row.step == 0;
        row = known ? Row{ctx_.sub(place, ctx_.mul(step, dims[d])), {}, step.const_value()} : Row{};
        if (known) row.last = ctx_.add(row.first, ctx_.mul(step, ctx_.sub(sizes[d], ctx_.constant(1))));
      }
      for (const Expr dim : dims) {
        if (row.first.valid() && dim.is_symbol() && row.first.contains(dim)) row = {};
      }
      result.push_back(row);
    }
    return result;
  }

  /// Whether none of the places `at`, which the elements of `v` have, is one of the part's.
  bool apart(const std::vector<Expr>& at, ValueId v, const Part& part) const {
    const std::vector<Expr> dims = symbols(v), own = symbols(part.source);
    const std::vector<Row> read = rows(at, dims, graph_.type(v).sizes);
    const std::vector<Row> written = rows(part.at(own), own, graph_.type(part.source).sizes);
    const auto before = [this](const Row& a, const Row& c) { return ctx_.decide(ctx_.lt(a.last, c.first)) == true; };
    for (size_t d = 0; d < read.size(); ++d) {
      const Row &a = read[d], &c = written[d];
      if (!a.first.valid() || !c.first.valid()) continue;
      if (before(a, c) || before(c, a)) return true;
      const Expr between = ctx_.simplify(ctx_.sub(a.first, c.first));
      const int64_t common = std::gcd(a.step, c.step);
      if (common > 1 && between.is_const() && between.const_value() % common != 0) return true;
    }
    return false;
  }

  std::vector<bool> escapes_;
  const std::vector<bool> by_host_;
  std::unordered_map<ValueId, ValueId> unchanged_;
};
}  // namespace

Graph read_parts(const Graph& graph, const PassOptions& options) {
  return run_pass("read_parts", graph, options, [](const Graph& all) {
    PartReads writes(all);
    const auto& unchanged = writes.find_unchanged();
    GraphCopy without(all);
    for (const Node& node : all.nodes()) {
      const auto found = node.outputs.size() == 1 ? unchanged.find(node.outputs[0]) : unchanged.end();
      if (found == unchanged.end()) {
        without.copy(node);
      } else {
        without.set(node.outputs[0], without[found->second]);
      }
    }
    const Graph g = unchanged.empty() ? all : without.finish();
    const auto reads = PartReads(g).find(PartWrites(g).find());
    if (reads.empty()) return g;
    GraphCopy copy(g);
    for (const Node& node : g.nodes()) {
      const auto found = node.outputs.size() == 1 ? reads.find(node.outputs[0]) : reads.end();
      if (found == reads.end()) {
        copy.copy(node);
        continue;
      }
      ValueId v = copy[found->second.source];
      const auto& chain = found->second.chain;
      for (auto view = chain.rbegin(); view != chain.rend(); ++view) {
        std::vector<Arg> args = (*view)->args;
        args[0] = TensorArg{v};
        const NodeId id =
            copy.to().add_node((*view)->op, std::move(args), {g.type((*view)->outputs[0])}, node.location);
        copy.to().node(id).take_marks(node);
        v = copy.to().node(id).outputs[0];
      }
      copy.set(node.outputs[0], v);
    }
    return copy.finish();
  });
}

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
