// The extension `_tatara_vm`: the bytecode VM alone, for tests and measurements.
#include <Python.h>

#include <memory>
#include <vector>

#include "capture/vm/vm.h"
#include "stress_observer.h"

namespace {

using tatara::capture::vm_context;

PyObject* enable(PyObject*, PyObject*) {
  tatara::capture::vm_install();
  Py_RETURN_NONE;
}

PyObject* disable(PyObject*, PyObject*) {
  tatara::capture::vm_uninstall();
  Py_RETURN_NONE;
}

PyObject* eval_default(PyThreadState* tstate, _PyInterpreterFrame* frame, int throwflag) {
  return _PyEval_EvalFrameDefault(tstate, frame, throwflag);
}

PyObject* enable_hook_only(PyObject*, PyObject*) {
  _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), eval_default);
  Py_RETURN_NONE;
}

PyObject* observe(PyObject*, PyObject* argument) {
  // Kept for good: frames that are still running point to it.
  static std::vector<std::unique_ptr<tatara::capture::VmObserver>> observers;
  if (argument == Py_None) {
    vm_context().observer = nullptr;
    Py_RETURN_NONE;
  }
  const char* mode = PyUnicode_AsUTF8(argument);
  if (mode == nullptr) return nullptr;
  std::unique_ptr<tatara::capture::VmObserver> observer = tatara::capture::make_observer(mode);
  if (observer == nullptr) return PyErr_Format(PyExc_ValueError, "no observer named %s", mode);
  vm_context().observer = observer.get();
  observers.push_back(std::move(observer));
  Py_RETURN_NONE;
}

PyObject* stats(PyObject*, PyObject*) {
  const tatara::capture::StressCounts& counts = tatara::capture::stress_counts();
  return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:K}", "frames", vm_context().frames, "instructions",
                       vm_context().instructions, "entered", counts.entered, "left", counts.left, "hooks", counts.hooks,
                       "actions", counts.actions);
}

PyMethodDef methods[] = {
    {"enable", enable, METH_NOARGS, "Run every frame of this interpreter in the VM."},
    {"disable", disable, METH_NOARGS, "Undo one enable()."},
    {"enable_hook_only", enable_hook_only, METH_NOARGS,
     "Install a frame evaluator that does nothing of its own: what differs then is PEP 523's doing."},
    {"observe", observe, METH_O, "Attach an observer by name to this thread (stress_observer.h), or None."},
    {"stats", stats, METH_NOARGS, "Frames and instructions executed by the VM in this thread."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_tatara_vm", "The bytecode VM alone.", -1, methods,
                          nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__tatara_vm(void) { return PyModule_Create(&definition); }
