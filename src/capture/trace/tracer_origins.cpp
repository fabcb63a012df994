// Where the objects that a trace meets come from. What the trace made is made again in each call; what is older must be at a
// place that the guards watch, and what code in C reads of it is watched as well. Of all else neither the identity nor the
// contents may be taken for the same in the next call: the graph breaks where the program gets it.
#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "capture/host/known_calls.h"
#include "capture/host/natures.h"
#include "capture/trace/iterator_tracing.h"
#include "capture/trace/number_tracing.h"
#include "capture/trace/origin_tracing.h"
#include "capture/trace/read_tracing.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/write_tracing.h"

namespace tatara::capture {
namespace {

/// A class in C, which nobody can change.
bool is_fixed_class(PyObject* o) {
  return PyType_Check(o) && !is_python_made(reinterpret_cast<const PyTypeObject*>(o));
}

/// Where sys.modules has this module; null: nowhere.
Ref key_of_module(PyObject* modules, PyObject* name, PyObject* module) {
  const Ref own = attr_or_null(module, "__name__");
  const std::string text = text_of(name);
  const Ref top = Ref::steal(PyUnicode_FromString(text.substr(0, text.find('.')).c_str()));
  for (PyObject* key : {name, top.get(), own.get()}) {
    if (key == nullptr || !PyUnicode_Check(key)) continue;
    PyObject* found = PyDict_GetItemWithError(modules, key);
    if (found == nullptr) forget_error();
    if (found == module) return Ref::borrow(key);
  }
  return {};
}

}  // namespace

void OriginTracing::note_result(PyObject* object) {
  // Nobody else holds it: it was made by the call just now.
  if (object != nullptr && tracing() && Py_REFCNT(object) == 1) adopt(object);
}

Origin OriginTracing::origin(PyObject* o) {
  Trace& t = *trace_;
  if (PyCode_Check(o) || is_symbolic_number(o) || is_fixed_class(o)) return Origin::kValue;
  if (born(o)) return Origin::kBorn;
  if (t.tape.find(o) >= 0) return Origin::kTaped;
  if (source_of(o) >= 0) return Origin::kGuarded;
  if (t.object_guards.seen_objects().contains(o)) return Origin::kFound;
  if (is_unchanging(o, api_)) return Origin::kValue;
  if (PyDict_CheckExact(o) && instance_of(o) != nullptr) return Origin::kGuarded;
  return Origin::kUnknown;
}

void OriginTracing::guards_more(Trace& trace, std::vector<PyObject*> objects) {
  const size_t before = trace.objects.size();
  trace.objects = std::move(objects);
  for (size_t i = before; i < trace.objects.size(); ++i) {
    PyObject* object = trace.objects[i];
    trace.alive.push_back(Ref::borrow(object));
    if (!PyFloat_CheckExact(object)) trace.object_index.emplace(object, static_cast<int>(i));
  }
  own_.instance_dicts.clear();
  guards_objects(trace);
}

void OriginTracing::found_in_place(Trace& trace, std::vector<PyObject*> objects, const ValueGuard& guard) {
  const size_t before = trace.objects.size();
  trace.objects = std::move(objects);
  for (size_t i = before; i < trace.objects.size(); ++i) {
    PyObject* object = trace.objects[i];
    trace.alive.push_back(Ref::borrow(object));
    if (PyLong_CheckExact(object) || PyFloat_CheckExact(object)) continue;
    if (trace.object_index.emplace(object, static_cast<int>(i)).second) own_.in_places.insert(object);
  }
  for (const size_t i : guard.by_identity) own_.by_identity.insert(trace.objects[i]);
  for (const int i : guard.found_again()) own_.met.insert(trace.objects[static_cast<size_t>(i)]);
  own_.instance_dicts.clear();
}

/// Its contents are part of the guard on the roots. Others among the roots are guarded by identity.
bool OriginTracing::contents_guarded(PyObject* object) const {
  return trace_->index_of(object) >= 0 && !own_.by_identity.contains(object);
}

int OriginTracing::source_of(PyObject* object) {
  const int index = trace_->index_of(object);
  if (index >= 0) own_.met.insert(object);
  return index;
}

bool OriginTracing::contents_watched(PyObject* object) {
  if (contents_guarded(object)) {
    own_.read.insert(object);
    return true;
  }
  PyObject* owner = PyDict_CheckExact(object) ? instance_of(object) : nullptr;
  return owner != nullptr && contents_guarded(owner);
}

/// Whether calls on the tape have the object among their operands, as it is.
bool OriginTracing::tape_names(PyObject* object) const {
  bool found = false;
  const auto look = [&](PyObject* o) {
    found = found || o == object || bound_to(o) == object;
    return Ref::borrow(o);
  };
  for (const TapeNode& node : trace_->tape.nodes()) {
    look(node.func.get());
    map_structure(node.args.get(), look);
    if (node.kwargs) map_structure(node.kwargs.get(), look);
  }
  return found;
}

void OriginTracing::forget_unread(const Tape* tape) {
  Trace& t = *trace_;
  std::unordered_set<int> inputs;
  if (tape != nullptr) {
    for (const TapeSlot& slot : tape->slots()) inputs.insert(slot.guard_index);
  }
  for (const auto& [left, right] : own_.compared) own_.met.insert({left, right});
  const auto used = [&](int index, PyObject* object) {
    return inputs.contains(index) || own_.met.contains(object) || own_.read.contains(object) ||
           own_.pinned.contains(object) || t.tape.find(object) >= 0 || t.object_guards.seen_objects().contains(object);
  };
  const ValueGuard::UnreadQuestions questions{
      [this](PyObject* container) { return own_.read.contains(container) || own_.pinned.contains(container); }, used,
      // A generator that was in use before a graph break, say, and is not any more.
      [&](int index, PyObject* object) {
        return is_numpy_generator(object) && !used(index, object) && !own_.asked.contains(object) &&
               !tape_names(object);
      }};
  const std::vector<bool> forgotten = t.guard.forget_unread(t.objects, t.symbols.sources(), questions);
  for (size_t i = 0; i < forgotten.size(); ++i) {
    if (!forgotten[i]) continue;
    if (t.index_of(t.objects[i]) == static_cast<int>(i)) t.object_index.erase(t.objects[i]);
    own_.by_identity.erase(t.objects[i]);
    t.objects[i] = nullptr;
  }
}

/// Older, and what the next call finds in its place is this very object.
bool OriginTracing::is_same_in_each_call(PyObject* object) {
  note_identity(object);
  return !born(object) && (own_.by_identity.contains(object) ||
                           (trace_->object_guards.seen_objects().contains(object) && !contents_guarded(object)));
}

/// A guard watches the place at which this older object is.
void OriginTracing::find(PyObject* object) {
  Trace& t = *trace_;
  if (object == nullptr || born(object) || t.object_guards.seen_objects().contains(object)) return;
  t.object_guards.found(object);
  t.alive.push_back(Ref::borrow(object));
}

/// What is in something that is the same in each call, and never holds anything else.
void OriginTracing::find_parts(PyObject* holder) {
  if (!is_same_in_each_call(holder)) return;
  for (PyObject* part : referents(holder)) find(part);
}

/// Something older keeps what the trace has made: from now on it is older itself, and so is what it holds.
void OriginTracing::outlives(PyObject* object) {
  std::vector<PyObject*> open{object};
  while (!open.empty()) {
    PyObject* o = open.back();
    open.pop_back();
    const bool made = trace_->born.erase(o) + trace_->closable.erase(o) != 0;
    if (!is_atom(o, api_)) find(o);
    if (!made) continue;
    for (PyObject* part : referents(o)) open.push_back(part);
  }
}

/// Code in C has filled it: what it alone holds now was made for it.
void OriginTracing::adopt_parts(PyObject* container) {
  for (PyObject* part : referents(container)) adopt_part(part);
}

/// A call has added to it. By append(): the item, and the one before, which that call's own operands held.
void OriginTracing::adopt_added(PyObject* container, std::string_view method) {
  if (!PyList_CheckExact(container) || method != "append") return adopt_parts(container);
  const auto parts = std::span(PySequence_Fast_ITEMS(container), static_cast<size_t>(PyList_GET_SIZE(container)));
  for (PyObject* part : parts.last(std::min<size_t>(parts.size(), 2))) adopt_part(part);
}

/// Code in C has made this and given it away: nobody else holds it. The same holds of what it alone holds.
void OriginTracing::adopt(PyObject* made) {
  std::vector<PyObject*> open{made};
  while (!open.empty()) {
    PyObject* o = open.back();
    open.pop_back();
    if (api_.is_tensor(o) || PyCode_Check(o) || origin(o) == Origin::kFound) continue;
    if (is_atom(o, api_) && (Py_TYPE(o)->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0) continue;
    mark_born(o);
    for (PyObject* part : referents(o)) {
      if (Py_REFCNT(part) == 1 && !born(part)) open.push_back(part);
    }
  }
}

int Tracer::obtained(Frame&, Obtained how, PyObject* owner, PyObject* key, PyObject* value) {
  if (!tracing()) return 0;
  Trace& t = *trace_;
  if (how == Obtained::kResult && Py_REFCNT(value) <= 1 && is_not_a_number(value)) context_.mark_born(value);
  if (how == Obtained::kException && !t.start.exception)
    t.object_guards.nothing_handled();  // what is would be its context
  if (how == Obtained::kException && (t.object_guards.seen_objects().contains(value) || t.index_of(value) >= 0)) {
    // It gets a traceback by that.
    return graph_break("an exception that existed before the trace (" + type_name(value) + ") is raised") ? 0 : -1;
  }
  if (how == Obtained::kAttribute && key == nullptr) {  // `with`
    for (const char* name : {"__enter__", "__exit__", "__aenter__", "__aexit__"}) {
      reads().watch_lookup(owner, Ref::steal(PyUnicode_InternFromString(name)).get());
    }
  }
  if (origins().origin(value) != Origin::kUnknown) return 0;
  if (how == Obtained::kException || origins().is_of_the_call(value) ||
      (how == Obtained::kAttribute && PyFrame_Check(owner) && born(owner) && PyDict_Check(value))) {
    mark_born(value);
    return 0;
  }
  // Nobody else holds it, or nobody but what was made in the trace.
  const bool inside = owner != nullptr && born(owner) && nature_of(owner, api_) != Nature::kState;
  if (Py_REFCNT(value) <= (inside ? 2 : 1) && !api_.is_tensor(value)) {
    origins().adopt(value);
    return 0;
  }
  if (inside && how == Obtained::kItem && PyTuple_CheckExact(value) && t.made_since(value)) {
    mark_born(value);  // as in watch_function
    return 0;
  }
  if ((PyWeakref_CheckRef(value) && origins().find_weak(value)) || origins().find_by_name(value)) return 0;
  if (origins().find_mro(value)) return 0;
  if (how == Obtained::kModule || PyModule_Check(value)) {
    PyObject* modules = PyImport_GetModuleDict();
    const Ref place = key_of_module(modules, how == Obtained::kModule ? key : nullptr, value);
    if (place) t.object_guards.dict_key(modules, place.get());
    origins().find(value);
    return 0;
  }
  if (how == Obtained::kAttribute && key != nullptr && origins().is_same_in_each_call(owner)) {
    // Code in C has looked it up: guards look it up again.
    t.object_guards.attribute(owner, key, value);
    return 0;
  }
  if (how == Obtained::kItem && key == nullptr && born(owner) && !writes().touch(owner)) return -1;
  if (is_enum_member(value) && origins().find_member(value)) return 0;  // guarded by value, where it was found
  const std::string from = owner != nullptr ? " of an object of type " + type_name(owner) : std::string();
  return graph_break("an object of type " + type_name(value) + from + ", of which it is not known where it comes from")
             ? 0
             : -1;
}

/// A frame that the trace runs, or a traceback: these are of this call, where they were not found in something older.
bool OriginTracing::is_of_the_call(PyObject* o) const {
  if (!PyFrame_Check(o)) return PyTraceBack_Check(o);
  return std::any_of(context_.frames.begin(), context_.frames.end(), [o](const Frame* f) { return f->object() == o; });
}

/// The classes that a class looks an attribute up in, which guards compare for each class that was read from.
bool OriginTracing::find_mro(PyObject* tuple) {
  if (!PyTuple_CheckExact(tuple) || PyTuple_GET_SIZE(tuple) == 0 || !PyType_Check(PyTuple_GET_ITEM(tuple, 0)))
    return false;
  PyObject* const type = PyTuple_GET_ITEM(tuple, 0);
  if (reinterpret_cast<PyTypeObject*>(type)->tp_mro != tuple || !is_same_in_each_call(type)) return false;
  static PyObject* const mro = PyUnicode_InternFromString("__mro__");
  trace_->object_guards.type(type, mro);
  find(tuple);
  return true;
}

/// Of an enum: its class has it under its name or, of flags together, under its value.
bool OriginTracing::find_member(PyObject* member) {
  PyObject* const type = reinterpret_cast<PyObject*>(Py_TYPE(member));
  for (const auto& [place, by] : {std::pair{"_member_map_", "_name_"}, std::pair{"_value2member_map_", "_value_"}}) {
    const Ref members = attr_or_null(type, place), key = attr_or_null(member, by);
    if (!members || !PyDict_CheckExact(members.get()) || !key) continue;
    if (!PyUnicode_CheckExact(key.get()) && !PyLong_CheckExact(key.get())) continue;
    PyObject* const found = PyDict_GetItemWithError(members.get(), key.get());
    if (found == nullptr && PyErr_Occurred() != nullptr) forget_error();
    if (found != member) continue;
    trace_->object_guards.dict_key(members.get(), key.get());
    find(member);
    return true;
  }
  return false;
}

/// A function or class that its own module has under its name.
bool OriginTracing::find_by_name(PyObject* object) {
  if (!PyFunction_Check(object) && !PyType_Check(object)) return false;
  const Ref home = attr_or_null(object, "__module__"), name = attr_or_null(object, "__name__");
  PyObject* modules = PyImport_GetModuleDict();
  PyObject* module = home && PyUnicode_Check(home.get()) ? PyDict_GetItemWithError(modules, home.get()) : nullptr;
  PyObject* names = module != nullptr && PyModule_Check(module) ? PyModule_GetDict(module) : nullptr;
  const bool there = names != nullptr && name && PyDict_GetItemWithError(names, name.get()) == object;
  if (PyErr_Occurred() != nullptr) forget_error();
  if (!there) return false;
  trace_->object_guards.dict_key(names, name.get());
  find(object);
  return true;
}

/// A weak reference that an object had before: of an object that is there in each call, or it is only of this one.
bool OriginTracing::find_weak(PyObject* reference) {
  PyObject* object = weak_object(reference);
  if (object == Py_None || origin(object) == Origin::kUnknown) return false;
  if (is_same_in_each_call(object)) {
    find(reference);
  } else {
    mark_born(reference);
  }
  return true;
}

// ---- Identities ------------------------------------------------------------------------------------------------------

namespace {

/// Of these two can be one in another call.
bool may_be_one(PyObject* a, PyObject* b) { return a != b && Py_TYPE(a) == Py_TYPE(b); }

/// torch's operators that change the layout of a tensor and not its values.
bool changes_layout(std::string_view name) { return known_torch(name).is(kChangesLayout); }

bool is_changeable(PyObject* o) {
  return PyList_Check(o) || PyDict_Check(o) || PyAnySet_Check(o) || PyCell_Check(o) || is_plain_instance(o) ||
         is_slotted_instance(o);
}

}  // namespace

void OriginTracing::pin(PyObject* object) {
  if (object == nullptr) return;
  note_identity(object);
  if (contents_guarded(object)) own_.pinned.insert(object);
}

/// What a dict or set knows by identity.
void OriginTracing::pin_keys(PyObject* table) {
  if (!PyDict_Check(table) && !PyAnySet_Check(table)) return;
  const Ref keys = Ref::steal(PyDict_Check(table) ? PyDict_Keys(table) : PySequence_List(table));
  if (!keys) return forget_error();
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keys.get()); ++i) {
    PyObject* key = PyList_GET_ITEM(keys.get(), i);
    pin(key);
    for (Py_ssize_t k = 0; PyTuple_Check(key) && k < PyTuple_GET_SIZE(key); ++k) pin(PyTuple_GET_ITEM(key, k));
  }
}

PyObject* Tracer::is_op(Frame&, PyObject* left, PyObject* right, bool invert) {
  if (PyObject* done = numbers().is_number(left, right, invert); done != not_handled()) return done;
  if (!tracing() || !may_be_one(left, right) || is_atom(left, api_)) return not_handled();
  for (PyObject* each : {left, right}) origins().note_identity(each);
  if ((origins().contents_guarded(left) || origins().contents_guarded(right)) && !born(left) && !born(right)) {
    if (origins().note_compared(left, right)) {
      // The pairs are looked at when the trace ends: until then no other object may take the place of one of them.
      trace_->alive.push_back(Ref::borrow(left));
      trace_->alive.push_back(Ref::borrow(right));
    }
  }
  return not_handled();
}

/// What the trace changes of older objects, but for the values of tensors.
std::set<PyObject*> OriginTracing::changed_objects(const std::vector<PyObject*>& guarded) {
  Trace& t = *trace_;
  std::set<PyObject*> changed;
  for (const Effect& effect : t.effects) {
    if (effect.kind == Effect::Kind::kSwitch) continue;
    PyObject* target = effect.target.get();
    PyObject* owner = PyDict_CheckExact(target) ? instance_of(target) : nullptr;
    changed.insert(owner != nullptr ? owner : target);
  }
  for (const auto& [iterator, stand_in] : iterators().followed()) changed.insert(iterator);
  std::unordered_set<int> slots;
  for (const TapeNode& node : t.tape.nodes()) {
    if (is_leaf_mark(node) || (node.mutates && changes_layout(node.name)))
      slots.insert(node.outputs.begin(), node.outputs.end());
  }
  for (PyObject* o : guarded) {
    if (!slots.empty() && slots.contains(t.tape.find(o))) changed.insert(o);
  }
  return changed;
}

/// An object that comes with a call may be one that the trace found elsewhere: then it must be that in each call. And where one
/// is changed or compared, two must not become one.
void OriginTracing::note_identities(Identities& identities) {
  Trace& t = *trace_;
  const auto made = [&](PyObject* o) { return born(o) || t.tape.makes(t.tape.find(o)); };
  const auto apart = [&](PyObject* a, PyObject* b) {
    if (made(a) || made(b)) return;
    if (!contents_guarded(a)) std::swap(a, b);
    if (!contents_guarded(a)) return;
    if (contents_guarded(b)) {
      identities.apart.push_back({t.index_of(a), t.index_of(b), {}});
    } else if ((t.object_guards.seen_objects().contains(b) && !t.object_guards.is_gradient(b)) ||
               own_.by_identity.contains(b)) {
      identities.apart.push_back({t.index_of(a), -1, HeldObject(b)});
    }
  };
  std::vector<PyObject*> guarded;
  for (size_t i = 0; i < t.objects.size(); ++i) {
    PyObject* o = t.objects[i];
    if (!contents_guarded(o) || t.index_of(o) != static_cast<int>(i)) continue;
    if (i >= own_.guarded && !own_.in_places.contains(o)) {
      guarded.push_back(o);
    } else if (own_.pinned.contains(o) || t.object_guards.seen_objects().contains(o)) {
      identities.same.push_back({static_cast<int>(i), -1, HeldObject(o)});
    } else if (is_changeable(o) || api_.is_tensor(o) || iterators().is_followed(o)) {
      guarded.push_back(o);
    }
  }
  for (const auto& [left, right] : own_.compared) apart(left, right);
  const std::set<PyObject*> changed = changed_objects(guarded);
  for (PyObject* target : changed) {
    if (contents_guarded(target)) {
      for (const auto* others : {&t.object_guards.seen_objects(), &std::as_const(own_.by_identity)}) {
        for (PyObject* other : *others) {
          if (may_be_one(target, other)) apart(target, other);
        }
      }
    }
    for (PyObject* o : guarded) {
      if (may_be_one(target, o)) apart(target, o);
    }
  }
}

// ---- What code in C reads --------------------------------------------------------------------------------------------

/// The class of an object decides which code runs for it: it must have that class still, and the class its methods.
void ReadTracing::watch_class_of(PyObject* object) {
  Trace& t = *trace_;
  PyTypeObject* type = Py_TYPE(object);
  if (!is_python_made(type) || born(reinterpret_cast<PyObject*>(type))) return;
  static PyObject* const any = PyUnicode_InternFromString("__call__");
  t.object_guards.type(reinterpret_cast<PyObject*>(type), any);
  origins().find(reinterpret_cast<PyObject*>(type));
  if (origins().is_same_in_each_call(object)) t.object_guards.instance(object, false);
}

/// One walk through what code in C may read.
struct ReadTracing::Settling {
  Reading reading = Reading::kItems;
  PyObject* top = nullptr;
  std::unordered_set<PyObject*> seen;
  std::string unseen;         // the type of something whose changes nobody would see
  PyObject* moved = nullptr;  // an iterator that was made in the trace
};

bool ReadTracing::watch_contents(PyObject* object, Reading reading) {
  Settling work{reading, object, {}, {}};
  settle(object, work);
  if (work.moved != nullptr && !writes().touch(work.moved)) return false;  // what reads it moves it on
  return work.unseen.empty() || graph_break("code in C reads an object that may change unseen (" + work.unseen + ")");
}

void ReadTracing::settle(PyObject* o, Settling& work) {
  if (o == nullptr || is_symbolic_number(o) || !work.seen.insert(o).second) return;
  const bool deep = work.reading != Reading::kItems;
  switch (nature_of(o, api_)) {
    case Nature::kValue: return;
    case Nature::kTensor:
      if (work.reading == Reading::kEqual && o != work.top)
        origins().pin(o);  // of parts it is first asked whether they are one
      return;
    case Nature::kIterator:
      if (born(o)) work.moved = o;
      if (!deep || PyGen_Check(o) || PyCoro_CheckExact(o) || PyAsyncGen_CheckExact(o)) return;
      break;
    case Nature::kNamed:
      if (work.reading == Reading::kEqual && is_known_by_identity(o)) origins().pin(o);
      if (deep && is_cached_function(o) && !born(o)) work.unseen = type_name(o);
      return watch_class_of(o);
    case Nature::kObject:
      if (work.reading == Reading::kEqual && is_known_by_identity(o)) origins().pin(o);
      return watch_class_of(o);
    case Nature::kState:
      // A context that was copied in the trace holds what the variables were.
      if (is_context(o) || (!born(o) && !origins().is_of_the_call(o))) work.unseen = type_name(o);
      return;
    case Nature::kContainer:
      watch_class_of(o);
      watch_container(o, work.reading != Reading::kEqual);  // sets are equal in any order
      break;
    case Nature::kHolder:
      watch_class_of(o);
      origins().find_parts(o);
      if (PyObject* mapping = viewed_mapping(o)) return settle(mapping, work);
      if (PyExceptionInstance_Check(o) && !born(o)) watch_exception(o);
      break;
  }
  if (!deep) return;
  for (PyObject* part : referents(o)) settle(part, work);
}

/// What an exception says: its arguments, which may be others.
void ReadTracing::watch_exception(PyObject* error) {
  static PyObject* const name = PyUnicode_InternFromString("args");
  const Ref args = Ref::steal(PyObject_GetAttr(error, name));
  if (!args) return forget_error();
  trace_->object_guards.attribute(error, name, args.get());
}

// ---- Frames that code in C enters ------------------------------------------------------------------------------------

/// What the function of a frame comes with: names, defaults, cells.
void OriginTracing::find_surroundings(const Frame& f, bool root) {
  find(f.globals());
  find(f.builtins());
  PyObject* function = f.function();
  if (function == nullptr || !PyFunction_Check(function) || born(function)) return;
  const bool given = contents_guarded(function);
  for (PyObject* part :
       {PyFunction_GET_DEFAULTS(function), PyFunction_GET_KW_DEFAULTS(function), PyFunction_GET_CLOSURE(function)}) {
    if (part == nullptr || ((root || given) && contents_guarded(part))) continue;
    find(part);
    for (PyObject* each : referents(part)) {
      if (!(root || given) || !contents_guarded(each)) find(each);
    }
  }
}

/// What comes with a function of the program's, and with a call of it.
bool ReadTracing::watch_function(Frame& f) {
  Trace& t = *trace_;
  PyObject* function = f.function();
  if (f.resumed || f.throwing) return true;
  if (function != nullptr && PyFunction_Check(function) && !born(function)) {
    if (origins().origin(function) == Origin::kUnknown && !found_by_class(f, function) &&
        !origins().find_by_name(function)) {
      return graph_break("code in C calls a function (" + text_of(f.code()->co_qualname) +
                         "), of which it is not known where it comes from");
    }
    if (!origins().contents_guarded(function)) t.object_guards.function(function);
  }
  origins().find_surroundings(f, false);
  for (int i = 0; i < f.local_count() && tracing(); ++i) {
    PyObject* local = f.local(i);
    if (local == nullptr || origins().origin(local) != Origin::kUnknown) continue;
    if (is_enum_member(local) ? origins().find_member(local) : origins().find_by_name(local)) continue;
    // An iterator or a function in C has made the tuple for this call (`map(f, zip(a, b))`), and may hold it as well.
    if (origins().is_of_the_call(local) || (PyTuple_CheckExact(local) && t.made_since(local))) {
      mark_born(local);
      continue;
    }
    if (!graph_break("code in C calls " + text_of(f.code()->co_name) + " with an object of type " + type_name(local) +
                     ", of which it is not known where it comes from")) {
      return false;
    }
  }
  return true;
}

/// A method that the class of the first argument (or that argument, a class) has, called by the interpreter itself.
bool ReadTracing::found_by_class(Frame& f, PyObject* function) {
  PyObject* self = f.local_count() > 0 ? f.local(0) : nullptr;
  const bool starred = f.code()->co_argcount == 0 && (f.code()->co_flags & CO_VARARGS) != 0;
  if (starred && self != nullptr) self = f.local(f.code()->co_kwonlyargcount);
  if (starred && self != nullptr) self = PyTuple_GET_SIZE(self) > 0 ? PyTuple_GET_ITEM(self, 0) : nullptr;
  if (self != nullptr && PyCell_Check(self)) self = PyCell_GET(self);
  if (self == nullptr) return false;
  PyObject* name = f.code()->co_name;
  const auto holds = [&](PyObject* value) {
    if (value == function) return true;
    if (nature_of(value, api_) != Nature::kHolder) return false;
    const std::vector<PyObject*> parts = referents(value);
    return std::find(parts.begin(), parts.end(), function) != parts.end();
  };
  for (PyObject* owner : {reinterpret_cast<PyObject*>(Py_TYPE(self)), PyType_Check(self) ? self : nullptr}) {
    if (owner == nullptr) continue;
    auto* type = reinterpret_cast<PyTypeObject*>(owner);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
      PyObject* dict = class_dict(reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i)));
      PyObject *key = nullptr, *value = nullptr;
      Py_ssize_t at = 0;
      while (dict != nullptr && PyDict_Next(dict, &at, &key, &value) != 0) {
        if (!holds(value)) continue;
        if (!born(owner)) trace_->object_guards.type(owner, name);
        origins().find(function);
        return true;
      }
    }
  }
  return false;
}

}  // namespace tatara::capture
