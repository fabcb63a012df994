#include "runtime/random_ops.h"

#include <atomic>
#include <utility>
#include <vector>

#include "runtime/mersenne.h"
#include "support/error.h"
#include "support/log.h"

namespace tatara {
namespace {

/// Below so many numbers the host's operator is as fast as reading the state of its generator.
constexpr int64_t kFew = 1024;

template <typename Trial>
bool agrees(const Trial& trial) {
  for (const auto& [skipped, p] : {std::pair{0, 0.3}, {1, 0.9}, {3, 0.5}}) {
    BernoulliTrial made = trial(skipped, p);
    std::vector<uint8_t> numbers(made.numbers.size());
    auto twister = MersenneTwister::load(made.before);
    if (!twister) return false;
    twister->bernoulli(p, numbers);
    twister->store(made.before);
    if (numbers != made.numbers || made.before != made.after) return false;
  }
  return true;
}

/// Whether this host draws as MersenneTwister does: some of its builds have another generator for this operator.
bool draws_alike() {
  const auto& trial = torch_python_hooks().bernoulli_trial;
  if (!trial || !torch_python_hooks().change_generator) return false;
  // No static of the function: whoever waits for another's trial may hold the lock of Python that it needs.
  static std::atomic<int> known{-1};
  if (const int found = known.load(std::memory_order_acquire); found >= 0) return found == 1;
  const bool alike = agrees(trial);
  known.store(alike ? 1 : 0, std::memory_order_release);
  if (!alike) TATARA_LOG(kRuntime, "masks come from the host's own operator: its numbers are others than expected");
  return alike;
}

class BernoulliOut final : public HostOp {
 public:
  explicit BernoulliOut(HostOps& host) : host_(host) {}

  std::vector<HostTensor> call(std::span<const HostValue> args) const override {
    const double p = args[1].kind == HostValue::Kind::kDouble ? args[1].number : static_cast<double>(args[1].integer);
    const HostTensor& out = args[3].tensor;
    const TensorView view = host_.view(out);
    int64_t count = 1;
    for (const int64_t size : view.sizes) count *= size;
    if (count == 0) return {};
    const bool alike = draws_alike();
    bool drawn = false;
    if (count >= kFew && alike) {
      torch_python_hooks().change_generator([&](std::span<uint8_t> state) {
        auto twister = MersenneTwister::load(state);
        if (!twister) return;
        twister->bernoulli(p, {static_cast<uint8_t*>(view.data), static_cast<size_t>(count)});
        twister->store(state);
        drawn = true;
      });
    }
    if (!drawn) draw_by_host(out, view, p, alike ? DType::kBool : args[2].dtype);
    return {};
  }

 private:
  void draw_by_host(const HostTensor& out, const TensorView& view, double p, DType dtype) const {
    HostValue tensor, number, none, blocking;
    tensor.kind = HostValue::Kind::kTensor;
    number.kind = HostValue::Kind::kDouble;
    number.number = p;
    blocking.kind = HostValue::Kind::kBool;
    TensorView like = view;
    like.dtype = dtype;
    tensor.tensor = dtype == DType::kBool ? out : host_.empty_like(like);
    operator_of("aten::bernoulli_", "float").call(std::vector<HostValue>{tensor, number, none});
    if (dtype == DType::kBool) return;
    HostValue target = tensor;
    target.tensor = out;
    operator_of("aten::copy_", "").call(std::vector<HostValue>{target, tensor, blocking});
  }

  const HostOp& operator_of(const char* name, const char* overload) const {
    const HostOp* op = host_.find(name, overload);
    if (op == nullptr) throw Unsupported(std::string("the host has no operator ") + name);
    return *op;
  }

  HostOps& host_;
};

}  // namespace

std::unique_ptr<HostOp> make_bernoulli(HostOps& host) { return std::make_unique<BernoulliOut>(host); }

}  // namespace tatara
