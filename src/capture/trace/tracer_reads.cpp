// The instructions that read objects, compare them or make containers, while a trace is open: what existed before becomes
// object guards.
#include <cstring>
#include <optional>
#include <string>
#include <unordered_set>

#include "capture/host/natures.h"
#include "capture/trace/iterator_tracing.h"
#include "capture/trace/number_tracing.h"
#include "capture/trace/numpy_tracing.h"
#include "capture/trace/origin_tracing.h"
#include "capture/trace/read_tracing.h"
#include "capture/trace/trace_ends.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/turn_tracing.h"
#include "capture/trace/write_tracing.h"

namespace tatara::capture {

PyObject* Tracer::read_name(Frame& f, PyObject* name, PyObject* dict, PyObject* value) {
  if (tracing() && dict == f.builtins() && f.globals() != dict && !born(f.globals())) {
    trace_->object_guards.dict_key(f.globals(), name);  // which has none of this name
  }
  if (tracing() && PyDict_CheckExact(dict) && !born(dict)) {
    if (PyObject* made = numbers().watched({dict, name}, value)) return made;
    trace_->object_guards.dict_key(dict, name);
  }
  return not_handled();
}

PyObject* Tracer::read_cell(Frame&, int, PyObject* cell, PyObject* value) {
  const auto known = [this](PyObject* o) { return trace_->index_of(o) >= 0; };
  if (tracing() && !born(cell) && !(known(cell) && (!origins().is_in_cell(value) || known(value)))) {
    if (PyObject* made = numbers().watched({cell}, value)) return made;
    trace_->object_guards.cell(cell);
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

/// Whether an item of it is looked up as in a plain dict: also in a Counter, whose class says only what a missing one is.
static bool finds_as_dicts_do(PyObject* container) {
  if (!PyDict_Check(container) || PyDict_CheckExact(container)) return PyDict_CheckExact(container);
  static PyObject* const name = PyUnicode_InternFromString("__getitem__");
  return !is_ordered_dict(container) && _PyType_Lookup(Py_TYPE(container), name) == _PyType_Lookup(&PyDict_Type, name);
}

PyObject* Tracer::read_subscr(Frame&, PyObject* container, PyObject* key) {
  if (tracing()) turns().reads(container, key);
  if (tracing() && !api_.is_tensor(container)) turns().looks_up(key);
  if (tracing()) {
    if (PyObject* done = numpy().numpy_get_item(container, key); done != not_handled()) return done;
  }
  if (tracing()) {
    if (PyObject* found = numbers().free_item(container, key); found != not_handled()) return found;
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
  if (!api_.is_tensor(container)) origins().pin(key);
  if (PyObject* mapping = viewed_mapping(container)) {
    origins().find_parts(container);
    container = mapping;
  }
  if (is_context(container)) return reads().watch_contents(container, Reading::kItems) ? not_handled() : nullptr;
  if (born(container) || origins().contents_watched(container)) return not_handled();
  if (finds_as_dicts_do(container) && is_atom(key, api_)) {
    PyObject* value = PyUnicode_CheckExact(key) ? PyDict_GetItemWithError(container, key) : nullptr;
    PyObject* made = value != nullptr ? numbers().watched({container, key}, value) : nullptr;
    if (made != nullptr) return made;
    trace_->object_guards.dict_key(container, key);
  } else if (PyList_CheckExact(container) && PyLong_CheckExact(key)) {
    const Py_ssize_t index = PyLong_AsSsize_t(key);
    if (index == -1) forget_error();
    const Py_ssize_t place = index < 0 ? index + PyList_GET_SIZE(container) : index;
    if (place >= 0 && place < PyList_GET_SIZE(container)) {
      PyObject* made = numbers().watched({container, nullptr, place}, PyList_GET_ITEM(container, place));
      if (made != nullptr) {
        trace_->object_guards.list_size(container);
        return made;
      }
    }
    trace_->object_guards.list_item(container, place);
  } else if (!reads().watch_contents(container, Reading::kItems)) {
    return nullptr;
  }
  return not_handled();
}

PyObject* Tracer::get_iter(Frame&, PyObject* iterable) {
  if (!tracing()) return not_handled();
  turns().reads(iterable);
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
  return trace_->index_of(object) >= 0 || trace_->object_guards.seen_objects().contains(object);
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
  turns().odd("a generator");
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
    turns().reads(sequence);
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
  if (tracing()) {
    turns().reads(container, item);
    if (!PyUnicode_CheckExact(item)) turns().looks_up(item);
    const std::optional<bool> found = numbers().has_free_key(container, item);
    if (found) return PyBool_FromLong(*found != invert);
    numbers().settle_free_keys(container);
  }
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
    if (PyDict_CheckExact(table) && is_atom(item, api_) && !born(table) && !origins().contents_watched(table)) {
      numbers().watch_key(table, item);
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
    turns().reads(left, right);
    numbers().settle_operands(left, right);
    numbers().settle_free_keys(left);
    numbers().settle_free_keys(right);
    if (!tracing()) return not_handled();
    numbers().settle_for_arrays(left, right);
    if (PyObject* done = numpy().numpy_compare(op, left, right); done != not_handled()) return done;
  }
  if (tracing()) {
    if (!trace_->symbols.empty()) {
      PyObject* result = numbers().symbolic_compare(op, left, right);
      ends().note_decision();
      if (result != not_handled()) return result;
    }
    if (!reads().watch_contents(left, Reading::kEqual) ||
        (tracing() && !reads().watch_contents(right, Reading::kEqual)))
      return nullptr;
  }
  return not_handled();
}

int Tracer::truth(Frame&, PyObject* value) {
  if (tracing()) turns().reads(value);
  if (tracing() && is_symbolic_number(value)) {
    const int result = PyObject_IsTrue(value);
    if (tracing()) ends().note_decision();
    return result;
  }
  if (tracing() && numpy().numpy_value(value)) return graph_break("truth of an array") ? kNotHandled : -1;
  return !tracing() || reads().watch_size(value) ? kNotHandled : -1;
}

PyObject* Tracer::get_len(Frame&, PyObject* object) {
  if (tracing()) turns().reads(object);
  return !tracing() || reads().watch_size(object) ? not_handled() : nullptr;
}

PyObject* Tracer::match_keys(Frame&, PyObject* subject, PyObject*) {
  turns().odd("a match");
  return !tracing() || reads().watch_contents(subject, Reading::kItems) ? not_handled() : nullptr;
}

/// Looks the attributes up that a class pattern reads.
PyObject* Tracer::match_class(Frame&, PyObject* subject, PyObject* type, Py_ssize_t positional, PyObject* names) {
  turns().odd("a match");
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
  turns().reads(left, right);
  numbers().settle_operands(left, right);
  numbers().settle_free_keys(left);
  numbers().settle_free_keys(right);
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
    turns().writes_to(left, nullptr);
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
  turns().builds(kind, object);
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

int Tracer::list_append(Frame&, PyObject* list, PyObject* value) {
  if (tracing()) turns().appends(list, value);
  return reads().break_if_begun(list) ? kNotHandled : -1;
}

int Tracer::list_extend(Frame&, PyObject* list, PyObject* iterable) {
  if (tracing()) turns().writes_to(list, nullptr);
  if (tracing()) turns().reads(iterable);
  if (!reads().break_if_begun(list)) return -1;
  if (tracing() && numpy().numpy_value(iterable)) return graph_break("an array is unpacked") ? kNotHandled : -1;
  if (tracing() && !reads().watch_contents(iterable, Reading::kItems)) return -1;
  if (tracing() && numbers().extend_by_table(list, iterable)) return 0;
  return reads().break_if_moved(iterable) ? kNotHandled : -1;
}
int Tracer::set_update(Frame&, PyObject* set, PyObject* iterable) {
  turns().odd("a set");
  if (!reads().break_if_begun(set)) return -1;
  if (tracing() && numpy().numpy_inside(iterable)) return graph_break("the hash of a NumPy value") ? kNotHandled : -1;
  if (tracing() && !reads().watch_contents(iterable, Reading::kEqual)) return -1;
  return reads().break_if_moved(iterable) ? kNotHandled : -1;
}
int Tracer::dict_update(Frame&, PyObject* dict, PyObject* mapping) {
  if (tracing()) turns().writes_to(dict, nullptr);
  if (!reads().break_if_begun(dict)) return -1;
  return !tracing() || reads().watch_contents(mapping, Reading::kItems) ? kNotHandled : -1;
}
int Tracer::dict_merge(Frame&, PyObject* dict, PyObject* mapping, PyObject*) {
  if (tracing()) turns().writes_to(dict, nullptr);
  if (!reads().break_if_begun(dict)) return -1;
  return !tracing() || reads().watch_contents(mapping, Reading::kItems) ? kNotHandled : -1;
}

PyObject* Tracer::for_iter(Frame& f, PyObject* iterator) {
  if (!tracing()) return not_handled();
  if (PyObject* done = numpy().numpy_iterate(iterator); done != not_handled()) return done;
  if (!reads().outside_iterator(iterator)) {
    if (context_.frames.back() != context_.root && !writes().touch(iterator)) return nullptr;
    return turns().step(f, iterator);
  }
  if (reads().is_raw_memory(iterator)) return reads().break_if_moved(iterator) ? not_handled() : nullptr;
  turns().odd("an iterator from before the trace");
  return iterators().step(iterator);
}

}  // namespace tatara::capture
