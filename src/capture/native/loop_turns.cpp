// Turns of a loop's code, and what loops go over.
#include <opcode.h>

#include <algorithm>
#include <utility>

#include "capture/native/loop_reader.h"
#include "capture/numbers/symbolic_int.h"
#include "support/error.h"

namespace tatara::capture::native {

using loops::LoopKind;
using loops::ScalarOp;

namespace {

constexpr int64_t kEndless = int64_t{1} << 60;  // turns
// Turns of loops by a condition within one turn of the outermost loop: then signals are looked for, by the interpreter.
constexpr int64_t kMostFuel = int64_t{1} << 24;
constexpr int kFuel = 2;  // a flag

}  // namespace

std::set<int> LoopReader::assigned_in(const CodePart& part) const {
  std::set<int> found;
  for (const int at : part.inside) {
    for (const int local : assigned_by(instruction_at(code_, at))) found.insert(base_ + local);
  }
  return found;
}

/// Where a turn begins, what the loop assigns is unknown, but for arrays, and for numbers in memory.
void LoopReader::forget_assigned(const std::set<int>& assigned) {
  for (const int local : assigned) {
    Local& now = locals_[local];
    const bool array = now.state == Local::State::kKnown && std::holds_alternative<GridRef>(now.value) && base_ == 0 &&
                       (!types_.rebound.contains(local) || types_.carried.contains(local));
    if (!array && now.state != Local::State::kNumber) now.state = Local::State::kUnknown;
  }
}

/// Numbers that the loop assigns are in memory from here on.
void LoopReader::keep_numbers(const std::set<int>& assigned) {
  for (const int local : assigned) {
    const Local& now = locals_[local];
    if (base_ != 0 && now.state == Local::State::kKnown && std::holds_alternative<Number>(now.value)) {
      store_local(local, Value(now.value));
      continue;
    }
    PyObject* const object = given_object(local);
    if (now.state != Local::State::kGiven || object == nullptr) continue;
    const bool number = PyFloat_CheckExact(object) || PyComplex_CheckExact(object) || is_symbolic_float(object) ||
                        np_.is_scalar(object);
    const bool array = np_.is_array(object) && (!types_.rebound.contains(local) || types_.carried.contains(local));
    if (number || types_.of.contains(local) || array) load_local(local);
  }
}

// ---- What a loop goes over -----------------------------------------------------------------------------------------------

/// Of the iterator that the frame has. `array`: the number of the next array.
Value LoopReader::iterated(const LoopRange& range, int& array) {
  const auto constant = [&](int64_t v) { return Whole{builder_->constant(v), {v, v}}; };
  switch (range.kind) {
    case LoopRange::Kind::kWhile: return Nothing{};
    case LoopRange::Kind::kRange: {
      if (&range != &range_)
        return Range{constant(range.first), constant(range.first + range.turns * range.step), constant(range.step)};
      const LoopRange& before = before_ != nullptr ? before_->range : range;
      const Expr turns = term(before.turns, range.turns, {SizePlace::Kind::kTurns, 0, 0, 0}, program_->turns);
      const Expr first = term(before.first, range.first, {SizePlace::Kind::kFirst, 0, 0, 0}, program_->first);
      const Expr to = builder_->ctx().add(first, builder_->ctx().mul(turns, builder_->constant(range.step)));
      return Range{{first, range_of(first)}, {to, range_of(to)}, constant(range.step)};
    }
    case LoopRange::Kind::kArray: {
      LocalFact fact;
      fact.local = -1 - array++;
      const GridRef all = given_array(range.array.get(), fact);
      auto from = std::make_shared<Slice>();
      from->from = constant(range.first);
      return range.first == 0 ? all : view_grid(index_view(*all->view, std::shared_ptr<Slice>(from)));
    }
    case LoopRange::Kind::kZip:
    case LoopRange::Kind::kEnumerate: break;
  }
  if (before_ != nullptr && &range == &range_ && !before_->range.goes_as(range))
    throw Unsupported("a zip or enumerate of other ranges");
  auto iteration = std::make_shared<Iteration>();
  iteration->is_zip = range.kind == LoopRange::Kind::kZip;
  if (!iteration->is_zip) iteration->numbered_from = range.first;
  for (const LoopRange& part : range.parts) iteration->parts.push_back(iterated(part, array));
  return iteration;
}

/// How many items there are, and what their number is within.
std::pair<Expr, IntRange> LoopReader::turns_of(const Value& value) {
  ExprContext& ctx = builder_->ctx();
  if (const auto* range = std::get_if<Range>(&value)) {
    const bool up = range->step.range.lo > 0;
    const Expr distance =
        up ? ctx.sub(range->to.value, range->from.value) : ctx.sub(range->from.value, range->to.value);
    const Expr stride = up ? range->step.value : ctx.neg(range->step.value);
    Expr turns = stride.is_const(1) ? distance : ctx.ceildiv(distance, stride);
    if (range_of(turns).lo < 0) turns = ctx.max(turns, builder_->constant(0));
    return {turns, range_of(turns)};
  }
  if (const auto* grid = std::get_if<GridRef>(&value)) {
    if ((*grid)->extents.empty()) throw Unsupported("a loop over an array without dimensions");
    return {(*grid)->extents[0], range_of((*grid)->extents[0])};
  }
  const auto* iteration = std::get_if<std::shared_ptr<Iteration>>(&value);
  if (iteration == nullptr || (*iteration)->parts.empty()) throw Unsupported("a loop over something else");
  std::pair<Expr, IntRange> least = turns_of((*iteration)->parts[0]);
  for (const Value& part : (*iteration)->parts) {
    const std::pair<Expr, IntRange> turns = turns_of(part);
    if (turns.first == least.first) continue;
    least.first = ctx.min(least.first, turns.first);
    least.second = {std::min(least.second.lo, turns.second.lo), std::min(least.second.hi, turns.second.hi)};
  }
  return least;
}

/// The item of a turn.
Value LoopReader::value_of_item(const Value& value, Expr turn, const IntRange& turns) {
  ExprContext& ctx = builder_->ctx();
  const IntRange places{0, std::max<int64_t>(turns.hi - 1, 0)};
  if (const auto* range = std::get_if<Range>(&value)) {
    Whole counter{ctx.add(range->from.value, ctx.mul(turn, range->step.value)), {}};
    const IntRange exact = range_of(counter.value);
    counter.range = range->step.range.lo > 0 ? IntRange{range->from.range.lo, range->to.range.hi - 1}
                                             : IntRange{range->to.range.lo + 1, range->from.range.hi};
    counter.range = {std::max(counter.range.lo, exact.lo), std::min(counter.range.hi, exact.hi)};
    return counter;
  }
  if (const auto* grid = std::get_if<GridRef>(&value)) {
    // A turn is within the first dimension, whatever is known of its size.
    View item = *(*grid)->view;
    item.offset = ctx.add(item.offset, ctx.mul(turn, item.strides[0]));
    item.extents.erase(item.extents.begin());
    item.strides.erase(item.strides.begin());
    return element_or_view(std::move(item));
  }
  const Iteration& iteration = *std::get<std::shared_ptr<Iteration>>(value);
  auto tuple = std::make_shared<Sequence>();
  if (iteration.numbered_from) {
    const int64_t first = *iteration.numbered_from;
    tuple->items.emplace_back(Whole{ctx.add(turn, builder_->constant(first)), {first + places.lo, first + places.hi}});
  }
  for (const Value& part : iteration.parts) tuple->items.push_back(value_of_item(part, turn, turns));
  return tuple;
}

/// Of zip(...) or enumerate(...) in the code.
Value LoopReader::iteration_of(PyObject* type, const std::vector<Value>& arguments) {
  auto iteration = std::make_shared<Iteration>();
  iteration->is_zip = type == reinterpret_cast<PyObject*>(&PyZip_Type);
  size_t count = arguments.size();
  if (!iteration->is_zip) {
    int64_t first = 0;
    if (count == 2) {
      const auto* from = std::get_if<Whole>(&arguments[1]);
      if (from == nullptr || !from->value.is_const()) throw Unsupported("an enumeration from a value");
      first = from->value.const_value();
      --count;
    }
    if (count != 1) throw Unsupported("an enumeration of other arguments");
    iteration->numbered_from = first;
  }
  for (size_t n = 0; n < count; ++n) {
    const auto* grid = std::get_if<GridRef>(&arguments[n]);
    iteration->parts.push_back(grid != nullptr && !(*grid)->view ? Value(materialise(*grid)) : arguments[n]);
  }
  return iteration;
}

// ---- Turns -------------------------------------------------------------------------------------------------------------

/// `iterated`: nothing for a loop by a condition.
LoopReader::Region LoopReader::read_loop(const Value& given, int head, bool outermost) {
  const CodePart& part = flow().loop_at(head);
  const bool may_leave = !flow().exits_of(head).empty();
  const bool endless = std::holds_alternative<Nothing>(given);
  Region region;
  region.part = &part;
  region.depth = stack_.size();
  region.outermost = outermost;
  if (may_leave) region.exit = outermost ? 0 : memory_.flag_slots++;
  if (may_leave || flow().ends_of(head) > 1) region.gone = memory_.flag_slots++;
  if (endless && !outermost && !types_.fuel) {
    types_.fuel = true;
    throw NewType{};
  }
  const auto* grid = std::get_if<GridRef>(&given);
  const Value iterated = grid != nullptr && !(*grid)->view ? Value(materialise(*grid)) : given;
  const std::pair<Expr, IntRange> turns =
      endless ? std::pair(builder_->constant(kEndless), IntRange{kEndless, kEndless}) : turns_of(iterated);
  const std::set<int> assigned = assigned_in(part);
  keep_numbers(assigned);
  // What it goes over is read in later turns.
  const auto* over = std::get_if<GridRef>(&iterated);
  const bool replaced = over != nullptr
                            ? replaced_.contains((*over)->view->array)
                            : std::holds_alternative<std::shared_ptr<Iteration>>(iterated) && !replaced_.empty();
  if (replaced && std::any_of(assigned.begin(), assigned.end(), [&](int local) { return carried_.contains(local); }))
    throw Unsupported("a loop over an array that it replaces");
  if (!outermost) set_flag(region.exit, 0);
  region.turn = builder_->new_variable(turns.first);
  builder_->open_loop(region.turn, turns.first, outermost ? LoopKind::kParallel : LoopKind::kSerial);
  const std::map<int, Local> before = locals_;
  if (outermost && may_leave) {
    // Turns behind the last one do nothing.
    builder_->when(flag_is(0, 0), [&] { read_turn(region, iterated, assigned, turns.second); });
  } else {
    read_turn(region, iterated, assigned, turns.second);
  }
  ScalarId until = loops::kNoScalar;
  if (!outermost && may_leave) until = builder_->emit(ScalarOp::kNot, DType::kBool, {flag_is(region.exit, 0)});
  builder_->close_loop(until);
  bounded_.clear();
  // It may have had no turn.
  forget_assigned(assigned);
  for (const int local : assigned) {
    const auto found = before.find(local);
    if (found == before.end() || found->second.state == Local::State::kUnknown)
      locals_[local].state = Local::State::kUnknown;
  }
  return region;
}

/// A loop over the items of a tuple, one after the other.
void LoopReader::read_items(const Sequence& items, int head) {
  constexpr size_t kMostItems = 16;
  if (items.items.size() > kMostItems || !flow().exits_of(head).empty())
    throw Unsupported("a loop over a tuple that is long or may be left");
  for (const Value& item : items.items) {
    Region region;
    region.part = &flow().loop_at(head);
    region.depth = stack_.size();
    if (flow().ends_of(head) > 1) region.gone = memory_.flag_slots++;
    set_flag(region.gone, 0);
    Region* const outer = std::exchange(region_, &region);
    const size_t floor = std::exchange(floor_, region.depth), low = std::exchange(low_, region.depth);
    push(item);
    read_from(instruction_at(code_, head).next, -1);
    stack_.resize(region.depth);
    floor_ = floor;
    low_ = std::min(low, region.depth);
    region_ = outer;
  }
}

void LoopReader::read_turn(Region& region, const Value& iterated, const std::set<int>& assigned,
                           const IntRange& turns) {
  forget_assigned(assigned);
  bounded_.clear();
  set_flag(region.gone, 0);
  if (types_.fuel && region.outermost) set_flag(kFuel, kMostFuel);
  const bool endless = std::holds_alternative<Nothing>(iterated);
  if (endless && !region.outermost) {
    const ScalarId left = builder_->load(memory_.flags, builder_->constant(kFuel));
    const ScalarId one = builder_->index(builder_->constant(1), DType::kInt64);
    const ScalarId less = builder_->emit(ScalarOp::kSub, DType::kInt64, {left, one});
    builder_->store(memory_.flags, builder_->constant(kFuel), less);
    builder_->stop_if(
        builder_->emit(ScalarOp::kLt, DType::kBool, {less, builder_->index(builder_->constant(0), DType::kInt64)}));
  }
  Region* const outer = std::exchange(region_, &region);
  const size_t floor = std::exchange(floor_, region.depth), low = std::exchange(low_, region.depth);
  int from = region.part->head;
  if (!endless) {
    push(value_of_item(iterated, region.turn, turns));
    from = instruction_at(code_, from).next;
  }
  read_from(from, -1);
  stack_.resize(region.depth);
  floor_ = floor;
  low_ = low;
  region_ = outer;
}

}  // namespace tatara::capture::native
