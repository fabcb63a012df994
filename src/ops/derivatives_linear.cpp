// Gradients of matrix products.
#include "ops/derivative.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;

/// The last two dimensions exchanged, conjugated.
Term adjoint(Term x) {
  const int64_t rank = x.type().dim();
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < rank - 2; ++d) dims.push_back(d);
  dims.push_back(rank - 1);
  dims.push_back(rank - 2);
  return Term{x.b, x.b->permute(x.id, dims)}.conj();
}

Term scaled(Term x, const Scalar& factor) {
  if (const auto* n = std::get_if<int64_t>(&factor); n != nullptr && *n == 1) return x;
  Scalar value = factor;
  if (const auto* c = std::get_if<std::complex<double>>(&value)) value = std::conj(*c);
  return {x.b, x.b->binary("mul", x.id, value)};
}

/// g = d(a @ b) for operands `a` and `b` by position, by mm or bmm.
void product_rule(VjpContext& v, const char* op, size_t a, size_t b, const Scalar& alpha) {
  const Term g = scaled(gradient(v), alpha);
  if (v.needs(a)) v.give(a, g.bin(op, adjoint(operand(v, b))).id);
  if (v.needs(b)) v.give(b, adjoint(operand(v, a)).bin(op, g).id);
}

void added_product_rule(VjpContext& v, const char* op) {
  if (v.needs(0)) v.give(0, scaled(gradient(v), v.args().scalar(3)).id);
  product_rule(v, op, 1, 2, v.args().scalar(4));
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
  const Term flat = term(v, b.reshape(g.id, {rows, out}));
  if (v.needs(0)) v.give(0, b.reshape(flat.bin("mm", w.conj()).id, x.type().sizes));
  if (v.needs(1)) {
    const Term rows_of_x = term(v, b.reshape(x.id, {rows, in}));
    v.give(1, term(v, b.permute(flat.id, {1, 0})).bin("mm", rows_of_x.conj()).id);
  }
  if (v.needs(2)) v.give(2, b.reduce("sum", flat.id, {0}, false));
}

/// addmv and addbmm by their parts: (self, a, b, *, beta, alpha).
std::vector<ValueId> added_parts(GraphBuilder& b, std::span<const Arg> arguments, bool batches) {
  const Args args(b, arguments);
  const auto is_one = [](const Scalar& s) {
    const auto* n = std::get_if<int64_t>(&s);
    return n != nullptr && *n == 1;
  };
  if (const auto* beta = std::get_if<Scalar>(&arguments[3]);
      std::holds_alternative<int64_t>(*beta) && std::get<int64_t>(*beta) == 0) {
    throw Unsupported("the derivative of a product added to nothing");  // eager does not read what beta 0 leaves out
  }
  ValueId product = b.binary(batches ? "bmm" : "mv", args.tensor(1), args.tensor(2));
  if (batches) product = b.reduce("sum", product, {0}, false);
  if (!is_one(args.scalar(4))) product = b.binary("mul", product, args.scalar(4));
  ValueId self = args.tensor(0);
  if (!is_one(args.scalar(3))) self = b.binary("mul", self, args.scalar(3));
  return {b.binary("add", self, product)};
}

}  // namespace

void register_derivatives_linear(OpRegistry& r) {
  const Scalar one = int64_t{1};
  r.amend("mm").vjp = [one](VjpContext& v) { product_rule(v, "mm", 0, 1, one); };
  r.amend("bmm").vjp = [one](VjpContext& v) { product_rule(v, "bmm", 0, 1, one); };
  r.amend("addmm").vjp = [](VjpContext& v) { added_product_rule(v, "mm"); };
  r.amend("baddbmm").vjp = [](VjpContext& v) { added_product_rule(v, "bmm"); };
  r.amend("mv").vjp = mv_rule;
  for (const bool batches : {false, true}) {
    r.amend(batches ? "addbmm" : "addmv").differentiable_parts = [batches](GraphBuilder& b, std::span<const Arg> args) {
      return added_parts(b, args, batches);
    };
  }
  r.amend("dot").vjp = dot_rule;
  r.amend("linear").vjp = linear_rule;
}

}  // namespace tatara
