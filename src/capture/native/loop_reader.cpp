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

constexpr int kMostSlots = 256;
constexpr int kNamedFlags = 3;                         // exit and turn of the loop, fuel
constexpr int kMostCalls = 64;                         // of functions, one within the other or not
constexpr bool kNewer = PY_VERSION_HEX >= 0x030C0000;  // 3.12 and later

#if PY_VERSION_HEX >= 0x030D0000
Ref tuple_of_names(const Sequence& names) {
  Ref tuple = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(names.items.size())));
  for (size_t n = 0; tuple && n < names.items.size(); ++n) {
    const auto* name = std::get_if<Ref>(&names.items[n]);
    if (name == nullptr) return {};
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(n), Py_NewRef(name->get()));
  }
  return tuple;
}
#endif

}  // namespace

LoopReader::LoopReader(const LoopPlace& place, const NumpyApi& np, int head, const LoopRange& range,
                       const LoopProgram* before)
    : LoopOperations(np), place_(place), head_(head), range_(range), before_(before), code_(place.frame.code()) {
  if (!flow().is_head(head)) throw Unsupported("a loop without a second turn");
  assigned_ = assigned_in(flow().loop_at(head));
}

std::unique_ptr<LoopProgram> LoopReader::read(loops::Kernel& kernel) {
  // The types of numbers that are carried from turn to turn are known once nothing new was found.
  for (bool again = true; again;) {
    const std::map<int, NumberType> before = types_.of;
    try {
      read_once();
      again = before != types_.of;
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
  code_ = place_.frame.code();
  builder_ = std::make_unique<LoopBuilder>(str_cat("loop_", PyUnicode_AsUTF8(code_->co_name)));
  locals_.clear();
  arrays_.clear();
  lists_.clear();
  carried_.clear();
  replaced_.clear();
  memory_ = {};
  sizes_ = {};
  base_ = calls_ = read_ = 0;
  keywords_ = nullptr;
  floor_ = low_ = 0;
  lost_.clear();
  stored_.clear();
  bounded_.clear();
  stack_.clear();
  region_ = nullptr;
  using Kind = LoopProgram::Buffer::Kind;
  const auto add = [&](const char* name, Kind kind, DType dtype) {
    program_->buffers.push_back({kind, dtype, 0, true, 0, kMostSlots, std::nullopt});
    return builder_->add_buffer(name, dtype, builder_->constant(kMostSlots));
  };
  memory_.numbers = add("numbers", Kind::kNumbers, DType::kFloat64);
  memory_.tags = add("tags", Kind::kTags, DType::kInt64);
  memory_.wholes = add("wholes", Kind::kWholes, DType::kInt64);
  memory_.flags = add("flags", Kind::kFlags, DType::kInt64);
  memory_.flag_slots = kNamedFlags;
  const Instruction head = instruction_at(code_, head_);
  if (range_.kind != LoopRange::Kind::kWhile) program_->exit = 2 * exit_of_loop(head);
  int array = 0;
  const Region region = read_loop(iterated(range_, array), head_, true);
  for (const LoopExit& exit : region.exits) program_->exits.push_back({2 * exit.offset, exit.iterators});
  check_carried();
  program_->sizes = sizes_.places();
  program_->numbers = memory_.number_count;
  program_->wholes = static_cast<int>(memory_.whole_slots.size());
  program_->flags = memory_.flag_slots;
  if (program_->flags > kMostSlots) throw Unsupported("code with many branches");
  note_results();
}

// ---- Instructions ------------------------------------------------------------------------------------------------------

/// The call of a function of the program is read as part of the loop.
Value LoopReader::read_call(PyObject* function, std::vector<Value> arguments) {
  auto* const code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  constexpr int kOther = CO_VARARGS | CO_VARKEYWORDS | CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;
  const bool plain = (code->co_flags & kOther) == 0 && code->co_kwonlyargcount == 0 &&
                     code->co_nlocalsplus == code->co_nlocals && PyBytes_GET_SIZE(code->co_exceptiontable) == 0 &&
                     code->co_argcount == static_cast<int>(arguments.size()) &&
                     PyFunction_GET_GLOBALS(function) == place_.frame.globals();
  if (!plain) throw Unsupported("a call of a function of another kind");
  if (++calls_ > kMostCalls || code->co_nlocals >= kLocalsOfCall) throw Unsupported("many calls of functions");
  const auto outer = std::tuple(code_, base_, region_, floor_, low_);
  const size_t depth = stack_.size();
  floor_ = low_ = depth;
  code_ = code;
  base_ = calls_ * kLocalsOfCall;
  Region region;
  region.part = &flow().whole();
  region.depth = depth;
  if (flow().returns() > 1) region.gone = memory_.flag_slots++;
  set_flag(region.gone, 0);
  region_ = &region;
  // Locals of an earlier call are none of this one's.
  for (auto it = types_.of.lower_bound(base_); it != types_.of.end() && it->first < base_ + kLocalsOfCall; ++it)
    forget_number(it->first, it->second.dtype);
  for (size_t n = 0; n < arguments.size(); ++n) {
    const auto* grid = std::get_if<GridRef>(&arguments[n]);
    if (grid != nullptr && !(*grid)->view) arguments[n] = materialise(*grid);
    if (std::holds_alternative<Masked>(arguments[n])) throw Unsupported("a part of an array by a mask, in a call");
    const int local = base_ + static_cast<int>(n);
    const bool number = !std::holds_alternative<GridRef>(arguments[n]) && note_type(local, arguments[n]);
    if (number && types_.of.contains(local)) {
      store_local(local, arguments[n]);
    } else {
      locals_[local] = {Local::State::kKnown, arguments[n]};
    }
  }
  read_from(0, -1);
  stack_.resize(depth);
  if (!region.returned) throw Unsupported("a call that does not return");
  Value result = *region.returned;
  if (std::holds_alternative<Nothing>(result)) result = load_local(joint_local(-1));
  std::tie(code_, base_, region_, floor_, low_) = outer;
  return result;
}

Value LoopReader::pop() {
  if (stack_.size() <= floor_) throw Unsupported("code that works on older values of the stack");
  Value top = std::move(stack_.back());
  stack_.pop_back();
  low_ = std::min(low_, stack_.size());
  return top;
}

int LoopReader::step(const Instruction& i) {
  if (i.opcode == JUMP_FORWARD) return i.next + i.oparg;
  if (i.opcode == JUMP_BACKWARD) return i.next - i.oparg;
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
      low_ = std::min(low_, stack_.size() - static_cast<size_t>(i.oparg));
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
      PyObject* const names = std::exchange(keywords_, nullptr);
      push(call_with_keywords(kNullFirst ? upper : lower, std::move(arguments), names));
      return true;
    }
#if PY_VERSION_HEX < 0x030D0000
    case KW_NAMES: keywords_ = PyTuple_GET_ITEM(code_->co_consts, i.oparg); return true;
#else
    case CALL_KW: {
      const Value names = pop();
      std::vector<Value> arguments(static_cast<size_t>(i.oparg));
      for (auto it = arguments.rbegin(); it != arguments.rend(); ++it) *it = pop();
      const Value upper = pop(), lower = pop();
      if (!std::holds_alternative<Nothing>(upper)) throw Unsupported("a call of a method");
      const auto* tuple = std::get_if<std::shared_ptr<Sequence>>(&names);
      const Ref as_tuple = tuple != nullptr ? tuple_of_names(**tuple) : Ref();
      push(call_with_keywords(lower, std::move(arguments), as_tuple.get()));
      return true;
    }
#endif
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
      const bool arrays = std::holds_alternative<GridRef>(left) || std::holds_alternative<GridRef>(right);
      push(arrays ? Value(comparison(i.oparg >> kShift, left, right)) : compare(i.oparg >> kShift, left, right));
      return true;
    }
#if PY_VERSION_HEX >= 0x030D0000
    case TO_BOOL:
#endif
    case UNARY_NOT: {
      const Value tested = pop();
      const Condition condition = truth(tested);
      push(i.opcode == UNARY_NOT ? opposite(condition) : condition);
      return true;
    }
    case UNARY_NEGATIVE: push(negative(pop())); return true;
    case UNARY_INVERT: push(inverted(pop())); return true;
    case UNPACK_SEQUENCE: {
      const Value unpacked = pop();
      if (const auto* grid = std::get_if<GridRef>(&unpacked)) {
        push_rows(*grid, i.oparg);
        return true;
      }
      const auto* tuple = std::get_if<std::shared_ptr<Sequence>>(&unpacked);
      if (tuple == nullptr || static_cast<int>((*tuple)->items.size()) != i.oparg)
        throw Unsupported("the items of a value");
      for (auto it = (*tuple)->items.rbegin(); it != (*tuple)->items.rend(); ++it) push(*it);
      return true;
    }
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
    case BUILD_LIST:
    case BUILD_TUPLE: {
      auto tuple = std::make_shared<Sequence>();
      tuple->is_list = i.opcode == BUILD_LIST;
      for (int n = 0; n < i.oparg; ++n) tuple->items.insert(tuple->items.begin(), pop());
      push(std::move(tuple));
      return true;
    }
    case LIST_EXTEND: {  // `[0, 1, 2]` is an empty list and a constant
      const Value more = pop();
      const auto* tuple = std::get_if<std::shared_ptr<Sequence>>(&more);
      const auto* list = i.oparg == 1 ? std::get_if<std::shared_ptr<Sequence>>(&peek(1)) : nullptr;
      if (tuple == nullptr || list == nullptr) throw Unsupported("a list made of another value");
      auto joined = std::make_shared<Sequence>(**list);
      joined->items.insert(joined->items.end(), (*tuple)->items.begin(), (*tuple)->items.end());
      peek(1) = std::move(joined);
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
