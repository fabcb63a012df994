// Rules of reverse differentiation: for one node of a graph, the cotangents of its operands as further nodes of the same
// graph. Rules are made of operators that have rules themselves, so a gradient's graph can be differentiated again.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "ops/core/family_util.h"

namespace tatara {

/// One application of a rule.
class VjpContext {
 public:
  /// `node` is a node of the builder's graph; `cotangents` has one value per result, kNoValue where no gradient comes;
  /// `needs` tells which values of the graph want one.
  VjpContext(GraphBuilder& builder, const Node& node, std::vector<ValueId> cotangents, const std::vector<bool>& needs)
      : builder_(builder), node_(node), args_(builder, node_.args), cotangents_(std::move(cotangents)), needs_(needs) {}
  VjpContext(const VjpContext&) = delete;
  VjpContext& operator=(const VjpContext&) = delete;

  GraphBuilder& builder() const { return builder_; }
  ExprContext& ctx() const { return builder_.ctx(); }
  const Node& node() const { return node_; }
  const ops::Args& args() const { return args_; }
  ValueId out(size_t i = 0) const { return node_.outputs[i]; }
  bool has_grad(size_t i) const { return cotangents_[i] != kNoValue; }
  /// Zeros where no gradient comes.
  ValueId grad(size_t i = 0);
  bool needs(size_t arg) const;
  bool needs(size_t arg, size_t item) const;
  /// Adds to the cotangent of operand `arg`. `value` may be of the operand's shape before broadcasting and of another dtype.
  void give(size_t arg, ValueId value);
  void give(size_t arg, size_t item, ValueId value);
  /// A gradient that is zero everywhere.
  void give_zeros(size_t arg);

  /// The rule will be reversed once more, for a map of tangents: a factor may not be infinite where it is masked.
  void set_for_tangents() { for_tangents_ = true; }
  bool for_tangents() const { return for_tangents_; }

  struct Given {
    ValueId operand;
    ValueId cotangent;
  };
  const std::vector<Given>& given() const { return given_; }

 private:
  bool wanted(ValueId v) const { return v != kNoValue && needs_[static_cast<size_t>(v)]; }
  void add(ValueId operand, ValueId value);

  GraphBuilder& builder_;
  const Node node_;
  ops::Args args_;
  std::vector<ValueId> cotangents_;
  const std::vector<bool>& needs_;
  std::vector<Given> given_;
  bool for_tangents_ = false;
};

/// Sums `value` to the given sizes (the reverse of broadcasting them).
ValueId sum_to_sizes(GraphBuilder& b, ValueId value, const std::vector<Expr>& sizes);
/// Whether a size of the value is 0.
bool is_empty(const VjpContext& v, ValueId x);
/// Zeros of the type, contiguous.
ValueId zeros_of(GraphBuilder& b, const TensorType& type);
ValueId zeros_of_operand(VjpContext& v, size_t arg);

/// The value itself, whose gradients in eager come from one node with those of `others`: they require grad when one of these
/// does, whether they depend on it or not. The gradient of that is then zero, or missing without `zeros`.
ValueId tied(GraphBuilder& b, ValueId value, std::vector<ValueId> others, bool zeros = true);
/// The value itself, whose gradient will be tied to `others`.
ValueId with_tied_gradient(GraphBuilder& b, ValueId value, std::vector<ValueId> others, bool zeros = true);
/// Whether the operator is one of these two.
bool is_tie(const OpDef& op);

/// The rule of an operator that the host differentiates: a node that runs the operator again in the host's autograd, with a
/// rule of the same kind in turn. For operators without random numbers, whose schema is the host's.
void host_derivative(VjpContext& v);
/// The same where the gradient depends on the operands by comparisons at most.
void linear_host_derivative(VjpContext& v);
/// Of a library's operator, with its results as one more argument: these, whose gradients come from the derivative that is
/// registered for it in the host. `op` itself is run once and not differentiated.
const OpDef& with_registered_derivative(const OpDef& op);
/// The rule of `op` under the host's vmap.
VjpFn host_derivative_of(const OpDef& op);
/// Whether the host differentiates the operator: its tangents are then the host's too.
bool is_host_differentiated(const OpDef& op);

namespace ops {

/// A value with the operators of arithmetic, for the tables of rules.
struct Term {
  GraphBuilder* b = nullptr;
  ValueId id = kNoValue;

  Term un(std::string_view op) const { return {b, b->unary(op, id)}; }
  Term bin(std::string_view op, Term o) const { return {b, b->binary(op, id, o.id)}; }
  Term bin(std::string_view op, double o) const { return {b, b->binary(op, id, Scalar(o))}; }
  Term bin(std::string_view op, const Quantity& o) const { return {b, with_number(*b, op, id, o)}; }
  /// By value: the graph's own moves when nodes are added.
  TensorType type() const { return b->type(id); }
  /// The same values as a constant: in eager, what a comparison of it decides does not require grad.
  Term fixed() const { return un("detach"); }
  Term conj() const { return is_complex(type().dtype) ? un("conj_complex") : *this; }
  /// Where this condition holds `x`, else `y`.
  Term choose(Term x, Term y) const { return {b, b->where(id, x.id, y.id)}; }
  Term choose(double x, Term y) const { return {b, b->op("where", {TensorArg{id}, Scalar(x), TensorArg{y.id}})}; }
  Term choose(Term x, double y) const { return {b, b->op("where", {TensorArg{id}, TensorArg{x.id}, Scalar(y)})}; }
};
inline Term operator+(Term x, Term y) { return x.bin("add", y); }
inline Term operator-(Term x, Term y) { return x.bin("sub", y); }
inline Term operator*(Term x, Term y) { return x.bin("mul", y); }
inline Term operator/(Term x, Term y) { return x.bin("div", y); }
inline Term operator+(Term x, double y) { return x.bin("add", y); }
inline Term operator-(Term x, double y) { return x.bin("sub", y); }
inline Term operator*(Term x, double y) { return x.bin("mul", y); }
inline Term operator/(Term x, double y) { return x.bin("div", y); }
inline Term operator+(Term x, const Quantity& y) { return x.bin("add", y); }
inline Term operator-(Term x, const Quantity& y) { return x.bin("sub", y); }
inline Term operator*(Term x, const Quantity& y) { return x.bin("mul", y); }
inline Term operator/(Term x, const Quantity& y) { return x.bin("div", y); }
inline Term operator-(double x, Term y) { return {y.b, y.b->op("rsub", {TensorArg{y.id}, Scalar(x)})}; }
inline Term operator-(Term x) { return x.un("neg"); }
inline Term operator>(Term x, double y) { return x.bin("gt", y); }
inline Term operator>=(Term x, double y) { return x.bin("ge", y); }
inline Term operator<(Term x, double y) { return x.bin("lt", y); }
inline Term operator<=(Term x, double y) { return x.bin("le", y); }
inline Term operator>(Term x, const Quantity& y) { return x.bin("gt", y); }
inline Term operator<(Term x, const Quantity& y) { return x.bin("lt", y); }
inline Term operator<=(Term x, const Quantity& y) { return x.bin("le", y); }
inline Term operator&&(Term x, Term y) { return x.bin("logical_and", y); }
inline Term operator||(Term x, Term y) { return x.bin("logical_or", y); }

/// A term of the context's builder; tensor operands by position.
inline Term term(VjpContext& v, ValueId id) { return {&v.builder(), id}; }
inline Term operand(VjpContext& v, size_t arg) { return {&v.builder(), v.args().tensor(arg)}; }
inline Term result(VjpContext& v, size_t i = 0) { return {&v.builder(), v.out(i)}; }
inline Term gradient(VjpContext& v, size_t i = 0) { return {&v.builder(), v.grad(i)}; }

/// g * factor, and 0 where `zero`, whatever the factor is there.
Term masked_product(const VjpContext& v, Term zero, Term g, Term factor);
/// g / divisor, and 0 where the divisor is 0.
Term masked_quotient(const VjpContext& v, Term g, Term divisor);

/// The cotangent of an operator's one operand x, from that of its result y.
using UnaryRule = Term (*)(Term g, Term x, Term y);
inline VjpFn unary_vjp(UnaryRule rule) {
  return [rule](VjpContext& v) { v.give(0, rule(gradient(v), operand(v, 0), result(v)).id); };
}

}  // namespace ops
}  // namespace tatara
