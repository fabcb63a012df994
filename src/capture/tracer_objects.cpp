// The tracer's view of reads and writes: reads of what existed before become watches, writes to it break the graph.
#include <cstring>
#include <string>
#include <unordered_set>

#include "capture/tracer_internal.h"

namespace tatara::capture {
namespace {

bool has_instance_dict(PyObject* object) {
#if PY_VERSION_HEX >= 0x030C0000
  if ((Py_TYPE(object)->tp_flags & Py_TPFLAGS_MANAGED_DICT) != 0) return true;
#endif
  return Py_TYPE(object)->tp_dictoffset != 0;
}

}  // namespace

void Tracer::watch_container(PyObject* object) {
  Trace& t = *trace_;
  if (object == nullptr || born(object)) return;
  // The contents of these are part of the guard on the roots; others among the roots are guarded by identity.
  if (t.index_of(object) >= 0 && (PyDict_Check(object) || PyList_CheckExact(object))) return;
  if (PyDict_Check(object)) {
    t.watches.dict_all(object);
  } else if (PyList_Check(object)) {
    t.watches.list(object);
  } else if (PyAnySet_Check(object)) {
    t.watches.set(object);
  } else if (is_deque(object)) {
    t.watches.deque(object);
  } else if (PyTuple_Check(object) && t.watches.seen_objects().contains(object)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i) t.watches.found(PyTuple_GET_ITEM(object, i));
  }
}

/// Whether `owner.name` is what the instance's (or module's) dict has under that name, if it has it.
static bool found_in_dict(PyObject* owner, PyObject* name) {
  static PyObject* const getter = PyUnicode_InternFromString("__getattribute__");
  PyTypeObject* type = Py_TYPE(owner);
  PyObject* hook = _PyType_Lookup(type, getter);
  const bool plain = hook == _PyType_Lookup(&PyBaseObject_Type, getter) || PyModule_Check(owner);
  PyObject* of_type = _PyType_Lookup(type, name);
  return plain && (of_type == nullptr || Py_TYPE(of_type)->tp_descr_set == nullptr);
}

/// Memory that others may write without a trace of it in Python objects: bytearray, memoryview, array.array, ...
bool Tracer::is_raw_memory(PyObject* object) const {
  return object != nullptr && PyObject_CheckBuffer(object) != 0 && !PyBytes_Check(object) && !api_.is_tensor(object) &&
         !api_.is_numpy(object);
}

/// Thread-local data: its own look-up finds a dict of the thread.
static bool is_thread_local(PyObject* object) {
  for (const PyTypeObject* type = Py_TYPE(object); type != nullptr; type = type->tp_base) {
    if (std::strcmp(type->tp_name, "_thread._local") == 0) return true;
  }
  return false;
}

/// A class attribute. Where `number` a placeholder for one that varies, found in the dict of the class itself or of a base.
PyObject* Tracer::watch_class(PyTypeObject* type, PyObject* name, bool number) {
  Trace& t = *trace_;
  PyObject* dict = number && !t.varying.empty() ? defining_dict(type, name) : nullptr;
  PyObject* value = dict != nullptr ? PyDict_GetItem(dict, name) : nullptr;
  PyObject* made =
      value != nullptr && value == _PyType_Lookup(type, name) ? watched_number({dict, name}, value) : nullptr;
  if (made == nullptr) t.watches.type(reinterpret_cast<PyObject*>(type), name);
  return made;
}

/// Nothing of the metaclass's comes before the class's own attributes.
static bool has_plain_metaclass(PyObject* type, PyObject* name) {
  return Py_TYPE(type)->tp_getattro == PyType_Type.tp_getattro && _PyType_Lookup(Py_TYPE(type), name) == nullptr;
}

PyObject* Tracer::watch_lookup(PyObject* owner, PyObject* name, bool number) {
  if (looking_up_) return nullptr;
  looking_up_ = true;
  PyObject* made = watch_found(owner, name, number);
  looking_up_ = false;
  return made;
}

PyObject* Tracer::watch_found(PyObject* owner, PyObject* name, bool number) {
  Trace& t = *trace_;
  if (born(owner) && PyUnicode_CompareWithASCIIString(name, "__dict__") == 0) {
    adopt_dict(owner);
    return nullptr;
  }
  if (is_atom(owner, api_) || api_.is_numpy(owner)) return nullptr;
  if (Py_TYPE(owner) == &PySuper_Type) {
    const Ref self_class = attr_or_null(owner, "__self_class__");
    if (self_class && PyType_Check(self_class.get())) t.watches.type(self_class.get(), name);
  }
  if (born(owner)) {
    auto* type = reinterpret_cast<PyObject*>(Py_TYPE(owner));
    if (!PyType_Check(owner) && !born(type)) t.watches.type(type, name);  // the class is older
    return nullptr;
  }
  if (api_.is_tensor(owner)) {
    watch_tensor_attribute(owner, name);
    return nullptr;
  }
  if (PyType_Check(owner)) {
    t.watches.type(reinterpret_cast<PyObject*>(Py_TYPE(owner)), name);
    return watch_class(reinterpret_cast<PyTypeObject*>(owner), name, number && has_plain_metaclass(owner, name));
  }
  const bool module = PyModule_Check(owner);
  PyObject* descriptor = module ? nullptr : _PyType_Lookup(Py_TYPE(owner), name);
  const bool class_number = descriptor != nullptr && (PyLong_CheckExact(descriptor) || PyFloat_CheckExact(descriptor));
  if (!module) {
    const bool symbolic = number && class_number && found_in_dict(owner, name) && own_attribute(owner, name) == nullptr;
    PyObject* made = watch_class(Py_TYPE(owner), name, symbolic);
    const bool plain = PyDict_Check(owner) || PyTuple_Check(owner) || is_plain_instance(owner);
    if (t.index_of(owner) >= 0 && !is_pinned_kind(owner, api_) && plain) return made;  // its contents are guarded
    const bool thread_local_data = descriptor == nullptr && is_thread_local(owner);
    if (PyMethod_Check(owner) || PyCode_Check(owner)) return made;  // these never change
    if (thread_local_data || (descriptor != nullptr && Py_TYPE(descriptor) == &PyMemberDescr_Type)) {  // or a slot
      const Ref value = Ref::steal(PyObject_GetAttr(owner, name));
      if (!value) forget_error();
      t.watches.attribute(owner, name, value.get());
      return nullptr;
    }
    if ((PyFunction_Check(owner) && descriptor != nullptr) || !has_instance_dict(owner)) return made;
    if (made != nullptr) {
      const Ref attributes = Ref::steal(PyObject_GenericGetDict(owner, nullptr));
      if (!attributes) forget_error();
      if (attributes) t.watches.dict_key(attributes.get(), name);
      return made;
    }
  }
  const Ref dict = module ? Ref::borrow(PyModule_GetDict(owner)) : Ref::steal(PyObject_GenericGetDict(owner, nullptr));
  if (!dict || !PyDict_Check(dict.get())) {
    forget_error();
    return nullptr;
  }
  if (number && PyDict_CheckExact(dict.get()) && !t.varying.empty() && found_in_dict(owner, name)) {
    PyObject* made = watched_number({dict.get(), name}, PyDict_GetItem(dict.get(), name));
    if (made != nullptr) return made;
  }
  t.watches.dict_key(dict.get(), name);
  return nullptr;
}

/// vars() and dir().
void Tracer::watch_all(PyObject* owner) {
  if (born(owner)) return adopt_dict(owner);
  PyObject* type = PyType_Check(owner) ? owner : reinterpret_cast<PyObject*>(Py_TYPE(owner));
  if (!born(type)) trace_->watches.type(type, nullptr);
}

void Tracer::watch_tensor_attribute(PyObject* tensor, PyObject* name) {
  Trace& t = *trace_;
  if (_PyType_Lookup(Py_TYPE(tensor), name) != nullptr) return;
  const int slot = t.tape.find(tensor);
  if (slot >= 0 && !t.tape.slots()[static_cast<size_t>(slot)].input) return;
  if (const int index = t.index_of(tensor); index >= 0) return t.watches.tensor_attribute(index, tensor, name);
  const Ref dict = Ref::steal(PyObject_GenericGetDict(tensor, nullptr));
  if (!dict) return forget_error();
  t.watches.dict_key(dict.get(), name);
}

bool Tracer::touch(PyObject* object) {
  const auto found = trace_->born.find(object);
  if (ahead_ != nullptr && found != trace_->born.end() && found->second < ahead_->born) {
    return graph_break("it changes what was made before it (" + type_name(object) + ")");
  }
  // What was made since the snapshot is no part of it.
  if (found != trace_->born.end() && found->second < trace_->snap_born) trace_->mutated = true;
  return true;
}

void Tracer::adopt_dict(PyObject* owner) {
  const Ref dict = Ref::steal(has_instance_dict(owner) ? PyObject_GenericGetDict(owner, nullptr) : nullptr);
  if (!dict || born(dict.get())) return forget_error();
  mark_born(dict.get());
  trace_->born[dict.get()] = trace_->born[owner];
}

PyObject* Tracer::instance_of(PyObject* dict) {
  Trace& t = *trace_;
  if (t.instance_dicts.empty()) {
    t.instance_dicts.emplace(nullptr, nullptr);
    for (PyObject* object : t.objects) {
      if (is_pinned_kind(object, api_) || !is_plain_instance(object)) continue;
      const Ref attributes = Ref::steal(PyObject_GenericGetDict(object, nullptr));
      if (!attributes) forget_error();
      if (attributes) t.instance_dicts.emplace(attributes.get(), object);
    }
  }
  const auto found = t.instance_dicts.find(dict);
  return found == t.instance_dicts.end() ? nullptr : found->second;
}

bool Tracer::reachable(PyObject* object) {
  Trace& t = *trace_;
  if (t.index_of(object) >= 0 || is_pinned_kind(object, api_) || t.watches.seen_objects().contains(object)) return true;
  if (api_.is_tensor(object)) return t.tape.find(object) >= 0;
  if (PyDict_CheckExact(object) && instance_of(object) != nullptr) return true;
  const auto holds = [object](PyObject* items) {
    for (Py_ssize_t i = 0; items != nullptr && i < PyTuple_GET_SIZE(items); ++i) {
      if (PyTuple_GET_ITEM(items, i) == object) return true;
    }
    return false;
  };
  for (const Frame* frame : frames_) {
    if (frame->globals() == object) return true;
    PyObject* function = frame->function();
    if (function == nullptr || !PyFunction_Check(function) || born(function)) continue;
    if (holds(PyFunction_GET_DEFAULTS(function)) || holds(PyFunction_GET_CLOSURE(function))) return true;
  }
  return false;
}

// ---- Reads -----------------------------------------------------------------------------------------------------------

PyObject* Tracer::read_name(Frame&, PyObject* name, PyObject* dict, PyObject* value) {
  if (tracing() && PyDict_CheckExact(dict) && !born(dict)) {
    if (PyObject* made = watched_number({dict, name}, value)) return made;
    trace_->watches.dict_key(dict, name);
  }
  return not_handled();
}

PyObject* Tracer::read_cell(Frame&, int, PyObject* cell, PyObject* value) {
  const auto known = [this](PyObject* o) { return trace_->index_of(o) >= 0; };
  if (tracing() && !born(cell) && !(known(cell) && (!trace_->in_cells.contains(value) || known(value)))) {
    if (PyObject* made = watched_number({cell}, value)) return made;
    trace_->watches.cell(cell);
  }
  return not_handled();
}

PyObject* Tracer::read_attr(Frame&, PyObject* owner, PyObject* name, bool) {
  if (!tracing()) return not_handled();
  if (numpy_value(owner)) return numpy_attribute(owner, name);
  if (!break_if_state(owner, name)) return nullptr;
  if (!tracing()) return not_handled();
  PyObject* made = watch_lookup(owner, name, true);
  return made != nullptr ? made : not_handled();
}

PyObject* Tracer::read_subscr(Frame&, PyObject* container, PyObject* key) {
  if (tracing()) {
    if (PyObject* done = numpy_get_item(container, key); done != not_handled()) return done;
  }
  if (tracing() && is_symbolic_number(key) && !api_.is_tensor(container)) {
    watch_container(container);
    if (Ref found = number_item(container, key)) return found.release();
  }
  if (tracing() && !trace_->symbols.empty() && PyTuple_Check(container) && PySlice_Check(key)) {
    PyObject* part = symbolic_slice(container, key);
    if (part != not_handled()) return part;
  }
  if (tracing() && is_raw_memory(container) && !born(container)) {
    return graph_break("memory that existed before the trace is read") ? not_handled() : nullptr;
  }
  if (tracing() && PyDict_Check(container) && !PyDict_CheckExact(container) &&
      std::strcmp(Py_TYPE(container)->tp_name, "collections.defaultdict") == 0) {
    return default_item(container, key);
  }
  if (tracing() && PySlice_Check(key) && (PyList_CheckExact(container) || PyTuple_CheckExact(container))) {
    watch_container(container);
    PyObject* part = PyObject_GetItem(container, key);
    note_result(part);
    return part;
  }
  if (!tracing() || born(container)) return not_handled();
  if (trace_->index_of(container) >= 0 && (PyDict_Check(container) || PyList_CheckExact(container))) {
    return not_handled();
  }
  if (PyDict_CheckExact(container) && is_atom(key, api_)) {
    PyObject* value = PyUnicode_CheckExact(key) ? PyDict_GetItemWithError(container, key) : nullptr;
    PyObject* made = value != nullptr ? watched_number({container, key}, value) : nullptr;
    if (made != nullptr) return made;
    trace_->watches.dict_key(container, key);
  } else if (PyList_CheckExact(container) && PyLong_CheckExact(key)) {
    const Py_ssize_t index = PyLong_AsSsize_t(key);
    if (index == -1) forget_error();
    const Py_ssize_t place = index < 0 ? index + PyList_GET_SIZE(container) : index;
    if (place >= 0 && place < PyList_GET_SIZE(container)) {
      PyObject* made = watched_number({container, nullptr, place}, PyList_GET_ITEM(container, place));
      if (made != nullptr) {
        trace_->watches.list_size(container);
        return made;
      }
    }
    trace_->watches.list_item(container, place);
  } else {
    watch_container(container);
  }
  return not_handled();
}

PyObject* Tracer::get_iter(Frame&, PyObject* iterable) {
  if (!tracing()) return not_handled();
  if (numpy_value(iterable)) {
    PyObject* iterator = PyObject_GetIter(iterable);
    note_result(iterator);
    return iterator;
  }
  watch_container(iterable);
  static PyObject* const name = PyUnicode_InternFromString("__iter__");
  PyObject* dunder = _PyType_Lookup(Py_TYPE(iterable), name);
  if (dunder == nullptr || Py_TYPE(dunder) != &PyWrapperDescr_Type) return not_handled();
  PyObject* iterator = PyObject_GetIter(iterable);
  note_result(iterator);
  return iterator;
}

bool Tracer::outside_iterator(PyObject* object) const {
  if (object == nullptr || born(object) || !is_c_iterator(object)) return false;
  // What no read from outside has shown was made on the way.
  return trace_->index_of(object) >= 0 || trace_->watches.seen_objects().contains(object);
}

bool Tracer::break_if_moved(PyObject* iterator) {
  if (!tracing()) return true;
  if (is_raw_memory(iterator) && !born(iterator)) return graph_break("memory that existed before the trace is read");
  return !outside_iterator(iterator) || graph_break("an iterator that existed before the trace");
}

bool Tracer::break_if_state(PyObject* owner, PyObject* name) {
  static const std::unordered_set<std::string> fixed = {"__class__", "__doc__", "__name__", "__qualname__", "gi_code"};
  if (!outside_iterator(owner)) return true;
  PyObject* found = _PyType_Lookup(Py_TYPE(owner), name);
  const bool data = found != nullptr && Py_TYPE(found)->tp_descr_set != nullptr;
  return !data || fixed.contains(text_of(name)) ||
         graph_break("the state of an iterator that existed before the trace (" + text_of(name) + ")");
}

int Tracer::send(Frame&, PyObject* receiver, PyObject*, PyObject**) {
  return break_if_moved(receiver) ? kNotHandled : -1;
}

bool Tracer::break_if_moved(PyObject* callable, PyObject* const* args, Py_ssize_t count) {
  if (PyCFunction_Check(callable) && !break_if_moved(reinterpret_cast<PyCFunctionObject*>(callable)->m_self)) {
    return false;
  }
  if (callable == reinterpret_cast<PyObject*>(&PyType_Type)) return true;
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!break_if_moved(args[i])) return false;
  }
  return true;
}

int Tracer::unpack(Frame&, PyObject* sequence, int before, int after, PyObject** out) {
  if (tracing()) {
    if (const int done = numpy_unpack(sequence, before, after, out); done != kNotHandled) return done;
  }
  if (tracing()) watch_container(sequence);
  return break_if_moved(sequence) ? kNotHandled : -1;
}

PyObject* Tracer::contains(Frame&, PyObject* container, PyObject* item, bool invert) {
  if (!break_if_moved(container)) return nullptr;
  if (tracing() &&
      (numpy_value(container) || numpy_inside(item) || (!PyDict_Check(container) && numpy_inside(container)))) {
    return numpy_break("a search among arrays");
  }
  if (tracing()) {
    if (PyDict_CheckExact(container) && is_atom(item, api_) && !born(container) && trace_->index_of(container) < 0) {
      trace_->watches.dict_key(container, item);
    } else {
      watch_container(container);
      const Ref found = number_in(container, item);
      if (found) return PyBool_FromLong((found.get() == Py_True) != invert);
    }
  }
  return not_handled();
}

/// NumPy would take a symbolic integer for an object of its own kind.
void Tracer::settle_for_arrays(PyObject* left, PyObject* right) {
  if (trace_->symbols.empty() || api_.numpy == nullptr) return;
  if (is_symbolic_number(left) && numpy_value(right)) settle_in(left);
  if (is_symbolic_number(right) && numpy_value(left)) settle_in(right);
}

PyObject* Tracer::compare(Frame&, int op, PyObject* left, PyObject* right) {
  if (tracing()) {
    settle_for_arrays(left, right);
    if (PyObject* done = numpy_compare(op, left, right); done != not_handled()) return done;
  }
  if (tracing()) {
    if (!trace_->symbols.empty()) {
      PyObject* result = symbolic_compare(op, left, right);
      if (result != not_handled()) return result;
    }
    watch_container(left);
    watch_container(right);
  }
  return not_handled();
}

int Tracer::truth(Frame&, PyObject* value) {
  if (tracing() && numpy_value(value)) return graph_break("truth of an array") ? kNotHandled : -1;
  if (tracing()) watch_container(value);
  return kNotHandled;
}

namespace {

bool is_container(PyObject* object) {
  return PyList_CheckExact(object) || PyTuple_CheckExact(object) || PyDict_CheckExact(object) ||
         PyAnySet_CheckExact(object);
}

/// The operators of BINARY_OP that make a new container of containers.
binaryfunc container_operator(int op) {
  constexpr binaryfunc kOperators[] = {PyNumber_Add,      PyNumber_And, nullptr,     nullptr, nullptr,
                                       PyNumber_Multiply, nullptr,      PyNumber_Or, nullptr, nullptr,
                                       PyNumber_Subtract, nullptr,      PyNumber_Xor};
  return static_cast<size_t>(op) < std::size(kOperators) ? kOperators[op] : nullptr;
}

}  // namespace

PyObject* Tracer::binary_op(Frame&, int op, PyObject* left, PyObject* right) {
  if (!tracing()) return not_handled();
  settle_for_arrays(left, right);
  if (PyObject* done = numpy_binary(op, left, right); done != not_handled()) return done;
  if (!tracing()) return not_handled();
  if (!trace_->symbols.empty()) {
    PyObject* result = symbolic_binary(op, left, right);
    if (result != not_handled()) return result;
  }
  if (api_.is_tensor(left) || api_.is_tensor(right)) return not_handled();
  if (is_atom(left, api_) && !is_container(right)) return not_handled();
  constexpr int kFirstInplace = 13;  // NB_INPLACE_ADD
  if (op >= kFirstInplace && (PyList_Check(left) || PyDict_Check(left) || PySet_Check(left))) {
    return inplace_operator(op, left, right);
  }
  watch_container(left);
  watch_container(right);
  if (!is_container(left) && !is_container(right)) return not_handled();
  const binaryfunc make = container_operator(op);
  if (make == nullptr) return not_handled();
  PyObject* result = make(left, right);
  note_result(result);
  return result;
}

void Tracer::on_build(Frame&, BuildKind kind, PyObject* object) {
  if (!tracing()) return;
  mark_born(object);
  if (api_.numpy == nullptr || (kind != BuildKind::kSet && kind != BuildKind::kDict)) return;
  const Ref keys = Ref::steal(PySequence_List(object));
  if (keys && numpy_inside(keys.get())) {
    trace_->mutated = true;  // it is made already
    if (!graph_break("the hash of a NumPy value")) forget_error();
  }
}

/// A display or comprehension that a break has cut in two goes on filling its container: for real, as no later call of a
/// graph would.
bool Tracer::break_if_begun(PyObject* container) {
  return !tracing() || born(container) || graph_break("a comprehension or display begun before the graph goes on");
}

int Tracer::list_append(Frame&, PyObject* list, PyObject*) { return break_if_begun(list) ? kNotHandled : -1; }

int Tracer::list_extend(Frame&, PyObject* list, PyObject* iterable) {
  if (!break_if_begun(list)) return -1;
  if (tracing() && numpy_value(iterable)) return graph_break("an array is unpacked") ? kNotHandled : -1;
  if (tracing()) watch_container(iterable);
  return break_if_moved(iterable) ? kNotHandled : -1;
}
int Tracer::set_update(Frame&, PyObject* set, PyObject* iterable) {
  if (!break_if_begun(set)) return -1;
  if (tracing() && numpy_inside(iterable)) return graph_break("the hash of a NumPy value") ? kNotHandled : -1;
  if (tracing()) watch_container(iterable);
  return break_if_moved(iterable) ? kNotHandled : -1;
}
int Tracer::dict_update(Frame&, PyObject* dict, PyObject* mapping) {
  if (!break_if_begun(dict)) return -1;
  if (tracing()) watch_container(mapping);
  return kNotHandled;
}
int Tracer::dict_merge(Frame&, PyObject* dict, PyObject* mapping, PyObject*) {
  if (!break_if_begun(dict)) return -1;
  if (tracing()) watch_container(mapping);
  return kNotHandled;
}

PyObject* Tracer::for_iter(Frame&, PyObject* iterator) {
  if (!tracing()) return not_handled();
  if (PyObject* done = numpy_iterate(iterator); done != not_handled()) return done;
  if (!outside_iterator(iterator)) {
    if (frames_.back() != root_ && !touch(iterator)) return nullptr;
    return not_handled();
  }
  return break_if_moved(iterator) ? not_handled() : nullptr;
}

}  // namespace tatara::capture
