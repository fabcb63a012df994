#include "capture/graph/tape_arguments.h"

#include <complex>
#include <cstring>
#include <unordered_map>

#include "capture/graph/graph_from_tape.h"
#include "support/error.h"

namespace tatara::capture {
namespace {

ArgKind kind_of(PyObject* o);

/// Kind of a list by its items.
ArgKind list_kind(PyObject* list) {
  bool tensors = false, floats = false, ints = false, bools = false;
  const Py_ssize_t n = PySequence_Fast_GET_SIZE(list);
  if (n == 0) return ArgKind::kEmptyList;
  for (Py_ssize_t i = 0; i < n; ++i) {
    const ArgKind kind = kind_of(PySequence_Fast_GET_ITEM(list, i));
    if (kind == ArgKind::kTensor || kind == ArgKind::kNone) {
      tensors = true;
    } else if (kind == ArgKind::kFloat) {
      floats = true;
    } else if (kind == ArgKind::kInt) {
      ints = true;
    } else if (kind == ArgKind::kBool) {
      bools = true;
    } else {
      return ArgKind::kOther;
    }
  }
  if (tensors) return floats || ints || bools ? ArgKind::kOther : ArgKind::kTensorList;
  if (floats) return ArgKind::kFloatList;
  return ints ? ArgKind::kIntList : ArgKind::kBoolList;
}

ArgKind kind_of(PyObject* o) {
  if (slot_of(o) >= 0) return ArgKind::kTensor;
  if (o == Py_None) return ArgKind::kNone;
  if (PyBool_Check(o)) return ArgKind::kBool;
  if (PyLong_Check(o) || is_size_ref(o)) return ArgKind::kInt;
  if (PyFloat_Check(o)) return ArgKind::kFloat;
  if (PyComplex_Check(o)) return ArgKind::kComplex;
  if (PyUnicode_Check(o)) return ArgKind::kString;
  if (PyTuple_Check(o) || PyList_Check(o)) return list_kind(o);
  const char* name = Py_TYPE(o)->tp_name;
  if (std::strcmp(name, "torch.dtype") == 0) return ArgKind::kDType;
  if (std::strcmp(name, "torch.device") == 0) return ArgKind::kDevice;
  if (std::strcmp(name, "torch.layout") == 0) return ArgKind::kLayout;
  if (std::strcmp(name, "torch.memory_format") == 0) return ArgKind::kMemoryFormat;
  if (std::strcmp(name, "torch._C.Generator") == 0) return ArgKind::kGenerator;
  if (o == reinterpret_cast<PyObject*>(&PyFloat_Type) || o == reinterpret_cast<PyObject*>(&PyLong_Type) ||
      o == reinterpret_cast<PyObject*>(&PyBool_Type) || o == reinterpret_cast<PyObject*>(&PyComplex_Type)) {
    return ArgKind::kDType;
  }
  return ArgKind::kOther;
}

Expr int_expr(ExprContext& ctx, PyObject* o) {
  return is_size_ref(o) ? size_in(ctx, size_ref_expr(o)) : ctx.constant(int_value(o));
}

/// Keywords that say how memory is made, at their defaults: no operator's schema has them.
bool is_default_keyword(const std::string& name, PyObject* value) {
  if (name == "requires_grad" || name == "pin_memory") return value == Py_False || value == Py_None;
  return name == "layout" && (value == Py_None || after_dot(value) == "strided");
}

/// Whether a default says something that the registry's form of the operator must have, too. Types and layouts are ints there.
bool says_something(PyObject* argument) {
  const Ref value = attr_or_null(argument, "default_value"), type = attr_or_null(argument, "real_type");
  if (!value || value.get() == Py_None || value.get() == Py_False) return false;
  const Ref shown = Ref::steal(type ? PyObject_Str(type.get()) : nullptr);
  if (!shown) forget_error();
  const std::string text = text_of(shown.get());
  const auto names = [&text](const char* part) { return text.find(part) != std::string::npos; };
  return !names("ScalarType") && !names("MemoryFormat") && !names("Layout") && !names("Device");
}

const OverloadArguments& overload_arguments(PyObject* func) {
  static auto* const known = new std::unordered_map<PyObject*, OverloadArguments>;
  static const OverloadArguments none;
  if (!is_dispatcher_operator(func)) return none;
  const auto [found, first] = known->try_emplace(func);
  OverloadArguments& made = found->second;
  if (!first) return made;
  Py_INCREF(func);  // identity must stay taken
  const Ref schema = attr_or_null(func, "_schema");
  const Ref arguments = schema ? attr_or_null(schema.get(), "arguments") : Ref();
  const Ref items = arguments ? Ref::steal(PySequence_Tuple(arguments.get())) : Ref();
  if (!items) forget_error();
  for (Py_ssize_t i = 0; items && i < PyTuple_GET_SIZE(items.get()); ++i) {
    PyObject* const argument = PyTuple_GET_ITEM(items.get(), i);
    made.names.push_back(text_of(attr_or_null(argument, "name").get()));
    if (says_something(argument)) made.needed.push_back(made.names.back());
  }
  return made;
}

/// Number of the GPU that "cuda" means at present.
int16_t current_gpu() {
  const Ref module = attr_or_null(TorchApi::get()->torch.get(), "cuda");
  const Ref number = module ? Ref::steal(PyObject_CallMethod(module.get(), "current_device", nullptr)) : Ref();
  if (!number) {
    forget_error();
    throw Unsupported("device cuda, without a GPU");
  }
  return static_cast<int16_t>(PyLong_AsLong(number.get()));
}

}  // namespace

int64_t int_value(PyObject* o) {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(o, &overflow);
  if (overflow != 0 || (value == -1 && PyErr_Occurred() != nullptr)) {
    forget_error();
    throw Unsupported("an integer beyond 64 bits");
  }
  return value;
}

std::string after_dot(PyObject* o) {
  const Ref text = Ref::steal(PyObject_Str(o));
  if (!text) forget_error();
  const std::string s = text_of(text.get());
  return s.substr(s.rfind('.') + 1);
}

Expr size_in(ExprContext& ctx, Expr e) { return &e.context() == &ctx ? e : ctx.simplify(ctx.import(e)); }

Scalar scalar_of(ExprContext& ctx, PyObject* o) {
  if (is_size_ref(o)) {
    const Expr e = size_in(ctx, size_ref_expr(o));
    return e.is_const() ? Scalar(e.const_value()) : Scalar(e);
  }
  if (PyBool_Check(o)) return o == Py_True;
  if (PyLong_Check(o)) return int_value(o);
  if (PyFloat_Check(o)) return PyFloat_AS_DOUBLE(o);
  if (!PyComplex_Check(o)) throw Unsupported("a number of type " + type_name(o));
  const Py_complex c = PyComplex_AsCComplex(o);
  return std::complex<double>(c.real, c.imag);
}

NodeSource::NodeSource(const TapeNode& node, const std::vector<TensorRef>& refs, ExprContext& ctx, const Tape* tape)
    : refs_(refs),
      ctx_(ctx),
      tape_(tape),
      dispatcher_(is_dispatcher_operator(node.func.get())),
      overload_(overload_arguments(node.func.get())) {
  positional_ = static_cast<size_t>(PyTuple_GET_SIZE(node.args.get()));
  for (size_t i = 0; i < positional_; ++i)
    items_.push_back(PyTuple_GET_ITEM(node.args.get(), static_cast<Py_ssize_t>(i)));
  if (!node.kwargs) return;
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(node.kwargs.get(), &at, &key, &value) != 0) {
    const std::string name = text_of(key);
    if (name == "out" && value != Py_None) {
      add_out(value);
    } else if (name != "out" && !is_default_keyword(name, value)) {
      keywords_.push_back(name);
      items_.push_back(value);
    }
  }
}

void NodeSource::swap_operands() {
  if (positional_ < 2) throw Unsupported("a reflected operator without two operands");
  std::swap(items_[0], items_[1]);
}

ArgKind NodeSource::kind(size_t item) const {
  const int slot = slot_of(items_[item]);
  const TapeSlot* const info = slot >= 0 && tape_ != nullptr ? &tape_->slots()[static_cast<size_t>(slot)] : nullptr;
  if (info != nullptr && info->generator) return ArgKind::kGenerator;
  const bool number = info != nullptr && info->number;
  return number ? ArgKind::kVarying : kind_of(items_[item]);
}

std::vector<ValueId> NodeSource::tensors(size_t item) {
  std::vector<ValueId> result;
  each(item, [&](PyObject* o) { result.push_back(o == Py_None ? kNoValue : ref(o)); });
  return result;
}

std::vector<Expr> NodeSource::ints(size_t item) {
  std::vector<Expr> result;
  if (PyLong_Check(items_[item]) || is_size_ref(items_[item])) return {int_expr(ctx_, items_[item])};
  each(item, [&](PyObject* o) { result.push_back(int_expr(ctx_, o)); });
  return result;
}

std::vector<double> NodeSource::floats(size_t item) {
  std::vector<double> result;
  each(item, [&](PyObject* o) {
    result.push_back(is_size_ref(o) ? static_cast<double>(ctx_.specialize(int_expr(ctx_, o))) : PyFloat_AsDouble(o));
  });
  return result;
}

std::vector<bool> NodeSource::bools(size_t item) {
  std::vector<bool> result;
  each(item, [&](PyObject* o) { result.push_back(o == Py_True); });
  return result;
}

std::string NodeSource::string(size_t item) {
  PyObject* o = items_[item];
  return PyUnicode_Check(o) ? text_of(o) : after_dot(o);
}

DType NodeSource::dtype(size_t item) { return dtype_of(items_[item]); }

Device NodeSource::device(size_t item) {
  PyObject* o = items_[item];
  if (!PyUnicode_Check(o)) return device_of(o);
  const Ref made = Ref::steal(PyObject_CallOneArg(reinterpret_cast<PyObject*>(TorchApi::get()->device_type), o));
  if (!made) forget_error();
  if (!made) throw Unsupported("device " + text_of(o));
  return device_of(made.get());
}

void NodeSource::add_out(PyObject* value) {
  if (slot_of(value) >= 0) {
    out_.push_back(ref(value));
  } else if (PyTuple_Check(value) || PyList_Check(value)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); ++i) add_out(PySequence_Fast_GET_ITEM(value, i));
  }
}

DType dtype_of(PyObject* dtype) {
  if (dtype == reinterpret_cast<PyObject*>(&PyFloat_Type)) return DType::kFloat64;
  if (dtype == reinterpret_cast<PyObject*>(&PyLong_Type)) return DType::kInt64;
  if (dtype == reinterpret_cast<PyObject*>(&PyBool_Type)) return DType::kBool;
  if (dtype == reinterpret_cast<PyObject*>(&PyComplex_Type)) return DType::kComplex128;
  const std::string name = after_dot(dtype);
  const std::optional<DType> parsed = parse_dtype(name);
  if (!parsed) throw Unsupported("dtype " + name);
  return *parsed;
}

Device device_of(PyObject* device) {
  const std::string type = text_of(attr_or_null(device, "type").get());
  Device result;
  if (type == "cuda") {
    result.kind = DeviceKind::kCuda;
    const Ref index = attr_or_null(device, "index");
    result.index =
        index && PyLong_Check(index.get()) ? static_cast<int16_t>(PyLong_AsLong(index.get())) : current_gpu();
  } else if (type != "cpu") {
    throw Unsupported("device " + type);
  }
  return result;
}

}  // namespace tatara::capture
