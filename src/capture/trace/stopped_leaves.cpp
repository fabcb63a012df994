// Leaves from before the trace that no longer require grad: `requires_grad_(False)`, and back. Until then calls get what detach()
// gives of them, so nothing else knows of it. The flag itself is set when the tape has run.
#include <algorithm>

#include "capture/host/natures.h"
#include "capture/trace/gradient_tracing.h"
#include "capture/trace/history_tracing.h"
#include "capture/trace/torch_tracing.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/transform_tracing.h"
#include "capture/trace/write_tracing.h"

namespace tatara::capture {
namespace {

/// What requires_grad_() is asked for; null: its arguments are others.
PyObject* wanted_flag(PyObject* args, PyObject* kwargs) {
  PyObject* wanted = PyTuple_GET_SIZE(args) == 2 ? PyTuple_GET_ITEM(args, 1) : Py_True;
  const Py_ssize_t named = kwargs != nullptr ? PyDict_GET_SIZE(kwargs) : 0;
  if (named == 1 && PyTuple_GET_SIZE(args) == 1) wanted = PyDict_GetItemString(kwargs, "requires_grad");
  const bool plain = PyTuple_GET_SIZE(args) >= 1 && PyTuple_GET_SIZE(args) + named <= 2;
  return plain && wanted != nullptr && PyBool_Check(wanted) ? wanted : nullptr;
}

bool writes_in_place(const std::string& name) {
  return name.starts_with("__i") || name == "__setitem__" || (name.ends_with('_') && !name.ends_with("__"));
}

}  // namespace

void GradientTracing::note_flag(PyObject* tensor, PyObject* flag) {
  static PyObject* const name = PyUnicode_InternFromString("requires_grad");
  Effect effect{Effect::Kind::kAttribute, Ref::borrow(tensor), Ref::borrow(name), {Ref::borrow(flag)}};
  effect.later = true;
  writes().note_effect(std::move(effect));
}

bool GradientTracing::switch_leaf(PyObject* args, PyObject* kwargs) {
  static PyObject* const detach = attr(reinterpret_cast<PyObject*>(api_.base_type), "detach").release();
  Trace& t = *trace_;
  PyObject* const wanted = wanted_flag(args, kwargs);
  if (wanted == nullptr) return false;
  PyObject* const tensor = PyTuple_GET_ITEM(args, 0);
  const int known = t.tape.find(tensor);
  if (wanted == Py_True) {
    if (!is_stopped(known)) return false;
    own_.stopped.erase(known);
    note_flag(tensor, Py_True);
    return true;
  }
  if (!api_.is_torch_tensor(tensor) || !api_.is_plain_tensor(tensor) || t.tape.makes(known) || t.in_inference() ||
      !transforms().open_levels().empty() || t.tape.has_regions() || t.tape.has_custom_backwards() ||
      is_numpy_tape(t.tape) || context_.ahead != nullptr || context_.dry_run || !histories().lacks_history(tensor)) {
    return false;
  }
  if (histories().older_needs_grad(tensor) != NeedsGrad::kYes) return false;
  const Ref self = Ref::steal(PyTuple_Pack(1, tensor));
  Ref made = Ref::steal(torch().torch_function(detach, self.get(), nullptr));
  forget_error();
  if (!made || !tracing()) return false;
  const int slot = t.tape.find(tensor);
  if (slot < 0 || !t.tape.makes(t.tape.find(made.get()))) return false;
  own_.stopped[slot] = made;
  own_.placeholders[made.get()] = Ref::borrow(tensor);
  note_flag(tensor, Py_False);
  return true;
}

std::string GradientTracing::why_not_into(const std::vector<int>& leaves) const {
  const bool stopped = std::any_of(leaves.begin(), leaves.end(), [this](int slot) { return is_stopped(slot); });
  return stopped ? "through a leaf that no longer requires grad" : std::string();
}

int GradientTracing::operand_slot(int slot) const {
  const auto found = own_.stopped.find(slot);
  return found == own_.stopped.end() ? slot : trace_->tape.find(found->second.get());
}

bool GradientTracing::writes_to_stopped(int slot, const std::string& name, PyObject* kwargs) const {
  return is_stopped(slot) && (writes_in_place(name) || (kwargs != nullptr && PyDict_GetItemString(kwargs, "out")));
}

PyObject* GradientTracing::program_object(PyObject* result) const {
  const auto found = result == nullptr ? own_.placeholders.end() : own_.placeholders.find(result);
  if (found == own_.placeholders.end()) return result;
  Py_DECREF(result);
  return Py_NewRef(found->second.get());
}

}  // namespace tatara::capture
