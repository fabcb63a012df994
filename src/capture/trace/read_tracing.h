// What the program and code in C read of older objects becomes object guards (tracer_objects.cpp, tracer_origins.cpp,
// tracer_calls.cpp).
#pragma once

#include <initializer_list>
#include <string_view>

#include "capture/trace/trace_context.h"

namespace tatara::capture {

struct TracedCall;

class ReadTracing final : public TraceFeature {
 public:
  using TraceFeature::TraceFeature;

  void watch_container(PyObject* object, bool ordered = true);
  /// Torch and NumPy read the lists and dicts that are operands, or in operands.
  void watch_lists(std::initializer_list<PyObject*> operands);
  /// How many items it has, or whether any, becomes a guard. False with a Python error set.
  bool watch_size(PyObject* object);
  void watch_class_of(PyObject* object);
  /// What code in C may read of it becomes a guard. Where it cannot, the graph breaks. False with a Python error set.
  bool watch_contents(PyObject* object, Reading reading);
  bool watch_function(Frame& f);
  /// Guards what is found; with `number` a placeholder may stand for it, which is returned as a new reference.
  PyObject* watch_lookup(PyObject* owner, PyObject* name, bool number = false);
  PyObject* watch_class(PyTypeObject* type, PyObject* name, bool number);
  void watch_older_classes(PyTypeObject* type, PyObject* name);
  void watch_all(PyObject* owner);
  void watch_getter(PyObject* getter, PyObject* owner);
  PyObject* call_attribute(PyObject* callable, PyObject* target, PyObject* const* args, Py_ssize_t nargs);
  bool is_raw_memory(PyObject* object) const;
  bool break_if_begun(PyObject* container);
  bool outside_iterator(PyObject* object) const;
  /// Iterators from before the trace would not be moved on by a later run. False with a Python error set.
  bool break_if_moved(PyObject* iterator);
  bool break_if_state(PyObject* owner, PyObject* name);
  bool break_if_moved(PyObject* callable, PyObject* const* args, Py_ssize_t count);
  void pin_operands(const CallPlan& plan, PyObject* callable, PyObject* const* args, Py_ssize_t nargs);
  bool watch_searched(PyObject* container, PyObject* table);
  bool watch_operands(const TracedCall& call, const CallPlan& plan);
  /// dict.get() and the like: watches the key.
  bool reads_one_key(const TracedCall& call, const CallPlan& plan);
  /// dict.get() of a place that held another object before: what it gives, as a new reference; null: watched as others.
  PyObject* number_at_key(const TracedCall& call, const CallPlan& plan);
  /// A value becomes text: not_handled(), once what it shows is watched.
  PyObject* show(PyObject* value);

 private:
  struct Settling;

  void settle(PyObject* object, Settling& work);
  void watch_lists_in(PyObject* operand, int depth);
  void watch_exception(PyObject* error);
  bool found_by_class(Frame& f, PyObject* function);
  PyObject* watch_found(PyObject* owner, PyObject* name, bool number);
  PyObject* watch_module(PyObject* module, PyObject* name, bool number);
  PyObject* watch_in_dict(PyObject* owner, PyObject* name, bool number, PyObject* made);
  void find_in_class(PyObject* value);
  void watch_super(PyObject* super, PyObject* name);
  void watch_value(PyObject* owner, PyObject* name);
  void watch_deque(PyObject* deque);
  PyObject* watch_slot(PyObject* owner, PyObject* descriptor, PyObject* name);
  void watch_own_dict(PyObject* owner);
  void watch_tensor_attribute(PyObject* tensor, PyObject* name);

  bool looking_up_ = false;  // what a look-up's own hooks look up is no read of the program's
};

}  // namespace tatara::capture
