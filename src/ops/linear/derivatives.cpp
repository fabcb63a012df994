// Gradients of matrix products.
#include "ops/rules/derivative.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;

/// The last two dimensions exchanged.
Term transposed(Term x) {
  const int64_t rank = x.type().dim();
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < rank - 2; ++d) dims.push_back(d);
  dims.push_back(rank - 1);
  dims.push_back(rank - 2);
  return {x.b, x.b->permute(x.id, dims)};
}

Term adjoint(Term x) { return transposed(x).conj(); }

Term scaled(Term x, const Arg& given) {
  if (std::holds_alternative<TensorArg>(given)) return {x.b, x.b->op("mul", {TensorArg{x.id}, given})};
  const auto& factor = std::get<Scalar>(given);
  if (const auto* n = std::get_if<int64_t>(&factor); n != nullptr && *n == 1) return x;
  Scalar value = factor;
  if (const auto* c = std::get_if<std::complex<double>>(&value)) value = std::conj(*c);
  return {x.b, x.b->binary("mul", x.id, value)};
}

/// A matrix whose columns are contiguous.
bool is_column_major(const TensorType& type) { return type.strides[0].is_const(1) && type.strides[1] == type.sizes[0]; }

/// The gradients of matrices `a` and `b` for that of a @ b. That of a column-major matrix is column-major, as eager's: the
/// product of the transposed factors, transposed. Types by value: those in a graph move when it grows.
Term gradient_of_left(Term g, TensorType a, Term b) {
  if (is_column_major(a)) return transposed(b.conj().bin("mm", transposed(g)));
  return g.bin("mm", adjoint(b));
}

Term gradient_of_right(Term g, Term a, TensorType b) {
  if (is_column_major(b)) return transposed(transposed(g).bin("mm", a.conj()));
  return adjoint(a).bin("mm", g);
}

/// The gradients of a @ b, operands by position.
void mm_rule(VjpContext& v, size_t a, size_t b, const Arg& alpha) {
  const Term g = gradient(v);
  if (v.needs(a)) v.give(a, scaled(gradient_of_left(g, v.args().type(a), operand(v, b)), alpha).id);
  if (v.needs(b)) v.give(b, scaled(gradient_of_right(g, operand(v, a), v.args().type(b)), alpha).id);
}

void bmm_rule(VjpContext& v, size_t a, size_t b, const Arg& alpha) {
  const Term g = gradient(v);
  if (v.needs(a)) v.give(a, scaled(g.bin("bmm", adjoint(operand(v, b))), alpha).id);
  if (v.needs(b)) v.give(b, scaled(adjoint(operand(v, a)).bin("bmm", g), alpha).id);
}

void added_product_rule(VjpContext& v, bool batches) {
  if (v.needs(0)) v.give(0, scaled(gradient(v), v.args()[3]).id);
  (batches ? bmm_rule : mm_rule)(v, 1, 2, v.args()[4]);
}

void mv_rule(VjpContext& v) {
  GraphBuilder& b = v.builder();
  const Term g = gradient(v);
  if (v.needs(0)) {
    const Term column = term(v, b.unsqueeze(g.id, 1)), row = term(v, b.unsqueeze(operand(v, 1).conj().id, 0));
    v.give(0, (column * row).id);
  }
  if (v.needs(1)) v.give(1, adjoint(operand(v, 0)).bin("mv", g).id);
}

void dot_rule(VjpContext& v) {
  const Term g = gradient(v);
  if (v.needs(0)) v.give(0, (g * operand(v, 1).conj()).id);
  if (v.needs(1)) v.give(1, (g * operand(v, 0).conj()).id);
}

/// y = x @ w.T + bias over the last dimension of x.
void linear_rule(VjpContext& v) {
  GraphBuilder& b = v.builder();
  const Term g = gradient(v), x = operand(v, 0), w = operand(v, 1);
  if (w.type().dim() != 2) throw Unsupported("the derivative of linear with a vector of weights");
  const Expr in = w.type().sizes[1], out = w.type().sizes[0];
  std::vector<Expr> lead = x.type().sizes;
  lead.pop_back();
  const Expr rows = product(b.ctx(), lead);
  const Term flat = term(v, b.reshape(g.id, {rows, out})), rows_of_x = term(v, b.reshape(x.id, {rows, in}));
  // Layouts as of the product with w.T, which eager differentiates.
  if (v.needs(0)) {
    const bool by_columns = is_column_major(rows_of_x.type());
    const Term gradient =
        by_columns ? transposed(transposed(w).conj().bin("mm", transposed(flat))) : flat.bin("mm", w.conj());
    v.give(0, b.reshape(gradient.id, x.type().sizes));
  }
  if (v.needs(1)) {
    const bool by_rows = w.type().strides[1].is_const(1) && w.type().strides[0] == in;
    v.give(1, by_rows ? transposed(flat).bin("mm", rows_of_x.conj()).id
                      : transposed(adjoint(rows_of_x).bin("mm", flat)).id);
  }
  if (v.needs(2)) v.give(2, b.reduce("sum", flat.id, {0}, false));
}

/// addmv and addbmm by their parts: (self, a, b, *, beta, alpha).
std::vector<ValueId> added_parts(GraphBuilder& b, std::span<const Arg> arguments, bool batches) {
  const Args args(b, arguments);
  const auto is_one = [](const Arg& arg) {
    const auto* s = std::get_if<Scalar>(&arg);
    const auto* n = s != nullptr ? std::get_if<int64_t>(s) : nullptr;
    return n != nullptr && *n == 1;
  };
  if (const auto* beta = std::get_if<Scalar>(&arguments[3]);
      beta != nullptr && std::holds_alternative<int64_t>(*beta) && std::get<int64_t>(*beta) == 0) {
    throw Unsupported("the derivative of a product added to nothing");  // eager does not read what beta 0 leaves out
  }
  ValueId product = b.binary(batches ? "bmm" : "mv", args.tensor(1), args.tensor(2));
  if (batches) product = b.reduce("sum", product, {0}, false);
  if (!is_one(args[4])) product = b.op("mul", {TensorArg{product}, args[4]});
  ValueId self = args.tensor(0);
  if (!is_one(args[3])) self = b.op("mul", {TensorArg{self}, args[3]});
  return {b.binary("add", self, product)};
}

}  // namespace

void register_derivatives_linear(OpRegistry& r) {
  const Arg one = Scalar(int64_t{1});
  r.amend("mm").vjp = [one](VjpContext& v) { mm_rule(v, 0, 1, one); };
  r.amend("bmm").vjp = [one](VjpContext& v) { bmm_rule(v, 0, 1, one); };
  r.amend("addmm").vjp = [](VjpContext& v) { added_product_rule(v, false); };
  r.amend("baddbmm").vjp = [](VjpContext& v) { added_product_rule(v, true); };
  r.amend("mv").vjp = mv_rule;
  for (const bool batches : {false, true}) {
    r.amend(batches ? "addbmm" : "addmv").differentiable_parts = [batches](GraphBuilder& b, std::span<const Arg> args) {
      return added_parts(b, args, batches);
    };
  }
  r.amend("dot").vjp = dot_rule;
  r.amend("linear").vjp = linear_rule;
  r.mark(&OpTraits::always_saves, {"linear", "matmul", "mm", "bmm", "addmm", "baddbmm"});
  r.mark(&OpTraits::holds_products, {"linear"});
}

}  // namespace tatara
