#include <dlfcn.h>
#include <link.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "runtime/host/gemm.h"
#include "runtime/host/host.h"
#include "runtime/host/random_ops.h"
#include "runtime/host/torch_abi.h"
#include "support/error.h"
#include "support/fork.h"
#include "support/log.h"
#include "support/made_once.h"
#include "support/options.h"

namespace tatara {
namespace torch_abi {
namespace {

struct Loaded {
  Api api;
  bool ok = false;
  std::string why_not;
};

Loaded load_api() {
  Loaded loaded;
  void* library = open_library("libtorch_cpu.so");
  if (library == nullptr) {
    loaded.why_not = "torch is not loaded in this process";
    return loaded;
  }
#define TATARA_LOAD_SHIM(name, result, args)                                       \
  loaded.api.name = reinterpret_cast<result(*) args>(dlsym(library, #name));       \
  if (loaded.api.name == nullptr) {                                                \
    loaded.why_not = "this torch lacks " #name " (supported: torch 2.11 to 2.13)"; \
    return loaded;                                                                 \
  }
  TATARA_TORCH_SHIMS(TATARA_LOAD_SHIM)
#undef TATARA_LOAD_SHIM
  loaded.api.torch_exception_get_what_without_backtrace =
      reinterpret_cast<const char* (*)()>(dlsym(library, "torch_exception_get_what_without_backtrace"));
  loaded.api.torch_new_stable_ivalue =
      reinterpret_cast<ErrorCode (*)(StableIValue**)>(dlsym(library, "torch_new_stable_ivalue"));
  loaded.api.aoti_torch__reinterpret_tensor = reinterpret_cast<decltype(loaded.api.aoti_torch__reinterpret_tensor)>(
      dlsym(library, "aoti_torch__reinterpret_tensor"));
  loaded.api.aoti_torch_get_storage_size =
      reinterpret_cast<decltype(loaded.api.aoti_torch_get_storage_size)>(dlsym(library, "aoti_torch_get_storage_size"));
  loaded.ok = true;
  return loaded;
}

}  // namespace

void* open_library(const char* file_name) {
  struct Search {
    const char* wanted;
    std::string path;
  } search{file_name, {}};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto* s = static_cast<Search*>(data);
        if (info->dlpi_name == nullptr || std::strstr(info->dlpi_name, s->wanted) == nullptr) return 0;
        s->path = info->dlpi_name;
        return 1;
      },
      &search);
  return search.path.empty() ? nullptr : dlopen(search.path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
}

const Api* api(std::string* why_not) {
  // A failed look-up is not remembered: torch may be imported later.
  static constinit std::atomic<const Loaded*> good{nullptr};
  if (const Loaded* known = good.load(std::memory_order_acquire)) return &known->api;
  const Loaded attempt = load_api();
  if (!attempt.ok) {
    if (why_not != nullptr) *why_not = attempt.why_not;
    return nullptr;
  }
  const Loaded& first = made_once([&] { return attempt; });
  good.store(&first, std::memory_order_release);
  return &first.api;
}

namespace {
constexpr std::pair<DType, int32_t> kScalarTypes[] = {
    {DType::kUInt8, 0},     {DType::kInt8, 1},        {DType::kInt16, 2},         {DType::kInt32, 3},
    {DType::kInt64, 4},     {DType::kFloat16, 5},     {DType::kFloat32, 6},       {DType::kFloat64, 7},
    {DType::kComplex32, 8}, {DType::kComplex64, 9},   {DType::kComplex128, 10},   {DType::kBool, 11},
    {DType::kBFloat16, 15}, {DType::kFloat8E5M2, 23}, {DType::kFloat8E4M3FN, 24}, {DType::kUInt16, 27},
    {DType::kUInt32, 28},   {DType::kUInt64, 29},
};
}  // namespace

int32_t scalar_type(DType dtype) {
  for (const auto& [ours, theirs] : kScalarTypes) {
    if (ours == dtype) return theirs;
  }
  throw InternalError("dtype without a host number");
}

DType from_scalar_type(int32_t code) {
  for (const auto& [ours, theirs] : kScalarTypes) {
    if (theirs == code) return ours;
  }
  throw InvalidArgument("the host's dtype number " + std::to_string(code) + " is not supported");
}

const char* dtype_attribute(DType dtype) {
  switch (dtype) {
    case DType::kBool: return "bool";
    case DType::kUInt8: return "uint8";
    case DType::kInt8: return "int8";
    case DType::kUInt16: return "uint16";
    case DType::kInt16: return "int16";
    case DType::kUInt32: return "uint32";
    case DType::kInt32: return "int32";
    case DType::kUInt64: return "uint64";
    case DType::kInt64: return "int64";
    case DType::kFloat16: return "float16";
    case DType::kBFloat16: return "bfloat16";
    case DType::kFloat32: return "float32";
    case DType::kFloat64: return "float64";
    case DType::kComplex32: return "complex32";
    case DType::kComplex64: return "complex64";
    case DType::kComplex128: return "complex128";
    case DType::kFloat8E4M3FN: return "float8_e4m3fn";
    case DType::kFloat8E5M2: return "float8_e5m2";
  }
  return "float32";
}

}  // namespace torch_abi

namespace {

using torch_abi::Api;
using torch_abi::StableIValue;
using torch_abi::TensorHandle;

TorchPythonHooks& python_hooks() { return made_once<TorchPythonHooks>(); }

void check(const Api& api, torch_abi::ErrorCode code, std::string_view what) {
  if (code == 0) return;
  std::string message(what);
  message += " failed in the host";
  if (const std::string text = torch_abi::last_error(api); !text.empty()) message += ": " + text;
  throw CompilationError(message);
}

TensorHandle handle_of(const HostTensor& tensor) { return static_cast<TensorHandle>(tensor.get()); }

HostTensor adopt(const Api& api, TensorHandle handle) {
  return HostTensor(handle, [&api](void* p) { api.aoti_torch_delete_tensor_object(static_cast<TensorHandle>(p)); });
}

TensorHandle new_reference(const Api& api, const HostTensor& tensor) {
  TensorHandle handle = nullptr;
  check(api, api.aoti_torch_new_tensor_handle(handle_of(tensor), &handle), "copying a tensor handle");
  return handle;
}

// ---- Direct shims for the hot operators -----------------------------------------------------------------------------

/// A shim in one form for the CPU and one for GPUs, which another library has.
template <typename Shim>
class DirectShim {
 public:
  DirectShim(const Api& api, Shim cpu, const char* cuda_name) : api_(api), cpu_(cpu), cuda_name_(cuda_name) {}
  /// The one for the tensor's device; null when there is none.
  Shim for_tensor(const HostTensor& tensor) const {
    const int32_t cpu = made_once([this] { return api_.aoti_torch_device_type_cpu(); });
    int32_t type = 0;
    check(api_, api_.aoti_torch_get_device_type(handle_of(tensor), &type), "reading a tensor");
    if (type == cpu) return cpu_;
    std::call_once(once_, [this] {
      void* library = torch_abi::open_library("libtorch_cuda.so");
      if (library != nullptr) cuda_ = reinterpret_cast<Shim>(dlsym(library, cuda_name_));
    });
    return cuda_;
  }

 private:
  const Api& api_;
  Shim cpu_;
  const char* cuda_name_;
  mutable std::once_flag once_;
  mutable Shim cuda_ = nullptr;
};

// ---- Products of matrices on the CPU --------------------------------------------------------------------------------

/// MKL keeps its kernels for AVX-512, and the better ones for AVX2, to the CPUs of its maker. Elsewhere ours are
/// mostly faster, up to twice (docs/performance.md).
bool library_is_slow() {
#if defined(__x86_64__)
  if (__builtin_cpu_is("intel") != 0) return false;
  void* library = torch_abi::open_library("libtorch_cpu.so");
  return library != nullptr && dlsym(library, "MKL_Get_Version_String") != nullptr;
#else
  return false;
#endif
}

bool ours_multiply() {
  const std::string wanted = option_text(Option::kMatmul);
  if (wanted != "auto") return wanted == "native";
  return made_once([] { return library_is_slow(); });
}

/// A tensor of two dims, or of what broadcasts to two.
MatrixRef matrix_of(const Api& api, const HostTensor& tensor) {
  int64_t rank = 0;
  int64_t* sizes = nullptr;
  int64_t* strides = nullptr;
  MatrixRef matrix;
  check(api, api.aoti_torch_get_dim(handle_of(tensor), &rank), "reading a tensor");
  check(api, api.aoti_torch_get_sizes(handle_of(tensor), &sizes), "reading a tensor");
  check(api, api.aoti_torch_get_strides(handle_of(tensor), &strides), "reading a tensor");
  check(api, api.aoti_torch_get_data_ptr(handle_of(tensor), &matrix.data), "reading a tensor");
  if (rank > 0 && sizes[rank - 1] != 1) matrix.column_stride = strides[rank - 1];
  if (rank > 1 && sizes[rank - 2] != 1) matrix.row_stride = strides[rank - 2];
  return matrix;
}

/// Rows and columns, where the tensor has just these.
bool is_matrix(const Api& api, const HostTensor& tensor, std::array<int64_t, 2>& shape) {
  int64_t rank = 0;
  int64_t* sizes = nullptr;
  check(api, api.aoti_torch_get_dim(handle_of(tensor), &rank), "reading a tensor");
  check(api, api.aoti_torch_get_sizes(handle_of(tensor), &sizes), "reading a tensor");
  if (rank != 2) return false;
  shape = {sizes[0], sizes[1]};
  return true;
}

/// Whether the tensor broadcasts to the shape.
bool broadcasts(const Api& api, const HostTensor& tensor, const std::array<int64_t, 2>& shape) {
  int64_t rank = 0;
  int64_t* sizes = nullptr;
  check(api, api.aoti_torch_get_dim(handle_of(tensor), &rank), "reading a tensor");
  check(api, api.aoti_torch_get_sizes(handle_of(tensor), &sizes), "reading a tensor");
  const auto fits = [](int64_t size, int64_t wanted) { return size == 1 || size == wanted; };
  return rank <= 2 && (rank < 1 || fits(sizes[rank - 1], shape[1])) && (rank < 2 || fits(sizes[0], shape[0]));
}

/// alpha * left @ right + beta * addend by our own kernels; false, with nothing done, where the host's library is to do it.
bool multiplied(const Api& api, const HostTensor& out, const HostTensor* addend, const HostTensor& left,
                const HostTensor& right, double alpha, double beta) {
  std::array<int64_t, 2> result, first, second;
  if (!is_matrix(api, out, result) || !is_matrix(api, left, first) || !is_matrix(api, right, second)) return false;
  if (first[1] != second[0] || result[0] != first[0] || result[1] != second[1]) return false;
  if (addend != nullptr && !broadcasts(api, *addend, result)) return false;
  int32_t dtype = 0;
  check(api, api.aoti_torch_get_dtype(handle_of(out), &dtype), "reading a tensor");
  MatrixProduct product;
  product.dtype = torch_abi::from_scalar_type(dtype);
  product.rows = first[0];
  product.inner = first[1];
  product.columns = second[1];
  product.out = matrix_of(api, out);
  // Without products to add, or with infinite ones that a zero would make NaN, the library's own rules hold.
  if (alpha == 0 || !can_multiply(product) || !ours_multiply()) return false;
  product.left = matrix_of(api, left);
  product.right = matrix_of(api, right);
  product.alpha = alpha;
  product.beta = beta;
  if (addend != nullptr && beta != 0) product.addend = matrix_of(api, *addend);
  multiply(product);
  return true;
}

/// mm.out and bmm.out: (a, b, *, out).
class ProductOut final : public HostOp {
 public:
  using Shim = torch_abi::ErrorCode (*)(TensorHandle, TensorHandle, TensorHandle);
  ProductOut(const Api& api, Shim cpu, const char* cuda, std::unique_ptr<HostOp> general)
      : api_(api), shim_(api, cpu, cuda), general_(std::move(general)) {}
  std::vector<HostTensor> call(std::span<const HostValue> a) const override {
    const Shim shim = shim_.for_tensor(a[2].tensor);
    if (shim == nullptr) return general_->call(a);
    if (shim == api_.aoti_torch_cpu_mm_out && multiplied(api_, a[2].tensor, nullptr, a[0].tensor, a[1].tensor, 1, 0)) {
      return {};
    }
    check(api_, shim(handle_of(a[2].tensor), handle_of(a[0].tensor), handle_of(a[1].tensor)), "a matrix product");
    return {};
  }
  std::string objection(std::span<const HostKind> args, size_t results) const override {
    using Kind = HostValue::Kind;
    static constexpr Kind kWanted[] = {Kind::kTensor, Kind::kTensor, Kind::kTensor};
    return results > 0 ? "it returns nothing" : kinds_objection(args, kWanted);
  }

 private:
  const Api& api_;
  DirectShim<Shim> shim_;
  const std::unique_ptr<HostOp> general_;
};

double number_of(const HostValue& value) {
  return value.kind == HostValue::Kind::kDouble ? value.number : static_cast<double>(value.integer);
}

/// addmm.out and baddbmm.out: (self, a, b, *, beta, alpha, out).
class AddmmOut final : public HostOp {
 public:
  using Shim = torch_abi::ErrorCode (*)(TensorHandle, TensorHandle, TensorHandle, TensorHandle, double, double);
  AddmmOut(const Api& api, Shim cpu, const char* cuda, std::unique_ptr<HostOp> general)
      : api_(api), shim_(api, cpu, cuda), general_(std::move(general)) {}
  std::vector<HostTensor> call(std::span<const HostValue> a) const override {
    // The shim takes doubles: complex factors go the general way.
    if (a[3].kind == HostValue::Kind::kComplex || a[4].kind == HostValue::Kind::kComplex) return general_->call(a);
    const Shim shim = shim_.for_tensor(a[5].tensor);
    if (shim == nullptr) return general_->call(a);
    const double beta = number_of(a[3]), alpha = number_of(a[4]);
    if (shim == api_.aoti_torch_cpu_addmm_out &&
        multiplied(api_, a[5].tensor, &a[0].tensor, a[1].tensor, a[2].tensor, alpha, beta)) {
      return {};
    }
    check(api_,
          shim(handle_of(a[5].tensor), handle_of(a[0].tensor), handle_of(a[1].tensor), handle_of(a[2].tensor), beta,
               alpha),
          "addmm");
    return {};
  }
  std::string objection(std::span<const HostKind> args, size_t results) const override {
    using Kind = HostValue::Kind;
    static constexpr Kind kWanted[] = {Kind::kTensor, Kind::kTensor, Kind::kTensor,
                                       Kind::kDouble, Kind::kDouble, Kind::kTensor};
    return results > 0 ? "it returns nothing" : kinds_objection(args, kWanted);
  }

 private:
  const Api& api_;
  DirectShim<Shim> shim_;
  const std::unique_ptr<HostOp> general_;
};

// ---- The dispatcher ----------------------------------------------------------------------------------------------------

/// What the boxed calling convention needs to know of one argument.
struct BoxedArg {
  bool optional = false;
  bool list = false;
  bool list_of_optional = false;
  std::string base;  // "Tensor", "int", "float", "bool", "str", "ScalarType", "Device", "Scalar", ...
};

struct BoxedSchema {
  std::vector<BoxedArg> args;
  int num_returns = 0;
  bool returns_list = false;
  bool dispatchable = true;  // false: an argument that the shims cannot carry
};

std::string trim(std::string text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::vector<std::string> split_top_level(const std::string& text) {
  std::vector<std::string> parts;
  int depth = 0;
  std::string part;
  for (const char c : text) {
    if (c == '(' || c == '[') ++depth;
    if (c == ')' || c == ']') --depth;
    if (c == ',' && depth == 0) {
      parts.push_back(trim(part));
      part.clear();
    } else {
      part += c;
    }
  }
  if (!trim(part).empty()) parts.push_back(trim(part));
  return parts;
}

std::string without_alias_marks(std::string text) {
  for (size_t open = text.find('('); open != std::string::npos; open = text.find('(')) {
    const size_t close = text.find(')', open);
    if (close == std::string::npos) break;
    text.erase(open, close - open + 1);
  }
  return text;
}

BoxedArg parse_boxed_arg(const std::string& text) {
  BoxedArg arg;
  std::string type = without_alias_marks(text.substr(0, text.find_last_of(' ')));
  const size_t equals = text.find('=');
  if (equals != std::string::npos) {
    const std::string head = trim(text.substr(0, equals));
    type = without_alias_marks(head.substr(0, head.find_last_of(' ')));
  }
  type = trim(type);
  if (!type.empty() && type.back() == '?') {
    arg.optional = true;
    type.pop_back();
  }
  const size_t bracket = type.find('[');
  if (bracket != std::string::npos) {
    arg.list = true;
    type = type.substr(0, bracket);
    if (!type.empty() && type.back() == '?') {
      arg.list_of_optional = true;
      type.pop_back();
    }
  }
  arg.base = type == "SymInt" ? "int" : type;
  return arg;
}

BoxedSchema parse_boxed_schema(const std::string& text) {
  BoxedSchema schema;
  const size_t open = text.find('(');
  const size_t arrow = text.find(" -> ");
  if (open == std::string::npos || arrow == std::string::npos) throw InternalError("malformed host schema: " + text);
  const size_t close = text.rfind(')', arrow);
  for (const std::string& part : split_top_level(text.substr(open + 1, close - open - 1))) {
    if (part == "*" || part.empty()) continue;
    schema.args.push_back(parse_boxed_arg(part));
  }
  const std::string returns = trim(text.substr(arrow + 4));
  if (returns != "()") {
    if (returns.front() == '(') {
      schema.num_returns = static_cast<int>(split_top_level(returns.substr(1, returns.size() - 2)).size());
    } else {
      schema.num_returns = 1;
      schema.returns_list = without_alias_marks(returns).find('[') != std::string::npos;
    }
  }
  for (const BoxedArg& arg : schema.args) {
    const bool carried = arg.base == "Tensor" || arg.base == "int" || arg.base == "float" || arg.base == "bool" ||
                         arg.base == "str" || arg.base == "ScalarType" || arg.base == "Device" ||
                         arg.base == "Layout" || arg.base == "MemoryFormat" || arg.base == "Generator";
    if (!carried) schema.dispatchable = false;
  }
  return schema;
}

template <typename T>
StableIValue box(T value) {
  static_assert(sizeof(T) <= sizeof(StableIValue));
  StableIValue boxed = 0;
  std::memcpy(&boxed, &value, sizeof(T));
  return boxed;
}

class DispatchedOp final : public HostOp {
 public:
  DispatchedOp(const Api& api, std::string op, std::string overload, BoxedSchema schema)
      : api_(api), op_(std::move(op)), overload_(std::move(overload)), schema_(std::move(schema)) {}

  std::vector<HostTensor> call(std::span<const HostValue> args) const override {
    if (!schema_.dispatchable || !fits(args)) return call_python(args);
    if (args.size() != schema_.args.size()) throw InternalError("wrong number of arguments for " + op_);
    std::vector<StableIValue> stack;
    stack.reserve(args.size() + 8);
    for (size_t i = 0; i < args.size(); ++i) stack.push_back(box_argument(schema_.args[i], args[i]));
    stack.resize(std::max(stack.size(), static_cast<size_t>(schema_.num_returns)));
    check(api_, api_.torch_call_dispatcher(op_.c_str(), overload_.c_str(), stack.data(), api_.aoti_torch_abi_version()),
          op_);
    return unbox_results(stack);
  }

  std::string objection(std::span<const HostKind> args, size_t results) const override {
    if (args.size() != schema_.args.size()) return str_cat("it has ", schema_.args.size(), " arguments");
    for (size_t i = 0; i < args.size(); ++i) {
      if (!takes(schema_.args[i], args[i])) return str_cat("its argument ", i, " is of another kind");
    }
    const bool enough = schema_.returns_list || results <= static_cast<size_t>(schema_.num_returns);
    return enough ? std::string() : str_cat("it returns ", schema_.num_returns, " tensors");
  }

 private:
  static bool takes(const BoxedArg& arg, const HostKind& value) {
    using Kind = HostValue::Kind;
    const auto is = [&](std::initializer_list<std::string_view> names) {
      return std::find(names.begin(), names.end(), arg.base) != names.end();
    };
    switch (value.kind) {
      case Kind::kNone: return arg.optional || is({"Generator", "Layout", "MemoryFormat"});
      case Kind::kTensor: return is({"Tensor"}) && !arg.list;
      case Kind::kTensorList: return is({"Tensor"}) && arg.list && (arg.list_of_optional || !value.has_none);
      case Kind::kInt: return is({"int", "Scalar"}) || (is({"float"}) && !arg.list);
      case Kind::kDouble: return is({"float", "Scalar"}) && !arg.list;
      case Kind::kBool: return is({"bool", "int", "Scalar"});
      case Kind::kComplex: return is({"Scalar"}) && !arg.list;
      case Kind::kString: return is({"str", "Layout", "MemoryFormat"}) && !arg.list;
      case Kind::kIntList: return is({"int", "float", "Scalar"}) && arg.list;
      case Kind::kDoubleList: return is({"float", "Scalar"}) && arg.list;
      case Kind::kBoolList: return is({"bool"}) && arg.list;
      case Kind::kDType: return is({"ScalarType"}) && !arg.list;
      case Kind::kDevice: return is({"Device"}) && !arg.list;
    }
    return false;
  }

  /// Generators and layouts pass as None only.
  bool fits(std::span<const HostValue> args) const {
    for (size_t i = 0; i < args.size() && i < schema_.args.size(); ++i) {
      const std::string& base = schema_.args[i].base;
      if ((base == "Generator" || base == "Layout" || base == "MemoryFormat") &&
          args[i].kind != HostValue::Kind::kNone) {
        return false;
      }
    }
    return true;
  }

  std::vector<HostTensor> call_python(std::span<const HostValue> args) const {
    if (!python_hooks().call) throw Unsupported("host operator " + op_ + " needs Python, which is not there");
    return python_hooks().call(op_, overload_, args);
  }

  StableIValue box_scalar(const BoxedArg& arg, const HostValue& value) const {
    switch (value.kind) {
      case HostValue::Kind::kTensor: return box(new_reference(api_, value.tensor));
      case HostValue::Kind::kInt:
        return arg.base == "float" ? box(static_cast<double>(value.integer)) : box(value.integer);
      case HostValue::Kind::kBool: return arg.base == "int" ? box(value.integer) : box(value.integer != 0);
      case HostValue::Kind::kDouble: return box(value.number);
      case HostValue::Kind::kString: {
        torch_abi::StringHandle handle = nullptr;
        check(api_, api_.torch_new_string_handle(value.text.data(), value.text.size(), &handle), "making a string");
        return box(handle);
      }
      case HostValue::Kind::kDType: return box(torch_abi::scalar_type(value.dtype));
      case HostValue::Kind::kDevice: {
        const int32_t type = value.device.kind == DeviceKind::kCuda ? api_.aoti_torch_device_type_cuda()
                                                                    : api_.aoti_torch_device_type_cpu();
        return static_cast<uint64_t>(static_cast<uint32_t>(value.device.index)) |
               (static_cast<uint64_t>(static_cast<uint32_t>(type)) << 32);
      }
      case HostValue::Kind::kTensorList:
      case HostValue::Kind::kIntList:
      case HostValue::Kind::kDoubleList:
      case HostValue::Kind::kBoolList: return box_list(arg, value);
      case HostValue::Kind::kNone:
      case HostValue::Kind::kComplex: break;
    }
    throw InternalError("argument of host operator " + op_ + " cannot be passed");
  }

  StableIValue box_list(const BoxedArg& arg, const HostValue& value) const {
    torch_abi::ListHandle list = nullptr;
    const size_t size = value.kind == HostValue::Kind::kTensorList   ? value.tensors.size()
                        : value.kind == HostValue::Kind::kDoubleList ? value.numbers.size()
                                                                     : value.integers.size();
    check(api_, api_.torch_new_list_reserve_size(size, &list), "making a list");
    for (size_t i = 0; i < size; ++i) {
      StableIValue element = 0;
      if (value.kind == HostValue::Kind::kTensorList) {
        element = value.tensors[i] == nullptr ? 0 : box(new_reference(api_, value.tensors[i]));
        if (arg.list_of_optional && element != 0) element = box(heap(element));
      } else if (value.kind == HostValue::Kind::kDoubleList) {
        element = box(value.numbers[i]);
      } else if (value.kind == HostValue::Kind::kBoolList) {
        element = box(value.integers[i] != 0);
      } else {
        element = arg.base == "float" ? box(static_cast<double>(value.integers[i])) : box(value.integers[i]);
      }
      check(api_, api_.torch_list_push_back(list, element), "filling a list");
    }
    return box(list);
  }

  /// Optionals travel as a pointer to a heap cell that the dispatcher frees.
  StableIValue* heap(StableIValue value) const {
    StableIValue* cell = nullptr;
    if (api_.torch_new_stable_ivalue != nullptr) {
      check(api_, api_.torch_new_stable_ivalue(&cell), "boxing an optional");
      *cell = value;
    } else {
      cell = new StableIValue(value);
    }
    return cell;
  }

  StableIValue box_argument(const BoxedArg& arg, const HostValue& value) const {
    if (value.kind == HostValue::Kind::kNone) return 0;
    if (arg.list && (value.kind == HostValue::Kind::kInt || value.kind == HostValue::Kind::kBool)) {
      HostValue list;
      list.kind = HostValue::Kind::kIntList;
      list.integers = {value.integer};
      return box_argument(arg, list);
    }
    const StableIValue boxed = box_scalar(arg, value);
    return arg.optional ? box(heap(boxed)) : boxed;
  }

  std::vector<HostTensor> unbox_results(const std::vector<StableIValue>& stack) const {
    std::vector<HostTensor> results;
    if (schema_.returns_list) {
      torch_abi::ListHandle list = nullptr;
      std::memcpy(&list, &stack[0], sizeof(list));
      size_t size = 0;
      check(api_, api_.torch_list_size(list, &size), "reading a list");
      for (size_t i = 0; i < size; ++i) {
        StableIValue element = 0;
        check(api_, api_.torch_list_get_item(list, i, &element), "reading a list");
        results.push_back(unbox_tensor(element));
      }
      api_.torch_delete_list(list);
      return results;
    }
    for (int i = 0; i < schema_.num_returns; ++i) results.push_back(unbox_tensor(stack[static_cast<size_t>(i)]));
    return results;
  }

  HostTensor unbox_tensor(StableIValue boxed) const {
    TensorHandle handle = nullptr;
    std::memcpy(&handle, &boxed, sizeof(TensorHandle));
    return adopt(api_, handle);
  }

  const Api& api_;
  std::string op_;
  std::string overload_;
  BoxedSchema schema_;
};

/// torch counts each begin; as many releases give the memory back.
class TorchPool final : public MemoryPool {
 public:
  explicit TorchPool(int device) : device_(device) {
    if (!python_hooks().pool) throw Unsupported("the host's memory pools need Python, which is not there");
    act(Action::kMake);
  }
  ~TorchPool() override {
    try {
      for (; begun_ > 0; --begun_) act(Action::kRelease);
    } catch (const Error& error) {
      TATARA_LOG(kRuntime, "a memory pool stays: ", error.what());
    }
  }
  void begin() override {
    act(Action::kBegin);
    ++begun_;
  }
  void end() override { act(Action::kEnd); }

 private:
  using Action = TorchPythonHooks::PoolAction;
  void act(Action action) { python_hooks().pool(action, device_, id_); }
  int device_;
  int begun_ = 0;
  std::pair<int64_t, int64_t> id_;
};

class TorchHostOps final : public HostOps {
 public:
  explicit TorchHostOps(const Api& api) : api_(api) {}

  const HostOp* find(std::string_view op, std::string_view overload) override {
    const std::pair<std::string, std::string> key(op, overload);
    {
      const std::lock_guard lock(mutex_);
      const auto found = ops_.find(key);
      if (found != ops_.end()) return found->second.get();
    }
    // Outside of the lock, since Python is asked for schemas. Of several made at once the first stays.
    std::unique_ptr<HostOp> made = make(key.first, key.second);
    const std::lock_guard lock(mutex_);
    return ops_.emplace(key, std::move(made)).first->second.get();
  }

  HostTensor wrap(const TensorView& view) override {
    TensorHandle handle = nullptr;
    const int32_t device =
        view.device.kind == DeviceKind::kCuda ? api_.aoti_torch_device_type_cuda() : api_.aoti_torch_device_type_cpu();
    check(api_,
          api_.aoti_torch_create_tensor_from_blob(view.data, static_cast<int64_t>(view.sizes.size()), view.sizes.data(),
                                                  view.strides.data(), 0, torch_abi::scalar_type(view.dtype), device,
                                                  view.device.index < 0 ? 0 : view.device.index, &handle),
          "wrapping memory as a tensor");
    return adopt(api_, handle);
  }

  HostTensor allocate(int64_t bytes, Device device) override {
    TensorView bytes_of_it;
    bytes_of_it.dtype = DType::kUInt8;
    bytes_of_it.device = device;
    bytes_of_it.sizes = {bytes};
    bytes_of_it.strides = {1};
    return empty_like(bytes_of_it);
  }

  HostTensor empty_like(const TensorView& like) override {
    TensorHandle handle = nullptr;
    const int32_t type = torch_abi::scalar_type(like.dtype);
    if (like.device.kind == DeviceKind::kCuda) {
      std::string why_not;
      handle = torch_abi::empty_on_gpu(api_, like.sizes, like.strides, type, like.device.index, why_not);
      if (handle == nullptr) throw CompilationError(why_not);
      return adopt(api_, handle);
    }
    check(api_,
          api_.aoti_torch_empty_strided(static_cast<int64_t>(like.sizes.size()), like.sizes.data(), like.strides.data(),
                                        type, api_.aoti_torch_device_type_cpu(), 0, &handle),
          "allocating memory");
    return adopt(api_, handle);
  }

  std::shared_ptr<void> on_stream(void* stream, int device) override {
    struct Shims {
      torch_abi::ErrorCode (*make)(void*, int32_t, void**) = nullptr;
      torch_abi::ErrorCode (*drop)(void*) = nullptr;
    };
    const Shims& shims = made_once([] {
      void* library = torch_abi::open_library("libtorch_cuda.so");
      Shims found;
      if (library == nullptr) return found;
      found.make = reinterpret_cast<decltype(found.make)>(dlsym(library, "aoti_torch_create_cuda_stream_guard"));
      found.drop = reinterpret_cast<decltype(found.drop)>(dlsym(library, "aoti_torch_delete_cuda_stream_guard"));
      return found;
    });
    void* guard = nullptr;
    if (shims.make == nullptr || shims.drop == nullptr) throw Unsupported("this torch lacks guards of streams");
    check(api_, shims.make(stream, device, &guard), "changing the stream");
    return {guard, [drop = shims.drop](void* made) { drop(made); }};
  }

  std::unique_ptr<MemoryPool> make_pool(int device) override { return std::make_unique<TorchPool>(device); }

  TensorView view(const HostTensor& tensor) override {
    TensorView view;
    TensorHandle handle = handle_of(tensor);
    int64_t rank = 0;
    int64_t* sizes = nullptr;
    int64_t* strides = nullptr;
    int32_t dtype = 0;
    int32_t device = 0;
    int32_t index = 0;
    check(api_, api_.aoti_torch_get_data_ptr(handle, &view.data), "reading a tensor");
    check(api_, api_.aoti_torch_get_dim(handle, &rank), "reading a tensor");
    check(api_, api_.aoti_torch_get_sizes(handle, &sizes), "reading a tensor");
    check(api_, api_.aoti_torch_get_strides(handle, &strides), "reading a tensor");
    check(api_, api_.aoti_torch_get_dtype(handle, &dtype), "reading a tensor");
    check(api_, api_.aoti_torch_get_device_type(handle, &device), "reading a tensor");
    check(api_, api_.aoti_torch_get_device_index(handle, &index), "reading a tensor");
    view.sizes.assign(sizes, sizes + rank);
    view.strides.assign(strides, strides + rank);
    view.dtype = torch_abi::from_scalar_type(dtype);
    view.device.kind = device == api_.aoti_torch_device_type_cuda() ? DeviceKind::kCuda : DeviceKind::kCpu;
    view.device.index = view.device.kind == DeviceKind::kCuda ? static_cast<int16_t>(index) : int16_t{-1};
    return view;
  }

 private:
  std::unique_ptr<HostOp> make_dispatched(const std::string& op, const std::string& overload) {
    if (!python_hooks().schema) return nullptr;
    const std::string schema = python_hooks().schema(op, overload);
    if (schema.empty()) return nullptr;
    return std::make_unique<DispatchedOp>(api_, op, overload, parse_boxed_schema(schema));
  }

  std::unique_ptr<HostOp> make(const std::string& op, const std::string& overload) {
    if (overload == "out") {
      if (op == "tatara::bernoulli") return make_bernoulli(*this);
      if (op == "tatara::bernoulli_kept") return make_bernoulli_kept(*this);
      if (op == "tatara::bernoulli_again") return make_bernoulli_again(*this);
      if (op == "aten::mm" || op == "aten::bmm" || op == "aten::addmm" || op == "aten::baddbmm") {
        std::unique_ptr<HostOp> general = make_dispatched(op, overload);
        if (op == "aten::mm") {
          return std::make_unique<ProductOut>(api_, api_.aoti_torch_cpu_mm_out, "aoti_torch_cuda_mm_out",
                                              std::move(general));
        }
        if (op == "aten::bmm") {
          return std::make_unique<ProductOut>(api_, api_.aoti_torch_cpu_bmm_out, "aoti_torch_cuda_bmm_out",
                                              std::move(general));
        }
        if (op == "aten::addmm") {
          return std::make_unique<AddmmOut>(api_, api_.aoti_torch_cpu_addmm_out, "aoti_torch_cuda_addmm_out",
                                            std::move(general));
        }
        return std::make_unique<AddmmOut>(api_, api_.aoti_torch_cpu_baddbmm_out, "aoti_torch_cuda_baddbmm_out",
                                          std::move(general));
      }
    }
    return make_dispatched(op, overload);
  }

  const Api& api_;
  ForkSafeMutex mutex_;
  std::map<std::pair<std::string, std::string>, std::unique_ptr<HostOp>> ops_;
};

}  // namespace

std::string kinds_objection(std::span<const HostKind> args, std::span<const HostValue::Kind> wanted) {
  using Kind = HostValue::Kind;
  if (args.size() != wanted.size()) return str_cat("it has ", wanted.size(), " arguments");
  for (size_t i = 0; i < args.size(); ++i) {
    const bool number = args[i].kind == Kind::kDouble || args[i].kind == Kind::kInt || args[i].kind == Kind::kBool;
    const bool any_number = number || args[i].kind == Kind::kComplex;
    if (wanted[i] == Kind::kDouble ? !any_number : args[i].kind != wanted[i]) {
      return str_cat("its argument ", i, " is of another kind");
    }
  }
  return {};
}

HostTensor HostOps::empty_like(const TensorView&) { throw Unsupported("this host makes no tensors"); }
std::shared_ptr<void> HostOps::on_stream(void*, int) { throw Unsupported("this host has no streams"); }
std::unique_ptr<MemoryPool> HostOps::make_pool(int) { throw Unsupported("this host has no memory pools"); }

const TorchPythonHooks& torch_python_hooks() { return python_hooks(); }
void set_torch_python_hooks(TorchPythonHooks hooks) { python_hooks() = std::move(hooks); }

HostOps* torch_host_ops(std::string* why_not) {
  const Api* api = torch_abi::api(why_not);
  if (api == nullptr) return nullptr;
  return &made_once([&] { return TorchHostOps(*api); });
}

}  // namespace tatara
