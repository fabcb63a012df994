#include "ops/core/view_util.h"

#include <algorithm>

#include "support/error.h"

namespace tatara::ops {
namespace {

std::string shape_text(ExprContext& ctx, const std::vector<Expr>& sizes) {
  return "[" +
         str_join(sizes, ", ",
                  [&](Expr e) {
                    const auto value = ctx.evaluate_hint(e);
                    return value ? std::to_string(*value) : e.str();
                  }) +
         "]";
}

}  // namespace

std::vector<Expr> infer_sizes(ExprContext& ctx, std::vector<Expr> sizes, const std::vector<Expr>& old_sizes) {
  const Expr numel = product(ctx, old_sizes);
  const std::string asked = shape_text(ctx, sizes);
  const auto refuse = [&] {
    throw InvalidArgument(
        str_cat("shape '", asked, "' is invalid for input of size ", ctx.evaluate_hint(numel).value_or(0)));
  };
  std::optional<size_t> free;
  Expr known = ctx.constant(1);
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i].is_const(-1)) {
      if (free) throw InvalidArgument("only one dimension can be inferred");
      free = i;
    } else {
      if (sizes[i].is_const() && sizes[i].const_value() < 0) {
        throw InvalidArgument("invalid shape dimension " + sizes[i].str());
      }
      known = ctx.mul(known, sizes[i]);
    }
  }
  if (free) {
    if (is_zero(ctx, known)) {
      throw InvalidArgument(str_cat("cannot reshape tensor of 0 elements into shape ", asked,
                                    " because the unspecified dimension size -1 can be any value and is ambiguous"));
    }
    sizes[*free] = ctx.simplify(ctx.floordiv(numel, known));
    known = ctx.mul(known, sizes[*free]);
  }
  if (!same_size(ctx, ctx.simplify(known), ctx.simplify(numel))) refuse();
  return sizes;
}

std::optional<std::vector<Expr>> view_strides(ExprContext& ctx, const TensorType& type,
                                              const std::vector<Expr>& sizes) {
  if (type.sizes.empty() || type.strides == contiguous_strides(ctx, type.sizes)) return contiguous_strides(ctx, sizes);
  const bool empty = std::any_of(type.sizes.begin(), type.sizes.end(), [&](Expr e) { return is_zero(ctx, e); });
  // Eager lays dimensions of size 1 anew, also where nothing else changes.
  const auto is_unit = [](Expr e) { return e.is_const(1); };
  const bool units = std::any_of(sizes.begin(), sizes.end(), is_unit);
  if (type.sizes == sizes && (empty || !units)) return type.strides;
  if (empty) return contiguous_strides(ctx, sizes);
  // Runs of dimensions that lie evenly in memory are matched with runs of new dimensions, from the last one on.
  std::vector<Expr> result(sizes.size());
  size_t view_d = sizes.size();
  Expr base = type.strides.back();
  Expr tensor_numel = ctx.constant(1);
  Expr view_numel = ctx.constant(1);
  for (size_t d = type.sizes.size(); d-- > 0;) {
    tensor_numel = ctx.mul(tensor_numel, type.sizes[d]);
    const bool ends = d == 0 || (!is_one(ctx, type.sizes[d - 1]) &&
                                 !same_size(ctx, type.strides[d - 1], ctx.mul(tensor_numel, base)));
    if (!ends) continue;
    const auto smaller = [&] { return !(view_numel == tensor_numel) && ctx.guard(ctx.lt(view_numel, tensor_numel)); };
    while (view_d > 0 && (smaller() || is_one(ctx, sizes[view_d - 1]))) {
      --view_d;
      result[view_d] = ctx.mul(view_numel, base);
      view_numel = ctx.mul(view_numel, sizes[view_d]);
    }
    if (!same_size(ctx, view_numel, tensor_numel)) return std::nullopt;
    if (d > 0) {
      base = type.strides[d - 1];
      tensor_numel = ctx.constant(1);
      view_numel = ctx.constant(1);
    }
  }
  if (view_d != 0) return std::nullopt;
  return result;
}

namespace {
Expr int_arg_expr(ExprContext& ctx, const Arg& arg, Expr fallback) {
  const auto* scalar = std::get_if<Scalar>(&arg);
  if (scalar == nullptr) return fallback;
  if (const auto* e = std::get_if<Expr>(scalar)) return *e;
  if (const auto* n = std::get_if<int64_t>(scalar)) return ctx.constant(*n);
  if (const auto* b = std::get_if<bool>(scalar)) return ctx.constant(*b ? 1 : 0);
  throw InvalidArgument("slice indices must be integers or None or have an __index__ method");
}

bool holds(ExprContext& ctx, Expr condition) {
  if (condition.is_const()) return condition.const_value() != 0;
  return ctx.guard(condition);
}
}  // namespace

SliceRange slice_range(ExprContext& ctx, Expr size, const Arg& start_arg, const Arg& end_arg, const Arg& step_arg) {
  const Expr zero = ctx.constant(0);
  const Expr step = int_arg_expr(ctx, step_arg, ctx.constant(1));
  if (!holds(ctx, ctx.lt(zero, step))) throw InvalidArgument("slice step must be positive");
  const auto bound = [&](const Arg& arg, Expr fallback) {
    Expr e = int_arg_expr(ctx, arg, fallback);
    if (e == fallback || e == size) return e;
    if (holds(ctx, ctx.lt(e, zero))) {
      e = ctx.add(e, size);
      if (holds(ctx, ctx.lt(e, zero))) return zero;
    }
    return holds(ctx, ctx.lt(size, e)) ? size : e;
  };
  const Expr start = bound(start_arg, zero);
  Expr end = bound(end_arg, size);
  if (!(end == size) && holds(ctx, ctx.lt(end, start))) end = start;
  return {start, ctx.simplify(ctx.ceildiv(ctx.sub(end, start), step)), step};
}

Expr wrap_index(ExprContext& ctx, Expr index, Expr size, int64_t dim, bool select) {
  const bool below = holds(ctx, ctx.lt(index, ctx.constant(0)));
  const Expr wrapped = below ? ctx.add(index, size) : index;
  const bool inside = below ? holds(ctx, ctx.le(ctx.constant(0), wrapped)) : holds(ctx, ctx.lt(wrapped, size));
  if (!inside) {
    const int64_t i = ctx.evaluate_hint(index).value_or(0);
    const int64_t n = ctx.evaluate_hint(size).value_or(0);
    if (select) throw InvalidArgument(str_cat("index ", i, " is out of bounds for dimension ", dim, " with size ", n));
    throw InvalidArgument(str_cat("start out of range: ", i, " for size ", n));
  }
  return wrapped;
}

namespace {

/// Dimensions of both sides that hold the same elements: in[first_in, last_in) and out[first_out, last_out).
struct Run {
  size_t first_in;
  size_t last_in;
  size_t first_out;
  size_t last_out;
};

std::vector<Run> match_runs(ExprContext& ctx, const std::vector<Expr>& in, const std::vector<Expr>& out) {
  const auto equal = [&](Expr a, Expr b) { return a == b || ctx.decide(ctx.eq(a, b)).value_or(false); };
  const auto hint = [&](Expr e) { return ctx.evaluate_hint(e).value_or(0); };
  std::vector<Run> runs;
  size_t i = in.size();
  size_t j = out.size();
  while (i > 0 || j > 0) {
    Run run{i, i, j, j};
    Expr a = ctx.constant(1);
    Expr b = ctx.constant(1);
    const auto grow_in = [&] { a = ctx.mul(a, in[--run.first_in]); };
    const auto grow_out = [&] { b = ctx.mul(b, out[--run.first_out]); };
    // Dimensions of size one make runs of their own.
    if (i > 0 && in[i - 1].is_const(1)) {
      grow_in();
    } else if (j > 0 && out[j - 1].is_const(1)) {
      grow_out();
    } else {
      if (i > 0) grow_in();
      if (j > 0) grow_out();
    }
    while (!equal(a, b) && (run.first_in > 0 || run.first_out > 0)) {
      const bool more_in = run.first_in > 0 && (run.first_out == 0 || hint(a) <= hint(b));
      if (more_in) {
        grow_in();
      } else {
        grow_out();
      }
    }
    i = run.first_in;
    j = run.first_out;
    runs.push_back(run);
  }
  return runs;
}

}  // namespace

IndexMap reshape_map(ExprContext& ctx, std::vector<Expr> from, std::vector<Expr> to) {
  if (std::any_of(from.begin(), from.end(), [](Expr size) { return size.is_const(0); })) {
    // Nothing is there, so nothing reads by it.
    return [zeros = std::vector<Expr>(from.size(), ctx.constant(0))](std::span<const Expr>) { return zeros; };
  }
  std::vector<Run> runs = match_runs(ctx, from, to);
  return [&ctx, from = std::move(from), to = std::move(to), runs = std::move(runs)](std::span<const Expr> at) {
    const Expr zero = ctx.constant(0);
    std::vector<Expr> result(from.size(), zero);
    for (const Run& run : runs) {
      std::vector<size_t> dims;  // of `from`, without sizes of one
      for (size_t d = run.first_in; d < run.last_in; ++d) {
        if (!from[d].is_const(1)) dims.push_back(d);
      }
      if (dims.empty()) continue;
      Expr linear = zero;
      for (size_t d = run.first_out; d < run.last_out; ++d) {
        if (!to[d].is_const(1)) linear = ctx.add(ctx.mul(linear, to[d]), at[d]);
      }
      for (size_t k = dims.size(); k-- > 1;) {
        result[dims[k]] = ctx.simplify(ctx.mod(linear, from[dims[k]]));
        linear = ctx.simplify(ctx.floordiv(linear, from[dims[k]]));
      }
      result[dims[0]] = linear;
    }
    return result;
  };
}

namespace {
/// Runs a view's lowering only to learn its index map.
class MapCapture : public LowerContext {
 public:
  MapCapture(const Graph& graph, const Node& node) : graph_(graph), node_(node) {
    for_each_operand(node, [&](ValueId id) { operands_.push_back(id); });
  }
  const Graph& graph() const override { return graph_; }
  const Node& node() const override { return node_; }
  const TensorType& operand(int i) const override { return graph_.type(operands_[static_cast<size_t>(i)]); }
  int num_operands() const override { return static_cast<int>(operands_.size()); }
  const TensorType& result(int i) const override { return graph_.type(node_.outputs[static_cast<size_t>(i)]); }
  void pointwise(int, ElementFn) override {}
  void view(std::function<std::vector<Expr>(std::span<const Expr>)> map) override { map_ = std::move(map); }
  void reduction(ReductionDef) override {}
  void scan(ReductionDef, bool) override {}
  void scatter(ScatterDef) override {}
  void sort(SortDef) override {}
  void product(ProductKind) override {}
  void attention_scores() override {}
  void attention() override {}
  void weighed_product() override {}
  IndexMap take() { return std::move(map_); }

 private:
  const Graph& graph_;
  const Node& node_;
  std::vector<ValueId> operands_;
  IndexMap map_;
};
}  // namespace

IndexMap view_map(const Graph& graph, const Node& node) {
  if (node.op->kind != OpKind::kView || !node.op->lower) return nullptr;
  MapCapture capture(graph, node);
  node.op->lower(capture);
  return capture.take();
}

Expr offset_behind(const Graph& graph, ValueId view, Expr offset) {
  const Node& node = *graph.producer(view);
  const TensorType& operand = graph.type(std::get<TensorArg>(node.args[0]).value);
  ExprContext& ctx = graph.ctx();
  const DType dtype = graph.type(view).dtype;
  if (operand.dtype != dtype) {  // the same bytes from the first on, or from the second part of a complex number
    const auto size = [&](DType of) { return ctx.constant(dtype_size(of)); };
    const Expr start = ctx.floordiv(ctx.mul(offset, size(operand.dtype)), size(dtype));
    return ctx.simplify(node.op->name == "imag_part" ? start + 1 : start);
  }
  const Expr zero = ctx.constant(0);
  const IndexMap map = view_map(graph, node);
  if (!map) return {};
  const std::vector<Expr> first = map(std::vector<Expr>(graph.type(view).sizes.size(), zero));
  for (size_t i = 0; i < first.size(); ++i) offset = ctx.add(offset, ctx.mul(first[i], operand.strides[i]));
  return ctx.simplify(offset);
}

IndexMap strided_map(ExprContext& ctx, std::vector<Expr> from, std::vector<Expr> strides, Expr offset) {
  return [&ctx, from = std::move(from), strides = std::move(strides), offset](std::span<const Expr> at) {
    Expr linear = offset;
    for (size_t i = 0; i < at.size(); ++i) linear = ctx.add(linear, ctx.mul(at[i], strides[i]));
    std::vector<Expr> result(from.size());
    for (size_t d = from.size(); d-- > 1;) {
      result[d] = ctx.simplify(ctx.mod(linear, from[d]));
      linear = ctx.simplify(ctx.floordiv(linear, from[d]));
    }
    if (!result.empty()) result[0] = linear;
    return result;
  };
}

}  // namespace tatara::ops
