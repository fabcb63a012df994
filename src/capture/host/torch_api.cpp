#include "capture/host/torch_api.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_set>

#include "capture/host/known_calls.h"
#include "capture/host/numpy_api.h"
#include "capture/host/torch_native.h"

namespace tatara::capture {
namespace {

// dlpack.h 1.3, the parts used here.
struct DlDevice {
  int32_t type;
  int32_t id;
};
struct DlDataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};
struct DlTensor {
  void* data;
  DlDevice device;
  int32_t ndim;
  DlDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
struct DlExchangeApi {
  uint32_t major, minor;
  void* previous;
  void* allocate;
  void* from_object;
  void* to_object;
  int (*view)(void* object, DlTensor* out);
  void* stream;
};

}  // namespace

namespace {

/// Whether torch is imported, to its end.
bool torch_is_there() {
  PyObject* torch = PyDict_GetItemString(PyImport_GetModuleDict(), "torch");
  if (torch == nullptr) return false;
  const Ref spec = attr_or_null(torch, "__spec__");
  const Ref busy = spec ? attr_or_null(spec.get(), "_initializing") : Ref();
  return busy.get() != Py_True;
}

}  // namespace

TorchApi* TorchApi::get() {
  static TorchApi* const api = new TorchApi;  // lives as long as the process
  if (api->numpy == nullptr) api->numpy = NumpyApi::get();
  if (!api->present() && api->lacks.empty() && torch_is_there()) {
    TorchApi made;
    const bool loaded = made.load();
    if (api->present()) {
      forget_error();  // loading runs Python code: another thread was faster, and refers to what it has loaded
    } else if (loaded) {
      made.numpy = api->numpy;
      *api = std::move(made);
    } else {
      api->lacks = made.lacks;
      if (api->lacks.empty()) api->lacks = "torch cannot be used: " + take_error_text();
      forget_error();
    }
  }
  return api;
}

bool TorchApi::is_numpy(PyObject* object) const {
  return numpy != nullptr && (numpy->is_any_array(object) || numpy->is_scalar(object));
}

bool TorchApi::is_plain_numpy(PyObject* object) const {
  return numpy != nullptr && (numpy->is_array(object) || numpy->is_scalar(object));
}

void TorchApi::set_grad(bool on) const {
  const ErrorAside aside;
  const Ref done = Ref::steal(PyObject_CallOneArg(state.set_grad_enabled.get(), on ? Py_True : Py_False));
  if (!done) forget_error();
}

bool TorchApi::grad_enabled() const {
  if (!present()) return false;
  const Ref answer = Ref::steal(PyObject_CallNoArgs(state.is_grad_enabled.get()));
  return answer.get() == Py_True;
}

/// The exchange API's view of a tensor whose memory holds its values.
bool TorchApi::exchange(PyObject* tensor, void* out) const {
  if (!is_torch_tensor(tensor) || !TorchNative::get().may_have_memory(tensor)) return false;
  if (static_cast<DlExchangeApi*>(exchange_)->view(tensor, static_cast<DlTensor*>(out)) != 0) {
    forget_error();
    return false;
  }
  return TorchNative::get().holds_values(tensor);
}

bool TorchApi::handles_calls(PyTypeObject* type) const {
  if (type == tensor_type || type == parameter_type || (type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0) return false;
  static PyObject* const name = PyUnicode_InternFromString("__torch_function__");
  static PyObject* const disabled = attr(attr(torch.get(), "_C").get(), "_disabled_torch_function_impl").release();
  PyObject* own = _PyType_Lookup(type, name);
  return own != nullptr && own != disabled;
}

bool TorchApi::is_plain_class(PyTypeObject* type) const {
  static PyObject* const name = PyUnicode_InternFromString("__torch_dispatch__");
  return tensor_type != nullptr && (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 &&
         PyType_IsSubtype(type, tensor_type) != 0 && !handles_calls(type) &&
         _PyType_Lookup(type, name) == _PyType_Lookup(tensor_type, name);
}

std::string TorchApi::why_not(PyObject* tensor) const {
  if (!is_torch_tensor(tensor)) return "an array of an element type or layout that is not supported";
  if (!is_plain_tensor(tensor)) return "a tensor subclass (" + type_name(tensor) + ")";
  const auto is = [tensor](const char* name) {
    const Ref answer = attr_or_null(tensor, name);
    if (!answer || PyBool_Check(answer.get())) return answer.get() == Py_True;
    const Ref called = Ref::steal(PyObject_CallNoArgs(answer.get()));
    if (!called) forget_error();
    return called.get() == Py_True;
  };
  const auto text = [tensor](const char* name) {
    const Ref value = attr_or_null(tensor, name);
    const Ref shown = Ref::steal(value ? PyObject_Str(value.get()) : nullptr);
    if (!shown) forget_error();
    return text_of(shown.get());
  };
  if (is("is_nested")) return "a nested tensor";
  if (is("is_quantized")) return "a quantised tensor (" + text("dtype") + ")";
  if (const std::string layout = text("layout"); layout != "torch.strided") {
    return (layout.find("sparse") != std::string::npos ? "a sparse tensor (" : "a tensor of another layout (") +
           layout + ")";
  }
  if (is("is_meta")) return "a tensor on the meta device, which has no values";
  if (is("is_conj")) return "a conjugate view (resolve_conj() makes it real)";
  if (is("is_neg")) return "a negative view (resolve_neg() makes it real)";
  if (is("_is_zerotensor")) return "zeros without memory";
  return "a tensor that cannot be imported (" + text("dtype") + " on " + text("device") + ")";
}

bool TorchApi::is_foreign(PyObject* tensor) const {
  if (!is_torch_tensor(tensor) || !is_plain_torch(tensor)) return false;
  const ErrorAside aside;
  const Ref quantised = attr_or_null(tensor, "is_quantized"), layout = attr_or_null(tensor, "layout");
  const Ref shown = Ref::steal(layout ? PyObject_Str(layout.get()) : nullptr);
  const bool sparse = shown && text_of(shown.get()).rfind("torch.sparse_", 0) == 0;
  const bool real = attr_or_null(tensor, "is_meta").get() == Py_False;
  forget_error();
  return real && (sparse || quantised.get() == Py_True);
}

std::vector<Ref> TorchApi::foreign_facts(PyObject* tensor) const {
  const ErrorAside aside;
  std::vector<Ref> facts;
  const auto read = [&](const char* name) { facts.push_back(attr_or_null(tensor, name)); };
  const auto ask = [&](const char* name) {
    facts.push_back(Ref::steal(PyObject_CallMethod(tensor, name, nullptr)));
    forget_error();
  };
  read("layout");
  read("dtype");
  read("device");
  read("shape");
  read("requires_grad");
  read("is_leaf");
  if (attr_or_null(tensor, "is_quantized").get() == Py_True) {
    ask("qscheme");
    ask("stride");
    ask("q_scale");  // not of channels
    ask("q_zero_point");
  } else {
    ask("dense_dim");
    if (attr_or_null(tensor, "is_sparse").get() == Py_True) ask("is_coalesced");
  }
  for (Ref& fact : facts) {
    if (!fact) fact = Ref::borrow(Py_None);
  }
  forget_error();
  return facts;
}

bool TorchApi::read_meta(PyObject* tensor, TensorMeta& out) const {
  if (!is_torch_tensor(tensor)) return numpy != nullptr && numpy->read_meta(tensor, out);
  DlTensor view{};
  if (!exchange(tensor, &view)) return false;
  out.code = view.dtype.code;
  out.bits = view.dtype.bits;
  out.device_type = view.device.type;
  out.device_id = view.device.id;
  out.data = static_cast<char*>(view.data) + view.byte_offset;
  out.sizes.assign(view.shape, view.shape + view.ndim);
  if (view.strides != nullptr) out.strides.assign(view.strides, view.strides + view.ndim);
  return true;
}

Ref TorchApi::beneath(PyObject* tensor) const {
  if (!is_torch_tensor(tensor) || !is_plain_tensor(tensor)) return {};
  const ErrorAside aside;
  const Ref lazy = Ref::steal(PyObject_CallMethod(tensor, "is_conj", nullptr));
  Ref plain = lazy.get() == Py_True ? Ref::steal(PyObject_CallOneArg(functions.conj.get(), tensor)) : Ref();
  DlTensor view{};
  if (plain && !exchange(plain.get(), &view)) plain = Ref();
  if (!plain) forget_error();
  return plain;
}

bool TorchApi::view(PyObject* tensor, TensorRef& out) const {
  if (is_plain_torch(tensor) && TorchNative::get().read(tensor, out)) return true;
  DlTensor view{};
  if (!exchange(tensor, &view)) return false;
  out = {static_cast<char*>(view.data) + view.byte_offset,
         view.shape,
         view.strides,
         view.ndim,
         view.device.type,
         view.device.id,
         view.dtype.code,
         view.dtype.bits};
  return true;
}

bool TorchApi::matches(PyObject* tensor, const TensorMeta& expected, void** data) const {
  if (!is_torch_tensor(tensor)) return numpy != nullptr && numpy->matches(tensor, expected, data);
  TensorRef ref;
  if (!view(tensor, ref)) return false;
  if (data != nullptr) *data = ref.data;
  const auto rank = static_cast<size_t>(ref.rank);
  return ref.code == expected.code && ref.bits == expected.bits && ref.device_type == expected.device_type &&
         ref.device_id == expected.device_id && rank == expected.sizes.size() &&
         std::equal(expected.sizes.begin(), expected.sizes.end(), ref.sizes) &&
         (ref.strides == nullptr || expected.strides.size() != rank ||
          std::equal(expected.strides.begin(), expected.strides.end(), ref.strides));
}

namespace {

const TensorHistory& history() { return TorchNative::get().history(); }

}  // namespace

bool TorchApi::requires_grad(PyObject* tensor) const {
  const std::optional<bool> known = is_plain_torch(tensor) ? history().requires_grad(tensor) : std::nullopt;
  return known ? *known : attribute_is_true(tensor, "requires_grad");
}

bool TorchApi::is_leaf(PyObject* tensor) const {
  const std::optional<bool> known = is_plain_torch(tensor) ? history().is_leaf(tensor) : std::nullopt;
  return known ? *known : attribute_is_true(tensor, "is_leaf");
}

bool TorchApi::lacks_gradient(PyObject* tensor) const {
  return is_plain_torch(tensor) && !history().has_gradient(tensor).value_or(true);
}

bool TorchApi::lacks_hooks(PyObject* tensor) const {
  return is_plain_torch(tensor) && !history().has_hooks(tensor).value_or(true);
}

Ref TorchApi::meta_like(PyObject* tensor) const {
  const Ref sizes = attr(tensor, "shape");
  const Ref strides = Ref::steal(PyObject_CallMethod(tensor, "stride", nullptr));
  const Ref dtype = attr(tensor, "dtype");
  if (!sizes || !strides || !dtype) return {};
  return empty_meta(sizes.get(), strides.get(), dtype.get());
}

Ref TorchApi::empty_meta(PyObject* sizes, PyObject* strides, PyObject* dtype) const {
  const Ref args = Ref::steal(PyTuple_Pack(2, sizes, strides));
  const Ref kwargs = Ref::steal(PyDict_New());
  PyDict_SetItemString(kwargs.get(), "dtype", dtype);
  PyDict_SetItem(kwargs.get(), device_key.get(), meta_device.get());
  return Ref::steal(PyObject_Call(functions.empty_strided.get(), args.get(), kwargs.get()));
}

const TorchFunction& TorchApi::classify(PyObject* func) {
  // Getters come as a fresh `__get__` method-wrapper each time; the descriptor behind it stays.
  PyObject* key = func;
  Ref self;
  if (std::strcmp(Py_TYPE(func)->tp_name, "method-wrapper") == 0) {
    self = attr(func, "__self__");
    key = self.get();
    if (name_of(func) != "__get__") {
      static const TorchFunction setter{
          TorchKind::kBreak, "a tensor attribute's assignment", false, false, false, false, false, nullptr};
      return setter;
    }
  }
  const auto found = functions_.find(key);
  if (found != functions_.end()) return found->second;
  Py_INCREF(key);  // identity must stay taken
  return functions_.emplace(key, make(func, key)).first->second;
}

bool is_dispatcher_operator(PyObject* func) { return std::strncmp(Py_TYPE(func)->tp_name, "OpOverload", 10) == 0; }

namespace {

/// Of an overload (torch.ops.aten.add.Tensor) or of all overloads (torch.ops.aten.add).
std::string operator_name(PyObject* func) {
  const Ref packet = attr_or_null(func, "_overloadpacket");
  const std::string name = name_of(packet ? packet.get() : func, "_qualified_op_name");
  return name.rfind("aten::", 0) == 0 ? name.substr(6) : name;
}

/// An operator that takes an object (`exit`) has only its own name, not its library's.
bool is_profiler_mark(std::string_view name) {
  return name.starts_with("profiler::_record_function_") || name.starts_with("_record_function_");
}

}  // namespace

TorchFunction TorchApi::make(PyObject* func, PyObject* key) {
  TorchFunction result;
  result.key = key;
  result.dispatcher = is_dispatcher_operator(key);
  result.name = result.dispatcher ? operator_name(key) : name_of(key);
  const bool getter = key != func;
  const KnownTorch known = known_torch(result.name);
  if (getter && known.is(kDeviceGetter)) {
    result.kind = TorchKind::kDevice;
  } else if (getter && known.is(kGradGetter)) {
    result.kind = TorchKind::kGrad;
  } else if (PyFunction_Check(func)) {
    result.kind = TorchKind::kPython;
  } else if (is_profiler_mark(result.name)) {
    result.kind = TorchKind::kPassthrough;
  } else if (result.dispatcher && known.is(kBreaksAsOperator)) {
    result.kind = TorchKind::kBreak;
  } else if (known.kind != TorchKind::kRecord) {
    result.kind = known.kind;
    result.of_sizes = known.is(kOfSizes);
    result.of_layout = known.is(kOfLayout);
    result.reads_values = known.is(kOfValues);
  } else if (getter && !known.is(kViewGetter)) {
    result.kind = TorchKind::kBreak;  // what a placeholder has there says nothing of the tensor
  } else {
    result.factory = known.is(kFactory);
  }
  return result;
}

std::vector<Ref> gpu_generators(const TorchApi& api) {
  const ErrorAside aside;
  std::vector<Ref> found;
  const Ref cuda = attr_or_null(api.torch.get(), "cuda");
  const Ref ready = Ref::steal(cuda ? PyObject_CallMethod(cuda.get(), "is_initialized", nullptr) : nullptr);
  const Ref all = ready.get() == Py_True ? attr_or_null(cuda.get(), "default_generators") : Ref();
  if (!all || !PyTuple_Check(all.get())) return found;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(all.get()); ++i) {
    found.push_back(Ref::borrow(PyTuple_GET_ITEM(all.get(), i)));
  }
  return found;
}

Ref generator_states(const TorchApi& api) {
  std::vector<Ref> generators = gpu_generators(api);
  generators.push_back(attr_or_null(api.torch.get(), "default_generator"));
  Ref states = Ref::steal(PyList_New(0));
  for (const Ref& generator : generators) {
    const Ref state = generator ? Ref::steal(PyObject_CallMethod(generator.get(), "get_state", nullptr)) : Ref();
    const Ref pair = state ? Ref::steal(PyTuple_Pack(2, generator.get(), state.get())) : Ref();
    if (!pair || PyList_Append(states.get(), pair.get()) != 0) return {};
  }
  return states;
}

bool set_generator_states(PyObject* states) {
  const ErrorAside aside;
  bool done = true;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(states); ++i) {
    PyObject* const pair = PyList_GET_ITEM(states, i);
    done =
        Ref::steal(PyObject_CallMethod(PyTuple_GET_ITEM(pair, 0), "set_state", "O", PyTuple_GET_ITEM(pair, 1))) && done;
  }
  return done;
}

bool is_library_code(const PyCodeObject* code, const TorchApi& api) {
  const std::string file = text_of(code->co_filename);
  // Without torch its folder has no name.
  const auto lies_in = [&file](const std::string& folder) { return !folder.empty() && file.starts_with(folder); };
  if (file.starts_with("<frozen") || lies_in(api.files.own_folder)) return true;
  if (api.numpy != nullptr && lies_in(api.numpy->folder)) return true;
  if (lies_in(api.files.torch_folder)) {
    const std::string_view inner = std::string_view(file).substr(api.files.torch_folder.size());
    if (inner.ends_with("_functions.py")) return true;  // of autograd, which apply() alone calls
    // Of its modules' own code, not of how parameters are copied.
    return inner.substr(0, 3) != "nn/" || inner.starts_with("nn/param") || inner == "nn/modules/module.py";
  }
  return lies_in(api.files.library_folder) && file.find("/site-packages/") == std::string::npos;
}

}  // namespace tatara::capture
