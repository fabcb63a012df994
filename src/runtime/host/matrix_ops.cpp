#include "runtime/host/matrix_ops.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <mutex>
#include <utility>

#include "runtime/host/gemm.h"
#include "runtime/host/torch_handles.h"
#include "support/error.h"
#include "support/made_once.h"
#include "support/options.h"

namespace tatara {
namespace {

using torch_abi::Api;
using torch_abi::handle_of;
using torch_abi::TensorHandle;

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

bool ours_multiply_now() {
  const std::string wanted = option_text(Option::kMatmul);
  if (wanted != "auto") return wanted == "native";
  return made_once([] { return library_is_slow(); });
}

}  // namespace

/// An answer holds until an option changes.
bool ours_multiply() {
  static std::atomic<uint64_t> known{UINT64_MAX};  // the options' generation, then the answer as the lowest bit
  const uint64_t now = options_generation() << 1;
  uint64_t answer = known.load(std::memory_order_relaxed);
  if ((answer & ~uint64_t{1}) != now) {
    answer = now | static_cast<uint64_t>(ours_multiply_now());
    known.store(answer, std::memory_order_relaxed);
  }
  return (answer & 1) != 0;
}

namespace {

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
  // Without products to add, or with infinite ones that a zero would make NaN, the library's own rules hold.
  if (alpha == 0 || !ours_multiply()) return false;
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
  if (!can_multiply(product)) return false;
  product.left = matrix_of(api, left);
  product.right = matrix_of(api, right);
  product.alpha = alpha;
  product.beta = beta;
  if (addend != nullptr && beta != 0) product.addend = matrix_of(api, *addend);
  multiply(product);
  return true;
}

/// Of a product of two matrices into a third one.
std::string product_objection(std::span<const HostKind> args, size_t results) {
  using Kind = HostValue::Kind;
  static constexpr Kind kWanted[] = {Kind::kTensor, Kind::kTensor, Kind::kTensor};
  return results > 0 ? "it returns nothing" : kinds_objection(args, kWanted);
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
    return product_objection(args, results);
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

/// wide_mm.out: (a, b, *, out).
class WideProductOut final : public HostOp {
 public:
  explicit WideProductOut(const Api& api) : api_(api) {}
  std::vector<HostTensor> call(std::span<const HostValue> a) const override {
    std::array<int64_t, 2> left, right;
    if (!is_matrix(api_, a[0].tensor, left) || !is_matrix(api_, a[1].tensor, right))
      throw InternalError("a wide product of other tensors than matrices");
    MatrixProduct product;
    product.rows = left[0];
    product.inner = left[1];
    product.columns = right[1];
    product.left = operand(a[0].tensor);
    product.right = operand(a[1].tensor);
    product.out = matrix_of(api_, a[2].tensor);
    if (product.out.column_stride == 0) product.out.column_stride = 1;
    if (!multiply_wide(product)) throw Unsupported("wide products on this CPU");
    return {};
  }
  std::string objection(std::span<const HostKind> args, size_t results) const override {
    return product_objection(args, results);
  }

 private:
  MatrixRef operand(const HostTensor& tensor) const {
    MatrixRef matrix = matrix_of(api_, tensor);
    int32_t dtype = 0;
    check(api_, api_.aoti_torch_get_dtype(handle_of(tensor), &dtype), "reading a tensor");
    matrix.narrow = torch_abi::from_scalar_type(dtype);
    return matrix;
  }

  const Api& api_;
};

}  // namespace

std::unique_ptr<HostOp> make_wide_product(const Api& api) { return std::make_unique<WideProductOut>(api); }

bool multiplies_bfloat16() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16") != 0;
#else
  return true;
#endif
}

std::unique_ptr<HostOp> make_matrix_op(const Api& api, std::string_view op, std::unique_ptr<HostOp> general) {
  if (op == "aten::mm") {
    return std::make_unique<ProductOut>(api, api.aoti_torch_cpu_mm_out, "aoti_torch_cuda_mm_out", std::move(general));
  }
  if (op == "aten::bmm") {
    return std::make_unique<ProductOut>(api, api.aoti_torch_cpu_bmm_out, "aoti_torch_cuda_bmm_out", std::move(general));
  }
  if (op == "aten::addmm") {
    return std::make_unique<AddmmOut>(api, api.aoti_torch_cpu_addmm_out, "aoti_torch_cuda_addmm_out",
                                      std::move(general));
  }
  if (op == "aten::baddbmm") {
    return std::make_unique<AddmmOut>(api, api.aoti_torch_cpu_baddbmm_out, "aoti_torch_cuda_baddbmm_out",
                                      std::move(general));
  }
  return general;
}

}  // namespace tatara
