// The host (PyTorch, NumPy) as the runtime sees it: tensors in memory, allocation, eager operators.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/graph.h"

namespace tatara {

/// A strided tensor in memory. `data` points at element (0, ..., 0). Sizes and strides in elements.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  Device device;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  bool lazy = false;  ///< the values are the conjugates, or the negatives, of what is in memory
};

/// An owned reference to a tensor of the host, not a Python object (for torch: an AtenTensorHandle).
using HostTensor = std::shared_ptr<void>;

/// A run-time argument of a host operator.
struct HostValue {
  enum class Kind : uint8_t {
    kNone,
    kTensor,
    kTensorList,  // null entries are None
    kInt,
    kDouble,
    kBool,
    kComplex,
    kString,
    kIntList,
    kDoubleList,
    kBoolList,
    kDType,
    kDevice,
  };
  Kind kind = Kind::kNone;
  HostTensor tensor;
  std::vector<HostTensor> tensors;
  int64_t integer = 0;  // kInt, kBool
  double number = 0;    // kDouble, real part of kComplex
  double imag = 0;
  std::string text;
  std::vector<int64_t> integers;  // kIntList, kBoolList
  std::vector<double> numbers;
  DType dtype = DType::kFloat32;
  Device device;
};

/// What is known of a HostValue before it is there.
struct HostKind {
  HostValue::Kind kind = HostValue::Kind::kNone;
  bool has_none = false;  // kTensorList: one of them is None
};

/// "" when the kinds are these, with numbers of any kind where kDouble stands.
std::string kinds_objection(std::span<const HostKind> args, std::span<const HostValue::Kind> wanted);

/// One eager operator. Thread-safe.
class HostOp {
 public:
  virtual ~HostOp() = default;
  /// Calls the operator with one value per argument of its schema. Throws tatara::Error with the host's message.
  virtual std::vector<HostTensor> call(std::span<const HostValue> args) const = 0;
  /// Why a call with values of these kinds, of which `results` tensors are used, is none that call() may be given; "" when it may.
  /// For plans that were read from a disk: call() itself does not look.
  virtual std::string objection(std::span<const HostKind> args, size_t results) const = 0;
};

/// Memory of a device that the host's allocator keeps apart: what a thread allocates between begin() and end() comes from it,
/// and goes back to it. Gone with the object, once its tensors are. Not thread-safe.
class MemoryPool {
 public:
  virtual ~MemoryPool() = default;
  virtual void begin() = 0;
  virtual void end() = 0;
};

/// Whether the operator ("aten::mm") is neither the host's own nor one that Tatara puts together from these.
inline bool is_users_operator(std::string_view op) {
  return !op.starts_with("aten::") && !op.starts_with("tatara::") && !op.starts_with("tatara_host:");
}
/// The operator itself, or the one that runs under transforms: "library::operator" of "tatara_host:v:2:library::operator".
inline std::string_view without_transforms(std::string_view op) {
  constexpr std::string_view kTransformed = "tatara_host:";
  if (!op.starts_with(kTransformed)) return op;
  op.remove_prefix(kTransformed.size());
  for (int part = 0; part < 2; ++part) op.remove_prefix(op.find(':') + 1);
  return op;
}
/// Whether it calls code of the user's, which may keep what it is given: such an operator, itself or under transforms.
inline bool calls_users_code(std::string_view op) { return is_users_operator(without_transforms(op)); }

/// Eager operators and tensors of a host, without Python.
class HostOps {
 public:
  virtual ~HostOps() = default;
  /// Null when the host has no such operator. The result lives as long as the process.
  virtual const HostOp* find(std::string_view op, std::string_view overload) = 0;
  /// A host tensor over memory that the caller keeps alive.
  virtual HostTensor wrap(const TensorView& view) = 0;
  /// The same for memory that begins `offset` elements behind the begin of `whole`: a view of that tensor.
  virtual HostTensor wrap_part(const HostTensor& whole, const TensorView& view, int64_t offset) {
    static_cast<void>(whole);
    static_cast<void>(offset);
    return wrap(view);
  }
  /// A new tensor of `bytes` bytes from the host's allocator, in the order of the device's present stream. Throws Error with
  /// the host's message when there is no memory.
  virtual HostTensor allocate(int64_t bytes, Device device) = 0;
  /// Memory and layout of a host tensor (borrowed).
  virtual TensorView view(const HostTensor& tensor) = 0;
  /// A new tensor laid out as `like`. Throws as allocate() does.
  virtual HostTensor empty_like(const TensorView& like);
  /// While the result lives, this thread's operators on the device run on `stream`. Throws Unsupported.
  virtual std::shared_ptr<void> on_stream(void* stream, int device);
  /// Throws Unsupported.
  virtual std::unique_ptr<MemoryPool> make_pool(int device);
};

/// The torch in this process: C shims exported by libtorch and found by dlsym. Null when torch is not loaded or lacks them,
/// with the reason.
HostOps* torch_host_ops(std::string* why_not = nullptr);

/// What the host drew after `skipped` 32-bit numbers of a generator with some seed: `numbers` are trials with probability p.
struct BernoulliTrial {
  std::vector<uint8_t> before, numbers, after;  // states of the generator around them
};

/// What only Python can tell or do, installed by the bindings: the schema text of an operator ("" when unknown), and a call
/// of operators that the C shims do not reach (Scalar arguments, generators). Both take the GIL themselves.
struct TorchPythonHooks {
  std::function<std::string(std::string_view op, std::string_view overload)> schema;
  /// Receives and returns raw AtenTensorHandles: inputs are borrowed, results are owned by the caller.
  std::function<std::vector<HostTensor>(std::string_view op, std::string_view overload,
                                        std::span<const HostValue> args)>
      call;
  /// A pool of the allocator for a GPU, by the pair of numbers that torch names it by; kMake fills these.
  enum class PoolAction : uint8_t { kMake, kBegin, kEnd, kRelease };
  std::function<void(PoolAction action, int device, std::pair<int64_t, int64_t>& pool)> pool;
  /// Hands over the state of the default CPU generator, to be changed in place.
  std::function<void(const std::function<void(std::span<uint8_t> state)>& change)> change_generator;
  /// torch.manual_seed, which is of all devices.
  std::function<void(int64_t seed)> manual_seed;
  std::function<BernoulliTrial(int skipped, double p)> bernoulli_trial;
  /// Whether float32 products on GPUs may round as float32 alone does (torch.backends.cuda.matmul.fp32_precision).
  std::function<bool()> exact_products;
};
const TorchPythonHooks& torch_python_hooks();
void set_torch_python_hooks(TorchPythonHooks hooks);

}  // namespace tatara
