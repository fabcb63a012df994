// The extension `_tatara_vm`: the bytecode VM alone, without an observer, for tests and measurements.
#include <Python.h>

#include "capture/vm.h"

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

PyObject* stats(PyObject*, PyObject*) {
  return Py_BuildValue("{s:K,s:K}", "frames", static_cast<unsigned long long>(vm_context().frames), "instructions",
                       static_cast<unsigned long long>(vm_context().instructions));
}

PyMethodDef methods[] = {
    {"enable", enable, METH_NOARGS, "Run every frame of this interpreter in the VM."},
    {"disable", disable, METH_NOARGS, "Undo one enable()."},
    {"enable_hook_only", enable_hook_only, METH_NOARGS,
     "Install a frame evaluator that does nothing of its own: what differs then is PEP 523's doing."},
    {"stats", stats, METH_NOARGS, "Frames and instructions executed by the VM in this thread."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_tatara_vm", "The bytecode VM alone.", -1, methods,
                          nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__tatara_vm(void) { return PyModule_Create(&definition); }
