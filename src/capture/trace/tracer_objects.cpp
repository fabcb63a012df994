// Look-ups of attributes and contents of what existed before the trace become object guards.
#include <cstring>
#include <string>
#include <unordered_set>

#include "capture/entries/lifetimes.h"
#include "capture/host/natures.h"
#include "capture/trace/number_tracing.h"
#include "capture/trace/numpy_tracing.h"
#include "capture/trace/origin_tracing.h"
#include "capture/trace/read_tracing.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/turn_tracing.h"
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
  if (origins().contents_watched(object)) return;
  if (PyCell_Check(object)) {
    t.object_guards.cell(object);
  } else if (is_namespace(object)) {
    const Ref attributes = Ref::steal(PyObject_GenericGetDict(object, nullptr));
    if (!attributes) return forget_error();
    t.object_guards.instance(object, true);
    t.object_guards.dict_all(attributes.get());
  } else if (PyDict_Check(object)) {
    t.object_guards.dict_all(object);
  } else if (PyList_Check(object)) {
    t.object_guards.list(object);
  } else if (PyAnySet_Check(object)) {
    t.object_guards.set(object, ordered);
  } else if (is_deque(object)) {
    watch_deque(object);
  } else if (PyTuple_Check(object)) {
    origins().find_parts(object);
  }
}

/// Tensors and containers in a deque may be other ones in each call, as those at other places.
void ReadTracing::watch_deque(PyObject* deque) {
  ObjectGuards& object_guards = trace_->object_guards;
  const Ref items = object_guards.items_before(deque);
  std::vector<bool> elsewhere(items ? static_cast<size_t>(PyList_GET_SIZE(items.get())) : 0);
  for (size_t i = 0; i < elsewhere.size() && !numbers().varying().empty(); ++i) {
    const auto at = static_cast<Py_ssize_t>(i);
    elsewhere[i] = numbers().watch_item({deque, nullptr, at}, PyList_GET_ITEM(items.get(), at));
  }
  object_guards.deque(deque, std::move(elsewhere));
}

bool ReadTracing::watch_size(PyObject* object) {
  static PyObject* const length = PyUnicode_InternFromString("__len__");
  const bool list = PyList_CheckExact(object);
  const bool dict =
      PyDict_Check(object) && _PyType_Lookup(Py_TYPE(object), length) == _PyType_Lookup(&PyDict_Type, length);
  if ((!list && !dict) || born(object) || origins().contents_watched(object))
    return watch_contents(object, Reading::kItems);
  if (list) trace_->object_guards.list_size(object);
  if (dict) trace_->object_guards.dict_size(object);
  return true;
}

void ReadTracing::watch_lists(std::initializer_list<PyObject*> operands) {
  for (PyObject* operand : operands) watch_lists_in(operand, 0);
}

void ReadTracing::watch_lists_in(PyObject* operand, int depth) {
  constexpr int kMostNested = 8;  // torch takes no list in itself
  if (operand == nullptr || depth > kMostNested) return;
  const bool items = PyList_Check(operand) || PyTuple_Check(operand) || PyAnySet_Check(operand);
  if (!items && !PyDict_Check(operand) && !is_deque(operand)) return;
  if (depth > 0 && !PyTuple_Check(operand)) watch_container(operand);  // first comes the call's own tuple or dict
  for (PyObject* part : referents(operand)) watch_lists_in(part, depth + 1);
}

/// Whether `owner.name` is what the instance's (or module's) dict has under that name, if it has it.
static bool found_in_dict(PyObject* owner, PyObject* name) {
  static PyObject* const getter = PyUnicode_InternFromString("__getattribute__");
  PyTypeObject* type = Py_TYPE(owner);
  PyObject* hook = _PyType_Lookup(type, getter);
  const bool plain = hook == _PyType_Lookup(&PyBaseObject_Type, getter) ||
                     type->tp_getattro == PyObject_GenericGetAttr || PyModule_Check(owner);
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
  PyObject* const own = class_dict(type);
  if (own != nullptr && writes().has_written(own, name)) return nullptr;
  PyObject* dict = number && !numbers().varying().empty() ? defining_dict(type, name) : nullptr;
  if (dict != nullptr && writes().has_written(dict, name)) dict = nullptr;
  PyObject* value = dict != nullptr ? PyDict_GetItem(dict, name) : nullptr;
  PyObject* found = _PyType_Lookup(type, name);
  PyObject* made = value != nullptr && value == found ? numbers().watched({dict, name}, value) : nullptr;
  origins().find(reinterpret_cast<PyObject*>(type));  // it is what its object is guarded to be of
  if (made != nullptr) return made;
  t.object_guards.type(reinterpret_cast<PyObject*>(type), name);
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
  if (!born(own.get())) trace_->object_guards.type(own.get(), name);
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
  trace_->object_guards.attribute(owner, name, value.get());
}

/// A slot (`__slots__`) that held another object before: a placeholder, or what it holds, as a new reference. Null: watched as others.
PyObject* ReadTracing::watch_slot(PyObject* owner, PyObject* descriptor, PyObject* name) {
  if (Py_TYPE(descriptor) != &PyMemberDescr_Type || numbers().varying().empty()) return nullptr;
  // A place holds its owner.
  if (!origins().is_same_in_each_call(owner) || is_held_weakly(owner)) return nullptr;
  const Ref value = Ref::steal(PyObject_GenericGetAttr(owner, name));
  if (!value) forget_error();
  return numbers().watched({owner, name}, value.get());
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
  if (PyFunction_Check(owner)) origins().pin(owner);  // a guard speaks of its code, its defaults and its cells alone
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
  if (origins().is_same_in_each_call(owner) && is_python_made(type)) t.object_guards.instance(owner, false);
  if (descriptor != nullptr && PyUnicode_CompareWithASCIIString(name, "__class__") == 0) {
    origins().find(reinterpret_cast<PyObject*>(type));
  }
  const bool class_number = descriptor != nullptr && (PyLong_CheckExact(descriptor) || PyFloat_CheckExact(descriptor));
  const bool symbolic = number && class_number && found_in_dict(owner, name) && own_attribute(owner, name) == nullptr;
  PyObject* made = watch_class(type, name, symbolic);
  const bool structured =
      PyDict_Check(owner) || PyTuple_Check(owner) || is_plain_instance(owner) || is_slotted_instance(owner);
  if (structured && origins().contents_guarded(owner)) return made;
  if (PyMethod_Check(owner) || PyCode_Check(owner)) {  // these never change
    origins().find_parts(owner);
    return made;
  }
  if (!looks_up_in_dicts(type) || (descriptor != nullptr && is_read_in_c(descriptor))) {
    if (has_instance_dict(owner) && PyUnicode_CompareWithASCIIString(name, "__dict__") == 0 &&
        !is_thread_local(owner)) {
      watch_own_dict(owner);
    } else if (PyUnicode_CompareWithASCIIString(name, "__class__") != 0) {
      PyObject* const found = number && descriptor != nullptr ? watch_slot(owner, descriptor, name) : nullptr;
      if (found != nullptr) return found;
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
  trace_->object_guards.instance(owner, true);
  origins().find(dict.get());
}

PyObject* ReadTracing::watch_module(PyObject* module, PyObject* name, bool number) {
  static PyObject* const getter = PyUnicode_InternFromString("__getattr__");
  PyObject* dict = PyModule_GetDict(module);
  if (PyDict_GetItemWithError(dict, name) == nullptr) {
    forget_error();
    trace_->object_guards.dict_key(dict, getter);
  }
  if (Py_TYPE(module) != &PyModule_Type) {
    watch_class(Py_TYPE(module), name, false);
    trace_->object_guards.instance(module, false);
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
  if (!module && origins().is_same_in_each_call(owner)) t.object_guards.instance(owner, true);
  if (made == nullptr && number && PyDict_CheckExact(dict.get()) && !numbers().varying().empty() &&
      found_in_dict(owner, name)) {
    PyObject* symbol = numbers().watched({dict.get(), name}, PyDict_GetItem(dict.get(), name));
    if (symbol != nullptr) return symbol;
  }
  t.object_guards.dict_key(dict.get(), name);
  return made;
}

/// vars() and dir().
void ReadTracing::watch_all(PyObject* owner) {
  if (born(owner)) return origins().adopt_dict(owner);
  PyObject* type = PyType_Check(owner) ? owner : reinterpret_cast<PyObject*>(Py_TYPE(owner));
  if (!born(type)) trace_->object_guards.type(type, nullptr);
}

void ReadTracing::watch_tensor_attribute(PyObject* tensor, PyObject* name) {
  Trace& t = *trace_;
  if (PyUnicode_CompareWithASCIIString(name, "__dict__") == 0) return watch_own_dict(tensor);
  if (_PyType_Lookup(Py_TYPE(tensor), name) != nullptr) return;
  const int slot = t.tape.find(tensor);
  if (t.tape.makes(slot)) return;
  if (const int index = t.index_of(tensor); index >= 0) return t.object_guards.tensor_attribute(index, tensor, name);
  const Ref dict = Ref::steal(PyObject_GenericGetDict(tensor, nullptr));
  if (!dict) return forget_error();
  t.object_guards.dict_key(dict.get(), name);
}

int Tracer::write_attr(Frame&, PyObject* owner, PyObject* name, PyObject* value) {
  if (tracing()) turns().writes_to(owner, nullptr);
  return writes().set_attribute(owner, name, value);
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
      if (object == nullptr || own_.by_identity.contains(object)) continue;
      // Classes of dicts and tuples have a __dict__ beside their items.
      const bool beside = (PyDict_Check(object) && !PyDict_CheckExact(object)) ||
                          (PyTuple_Check(object) && !PyTuple_CheckExact(object));
      if (!(beside && has_instance_dict(object)) && !is_plain_instance(object)) continue;
      const Ref attributes = Ref::steal(PyObject_GenericGetDict(object, nullptr));
      if (!attributes) forget_error();
      if (attributes) own_.instance_dicts.emplace(attributes.get(), object);
    }
  }
  const auto found = own_.instance_dicts.find(dict);
  return found == own_.instance_dicts.end() ? nullptr : found->second;
}

bool OriginTracing::reachable(PyObject* object) { return origin(object) != Origin::kUnknown; }

}  // namespace tatara::capture
