#include "codegen/core/scalar_ranges.h"

#include <algorithm>

namespace tatara::codegen {
namespace {

using namespace loops;

constexpr int64_t kFar = int64_t{1} << 40;  // bounds beyond it are not followed: no sum or product of others overflows

class RangeFinder {
 public:
  RangeFinder(const Kernel& kernel, std::vector<IntRange>& ranges) : kernel_(kernel), ranges_(ranges) {}

  void block(const Block& block) {
    for (const Stmt& stmt : block.stmts) {
      if (const auto* let = std::get_if<Let>(&stmt)) {
        if (let->scalar.dtype == DType::kInt64) at(let->dst) = kept(range(let->scalar));
      } else if (const auto* loop = std::get_if<For>(&stmt)) {
        this->block(*loop->body);
      } else if (const auto* branch = std::get_if<If>(&stmt)) {
        this->block(*branch->body);
      } else if (const auto* product = std::get_if<Product>(&stmt)) {
        this->block(*product->each->body);
      } else if (const auto* attention = std::get_if<Attention>(&stmt)) {
        this->block(*attention->each->body);
        for (const Attention::Sum& sum : attention->sums) this->block(*sum.done->body);
      } else if (const auto* weighed = std::get_if<WeighedProduct>(&stmt)) {
        this->block(*weighed->weigh->body);
        this->block(*weighed->each->body);
      }
    }
  }

 private:
  IntRange& at(ScalarId id) { return ranges_[static_cast<size_t>(id)]; }

  static IntRange kept(IntRange r) { return r.lo < -kFar || r.hi > kFar ? IntRange{} : r; }

  IntRange range(const Scalar& s) {
    if (s.op == ScalarOp::kIndex) return kernel_.ctx->range(s.index);
    if (s.op == ScalarOp::kConst) return {s.const_int, s.const_int};
    if (s.op == ScalarOp::kCast && kernel_.scalar_types[static_cast<size_t>(s.operands[0])] == DType::kInt32)
      return {INT32_MIN, INT32_MAX};
    for (const ScalarId operand : s.operands) {
      const bool wide = kernel_.scalar_types[static_cast<size_t>(operand)] == DType::kInt64;
      if (wide && at(operand) == IntRange{}) return {};
    }
    const auto a = [&](size_t i) { return at(s.operands[i]); };
    const auto corners = [](std::initializer_list<int64_t> all) { return IntRange{std::min(all), std::max(all)}; };
    switch (s.op) {
      case ScalarOp::kAdd: return {a(0).lo + a(1).lo, a(0).hi + a(1).hi};
      case ScalarOp::kSub: return {a(0).lo - a(1).hi, a(0).hi - a(1).lo};
      case ScalarOp::kMul: {
        const IntRange x = a(0), y = a(1);
        if (!is_narrow(x) || !is_narrow(y)) return {};
        return corners({x.lo * y.lo, x.lo * y.hi, x.hi * y.lo, x.hi * y.hi});
      }
      case ScalarOp::kNeg: return {-a(0).hi, -a(0).lo};
      case ScalarOp::kAbs: return {a(0).lo > 0 ? a(0).lo : 0, std::max(std::abs(a(0).lo), std::abs(a(0).hi))};
      case ScalarOp::kMin: return {std::min(a(0).lo, a(1).lo), std::min(a(0).hi, a(1).hi)};
      case ScalarOp::kMax: return {std::max(a(0).lo, a(1).lo), std::max(a(0).hi, a(1).hi)};
      case ScalarOp::kSelect: return {std::min(a(1).lo, a(2).lo), std::max(a(1).hi, a(2).hi)};
      default: return {};
    }
  }

  const Kernel& kernel_;
  std::vector<IntRange>& ranges_;
};

}  // namespace

std::vector<IntRange> scalar_ranges(const Kernel& kernel) {
  std::vector<IntRange> ranges(kernel.scalar_types.size());
  RangeFinder(kernel, ranges).block(kernel.body);
  return ranges;
}

}  // namespace tatara::codegen
