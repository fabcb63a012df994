// Gradients of views, their inverses and joins.
#include "ops/rules/derivative.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;

/// The arguments of the node from `first` on.
std::vector<Arg> tail(const VjpContext& v, size_t first) {
  return {v.node().args.begin() + static_cast<std::ptrdiff_t>(first), v.node().args.end()};
}

ValueId with_tail(VjpContext& v, std::string_view op, std::vector<Arg> head, size_t first) {
  for (Arg& arg : tail(v, first)) head.push_back(std::move(arg));
  return v.builder().op(op, std::move(head));
}

void reshape_rule(VjpContext& v) {
  const ValueId g = v.grad();
  const std::vector<Expr> sizes = v.args().type(0).sizes;
  v.give(0, v.builder().reshape(g, sizes));
}

void permute_rule(VjpContext& v) {
  const std::vector<int64_t> dims = v.args().integers(1);
  std::vector<int64_t> inverse(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) {
    inverse[static_cast<size_t>(wrap_dim(dims[i], static_cast<int64_t>(dims.size())))] = static_cast<int64_t>(i);
  }
  v.give(0, v.builder().permute(v.grad(), inverse));
}

/// slice, select, diagonal: the gradient stands at its place among zeros.
VjpFn scattered(const char* scatter) {
  return [scatter](VjpContext& v) {
    v.give(0, with_tail(v, scatter, {TensorArg{zeros_of_operand(v, 0)}, TensorArg{v.grad()}}, 1));
  };
}

/// Elements that the view has several times get the sum. (The operand is contiguous: a place in memory is an index of it.)
void as_strided_rule(VjpContext& v) {
  GraphBuilder& b = v.builder();
  ExprContext& ctx = b.ctx();
  const TensorType self = v.args().type(0), out = b.type(v.out());
  const std::vector<Expr> strides = v.args().exprs(2);
  const Scalar zero{int64_t{0}}, one{int64_t{1}};
  ValueId places =
      b.op("full", {SymInts{}, v.args().none(3) ? Arg(zero) : v.args()[3], DType::kInt64, NoneArg{}, self.device});
  const auto rank = static_cast<int64_t>(strides.size());
  for (int64_t d = 0; d < rank; ++d) {
    const auto i = static_cast<size_t>(d);
    ValueId along = b.op("arange.step", {zero, expr_arg(out.sizes[i]), one, DType::kInt64, NoneArg{}, self.device});
    const Arg stride = expr_arg(strides[i]);
    along = b.binary("mul", along, std::get<Scalar>(stride));
    for (int64_t k = 0; k < rank; ++k) {
      if (k != d) along = b.unsqueeze(along, k);
    }
    places = b.binary("add", places, along);
  }
  const std::vector<Expr> all{self.numel(ctx)}, given{out.numel(ctx)};
  const ValueId sum = b.op("index_add", {TensorArg{b.reshape(zeros_of_operand(v, 0), all)}, zero,
                                         TensorArg{b.reshape(places, given)}, TensorArg{b.reshape(v.grad(), given)}});
  v.give(0, b.reshape(sum, self.sizes));
}

/// The inverses of views: what was written over takes no gradient.
VjpFn written_over(const char* view, const char* scatter) {
  return [view, scatter](VjpContext& v) {
    if (v.needs(0)) {
      const ValueId zeros = zeros_of_operand(v, 1);
      v.give(0, with_tail(v, scatter, {TensorArg{v.grad()}, TensorArg{zeros}}, 2));
    }
    if (v.needs(1)) v.give(1, with_tail(v, view, {TensorArg{v.grad()}}, 2));
  };
}

void cat_rule(VjpContext& v) {
  GraphBuilder& b = v.builder();
  const auto& tensors = std::get<TensorList>(v.args()[0]).values;
  const TensorType out = b.type(v.out());
  const int64_t dim = v.args().dim(1, out.dim());
  Expr start = b.ctx().constant(0);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorType& part = b.type(tensors[i]);
    if (part.dim() != out.dim()) {  // an empty tensor of one dimension is left out
      if (v.needs(0, i)) v.give(0, i, zeros_of(b, part));
      continue;
    }
    const Expr end = b.ctx().add(start, part.sizes[static_cast<size_t>(dim)]);
    if (v.needs(0, i)) v.give(0, i, b.slice(v.grad(), dim, start, end, b.ctx().constant(1)));
    start = end;
  }
}

void flip_rule(VjpContext& v) { v.give(0, with_tail(v, "flip", {TensorArg{v.grad()}}, 1)); }

/// tril, triu.
VjpFn same_mask(const char* op) {
  return [op](VjpContext& v) { v.give(0, with_tail(v, op, {TensorArg{v.grad()}}, 1)); };
}

void repeat_rule(VjpContext& v) {
  GraphBuilder& b = v.builder();
  const std::vector<Expr> repeats = v.args().exprs(1);
  const std::vector<Expr> sizes = v.args().type(0).sizes;
  std::vector<Expr> split;
  std::vector<int64_t> dims;
  const size_t extra = repeats.size() - sizes.size();
  for (size_t i = 0; i < repeats.size(); ++i) {
    dims.push_back(static_cast<int64_t>(split.size()));
    split.push_back(repeats[i]);
    if (i >= extra) split.push_back(sizes[i - extra]);
  }
  if (dims.empty()) return v.give(0, v.grad());
  v.give(0, b.reshape(b.reduce("sum", b.reshape(v.grad(), split), dims, false), sizes));
}

void pad_rule(VjpContext& v) {
  SymInts pad;
  for (const Expr e : v.args().exprs(1)) pad.values.push_back(v.ctx().mul(e, v.ctx().constant(-1)));
  v.give(0, v.builder().op("constant_pad_nd", {TensorArg{v.grad()}, pad, Scalar(int64_t{0})}));
}

/// Padding with elements of the input itself: what each of them was read for goes back to it, dimension by dimension.
enum class Edge : uint8_t { kReflect, kReplicate, kCircular };

/// `part` of a cotangent, of elements before (or behind) the `n` own ones, as a cotangent of these.
ValueId folded(GraphBuilder& b, ValueId part, int64_t dim, Expr n, int64_t amount, bool before, Edge edge) {
  ExprContext& ctx = b.ctx();
  int64_t first = 0;  // distance from the near end, where it begins (reflection leaves the end itself out)
  int64_t length = amount;
  if (edge == Edge::kReflect) {
    part = b.op("flip", {TensorArg{part}, int_arg(dim)});
    first = 1;
  } else if (edge == Edge::kReplicate) {
    part = b.reduce("sum", part, {dim}, true);
    length = 1;
  }
  const Expr near = ctx.constant(first), far = ctx.sub(n, ctx.constant(first + length));
  const bool at_start = before == (edge != Edge::kCircular);
  SymInts pad{std::vector<Expr>(static_cast<size_t>(2 * (b.type(part).dim() - dim)), ctx.constant(0))};
  pad.values[pad.values.size() - 2] = at_start ? near : far;
  pad.values[pad.values.size() - 1] = at_start ? far : near;
  return b.op("constant_pad_nd", {TensorArg{part}, pad, Scalar(int64_t{0})});
}

VjpFn edge_rule(Edge edge) {
  return [edge](VjpContext& v) {
    GraphBuilder& b = v.builder();
    ExprContext& ctx = b.ctx();
    const std::vector<Expr> amounts = v.args().exprs(1);
    const std::vector<Expr> sizes = v.args().type(0).sizes;
    ValueId g = v.grad();
    for (size_t i = 0; i < amounts.size() / 2; ++i) {
      const size_t d = sizes.size() - 1 - i;
      const auto dim = static_cast<int64_t>(d);
      const int64_t before = amounts[2 * i].const_value(), after = amounts[2 * i + 1].const_value();
      const Expr start = ctx.constant(before), end = ctx.add(sizes[d], start), one = ctx.constant(1);
      ValueId own = before == 0 && after == 0 ? g : b.slice(g, dim, start, end, one);
      const auto add = [&](Expr from, Expr to, int64_t amount, bool is_before) {
        if (amount == 0) return;
        own = b.binary("add", own, folded(b, b.slice(g, dim, from, to, one), dim, sizes[d], amount, is_before, edge));
      };
      add(ctx.constant(0), start, before, true);
      add(end, ctx.add(end, ctx.constant(after)), after, false);
      g = own;
    }
    // Of the other two eager has a node that is given the operand.
    v.give(0, edge == Edge::kCircular ? g : tied(b, g, {v.args().tensor(0)}));
  };
}

void diag_embed_rule(VjpContext& v) { v.give(0, with_tail(v, "diagonal", {TensorArg{v.grad()}}, 1)); }

void real_part_rule(VjpContext& v) {
  const Term g = gradient(v);
  v.give(0, v.builder().binary("from_parts", g.id, v.builder().unary("zeros_like", g.id)));
}
void imag_part_rule(VjpContext& v) {
  const Term g = gradient(v);
  v.give(0, v.builder().binary("from_parts", v.builder().unary("zeros_like", g.id), g.id));
}
void view_as_real_rule(VjpContext& v) {
  GraphBuilder& b = v.builder();
  const int64_t last = b.type(v.grad()).dim() - 1;
  const auto part = [&](int64_t i) { return b.op("select", {TensorArg{v.grad()}, int_arg(last), int_arg(i)}); };
  v.give(0, b.binary("from_parts", part(0), part(1)));
}
void view_as_complex_rule(VjpContext& v) { v.give(0, v.builder().unary("view_as_real", v.grad())); }

}  // namespace

void register_derivatives_views(OpRegistry& r) {
  r.amend("as_strided").vjp = as_strided_rule;
  const auto tie = [&](const char* name, VjpFn vjp) {
    const DecomposeFn value = [](GraphBuilder&, std::span<const Arg> args) -> std::vector<ValueId> {
      return {std::get<TensorArg>(args[0]).value};
    };
    const char* schema = "(Tensor self, Tensor[] others, bool zeros=True) -> Tensor";
    OpDef def = make_op({name, OpKind::kPointwise, schema, ""}, r.get("alias").meta, value);
    def.vjp = std::move(vjp);
    r.add(std::move(def));
  };
  tie("tied", [](VjpContext& v) {
    v.give(0, v.grad());
    const size_t count = v.args().flag(2) ? v.args().tensors(1).size() : 0;
    for (size_t i = 0; i < count; ++i) {
      if (v.needs(1, i)) v.give(1, i, zeros_of(v.builder(), v.builder().type(v.args().tensors(1)[i])));
    }
  });
  tie("gradient_tied",
      [](VjpContext& v) { v.give(0, tied(v.builder(), v.grad(), v.args().tensors(1), v.args().flag(2))); });
  const auto rule = [&r](const char* name, VjpFn fn) { r.amend(name).vjp = std::move(fn); };
  for (const char* name : {"view", "reshape_copy", "unsqueeze", "squeeze", "squeeze.dim"}) rule(name, reshape_rule);
  // Eager sums to one number, also where there is just one.
  rule("expand", [](VjpContext& v) {
    const ValueId g = v.grad();
    v.give(0, v.builder().type(g).dim() == 0 ? copy_both_ways(v.builder(), g) : g);
  });
  rule("permute", permute_rule);
  rule("slice", scattered("slice_scatter"));
  rule("select", scattered("select_scatter"));
  rule("diagonal", scattered("diagonal_scatter"));
  rule("slice_scatter", written_over("slice", "slice_scatter"));
  rule("select_scatter", written_over("select", "select_scatter"));
  rule("diagonal_scatter", written_over("diagonal", "diagonal_scatter"));
  rule("diag_embed", diag_embed_rule);
  rule("real_part", real_part_rule);
  rule("imag_part", imag_part_rule);
  rule("view_as_real", view_as_real_rule);
  rule("view_as_complex", view_as_complex_rule);
  rule("cat", cat_rule);
  rule("cat_host", cat_rule);
  rule("flip", flip_rule);
  rule("tril", same_mask("tril"));
  rule("triu", same_mask("triu"));
  rule("repeat", repeat_rule);
  rule("constant_pad_nd", pad_rule);
  rule("_pad_reflect", edge_rule(Edge::kReflect));
  rule("_pad_replicate", edge_rule(Edge::kReplicate));
  rule("_pad_circular", edge_rule(Edge::kCircular));
}

}  // namespace tatara
