#include "capture/run/graph_object.h"

#include "capture/graph/numpy/numpy_program.h"
#include "capture/host/errors.h"
#include "capture/host/torch_api.h"
#include "capture/vm/interrupts.h"
#include "support/error.h"
#include "support/made_once.h"

namespace tatara::capture {
namespace {

struct GraphObject {
  PyObject_HEAD std::shared_ptr<Tape>* tape;
  std::vector<std::string>* effects;
};

Tape& tape_of(PyObject* self) { return **reinterpret_cast<GraphObject*>(self)->tape; }

void graph_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  delete reinterpret_cast<GraphObject*>(self)->tape;
  delete reinterpret_cast<GraphObject*>(self)->effects;
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* graph_str(PyObject* self) {
  const SignalsWait wait;
  const std::string text = tape_of(self).str();
  return PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
}

PyObject* graph_call(PyObject* self, PyObject* args, PyObject*) {
  const SignalsWait wait;
  const Tape& tape = tape_of(self);
  const std::vector<int> inputs = input_slots(tape);
  if (PyTuple_GET_SIZE(args) != static_cast<Py_ssize_t>(inputs.size())) {
    PyErr_Format(PyExc_TypeError, "this graph takes %zu inputs (%zd given)", inputs.size(), PyTuple_GET_SIZE(args));
    return nullptr;
  }
  std::vector<Ref> env(tape.slots().size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    env[static_cast<size_t>(inputs[i])] = Ref::borrow(PyTuple_GET_ITEM(args, static_cast<Py_ssize_t>(i)));
  }
  TorchApi* api = TorchApi::get();
  if (api == nullptr || !tape.run(env, *api)) return nullptr;
  const std::vector<int> outputs = computed_outputs(tape);
  PyObject* result = PyTuple_New(static_cast<Py_ssize_t>(outputs.size()));
  for (size_t i = 0; i < outputs.size(); ++i) {
    PyTuple_SET_ITEM(result, static_cast<Py_ssize_t>(i), Py_XNewRef(env[static_cast<size_t>(outputs[i])].get()));
  }
  return result;
}

PyObject* slot_list(const std::vector<int>& slots) {
  PyObject* list = PyList_New(0);
  for (const int slot : slots) {
    const Ref text = Ref::steal(PyUnicode_FromFormat("%%%d", slot));
    PyList_Append(list, text.get());
  }
  return list;
}

PyObject* graph_inputs(PyObject* self, void*) { return slot_list(input_slots(tape_of(self))); }
PyObject* graph_outputs(PyObject* self, void*) { return slot_list(computed_outputs(tape_of(self))); }

/// [(name, args, kwargs, outputs, "file:line")]
PyObject* graph_nodes(PyObject* self, void*) {
  PyObject* list = PyList_New(0);
  for (const TapeNode& node : tape_of(self).nodes()) {
    const Ref outputs = Ref::steal(slot_list(node.outputs));
    const Ref item = Ref::steal(Py_BuildValue("(sOOOsi)", node.name.c_str(), node.args.get(),
                                              node.kwargs ? node.kwargs.get() : Py_None, outputs.get(),
                                              node.location.file.c_str(), node.location.line));
    if (!item || PyList_Append(list, item.get()) != 0) {
      Py_DECREF(list);
      return nullptr;
    }
  }
  return list;
}

PyObject* graph_effects(PyObject* self, void*) {
  PyObject* list = PyList_New(0);
  for (const std::string& line : *reinterpret_cast<GraphObject*>(self)->effects) {
    const Ref item = Ref::steal(PyUnicode_FromString(line.c_str()));
    if (!item || PyList_Append(list, item.get()) != 0) {
      Py_DECREF(list);
      return nullptr;
    }
  }
  return list;
}

PyObject* graph_numpy_program(PyObject* self, PyObject* value) {
  const SignalsWait wait;
  const TorchApi* api = TorchApi::get();
  try {
    if (!is_numpy_tape(tape_of(self))) throw Unsupported("a graph of torch calls, where one of NumPy's is wanted");
    return numpy_program(tape_of(self), *api->numpy, value).release();
  } catch (const std::exception& error) {
    raise_error(error);
    return nullptr;
  }
}

PyTypeObject* graph_type() {
  return made_once([] {
    static PyGetSetDef getset[] = {
        {"nodes", graph_nodes, nullptr, "(name, args, kwargs, outputs, file, line) of each node", nullptr},
        {"inputs", graph_inputs, nullptr, "names of the inputs", nullptr},
        {"outputs", graph_outputs, nullptr, "names of the outputs", nullptr},
        {"effects", graph_effects, nullptr, "what else a call of the program does", nullptr},
        {nullptr, nullptr, nullptr, nullptr, nullptr}};
    static PyMethodDef methods[] = {
        {"numpy_program", graph_numpy_program, METH_O, "NumPy's calls as plain data; values are value(number)."},
        {nullptr, nullptr, 0, nullptr}};
    static PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(graph_dealloc)},
                                  {Py_tp_str, reinterpret_cast<void*>(graph_str)},
                                  {Py_tp_call, reinterpret_cast<void*>(graph_call)},
                                  {Py_tp_getset, getset},
                                  {Py_tp_methods, methods},
                                  {0, nullptr}};
    static PyType_Spec spec = {"tatara._core.Graph", sizeof(GraphObject), 0, Py_TPFLAGS_DEFAULT, slots};
    return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  });
}

}  // namespace

bool is_graph_object(PyObject* object) { return Py_TYPE(object) == graph_type(); }

Ref make_graph_object(std::shared_ptr<Tape> tape, std::vector<std::string> effects) {
  auto* object = PyObject_New(GraphObject, graph_type());
  if (object == nullptr) return {};
  object->tape = new std::shared_ptr<Tape>(std::move(tape));
  object->effects = new std::vector<std::string>(std::move(effects));
  return Ref::steal(reinterpret_cast<PyObject*>(object));
}

}  // namespace tatara::capture
