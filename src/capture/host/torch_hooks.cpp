#include "capture/host/torch_hooks.h"

#include <Python.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "capture/host/package.h"
#include "capture/python/gil.h"
#include "capture/python/py_errors.h"
#include "ops/rules/fused_attention.h"
#include "runtime/host/host.h"
#include "runtime/host/torch_abi.h"
#include "support/error.h"
#include "support/fork.h"

namespace tatara {
namespace {

using capture::PackageFunction;
using capture::PackageModule;

class GilGuard {
 public:
  GilGuard() {
    // A thread that forks keeps the GIL and waits for the ends of all sections.
    if (ForkSection::inside()) throw InternalError("Python is asked under a lock");
    held_.emplace();
  }

 private:
  std::optional<capture::GilEnsure> held_;
};

struct DecRef {
  void operator()(PyObject* object) const { Py_XDECREF(object); }
};
using Ref = std::unique_ptr<PyObject, DecRef>;

std::string take_python_error() {
  const Ref error(capture::take_error());
  const Ref text(error ? PyObject_Str(error.get()) : nullptr);
  const char* utf8 = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  capture::forget_error();
  return utf8 != nullptr ? utf8 : "unknown error";
}

Ref checked(PyObject* object, const char* what) {
  if (object == nullptr) throw CompilationError(std::string(what) + ": " + take_python_error());
  return Ref(object);
}

Ref attribute(PyObject* object, const char* name) { return checked(PyObject_GetAttrString(object, name), name); }

Ref function_of(capture::PackageFunction function) {
  return checked(capture::find_package_function(function).release(), "importing a part of the package");
}

Ref import_torch() { return checked(PyImport_ImportModule("torch"), "importing torch"); }

Ref find_schema(const std::string& op, const std::string& overload) {
  const Ref torch = import_torch();
  const Ref core = attribute(torch.get(), "_C");
  const Ref schemas =
      checked(PyObject_CallMethod(core.get(), "_jit_get_schemas_for_operator", "s", op.c_str()), op.c_str());
  const Py_ssize_t size = PySequence_Size(schemas.get());
  for (Py_ssize_t i = 0; i < size; ++i) {
    Ref schema = checked(PySequence_GetItem(schemas.get(), i), "reading a schema");
    const Ref name = attribute(schema.get(), "overload_name");
    const char* text = PyUnicode_AsUTF8(name.get());
    if (text != nullptr && overload == text) return schema;
  }
  return nullptr;
}

/// An operator under transforms of the host (ops/rules/host_transform.h): "tatara_host:dv:3:aten::median".
struct Transformed {
  std::string transforms;
  long arguments = 0;
  std::string op;
};

bool parse_transformed(std::string_view name, Transformed& result) {
  constexpr std::string_view kPrefix = "tatara_host:";
  if (!name.starts_with(kPrefix)) return false;
  const std::string rest(name.substr(kPrefix.size()));
  const size_t first = rest.find(':'), second = rest.find(':', first + 1);
  result = {rest.substr(0, first), std::stol(rest.substr(first + 1, second - first - 1)), rest.substr(second + 1)};
  return true;
}

/// Operators of ours in Python: "tatara::name" is a function of PackageModule::kHostOperators.
constexpr std::string_view kOwn = "tatara::";

std::string schema_text(std::string_view op, std::string_view overload) {
  if (op.starts_with(kOwn)) return "own(Scalar any) -> Tensor[]";  // called from here, as derivatives are
  const GilGuard gil;
  if (Transformed transformed; parse_transformed(op, transformed)) {
    const Ref base = find_schema(transformed.op, std::string(overload));
    if (!base) return {};
    const Ref arguments = attribute(base.get(), "arguments");
    if (PySequence_Size(arguments.get()) != transformed.arguments) return {};
    // A scalar among the arguments has it called from here (call_operator).
    return "transformed(Scalar any) -> Tensor[]";
  }
  const Ref schema = find_schema(std::string(op), std::string(overload));
  if (!schema) return {};
  const Ref text = checked(PyObject_Str(schema.get()), "printing a schema");
  const char* utf8 = PyUnicode_AsUTF8(text.get());
  return utf8 != nullptr ? utf8 : "";
}

/// A Python tensor over the handle's tensor (a new reference to the same implementation).
Ref tensor_object(PyObject* aoti, const HostTensor& tensor) {
  const torch_abi::Api* api = torch_abi::api();
  torch_abi::TensorHandle handle = nullptr;
  if (api->aoti_torch_new_tensor_handle(static_cast<torch_abi::TensorHandle>(tensor.get()), &handle) != 0) {
    throw CompilationError("copying a tensor handle failed");
  }
  const Ref capsule = checked(PyCapsule_New(handle, nullptr, nullptr), "wrapping a tensor");
  return checked(PyObject_CallMethod(aoti, "alloc_tensor_by_stealing_from_void_ptr", "O", capsule.get()),
                 "wrapping a tensor");
}

HostTensor host_tensor(PyObject* aoti, PyObject* tensor) {
  const Ref capsule =
      checked(PyObject_CallMethod(aoti, "unsafe_alloc_void_ptr_from_tensor", "O", tensor), "unwrapping a tensor");
  void* handle = PyCapsule_GetPointer(capsule.get(), nullptr);
  if (handle == nullptr) throw CompilationError("unwrapping a tensor: " + take_python_error());
  return HostTensor(handle, [](void* p) {
    torch_abi::api()->aoti_torch_delete_tensor_object(static_cast<torch_abi::TensorHandle>(p));
  });
}

Ref value_object(PyObject* torch, PyObject* aoti, const HostValue& value) {
  using Kind = HostValue::Kind;
  switch (value.kind) {
    case Kind::kNone: return Ref(Py_NewRef(Py_None));
    case Kind::kTensor: return tensor_object(aoti, value.tensor);
    case Kind::kTensorList: {
      Ref list = checked(PyList_New(static_cast<Py_ssize_t>(value.tensors.size())), "making a list");
      for (size_t i = 0; i < value.tensors.size(); ++i) {
        Ref item = value.tensors[i] == nullptr ? Ref(Py_NewRef(Py_None)) : tensor_object(aoti, value.tensors[i]);
        PyList_SetItem(list.get(), static_cast<Py_ssize_t>(i), item.release());
      }
      return list;
    }
    case Kind::kInt: return checked(PyLong_FromLongLong(value.integer), "making an int");
    case Kind::kDouble: return checked(PyFloat_FromDouble(value.number), "making a float");
    case Kind::kBool: return Ref(Py_NewRef(value.integer != 0 ? Py_True : Py_False));
    case Kind::kComplex: return checked(PyComplex_FromDoubles(value.number, value.imag), "making a complex");
    case Kind::kString:
      return checked(PyUnicode_FromStringAndSize(value.text.data(), static_cast<Py_ssize_t>(value.text.size())),
                     "making a str");
    case Kind::kIntList:
    case Kind::kBoolList: {
      Ref list = checked(PyList_New(static_cast<Py_ssize_t>(value.integers.size())), "making a list");
      for (size_t i = 0; i < value.integers.size(); ++i) {
        PyObject* item = value.kind == Kind::kIntList ? PyLong_FromLongLong(value.integers[i])
                                                      : PyBool_FromLong(value.integers[i] != 0 ? 1 : 0);
        PyList_SetItem(list.get(), static_cast<Py_ssize_t>(i), item);
      }
      return list;
    }
    case Kind::kDoubleList: {
      Ref list = checked(PyList_New(static_cast<Py_ssize_t>(value.numbers.size())), "making a list");
      for (size_t i = 0; i < value.numbers.size(); ++i) {
        PyList_SetItem(list.get(), static_cast<Py_ssize_t>(i), PyFloat_FromDouble(value.numbers[i]));
      }
      return list;
    }
    case Kind::kDType: return attribute(torch, torch_abi::dtype_attribute(value.dtype));
    case Kind::kDevice:
      return checked(PyObject_CallMethod(torch, "device", "s", value.device.str().c_str()), "making a device");
  }
  throw InternalError("unknown host value");
}

Ref overload_packet(PyObject* torch, const std::string& op, const std::string& overload) {
  const size_t colons = op.find("::");
  if (colons == std::string::npos) throw InternalError("host operator without a namespace: " + op);
  const Ref ops = attribute(torch, "ops");
  const Ref space = attribute(ops.get(), op.substr(0, colons).c_str());
  const Ref packet = attribute(space.get(), op.substr(colons + 2).c_str());
  return attribute(packet.get(), overload.empty() ? "default" : overload.c_str());
}

std::vector<HostTensor> tensors_of(PyObject* aoti, PyObject* result) {
  std::vector<HostTensor> results;
  const Py_ssize_t size = PySequence_Size(result);
  for (Py_ssize_t i = 0; i < size; ++i) {
    const Ref item = checked(PySequence_GetItem(result, i), "reading a result");
    results.push_back(item.get() == Py_None ? nullptr : host_tensor(aoti, item.get()));
  }
  return results;
}

std::vector<HostTensor> call_transformed(const Transformed& transformed, const std::string& overload,
                                         std::span<const HostValue> args) {
  const Ref torch = import_torch();
  const Ref core = attribute(torch.get(), "_C");
  const Ref aoti = attribute(core.get(), "_aoti");
  const Ref values = checked(PyList_New(0), "making a list");
  for (const HostValue& arg : args) PyList_Append(values.get(), value_object(torch.get(), aoti.get(), arg).get());
  const Ref function = function_of(PackageFunction::kHostTransformsCall);
  const Ref result = checked(PyObject_CallFunction(function.get(), "sssO", transformed.op.c_str(), overload.c_str(),
                                                   transformed.transforms.c_str(), values.get()),
                             transformed.op.c_str());
  return tensors_of(aoti.get(), result.get());
}

std::vector<HostTensor> call_own(const std::string& name, std::span<const HostValue> args) {
  const Ref torch = import_torch();
  const Ref core = attribute(torch.get(), "_C");
  const Ref aoti = attribute(core.get(), "_aoti");
  const Ref values = checked(PyTuple_New(static_cast<Py_ssize_t>(args.size())), "making a tuple");
  for (size_t i = 0; i < args.size(); ++i) {
    PyTuple_SetItem(values.get(), static_cast<Py_ssize_t>(i), value_object(torch.get(), aoti.get(), args[i]).release());
  }
  const auto named = capture::package_named(PackageModule::kHostOperators, name);
  if (!named) throw InternalError(name + " is not in package.def");
  const Ref function = function_of(*named);
  const Ref result = checked(PyObject_CallObject(function.get(), values.get()), name.c_str());
  return tensors_of(aoti.get(), result.get());
}

std::vector<HostTensor> call_operator(std::string_view op_name, std::string_view overload_name,
                                      std::span<const HostValue> args) {
  const GilGuard gil;
  const std::string op(op_name);
  const std::string overload(overload_name);
  if (Transformed transformed; parse_transformed(op, transformed)) return call_transformed(transformed, overload, args);
  if (op_name.starts_with(kOwn)) return call_own(op.substr(kOwn.size()), args);
  const Ref torch = import_torch();
  const Ref core = attribute(torch.get(), "_C");
  const Ref aoti = attribute(core.get(), "_aoti");
  const Ref schema = find_schema(op, overload);
  if (!schema) throw Unsupported("the host has no operator " + op + "." + overload);
  const Ref arguments = attribute(schema.get(), "arguments");
  if (PySequence_Size(arguments.get()) != static_cast<Py_ssize_t>(args.size())) {
    throw InternalError("wrong number of arguments for " + op);
  }
  const Ref positional = checked(PyList_New(0), "making a list");
  const Ref keywords = checked(PyDict_New(), "making a dict");
  for (size_t i = 0; i < args.size(); ++i) {
    const Ref argument = checked(PySequence_GetItem(arguments.get(), static_cast<Py_ssize_t>(i)), "reading a schema");
    const Ref value = value_object(torch.get(), aoti.get(), args[i]);
    const Ref keyword_only = attribute(argument.get(), "kwarg_only");
    if (PyObject_IsTrue(keyword_only.get()) != 0) {
      const Ref name = attribute(argument.get(), "name");
      PyDict_SetItem(keywords.get(), name.get(), value.get());
    } else {
      PyList_Append(positional.get(), value.get());
    }
  }
  const Ref function = overload_packet(torch.get(), op, overload);
  const Ref tuple = checked(PyList_AsTuple(positional.get()), "making a tuple");
  const Ref result = checked(PyObject_Call(function.get(), tuple.get(), keywords.get()), op.c_str());
  if (result.get() == Py_None) return {};
  if (PyTuple_Check(result.get()) || PyList_Check(result.get())) return tensors_of(aoti.get(), result.get());
  return {host_tensor(aoti.get(), result.get())};
}

/// torch._C has these only where it is built for CUDA.
void memory_pool(TorchPythonHooks::PoolAction action, int device, std::pair<int64_t, int64_t>& pool) {
  using Action = TorchPythonHooks::PoolAction;
  if (Py_IsInitialized() == 0) return;  // the process ends, and its memory with it
  const GilGuard gil;
  const Ref torch = import_torch();
  const Ref core = attribute(torch.get(), "_C");
  const char* name = nullptr;
  switch (action) {
    case Action::kMake: {
      const Ref id = checked(PyObject_CallMethod(core.get(), "_graph_pool_handle", nullptr), "making a memory pool");
      long long first = 0, second = 0;
      if (PyArg_ParseTuple(id.get(), "LL", &first, &second) == 0) {
        throw CompilationError("making a memory pool: " + take_python_error());
      }
      pool = {first, second};
      return;
    }
    case Action::kBegin: name = "_cuda_beginAllocateCurrentThreadToPool"; break;
    case Action::kEnd: name = "_cuda_endAllocateToPool"; break;
    case Action::kRelease: name = "_cuda_releasePool"; break;
  }
  static_cast<void>(checked(PyObject_CallMethod(core.get(), name, "i(LL)", device, static_cast<long long>(pool.first),
                                                static_cast<long long>(pool.second)),
                            name));
}

/// The memory of a contiguous tensor of bytes, while it lives.
std::span<uint8_t> bytes_of(PyObject* tensor) {
  const Ref address = checked(PyObject_CallMethod(tensor, "data_ptr", nullptr), "reading a tensor");
  const Ref count = checked(PyObject_CallMethod(tensor, "numel", nullptr), "reading a tensor");
  return {static_cast<uint8_t*>(PyLong_AsVoidPtr(address.get())), PyLong_AsSize_t(count.get())};
}

/// The GIL is held throughout, so that no other thread of Python draws the same numbers.
void change_generator(const std::function<void(std::span<uint8_t>)>& change) {
  const GilGuard gil;
  const Ref torch = import_torch();
  const Ref generator = attribute(torch.get(), "default_generator");
  const Ref state = checked(PyObject_CallMethod(generator.get(), "get_state", nullptr), "reading a generator");
  change(bytes_of(state.get()));
  checked(PyObject_CallMethod(generator.get(), "set_state", "O", state.get()), "setting a generator");
}

void manual_seed(int64_t seed) {
  const GilGuard gil;
  checked(PyObject_CallMethod(import_torch().get(), "manual_seed", "L", static_cast<long long>(seed)), "seeding");
}

BernoulliTrial bernoulli_trial(int skipped, double p) {
  const GilGuard gil;
  const Ref function = function_of(PackageFunction::kBernoulliTrialBytes);
  const Ref made = checked(PyObject_CallFunction(function.get(), "id", skipped, p), "drawing numbers");
  BernoulliTrial trial;
  std::vector<uint8_t>* const parts[] = {&trial.before, &trial.numbers, &trial.after};
  for (Py_ssize_t i = 0; i < 3; ++i) {
    const Ref part = checked(PySequence_GetItem(made.get(), i), "reading numbers");
    const std::span<uint8_t> bytes = bytes_of(part.get());
    parts[i]->assign(bytes.begin(), bytes.end());
  }
  return trial;
}

bool exact_products() {
  const GilGuard gil;
  const Ref core = attribute(import_torch().get(), "_C");
  const Ref precision = checked(PyObject_CallMethod(core.get(), "_get_fp32_precision_getter", "ss", "cuda", "matmul"),
                                "reading the precision of products");
  const char* const name = PyUnicode_AsUTF8(precision.get());
  return name != nullptr && (std::string_view(name) == "none" || std::string_view(name) == "ieee");
}

/// (sizes, strides, dtype, device) of a tensor with constant sizes.
Ref layout_object(const TensorType& type) {
  const auto tuple = [](const std::vector<Expr>& values) {
    Ref made = checked(PyTuple_New(static_cast<Py_ssize_t>(values.size())), "making a tuple");
    for (size_t i = 0; i < values.size(); ++i) {
      PyTuple_SetItem(made.get(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(values[i].const_value()));
    }
    return made;
  };
  const Ref sizes = tuple(type.sizes), strides = tuple(type.strides);
  return checked(Py_BuildValue("OOss", sizes.get(), strides.get(), torch_abi::dtype_attribute(type.dtype),
                               type.device.str().c_str()),
                 "describing a tensor");
}

/// (size, dtype's number, device's index; below 0 the CPU) of a tensor of random numbers' state.
TensorType state_type(ExprContext& ctx, PyObject* state) {
  PyObject* sizes = nullptr;
  int dtype = 0, device = 0;
  if (PyArg_ParseTuple(state, "Oii", &sizes, &dtype, &device) == 0) {
    throw CompilationError("choosing a kernel of attention: " + take_python_error());
  }
  TensorType type;
  type.dtype = torch_abi::from_scalar_type(dtype);
  if (device >= 0) type.device = Device{DeviceKind::kCuda, static_cast<int16_t>(device)};
  for (Py_ssize_t i = 0; i < PySequence_Size(sizes); ++i) {
    const Ref size = checked(PySequence_GetItem(sizes, i), "reading a size");
    type.sizes.push_back(ctx.constant(PyLong_AsLongLong(size.get())));
  }
  type.strides = contiguous_strides(ctx, type.sizes);
  return type;
}

std::optional<FusedAttention> choose_fused_attention(ExprContext& ctx, const AttentionCall& call) {
  if (Py_IsInitialized() == 0 || torch_abi::api() == nullptr) return std::nullopt;
  const GilGuard gil;
  const Ref function = function_of(PackageFunction::kChooseFusedAttention);
  const Ref operands = checked(PyList_New(0), "making a list");
  for (const TensorType& type : call.operands) PyList_Append(operands.get(), layout_object(type).get());
  const Ref mask = call.mask ? layout_object(*call.mask) : Ref(Py_NewRef(Py_None));
  const Ref scale = call.scale ? checked(PyFloat_FromDouble(*call.scale), "making a float") : Ref(Py_NewRef(Py_None));
  const Ref made =
      checked(PyObject_CallFunction(function.get(), "OOdOOO", operands.get(), mask.get(), call.dropout,
                                    call.causal ? Py_True : Py_False, scale.get(), call.grouped ? Py_True : Py_False),
              "choosing a kernel of attention");
  if (made.get() == Py_None) return std::nullopt;
  int kernel = 0;
  PyObject *seed = nullptr, *offset = nullptr;
  if (PyArg_ParseTuple(made.get(), "iOO", &kernel, &seed, &offset) == 0) {
    throw CompilationError("choosing a kernel of attention: " + take_python_error());
  }
  return FusedAttention{kernel, state_type(ctx, seed), state_type(ctx, offset)};
}

}  // namespace

HostTensor host_tensor_of(PyObject* tensor) {
  const Ref core = attribute(import_torch().get(), "_C");
  return host_tensor(attribute(core.get(), "_aoti").get(), tensor);
}

void install_torch_hooks() {
  set_fused_attention_chooser(choose_fused_attention);
  set_torch_python_hooks(
      {schema_text, call_operator, memory_pool, change_generator, manual_seed, bernoulli_trial, exact_products});
}

}  // namespace tatara
