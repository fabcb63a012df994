// Batching of views, of what they are scattered back by, and of operators that move elements.
#include "ops/rules/batching_rule.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;

bool batch_reshape(BatchContext& c) {
  c.give(0, c.builder().reshape(c.as_is(0), c.with_batch(c.out_type().sizes)));
  return true;
}

bool batch_permute(BatchContext& c) {
  std::vector<int64_t> dims{0};
  for (const int64_t d : c.args().integers(1)) dims.push_back(wrap_dim(d, c.args().rank(0)) + 1);
  c.give(0, c.builder().permute(c.as_is(0), dims));
  return true;
}

bool batch_expand(BatchContext& c) {
  const ValueId x = c.aligned(c.args().tensor(0), c.out_type().dim());
  c.give(0, c.builder().expand(x, c.with_batch(c.out_type().sizes)));
  return true;
}

/// A dimension is made, which counts among those of the result.
bool batch_unsqueeze(BatchContext& c) {
  c.give(0, c.builder().unsqueeze(c.as_is(0), c.args().dim(1, c.args().rank(0) + 1) + 1));
  return true;
}

// (self, offset, dim1, dim2)
bool batch_diag_embed(BatchContext& c) {
  const int64_t rank = c.out_type().dim();
  c.give_call(
      {TensorArg{c.as_is(0)}, c.args()[1], int_arg(c.args().dim(2, rank) + 1), int_arg(c.args().dim(3, rank) + 1)});
  return true;
}

bool batch_unary(BatchContext& c) {
  c.give_call(c.mapped_args());
  return true;
}

/// Pairs of numbers must lie beside each other.
bool batch_as_complex(BatchContext& c) {
  c.give_call({TensorArg{c.builder().op("clone", {TensorArg{c.as_is(0)}, std::string("contiguous_format")})}});
  return true;
}

/// Examples lie one after the other, each as it lies alone.
ValueId packed(const BatchContext& c, size_t arg) {
  if (!is_contiguous(c.ctx(), c.args().type(arg)))
    throw Unsupported("as_strided of one example that is not contiguous");
  return c.builder().op("clone", {TensorArg{c.all(arg)}, std::string("contiguous_format")});
}

/// Strides over the examples' elements, and a check that what is seen lies inside of one.
std::vector<Expr> packed_strides(const BatchContext& c, const std::vector<Expr>& sizes,
                                 const std::vector<Expr>& strides, Expr offset) {
  ExprContext& ctx = c.ctx();
  const Expr span = c.args().type(0).numel(ctx);
  Expr last = offset;
  for (size_t d = 0; d < sizes.size(); ++d) last = last + (sizes[d] - 1) * strides[d];
  if (!ctx.guard(ctx.lt(last, span))) throw Unsupported("as_strided beyond one example");
  std::vector<Expr> result{span};
  result.insert(result.end(), strides.begin(), strides.end());
  return result;
}

Expr offset_of(const BatchContext& c, size_t arg) {
  return c.args().none(arg) ? c.ctx().constant(0) : c.args().expr(arg);
}

// (self, size, stride, storage_offset)
bool batch_as_strided(BatchContext& c) {
  const std::vector<Expr> sizes = c.args().exprs(1);
  const Expr offset = offset_of(c, 3);
  const std::vector<Expr> strides = packed_strides(c, sizes, c.args().exprs(2), offset);
  c.give_call({TensorArg{packed(c, 0)}, SymInts{c.with_batch(sizes)}, SymInts{strides}, expr_arg(offset)});
  return true;
}

// (self, src, size, stride, storage_offset)
bool batch_as_strided_scatter(BatchContext& c) {
  const std::vector<Expr> sizes = c.args().exprs(2);
  const Expr offset = offset_of(c, 4);
  const std::vector<Expr> strides = packed_strides(c, sizes, c.args().exprs(3), offset);
  c.give_call(
      {TensorArg{packed(c, 0)}, TensorArg{c.all(1)}, SymInts{c.with_batch(sizes)}, SymInts{strides}, expr_arg(offset)});
  return true;
}

/// No dimensions are none here.
bool batch_flip(BatchContext& c) {
  if (!c.args().integers(1).empty()) return batch_by_dims(c);
  c.give(0, c.builder().op("clone", {TensorArg{c.as_is(0)}}));
  return true;
}

bool batch_repeat(BatchContext& c) {
  std::vector<Expr> repeats = c.args().exprs(1);
  const ValueId x = c.aligned(c.args().tensor(0), static_cast<int64_t>(repeats.size()));
  repeats.insert(repeats.begin(), c.ctx().constant(1));
  c.give_call({TensorArg{x}, SymInts{std::move(repeats)}});
  return true;
}

}  // namespace

void register_batching_views(OpRegistry& r) {
  for (const char* name : {"view", "reshape_copy", "squeeze"}) r.amend(name).batch = batch_reshape;
  r.amend("permute").batch = batch_permute;
  r.amend("expand").batch = batch_expand;
  r.amend("unsqueeze").batch = batch_unsqueeze;
  r.amend("diag_embed").batch = batch_diag_embed;
  r.amend("view_as_complex").batch = batch_as_complex;
  r.amend("as_strided").batch = batch_as_strided;
  r.amend("as_strided_scatter").batch = batch_as_strided_scatter;
  r.amend("flip").batch = batch_flip;
  r.amend("repeat").batch = batch_repeat;
  for (const char* name : {"alias", "detach", "real_part", "imag_part", "view_as_real"}) {
    r.amend(name).batch = batch_unary;
  }
  for (const char* name : {"slice", "select", "squeeze.dim", "diagonal", "unfold", "slice_scatter", "select_scatter",
                           "diagonal_scatter", "unfold_scatter", "cat", "cat_host"}) {
    r.amend(name).batch = [](BatchContext& c) { return batch_by_dims(c); };
  }
  for (const char* name : {"tril", "triu", "constant_pad_nd"}) r.amend(name).batch = batch_as_is;
}

}  // namespace tatara
