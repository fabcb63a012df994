#include "capture/backward_wait.h"

#include "capture/interrupts.h"
#include "capture/torch_api.h"
#include "support/made_once.h"

namespace tatara::capture {
namespace {

/// What the engine calls when a pass is over, and drops if it fails.
struct PassObject {
  PyObject_HEAD SignalsWait* wait;
};

void end_wait(PyObject* object) {
  auto* pass = reinterpret_cast<PassObject*>(object);
  delete pass->wait;
  pass->wait = nullptr;
}

void pass_dealloc(PyObject* object) {
  end_wait(object);
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyObject* pass_call(PyObject* object, PyObject*, PyObject*) {
  end_wait(object);
  Py_RETURN_NONE;
}

PyTypeObject* pass_type() {
  return made_once([] {
    static PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(pass_dealloc)},
                                  {Py_tp_call, reinterpret_cast<void*>(pass_call)},
                                  {0, nullptr}};
    static PyType_Spec spec = {"tatara._core.Pass", sizeof(PassObject), 0, Py_TPFLAGS_DEFAULT, slots};
    return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  });
}

/// Functions of the host; leaked, as others that are used to the end. Null where the host lacks one.
PyObject* present_pass() {
  return made_once([] { return attr_or_null(TorchApi::get()->core.get(), "_current_graph_task_id").release(); });
}

PyObject* queue_callback() {
  return made_once([]() -> PyObject* {
    const Ref autograd = attr_or_null(TorchApi::get()->torch.get(), "autograd");
    const Ref variable = autograd ? attr_or_null(autograd.get(), "Variable") : Ref();
    const Ref engine = variable ? attr_or_null(variable.get(), "_execution_engine") : Ref();
    return engine ? attr_or_null(engine.get(), "queue_callback").release() : nullptr;
  });
}

}  // namespace

void wait_for_engine() {
  thread_local long waited_for = -1;
  if (!handles_signals() || present_pass() == nullptr || queue_callback() == nullptr) return;
  const Ref id = Ref::steal(PyObject_CallNoArgs(present_pass()));
  const long pass = id ? PyLong_AsLong(id.get()) : -1;
  if (pass >= 0 && pass != waited_for) {
    auto* object = PyObject_New(PassObject, pass_type());
    if (object != nullptr) object->wait = new SignalsWait;
    const Ref held = Ref::steal(reinterpret_cast<PyObject*>(object));
    const Ref queued = Ref::steal(held ? PyObject_CallOneArg(queue_callback(), held.get()) : nullptr);
    if (queued) waited_for = pass;
  }
  forget_error();
}

}  // namespace tatara::capture
