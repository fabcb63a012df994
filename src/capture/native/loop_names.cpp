// Locals, globals and attributes of a loop's code, and what the frame's locals are behind the loop.
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "capture/native/loop_ints.h"
#include "capture/native/loop_reader.h"
#include "capture/numbers/symbolic_int.h"
#include "support/error.h"
#include "support/str_cat.h"

namespace tatara::capture::native {

using loops::ScalarOp;

namespace {

constexpr int kMostNamed = 256;               // slots of numbers
constexpr int64_t kExact = int64_t{1} << 52;  // ints below it are exact as floats

bool lies_within(const IntRange& range, int64_t lo, int64_t hi) { return range.lo >= lo && range.hi <= hi; }

/// Elements of arrays.
bool takes(DType dtype) {
  return dtype == DType::kFloat64 || dtype == DType::kFloat32 || is_integral(dtype) || dtype == DType::kComplex64 ||
         dtype == DType::kComplex128 || dtype == DType::kBool;
}

/// What the same name was in another program.
const LocalFact* fact_before(const LoopProgram* program, const LocalFact& fact) {
  if (program == nullptr) return nullptr;
  const auto found = std::find_if(program->locals.begin(), program->locals.end(), [&fact](const LocalFact& each) {
    return each.local == fact.local && each.kind == fact.kind;
  });
  return found != program->locals.end() ? &*found : nullptr;
}

/// Of numbers that one local has, one after the other.
bool is_whole_type(DType dtype) { return is_integral(dtype) || dtype == DType::kBool; }

}  // namespace

int LoopReader::number_slot(int local) {
  const auto [found, made] = memory_.number_slots.emplace(local, memory_.number_count);
  if (made) memory_.number_count += is_complex(types_.of.at(local).dtype) ? 2 : 1;
  if (found->second + 1 >= kMostNamed) throw Unsupported("too many numbers");
  return found->second;
}

int LoopReader::whole_slot(int local) {
  const auto [found, made] = memory_.whole_slots.emplace(local, static_cast<int>(memory_.whole_slots.size()));
  if (2 * found->second + 1 >= kMostNamed) throw Unsupported("too many ints");
  return found->second;
}

/// The type of a number, as locals have it.
std::optional<LoopReader::NumberType> LoopReader::number_type(const Value& value) {
  if (std::holds_alternative<Whole>(value)) return NumberType{DType::kInt64, Strength::kWeak};
  if (const auto* condition = std::get_if<Condition>(&value)) return NumberType{DType::kBool, condition->strength};
  const auto* number = std::get_if<Number>(&value);
  return number != nullptr ? std::optional(NumberType{number->dtype, number->strength}) : std::nullopt;
}

/// The type of a local that has numbers of both types.
LoopReader::NumberType LoopReader::joined_number(const NumberType& a, const NumberType& b) {
  if (a == b) return a;
  const auto mixes = [](const NumberType& type) {
    return type.dtype == DType::kFloat64 || (type.dtype == DType::kInt64 && type.strength == Strength::kWeak);
  };
  if (a.dtype == b.dtype && (is_floating(a.dtype) || a.dtype == DType::kBool || a.dtype == DType::kInt64))
    return {a.dtype, Strength::kEither};
  if (mixes(a) && mixes(b)) return {DType::kFloat64, Strength::kEither};
  // Of Python's a complex number may begin as another one.
  const auto pairs = [](const NumberType& type) {
    const bool weak_int = type.dtype == DType::kInt64 && type.strength == Strength::kWeak;
    return weak_int ||
           (type.strength != Strength::kStrong && (type.dtype == DType::kComplex128 || type.dtype == DType::kFloat64));
  };
  if (pairs(a) && pairs(b)) return {DType::kComplex128, Strength::kEither};
  throw Unsupported("a number whose type changes");
}

/// Notes that the local gets this value. False: it is no number.
bool LoopReader::note_type(int local, const Value& value) {
  const std::optional<NumberType> type = number_type(value);
  if (!type) return false;
  if (memory_.tuples.contains(local)) throw Unsupported("a local that is a tuple and something else");
  const auto [found, is_new] = types_.stored.emplace(local, *type);
  if (!is_new) found->second = joined_number(found->second, *type);
  return true;
}

/// What the local is here depends on the way of the program to this place: it lies in memory from the next reading on.
void LoopReader::promote(int local) {
  std::optional<NumberType> type;
  if (const auto found = types_.stored.find(local); found != types_.stored.end()) type = found->second;
  if (PyObject* const object = given_object(local); object != nullptr) {
    const Ref seen = seen_value(object);
    std::optional<NumberType> given;
    if (seen && PyLong_CheckExact(seen.get())) given = {DType::kInt64, Strength::kWeak};
    if (seen && PyFloat_CheckExact(seen.get())) given = {DType::kFloat64, Strength::kWeak};
    if (seen && PyComplex_CheckExact(seen.get())) given = {DType::kComplex128, Strength::kWeak};
    if (seen && PyBool_Check(seen.get())) given = {DType::kBool, Strength::kWeak};
    if (given) type = type ? joined_number(*type, *given) : *given;
  }
  const bool is_new = type && types_.of.emplace(local, *type).second;
  if (is_new) throw NewType{};
  const bool named = local - base_ >= 0 && local - base_ < PyTuple_GET_SIZE(code_->co_localsplusnames);
  const char* name =
      named ? PyUnicode_AsUTF8(PyTuple_GET_ITEM(code_->co_localsplusnames, local - base_)) : "a value of a branch";
  throw Unsupported(str_cat("what ", name, " is here depends on the turn"));
}

Value LoopReader::load_local(int local) {
  Local& now = locals_[local];
  if (now.state == Local::State::kUnknown || (base_ != 0 && now.state == Local::State::kGiven)) {
    PyObject* const object = given_object(local);
    if (object != nullptr && np_.is_array(object) && types_.rebound.contains(local) &&
        types_.carried.insert(local).second)
      throw NewType{};
    if (!types_.of.contains(local)) promote(local);
    return load_number(local, true);
  }
  if (now.state == Local::State::kGiven) {
    Value value = types_.carried.contains(local) ? carry(local) : given_local(local);
    if (number_type(value) && types_.of.contains(local)) {
      now.state = Local::State::kNumber;
    } else {
      now = {Local::State::kKnown, std::move(value)};
    }
  }
  return now.state == Local::State::kKnown ? now.value : load_number(local, false);
}

/// Of memory. `checked`: it may be that nothing has assigned it yet; then the kernel stops.
Value LoopReader::load_number(int local, bool checked) {
  const NumberType type = types_.of.at(local);
  const bool whole = is_whole_type(type.dtype);
  const Expr slot = builder_->constant(whole ? 2 * whole_slot(local) : number_slot(local));
  const bool told =
      type.strength == Strength::kEither && (type.dtype == DType::kInt64 || type.dtype == DType::kFloat64);
  ScalarId tag = loops::kNoScalar;
  if (checked || told) {
    tag = whole ? builder_->load(memory_.wholes, builder_->ctx().add(slot, builder_->constant(1)))
                : builder_->load(memory_.tags, slot);
    const ScalarId none = builder_->index(builder_->constant(0), DType::kInt64);
    const ScalarId unassigned = builder_->emit(ScalarOp::kEq, DType::kBool, {tag, none});
    const auto given = memory_.given_tags.find(local);
    if (checked) {
      builder_->stop_if(unassigned);
    } else if (given != memory_.given_tags.end()) {
      const ScalarId own = builder_->index(builder_->constant(static_cast<int64_t>(given->second)), DType::kInt64);
      tag = builder_->emit(ScalarOp::kSelect, DType::kInt64, {unassigned, own, tag});
    }
    if (!told) tag = loops::kNoScalar;
  }
  if (is_complex(type.dtype)) {
    const DType part = real_dtype(type.dtype);
    const ScalarId re = builder_->cast(builder_->load(memory_.numbers, slot), part);
    const Expr next = builder_->ctx().add(slot, builder_->constant(1));
    const ScalarId im = builder_->cast(builder_->load(memory_.numbers, next), part);
    return Number{builder_->emit(ScalarOp::kComplex, type.dtype, {re, im}), type.dtype, type.strength};
  }
  const ScalarId loaded = builder_->cast(builder_->load(whole ? memory_.wholes : memory_.numbers, slot), type.dtype);
  if (type.dtype == DType::kBool) return Condition{std::nullopt, loaded, type.strength};
  return Number{loaded, type.dtype, type.strength, -1, {}, tag};
}

/// Nothing has assigned the local.
void LoopReader::forget_number(int local, DType dtype) {
  const bool whole = is_whole_type(dtype);
  const int slot = whole ? 2 * whole_slot(local) + 1 : number_slot(local);
  builder_->store(whole ? memory_.wholes : memory_.tags, builder_->constant(slot),
                  builder_->index(builder_->constant(0), DType::kInt64));
}

/// A number of the frame: one that the loop assigns lies in memory, in the type that the local has there.
Value LoopReader::given_number(int local, PyObject* object, LocalFact fact) {
  const bool is_int = PyLong_CheckExact(object), is_bool = PyBool_Check(object) != 0;
  int overflow = 0;
  const int64_t whole = is_int ? PyLong_AsLongLongAndOverflow(object, &overflow) : 0;
  if (overflow != 0 || !lies_within({whole, whole}, -kExact, kExact)) throw Unsupported("a large int");
  NumberType own{DType::kFloat64, Strength::kWeak};
  if (is_int) own.dtype = DType::kInt64;
  if (is_bool) own.dtype = DType::kBool;
  if (PyComplex_CheckExact(object)) own.dtype = DType::kComplex128;
  if (np_.is_scalar(object)) {
    if (!np_.describe(object, fact.dtype, fact.sizes, fact.strides) || !takes(fact.dtype))
      throw Unsupported("a NumPy scalar that is no number");
    own = {fact.dtype, Strength::kStrong};
  }
  fact.kind = is_int                              ? LocalFact::Kind::kInt
              : is_bool                           ? LocalFact::Kind::kBool
              : own.strength == Strength::kStrong ? LocalFact::Kind::kScalar
              : is_complex(own.dtype)             ? LocalFact::Kind::kComplex
                                                  : LocalFact::Kind::kFloat;
  const auto type = types_.of.find(local);
  if (type != types_.of.end()) {
    const NumberType joint = joined_number(type->second, own);
    if (joint.dtype != type->second.dtype) {
      type->second = joint;
      throw NewType{};
    }
    type->second = joint;
  } else {
    types_.of.emplace(local, own);
  }
  program_->locals.push_back(fact);
  if (is_whole_type(types_.of.at(local).dtype)) {
    program_->given_wholes.emplace_back(local, whole_slot(local));
  } else {
    program_->given.push_back({local, number_slot(local), is_complex(types_.of.at(local).dtype)});
  }
  const bool as_float = own.dtype == DType::kInt64 && types_.of.at(local).dtype == DType::kFloat64;
  memory_.given_tags[local] = own.strength == Strength::kStrong ? NumberTag::kFloat64
                              : as_float                        ? NumberTag::kWhole
                                                                : NumberTag::kFloat;
  return Number{loops::kNoScalar, own.dtype, own.strength};
}

/// A local as the frame has it.
Value LoopReader::given_local(int local) {
  if (given_object(local) == nullptr) throw Unsupported("a local that is not bound");
  const Ref object = seen_value(given_object(local));
  LocalFact fact;
  fact.local = local;
  if (!object) throw Unsupported("a number that tensors decide");
  if (PyLong_CheckExact(object.get()) && !types_.of.contains(local)) {
    int overflow = 0;
    fact.kind = LocalFact::Kind::kWhole;
    fact.value = PyLong_AsLongLongAndOverflow(object.get(), &overflow);
    if (overflow != 0 || !lies_within({fact.value, fact.value}, -kExact, kExact)) throw Unsupported("a large int");
    const LocalFact* const earlier = fact_before(before_, fact);
    const Expr value = term(earlier != nullptr ? earlier->value : fact.value, fact.value,
                            {SizePlace::Kind::kInt, local, 0, 0}, fact.whole);
    program_->locals.push_back(fact);
    return Whole{value, range_of(value)};
  }
  if (PyLong_Check(object.get()) || PyFloat_CheckExact(object.get()) || PyComplex_CheckExact(object.get()) ||
      np_.is_scalar(object.get())) {
    if (PyLong_Check(object.get()) && !PyLong_CheckExact(object.get()) && !PyBool_Check(object.get()))
      throw Unsupported("an int of a class of its own");
    return given_number(local, object.get(), fact);
  }
  if (PyList_CheckExact(object.get())) {  // that is appended to
    fact.kind = LocalFact::Kind::kList;
    program_->locals.push_back(fact);
    lists_.emplace(object.get(), local);
    return object;
  }
  return given_array(object.get(), fact);
}

Expr LoopReader::term(int64_t before, int64_t now, const SizePlace& place, SizeTerm& found) {
  found = sizes_.term(before, now, place);
  while (builder_->size_count() < sizes_.places().size()) builder_->add_size(kVaryingSize);
  return sizes_.expr(found, *builder_);
}

/// The sizes of an array, where some of them have changed.
void LoopReader::find_terms(LocalFact& fact) {
  const LocalFact* const earlier = fact_before(before_, fact);
  if (earlier == nullptr || earlier->sizes == fact.sizes) return;
  if (earlier->sizes.size() != fact.sizes.size() || !describes_dense(fact) || !describes_dense(*earlier))
    throw Unsupported("an array of another layout");
  fact.terms.resize(fact.sizes.size());
  for (size_t d = 0; d < fact.sizes.size(); ++d)
    term(earlier->sizes[d], fact.sizes[d], {SizePlace::Kind::kDimension, fact.local, static_cast<int>(d), 0},
         fact.terms[d]);
}

/// `fact` says which one it is.
GridRef LoopReader::given_array(PyObject* object, LocalFact fact) {
  if (!np_.is_array(object)) throw Unsupported(str_cat("a value of type ", Py_TYPE(object)->tp_name));
  if (!np_.describe(object, fact.dtype, fact.sizes, fact.strides) || !takes(fact.dtype)) {
    throw Unsupported("an array of other elements than numbers, or in another order of bytes");
  }
  if (fact.sizes.empty()) throw Unsupported("an array without dimensions");
  fact.kind = LocalFact::Kind::kArray;
  LoopProgram::Buffer buffer{LoopProgram::Buffer::Kind::kArray, fact.dtype, fact.local, false, 0, 1, std::nullopt};
  View view;
  for (size_t d = 0; d < fact.sizes.size(); ++d) {
    if (fact.sizes[d] == 0) throw Unsupported("an empty array");
    const int64_t reach = (fact.sizes[d] - 1) * fact.strides[d];
    if (reach < 0) buffer.low -= reach;
    buffer.numel += std::abs(reach);
    view.extents.push_back(builder_->constant(fact.sizes[d]));
    view.strides.push_back(builder_->constant(fact.strides[d]));
  }
  find_terms(fact);
  Expr numel = builder_->constant(fact.terms.empty() ? buffer.numel : 1);
  for (size_t d = fact.terms.size(); d-- > 0;) {
    view.extents[d] = sizes_.expr(fact.terms[d], *builder_);
    view.strides[d] = numel;
    numel = builder_->ctx().mul(numel, view.extents[d]);
  }
  if (!fact.terms.empty()) buffer.varying = builder_->program_of(numel);
  const auto [found, is_new] = arrays_.emplace(object, static_cast<int>(program_->buffers.size()));
  if (is_new) {
    program_->buffers.push_back(buffer);
    builder_->add_buffer(str_cat("a", found->second), fact.dtype, numel);
  }
  view.array = fact.array = found->second;
  view.offset = builder_->constant(buffer.low);
  program_->locals.push_back(fact);
  return view_grid(std::move(view));
}

void LoopReader::store_local(int local, Value value) {
  Local& now = locals_[local];
  stored_.insert(local);
  if (note_type(local, value)) {
    if (types_.rebound.contains(local)) throw Unsupported("a local that is an array and a number");
    const auto* whole = std::get_if<Whole>(&value);
    if (whole != nullptr && !lies_within(whole->range, -kExact, kExact)) throw Unsupported("a large int");
    if (whole == nullptr || types_.of.contains(local)) {
      store_number(local, value);
      return;
    }
    if (base_ == 0) {
      const int slot = 2 * whole_slot(local);
      builder_->store(memory_.wholes, builder_->constant(slot), builder_->index(whole->value, DType::kInt64));
      builder_->store(memory_.wholes, builder_->constant(slot + 1), builder_->number(1, DType::kInt64));
    }
    now = {Local::State::kKnown, std::move(value)};
    return;
  }
  const auto* object = std::get_if<Ref>(&value);
  const bool other = object != nullptr || std::holds_alternative<std::shared_ptr<Sequence>>(value);
  if (other && base_ != 0) {
    now = {Local::State::kKnown, value};
    return;
  }
  if (const auto* tuple = std::get_if<std::shared_ptr<Sequence>>(&value)) {
    store_tuple(local, *tuple);
    return;
  }
  const auto* grid = std::get_if<GridRef>(&value);
  if (grid == nullptr) throw Unsupported("an object that a local is given");
  store_array(local, *grid);
}

void LoopReader::store_array(int local, const GridRef& grid) {
  Local& now = locals_[local];
  // `C *= 2` stores the array that it was.
  if (now.state == Local::State::kKnown && std::holds_alternative<GridRef>(now.value) &&
      std::get<GridRef>(now.value) == grid) {
    return;
  }
  if (grid->view && !types_.rebound.contains(local) && now.state != Local::State::kUnknown &&
      given_object(local) != nullptr) {
    const Value before = load_local(local);
    const auto* same = std::get_if<GridRef>(&before);
    if (same != nullptr && (*same)->view == grid->view) return;
  }
  if (base_ != 0) {
    now = {Local::State::kKnown, grid->view ? grid : materialise(grid)};
    return;
  }
  if (types_.rebound.insert(local).second) throw NewType{};
  if (types_.carried.contains(local)) {
    store_carried(local, grid);
    return;
  }
  // What a turn replaces, its other names would see.
  if (grid->view && replaced_.contains(grid->view->array))
    throw Unsupported("another name of an array that is replaced");
  const bool shared = std::any_of(locals_.begin(), locals_.end(), [&](const auto& each) {
    const auto* other = std::get_if<GridRef>(&each.second.value);
    return other != nullptr && each.second.state == Local::State::kKnown && *other == grid;
  });
  const GridRef array = grid->view ? grid : materialise(grid);
  if (shared) {
    lost_.insert(local);  // one object under two names
  } else {
    keep_array(local, *grid, *array->view);
  }
  locals_[local] = {Local::State::kKnown, array};
}

/// The frame gets the array when the loop has ended.
void LoopReader::keep_array(int local, const Grid& made, const View& view) {
  ArrayResult result{local, whole_slot(local), static_cast<int64_t>(program_->arrays.size()) + 1, view.array, {}, {}};
  const LoopProgram::Buffer& buffer = program_->buffers[static_cast<size_t>(view.array)];
  const bool is_view = buffer.kind == LoopProgram::Buffer::Kind::kArray;
  bool known = is_view ? np_.writeable(place_.object(buffer.local)) : made.in_rows || (!made.view && is_in_order(made));
  for (size_t d = 0; d < view.extents.size(); ++d) {
    known = known && builder_->is_known(view.extents[d]) && builder_->is_known(view.strides[d]);
    if (!known) break;
    result.sizes.push_back(builder_->program_of(view.extents[d]));
    result.strides.push_back(builder_->program_of(view.strides[d]));
  }
  if (!known) {
    lost_.insert(local);
    return;
  }
  const int slot = 2 * result.slot;
  builder_->store(memory_.wholes, builder_->constant(slot), builder_->index(view.offset, DType::kInt64));
  const auto statement = static_cast<double>(result.statement);
  builder_->store(memory_.wholes, builder_->constant(slot + 1), builder_->number(statement, DType::kInt64));
  program_->arrays.push_back(std::move(result));
}

/// Of arrays whose size or layout is not told, nobody may ask behind the loop.
void LoopReader::check_lost_arrays() const {
  std::vector<int> behind;
  if (range_.kind != LoopRange::Kind::kWhile) behind.push_back(exit_of_loop(instruction_at(code_, head_)));
  for (const LoopExit& exit : program_->exits) behind.push_back(exit.offset / 2);
  for (const int local : lost_) {
    const bool is_read =
        std::any_of(behind.begin(), behind.end(), [&](int place) { return is_read_behind(code_, place, local); });
    if (place_.frame.is_held() || is_read)
      throw Unsupported("an array of the loop that is used behind it, of another size in each turn");
  }
}

/// A number or bool, into memory.
void LoopReader::store_number(int local, const Value& value) {
  const NumberType own = *number_type(value);
  const auto [found, is_new] = types_.of.emplace(local, own);
  const NumberType joint = joined_number(found->second, own), before = std::exchange(found->second, joint);
  if (joint.dtype != before.dtype) throw NewType{};
  stored_.insert(local);
  locals_[local] = {Local::State::kNumber, {}};
  if (is_whole_type(joint.dtype)) {
    const bool either = joint.strength == Strength::kEither;
    if (either && joint.dtype == DType::kBool && assigned_.contains(local))
      throw Unsupported("a bool of Python's or NumPy's, as it comes");
    ScalarId tag = builder_->number(1, DType::kInt64);
    if (either && joint.dtype == DType::kInt64) tag = tag_in(value, joint.dtype);
    if (tag == loops::kNoScalar) throw Unsupported("an int of Python's or NumPy's, as it comes");
    ScalarId id = loops::kNoScalar;
    if (const auto* condition = std::get_if<Condition>(&value)) {
      id = condition->known ? builder_->number(*condition->known ? 1 : 0, DType::kInt64) : condition->id;
    } else {
      id = as_number(value, joint.dtype).id;
    }
    const int slot = 2 * whole_slot(local);
    builder_->store(memory_.wholes, builder_->constant(slot), id);
    builder_->store(memory_.wholes, builder_->constant(slot + 1), tag);
    return;
  }
  const auto* number = std::get_if<Number>(&value);
  const bool told = number != nullptr && own.dtype == DType::kFloat64 && number->tag != loops::kNoScalar;
  if (own.strength == Strength::kEither && !told) throw Unsupported("a float of Python's or NumPy's, as it comes");
  ScalarId tag = loops::kNoScalar;
  if (told && own.strength == Strength::kEither) {
    // An int that was computed as a float is stored as long as it is exact.
    const ScalarId computed = builder_->index(builder_->constant(kInexactWhole), DType::kInt64);
    const ScalarId whole = builder_->index(builder_->constant(static_cast<int64_t>(NumberTag::kWhole)), DType::kInt64);
    const ScalarId test = builder_->emit(ScalarOp::kEq, DType::kBool, {number->tag, computed});
    const ScalarId size = builder_->emit(ScalarOp::kAbs, DType::kFloat64, {number->id});
    const ScalarId large =
        builder_->emit(ScalarOp::kGe, DType::kBool, {size, builder_->number(kExact, DType::kFloat64)});
    builder_->stop_if(builder_->emit(ScalarOp::kAnd, DType::kBool, {test, large}));
    tag = builder_->emit(ScalarOp::kSelect, DType::kInt64, {test, whole, number->tag});
  } else {
    const NumberTag known =
        is_python_int(value) ? NumberTag::kWhole : tag_of(own.dtype, own.strength == Strength::kStrong);
    tag = builder_->number(static_cast<double>(known), DType::kInt64);
  }
  const Expr slot = builder_->constant(number_slot(local));
  const ScalarId id = as_number(value, joint.dtype).id;
  if (is_complex(joint.dtype)) {
    const DType part = real_dtype(joint.dtype);
    builder_->store(memory_.numbers, slot, builder_->emit(ScalarOp::kReal, part, {id}));
    builder_->store(memory_.numbers, builder_->ctx().add(slot, builder_->constant(1)),
                    builder_->emit(ScalarOp::kImag, part, {id}));
  } else {
    builder_->store(memory_.numbers, slot, id);
  }
  builder_->store(memory_.tags, slot, tag);
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
  if (PyComplex_CheckExact(object)) {
    const DType part = DType::kFloat64, dtype = DType::kComplex128;
    const ScalarId re = builder_->number(PyComplex_RealAsDouble(object), part);
    const ScalarId im = builder_->number(PyComplex_ImagAsDouble(object), part);
    return Number{builder_->emit(ScalarOp::kComplex, dtype, {re, im}), dtype, Strength::kWeak};
  }
  if (PyTuple_CheckExact(object)) {
    auto tuple = std::make_shared<Sequence>();
    for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(object); ++n)
      tuple->items.push_back(constant_of(PyTuple_GET_ITEM(object, n)));
    return tuple;
  }
  if (PySlice_Check(object)) throw Unsupported("a constant slice");
  if (PyBool_Check(object)) return Condition{object == Py_True};
  return Ref::borrow(object);
}

Value LoopReader::load_global(PyObject* name) {
  PyObject* found =
      PyDict_CheckExact(place_.frame.globals()) ? PyDict_GetItemWithError(place_.frame.globals(), name) : nullptr;
  if (found == nullptr && PyErr_Occurred() == nullptr && PyDict_CheckExact(place_.frame.builtins()))
    found = PyDict_GetItemWithError(place_.frame.builtins(), name);
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
    if (text.size() == 1 && text[0] == 'T') return transposed(*grid);
    if (text != "shape") return Method{*grid, {}, text};
    auto shape = std::make_shared<Sequence>();
    for (const Expr extent : (*grid)->extents) shape->items.emplace_back(Whole{extent, range_of(extent)});
    return shape;
  }
  if (const auto* number = std::get_if<Number>(&owner)) return attribute_of_number(*number, text);
  const auto* object = std::get_if<Ref>(&owner);
  if (object != nullptr && np_.is_ufunc(object->get())) return Method{nullptr, *object, text};
  if (object != nullptr && lists_.contains(object->get()) && text == "append") return Method{nullptr, *object, text};
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

/// Of the last arguments, or null.
Value LoopReader::call_with_keywords(const Value& callable, std::vector<Value> arguments, PyObject* names) {
  if (is_reduction(callable)) return reduction(callable, std::move(arguments), names);
  if (names == nullptr) return call(callable, std::move(arguments));
  // An axis is the one keyword that other functions have here.
  const bool axis = PyTuple_GET_SIZE(names) == 1 &&
                    PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "axis") == 0 && arguments.size() == 2;
  const auto* whole = axis ? std::get_if<Whole>(&arguments[1]) : nullptr;
  const auto* object = std::get_if<Ref>(&callable);
  if (whole == nullptr || !whole->value.is_const() || object == nullptr) throw Unsupported("a call with keywords");
  return along_axis(object->get(), arguments[0], whole->value.const_value());
}

/// A step whose sign varies: the kernel stops where it is none forwards.
Whole LoopReader::forwards(const Whole& step) {
  if (step.value.is_const()) throw Unsupported("a range that does not move");
  constexpr int64_t kLongest = int64_t{1} << 32;
  const Expr before = builder_->ctx().sub(step.value, builder_->constant(1));
  const Number number{builder_->index(before, DType::kInt64), DType::kInt64, Strength::kWeak};
  const Whole bounded = bounded_int(number, builder_->constant(kLongest), false);
  return {builder_->ctx().add(bounded.value, builder_->constant(1)), {1, kLongest}};
}

Value LoopReader::call(const Value& callable, std::vector<Value> arguments) {
  if (const auto* bound = std::get_if<Method>(&callable)) {
    if (!bound->ufunc || !lists_.contains(bound->ufunc.get())) return method(*bound, arguments);
    if (arguments.size() != 1) throw Unsupported("an append of other arguments");
    append(bound->ufunc.get(), arguments[0]);
    return Ref::borrow(Py_None);
  }
  const auto* object = std::get_if<Ref>(&callable);
  if (object == nullptr) throw Unsupported("a call");
  if (object->get() == reinterpret_cast<PyObject*>(&PyRange_Type)) {
    const auto whole = [&](size_t n) {
      if (n >= arguments.size()) throw Unsupported("a range of other arguments");
      return as_whole(arguments[n]);
    };
    if (arguments.empty() || arguments.size() > 3) throw Unsupported("a range of other arguments");
    const Whole one{builder_->constant(1), {1, 1}};
    if (arguments.size() == 1) return Range{{builder_->constant(0), {0, 0}}, whole(0), one};
    Range range{whole(0), whole(1), one};
    if (arguments.size() == 3) {
      range.step = whole(2);
      if (range.step.range.lo <= 0 && range.step.range.hi >= 0) range.step = forwards(range.step);
    }
    return range;
  }
  if (object->get() == reinterpret_cast<PyObject*>(&PyEnum_Type) ||
      object->get() == reinterpret_cast<PyObject*>(&PyZip_Type))
    return iteration_of(object->get(), arguments);
  if (object->get() == reinterpret_cast<PyObject*>(&PyComplex_Type)) return python_complex(arguments);
  if (PyType_Check(object->get()) && arguments.size() == 1) return python_type(object->get(), arguments[0]);
  if (!PyFunction_Check(object->get())) return function(object->get(), arguments);
  program_->functions.emplace_back(*object, Ref::borrow(PyFunction_GET_CODE(object->get())));
  return read_call(object->get(), std::move(arguments));
}

}  // namespace tatara::capture::native
