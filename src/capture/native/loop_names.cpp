// Locals, globals and attributes of a loop's code, and what the frame's locals are behind the loop.
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "capture/native/loop_reader.h"
#include "capture/numbers/symbolic_int.h"
#include "support/error.h"
#include "support/str_cat.h"

namespace tatara::capture::native {

namespace {

constexpr int kMostNamed = 64;                // slots of numbers
constexpr int64_t kExact = int64_t{1} << 52;  // ints below it are exact as floats

bool lies_within(const IntRange& range, int64_t lo, int64_t hi) { return range.lo >= lo && range.hi <= hi; }

/// Elements of arrays.
bool takes(DType dtype) {
  return dtype == DType::kFloat64 || dtype == DType::kFloat32 || is_integral(dtype) || dtype == DType::kComplex64 ||
         dtype == DType::kComplex128;
}

}  // namespace

int LoopReader::number_slot(int local) {
  const auto [found, made] = number_slots_.emplace(local, static_cast<int>(number_slots_.size()));
  if (found->second >= kMostNamed) throw Unsupported("too many numbers");
  return found->second;
}

int LoopReader::whole_slot(int local) {
  const auto [found, made] = whole_slots_.emplace(local, static_cast<int>(whole_slots_.size()));
  if (2 * found->second + 1 >= kMostNamed) throw Unsupported("too many ints");
  return found->second;
}

Value LoopReader::load_local(int local) {
  Local& now = locals_[local];
  if (now.state == Local::State::kUnknown || (base_ != 0 && now.state == Local::State::kGiven)) {
    // An int before the loop that becomes a float in it is read as a float.
    PyObject* const object = given_object(local);
    const bool whole = object != nullptr && (PyLong_CheckExact(object) || is_symbolic_int(object));
    if (whole && types_.emplace(local, NumberType{DType::kFloat64, Strength::kEither}).second) throw NewType{};
    throw Unsupported(str_cat("what ", PyUnicode_AsUTF8(PyTuple_GET_ITEM(code_->co_localsplusnames, local - base_)),
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
    if (overflow != 0 || !lies_within({fact.value, fact.value}, -kExact, kExact)) throw Unsupported("a large int");
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
  if (!np_.describe(object.get(), fact.dtype, fact.sizes, fact.strides) || !takes(fact.dtype)) {
    throw Unsupported("an array of other elements than numbers, or in another order of bytes");
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
    if (!is_floating(number->dtype)) throw Unsupported("a local that is an int or a complex number of NumPy's");
    if (number->strength == Strength::kEither) throw Unsupported("a float of Python's or NumPy's, as it comes");
    store_number(local, *number, tag);
    return;
  }
  if (const auto* whole = std::get_if<Whole>(&value)) {
    if (!lies_within(whole->range, -kExact, kExact)) throw Unsupported("a large int");
    if (rebound_.contains(local)) throw Unsupported("a local that is an array and an int");
    if (types_.contains(local)) {
      store_number(local, as_number(value, DType::kFloat64), NumberTag::kWhole);
      return;
    }
    if (base_ != 0) {
      now = {Local::State::kKnown, std::move(value)};
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
  if (grid != nullptr && now.state == Local::State::kKnown && std::holds_alternative<GridRef>(now.value) &&
      std::get<GridRef>(now.value) == *grid) {
    return;
  }
  if (grid != nullptr && (*grid)->view && !rebound_.contains(local) && now.state != Local::State::kUnknown &&
      given_object(local) != nullptr) {
    const Value before = load_local(local);
    const auto* same = std::get_if<GridRef>(&before);
    if (same != nullptr && (*same)->view == (*grid)->view) return;
  }
  const auto* object = std::get_if<Ref>(&value);
  if (object != nullptr && base_ != 0) now = {Local::State::kKnown, *object};
  if (object != nullptr && base_ != 0) return;
  if (grid == nullptr) throw Unsupported("an object that a local is given");
  if (base_ != 0) {
    now = {Local::State::kKnown, (*grid)->view ? *grid : materialise(*grid)};
    return;
  }
  if (rebound_.insert(local).second) throw NewType{};
  const bool shared = std::any_of(locals_.begin(), locals_.end(), [&](const auto& each) {
    const auto* other = std::get_if<GridRef>(&each.second.value);
    return other != nullptr && each.second.state == Local::State::kKnown && *other == *grid;
  });
  const GridRef array = (*grid)->view ? *grid : materialise(*grid);
  if (shared) {
    lost_.insert(local);  // one object under two names
  } else {
    keep_array(local, **grid, *array->view);
  }
  now = {Local::State::kKnown, array};
}

/// The frame gets the array when the loop has ended.
void LoopReader::keep_array(int local, const Grid& made, const View& view) {
  ArrayResult result{local, whole_slot(local), static_cast<int64_t>(program_->arrays.size()) + 1, view.array, {}, {}};
  const LoopProgram::Buffer& buffer = program_->buffers[static_cast<size_t>(view.array)];
  const bool is_view = buffer.kind == LoopProgram::Buffer::Kind::kArray;
  bool known = is_view ? np_.writeable(f_.local(buffer.local)) : !made.view && is_in_order(made);
  for (size_t d = 0; d < view.extents.size(); ++d) {
    known = known && view.extents[d].is_const() && view.strides[d].is_const();
    if (!known) break;
    result.sizes.push_back(view.extents[d].const_value());
    result.strides.push_back(view.strides[d].const_value());
  }
  if (!known) {
    lost_.insert(local);
    return;
  }
  const int slot = 2 * result.slot;
  builder_->store(wholes_, builder_->constant(slot), builder_->index(view.offset, DType::kInt64));
  const auto statement = static_cast<double>(result.statement);
  builder_->store(wholes_, builder_->constant(slot + 1), builder_->number(statement, DType::kInt64));
  program_->arrays.push_back(std::move(result));
}

/// Whether NumPy lays a new array with these elements out row by row.
bool LoopReader::is_in_order(const Grid& made) const {
  if (made.extents.size() < 2) return true;
  for (const Read& read : made.reads) {
    int64_t before = INT64_MAX;
    for (size_t d = 0; d < read.view.extents.size(); ++d) {
      if (read.view.extents[d].is_const(1)) continue;
      if (!read.view.strides[d].is_const()) return false;
      const int64_t stride = std::abs(read.view.strides[d].const_value());
      if (stride > before) return false;
      before = stride;
    }
  }
  return true;
}

/// Of arrays whose size or layout is not told, nobody may ask behind the loop.
void LoopReader::check_lost_arrays() const {
  const int behind = exit_of_loop(instruction_at(code_, head_));
  for (const int local : lost_) {
    if (f_.is_held() || is_read_behind(code_, behind, local))
      throw Unsupported("an array of the loop that is used behind it, of another size in each turn");
  }
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
    if (overflow != 0 || !lies_within({value, value}, -kExact, kExact)) throw Unsupported("a large int");
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
  if (!PyFunction_Check(object->get())) return function(object->get(), arguments);
  program_->functions.emplace_back(*object, Ref::borrow(PyFunction_GET_CODE(object->get())));
  return read_call(object->get(), std::move(arguments));
}

}  // namespace tatara::capture::native
