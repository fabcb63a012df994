#include "capture/native/loop_reader.h"

#include <opcode.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "capture/numbers/symbolic_int.h"
#include "support/error.h"
#include "support/str_cat.h"

namespace tatara::capture::native {

using loops::LoopKind;
using loops::ScalarOp;

namespace {

constexpr int kMostSlots = 64;
constexpr int kMostCalls = 64;                         // of functions, one within the other or not
constexpr int kLocalsOfCall = 1000;                    // numbers that are kept for a call's locals
constexpr bool kNewer = PY_VERSION_HEX >= 0x030C0000;  // 3.12 and later

}  // namespace

LoopReader::LoopReader(const Frame& f, const NumpyApi& np, int head, LoopRange range)
    : f_(f), np_(np), code_(f.code()), head_(head), range_(range), assigned_(assigned_in(head)) {}

std::set<int> LoopReader::assigned_in(int head) const {
  const Instruction start = instruction_at(code_, head);
  return assigned_between(start.next, start.next + start.oparg);
}

std::set<int> LoopReader::assigned_between(int from, int to) const {
  std::set<int> found;
  for (int at = from; at < to;) {
    const Instruction i = instruction_at(code_, at);
    if (i.opcode == STORE_FAST) found.insert(base_ + i.oparg);
#if PY_VERSION_HEX >= 0x030D0000
    if (i.opcode == STORE_FAST_LOAD_FAST || i.opcode == STORE_FAST_STORE_FAST) found.insert(base_ + (i.oparg >> 4));
    if (i.opcode == STORE_FAST_STORE_FAST) found.insert(base_ + (i.oparg & 15));
#endif
    at = i.next;
  }
  return found;
}

std::unique_ptr<LoopProgram> LoopReader::read(loops::Kernel& kernel) {
  // The types of numbers that are carried from turn to turn are known once nothing new was found.
  for (bool again = true; again;) {
    const std::map<int, NumberType> before = types_;
    try {
      read_once();
      again = before != types_;
      if (!again) check_lost_arrays();
    } catch (const NewType&) {
      again = true;
    }
  }
  kernel = builder_->finish();
  return std::move(program_);
}

void LoopReader::read_once() {
  program_ = std::make_unique<LoopProgram>();
  builder_ = std::make_unique<LoopBuilder>(str_cat("loop_", PyUnicode_AsUTF8(code_->co_name)));
  locals_.clear();
  arrays_.clear();
  number_slots_.clear();
  whole_slots_.clear();
  code_ = f_.code();
  base_ = calls_ = 0;
  floor_ = 0;
  lost_.clear();
  bounded_.clear();
  stack_.clear();
  using Kind = LoopProgram::Buffer::Kind;
  const auto add = [&](const char* name, Kind kind, DType dtype) {
    program_->buffers.push_back({kind, dtype, -1, true, 0, kMostSlots});
    return builder_->add_buffer(name, dtype, kMostSlots);
  };
  numbers_ = add("numbers", Kind::kNumbers, DType::kFloat64);
  tags_ = add("tags", Kind::kTags, DType::kInt64);
  wholes_ = add("wholes", Kind::kWholes, DType::kInt64);
  const Instruction head = instruction_at(code_, head_);
  program_->exit = 2 * exit_of_loop(head);
  const auto constant = [&](int64_t v) { return Whole{builder_->constant(v), {v, v}}; };
  const int64_t end = range_.first + range_.turns * range_.step;
  loop_turns({constant(range_.first), constant(end), range_.step}, head_, true);
  program_->numbers = static_cast<int>(number_slots_.size());
  program_->wholes = static_cast<int>(whole_slots_.size());
  for (const auto& [local, slot] : number_slots_) {
    if (assigned_.contains(local)) program_->results.push_back({local, true, slot});
  }
  for (const auto& [local, slot] : whole_slots_) {
    if (!rebound_.contains(local)) program_->results.push_back({local, false, slot});
  }
}

// ---- Loops -----------------------------------------------------------------------------------------------------------

/// Where a turn begins, what the loop assigns is unknown, but for arrays, and for numbers in memory.
void LoopReader::forget_assigned(const std::set<int>& assigned) {
  for (const int local : assigned) {
    Local& now = locals_[local];
    const bool array = now.state == Local::State::kKnown && std::holds_alternative<GridRef>(now.value) && base_ == 0 &&
                       !rebound_.contains(local);
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
    const bool number = PyFloat_CheckExact(object) || is_symbolic_float(object) || np_.is_scalar(object);
    const bool array = np_.is_array(object) && !rebound_.contains(local);
    if (number || types_.contains(local) || array) load_local(local);
  }
}

void LoopReader::loop_turns(const Range& range, int head, bool outermost) {
  ExprContext& ctx = builder_->ctx();
  const Expr distance =
      range.step > 0 ? ctx.sub(range.to.value, range.from.value) : ctx.sub(range.from.value, range.to.value);
  const int64_t stride = std::abs(range.step);
  Expr turns = stride == 1 ? distance : ctx.ceildiv(distance, builder_->constant(stride));
  if (range_of(turns).lo < 0) turns = ctx.max(turns, builder_->constant(0));
  const std::set<int> assigned = assigned_in(head);
  keep_numbers(assigned);
  const Expr variable = builder_->new_variable(turns);
  builder_->open_loop(variable, turns, outermost ? LoopKind::kParallel : LoopKind::kSerial);
  forget_assigned(assigned);
  bounded_.clear();
  const std::map<int, Local> before = locals_;
  Whole counter{ctx.add(range.from.value, ctx.mul(variable, builder_->constant(range.step))), {}};
  const IntRange exact = range_of(counter.value);
  counter.range = range.step > 0 ? IntRange{range.from.range.lo, range.to.range.hi - 1}
                                 : IntRange{range.to.range.lo + 1, range.from.range.hi};
  counter.range = {std::max(counter.range.lo, exact.lo), std::min(counter.range.hi, exact.hi)};
  const size_t depth = stack_.size(), floor = std::exchange(floor_, depth);
  push(Value(counter));
  body(instruction_at(code_, head).next, -1, head);
  if (stack_.size() != depth) throw Unsupported("values on the stack at the end of a turn");
  floor_ = floor;
  builder_->close_loop();
  bounded_.clear();
  // It may have had no turn.
  forget_assigned(assigned);
  for (const int local : assigned) {
    const auto found = before.find(local);
    if (found == before.end() || found->second.state == Local::State::kUnknown)
      locals_[local].state = Local::State::kUnknown;
  }
}

int LoopReader::nested_loop(const Instruction& head) {
  const Value iterated = pop();
  const auto* range = std::get_if<Range>(&iterated);
  if (range == nullptr) throw Unsupported("a loop over something else than a range");
  loop_turns(*range, head.at, false);
  return exit_of_loop(head);
}

/// The instructions from one place up to another one, which ends a branch (-1: none does), or up to the end of the turn.
void LoopReader::body(int from, int to, int head) {
  for (int at = from; at != to;) {
    const Instruction i = instruction_at(code_, at);
    if (jumps_back(i, head)) {
      // What comes behind the branch would not run either.
      if (to >= 0) throw Unsupported("a turn that ends in a branch within another one");
      return;
    }
    if (i.opcode == FOR_ITER) {
      at = nested_loop(i);
    } else if (const std::optional<Branch> branch = branch_of(i)) {
      at = read_branch(i, *branch, to, head);
      if (at < 0) return;
    } else {
      at = step(i);
    }
    if (to >= 0 && at > to) throw Unsupported("a branch of another form");
  }
}

// ---- Instructions ------------------------------------------------------------------------------------------------------

/// The call of a function of the program is read as part of the loop.
Value LoopReader::read_call(PyObject* function, std::vector<Value> arguments) {
  auto* const code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  constexpr int kOther = CO_VARARGS | CO_VARKEYWORDS | CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;
  const bool plain = (code->co_flags & kOther) == 0 && code->co_kwonlyargcount == 0 &&
                     code->co_nlocalsplus == code->co_nlocals && PyBytes_GET_SIZE(code->co_exceptiontable) == 0 &&
                     code->co_argcount == static_cast<int>(arguments.size()) &&
                     PyFunction_GET_GLOBALS(function) == f_.globals();
  if (!plain) throw Unsupported("a call of a function of another kind");
  if (++calls_ > kMostCalls || code->co_nlocals >= kLocalsOfCall) throw Unsupported("many calls of functions");
  const auto outer = std::pair(code_, base_);
  const size_t depth = stack_.size(), floor = std::exchange(floor_, depth);
  code_ = code;
  base_ = calls_ * kLocalsOfCall;
  for (size_t n = 0; n < arguments.size(); ++n) {
    const auto* grid = std::get_if<GridRef>(&arguments[n]);
    if (grid != nullptr && !(*grid)->view) arguments[n] = materialise(*grid);
    locals_[base_ + static_cast<int>(n)] = {Local::State::kKnown, arguments[n]};
  }
  Value result;
  for (int at = 0; at >= 0;) {
    const Instruction i = instruction_at(code, at);
    at = i.opcode == FOR_ITER ? nested_loop(i) : i.opcode == RETURN_VALUE ? -1 : step(i);
  }
  result = pop();
  if (stack_.size() != depth) throw Unsupported("values on the stack at a return");
  std::tie(code_, base_) = outer;
  floor_ = floor;
  return result;
}

Value LoopReader::pop() {
  if (stack_.size() <= floor_) throw Unsupported("code that works on older values of the stack");
  Value top = std::move(stack_.back());
  stack_.pop_back();
  return top;
}

int LoopReader::step(const Instruction& i) {
  if (i.opcode == JUMP_FORWARD) return i.next + i.oparg;
  if (step_stack(i) || step_name(i) || step_value(i)) return i.next;
  throw Unsupported(str_cat("the instruction ", i.opcode));
}

bool LoopReader::step_stack(const Instruction& i) {
  switch (i.opcode) {
    case NOP:
    case RESUME:
    case GET_ITER: return true;  // of a range: FOR_ITER takes it
#if PY_VERSION_HEX < 0x030C0000
    case PRECALL: return true;
#else
    case LOAD_FAST_CHECK:
#endif
    case LOAD_FAST: push(load_local(base_ + i.oparg)); return true;
    case STORE_FAST: store_local(base_ + i.oparg, pop()); return true;
    case LOAD_CONST: push(constant_of(PyTuple_GET_ITEM(code_->co_consts, i.oparg))); return true;
    case PUSH_NULL: push(Nothing{}); return true;
    case POP_TOP: pop(); return true;
    case COPY: {
      // What is computed where it is wanted would be computed twice.
      if (stack_.size() < floor_ + static_cast<size_t>(i.oparg)) throw Unsupported("older values of the stack");
      Value& copied = peek(i.oparg);
      const auto* grid = std::get_if<GridRef>(&copied);
      if (grid != nullptr && !(*grid)->view) copied = materialise(*grid);
      push(copied);
      return true;
    }
    case SWAP:
      if (stack_.size() < floor_ + static_cast<size_t>(i.oparg)) throw Unsupported("older values of the stack");
      std::swap(peek(1), peek(i.oparg));
      return true;
#if PY_VERSION_HEX >= 0x030D0000
    case LOAD_FAST_LOAD_FAST:
      push(load_local(base_ + (i.oparg >> 4)));
      push(load_local(base_ + (i.oparg & 15)));
      return true;
    case STORE_FAST_LOAD_FAST:
      store_local(base_ + (i.oparg >> 4), pop());
      push(load_local(base_ + (i.oparg & 15)));
      return true;
    case STORE_FAST_STORE_FAST:
      store_local(base_ + (i.oparg >> 4), pop());
      store_local(base_ + (i.oparg & 15), pop());
      return true;
#endif
    default: return false;
  }
}

bool LoopReader::step_name(const Instruction& i) {
  constexpr bool kNullFirst = PY_VERSION_HEX < 0x030D0000;  // of what is to be called
  bool called = false;
  switch (i.opcode) {
    case LOAD_GLOBAL: {
      called = (i.oparg & 1) != 0;
      const Value found = load_global(PyTuple_GET_ITEM(code_->co_names, i.oparg >> 1));
      if (called && kNullFirst) push(Nothing{});
      push(found);
      break;
    }
#if PY_VERSION_HEX < 0x030C0000
    case LOAD_METHOD:
#endif
    case LOAD_ATTR: {
      called = kNewer ? (i.oparg & 1) != 0 : i.opcode != LOAD_ATTR;
      Value found = load_attribute(pop(), PyTuple_GET_ITEM(code_->co_names, kNewer ? i.oparg >> 1 : i.oparg));
      if (called && kNullFirst) push(Nothing{});
      push(std::move(found));
      break;
    }
    case CALL: {
      std::vector<Value> arguments(static_cast<size_t>(i.oparg));
      for (auto it = arguments.rbegin(); it != arguments.rend(); ++it) *it = pop();
      const Value upper = pop(), lower = pop();
      if (!std::holds_alternative<Nothing>(kNullFirst ? lower : upper)) throw Unsupported("a call of a method");
      push(call(kNullFirst ? upper : lower, std::move(arguments)));
      return true;
    }
    default: return false;
  }
  if (called && !kNullFirst) push(Nothing{});
  return true;
}

bool LoopReader::step_value(const Instruction& i) {
  switch (i.opcode) {
    case BINARY_OP: {
      const Value right = pop(), left = pop();
      const bool in_place_op = i.oparg >= NB_INPLACE_ADD;
      push(in_place_op ? in_place(i.oparg - NB_INPLACE_ADD, left, right) : binary(i.oparg, left, right));
      return true;
    }
    case COMPARE_OP: {
      constexpr int kShift = PY_VERSION_HEX >= 0x030D0000 ? 5 : kNewer ? 4 : 0;
      const Value right = pop(), left = pop();
      push(compare(i.oparg >> kShift, left, right));
      return true;
    }
#if PY_VERSION_HEX >= 0x030D0000
    case TO_BOOL:
#endif
    case UNARY_NOT: {
      const Value tested = pop();
      const auto* condition = std::get_if<Condition>(&tested);
      if (condition == nullptr) throw Unsupported("the truth of a value");
      push(i.opcode == UNARY_NOT ? opposite(*condition) : *condition);
      return true;
    }
    case UNARY_NEGATIVE: push(negative(pop())); return true;
    case BINARY_SUBSCR: {
      const Value key = pop(), container = pop();
      push(get_item(container, key));
      return true;
    }
    case STORE_SUBSCR: {
      const Value key = pop(), container = pop(), value = pop();
      set_item(container, key, value);
      return true;
    }
    case BUILD_TUPLE: {
      auto tuple = std::make_shared<Sequence>();
      for (int n = 0; n < i.oparg; ++n) tuple->items.insert(tuple->items.begin(), pop());
      push(std::move(tuple));
      return true;
    }
    case BUILD_SLICE: {
      const Value by = i.oparg == 3 ? pop() : Value(Ref::borrow(Py_None));
      push(pop_slice(by));
      return true;
    }
#if PY_VERSION_HEX >= 0x030C0000
    case BINARY_SLICE: {
      const Value key = pop_slice(Ref::borrow(Py_None)), container = pop();
      push(get_item(container, key));
      return true;
    }
    case STORE_SLICE: {
      const Value key = pop_slice(Ref::borrow(Py_None)), container = pop(), value = pop();
      set_item(container, key, value);
      return true;
    }
#endif
    default: return false;
  }
}

/// Of the two bounds on the stack, and a step.
std::shared_ptr<Slice> LoopReader::pop_slice(const Value& by) {
  const auto bound = [](const Value& v) -> std::optional<Value> {
    if (std::holds_alternative<Whole>(v) || std::holds_alternative<Number>(v)) return v;
    const auto* object = std::get_if<Ref>(&v);
    if (object == nullptr || object->get() != Py_None) throw Unsupported("a slice by something else than ints");
    return std::nullopt;
  };
  auto slice = std::make_shared<Slice>();
  slice->to = bound(pop());
  slice->from = bound(pop());
  const std::optional<Value> step_by = bound(by);
  const auto* whole = step_by ? std::get_if<Whole>(&*step_by) : nullptr;
  if (!step_by || (whole != nullptr && whole->value.is_const(1))) return slice;
  if (whole == nullptr || !whole->value.is_const(-1) || slice->from || slice->to)
    throw Unsupported("a slice with a step");
  slice->reversed = true;
  return slice;
}

}  // namespace tatara::capture::native
