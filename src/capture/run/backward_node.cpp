#include "capture/run/backward_node.h"

#include "capture/entries/guards.h"
#include "capture/host/torch_api.h"
#include "capture/run/node_names.h"
#include "capture/run/stage_groups.h"
#include "capture/vm/interrupts.h"
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

/// Handlers of signals wait until the engine is done with the present pass.
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

bool is_contiguous(const TensorRef& tensor) {
  int64_t step = 1;
  for (int d = tensor.rank - 1; d >= 0; --d) {
    if (tensor.sizes[d] == 1) continue;
    if (tensor.strides[d] != step) return false;
    step *= tensor.sizes[d];
  }
  return true;
}

/// The cotangents as a plan takes them: a tuple of contiguous tensors and None. None itself where one is not plain; null with a
/// Python error set.
Ref plain_cotangents(PyObject* args, const TorchApi& api) {
  Ref result = Ref::steal(PyTuple_New(PyTuple_GET_SIZE(args) - 1));
  for (Py_ssize_t i = 1; result && i < PyTuple_GET_SIZE(args); ++i) {
    PyObject* const given = PyTuple_GET_ITEM(args, i);
    Ref plain = Ref::borrow(given);
    if (given != Py_None) {
      TensorRef read;
      if (!api.is_plain_tensor(given) || !api.view(given, read)) return Ref::borrow(Py_None);
      if (!is_contiguous(read)) plain = Ref::steal(PyObject_CallMethod(given, "contiguous", nullptr));
      if (!plain) return {};
    }
    PyTuple_SET_ITEM(result.get(), i - 1, plain.release());
  }
  return result;
}

/// Cotangents of a group's results as those of all. Null with a Python error set.
Ref cotangents_of_all(const DescribedGroup& group, Ref own) {
  if (PyTuple_GET_SIZE(own.get()) == group.all_results()) return own;
  const Ref list = spread_list(own.get(), group.results(), group.all_results());
  return list ? Ref::steal(PyList_AsTuple(list.get())) : Ref();
}

/// The saved values, of which Python numbers are in the context (forward_node.cpp). Null with a Python error set.
Ref with_numbers(PyObject* context, Ref saved) {
  if (!PyTuple_Check(saved.get())) return saved;
  const Py_ssize_t size = PyTuple_GET_SIZE(saved.get());
  bool any = false;
  for (Py_ssize_t i = 0; i < size; ++i) any = any || PyTuple_GET_ITEM(saved.get(), i) == Py_None;
  const Ref numbers = any ? Ref::steal(PyObject_GetAttr(context, node_names().numbers)) : Ref();
  if (!any || !numbers) return any ? Ref() : std::move(saved);
  Ref filled = Ref::steal(PyTuple_New(size));
  for (Py_ssize_t i = 0; filled && i < size; ++i) {
    const Ref place = Ref::steal(PyLong_FromSsize_t(i));
    PyObject* const number = PyDict_GetItemWithError(numbers.get(), place.get());
    PyTuple_SET_ITEM(filled.get(), i, Py_NewRef(number != nullptr ? number : PyTuple_GET_ITEM(saved.get(), i)));
  }
  return filled;
}

/// CompiledNode.backward for what is usual. None where it is not; null with a Python error set.
Ref plain_backward(PyObject* args) {
  const TorchApi& api = *TorchApi::get();
  PyObject* const context = PyTuple_GET_ITEM(args, 0);
  const Ref none = Ref::borrow(Py_None);
  if (api.grad_enabled() || in_a_level(api) || in_a_dispatch_mode(api)) return none;
  const Ref stage = Ref::steal(PyObject_GetAttr(context, node_names().stage));
  const Ref layouts = stage ? Ref::steal(PyObject_GetAttr(stage.get(), node_names().layouts)) : Ref();
  const Ref needs = layouts ? Ref::steal(PyObject_GetAttr(context, node_names().needs_input_grad)) : Ref();
  if (!needs) return {};
  if (PyTuple_GET_SIZE(layouts.get()) != 0) return none;
  const Ref described = Ref::steal(PyObject_GetAttr(context, node_names().group));
  if (!described) return {};
  const DescribedGroup group(described.get());
  Ref cotangents = plain_cotangents(args, api);
  if (!cotangents || cotangents.get() == Py_None) return cotangents;
  if (!(cotangents = cotangents_of_all(group, std::move(cotangents)))) return {};
  bool any = false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(cotangents.get()); ++i) {
    any = any || PyTuple_GET_ITEM(cotangents.get(), i) != Py_None;
  }
  Ref gradients;
  if (any) {
    // The plan lets go of what is saved one by one, so nothing else may hold it, unless the graph is retained.
    Ref tensors =
        Ref::steal(PyObject_GetAttr(context, group.used_up() ? node_names().saved_tensors : node_names().kept_tensors));
    if (tensors) tensors = with_numbers(context, std::move(tensors));
    const Ref saved = tensors ? spread_list(tensors.get(), group.saved(), group.all_saved()) : Ref();
    if (!saved) return {};
    if (group.used_up() && !Ref::steal(PyObject_CallMethodNoArgs(context, node_names().maybe_clear_saved_tensors)))
      return {};
    tensors = Ref();
    gradients = Ref::steal(
        PyObject_CallMethodObjArgs(stage.get(), node_names().backward, saved.get(), cotangents.get(), nullptr));
    if (!gradients) return {};
  }
  const Py_ssize_t size = PyTuple_GET_SIZE(needs.get()), inputs = any ? PyTuple_GET_SIZE(gradients.get()) : 0;
  Ref result = Ref::steal(PyTuple_New(size));
  for (Py_ssize_t i = 0; result && i < size; ++i) {
    const Py_ssize_t from = i - (size - inputs);
    PyTuple_SET_ITEM(result.get(), i, Py_NewRef(from >= 0 ? PyTuple_GET_ITEM(gradients.get(), from) : Py_None));
  }
  return result;
}

PyObject* node_apply(PyObject*, PyObject* args) {
  Ref result = plain_backward(args);
  if (result.get() != Py_None) return result.release();
  wait_for_engine();  // what is unusual runs Python code
  const Ref node = Ref::steal(PyObject_GetAttrString(PyTuple_GET_ITEM(args, 0), "_forward_cls"));
  const Ref backward = node ? Ref::steal(PyObject_GetAttrString(node.get(), "backward")) : Ref();
  return backward ? PyObject_CallObject(backward.get(), args) : nullptr;
}

}  // namespace

PyObject* compiled_node_apply() {
  static PyMethodDef method = {"apply", node_apply, METH_VARARGS,
                               "apply(context, *cotangents)\n--\n\nThe gradients of the inputs of a compiled node."};
  const Ref function = Ref::steal(PyCFunction_New(&method, nullptr));
  return function ? PyInstanceMethod_New(function.get()) : nullptr;
}

}  // namespace tatara::capture
