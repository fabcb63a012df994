// logaddexp and logaddexp2: the worked example of docs/adding-an-op.md. Loops, derivative, batching and NumPy's name of an
// operator are said together.
#include <numbers>

#include "ops/core/pointwise_util.h"
#include "ops/rules/batching_rule.h"
#include "ops/rules/derivative.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;
using Op = ScalarOp;

std::vector<TensorType> floating_type(MetaContext& m) {
  const size_t both[] = {0, 1};
  const DType dtype = m.result_type(both);
  if (!is_floating(dtype)) throw Unsupported(m.op().name + " of other types than floats runs by the host");
  return {pointwise_type(m, both, dtype)};
}

/// max + log1p(exp(-|a - b|)); equal infinities stay themselves.
ScalarId log_sum(LoopBuilder& b, DType dtype, std::span<const ScalarId> v, bool base2) {
  const ScalarId top = b.apply2(Op::kMax, v[0], v[1]);
  const ScalarId gap = b.apply1(Op::kNeg, b.apply1(Op::kAbs, b.apply2(Op::kSub, v[0], v[1])));
  ScalarId rest = b.apply1(Op::kLog1p, b.apply1(base2 ? Op::kExp2 : Op::kExp, gap));
  if (base2) rest = b.apply2(Op::kMul, rest, b.constant(std::numbers::log2e, dtype));
  const ScalarId same = b.apply2(Op::kAnd, b.apply1(Op::kIsInf, v[0]), b.compare(Op::kEq, v[0], v[1]));
  return b.select(same, v[0], b.apply2(Op::kAdd, top, rest));
}

/// `power`: the operator whose sums these are the logarithms of.
void log_sum_rule(VjpContext& v, const char* power) {
  const Term g = gradient(v), x = operand(v, 0), y = operand(v, 1);
  v.give(0, (g / ((y - x).un(power) + 1.0)).id);
  v.give(1, (g / ((x - y).un(power) + 1.0)).id);
}

}  // namespace

void register_logaddexp(OpRegistry& r) {
  for (const bool base2 : {false, true}) {
    const std::string name = base2 ? "logaddexp2" : "logaddexp";
    OpDef def = make_op(
        {name.c_str(), OpKind::kPointwise, "(Tensor self, Tensor other) -> Tensor",
         str_cat("torch.", name, " torch.Tensor.", name, " numpy.", name).c_str()},
        floating_type, nullptr,
        pointwise_lower({0, 1}, Promotion::kSame, [base2](LoopBuilder& b, DType dtype, std::span<const ScalarId> v) {
          return log_sum(b, dtype, v, base2);
        }));
    def.vjp = [base2](VjpContext& v) { log_sum_rule(v, base2 ? "exp2" : "exp"); };
    def.batch = batch_pointwise;  // what a pointwise operator gets anyway
    r.add(std::move(def));
  }
}

}  // namespace tatara
