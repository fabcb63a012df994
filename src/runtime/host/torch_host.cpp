// torch as the host: its tensors, memory and operators.
#include <dlfcn.h>

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "runtime/host/dispatched_op.h"
#include "runtime/host/host.h"
#include "runtime/host/matrix_ops.h"
#include "runtime/host/random_ops.h"
#include "runtime/host/torch_abi.h"
#include "runtime/host/torch_handles.h"
#include "support/error.h"
#include "support/fork.h"
#include "support/log.h"
#include "support/made_once.h"
#include "support/str_cat.h"

namespace tatara {
namespace {

using torch_abi::adopt;
using torch_abi::Api;
using torch_abi::handle_of;
using torch_abi::TensorHandle;

TorchPythonHooks& python_hooks() { return made_once<TorchPythonHooks>(); }

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
    std::pair<std::string, std::string> key(op, overload);
    // A program may take an operator of its own away and define another one under its name.
    if (is_users_operator(op) && python_hooks().schema) key.second += python_hooks().schema(key.first, key.second);
    {
      const std::lock_guard lock(mutex_);
      const auto found = ops_.find(key);
      if (found != ops_.end()) return found->second.get();
    }
    // Outside of the lock, since Python is asked for schemas. Of several made at once the first stays.
    std::unique_ptr<HostOp> made = make(key.first, std::string(overload));
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

  HostTensor wrap_part(const HostTensor& whole, const TensorView& view, int64_t offset) override {
    if (api_.aoti_torch__reinterpret_tensor == nullptr) return wrap(view);
    TensorHandle handle = nullptr;
    check(api_,
          api_.aoti_torch__reinterpret_tensor(static_cast<TensorHandle>(whole.get()),
                                              static_cast<int64_t>(view.sizes.size()), view.sizes.data(),
                                              view.strides.data(), offset, &handle),
          "wrapping a part of a tensor");
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
    const bool told = api_.is_conj != nullptr || !is_complex(view.dtype);
    view.lazy = !told || torch_abi::is_lazy(api_, handle);
    return view;
  }

 private:
  std::unique_ptr<HostOp> make(const std::string& op, const std::string& overload) {
    const bool out = overload == "out";
    if (out && op == "tatara::wide_mm") return make_wide_product(api_);
    if (out && op == "tatara::bernoulli") return make_bernoulli(*this);
    if (out && op == "tatara::bernoulli_kept") return make_bernoulli_kept(*this);
    if (out && op == "tatara::bernoulli_again") return make_bernoulli_again(*this);
    if (out && op == "tatara::get_rng_state") return make_generator_state(*this);
    if (out && op == "tatara::manual_seed") return make_manual_seed(*this);
    if (out && op == "tatara::set_rng_state") return make_set_generator_state(*this);
    std::unique_ptr<HostOp> dispatched = make_dispatched(op, overload);
    return out ? make_matrix_op(api_, op, std::move(dispatched)) : std::move(dispatched);
  }

  /// Null: the host has no such operator.
  std::unique_ptr<HostOp> make_dispatched(const std::string& op, const std::string& overload) const {
    if (!python_hooks().schema) return nullptr;
    const std::string schema = python_hooks().schema(op, overload);
    return schema.empty() ? nullptr : make_dispatched_op(api_, op, overload, schema);
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
