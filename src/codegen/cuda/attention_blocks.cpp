#include "codegen/cuda/attention_blocks.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "support/str_cat.h"

namespace tatara::codegen {

using namespace loops;
using Op = ScalarOp;

namespace {

constexpr int kDeepest = 24;  // of the mask's expression
const std::string kYes = "true", kNo = "false";

bool is_comparison(Op op) { return op >= Op::kEq && op <= Op::kGe; }

}  // namespace

AttentionBlocks::AttentionBlocks(GpuContext& gpu, const Attention& attention)
    : ir_(gpu.context.ir), scope_(gpu.context.scope), kernel_(gpu.context.kernel), attention_(attention) {
  for (const Stmt& stmt : attention.each->body->stmts) {
    if (const auto* let = std::get_if<Let>(&stmt)) made_[let->dst] = &let->scalar;
    if (const auto* index = std::get_if<IndexValue>(&stmt)) looked_up_.push_back(index->symbol);
  }
  // What is defined outside of the keys' loop is the same for all of them: constants count, too.
  const auto outside = [this](const auto& self, const Block& block) -> void {
    for (const Stmt& stmt : block.stmts) {
      if (const auto* let = std::get_if<Let>(&stmt); let != nullptr && let->scalar.op == Op::kConst)
        made_.emplace(let->dst, &let->scalar);
      if (const auto* loop = std::get_if<For>(&stmt)) self(self, *loop->body);
    }
  };
  outside(outside, kernel_.body);
  can_skip_ = attention.table >= 0 || masks(attention.hidden, 0);
}

const Scalar* AttentionBlocks::made(ScalarId id) const {
  const auto found = made_.find(id);
  return found != made_.end() ? found->second : nullptr;
}

bool AttentionBlocks::is_minus_infinity(ScalarId id) const {
  const Scalar* s = made(id);
  if (s == nullptr) return false;
  if (s->op == Op::kCast) return is_minus_infinity(s->operands[0]);
  return s->op == Op::kConst && is_floating(s->dtype) && std::isinf(s->const_re) && s->const_re < 0;
}

/// Whether somewhere -infinity is chosen by a condition that intervals may decide.
bool AttentionBlocks::masks(ScalarId id, int depth) const {
  const Scalar* s = made(id);
  if (s == nullptr || depth > kDeepest) return false;
  if (s->op == Op::kCast) return is_floating(s->dtype) && masks(s->operands[0], depth + 1);
  if (s->op != Op::kSelect) return false;
  const ScalarId yes = s->operands[1], no = s->operands[2];
  const bool own = knows(s->operands[0], depth + 1) && (is_minus_infinity(yes) || is_minus_infinity(no));
  return own || (is_minus_infinity(yes) && masks(no, depth + 1)) || (is_minus_infinity(no) && masks(yes, depth + 1));
}

bool AttentionBlocks::knows(ScalarId id, int depth) const {
  const Scalar* s = made(id);
  if (s == nullptr || depth > kDeepest) return false;
  const auto any = [&] {
    return std::any_of(s->operands.begin(), s->operands.end(), [&](ScalarId v) { return knows(v, depth + 1); });
  };
  switch (s->op) {
    case Op::kAnd:
    case Op::kOr:
    case Op::kNot: return s->dtype == DType::kBool && any();
    case Op::kIndex:
      return is_linear(s->index) && (s->index.contains(attention_.row) || s->index.contains(attention_.each->var));
    default: return (is_comparison(s->op) || s->dtype == DType::kInt64) && any();
  }
}

/// In rows and keys, by constant factors.
bool AttentionBlocks::is_linear(Expr e) const {
  if (std::any_of(looked_up_.begin(), looked_up_.end(), [e](Expr symbol) { return e.contains(symbol); })) return false;
  for (const Expr symbol : {attention_.row, attention_.each->var}) {
    if (!e.contains(symbol)) continue;
    const Expr factor = e.coefficient_of(symbol);
    if (!factor.valid() || !factor.is_const()) return false;
  }
  return true;
}

std::string AttentionBlocks::both(const std::string& a, const std::string& b) {
  if (a == kNo || b == kNo) return kNo;
  return a == kYes ? b : b == kYes ? a : ir_.binary("and", "i1", a, b);
}

std::string AttentionBlocks::either(const std::string& a, const std::string& b) {
  if (a == kYes || b == kYes) return kYes;
  return a == kNo ? b : b == kNo ? a : ir_.binary("or", "i1", a, b);
}

std::string AttentionBlocks::compare(const char* how, const std::string& a, const std::string& b) {
  return ir_.assign(str_cat("icmp ", how, " i64 ", a, ", ", b));
}

std::string AttentionBlocks::needed(const Ends& ends) {
  ends_ = ends;
  const std::string all = dead(attention_.hidden);
  const std::string alive = all == kNo ? kYes : ir_.binary("xor", "i1", all, kYes);
  if (attention_.table < 0) return alive;
  scope_.bind(attention_.table_block, ends.number);
  const std::string at = ir_.assign("getelementptr i8, ptr " + scope_.base(attention_.table) + ", i64 " +
                                    scope_.index(attention_.table_index));
  const std::string listed = ir_.assign("icmp ne i8 " + ir_.assign("load i8, ptr " + at) + ", 0");
  return both(alive, listed);
}

std::string AttentionBlocks::dead(ScalarId id) {
  if (is_minus_infinity(id)) return kYes;
  const Scalar* s = made(id);
  if (s == nullptr) return kNo;
  if (s->op == Op::kCast) return is_floating(s->dtype) ? dead(s->operands[0]) : kNo;
  if (s->op != Op::kSelect) return kNo;
  const std::string yes = dead(s->operands[1]), no = dead(s->operands[2]);
  if (yes == kNo && no == kNo) return kNo;
  const Truth choice = truth(s->operands[0]);
  const auto never = [this](const std::string& may) {
    return may == kYes ? kNo : may == kNo ? kYes : ir_.binary("xor", "i1", may, kYes);
  };
  const std::string by_choice = either(both(never(choice.may_hold), no), both(never(choice.may_fail), yes));
  return either(by_choice, both(yes, no));
}

AttentionBlocks::Truth AttentionBlocks::truth(ScalarId id) {
  const Scalar* s = made(id);
  if (s == nullptr) return {kYes, kYes};
  if (s->op == Op::kConst) return s->const_int != 0 ? Truth{kYes, kNo} : Truth{kNo, kYes};
  if (is_comparison(s->op)) return compared(*s);
  if (s->dtype != DType::kBool || (s->op != Op::kAnd && s->op != Op::kOr && s->op != Op::kNot)) return {kYes, kYes};
  const Truth a = truth(s->operands[0]);
  if (s->op == Op::kNot) return {a.may_fail, a.may_hold};
  const Truth b = truth(s->operands[1]);
  if (s->op == Op::kAnd) return {both(a.may_hold, b.may_hold), either(a.may_fail, b.may_fail)};
  return {either(a.may_hold, b.may_hold), both(a.may_fail, b.may_fail)};
}

AttentionBlocks::Truth AttentionBlocks::compared(const Scalar& s) {
  const std::optional<Bounds> a = bounds(s.operands[0]), b = bounds(s.operands[1]);
  if (!a || !b) return {kYes, kYes};
  switch (s.op) {
    case Op::kLt: return {compare("slt", a->lo, b->hi), compare("sge", a->hi, b->lo)};
    case Op::kLe: return {compare("sle", a->lo, b->hi), compare("sgt", a->hi, b->lo)};
    case Op::kGt: return {compare("sgt", a->hi, b->lo), compare("sle", a->lo, b->hi)};
    case Op::kGe: return {compare("sge", a->hi, b->lo), compare("slt", a->lo, b->hi)};
    default: break;
  }
  const std::string meet = both(compare("sle", a->lo, b->hi), compare("sle", b->lo, a->hi));
  const std::string apart = either(compare("ne", a->lo, b->hi), compare("ne", a->hi, b->lo));
  return s.op == Op::kEq ? Truth{meet, apart} : Truth{apart, meet};
}

std::optional<AttentionBlocks::Bounds> AttentionBlocks::indexed(Expr e) {
  if (!is_linear(e)) return std::nullopt;
  const auto end = [&](bool high) {
    for (const bool row : {true, false}) {
      const Expr symbol = row ? attention_.row : attention_.each->var;
      const bool last = e.contains(symbol) && (e.coefficient_of(symbol).const_value() > 0) == high;
      scope_.bind(symbol, row ? (last ? ends_.last_row : ends_.first_row) : last ? ends_.last_key : ends_.first_key);
    }
    return scope_.index(e);
  };
  const std::string lo = end(false);
  return Bounds{lo, end(true)};
}

std::optional<AttentionBlocks::Bounds> AttentionBlocks::bounds(ScalarId id) {
  if (scope_.dtype(id) != DType::kInt64) return std::nullopt;
  const Scalar* s = made(id);
  if (s == nullptr) return std::nullopt;
  if (s->op == Op::kConst) return Bounds{std::to_string(s->const_int), std::to_string(s->const_int)};
  if (s->op == Op::kIndex) return indexed(s->index);
  std::vector<Bounds> of;
  for (const ScalarId operand : s->operands) {
    const std::optional<Bounds> each = bounds(operand);
    if (!each) return std::nullopt;
    of.push_back(*each);
  }
  const auto either_end = [&](const char* which, const std::string& a, const std::string& b) {
    const std::string name = str_cat("@llvm.", which, ".i64");
    ir_.declare(str_cat("declare i64 ", name, "(i64, i64)"));
    return ir_.call(name, "i64", "i64 " + a + ", i64 " + b);
  };
  switch (s->op) {
    case Op::kAdd:
      return Bounds{ir_.binary("add", "i64", of[0].lo, of[1].lo), ir_.binary("add", "i64", of[0].hi, of[1].hi)};
    case Op::kSub:
      return Bounds{ir_.binary("sub", "i64", of[0].lo, of[1].hi), ir_.binary("sub", "i64", of[0].hi, of[1].lo)};
    case Op::kNeg: return Bounds{ir_.binary("sub", "i64", "0", of[0].hi), ir_.binary("sub", "i64", "0", of[0].lo)};
    case Op::kMin: return Bounds{either_end("smin", of[0].lo, of[1].lo), either_end("smin", of[0].hi, of[1].hi)};
    case Op::kMax: return Bounds{either_end("smax", of[0].lo, of[1].lo), either_end("smax", of[0].hi, of[1].hi)};
    case Op::kAbs: {
      // The larger of x and -x; from 0 on where both signs occur.
      const std::string below = ir_.binary("sub", "i64", "0", of[0].hi),
                        above = ir_.binary("sub", "i64", "0", of[0].lo);
      return Bounds{either_end("smax", "0", either_end("smax", of[0].lo, below)), either_end("smax", of[0].hi, above)};
    }
    case Op::kFloorDiv: {
      const Scalar* by = made(s->operands[1]);
      if (by == nullptr || by->op != Op::kConst || by->const_int <= 0) return std::nullopt;
      // The places are no negative numbers, so that a division of these may cut off.
      const std::string lo = either_end("smax", "0", of[0].lo), hi = either_end("smax", "0", of[0].hi);
      const std::string least = compare("slt", of[0].lo, "0");
      const std::string divisor = std::to_string(by->const_int);
      return Bounds{
          ir_.select(least, "i64", std::to_string(INT64_MIN / 2), ir_.binary("udiv", "i64", lo, divisor), false),
          ir_.binary("udiv", "i64", hi, divisor)};
    }
    default: return std::nullopt;
  }
}

}  // namespace tatara::codegen
