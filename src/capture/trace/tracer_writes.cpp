// The tracer's view of writes. What was made in the trace just changes; a write to what existed before happens for real
// and is noted as an effect, in terms of C code, or breaks the graph.
#include <opcode.h>

#include <cmath>
#include <cstring>
#include <string_view>
#include <unordered_set>

#include "capture/entries/class_watch.h"
#include "capture/host/known_calls.h"
#include "capture/host/natures.h"
#include "capture/trace/call_tracing.h"
#include "capture/trace/gradient_tracing.h"
#include "capture/trace/history_tracing.h"
#include "capture/trace/iterator_tracing.h"
#include "capture/trace/lifetime_tracing.h"
#include "capture/trace/number_tracing.h"
#include "capture/trace/numpy_tracing.h"
#include "capture/trace/origin_tracing.h"
#include "capture/trace/read_tracing.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/transform_tracing.h"
#include "capture/trace/turn_tracing.h"
#include "capture/trace/write_tracing.h"

namespace tatara::capture {
namespace {

/// The method that the type has for `name`; borrowed, null without one.
PyObject* method_of(PyTypeObject* type, const char* name) {
  const Ref key = Ref::steal(PyUnicode_InternFromString(name));
  return key ? _PyType_Lookup(type, key.get()) : nullptr;
}

/// A method written in Python: the virtual machine runs it, and sees what it writes.
bool has_python_method(PyTypeObject* type, const char* name) {
  PyObject* found = method_of(type, name);
  return found != nullptr && !PyObject_TypeCheck(found, &PyWrapperDescr_Type) &&
         !PyObject_TypeCheck(found, &PyMethodDescr_Type);
}

/// Assignment through a descriptor that runs Python code only.
bool is_python_descriptor(PyObject* descriptor, bool deletes) {
  if (Py_TYPE(descriptor) == &PyProperty_Type) {
    const Ref function = attr_or_null(descriptor, deletes ? "fdel" : "fset");
    return function && (PyFunction_Check(function.get()) || function.get() == Py_None);
  }
  PyTypeObject* type = Py_TYPE(descriptor);
  return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && has_python_method(type, deletes ? "__delete__" : "__set__");
}

/// A NaN is found by its identity alone, and each one that a program computes is another key.
bool is_nan(PyObject* key) {
  const bool real = PyFloat_Check(key) || is_symbolic_float(key);
  return real && std::isnan(reinterpret_cast<PyFloatObject*>(key)->ob_fval);
}

/// Hashing and comparing it runs no code of the program.
bool hashes_plainly(PyObject* key, const TorchApi& api) {
  if (is_nan(key)) return false;
  if (is_atom(key, api)) return true;
  if (PyTuple_CheckExact(key)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i) {
      if (!hashes_plainly(PyTuple_GET_ITEM(key, i), api)) return false;
    }
    return true;
  }
  const PyTypeObject* type = Py_TYPE(key);
  return type->tp_hash == PyBaseObject_Type.tp_hash || (type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0 ||
         api.is_tensor(key);
}

bool is_plain_sequence(PyObject* object) {
  return PyList_CheckExact(object) || PyTuple_CheckExact(object) || PyAnySet_CheckExact(object) ||
         PyDict_CheckExact(object) || PyRange_Check(object);
}

/// Whether a dict is given what it has at that key, so that nothing ends.
bool puts_back(PyObject* target, std::string_view method, std::span<PyObject* const> operands) {
  if (method != "__setitem__" || operands.size() != 2 || !PyDict_CheckExact(target)) return false;
  return PyUnicode_CheckExact(operands[0]) && PyDict_GetItemWithError(target, operands[0]) == operands[1];
}

}  // namespace

int WriteTracing::write_break(const std::string& reason) { return graph_break(reason) ? kNotHandled : -1; }

/// A later call finds the result in the cache and does not write. So what writes is no part of a graph.
bool WriteTracing::break_before_write(PyObject* target) {
  if (context_.ahead != nullptr) return graph_break("it writes to what existed before (" + type_name(target) + ")");
  if (!calls().in_cached()) return iterators().break_if_iterated(target);
  return graph_break("a function with a cache (functools.lru_cache) writes to what existed before (" +
                     type_name(target) + ")");
}

void WriteTracing::note_effect(Effect effect) {
  effect.nodes = trace_->tape.nodes().size();
  trace_->effects.push_back(std::move(effect));
}

void WriteTracing::note_call(PyTypeObject* type, PyObject* target, const char* method,
                             std::initializer_list<PyObject*> operands) {
  Effect effect{Effect::Kind::kCall, Ref::borrow(target), Ref::borrow(method_of(type, method)), {}};
  for (PyObject* operand : operands) effect.operands.push_back(Ref::borrow(operand));
  note_effect(std::move(effect));
}

// ---- Attributes and variables ----------------------------------------------------------------------------------------

int WriteTracing::set_attribute(PyObject* owner, PyObject* name, PyObject* value) {
  if (!tracing()) return kNotHandled;
  if (is_symbolic_number(owner)) settle_in(owner);  // an error
  PyTypeObject* type = Py_TYPE(owner);
  PyObject* setter = _PyType_Lookup(type, name);
  if (setter != nullptr && Py_TYPE(setter) == &PyGetSetDescr_Type && !api_.is_tensor(owner))
    numbers().settle_reachable(value);
  if (!tracing()) return kNotHandled;
  if (type->tp_setattro != PyObject_GenericSetAttr) {
    if (born(owner)) {
      if (!touch(owner)) return -1;
      return kNotHandled;
    }
    if (!PyType_Check(owner) && (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 &&
        has_python_method(type, value != nullptr ? "__setattr__" : "__delattr__")) {
      trace_->object_guards.type(reinterpret_cast<PyObject*>(type), name);
      return kNotHandled;
    }
    if (PyType_Check(owner)) return write_class_attribute(owner, name, value);
    return write_break("write to an attribute of an object that existed before the trace (" + type_name(owner) + ")");
  }
  return write_attribute(owner, name, value);
}

/// Plain data of a class in the place of plain data: no other look-up changes by it.
int WriteTracing::write_class_attribute(PyObject* owner, PyObject* name, PyObject* value) {
  auto* const type = reinterpret_cast<PyTypeObject*>(owner);
  PyTypeObject* const metaclass = Py_TYPE(owner);
  PyObject* const dict = class_dict(type);
  PyObject* const before = dict != nullptr ? PyDict_GetItemWithError(dict, name) : nullptr;
  forget_error();
  const auto plain = [](PyObject* o) { return o != nullptr && (is_plain_data(o) || is_symbolic_number(o)); };
  const bool known = PyUnicode_Check(name) && metaclass->tp_setattro == PyType_Type.tp_setattro &&
                     (type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) == 0 && _PyType_Lookup(metaclass, name) == nullptr &&
                     !text_of(name).starts_with("__");
  if (!known || !plain(before) || !plain(value) || !origins().reachable(owner)) {
    return write_break("write to an attribute of an object that existed before the trace (" + type_name(owner) + ")");
  }
  if (!break_before_write(owner)) return -1;
  if (!tracing()) return kNotHandled;
  reads().watch_class(metaclass, name, false);
  trace_->transaction.on_undo([held = Ref::borrow(owner), name = Ref::borrow(name), value = Ref::borrow(before)] {
    return PyType_Type.tp_setattro(held.get(), name.get(), value.get()) == 0;
  });
  if (PyType_Type.tp_setattro(owner, name, value) != 0) return -1;
  own_.class_attributes.emplace(dict, name);
  note_call(&PyType_Type, owner, "__setattr__", {name, value});
  return 0;
}

int WriteTracing::write_attribute(PyObject* owner, PyObject* name, PyObject* value) {
  Trace& t = *trace_;
  const bool tensor = api_.is_tensor(owner);
  PyTypeObject* type = Py_TYPE(owner);
  PyObject* descriptor = _PyType_Lookup(type, name);
  if (tensor && descriptor != nullptr && PyUnicode_CompareWithASCIIString(name, "grad") == 0) {
    return gradients().write_gradient(owner, value);
  }
  if (tensor && descriptor != nullptr && PyUnicode_CompareWithASCIIString(name, "data") == 0 &&
      histories().keeps_data(owner, value))
    return 0;
  if (tensor && transforms().open_levels().empty() && descriptor != nullptr &&
      PyUnicode_CompareWithASCIIString(name, "requires_grad") == 0 && value != nullptr) {
    const Ref given = Ref::steal(PyTuple_Pack(2, owner, value));
    const Ref require = attr(reinterpret_cast<PyObject*>(api_.base_type), "requires_grad_");
    if (gradients().changes_nothing(given.get(), nullptr) || gradients().switch_leaf(given.get(), nullptr) ||
        (tracing() && gradients().make_leaf(require.get(), given.get(), nullptr))) {
      return 0;
    }
    if (!tracing()) return kNotHandled;
  }
  if (tensor && (descriptor != nullptr || api_.is_numpy(owner))) {
    return write_break("assignment to a tensor's attribute " + text_of(name));
  }
  if (!tensor && born(owner)) {
    reads().watch_older_classes(type, name);
    if (!touch(owner)) return -1;
    return kNotHandled;
  }
  if (!lifetimes().break_if_noticed(own_attribute(owner, name))) return -1;
  if (!tracing()) return kNotHandled;
  reads().watch_class(type, name, false);
  PyObject* place = owner;  // whose keys the trace remembers
  Ref dict;
  if (descriptor != nullptr && Py_TYPE(descriptor)->tp_descr_set != nullptr) {
    if (Py_TYPE(descriptor) != &PyMemberDescr_Type) {
      if (is_python_descriptor(descriptor, value == nullptr)) return kNotHandled;
      return write_break("assignment to " + text_of(name) + ", which runs C code, of an object (" + type_name(owner) +
                         ")");
    }
  } else {
    dict = Ref::steal(PyObject_GenericGetDict(owner, nullptr));
    if (!dict || !PyDict_CheckExact(dict.get())) {
      forget_error();
      return kNotHandled;  // an error in the program
    }
    place = dict.get();
  }
  if (diverts_warnings(owner, name, value)) return write_break("warnings that go elsewhere (" + text_of(name) + ")");
  if (!break_before_write(owner)) return -1;
  if (!tracing()) return kNotHandled;
  if (!origins().reachable(owner))
    return write_break("write to an object whose origin is not known (" + type_name(owner) + ")");
  if (place == owner) {
    t.object_guards.before_slot(owner, name);
  } else {
    t.object_guards.before_write(place);
  }
  if (PyObject_GenericSetAttr(owner, name, value) != 0) return -1;
  t.object_guards.written(place, name);
  Effect effect{Effect::Kind::kAttribute, Ref::borrow(owner), Ref::borrow(name), {}};
  if (value != nullptr) effect.operands.push_back(Ref::borrow(value));
  note_effect(std::move(effect));
  return 0;
}

int Tracer::write_name(Frame& f, NameScope scope, PyObject* name, PyObject* value) {
  if (tracing()) turns().writes_to(nullptr, nullptr);
  if (!tracing() || scope != NameScope::kGlobal) return kNotHandled;
  PyObject* globals = f.globals();
  if (!PyDict_CheckExact(globals) || born(globals))
    return writes().write_break("assignment to the global " + text_of(name));
  if (!writes().break_before_write(globals) || !lifetimes().break_if_noticed(PyDict_GetItem(globals, name))) return -1;
  if (!tracing()) return kNotHandled;
  ObjectGuards& object_guards = trace_->object_guards;
  if (value == nullptr) {
    object_guards.dict_key(globals, name);
    if (PyDict_Contains(globals, name) != 1) return kNotHandled;  // a NameError
  }
  object_guards.before_write(globals);
  if ((value != nullptr ? PyDict_SetItem(globals, name, value) : PyDict_DelItem(globals, name)) != 0) return -1;
  object_guards.written(globals, name);
  if (value != nullptr) {
    writes().note_call(&PyDict_Type, globals, "__setitem__", {name, value});
  } else {
    writes().note_call(&PyDict_Type, globals, "__delitem__", {name});
  }
  return 0;
}

int Tracer::write_cell(Frame& f, int, PyObject* cell, PyObject* value) {
  if (!tracing()) return kNotHandled;
  turns().writes_to(cell, nullptr);
  if (born(cell)) {
    if (&f != context_.root && !writes().touch(cell)) return -1;
    return kNotHandled;
  }
  if (!writes().break_before_write(cell) || !lifetimes().break_if_noticed(PyCell_GET(cell))) return -1;
  if (!tracing()) return kNotHandled;
  if (!origins().reachable(cell))
    return writes().write_break("assignment to a closure variable whose origin is not known");
  trace_->object_guards.before_write(cell);
  Effect effect{Effect::Kind::kCell, Ref::borrow(cell), {}, {}};
  if (value != nullptr) effect.operands.push_back(Ref::borrow(value));
  writes().note_effect(std::move(effect));
  return PyCell_Set(cell, value);
}

// ---- Containers ------------------------------------------------------------------------------------------------------

int Tracer::write_subscr(Frame&, PyObject* container, PyObject* key, PyObject* value) {
  if (tracing()) {
    if (const int done = numpy().numpy_set_item(container, key, value); done != kNotHandled) return done;
  }
  if (!tracing() || api_.is_tensor(container)) return kNotHandled;
  turns().writes_to(container, key);
  if (!numbers().holds_numbers(container)) {
    if (born(container) || !numbers().is_free_key(container, key)) numbers().settle_reachable(key);
    if (!is_defaultdict(container)) numbers().settle_reachable(value);
    if (!tracing()) return kNotHandled;
  }
  return writes().write_item(container, key, value);
}

int WriteTracing::write_item(PyObject* container, PyObject* key, PyObject* value) {
  if (born(container)) {
    if (!touch(container)) return -1;
    return kNotHandled;
  }
  const char* name = value != nullptr ? "__setitem__" : "__delitem__";
  PyTypeObject* type = Py_TYPE(container);
  trace_->object_guards.type(reinterpret_cast<PyObject*>(type), Ref::steal(PyUnicode_InternFromString(name)).get());
  PyObject* method = method_of(type, name);
  if (method == nullptr || has_python_method(type, name)) return kNotHandled;
  PyObject* operands[] = {key, value};
  const auto perform = [=]() -> PyObject* {
    const int status = value != nullptr ? PyObject_SetItem(container, key, value) : PyObject_DelItem(container, key);
    return status == 0 ? Py_NewRef(Py_None) : nullptr;
  };
  auto* base = reinterpret_cast<PyTypeObject*>(reinterpret_cast<PyDescrObject*>(method)->d_type);
  const size_t count = value != nullptr ? 2 : 1;
  PyObject* done = mutate(base, container, name, {operands, count}, false, perform);
  if (done == not_handled()) return kNotHandled;
  Py_XDECREF(done);
  return done != nullptr ? 0 : -1;
}

PyObject* WriteTracing::mutate(PyTypeObject* type, PyObject* target, const std::string& name,
                               std::span<PyObject* const> operands, bool keywords, const Perform& perform) {
  if (!break_before_write(target)) return nullptr;
  if (!tracing()) return not_handled();
  const bool container = PyList_Check(target) || PyDict_Check(target) || PySet_Check(target) || is_deque(target);
  const bool known = container && origins().reachable(target);
  if (!known || name == "__init__" || name == "__setstate__") {
    const char* what = container && !known ? " on an object whose origin is not known ("
                                           : " on an object that existed before the trace (";
    return graph_break(name + what + type_name(target) + ")") ? not_handled() : nullptr;
  }
  if ((name_traits(name) & kAdds) == 0 && !puts_back(target, name, operands) && !lifetimes().break_if_noticed(target))
    return nullptr;
  if (!tracing()) return not_handled();
  for (PyObject* operand : operands) {
    reads().watch_container(operand);
    if (name == "discard" || name == "remove") origins().pin(operand);
  }
  if (PyList_Check(target)) return mutate_list(target, name, operands, perform);
  if (PyDict_Check(target)) return mutate_dict(type, target, name, operands, keywords, perform);
  return mutate_other(target, name, operands, perform);
}

PyObject* WriteTracing::rewrite(PyObject* target, const Perform& perform) {
  ObjectGuards& object_guards = trace_->object_guards;
  reads().watch_container(target, false);
  object_guards.before_write(target);
  PyObject* result = perform();
  if (result == nullptr || !tracing()) return result;
  Effect effect{Effect::Kind::kContents, Ref::borrow(target), {}, {}};
  const Ref items = Ref::steal(PyDict_Check(target) ? PyDict_Items(target) : PySequence_List(target));
  for (Py_ssize_t i = 0; items && i < PyList_GET_SIZE(items.get()); ++i) {
    PyObject* item = PyList_GET_ITEM(items.get(), i);
    if (PyDict_Check(target)) {
      effect.operands.push_back(Ref::borrow(PyTuple_GET_ITEM(item, 0)));
      item = PyTuple_GET_ITEM(item, 1);
    }
    effect.operands.push_back(Ref::borrow(item));
  }
  object_guards.written_all(target);
  note_effect(std::move(effect));
  origins().note_result(result);
  return result;
}

PyObject* WriteTracing::mutate_list(PyObject* target, const std::string& name, std::span<PyObject* const> operands,
                                    const Perform& perform) {
  ObjectGuards& object_guards = trace_->object_guards;
  if (name == "append" && operands.size() == 1) {
    object_guards.before_write(target);
    PyObject* done = perform();
    if (done != nullptr) note_call(&PyList_Type, target, "append", {operands[0]});
    return done;
  }
  if (name == "extend" && operands.size() == 1 && is_plain_sequence(operands[0])) {
    const Ref items = Ref::steal(PySequence_List(operands[0]));
    if (!items) return nullptr;
    mark_born(items.get());
    object_guards.before_write(target);
    PyObject* done = perform();
    if (done != nullptr) note_call(&PyList_Type, target, "extend", {items.get()});
    return done;
  }
  if (name == "__setitem__" && operands.size() == 2 && PyLong_CheckExact(operands[0]) && PyList_CheckExact(target)) {
    Py_ssize_t index = PyLong_AsSsize_t(operands[0]);
    if (index == -1) forget_error();
    if (index < 0) index += PyList_GET_SIZE(target);
    const Ref key = Ref::steal(PyLong_FromSsize_t(index));
    if (!origins().contents_watched(target)) object_guards.list_size(target);
    object_guards.before_write(target);
    PyObject* done = perform();
    if (done == nullptr) return nullptr;
    object_guards.written(target, key.get());
    note_call(&PyList_Type, target, "__setitem__", {key.get(), operands[1]});
    return done;
  }
  return rewrite(target, perform);
}

PyObject* WriteTracing::mutate_dict(PyTypeObject* type, PyObject* target, const std::string& name,
                                    std::span<PyObject* const> operands, bool keywords, const Perform& perform) {
  ObjectGuards& object_guards = trace_->object_guards;
  const auto unclear = [&](const char* why) {
    return graph_break(name + " on a dict that existed before the trace" + why) ? not_handled() : nullptr;
  };
  if ((name == "__setitem__" || name == "__delitem__") && !keywords && numbers().has_free_key(target, operands[0])) {
    return write_free_key(type, target, name, operands, perform);
  }
  const Ref key = operands.empty() ? Ref() : plain_int(operands[0]);
  if (key && !PyDict_Check(key.get()) && !is_plain_sequence(key.get()) && !hashes_plainly(key.get(), api_)) {
    return unclear(": its key has a hash of its own");
  }
  const bool set = name == "__setitem__" && operands.size() == 2;
  if (set || name == "__delitem__" || name == "pop" || name == "setdefault") {
    if (!key || keywords) return not_handled();  // an error in the program
    if (name == "setdefault") {
      PyObject* value = PyDict_CheckExact(target) && PyUnicode_CheckExact(key.get())
                            ? PyDict_GetItemWithError(target, key.get())
                            : nullptr;
      PyObject* number = value != nullptr ? numbers().watched({target, key.get()}, value) : nullptr;
      if (number != nullptr) return number;
    }
    origins().pin(operands[0]);
    if (!set && !origins().contents_watched(target)) numbers().watch_key(target, key.get());
    const int had = PyDict_Contains(target, key.get());
    if (had < 0) return nullptr;
    object_guards.before_write(target);
    PyObject* done = perform();
    if (done == nullptr) return nullptr;
    if (set || (name == "setdefault" && had == 0)) {
      note_call(type, target, "__setitem__", {key.get(), set ? operands[1] : done});
      object_guards.written(target, key.get());
    } else if (name != "setdefault" && had == 1) {
      note_call(type, target, "__delitem__", {key.get()});
      object_guards.written(target, key.get());
    }
    return done;
  }
  if ((name == "update" || name == "__ior__") && operands.size() == 1 && PyDict_CheckExact(operands[0]) && !keywords) {
    const Ref items = Ref::steal(PyDict_Copy(operands[0]));
    if (!items) return nullptr;
    PyObject *each = nullptr, *value = nullptr;
    Py_ssize_t at = 0;
    while (PyDict_Next(items.get(), &at, &each, &value) != 0) {
      if (!hashes_plainly(each, api_)) return unclear(": a key has a hash of its own");
    }
    mark_born(items.get());
    object_guards.before_write(target);
    PyObject* done = perform();
    if (done == nullptr) return nullptr;
    at = 0;
    while (PyDict_Next(items.get(), &at, &each, &value) != 0) object_guards.written(target, each);
    note_call(type, target, "update", {items.get()});
    return done;
  }
  if (name == "_count_elements" && operands.size() == 1) return count_elements(target, operands[0], perform);
  if (is_ordered_dict(target) && name == "popitem") return pop_item(target, perform);
  if (is_ordered_dict(target) && name == "move_to_end" && key) {
    origins().pin(operands[0]);
    if (!origins().contents_watched(target)) numbers().watch_key(target, key.get());
    object_guards.before_write(target);
    PyObject* done = perform();
    if (done == nullptr) return nullptr;
    const std::vector<Ref> keys = ordered_keys(target);
    const bool first = !keys.empty() && PyObject_RichCompareBool(keys.front().get(), key.get(), Py_EQ) == 1;
    note_call(type, target, "move_to_end", {key.get(), first ? Py_False : Py_True});
    return done;
  }
  if (is_ordered_dict(target)) return unclear(" (OrderedDict)");
  return rewrite(target, perform);
}

/// Takes an item off an end of an OrderedDict: which it is, its order says.
PyObject* WriteTracing::pop_item(PyObject* target, const Perform& perform) {
  reads().watch_container(target, false);
  trace_->object_guards.before_write(target);
  PyObject* done = perform();
  if (done == nullptr || !tracing()) return done;
  PyObject* const key = PyTuple_GET_ITEM(done, 0);
  note_call(&PyODict_Type, target, "__delitem__", {key});
  trace_->object_guards.written(target, key);
  origins().note_result(done);
  return done;
}

PyObject* WriteTracing::mutate_other(PyObject* target, const std::string& name, std::span<PyObject* const> operands,
                                     const Perform& perform) {
  PyTypeObject* base = PySet_Check(target) ? &PySet_Type : Py_TYPE(target);
  const bool set = PySet_Check(target);
  if (set) {
    for (PyObject* operand : operands) {
      if (hashes_plainly(operand, api_) || is_plain_sequence(operand)) continue;
      return graph_break(name + ": an item has a hash of its own") ? not_handled() : nullptr;
    }
  }
  // Which item that is depends on more than the items that the guards compare: on how the set came to them.
  if (set && name == "pop" && PySet_GET_SIZE(target) > 1) {
    return graph_break("set.pop() on a set that existed before the trace") ? not_handled() : nullptr;
  }
  const bool one = set ? name == "add" || name == "discard" : name == "append" || name == "appendleft";
  if (one && operands.size() == 1) {
    trace_->object_guards.before_write(target);
    PyObject* done = perform();
    if (done != nullptr) note_call(base, target, name.c_str(), {operands[0]});
    return done;
  }
  if (!set && name.substr(0, 6) != "extend" && name != "pop" && name != "popleft" && name != "clear" &&
      name != "rotate" && name != "__setitem__" && name != "__delitem__" && name != "insert" && name != "remove") {
    return graph_break(name + " on a deque that existed before the trace") ? not_handled() : nullptr;
  }
  return rewrite(target, perform);
}

PyObject* WriteTracing::default_item(PyObject* dict, PyObject* key) {
  const int had = PyDict_Contains(dict, key);
  if (had < 0) return nullptr;
  ObjectGuards& object_guards = trace_->object_guards;
  const bool old = !born(dict), guarded = old && origins().contents_watched(dict);
  if (old && !guarded) {
    if (!hashes_plainly(key, api_) || !origins().reachable(dict)) {
      return graph_break("an item of a defaultdict whose origin is not known") ? not_handled() : nullptr;
    }
    PyObject* value = PyUnicode_CheckExact(key) ? PyDict_GetItemWithError(dict, key) : nullptr;
    PyObject* made = value != nullptr ? numbers().watched({dict, key}, value) : nullptr;
    if (made != nullptr) return made;
    object_guards.dict_key(dict, key);
  }
  if (had == 1) return not_handled();
  if (old && !break_before_write(dict)) return nullptr;
  if (!tracing()) return not_handled();
  if (old && !guarded) {  // a function that the frame of this call is to know
    static PyObject* const name = PyUnicode_InternFromString("default_factory");
    const Ref maker = attr_or_null(dict, "default_factory");
    object_guards.attribute(dict, name, maker.get());
    if (maker) origins().find(maker.get());
  }
  if (old) object_guards.before_write(dict);
  PyObject* value = PyObject_GetItem(dict, key);
  if (value == nullptr || !tracing()) return value;
  constexpr Py_ssize_t kDictAndHere = 2;
  if (Py_REFCNT(value) <= kDictAndHere && !is_atom(value, api_) && !api_.is_tensor(value)) mark_born(value);
  if (old) {
    object_guards.written(dict, key);
    note_call(&PyDict_Type, dict, "__setitem__", {key, value});
  } else {
    static_cast<void>(touch(dict));
  }
  return value;
}

PyObject* WriteTracing::inplace_operator(int op, PyObject* left, PyObject* right) {
  static const char* const kNames[] = {"__iadd__", "__iand__",     "__ifloordiv__", "__ilshift__", "__imatmul__",
                                       "__imul__", "__imod__",     "__ior__",       "__ipow__",    "__irshift__",
                                       "__isub__", "__itruediv__", "__ixor__"};
  if (born(left)) {
    if (!touch(left)) return nullptr;
    return not_handled();
  }
  const char* name = kNames[op - NB_INPLACE_ADD];
  PyObject* method = method_of(Py_TYPE(left), name);
  // Without one the result is a new object.
  if (method == nullptr || has_python_method(Py_TYPE(left), name)) return not_handled();
  const auto perform = [=]() -> PyObject* {
    const Ref done = Ref::steal(PyObject_CallFunctionObjArgs(method, left, right, nullptr));
    return done ? Py_NewRef(left) : nullptr;
  };
  // NotImplemented, and what follows from it, is the evaluator's own affair.
  if (!PyList_Check(left) && Py_TYPE(right) != Py_TYPE(left)) {
    return graph_break(std::string(name) + " on an object that existed before the trace (" + type_name(left) + ")")
               ? not_handled()
               : nullptr;
  }
  auto* base = reinterpret_cast<PyTypeObject*>(reinterpret_cast<PyDescrObject*>(method)->d_type);
  PyObject* operands[] = {right};
  return mutate(base, left, op == NB_INPLACE_ADD ? "extend" : name, operands, false, perform);
}

// ---- Calls -----------------------------------------------------------------------------------------------------------

PyObject* WriteTracing::call_mutator(Frame& f, PyObject* callable, const CallPlan& plan,
                                     std::span<PyObject* const> args, bool keywords, const Perform& perform) {
  if (plan.target == nullptr) return not_handled();
  const bool bound = is_bound_in_c(callable) && !(PyCFunction_Check(callable) && plan.function);
  const std::span<PyObject* const> operands = bound && plan.type != nullptr ? args : args.subspan(1);
  const auto as_call = [](int status) -> PyObject* {
    if (status == kNotHandled) return not_handled();
    return status == 0 ? Py_NewRef(Py_None) : nullptr;
  };
  if (plan.type == nullptr) {  // setattr and delattr
    if (operands.empty() || !PyUnicode_Check(operands[0])) return not_handled();
    return as_call(set_attribute(plan.target, operands[0], operands.size() > 1 ? operands[1] : nullptr));
  }
  if (born(plan.target) && !api_.is_tensor(plan.target)) {
    if (!touch(plan.target)) return nullptr;
    PyObject* done = perform();
    if (done != nullptr && tracing()) origins().adopt_added(plan.target, plan.name);
    return done;
  }
  // super().__init__() and the like on the object that is being made.
  if (plan.name == "__init__" && trace_->index_of(plan.target) < 0 &&
      std::strcmp(PyUnicode_AsUTF8(f.code()->co_name), "__init__") == 0) {
    mark_born(plan.target);
    return not_handled();
  }
  if ((plan.name == "__setattr__" || plan.name == "__delattr__") && plan.type->tp_setattro == PyObject_GenericSetAttr &&
      !operands.empty() && PyUnicode_Check(operands[0])) {
    return as_call(write_attribute(plan.target, operands[0], operands.size() > 1 ? operands[1] : nullptr));
  }
  return mutate(plan.type, plan.target, plan.name, operands, keywords, perform);
}

}  // namespace tatara::capture
