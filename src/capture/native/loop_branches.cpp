// Branches of a loop's code: a condition that is known leaves one side, another one becomes a branch of the kernel.
#include <opcode.h>

#include <algorithm>
#include <utility>

#include "capture/native/loop_reader.h"
#include "support/error.h"

namespace tatara::capture::native {

using loops::ScalarOp;

namespace {

constexpr int kMostRead = 20000;  // instructions

}  // namespace

// ---- Flags -------------------------------------------------------------------------------------------------------------

ScalarId LoopReader::flag_is(int slot, int64_t value) {
  const ScalarId flag = builder_->load(memory_.flags, builder_->constant(slot));
  return builder_->emit(ScalarOp::kEq, DType::kBool, {flag, builder_->index(builder_->constant(value), DType::kInt64)});
}

void LoopReader::set_flag(int slot, int64_t value) {
  if (slot < 0) return;
  builder_->store(memory_.flags, builder_->constant(slot), builder_->index(builder_->constant(value), DType::kInt64));
}

// ---- Ways --------------------------------------------------------------------------------------------------------------

CodeFlow& LoopReader::flow() { return flows_.try_emplace(code_, code_).first->second; }

void LoopReader::guarded(ScalarId condition, const std::function<void()>& body) {
  if (condition == loops::kNoScalar) {
    body();
    return;
  }
  bounded_.clear();
  ++region_->ifs;
  builder_->when(condition, body);
  --region_->ifs;
  bounded_.clear();
}

/// A step to another place, which may end the turn or leave the loop: then that is noted.
Way LoopReader::step_to(int place) {
  Region& region = *region_;
  if (!region.part->is_left_by(place)) return Way::kOn;
  const bool ends_turn = place == region.part->head;
  const size_t above = stack_.size() - region.depth;
  for (size_t n = 0; n < above; ++n) {
    if (ends_turn || !std::holds_alternative<Nothing>(peek(static_cast<int>(n) + 1)))
      throw Unsupported("values on the stack at the end of a turn");
  }
  if (!ends_turn) {
    const LoopExit exit{place, static_cast<int>(above)};
    size_t n = 0;
    while (n < region.exits.size() && region.exits[n].offset != place) ++n;
    if (n == region.exits.size()) region.exits.push_back(exit);
    if (region.exits[n].iterators != exit.iterators) throw Unsupported("an exit from loops of several depths");
    set_flag(region.exit, static_cast<int64_t>(n) + 1);
    if (region.outermost)
      builder_->store(memory_.flags, builder_->constant(1), builder_->index(region.turn, DType::kInt64));
  }
  if (region.ifs > 0) set_flag(region.gone, 1);
  return Way::kGone;
}

Way LoopReader::leave_call(Value value) {
  Region& region = *region_;
  if (region.ifs == 0 && !region.returned) {
    region.returned = std::move(value);
    return Way::kGone;
  }
  const auto* object = std::get_if<Ref>(&value);
  if (object != nullptr) {
    const auto* before = region.returned ? std::get_if<Ref>(&*region.returned) : nullptr;
    if (region.returned && (before == nullptr || before->get() != object->get()))
      throw Unsupported("a call that returns this or that");
    region.returned = std::move(value);
  } else {
    if (region.returned && std::holds_alternative<Ref>(*region.returned))
      throw Unsupported("a call that returns this or that");
    store_joint(-1, value);
    region.returned = Nothing{};
  }
  set_flag(region.gone, 1);
  return Way::kGone;
}

/// A name of the memory where ways that meet leave a value.
int LoopReader::joint_local(int join) {
  constexpr int kJoints = 1 << 28;
  const auto next = static_cast<int>(types_.joins.size());
  return types_.joins.try_emplace({base_, join}, kJoints + next).first->second;
}

void LoopReader::store_joint(int join, const Value& value) {
  const bool number = std::holds_alternative<Number>(value) || std::holds_alternative<Whole>(value) ||
                      std::holds_alternative<Condition>(value);
  if (!number) throw Unsupported("a value of a branch that is no number");
  const int local = joint_local(join);
  const auto* whole = std::get_if<Whole>(&value);
  if (whole != nullptr && types_.of.try_emplace(local, NumberType{DType::kInt64, Strength::kWeak}).second)
    throw NewType{};
  store_local(local, value);
}

/// One way up to a place. A value that it leaves on the stack is put where the other ways to this place put theirs.
LoopReader::Ended LoopReader::read_side(const Side& side, int to) {
  Ended ended;
  const size_t above = std::exchange(low_, stack_.size());
  guarded(side.when, [&] {
    for (int n = 0; n < side.iterators; ++n) push(Nothing{});
    if (side.value) push(*side.value);
    ended.way = step_to(side.from);
    if (ended.way == Way::kOn) ended.way = read_from(side.from, to);
    if (ended.way == Way::kGone) return;
    ended.has_value = stack_.size() == low_ + 1;
    if (ended.has_value) store_joint(to, pop());
    if (stack_.size() != low_) throw Unsupported("a branch that leaves values on the stack");
  });
  ended.low = low_;
  low_ = std::min(above, low_);
  return ended;
}

/// Ways that exclude each other and come together at `join`, and what is behind it up to `to`.
Way LoopReader::read_sides(const std::vector<Side>& sides, int join, int to) {
  const std::map<int, Local> before = locals_;
  const std::vector<Value> stack = stack_;
  const std::set<int> stored = std::exchange(stored_, {});
  std::vector<std::map<int, Local>> ways;
  ScalarId guard = loops::kNoScalar;
  Ended last;
  bool all_on = true;
  const auto rest = [&](const Side& side) {
    last = read_side(side, to);
    if (last.way == Way::kGone) return Way::kGone;
    stack_.resize(last.low);
    if (last.has_value) push(load_local(joint_local(to)));
    return side.when == loops::kNoScalar ? last.way : Way::kMaybe;
  };
  for (size_t n = 0; n < sides.size(); ++n) {
    locals_ = before;
    stack_ = stack;
    // All others are gone: what comes behind belongs to this one.
    if (n + 1 == sides.size() && ways.empty()) {
      const Way way = rest(sides[n]);
      stored_.insert(stored.begin(), stored.end());
      return way;
    }
    const Ended ended = read_side(sides[n], join);
    all_on = all_on && ended.way == Way::kOn;
    if (ended.way == Way::kGone) continue;
    if (!ways.empty() && (ended.has_value != last.has_value || ended.low != last.low))
      throw Unsupported("a branch that leaves a value");
    guard = ways.empty() && ended.way == Way::kOn ? sides[n].when : loops::kNoScalar;
    ways.push_back(locals_);
    last = ended;
  }
  merge_locals(before, ways);
  stored_.insert(stored.begin(), stored.end());
  stack_ = stack;
  stack_.resize(last.low);
  Side behind;
  behind.from = join;
  if (last.has_value) behind.value = load_local(joint_local(join));
  if (!all_on) behind.when = guard != loops::kNoScalar ? guard : flag_is(region_->gone, 0);
  return rest(behind);
}

/// What is assigned on some of the ways is known behind them only if it is in memory.
void LoopReader::merge_locals(const std::map<int, Local>& before, const std::vector<std::map<int, Local>>& ways) {
  locals_ = before;
  for (const int local : stored_) {
    if (const auto carried = carried_.find(local); carried != carried_.end()) {
      locals_[local] = {Local::State::kKnown, carried->second};
      continue;
    }
    const bool in_memory = std::all_of(ways.begin(), ways.end(), [local](const auto& way) {
      const auto found = way.find(local);
      return found != way.end() && found->second.state == Local::State::kNumber;
    });
    locals_[local] = {in_memory ? Local::State::kNumber : Local::State::kUnknown, {}};
  }
}

/// The condition is on top of the stack.
std::vector<LoopReader::Side> LoopReader::sides_of_branch(const Instruction& i, const Branch& branch) {
  const Value value = pop();
  const Condition condition = truth(value);
  Side jump{loops::kNoScalar, branch.target, 0, std::nullopt}, next{loops::kNoScalar, i.next, 0, std::nullopt};
  if (branch.keeps) jump.value = value;
  if (condition.known) return {*condition.known == branch.when ? jump : next};
  const ScalarId opposite = builder_->emit(ScalarOp::kNot, DType::kBool, {condition.id});
  jump.when = branch.when ? condition.id : opposite;
  next.when = branch.when ? opposite : condition.id;
  return {next, jump};
}

/// The iterator is on top of the stack. Reads the loop: the ways out of it.
std::vector<LoopReader::Side> LoopReader::sides_of_loop(int head) {
  const Instruction start = instruction_at(code_, head);
  const bool is_for = start.opcode == FOR_ITER;
  if (!flow().is_head(head)) throw Unsupported("a loop without a second turn");
  if (is_for && stack_.size() > floor_ && std::holds_alternative<std::shared_ptr<Sequence>>(stack_.back())) {
    const Value items = pop();
    read_items(*std::get<std::shared_ptr<Sequence>>(items), head);
    return {{loops::kNoScalar, exit_of_loop(start), 0, std::nullopt}};
  }
  const Region region = read_loop(is_for ? pop() : Value(Nothing{}), head, false);
  std::vector<Side> sides;
  if (is_for) sides.push_back({loops::kNoScalar, exit_of_loop(start), 0, std::nullopt});
  for (const LoopExit& exit : region.exits)
    sides.push_back({loops::kNoScalar, exit.offset, exit.iterators + (is_for ? 1 : 0), std::nullopt});
  if (sides.empty()) throw Unsupported("a loop without an end");
  if (sides.size() == 1) return sides;
  for (size_t n = 0; n < sides.size(); ++n)
    sides[n].when = flag_is(region.exit, static_cast<int64_t>(n) + (is_for ? 0 : 1));
  return sides;
}

/// The code from one place up to another one (-1: up to the end of the turn or call).
Way LoopReader::read_from(int from, int to) {
  for (int at = from; at != to;) {
    if (++read_ > kMostRead) throw Unsupported("code with many branches");
    const Instruction i = instruction_at(code_, at);
    if (i.opcode == FOR_ITER || (flow().is_head(at) && at != region_->part->head)) {
      const std::vector<Side> sides = sides_of_loop(at);
      return read_sides(sides, flow().join_of(at, *region_->part), to);
    }
    if (const std::optional<Branch> branch = branch_of(i)) {
      const std::vector<Side> sides = sides_of_branch(i, *branch);
      return read_sides(sides, flow().join_of(at, *region_->part), to);
    }
    if (i.opcode == RETURN_VALUE) return leave_call(pop());
#if PY_VERSION_HEX >= 0x030C0000
    if (i.opcode == RETURN_CONST) return leave_call(constant_of(PyTuple_GET_ITEM(code_->co_consts, i.oparg)));
#endif
    at = step(i);
    if (step_to(at) == Way::kGone) return Way::kGone;
  }
  return Way::kOn;
}

}  // namespace tatara::capture::native
