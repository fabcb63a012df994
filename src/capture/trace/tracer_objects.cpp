// The tracer's view of reads and writes: reads of what existed before become watches, writes to it break the graph.
#include <cstring>
#include <string>
#include <unordered_set>

#include "capture/host/natures.h"
#include "capture/trace/number_tracing.h"
#include "capture/trace/numpy_tracing.h"
#include "capture/trace/origin_tracing.h"
#include "capture/trace/read_tracing.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/write_tracing.h"

namespace tatara::capture {
namespace {

bool has_instance_dict(PyObject* object) {
#if PY_VERSION_HEX >= 0x030C0000
  if ((Py_TYPE(object)->tp_flags & Py_TPFLAGS_MANAGED_DICT) != 0) return true;
#endif
  return Py_TYPE(object)->tp_dictoffset != 0;
}

}  // namespace

void ReadTracing::watch_container(PyObject* object, bool ordered) {
  Trace& t = *trace_;
  if (object == nullptr || born(object)) return;
  if (origins().contents_guarded(object)) return;
  if (PyCell_Check(object)) {
    t.watches.cell(object);
  } else if (std::strcmp(Py_TYPE(object)->tp_name, "types.SimpleNamespace") == 0) {
    const Ref attributes = Ref::steal(PyObject_GenericGetDict(object, nullptr));
    if (!attributes) return forget_error();
    t.watches.instance(object, true);
    t.watches.dict_all(attributes.get());
  } else if (PyDict_Check(object)) {
    t.watches.dict_all(object);
  } else if (PyList_Check(object)) {
    t.watches.list(object);
  } else if (PyAnySet_Check(object)) {
    t.watches.set(object, ordered);
  } else if (is_deque(object)) {
    t.watches.deque(object);
  } else if (PyTuple_Check(object)) {
    origins().find_parts(object);
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
bool ReadTracing::is_raw_memory(PyObject* object) const {
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
PyObject* ReadTracing::watch_class(PyTypeObject* type, PyObject* name, bool number) {
  Trace& t = *trace_;
  PyObject* dict = number && !numbers().varying().empty() ? defining_dict(type, name) : nullptr;
  PyObject* value = dict != nullptr ? PyDict_GetItem(dict, name) : nullptr;
  PyObject* found = _PyType_Lookup(type, name);
  PyObject* made = value != nullptr && value == found ? numbers().watched_number({dict, name}, value) : nullptr;
  origins().find(reinterpret_cast<PyObject*>(type));  // it is what its object is guarded to be of
  if (made != nullptr) return made;
  t.watches.type(reinterpret_cast<PyObject*>(type), name);
  find_in_class(found);
  return nullptr;
}

/// What a class has under a name: itself, and what a descriptor in C (a property, a staticmethod) gives of it.
void ReadTracing::find_in_class(PyObject* value) {
  if (value == nullptr || is_atom(value, api_)) return;
  origins().find(value);
  const PyTypeObject* type = Py_TYPE(value);
  if (type == &PyProperty_Type || type == &PyStaticMethod_Type || type == &PyClassMethod_Type)
    origins().find_parts(value);
}

/// Of something that was made in the trace: its class, or the bases of that, are older.
void ReadTracing::watch_older_classes(PyTypeObject* type, PyObject* name) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    PyObject* base = PyTuple_GET_ITEM(type->tp_mro, i);
    if (born(base)) continue;
    watch_class(reinterpret_cast<PyTypeObject*>(base), name, false);
    return;
  }
}

/// super().name: the class behind the present one, in the order of the object's own class.
void ReadTracing::watch_super(PyObject* super, PyObject* name) {
  const Ref own = attr_or_null(super, "__self_class__");
  if (!own || !PyType_Check(own.get())) return;
  auto* type = reinterpret_cast<PyTypeObject*>(own.get());
  if (!born(own.get())) trace_->watches.type(own.get(), name);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    PyObject* dict = class_dict(reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i)));
    PyObject* value = dict != nullptr ? PyDict_GetItemWithError(dict, name) : nullptr;
    if (value == nullptr) forget_error();
    find_in_class(value);
  }
}

/// From Python 3.12 on one instruction makes the proxy and reads its attribute.
PyObject* Tracer::read_super_attr(Frame& f, PyObject* super, PyObject* cls, PyObject* self, PyObject* name, bool) {
  if (!tracing() || super != reinterpret_cast<PyObject*>(&PySuper_Type)) return not_handled();
  const Ref proxy = Ref::steal(PyObject_CallFunctionObjArgs(super, cls, self, nullptr));
  if (!proxy) return nullptr;
  mark_born(proxy.get());
  PyObject* found = read_attr(f, proxy.get(), name, false);
  if (found == not_handled()) found = PyObject_GetAttr(proxy.get(), name);
  if (found == nullptr || obtained(f, Obtained::kAttribute, proxy.get(), name, found) == 0) return found;
  Py_DECREF(found);
  return nullptr;
}

/// What a getset descriptor or another one in C, or a look-up in C, gives depends on more than dicts: guards look it up again.
/// Not what is new each time.
void ReadTracing::watch_value(PyObject* owner, PyObject* name) {
  if (!origins().is_same_in_each_call(owner)) return;
  const Ref value = Ref::steal(PyObject_GetAttr(owner, name));
  if (!value) forget_error();
  if (value && Py_REFCNT(value.get()) == 1 && !is_atom(value.get(), api_)) return;
  trace_->watches.attribute(owner, name, value.get());
}

namespace {

bool looks_up_in_dicts(const PyTypeObject* type) {
  return base_in_c(type)->tp_getattro == PyObject_GenericGetAttr || type->tp_getattro == PyModule_Type.tp_getattro;
}

/// A descriptor whose value is in the object's memory, or is computed in C.
bool is_read_in_c(PyObject* descriptor) {
  const PyTypeObject* type = Py_TYPE(descriptor);
  if (type->tp_descr_get == nullptr || is_python_made(type)) return false;
  return type == &PyMemberDescr_Type || type == &PyGetSetDescr_Type ||
         (type->tp_descr_set != nullptr && type != &PyProperty_Type);
}

}  // namespace

/// Nothing of the metaclass's comes before the class's own attributes.
static bool has_plain_metaclass(PyObject* type, PyObject* name) {
  return Py_TYPE(type)->tp_getattro == PyType_Type.tp_getattro && _PyType_Lookup(Py_TYPE(type), name) == nullptr;
}

PyObject* ReadTracing::watch_lookup(PyObject* owner, PyObject* name, bool number) {
  if (looking_up_) return nullptr;
  looking_up_ = true;
  PyObject* made = watch_found(owner, name, number);
  looking_up_ = false;
  return made;
}

PyObject* ReadTracing::watch_found(PyObject* owner, PyObject* name, bool number) {
  Trace& t = *trace_;
  if (born(owner) && PyUnicode_CompareWithASCIIString(name, "__dict__") == 0) {
    origins().adopt_dict(owner);
    return nullptr;
  }
  if ((is_atom(owner, api_) && !is_enum_member(owner)) || api_.is_numpy(owner)) return nullptr;
  if (Py_TYPE(owner) == &PySuper_Type) watch_super(owner, name);
  if (PyMethod_Check(owner) && _PyType_Lookup(&PyMethod_Type, name) == nullptr) {
    return watch_found(PyMethod_GET_FUNCTION(owner), name, number);
  }
  if (born(owner)) {
    watch_older_classes(PyType_Check(owner) ? reinterpret_cast<PyTypeObject*>(owner) : Py_TYPE(owner), name);
    return nullptr;
  }
  if (api_.is_tensor(owner)) {
    find_in_class(_PyType_Lookup(Py_TYPE(owner), name));
    watch_tensor_attribute(owner, name);
    return nullptr;
  }
  if (PyType_Check(owner)) {
    PyObject* of_metaclass = _PyType_Lookup(Py_TYPE(owner), name);
    watch_class(Py_TYPE(owner), name, false);
    PyObject* made =
        watch_class(reinterpret_cast<PyTypeObject*>(owner), name, number && has_plain_metaclass(owner, name));
    if (of_metaclass != nullptr && Py_TYPE(of_metaclass) == &PyGetSetDescr_Type) watch_value(owner, name);
    return made;
  }
  if (PyModule_Check(owner)) return watch_module(owner, name, number);
  PyTypeObject* type = Py_TYPE(owner);
  PyObject* descriptor = _PyType_Lookup(type, name);
  if (origins().is_same_in_each_call(owner) && is_python_made(type)) t.watches.instance(owner, false);
  if (descriptor != nullptr && PyUnicode_CompareWithASCIIString(name, "__class__") == 0) {
    origins().find(reinterpret_cast<PyObject*>(type));
  }
  const bool class_number = descriptor != nullptr && (PyLong_CheckExact(descriptor) || PyFloat_CheckExact(descriptor));
  const bool symbolic = number && class_number && found_in_dict(owner, name) && own_attribute(owner, name) == nullptr;
  PyObject* made = watch_class(type, name, symbolic);
  if (origins().contents_guarded(owner) && (PyDict_Check(owner) || PyTuple_Check(owner) || is_plain_instance(owner)))
    return made;
  if (PyMethod_Check(owner) || PyCode_Check(owner)) {  // these never change
    origins().find_parts(owner);
    return made;
  }
  if (!looks_up_in_dicts(type) || (descriptor != nullptr && is_read_in_c(descriptor))) {
    if (has_instance_dict(owner) && PyUnicode_CompareWithASCIIString(name, "__dict__") == 0 &&
        !is_thread_local(owner)) {
      watch_own_dict(owner);
    } else if (PyUnicode_CompareWithASCIIString(name, "__class__") != 0) {
      watch_value(owner, name);
    }
    return made;
  }
  if (!has_instance_dict(owner)) return made;
  return watch_in_dict(owner, name, number, made);
}

/// The dict of an object's attributes is the one that it is now.
void ReadTracing::watch_own_dict(PyObject* owner) {
  const Ref dict = Ref::steal(PyObject_GenericGetDict(owner, nullptr));
  if (!dict) return forget_error();
  if (!origins().is_same_in_each_call(owner)) return;
  trace_->watches.instance(owner, true);
  origins().find(dict.get());
}

PyObject* ReadTracing::watch_module(PyObject* module, PyObject* name, bool number) {
  static PyObject* const getter = PyUnicode_InternFromString("__getattr__");
  PyObject* dict = PyModule_GetDict(module);
  if (PyDict_GetItemWithError(dict, name) == nullptr) {
    forget_error();
    trace_->watches.dict_key(dict, getter);
  }
  if (Py_TYPE(module) != &PyModule_Type) {
    watch_class(Py_TYPE(module), name, false);
    trace_->watches.instance(module, false);
  }
  return watch_in_dict(module, name, number, nullptr);
}

/// The attribute in the object's own dict, or that there is none.
PyObject* ReadTracing::watch_in_dict(PyObject* owner, PyObject* name, bool number, PyObject* made) {
  Trace& t = *trace_;
  const bool module = PyModule_Check(owner);
  const Ref dict = module ? Ref::borrow(PyModule_GetDict(owner)) : Ref::steal(PyObject_GenericGetDict(owner, nullptr));
  if (!dict || !PyDict_Check(dict.get())) {
    forget_error();
    return made;
  }
  if (!module && origins().is_same_in_each_call(owner)) t.watches.instance(owner, true);
  if (made == nullptr && number && PyDict_CheckExact(dict.get()) && !numbers().varying().empty() &&
      found_in_dict(owner, name)) {
    PyObject* symbol = numbers().watched_number({dict.get(), name}, PyDict_GetItem(dict.get(), name));
    if (symbol != nullptr) return symbol;
  }
  t.watches.dict_key(dict.get(), name);
  return made;
}

/// vars() and dir().
void ReadTracing::watch_all(PyObject* owner) {
  if (born(owner)) return origins().adopt_dict(owner);
  PyObject* type = PyType_Check(owner) ? owner : reinterpret_cast<PyObject*>(Py_TYPE(owner));
  if (!born(type)) trace_->watches.type(type, nullptr);
}

void ReadTracing::watch_tensor_attribute(PyObject* tensor, PyObject* name) {
  Trace& t = *trace_;
  if (PyUnicode_CompareWithASCIIString(name, "__dict__") == 0) return watch_own_dict(tensor);
  if (_PyType_Lookup(Py_TYPE(tensor), name) != nullptr) return;
  const int slot = t.tape.find(tensor);
  if (t.tape.makes(slot)) return;
  if (const int index = t.index_of(tensor); index >= 0) return t.watches.tensor_attribute(index, tensor, name);
  const Ref dict = Ref::steal(PyObject_GenericGetDict(tensor, nullptr));
  if (!dict) return forget_error();
  t.watches.dict_key(dict.get(), name);
}

bool WriteTracing::touch(PyObject* object) {
  const std::optional<size_t> made = born_at(object);
  if (context_.ahead != nullptr && made && *made < context_.ahead->born) {
    return graph_break("it changes what was made before it (" + type_name(object) + ")");
  }
  // What was made since the snapshot is no part of it.
  if (made && *made < trace_->snap.born) trace_->mutated = true;
  return true;
}

void OriginTracing::adopt_dict(PyObject* owner) {
  const Ref dict = Ref::steal(has_instance_dict(owner) ? PyObject_GenericGetDict(owner, nullptr) : nullptr);
  if (!dict || born(dict.get())) return forget_error();
  mark_born(dict.get());
  trace_->born[dict.get()] = trace_->born[owner];
}

PyObject* OriginTracing::instance_of(PyObject* dict) {
  Trace& t = *trace_;
  if (own_.instance_dicts.empty()) {
    own_.instance_dicts.emplace(nullptr, nullptr);
    for (PyObject* object : t.objects) {
      if (is_pinned_kind(object, api_) || !is_plain_instance(object)) continue;
      const Ref attributes = Ref::steal(PyObject_GenericGetDict(object, nullptr));
      if (!attributes) forget_error();
      if (attributes) own_.instance_dicts.emplace(attributes.get(), object);
    }
  }
  const auto found = own_.instance_dicts.find(dict);
  return found == own_.instance_dicts.end() ? nullptr : found->second;
}

bool OriginTracing::reachable(PyObject* object) { return origin(object) != Origin::kUnknown; }

// ---- Reads -----------------------------------------------------------------------------------------------------------

PyObject* Tracer::read_name(Frame& f, PyObject* name, PyObject* dict, PyObject* value) {
  if (tracing() && dict == f.builtins() && f.globals() != dict && !born(f.globals())) {
    trace_->watches.dict_key(f.globals(), name);  // which has none of this name
  }
  if (tracing() && PyDict_CheckExact(dict) && !born(dict)) {
    if (PyObject* made = numbers().watched_number({dict, name}, value)) return made;
    trace_->watches.dict_key(dict, name);
  }
  return not_handled();
}

PyObject* Tracer::read_cell(Frame&, int, PyObject* cell, PyObject* value) {
  const auto known = [this](PyObject* o) { return trace_->index_of(o) >= 0; };
  if (tracing() && !born(cell) && !(known(cell) && (!origins().is_in_cell(value) || known(value)))) {
    if (PyObject* made = numbers().watched_number({cell}, value)) return made;
    trace_->watches.cell(cell);
  }
  return not_handled();
}

PyObject* Tracer::read_attr(Frame&, PyObject* owner, PyObject* name, bool) {
  if (!tracing()) return not_handled();
  if (numpy().numpy_value(owner)) return numpy().numpy_attribute(owner, name);
  if (!reads().break_if_state(owner, name)) return nullptr;
  if (!tracing()) return not_handled();
  PyObject* made = reads().watch_lookup(owner, name, true);
  return made != nullptr ? made : not_handled();
}

/// Code in C that finds an object by a number, or in a container, without reading it but through slots.
bool NumberTracing::holds_numbers(PyObject* container) const {
  return PyRange_Check(container) || is_deque(container) || PyDictKeys_Check(container) ||
         PyDictItems_Check(container) || PyDictValues_Check(container) || PyUnicode_Check(container) ||
         PyType_Check(container) || meets_numbers(container);
}

PyObject* Tracer::read_subscr(Frame&, PyObject* container, PyObject* key) {
  if (tracing()) {
    if (PyObject* done = numpy().numpy_get_item(container, key); done != not_handled()) return done;
  }
  if (tracing() && !api_.is_tensor(container) && !numbers().holds_numbers(container)) numbers().settle_reachable(key);
  if (tracing() && is_symbolic_number(key) && !api_.is_tensor(container)) {
    if (!reads().watch_contents(container, Reading::kItems)) return nullptr;
    if (!tracing()) return not_handled();
    if (Ref found = numbers().number_item(container, key)) return found.release();
  }
  if (tracing() && !trace_->symbols.empty() && PyTuple_Check(container) && PySlice_Check(key)) {
    PyObject* part = numbers().symbolic_slice(container, key);
    if (part != not_handled()) return part;
  }
  if (tracing() && reads().is_raw_memory(container) && !born(container)) {
    return graph_break("memory that existed before the trace is read") ? not_handled() : nullptr;
  }
  if (tracing() && PyDict_Check(container) && !PyDict_CheckExact(container) &&
      std::strcmp(Py_TYPE(container)->tp_name, "collections.defaultdict") == 0) {
    return writes().default_item(container, key);
  }
  if (tracing() && PySlice_Check(key) && (PyList_CheckExact(container) || PyTuple_CheckExact(container))) {
    reads().watch_container(container);
    PyObject* part = PyObject_GetItem(container, key);
    origins().note_result(part);
    return part;
  }
  if (!tracing() || is_atom(container, api_)) return not_handled();
  reads().watch_class_of(container);
  origins().pin(key);
  if (PyObject* mapping = viewed_mapping(container)) {
    origins().find_parts(container);
    container = mapping;
  }
  if (is_context(container)) return reads().watch_contents(container, Reading::kItems) ? not_handled() : nullptr;
  if (born(container) || origins().contents_guarded(container)) return not_handled();
  if (PyDict_CheckExact(container) && is_atom(key, api_)) {
    PyObject* value = PyUnicode_CheckExact(key) ? PyDict_GetItemWithError(container, key) : nullptr;
    PyObject* made = value != nullptr ? numbers().watched_number({container, key}, value) : nullptr;
    if (made != nullptr) return made;
    trace_->watches.dict_key(container, key);
  } else if (PyList_CheckExact(container) && PyLong_CheckExact(key)) {
    const Py_ssize_t index = PyLong_AsSsize_t(key);
    if (index == -1) forget_error();
    const Py_ssize_t place = index < 0 ? index + PyList_GET_SIZE(container) : index;
    if (place >= 0 && place < PyList_GET_SIZE(container)) {
      PyObject* made = numbers().watched_number({container, nullptr, place}, PyList_GET_ITEM(container, place));
      if (made != nullptr) {
        trace_->watches.list_size(container);
        return made;
      }
    }
    trace_->watches.list_item(container, place);
  } else if (!reads().watch_contents(container, Reading::kItems)) {
    return nullptr;
  }
  return not_handled();
}

PyObject* Tracer::get_iter(Frame&, PyObject* iterable) {
  if (!tracing()) return not_handled();
  if (numpy().numpy_value(iterable)) {
    PyObject* iterator = PyObject_GetIter(iterable);
    origins().note_result(iterator);
    return iterator;
  }
  if (!reads().watch_contents(iterable, Reading::kItems)) return nullptr;
  if (!tracing()) return not_handled();
  static PyObject* const name = PyUnicode_InternFromString("__iter__");
  PyObject* dunder = _PyType_Lookup(Py_TYPE(iterable), name);
  if (dunder == nullptr || Py_TYPE(dunder) != &PyWrapperDescr_Type) return not_handled();
  PyObject* iterator = PyObject_GetIter(iterable);
  origins().note_result(iterator);
  return iterator;
}

bool ReadTracing::outside_iterator(PyObject* object) const {
  if (object == nullptr || born(object) || !is_c_iterator(object)) return false;
  // What no read from outside has shown was made on the way.
  return trace_->index_of(object) >= 0 || trace_->watches.seen_objects().contains(object);
}

bool ReadTracing::break_if_moved(PyObject* iterator) {
  if (!tracing()) return true;
  if (is_raw_memory(iterator) && !born(iterator)) return graph_break("memory that existed before the trace is read");
  return !outside_iterator(iterator) || graph_break("an iterator that existed before the trace");
}

bool ReadTracing::break_if_state(PyObject* owner, PyObject* name) {
  static const std::unordered_set<std::string> fixed = {"__class__", "__doc__", "__name__", "__qualname__", "gi_code"};
  if (!outside_iterator(owner)) return true;
  PyObject* found = _PyType_Lookup(Py_TYPE(owner), name);
  const bool data = found != nullptr && Py_TYPE(found)->tp_descr_set != nullptr;
  return !data || fixed.contains(text_of(name)) ||
         graph_break("the state of an iterator that existed before the trace (" + text_of(name) + ")");
}

int Tracer::send(Frame&, PyObject* receiver, PyObject*, PyObject**) {
  return reads().break_if_moved(receiver) ? kNotHandled : -1;
}

bool ReadTracing::break_if_moved(PyObject* callable, PyObject* const* args, Py_ssize_t count) {
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
    if (const int done = numpy().numpy_unpack(sequence, before, after, out); done != kNotHandled) return done;
  }
  if (tracing() && !reads().watch_contents(sequence, Reading::kItems)) return -1;
  return reads().break_if_moved(sequence) ? kNotHandled : -1;
}

/// Of a dict the keys alone are compared.
bool ReadTracing::watch_searched(PyObject* container, PyObject* table) {
  if (!PyDict_Check(table)) return watch_contents(container, Reading::kEqual);
  if (!watch_contents(container, Reading::kItems)) return false;
  origins().pin_keys(table);
  const Ref keys = Ref::steal(PyDict_Keys(table));
  for (Py_ssize_t i = 0; keys && tracing() && i < PyList_GET_SIZE(keys.get()); ++i) {
    if (!watch_contents(PyList_GET_ITEM(keys.get(), i), Reading::kEqual)) return false;
  }
  return static_cast<bool>(keys);
}

PyObject* Tracer::contains(Frame&, PyObject* container, PyObject* item, bool invert) {
  if (!reads().break_if_moved(container)) return nullptr;
  if (tracing() && is_symbolic_number(item) && !numbers().holds_numbers(container)) settle_in(item);
  if (tracing() && (numpy().numpy_value(container) || numpy().numpy_inside(item) ||
                    (!PyDict_Check(container) && numpy().numpy_inside(container)))) {
    return numpy().numpy_break("a search among arrays");
  }
  if (tracing()) {
    origins().pin(item);
    PyObject* mapping = viewed_mapping(container);
    PyObject* table =
        mapping != nullptr && std::strcmp(Py_TYPE(container)->tp_name, "dict_values") != 0 ? mapping : container;
    if (mapping != nullptr) origins().find_parts(container);
    if (PyDict_CheckExact(table) && is_atom(item, api_) && !born(table) && !origins().contents_guarded(table)) {
      trace_->watches.dict_key(table, item);
    } else {
      if (!reads().watch_searched(container, table) || (tracing() && !reads().watch_contents(item, Reading::kEqual)))
        return nullptr;
      if (!tracing()) return not_handled();
      const Ref found = numbers().number_in(container, item);
      if (found) return PyBool_FromLong((found.get() == Py_True) != invert);
    }
  }
  return not_handled();
}

/// NumPy would take a symbolic integer for an object of its own kind.
void NumberTracing::settle_for_arrays(PyObject* left, PyObject* right) {
  if (trace_->symbols.empty() || api_.numpy == nullptr) return;
  if (is_symbolic_number(left) && numpy().numpy_value(right)) settle_in(left);
  if (is_symbolic_number(right) && numpy().numpy_value(left)) settle_in(right);
}

PyObject* Tracer::compare(Frame&, int op, PyObject* left, PyObject* right) {
  if (tracing()) {
    numbers().settle_operands(left, right);
    if (!tracing()) return not_handled();
    numbers().settle_for_arrays(left, right);
    if (PyObject* done = numpy().numpy_compare(op, left, right); done != not_handled()) return done;
  }
  if (tracing()) {
    if (!trace_->symbols.empty()) {
      PyObject* result = numbers().symbolic_compare(op, left, right);
      if (result != not_handled()) return result;
    }
    if (!reads().watch_contents(left, Reading::kEqual) ||
        (tracing() && !reads().watch_contents(right, Reading::kEqual)))
      return nullptr;
  }
  return not_handled();
}

int Tracer::truth(Frame&, PyObject* value) {
  if (tracing() && numpy().numpy_value(value)) return graph_break("truth of an array") ? kNotHandled : -1;
  return !tracing() || reads().watch_contents(value, Reading::kItems) ? kNotHandled : -1;
}

PyObject* Tracer::get_len(Frame&, PyObject* object) {
  return !tracing() || reads().watch_contents(object, Reading::kItems) ? not_handled() : nullptr;
}

PyObject* Tracer::match_keys(Frame&, PyObject* subject, PyObject*) {
  return !tracing() || reads().watch_contents(subject, Reading::kItems) ? not_handled() : nullptr;
}

/// Looks the attributes up that a class pattern reads.
PyObject* Tracer::match_class(Frame&, PyObject* subject, PyObject* type, Py_ssize_t positional, PyObject* names) {
  if (!tracing() || !PyType_Check(type)) return not_handled();
  static PyObject* const places = PyUnicode_InternFromString("__match_args__");
  if (!reads().watch_contents(subject, Reading::kItems)) return nullptr;
  if (!tracing()) return not_handled();
  reads().watch_lookup(type, places);
  const Ref args = attr_or_null(type, "__match_args__");
  for (Py_ssize_t i = 0; args && PyTuple_Check(args.get()) && i < positional && i < PyTuple_GET_SIZE(args.get()); ++i) {
    reads().watch_lookup(subject, PyTuple_GET_ITEM(args.get(), i));
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i) reads().watch_lookup(subject, PyTuple_GET_ITEM(names, i));
  return not_handled();
}

PyObject* Tracer::import_from(Frame&, PyObject* module, PyObject* name) {
  if (tracing()) reads().watch_lookup(module, name);
  return not_handled();
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
  numbers().settle_operands(left, right);
  constexpr int kRemainderOp = 6, kRemainderInplace = 19;
  const bool text = PyUnicode_Check(left) || PyBytes_Check(left) || PyByteArray_Check(left);
  if (text && (op == kRemainderOp || op == kRemainderInplace)) numbers().settle_reachable(right);
  if (!tracing()) return not_handled();
  numbers().settle_for_arrays(left, right);
  if (PyObject* done = numpy().numpy_binary(op, left, right); done != not_handled()) return done;
  if (!tracing()) return not_handled();
  if (!trace_->symbols.empty()) {
    PyObject* result = numbers().symbolic_binary(op, left, right);
    if (result != not_handled()) return result;
  }
  if (api_.is_tensor(left) || api_.is_tensor(right)) return not_handled();
  constexpr int kFirstInplace = 13;  // NB_INPLACE_ADD
  if (op >= kFirstInplace && (PyList_Check(left) || PyDict_Check(left) || PySet_Check(left) || is_deque(left))) {
    return writes().inplace_operator(op, left, right);
  }
  if (!reads().watch_contents(left, Reading::kItems) ||
      (tracing() && !reads().watch_contents(right, text ? Reading::kAll : Reading::kItems)))
    return nullptr;
  if (!tracing()) return not_handled();
  if (!is_container(left) && !is_container(right)) return not_handled();
  const binaryfunc make = container_operator(op);
  if (make == nullptr) return not_handled();
  PyObject* result = make(left, right);
  origins().note_result(result);
  return result;
}

void Tracer::on_build(Frame&, BuildKind kind, PyObject* object) {
  if (!tracing()) return;
  if (kind == BuildKind::kFilled) {
    if (born(object)) origins().adopt_parts(object);
    return;
  }
  mark_born(object);
  if (kind != BuildKind::kSet && kind != BuildKind::kDict) return;
  origins().pin_keys(object);
  if (api_.numpy == nullptr) return;
  const Ref keys = Ref::steal(PySequence_List(object));
  if (keys && numpy().numpy_inside(keys.get())) {
    trace_->mutated = true;  // it is made already
    if (!graph_break("the hash of a NumPy value")) postpone_error();
  }
}

/// A display or comprehension that a break has cut in two goes on filling its container: for real, as no later call of a
/// graph would.
bool ReadTracing::break_if_begun(PyObject* container) {
  return !tracing() || born(container) || graph_break("a comprehension or display begun before the graph goes on");
}

int Tracer::list_append(Frame&, PyObject* list, PyObject*) { return reads().break_if_begun(list) ? kNotHandled : -1; }

int Tracer::list_extend(Frame&, PyObject* list, PyObject* iterable) {
  if (!reads().break_if_begun(list)) return -1;
  if (tracing() && numpy().numpy_value(iterable)) return graph_break("an array is unpacked") ? kNotHandled : -1;
  if (tracing() && !reads().watch_contents(iterable, Reading::kItems)) return -1;
  return reads().break_if_moved(iterable) ? kNotHandled : -1;
}
int Tracer::set_update(Frame&, PyObject* set, PyObject* iterable) {
  if (!reads().break_if_begun(set)) return -1;
  if (tracing() && numpy().numpy_inside(iterable)) return graph_break("the hash of a NumPy value") ? kNotHandled : -1;
  if (tracing() && !reads().watch_contents(iterable, Reading::kEqual)) return -1;
  return reads().break_if_moved(iterable) ? kNotHandled : -1;
}
int Tracer::dict_update(Frame&, PyObject* dict, PyObject* mapping) {
  if (!reads().break_if_begun(dict)) return -1;
  return !tracing() || reads().watch_contents(mapping, Reading::kItems) ? kNotHandled : -1;
}
int Tracer::dict_merge(Frame&, PyObject* dict, PyObject* mapping, PyObject*) {
  if (!reads().break_if_begun(dict)) return -1;
  return !tracing() || reads().watch_contents(mapping, Reading::kItems) ? kNotHandled : -1;
}

PyObject* Tracer::for_iter(Frame&, PyObject* iterator) {
  if (!tracing()) return not_handled();
  if (PyObject* done = numpy().numpy_iterate(iterator); done != not_handled()) return done;
  if (!reads().outside_iterator(iterator)) {
    if (context_.frames.back() != context_.root && !writes().touch(iterator)) return nullptr;
    return not_handled();
  }
  return reads().break_if_moved(iterator) ? not_handled() : nullptr;
}

}  // namespace tatara::capture
