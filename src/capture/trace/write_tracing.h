// Writes while a trace is open (tracer_writes.cpp, switches.cpp): done here and noted as effects, or a graph break and left to
// the VM (kNotHandled, not_handled()).
#pragma once

#include <functional>
#include <initializer_list>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "capture/trace/trace_context.h"

namespace tatara::capture {

class WriteTracing final : public TraceFeature {
 public:
  using TraceFeature::TraceFeature;

  using Perform = std::function<PyObject*()>;

  /// A switch of the host's: thrown, and noted as an effect.
  PyObject* throw_switch(PyObject* callable, PyObject* const* args, Py_ssize_t nargs, Py_ssize_t keywords);
  bool may_set(const std::string& setter, PyObject* const* args, Py_ssize_t nargs) const;
  /// Whether the trace has given the setting that this call reads another value.
  bool has_set(PyObject* getter, PyObject* const* args, size_t count) const {
    return setting_of(getter, args, count) != nullptr;
  }
  /// Gives the switches that the trace has thrown the state that they had before it.
  void undo_switches();
  void drop_undone_switches();
  /// Whether the module `warnings` has other filters than where the trace began.
  bool has_changed_filters() const;
  /// Something made in the trace changes.
  /// False with a Python error set: what is traced ahead changes nothing.
  bool touch(PyObject* object);
  int write_break(const std::string& reason);
  int set_attribute(PyObject* owner, PyObject* name, PyObject* value);
  int write_item(PyObject* container, PyObject* key, PyObject* value);
  PyObject* call_mutator(Frame& f, PyObject* callable, const CallPlan& plan, std::span<PyObject* const> args,
                         bool keywords, const Perform& perform);
  /// An item of a defaultdict, which it may make.
  PyObject* default_item(PyObject* dict, PyObject* key);
  PyObject* inplace_operator(int op, PyObject* left, PyObject* right);
  void note_effect(Effect effect);
  void note_call(PyTypeObject* type, PyObject* target, const char* method, std::initializer_list<PyObject*> operands);
  /// Where a write to an older object can be no part of a graph, this breaks it. False with a Python error set.
  bool break_before_write(PyObject* target);

  /// Whether the trace has given the class with this dict the attribute.
  bool has_written(PyObject* class_dict, PyObject* name) const {
    return own_.class_attributes.contains({class_dict, name});
  }

  /// Nothing is left of the last trace.
  void reset() { own_ = {}; }

 private:
  /// One that the trace has changed. The functions are torch's, for good.
  struct Setting {
    PyObject *setter, *getter;
    std::vector<Ref> which;
    Ref start;
  };
  const Setting* setting_of(PyObject* getter, PyObject* const* args, size_t count) const;
  PyObject* throw_setting(PyObject* callable, PyObject* const* args, Py_ssize_t nargs);
  void drop_settings();

  int write_attribute(PyObject* owner, PyObject* name, PyObject* value);
  bool diverts_warnings(PyObject* owner, PyObject* name, PyObject* value);
  int write_class_attribute(PyObject* owner, PyObject* name, PyObject* value);
  /// The method `name` of the C type `type` on `target`.
  PyObject* mutate(PyTypeObject* type, PyObject* target, const std::string& name, std::span<PyObject* const> operands,
                   bool keywords, const Perform& perform);
  PyObject* mutate_list(PyObject* target, const std::string& name, std::span<PyObject* const> operands,
                        const Perform& perform);
  PyObject* pop_item(PyObject* target, const Perform& perform);
  PyObject* count_elements(PyObject* target, PyObject* names, const Perform& perform);
  PyObject* mutate_dict(PyTypeObject* type, PyObject* target, const std::string& name,
                        std::span<PyObject* const> operands, bool keywords, const Perform& perform);
  PyObject* write_free_key(PyTypeObject* type, PyObject* target, const std::string& name,
                           std::span<PyObject* const> operands, const Perform& perform);
  PyObject* mutate_other(PyObject* target, const std::string& name, std::span<PyObject* const> operands,
                         const Perform& perform);
  /// The write depends on what the object holds: its contents become a guard, and the result the effect.
  PyObject* rewrite(PyObject* target, const Perform& perform);

  /// Of one trace.
  struct Own {
    Ref hooks_at_start;  // why hooks on saved tensors were refused, once a switch of theirs is thrown
    std::vector<Setting> settings;
    bool hooks_thrown = false;  // such switches are among the effects
    Ref filters_at_start;       // of the module `warnings`, once the trace has written others
    std::set<std::pair<PyObject*, PyObject*>> class_attributes;
  };
  Own own_;
};

}  // namespace tatara::capture
