// Branches of a loop's code: a condition that is known leaves one side, another one becomes a branch of the kernel.
#include <opcode.h>

#include <array>
#include <utility>

#include "capture/native/loop_reader.h"
#include "support/error.h"

namespace tatara::capture::native {

using loops::ScalarOp;

namespace {

constexpr std::array<ScalarOp, 6> kComparisons = {ScalarOp::kLt, ScalarOp::kLe, ScalarOp::kEq,
                                                  ScalarOp::kNe, ScalarOp::kGt, ScalarOp::kGe};  // by Py_LT ... Py_GE

/// What the ranges of two ints say about `a op b`.
std::optional<bool> known_comparison(int op, const IntRange& a, const IntRange& b) {
  const bool below = a.hi<b.lo, above = a.lo> b.hi;
  const bool equal = a.lo == a.hi && b.lo == b.hi && a.lo == b.lo;
  switch (op) {
    case Py_LT: return below ? std::optional(true) : a.lo >= b.hi ? std::optional(false) : std::nullopt;
    case Py_GE: return below ? std::optional(false) : a.lo >= b.hi ? std::optional(true) : std::nullopt;
    case Py_GT: return above ? std::optional(true) : a.hi <= b.lo ? std::optional(false) : std::nullopt;
    case Py_LE: return above ? std::optional(false) : a.hi <= b.lo ? std::optional(true) : std::nullopt;
    case Py_EQ: return equal ? std::optional(true) : below || above ? std::optional(false) : std::nullopt;
    case Py_NE: return equal ? std::optional(false) : below || above ? std::optional(true) : std::nullopt;
    default: return std::nullopt;
  }
}

}  // namespace

Condition LoopReader::compare(int op, const Value& a, const Value& b) {
  const auto* x = std::get_if<Whole>(&a);
  const auto* y = std::get_if<Whole>(&b);
  const ScalarOp scalar = kComparisons.at(static_cast<size_t>(op));
  if (x != nullptr && y != nullptr) {
    if (const std::optional<bool> known = known_comparison(op, x->range, y->range)) return {known};
    const ScalarId left = builder_->index(x->value, DType::kInt64);
    return {std::nullopt, builder_->emit(scalar, DType::kBool, {left, builder_->index(y->value, DType::kInt64)})};
  }
  const bool numbers =
      (x != nullptr || std::holds_alternative<Number>(a)) && (y != nullptr || std::holds_alternative<Number>(b));
  if (!numbers) throw Unsupported("a comparison of arrays or objects");
  const DType dtype = joined(a, b);
  if (is_complex(dtype)) throw Unsupported("a comparison of complex numbers");
  const Number left = as_number(a, dtype);
  return {std::nullopt, builder_->emit(scalar, DType::kBool, {left.id, as_number(b, dtype).id})};
}

Condition LoopReader::opposite(const Condition& condition) {
  if (condition.known) return {!*condition.known};
  return {std::nullopt, builder_->emit(ScalarOp::kNot, DType::kBool, {condition.id})};
}

/// The place behind the branch; -1: the turn has ended.
int LoopReader::read_branch(const Instruction& i, const Branch& branch, int to, int head) {
  const Value value = pop();
  const auto* condition = std::get_if<Condition>(&value);
  if (condition == nullptr) throw Unsupported("the truth of a value");
  if (condition->known && *condition->known != branch.when) return i.next;
  if (condition->known && branch.target != head) return branch.target;
  if (condition->known && to < 0) return -1;
  const bool ends_turn = branch.target == head;
  if (ends_turn && to >= 0) throw Unsupported("a turn that ends in a branch within another one");
  if (ends_turn) {
    read_if(condition->id, !branch.when, i.next, to, head);
    return -1;
  }
  if (branch.target < i.next || (to >= 0 && branch.target > to)) throw Unsupported("a branch of another form");
  // What comes right before the place where the jump goes tells how the first side ends.
  Instruction last = i;
  for (int at = i.next; at < branch.target; at = last.next) last = instruction_at(code_, at);
  const bool has_side = last.at != i.at;
  if (has_side && jumps_back(last, head)) {
    if (to >= 0) throw Unsupported("a turn that ends in a branch within another one");
    read_if(condition->id, !branch.when, i.next, last.at, head);
    read_if(condition->id, branch.when, branch.target, to, head);
    return -1;
  }
  if (has_side && last.opcode == JUMP_FORWARD) {
    const int behind = last.next + last.oparg;
    if (to >= 0 && behind > to) throw Unsupported("a branch of another form");
    read_if(condition->id, !branch.when, i.next, last.at, head);
    read_if(condition->id, branch.when, branch.target, behind, head);
    return behind;
  }
  if (has_side && (last.opcode == RETURN_VALUE || last.opcode == RAISE_VARARGS))
    throw Unsupported("a return in a branch");
  if (has_side) read_if(condition->id, !branch.when, i.next, branch.target, head);
  return branch.target;
}

/// One side, whose statements run where the condition is `when`. Behind it, what it assigns is known only if it is in memory.
void LoopReader::read_if(ScalarId condition, bool when, int from, int to, int head) {
  const ScalarId taken = when ? condition : builder_->emit(ScalarOp::kNot, DType::kBool, {condition});
  const std::map<int, Local> before = locals_;
  const std::vector<Value> stack = stack_;
  bounded_.clear();
  builder_->when(taken, [&] { body(from, to, head); });
  bounded_.clear();
  if (stack_.size() != stack.size()) throw Unsupported("a branch that leaves a value");
  const Instruction start = instruction_at(code_, head);
  for (const int local : assigned_between(from, to >= 0 ? to : start.next + start.oparg)) {
    const auto found = before.find(local);
    Local& now = locals_[local];
    const bool in_memory =
        found != before.end() && found->second.state == Local::State::kNumber && now.state == Local::State::kNumber;
    if (!in_memory) now = {Local::State::kUnknown, {}};
  }
}

}  // namespace tatara::capture::native
