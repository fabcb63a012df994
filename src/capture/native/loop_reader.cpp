#include "capture/native/loop_reader.h"

#include <opcode.h>

#include <algorithm>
#include <utility>

#include "capture/numbers/symbolic_int.h"
#include "capture/vm/opcodes.h"
#include "support/error.h"
#include "support/str_cat.h"

namespace tatara::capture::native {

using loops::LoopKind;
using loops::ScalarOp;

namespace {

constexpr int kMostSlots = 64;
constexpr int kMostDepth = 8;                          // of loops
constexpr int64_t kMostExact = int64_t{1} << 52;       // ints below it are exact as floats
constexpr bool kNewer = PY_VERSION_HEX >= 0x030C0000;  // 3.12 and later

bool within(const IntRange& range, int64_t lo, int64_t hi) { return range.lo >= lo && range.hi <= hi; }

/// A local is a number of another type than was taken so far.
struct NewType {};

bool jumps_back(const Instruction& i, int head) { return i.opcode == JUMP_BACKWARD && i.next - i.oparg == head; }

}  // namespace

Instruction instruction_at(PyCodeObject* code, int at) {
  const Ref bytes = Ref::steal(PyCode_GetCode(code));  // which the code keeps
  if (!bytes) throw Unsupported("code without bytes");
  const auto* words = reinterpret_cast<const uint16_t*>(PyBytes_AS_STRING(bytes.get()));
  Instruction i;
  i.at = at;
  int place = at;
  i.opcode = words[place] & 255;
  i.oparg = words[place] >> 8;
  while (i.opcode == EXTENDED_ARG) {
    ++place;
    i.opcode = words[place] & 255;
    i.oparg = (i.oparg << 8) | (words[place] >> 8);
  }
  i.next = place + 1 + vm::kCacheSizes[static_cast<size_t>(i.opcode)];
  return i;
}

int exit_of_loop(const Instruction& head) {
  constexpr int kEnd = PY_VERSION_HEX >= 0x030D0000 ? 2 : kNewer ? 1 : 0;  // END_FOR, and its POP_TOP in 3.13
  return head.next + head.oparg + kEnd;
}

bool holds_loop(PyCodeObject* code, int head) {
  const Instruction start = instruction_at(code, head);
  const int end = start.next + start.oparg;
  for (int at = start.next; at < end;) {
    const Instruction i = instruction_at(code, at);
    if (i.opcode == FOR_ITER) return true;
    at = i.next;
  }
  return false;
}

LoopReader::LoopReader(const Frame& f, const NumpyApi& np, int head, LoopRange range)
    : f_(f), np_(np), code_(f.code()), head_(head), range_(range), assigned_(assigned_in(head)) {}

std::set<int> LoopReader::assigned_in(int head) const {
  std::set<int> found;
  const Instruction start = instruction_at(code_, head);
  for (int at = start.next; at < start.next + start.oparg;) {
    const Instruction i = instruction_at(code_, at);
    if (i.opcode == STORE_FAST) found.insert(i.oparg);
#if PY_VERSION_HEX >= 0x030D0000
    if (i.opcode == STORE_FAST_LOAD_FAST || i.opcode == STORE_FAST_STORE_FAST) found.insert(i.oparg >> 4);
    if (i.opcode == STORE_FAST_STORE_FAST) found.insert(i.oparg & 15);
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
  for (const auto& [local, slot] : whole_slots_) program_->results.push_back({local, false, slot});
}

// ---- Loops -----------------------------------------------------------------------------------------------------------

/// Where a turn begins, what the loop assigns is unknown, but for arrays, and for numbers in memory.
void LoopReader::forget_assigned(const std::set<int>& assigned) {
  for (const int local : assigned) {
    Local& now = locals_[local];
    const bool array = now.state == Local::State::kKnown && std::holds_alternative<GridRef>(now.value);
    if (!array && now.state != Local::State::kNumber) now.state = Local::State::kUnknown;
  }
}

/// Numbers that the loop assigns are in memory from here on.
void LoopReader::keep_numbers(const std::set<int>& assigned) {
  for (const int local : assigned) {
    PyObject* const object = f_.local(local);
    if (locals_[local].state != Local::State::kGiven || object == nullptr) continue;
    const bool number = PyFloat_CheckExact(object) || is_symbolic_float(object) || np_.is_scalar(object);
    if (number || types_.contains(local) || np_.is_array(object)) load_local(local);
  }
}

void LoopReader::loop_turns(const Range& range, int head, bool outermost) {
  if (std::count_if(stack_.begin(), stack_.end(), [](const Value& v) { return std::holds_alternative<Range>(v); }) >
      kMostDepth)
    throw Unsupported("loops too deep");
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
  const std::map<int, Local> before = locals_;
  Whole counter{ctx.add(range.from.value, ctx.mul(variable, builder_->constant(range.step))), {}};
  const IntRange exact = range_of(counter.value);
  counter.range = range.step > 0 ? IntRange{range.from.range.lo, range.to.range.hi - 1}
                                 : IntRange{range.to.range.lo + 1, range.from.range.hi};
  counter.range = {std::max(counter.range.lo, exact.lo), std::min(counter.range.hi, exact.hi)};
  const size_t depth = stack_.size();
  push(Value(counter));
  body(instruction_at(code_, head).next, head);
  if (stack_.size() != depth) throw Unsupported("values on the stack at the end of a turn");
  builder_->close_loop();
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

void LoopReader::body(int from, int head) {
  for (int at = from;;) {
    const Instruction i = instruction_at(code_, at);
    if (jumps_back(i, head)) return;
    at = i.opcode == FOR_ITER ? nested_loop(i) : step(i);
  }
}

// ---- Instructions ------------------------------------------------------------------------------------------------------

Value LoopReader::pop() {
  if (stack_.empty()) throw Unsupported("code that works on older values of the stack");
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
    case LOAD_FAST: push(load_local(i.oparg)); return true;
    case STORE_FAST: store_local(i.oparg, pop()); return true;
    case LOAD_CONST: push(constant_of(PyTuple_GET_ITEM(code_->co_consts, i.oparg))); return true;
    case PUSH_NULL: push(Nothing{}); return true;
    case POP_TOP: pop(); return true;
    case COPY: {
      // What is computed where it is wanted would be computed twice.
      Value& copied = peek(i.oparg);
      const auto* grid = std::get_if<GridRef>(&copied);
      if (grid != nullptr && !(*grid)->view) copied = materialise(*grid);
      push(copied);
      return true;
    }
    case SWAP: std::swap(peek(1), peek(i.oparg)); return true;
#if PY_VERSION_HEX >= 0x030D0000
    case LOAD_FAST_LOAD_FAST:
      push(load_local(i.oparg >> 4));
      push(load_local(i.oparg & 15));
      return true;
    case STORE_FAST_LOAD_FAST:
      store_local(i.oparg >> 4, pop());
      push(load_local(i.oparg & 15));
      return true;
    case STORE_FAST_STORE_FAST:
      store_local(i.oparg >> 4, pop());
      store_local(i.oparg & 15, pop());
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
Slice LoopReader::pop_slice(const Value& by) {
  const auto bound = [](const Value& v) -> std::optional<Whole> {
    if (const auto* whole = std::get_if<Whole>(&v)) return *whole;
    const auto* object = std::get_if<Ref>(&v);
    if (object == nullptr || object->get() != Py_None) throw Unsupported("a slice by something else than ints");
    return std::nullopt;
  };
  Slice slice;
  slice.to = bound(pop());
  slice.from = bound(pop());
  const std::optional<Whole> step_by = bound(by);
  if (!step_by || step_by->value.is_const(1)) return slice;
  if (!step_by->value.is_const(-1) || slice.from || slice.to) throw Unsupported("a slice with a step");
  slice.reversed = true;
  return slice;
}

// ---- Names -----------------------------------------------------------------------------------------------------------

int LoopReader::number_slot(int local) {
  const auto [found, made] = number_slots_.emplace(local, static_cast<int>(number_slots_.size()));
  if (found->second >= kMostSlots) throw Unsupported("too many numbers");
  return found->second;
}

int LoopReader::whole_slot(int local) {
  const auto [found, made] = whole_slots_.emplace(local, static_cast<int>(whole_slots_.size()));
  if (2 * found->second + 1 >= kMostSlots) throw Unsupported("too many ints");
  return found->second;
}

Value LoopReader::load_local(int local) {
  Local& now = locals_[local];
  if (now.state == Local::State::kUnknown) {
    // An int before the loop that becomes a float in it is read as a float.
    PyObject* const object = f_.local(local);
    const bool whole = object != nullptr && (PyLong_CheckExact(object) || is_symbolic_int(object));
    if (whole && types_.emplace(local, NumberType{DType::kFloat64, Strength::kEither}).second) throw NewType{};
    throw Unsupported(str_cat("what ", PyUnicode_AsUTF8(PyTuple_GET_ITEM(code_->co_localsplusnames, local)),
                              " is here depends on the turn"));
  }
  if (now.state == Local::State::kGiven) {
    Value value = given_local(local);
    const auto* number = std::get_if<Number>(&value);
    const auto* whole = std::get_if<Whole>(&value);
    if (number != nullptr) {
      types_.emplace(local, NumberType{number->dtype, number->strength});
      now.state = Local::State::kNumber;
    } else if (whole != nullptr && types_.contains(local)) {
      if (types_.at(local).dtype != DType::kFloat64) throw Unsupported("an int that becomes a float32");
      types_.at(local).strength = Strength::kEither;
      program_->given.emplace_back(local, number_slot(local));
      now.state = Local::State::kNumber;
    } else {
      now = {Local::State::kKnown, std::move(value)};
    }
  }
  if (now.state == Local::State::kKnown) return now.value;
  const NumberType type = types_.at(local);
  const ScalarId loaded = builder_->load(numbers_, builder_->constant(number_slot(local)));
  return Number{builder_->cast(loaded, type.dtype), type.dtype, type.strength};
}

/// A local as the frame has it.
Value LoopReader::given_local(int local) {
  if (f_.local(local) == nullptr) throw Unsupported("a local that is not bound");
  const Ref object = seen_value(f_.local(local));
  LocalFact fact;
  fact.local = local;
  if (!object) throw Unsupported("a number that tensors decide");
  if (PyLong_CheckExact(object.get())) {
    int overflow = 0;
    fact.kind = LocalFact::Kind::kWhole;
    fact.value = PyLong_AsLongLongAndOverflow(object.get(), &overflow);
    if (overflow != 0 || !within({fact.value, fact.value}, -kMostExact, kMostExact)) throw Unsupported("a large int");
    program_->locals.push_back(fact);
    return Whole{builder_->constant(fact.value), {fact.value, fact.value}};
  }
  if (PyFloat_CheckExact(object.get()) || np_.is_scalar(object.get())) {
    const bool strong = !PyFloat_CheckExact(object.get());
    if (strong && (!np_.describe(object.get(), fact.dtype, fact.sizes, fact.strides) ||
                   (fact.dtype != DType::kFloat64 && fact.dtype != DType::kFloat32))) {
      throw Unsupported("a NumPy scalar that is no float");
    }
    fact.kind = !strong                         ? LocalFact::Kind::kFloat
                : fact.dtype == DType::kFloat64 ? LocalFact::Kind::kFloat64
                                                : LocalFact::Kind::kFloat32;
    program_->locals.push_back(fact);
    program_->given.emplace_back(local, number_slot(local));
    return Number{loops::kNoScalar, fact.dtype, strong ? Strength::kStrong : Strength::kWeak};
  }
  if (!np_.is_array(object.get())) throw Unsupported(str_cat("a value of type ", Py_TYPE(object.get())->tp_name));
  if (!np_.describe(object.get(), fact.dtype, fact.sizes, fact.strides) ||
      (fact.dtype != DType::kFloat64 && fact.dtype != DType::kFloat32)) {
    throw Unsupported("an array of other elements than floats, or in another order of bytes");
  }
  if (fact.sizes.empty()) throw Unsupported("an array without dimensions");
  fact.kind = LocalFact::Kind::kArray;
  LoopProgram::Buffer buffer{LoopProgram::Buffer::Kind::kArray, fact.dtype, local, false, 0, 1};
  View view;
  for (size_t d = 0; d < fact.sizes.size(); ++d) {
    if (fact.sizes[d] == 0) throw Unsupported("an empty array");
    const int64_t reach = (fact.sizes[d] - 1) * fact.strides[d];
    if (reach < 0) buffer.low -= reach;
    buffer.numel += std::abs(reach);
    view.extents.push_back(builder_->constant(fact.sizes[d]));
    view.strides.push_back(builder_->constant(fact.strides[d]));
  }
  const auto [found, is_new] = arrays_.emplace(f_.local(local), static_cast<int>(program_->buffers.size()));
  if (is_new) {
    program_->buffers.push_back(buffer);
    builder_->add_buffer(str_cat("a", found->second), fact.dtype, buffer.numel);
  }
  view.array = fact.array = found->second;
  view.offset = builder_->constant(buffer.low);
  program_->locals.push_back(fact);
  return view_grid(std::move(view));
}

void LoopReader::store_local(int local, Value value) {
  Local& now = locals_[local];
  if (const auto* number = std::get_if<Number>(&value)) {
    const NumberTag tag = number->strength == Strength::kWeak ? NumberTag::kFloat
                          : number->dtype == DType::kFloat64  ? NumberTag::kFloat64
                                                              : NumberTag::kFloat32;
    if (number->strength == Strength::kEither) throw Unsupported("a float of Python's or NumPy's, as it comes");
    store_number(local, *number, tag);
    return;
  }
  if (const auto* whole = std::get_if<Whole>(&value)) {
    if (!within(whole->range, -kMostExact, kMostExact)) throw Unsupported("a large int");
    if (types_.contains(local)) {
      store_number(local, as_number(value, DType::kFloat64), NumberTag::kWhole);
      return;
    }
    const int slot = 2 * whole_slot(local);
    builder_->store(wholes_, builder_->constant(slot), builder_->index(whole->value, DType::kInt64));
    builder_->store(wholes_, builder_->constant(slot + 1), builder_->number(1, DType::kInt64));
    now = {Local::State::kKnown, std::move(value)};
    return;
  }
  // `C *= 2` stores the array that it was.
  const auto* grid = std::get_if<GridRef>(&value);
  if (grid != nullptr && (*grid)->view) {
    const Value before = load_local(local);
    const auto* same = std::get_if<GridRef>(&before);
    if (same != nullptr && (*same)->view == (*grid)->view) return;
  }
  throw Unsupported("an array, or another object, that a local is given");
}

void LoopReader::store_number(int local, const Number& number, NumberTag tag) {
  const Strength strength = tag == NumberTag::kWhole ? Strength::kEither : number.strength;
  const auto [found, is_new] = types_.emplace(local, NumberType{number.dtype, strength});
  NumberType& type = found->second;
  if (type.dtype != number.dtype) throw Unsupported("a number whose type changes");
  if (type.strength != strength) type.strength = Strength::kEither;
  const Expr slot = builder_->constant(number_slot(local));
  builder_->store(numbers_, slot, number.id);
  builder_->store(tags_, slot, builder_->number(static_cast<double>(tag), DType::kInt64));
  locals_[local] = {Local::State::kNumber, {}};
}

Value LoopReader::constant_of(PyObject* object) {
  if (PyLong_CheckExact(object)) {
    int overflow = 0;
    const int64_t value = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow != 0 || !within({value, value}, -kMostExact, kMostExact)) throw Unsupported("a large int");
    return Whole{builder_->constant(value), {value, value}};
  }
  if (PyFloat_CheckExact(object))
    return Number{builder_->number(PyFloat_AS_DOUBLE(object), DType::kFloat64), DType::kFloat64, Strength::kWeak};
  if (PyTuple_CheckExact(object)) {
    auto tuple = std::make_shared<Sequence>();
    for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(object); ++n)
      tuple->items.push_back(constant_of(PyTuple_GET_ITEM(object, n)));
    return tuple;
  }
  if (PySlice_Check(object)) throw Unsupported("a constant slice");
  return Ref::borrow(object);
}

Value LoopReader::load_global(PyObject* name) {
  PyObject* found = PyDict_CheckExact(f_.globals()) ? PyDict_GetItemWithError(f_.globals(), name) : nullptr;
  if (found == nullptr && PyErr_Occurred() == nullptr && PyDict_CheckExact(f_.builtins()))
    found = PyDict_GetItemWithError(f_.builtins(), name);
  if (found == nullptr) {
    forget_error();
    throw Unsupported("a global that is not there");
  }
  program_->names.push_back({{}, Ref::borrow(name), Ref::borrow(found)});
  if (PyLong_CheckExact(found) || PyFloat_CheckExact(found)) return constant_of(found);
  return Ref::borrow(found);
}

Value LoopReader::load_attribute(const Value& owner, PyObject* name) {
  const std::string text = PyUnicode_AsUTF8(name);
  if (const auto* grid = std::get_if<GridRef>(&owner)) {
    if (text != "shape") return Method{*grid, {}, text};
    auto shape = std::make_shared<Sequence>();
    for (const Expr extent : (*grid)->extents) shape->items.emplace_back(Whole{extent, range_of(extent)});
    return shape;
  }
  const auto* object = std::get_if<Ref>(&owner);
  if (object != nullptr && np_.is_ufunc(object->get())) return Method{nullptr, *object, text};
  if (object == nullptr || !PyModule_CheckExact(object->get())) throw Unsupported(str_cat("the attribute ", text));
  PyObject* found = PyDict_GetItemWithError(PyModule_GetDict(object->get()), name);
  if (found == nullptr) {
    forget_error();
    throw Unsupported(str_cat("the attribute ", text, " of a module"));
  }
  program_->names.push_back({*object, Ref::borrow(name), Ref::borrow(found)});
  if (PyLong_CheckExact(found) || PyFloat_CheckExact(found)) return constant_of(found);
  return Ref::borrow(found);
}

Value LoopReader::call(const Value& callable, std::vector<Value> arguments) {
  if (const auto* bound = std::get_if<Method>(&callable)) return method(*bound, arguments);
  const auto* object = std::get_if<Ref>(&callable);
  if (object == nullptr) throw Unsupported("a call");
  if (object->get() == reinterpret_cast<PyObject*>(&PyRange_Type)) {
    const auto whole = [&](size_t n) {
      const auto* value = n < arguments.size() ? std::get_if<Whole>(&arguments[n]) : nullptr;
      if (value == nullptr) throw Unsupported("a range of something else than ints");
      return *value;
    };
    if (arguments.empty() || arguments.size() > 3) throw Unsupported("a range of other arguments");
    if (arguments.size() == 1) return Range{{builder_->constant(0), {0, 0}}, whole(0), 1};
    Range range{whole(0), whole(1), 1};
    if (arguments.size() == 3) {
      const Whole by = whole(2);
      if (!by.value.is_const() || by.value.const_value() == 0) throw Unsupported("a range with a step that varies");
      range.step = by.value.const_value();
    }
    return range;
  }
  return function(object->get(), arguments);
}

}  // namespace tatara::capture::native
