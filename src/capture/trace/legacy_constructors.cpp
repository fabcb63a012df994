// Tensors that are made by the name of a type: `torch.Tensor([1, 2])`, `torch.LongTensor(items)`, `torch.FloatTensor(2, 3)`. They are
// calls of torch.tensor and torch.empty with a type and a device; what these would not take alike stays with the host.
#include <cstring>

#include "capture/numbers/symbolic_int.h"
#include "capture/trace/call_tracing.h"
#include "capture/trace/torch_tracing.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/tracer_modes.h"

namespace tatara::capture {
namespace {

constexpr int kDeepest = 8;

bool is_list(PyObject* o) { return PyList_CheckExact(o) || PyTuple_CheckExact(o); }

/// Whether all that lists hold are numbers of Python's, among them some that vary.
bool holds_numbers_alone(PyObject* o, bool& varies, int depth = 0) {
  if (is_list(o) && depth < kDeepest) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); ++i) {
      if (!holds_numbers_alone(PySequence_Fast_GET_ITEM(o, i), varies, depth + 1)) return false;
    }
    return true;
  }
  varies = varies || is_symbolic_number(o);
  return PyFloat_CheckExact(o) || PyLong_CheckExact(o) || PyBool_Check(o) || is_symbolic_number(o);
}

/// A list of floats: torch.tensor takes one with floats that vary where it is told nothing else.
bool holds_floats(PyObject* list) {
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list); ++i) {
    PyObject* const item = PySequence_Fast_GET_ITEM(list, i);
    if (!PyFloat_CheckExact(item) && !is_symbolic_float(item)) return false;
  }
  return true;
}

bool is_size(PyObject* o) { return PyLong_CheckExact(o) || is_symbolic_int(o); }

}  // namespace

bool TorchTracing::is_tensor_type(PyObject* callable) const {
  if (callable == reinterpret_cast<PyObject*>(api_.tensor_type)) return true;
  return std::strcmp(Py_TYPE(callable)->tp_name, "torch.tensortype") == 0;
}

/// The type and the device of what such a call makes; null: not known.
Ref TorchTracing::options_of_type(PyObject* callable) const {
  const Ref options = Ref::steal(PyDict_New());
  if (callable == reinterpret_cast<PyObject*>(api_.tensor_type)) {
    const Ref dtype = Ref::steal(PyObject_CallMethod(api_.torch.get(), "get_default_dtype", nullptr));
    const Ref functions = attr_or_null(api_.torch.get(), "_C");
    const Ref device =
        functions ? Ref::steal(PyObject_CallMethod(functions.get(), "_get_default_device", nullptr)) : Ref();
    if (!dtype || !device || text_of(device.get()) != "cpu") return {};
    PyDict_SetItemString(options.get(), "dtype", dtype.get());
  } else {
    const Ref dtype = attr_or_null(callable, "dtype");
    const bool elsewhere = attr_or_null(callable, "is_cuda").get() != Py_False ||
                           attr_or_null(callable, "is_sparse").get() != Py_False ||
                           text_of(attr_or_null(callable, "__module__").get()) != "torch";
    if (!dtype || elsewhere) return {};
    PyDict_SetItemString(options.get(), "dtype", dtype.get());
  }
  PyDict_SetItemString(options.get(), "device", api_.cpu_device.get());
  return options;
}

PyObject* TorchTracing::make_by_type(const TracedCall& call) {
  if (call.keywords() > 0 || modes().has_programs()) return not_handled();
  bool varies = false, sizes = true;
  for (Py_ssize_t i = 0; i < call.nargs(); ++i) sizes = sizes && is_size(call.args[i]);
  const bool data = call.nargs() == 1 && is_list(call.args[0]) && holds_numbers_alone(call.args[0], varies);
  if (!sizes && (!data || (varies && !holds_floats(call.args[0])))) return not_handled();
  Ref function, operands, options;
  {
    const Bypass bypass(bypass_);
    options = options_of_type(call.callable);
    forget_error();
    if (!options) return not_handled();
    const Ref usual = Ref::steal(PyObject_CallMethod(api_.torch.get(), "get_default_dtype", nullptr));
    const bool told = PyDict_GetItemString(options.get(), "dtype") != usual.get();
    if (data && varies && told) return not_handled();
    if (data && varies) options = Ref();
    function = attr(api_.torch.get(), data ? "tensor" : "empty");
    operands = call.packed().first;
    if (call.nargs() == 0) operands = Ref::steal(Py_BuildValue("(i)", 0));
    if (!data) operands = Ref::steal(PyTuple_Pack(1, operands.get()));
  }
  return torch_function(function.get(), operands.get(), options.get());
}

}  // namespace tatara::capture
