#include "runtime/host/random_ops.h"

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "runtime/host/mersenne.h"
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

/// Masks, into memory that a run gives.
class Drawing {
 public:
  explicit Drawing(HostOps& host) : host_(host) {}

  /// From the host's generator, which moves on.
  void draw(const HostTensor& out, const HostValue& probability, DType dtype) const {
    const double p = number_of(probability);
    const TensorView view = host_.view(out);
    const int64_t count = count_of(view);
    if (count == 0) return;
    const bool alike = draws_alike();
    bool drawn = false;
    if (count >= kFew && alike) {
      torch_python_hooks().change_generator([&](std::span<uint8_t> state) { drawn = draw_from(state, view, p); });
    }
    if (!drawn) draw_by_host(out, view, p, alike ? DType::kBool : dtype);
  }

  /// From a state, which stays as it is.
  void draw_again(std::span<const uint8_t> from, const HostTensor& out, const HostValue& probability,
                  DType dtype) const {
    const TensorView view = host_.view(out);
    std::vector<uint8_t> state(from.begin(), from.end());
    if (count_of(view) == 0 || (draws_alike() && draw_from(state, view, number_of(probability)))) return;
    const auto exchange = [&state](std::span<uint8_t> now) { exchange_states(now, state); };
    torch_python_hooks().change_generator(exchange);
    draw(out, probability, dtype);
    torch_python_hooks().change_generator(exchange);
  }

  TensorView view(const HostTensor& tensor) const { return host_.view(tensor); }

  /// Into bytes that a run gives.
  void read_state(const HostTensor& into) const {
    const TensorView kept = host_.view(into);
    torch_python_hooks().change_generator([&kept](std::span<uint8_t> state) {
      const std::span<uint8_t> bytes = bytes_of(kept);
      check_size(state, bytes.size());
      std::copy(state.begin(), state.end(), bytes.begin());
    });
  }

  void set_state(const HostTensor& from) const {
    const TensorView given = host_.view(from);
    torch_python_hooks().change_generator([&given](std::span<uint8_t> state) {
      const std::span<uint8_t> bytes = bytes_of(given);
      check_size(state, bytes.size());
      std::copy(bytes.begin(), bytes.end(), state.begin());
    });
  }

  static std::span<uint8_t> bytes_of(const TensorView& view) {
    return {static_cast<uint8_t*>(view.data), static_cast<size_t>(view.sizes.at(0))};
  }

 private:
  static double number_of(const HostValue& value) {
    return value.kind == HostValue::Kind::kDouble ? value.number : static_cast<double>(value.integer);
  }

  static int64_t count_of(const TensorView& view) {
    int64_t count = 1;
    for (const int64_t size : view.sizes) count *= size;
    return count;
  }

  static void check_size(std::span<uint8_t> state, size_t size) {
    if (state.size() != size) throw Unsupported("the host's generator has a state of another size");
  }

  static void exchange_states(std::span<uint8_t> now, std::vector<uint8_t>& other) {
    check_size(now, other.size());
    std::swap_ranges(now.begin(), now.end(), other.begin());
  }

  /// Moves the state on; false when it is not known how.
  static bool draw_from(std::span<uint8_t> state, const TensorView& view, double p) {
    auto twister = MersenneTwister::load(state);
    if (!twister) return false;
    twister->bernoulli(p, {static_cast<uint8_t*>(view.data), static_cast<size_t>(count_of(view))});
    twister->store(state);
    return true;
  }

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

using Kind = HostValue::Kind;

std::string unlike(std::span<const HostKind> args, size_t results, std::initializer_list<Kind> wanted) {
  if (results != 0) return "it returns nothing";
  return kinds_objection(args, {wanted.begin(), wanted.size()});
}

class BernoulliOut final : public HostOp {
 public:
  explicit BernoulliOut(HostOps& host) : drawing_(host) {}
  std::vector<HostTensor> call(std::span<const HostValue> args) const override {
    drawing_.draw(args[3].tensor, args[1], args[2].dtype);
    return {};
  }
  std::string objection(std::span<const HostKind> args, size_t results) const override {
    return unlike(args, results, {Kind::kIntList, Kind::kDouble, Kind::kDType, Kind::kTensor});
  }

 private:
  Drawing drawing_;
};

class BernoulliKept final : public HostOp {
 public:
  explicit BernoulliKept(HostOps& host) : drawing_(host) {}
  std::vector<HostTensor> call(std::span<const HostValue> args) const override {
    drawing_.read_state(args[4].tensor);
    drawing_.draw(args[3].tensor, args[1], args[2].dtype);
    return {};
  }
  std::string objection(std::span<const HostKind> args, size_t results) const override {
    return unlike(args, results, {Kind::kIntList, Kind::kDouble, Kind::kDType, Kind::kTensor, Kind::kTensor});
  }

 private:
  Drawing drawing_;
};

class BernoulliAgain final : public HostOp {
 public:
  explicit BernoulliAgain(HostOps& host) : drawing_(host) {}
  std::vector<HostTensor> call(std::span<const HostValue> args) const override {
    drawing_.draw_again(Drawing::bytes_of(drawing_.view(args[0].tensor)), args[4].tensor, args[2], args[3].dtype);
    return {};
  }
  std::string objection(std::span<const HostKind> args, size_t results) const override {
    return unlike(args, results, {Kind::kTensor, Kind::kIntList, Kind::kDouble, Kind::kDType, Kind::kTensor});
  }

 private:
  Drawing drawing_;
};

class GeneratorState final : public HostOp {
 public:
  explicit GeneratorState(HostOps& host) : drawing_(host) {}
  std::vector<HostTensor> call(std::span<const HostValue> args) const override {
    drawing_.read_state(args[0].tensor);
    return {};
  }
  std::string objection(std::span<const HostKind> args, size_t results) const override {
    return unlike(args, results, {Kind::kTensor});
  }

 private:
  Drawing drawing_;
};

class SetGeneratorState final : public HostOp {
 public:
  explicit SetGeneratorState(HostOps& host) : drawing_(host) {}
  std::vector<HostTensor> call(std::span<const HostValue> args) const override {
    drawing_.set_state(args[0].tensor);
    Drawing::bytes_of(drawing_.view(args[1].tensor))[0] = 0;
    return {};
  }
  std::string objection(std::span<const HostKind> args, size_t results) const override {
    return unlike(args, results, {Kind::kTensor, Kind::kTensor});
  }

 private:
  Drawing drawing_;
};

class ManualSeed final : public HostOp {
 public:
  explicit ManualSeed(HostOps& host) : drawing_(host) {}
  std::vector<HostTensor> call(std::span<const HostValue> args) const override {
    torch_python_hooks().manual_seed(args[0].integer);
    Drawing::bytes_of(drawing_.view(args[1].tensor))[0] = 0;
    return {};
  }
  std::string objection(std::span<const HostKind> args, size_t results) const override {
    return unlike(args, results, {Kind::kInt, Kind::kTensor});
  }

 private:
  Drawing drawing_;
};

}  // namespace

std::unique_ptr<HostOp> make_manual_seed(HostOps& host) { return std::make_unique<ManualSeed>(host); }
std::unique_ptr<HostOp> make_generator_state(HostOps& host) { return std::make_unique<GeneratorState>(host); }
std::unique_ptr<HostOp> make_set_generator_state(HostOps& host) { return std::make_unique<SetGeneratorState>(host); }
std::unique_ptr<HostOp> make_bernoulli(HostOps& host) { return std::make_unique<BernoulliOut>(host); }
std::unique_ptr<HostOp> make_bernoulli_kept(HostOps& host) { return std::make_unique<BernoulliKept>(host); }
std::unique_ptr<HostOp> make_bernoulli_again(HostOps& host) { return std::make_unique<BernoulliAgain>(host); }

}  // namespace tatara
