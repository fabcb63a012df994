#include "capture/entries/reconstruction.h"

#include <array>
#include <cmath>
#include <cstring>
#include <string_view>
#include <unordered_set>

#include "capture/entries/guards.h"
#include "capture/host/numpy_api.h"

namespace tatara::capture {
namespace {

constexpr int kInProgress = -2;

bool is_rebuildable_iterator(PyObject* o) {
  static const std::unordered_set<std::string_view> others = {"longrange_iterator", "map", "filter"};
  return is_builtin_iterator(o) && !others.contains(Py_TYPE(o)->tp_name);
}

}  // namespace

std::vector<int> Reconstruction::slots() const {
  std::vector<int> result;
  for (const Step& step : steps_) {
    if (step.kind == Kind::kTensor || step.kind == Kind::kNumber) result.push_back(step.index);
  }
  return result;
}

void Reconstruction::hold(const std::vector<PyObject*>& objects, std::vector<Ref>& held) const {
  for (const Step& step : steps_) {
    if (step.kind == Kind::kObject) held.push_back(Ref::borrow(objects[static_cast<size_t>(step.index)]));
  }
  for (const SymbolSource& source : sources_) {
    if (source.slot < 0) held.push_back(Ref::borrow(objects[static_cast<size_t>(source.object)]));
  }
}

int ReconstructionBuilder::fail(std::string why) {
  if (why_.empty()) why_ = std::move(why);
  return -1;
}

int ReconstructionBuilder::emit(Reconstruction::Step step) {
  target_.steps_.push_back(std::move(step));
  return static_cast<int>(target_.steps_.size()) - 1;
}

bool ReconstructionBuilder::want(PyObject* object) {
  const int index = add(object);
  if (index < 0) return false;
  target_.wanted_.push_back(index);
  return true;
}

/// A NaN equals itself alone, which keys of dicts and searches tell: it is the call's own, or made anew as eager makes it.
int ReconstructionBuilder::add_not_a_number(PyObject* object) {
  if (const int index = world_.object_index(object); index >= 0) {
    return emit({Reconstruction::Kind::kObject, index, {}, {}, {}, 0, {}});
  }
  if (world_.origin(object) != Origin::kBorn) {
    return emit({Reconstruction::Kind::kConst, -1, Ref::borrow(object), {}, {}, 0, {}});
  }
  const auto [found, added] = memo_.try_emplace(object, -1);
  if (added) {
    alive_.push_back(Ref::borrow(object));
    found->second = emit({Reconstruction::Kind::kNotANumber, -1, Ref::borrow(object), {}, {}, 0, {}});
  }
  return found->second;
}

int ReconstructionBuilder::add(PyObject* object) {
  if (object == nullptr) return emit({});
  if (const Expr e = world_.symbols.made_of(object); e.valid()) return add_symbolic(e);
  if (const int slot = world_.symbols.derived_slot(object); slot >= 0) {
    return emit({Reconstruction::Kind::kNumber, slot, {}, {}, {}, 0, {}});
  }
  if (const int index = world_.symbols.float_object(object); index >= 0) {
    return emit({Reconstruction::Kind::kObject, index, {}, {}, {}, 0, {}});
  }
  const bool traced = api_.is_numpy(object) && (world_.slot(object) >= 0 || world_.object_index(object) >= 0);
  if (is_not_a_number(object) && !traced) return add_not_a_number(object);
  // Eager makes the sizes of a tensor anew whenever they are asked for: `is` tells.
  const bool own_sizes = is_torch_size(Py_TYPE(object)) && world_.origin(object) == Origin::kBorn;
  if (is_atom(object, api_) && !traced && !own_sizes)
    return emit({Reconstruction::Kind::kConst, -1, Ref::borrow(object), {}, {}, 0, {}});
  if (const auto found = memo_.find(object); found != memo_.end()) {
    return found->second == kInProgress ? fail("an object that contains itself") : found->second;
  }
  memo_[object] = kInProgress;
  alive_.push_back(Ref::borrow(object));
  const int index = add_new(object);
  memo_[object] = index;
  return index;
}

/// What something holds that was made in the trace.
int ReconstructionBuilder::add_held(PyObject* object) {
  if (Py_REFCNT(object) == 1 && !is_atom(object, api_)) world_.adopt(object);
  return add(object);
}

int ReconstructionBuilder::add_symbolic(Expr e) {
  const TraceSymbols& symbols = world_.symbols;
  Reconstruction::Step step;
  step.kind = Reconstruction::Kind::kSymbolic;
  step.program = symbols.program(e);
  target_.sources_ = symbols.sources();
  return emit(std::move(step));
}

bool ReconstructionBuilder::parts_of_dict(PyObject* dict, Reconstruction::Step& step) {
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(dict, &at, &key, &value) != 0) {
    const int part = add_held(value);
    const int made = is_atom(key, api_) ? 0 : add_held(key);
    if (part < 0 || made < 0) return false;
    step.keys.push_back(is_atom(key, api_) ? Ref::borrow(key) : Ref());
    step.made_keys.push_back(made);
    step.parts.push_back(part);
  }
  return true;
}

namespace {

Ref builtin(const char* name) { return Ref::borrow(PyDict_GetItemString(PyEval_GetBuiltins(), name)); }

}  // namespace

int ReconstructionBuilder::add_all(Reconstruction::Step step, std::initializer_list<PyObject*> parts) {
  for (PyObject* each : parts) {
    const int part = add(each);
    if (part < 0) return -1;
    step.parts.push_back(part);
  }
  return emit(std::move(step));
}

bool ReconstructionBuilder::holds_scalars(PyObject* tuple) const {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    PyObject* const item = PyTuple_GET_ITEM(tuple, i);
    if (api_.is_numpy(item) && world_.slot(item) >= 0) return true;
  }
  return false;
}

int ReconstructionBuilder::add_new(PyObject* o) {
  using Kind = Reconstruction::Kind;
  if (const int index = world_.object_index(o); index >= 0) return emit({Kind::kObject, index, {}, {}, {}, 0, {}});
  if (const int slot = world_.slot(o); slot >= 0) return emit({Kind::kTensor, slot, {}, {}, {}, 0, {}});
  if (PyDict_CheckExact(o)) {
    if (PyObject* owner = world_.instance_of(o)) return add_all({Kind::kInstanceDict, -1, {}, {}, {}, 0, {}}, {owner});
  }
  switch (world_.origin(o)) {
    case Origin::kBorn: return add_born(o);
    case Origin::kFound:
    case Origin::kValue:
      // C code puts NumPy's scalars into a tuple, which alone would be a plain value.
      if (PyTuple_CheckExact(o) && holds_scalars(o)) return add_born(o);
      return emit({Kind::kConst, -1, Ref::borrow(o), {}, {}, 0, {}});
    case Origin::kTaped:
    case Origin::kGuarded:
    case Origin::kUnknown: break;
  }
  return fail("an object of type " + type_name(o) + " whose origin is not known");
}

namespace {

/// As `from __future__ import annotations` makes them.
bool has_text_annotations(const PyFunctionObject* f) {
  PyObject* all = f->func_annotations;
  if (all == nullptr || !PyTuple_CheckExact(all)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(all); ++i) {
    if (!PyUnicode_CheckExact(PyTuple_GET_ITEM(all, i))) return false;
  }
  return true;
}

}  // namespace

int ReconstructionBuilder::add_born(PyObject* o) {
  using Kind = Reconstruction::Kind;
  const Ref its_type = Ref::borrow(reinterpret_cast<PyObject*>(Py_TYPE(o)));
  if (PyFunction_Check(o)) {
    auto* f = reinterpret_cast<PyFunctionObject*>(o);
    const auto none = [](PyObject* p) { return p != nullptr ? p : Py_None; };
    // What functools.wraps() and the like have changed. Without the program's doing there are no such dictionaries.
    const auto filled = [&](PyObject* dict) {
      if (dict == nullptr || !PyDict_Check(dict) || PyDict_GET_SIZE(dict) == 0) return Py_None;
      if (world_.origin(dict) == Origin::kUnknown && Py_REFCNT(dict) == 1) world_.adopt(dict);
      return dict;
    };
    // Those that nobody has asked for are a tuple yet.
    PyObject* annotations = filled(has_text_annotations(f) ? PyFunction_GetAnnotations(o) : f->func_annotations);
    if (annotations != Py_None && world_.origin(annotations) == Origin::kUnknown) annotations = Py_None;
    return add_all(
        {Kind::kFunction, -1, Ref::borrow(f->func_code), {}, {}, 0, {}},
        {f->func_globals, none(f->func_defaults), none(f->func_kwdefaults), none(f->func_closure), f->func_name,
         f->func_qualname, none(f->func_doc), none(f->func_module), filled(f->func_dict), annotations});
  }
  if (Py_IS_TYPE(o, &_PyWeakref_RefType) && reinterpret_cast<PyWeakReference*>(o)->wr_callback == nullptr) {
    PyObject* const object = weak_object(o);
    const int part = object != Py_None ? add(object) : fail("a weak reference whose object has ended");
    if (part < 0) return -1;
    const int args =
        emit({Kind::kTuple, -1, Ref::borrow(reinterpret_cast<PyObject*>(&PyTuple_Type)), {part}, {}, 0, {}});
    return emit({Kind::kReduce, -1, its_type, {args}, {}, 0, {}});
  }
  // Its methods have cells of this call.
  PyObject* type = PyType_Check(o) ? o : its_type.get();
  if (world_.origin(type) == Origin::kBorn) return fail("a class made in the call");
  if (PyObject* self = bound_to(o); self != nullptr) {
    const Ref name = attr_or_null(o, "__name__");
    if (!name) return fail("a method without a name");
    const Ref args = Ref::steal(PyTuple_Pack(2, self, name.get()));
    alive_.push_back(args);
    const int part = add_arguments(args.get());
    return part < 0 ? -1 : emit({Kind::kReduce, -1, builtin("getattr"), {part}, {}, 0, {}});
  }
  if (PyTuple_Check(o)) {
    Reconstruction::Step step{Kind::kTuple, -1, its_type, {}, {}, 0, {}};
    const Ref dict = PyTuple_CheckExact(o) ? Ref() : attr_or_null(o, "__dict__");
    return add_parts(std::move(step), o, dict && PyDict_Check(dict.get()) ? dict.get() : nullptr);
  }
  if (const NumpyApi* np = api_.numpy; np != nullptr && np->is_array(o)) {
    // Made of constants alone: a copy of what it is now, if nothing else has its memory.
    if (!np->fresh_memory(o)) return fail("a view of a constant array");
    const Ref kept = Ref::steal(PyObject_CallMethod(o, "copy", "s", "K"));
    const Ref copies = kept ? attr_or_null(kept.get(), "copy") : Ref();
    const Ref args = Ref::steal(Py_BuildValue("(s)", "K"));
    const int part = copies ? add_arguments(args.get()) : -1;
    alive_.push_back(args);
    return part < 0 ? fail("a constant array") : emit({Kind::kReduce, -1, copies, {part}, {}, 0, {}});
  }
  if (PyList_CheckExact(o)) return add_parts({Kind::kList, -1, {}, {}, {}, 0, {}}, o);
  if (PyAnySet_CheckExact(o)) {
    const Ref items = Ref::steal(PySequence_List(o));
    constexpr Py_ssize_t kSetAndList = 2;
    for (Py_ssize_t i = 0; items && i < PyList_GET_SIZE(items.get()); ++i) {
      PyObject* item = PyList_GET_ITEM(items.get(), i);
      if (Py_REFCNT(item) == kSetAndList) world_.adopt(item);
    }
    return items ? add_parts({Kind::kSet, -1, its_type, {}, {}, 0, {}}, items.get()) : fail("a set");
  }
  if (PySlice_Check(o)) {
    const auto* s = reinterpret_cast<PySliceObject*>(o);
    return add_all({Kind::kSlice, -1, {}, {}, {}, 0, {}}, {s->start, s->stop, s->step});
  }
  if (PyMethod_Check(o)) {
    return add_all({Kind::kMethod, -1, {}, {}, {}, 0, {}}, {PyMethod_GET_FUNCTION(o), PyMethod_GET_SELF(o)});
  }
  if (PyCell_Check(o)) return add_all({Kind::kCell, -1, {}, {}, {}, 0, {}}, {PyCell_GET(o)});
  if (PyDict_Check(o) || is_plain_instance(o)) return add_born_mapping(o);
  if (is_rebuildable_iterator(o)) return add_born_iterator(o);
  if (const std::vector<InstanceSlot> slots = instance_slots(o); !slots.empty()) {
    Reconstruction::Step step{Kind::kInstance, -1, its_type, {}, {}, 0, {}};
    for (const InstanceSlot& slot : slots) {
      const int part = slot.of(o) != nullptr ? add_held(slot.of(o)) : emit({});
      if (part < 0) return -1;
      step.parts.push_back(part);
    }
    return emit(std::move(step));
  }
  return fail("an object of type " + type_name(o));
}

/// The items of a tuple or list, then what `dict` holds.
int ReconstructionBuilder::add_parts(Reconstruction::Step step, PyObject* sequence, PyObject* dict) {
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence); ++i) {
    const int part = add_held(PySequence_Fast_GET_ITEM(sequence, i));
    if (part < 0) return -1;
    step.parts.push_back(part);
  }
  return dict == nullptr || parts_of_dict(dict, step) ? emit(std::move(step)) : -1;
}

int ReconstructionBuilder::add_born_mapping(PyObject* o) {
  using Kind = Reconstruction::Kind;
  const Ref type = Ref::borrow(reinterpret_cast<PyObject*>(Py_TYPE(o)));
  if (PyDict_CheckExact(o)) {
    Reconstruction::Step step{Kind::kDict, -1, {}, {}, {}, 0, {}};
    return parts_of_dict(o, step) ? emit(std::move(step)) : -1;
  }
  if (std::strcmp(Py_TYPE(o)->tp_name, "collections.defaultdict") == 0) {
    const Ref factory = attr_or_null(o, "default_factory");
    Reconstruction::Step items{Kind::kDict, -1, {}, {}, {}, 0, {}};
    const int first = add(factory ? factory.get() : Py_None);
    if (first < 0 || !parts_of_dict(o, items)) return -1;
    const int second = emit(std::move(items));
    const int args =
        emit({Kind::kTuple, -1, Ref::borrow(reinterpret_cast<PyObject*>(&PyTuple_Type)), {first, second}, {}, 0, {}});
    return emit({Kind::kReduce, -1, type, {args}, {}, 0, {}});
  }
  if (PyDict_Check(o) && std::strstr(Py_TYPE(o)->tp_name, "defaultdict") != nullptr) return fail("a defaultdict");
  Reconstruction::Step step{Kind::kInstance, -1, type, {}, {}, 0, {}};
  if (PyDict_Check(o)) {
    if (!parts_of_dict(o, step)) return -1;
    step.base_count = static_cast<int>(step.parts.size());
  }
  const Ref dict = attr_or_null(o, "__dict__");
  if (dict && !parts_of_dict(dict.get(), step)) return -1;
  return emit(std::move(step));
}

/// The arguments that a __reduce__ has made: the tuple is new, and so is a list that nobody else holds.
int ReconstructionBuilder::add_arguments(PyObject* args) {
  Reconstruction::Step step{
      Reconstruction::Kind::kTuple, -1, Ref::borrow(reinterpret_cast<PyObject*>(&PyTuple_Type)), {}, {}, 0, {}};
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) {
    PyObject* item = PyTuple_GET_ITEM(args, i);
    const bool made = PyList_CheckExact(item) && Py_REFCNT(item) == 1;
    const int part = made ? add_parts({Reconstruction::Kind::kList, -1, {}, {}, {}, 0, {}}, item) : add(item);
    if (part < 0) return -1;
    step.parts.push_back(part);
  }
  return emit(std::move(step));
}

int ReconstructionBuilder::add_dict_iterator(PyObject* o, const IteratorState& state) {
  const Ref left = Ref::steal(PyLong_FromLongLong(state.position));
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(o));
  const Ref args = Ref::steal(PyTuple_Pack(3, state.parts.front().get(), type, left.get()));
  alive_.push_back(args);
  const int part = add_arguments(args.get());
  return part < 0 ? -1
                  : emit({Reconstruction::Kind::kReduce, -1, Ref::borrow(dict_iterator_maker()), {part}, {}, 0, {}});
}

int ReconstructionBuilder::add_born_iterator(PyObject* o) {
  IteratorState state;
  if (is_dict_iterator(o) && read_state(o, state) && !state.parts.empty()) return add_dict_iterator(o, state);
  const Ref reduced = Ref::steal(PyObject_CallMethod(o, "__reduce__", nullptr));
  if (!reduced || !PyTuple_Check(reduced.get()) || PyTuple_GET_SIZE(reduced.get()) < 2) {
    forget_error();
    return fail("an iterator that cannot be copied");
  }
  alive_.push_back(reduced);
  Reconstruction::Step step{
      Reconstruction::Kind::kReduce, -1, Ref::borrow(PyTuple_GET_ITEM(reduced.get(), 0)), {}, {}, 0, {}};
  for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(reduced.get()) && i < 3; ++i) {
    PyObject* item = PyTuple_GET_ITEM(reduced.get(), i);
    if (i == 2 && item == Py_None) break;  // no state to set (3.12's range iterators)
    const int part = i == 1 && PyTuple_CheckExact(item) ? add_arguments(item) : add(item);
    if (part < 0) return -1;
    step.parts.push_back(part);
  }
  return emit(std::move(step));
}

}  // namespace tatara::capture
