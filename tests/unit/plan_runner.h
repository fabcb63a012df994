// Runs a plan without any code: where a kernel or an operator of the host would be, every byte that it may read or write is touched.
// Under a sanitizer, or with memory that ends where it should, this finds what reaches beyond.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "loops/kernel.h"
#include "runtime/plan/executable.h"
#include "support/error.h"
#include "support/options.h"

namespace tatara {

class PlanRunner {
 public:
  PlanRunner(const Plan& plan, std::vector<const loops::Kernel*> kernels)
      : plan_(plan), kernels_(std::move(kernels)), host_(*this) {}

  /// Throws tatara::Error where a part of the runtime refuses.
  void run() {
    for (const PlanStep& step : plan_.steps) {
      if (const auto* launch = std::get_if<KernelLaunch>(&step)) {
        if (launch->parallel_iterations.const_value() > 0) launches_.push_back(launch);
      } else {
        calls_.push_back(&std::get<HostCall>(step));
      }
    }
    KernelCode code;
    code.fn = &PlanRunner::touch_launch;
    verify_host_calls(plan_, &host_);
    const Executable executable(plan_, std::vector<KernelCode>(plan_.kernels.size(), code), &host_);
    EdgeLayouts edges;
    executable.edge_layouts({}, edges);
    std::vector<void*> inputs, outputs;
    std::vector<Memory> memory;
    const auto give = [&](const TensorLayout& layout, DType dtype, std::vector<void*>& to) {
      memory.emplace_back(layout.sizes, layout.strides, dtype);
      to.push_back(memory.back().data());
    };
    memory.reserve(edges.inputs.size() + edges.output_buffers.size());
    for (size_t i = 0; i < edges.inputs.size(); ++i) give(edges.inputs[i], plan_.inputs[i].type.dtype, inputs);
    for (size_t b = 0; b < edges.output_buffers.size(); ++b) {
      give(edges.output_buffers[b], executable.output_buffers()[b].dtype, outputs);
    }
    RunIo io;
    io.inputs = inputs;
    io.output_buffers = outputs;
    current() = this;
    const OneThread in_order;
    executable.run(io, {});
    for (size_t i = 0; i < edges.outputs.size(); ++i) {
      const PlanOutput& output = plan_.outputs[i];
      if (output.ref.buffer < 0) continue;
      const PlanBuffer& buffer = plan_.buffers[static_cast<size_t>(output.ref.buffer)];
      const auto index = static_cast<size_t>(buffer.index);
      void* base = buffer.home == BufferHome::kInput    ? inputs.at(index)
                   : buffer.home == BufferHome::kOutput ? outputs.at(index)
                   : buffer.home == BufferHome::kHost   ? host_.view(io.host_outputs.at(i)).data
                                                        : nullptr;
      const TensorLayout& layout = edges.outputs[i];
      const int64_t size = dtype_size(output.ref.dtype);
      if (base != nullptr)
        touch(static_cast<char*>(base) + layout.offset * size, layout.sizes, layout.strides, size, false);
    }
  }

 private:
  static PlanRunner*& current() {
    static PlanRunner* runner = nullptr;
    return runner;
  }

  /// First and last element of a layout, and whether it has any.
  static std::pair<int64_t, int64_t> reach(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
                                           bool& empty) {
    int64_t low = 0, high = 0;
    empty = false;
    for (size_t d = 0; d < sizes.size(); ++d) {
      empty = empty || sizes[d] == 0;
      (strides[d] < 0 ? low : high) += (sizes[d] - 1) * strides[d];
    }
    return {low, high};
  }

  /// Memory that is exactly as large as a tensor needs.
  class Memory {
   public:
    Memory(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, DType dtype) {
      bool empty = false;
      const auto [low, high] = reach(sizes, strides, empty);
      const int64_t bytes = empty ? 0 : (high - low + 1) * dtype_size(dtype);
      if (bytes > kMost) throw CompilationError("a large tensor");
      bytes_ = std::make_unique<char[]>(static_cast<size_t>(bytes));
      begin_ = empty ? 0 : -low * dtype_size(dtype);
    }
    void* data() const { return bytes_.get() + begin_; }

   private:
    static constexpr int64_t kMost = 1 << 24;
    std::unique_ptr<char[]> bytes_;
    int64_t begin_ = 0;
  };

  static void touch_bytes(char* begin, int64_t bytes, bool written) {
    if (bytes <= 0) return;
    const auto read = [](const char* at) { return *static_cast<const volatile char*>(at); };
    const char last = read(begin + bytes - 1);
    static_cast<void>(std::accumulate(begin, begin + bytes, int{last}));
    if (written) std::memset(begin, 1, static_cast<size_t>(bytes));
  }

  static void touch(void* data, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, int64_t size,
                    bool written) {
    bool empty = false;
    const auto [low, high] = reach(sizes, strides, empty);
    if (!empty) touch_bytes(static_cast<char*>(data) + low * size, (high - low + 1) * size, written);
  }

  /// The parts of a launch come in order: by the first of them touch_launch() knows that the next launch has begun.
  struct OneThread {
    OneThread() { set_option(Option::kNumThreads, int64_t{1}); }
    OneThread(const OneThread&) = delete;
    OneThread& operator=(const OneThread&) = delete;
    ~OneThread() { reset_option(Option::kNumThreads); }
  };

  static int32_t touch_launch(void* const* buffers, const int64_t*, const int64_t*, int64_t begin, int64_t end,
                              KernelFault*) {
    PlanRunner& self = *current();
    if (begin == 0) ++self.next_launch_;
    const KernelLaunch& launch = *self.launches_.at(self.next_launch_ - 1);
    if (end > launch.parallel_iterations.const_value()) throw InternalError("more iterations than there are");
    const loops::Kernel& kernel = *self.kernels_.at(static_cast<size_t>(launch.kernel));
    size_t i = 0;
    for (const loops::BufferArg& arg : kernel.buffers) {
      if (arg.kind == loops::ArgKind::kScratch) continue;
      const PlanBuffer& buffer = self.plan_.buffers.at(static_cast<size_t>(launch.buffers.at(i)));
      const bool empty = std::any_of(buffer.sizes.begin(), buffer.sizes.end(), [](Expr e) { return e.is_const(0); });
      const bool written = arg.kind == loops::ArgKind::kOutput || arg.kind == loops::ArgKind::kInOut;
      if (!empty) touch_bytes(static_cast<char*>(buffers[i]), arg.numel.const_value() * dtype_size(arg.dtype), written);
      ++i;
    }
    return 0;
  }

  struct Tensor {
    TensorView view;
    std::unique_ptr<Memory> memory;
  };

  class Op final : public HostOp {
   public:
    explicit Op(PlanRunner& runner) : runner_(runner) {}
    std::vector<HostTensor> call(std::span<const HostValue> args) const override {
      const HostCall& call = *runner_.calls_.at(runner_.next_call_++);
      if (args.size() != call.args.size()) throw InternalError("another call");
      const auto use = [](const HostTensor& tensor, bool written) {
        const TensorView& view = std::static_pointer_cast<Tensor>(tensor)->view;
        touch(view.data, view.sizes, view.strides, dtype_size(view.dtype), written);
      };
      for (size_t i = 0; i < args.size(); ++i) {
        if (args[i].tensor) use(args[i].tensor, std::holds_alternative<HostCall::OutSlot>(call.args[i]));
        for (const HostTensor& tensor : args[i].tensors) {
          if (tensor) use(tensor, false);
        }
      }
      std::vector<HostTensor> results;
      for (const BufferId id : call.results) {
        auto made = std::make_shared<Tensor>();
        if (id >= 0) {
          const PlanBuffer& buffer = runner_.plan_.buffers.at(static_cast<size_t>(id));
          for (const Expr e : buffer.sizes) made->view.sizes.push_back(e.const_value());
          for (const Expr e : buffer.strides) made->view.strides.push_back(e.const_value());
          made->view.dtype = buffer.dtype;
          made->memory = std::make_unique<Memory>(made->view.sizes, made->view.strides, buffer.dtype);
          made->view.data = made->memory->data();
        }
        results.push_back(made);
      }
      return results;
    }
    std::string objection(std::span<const HostKind>, size_t) const override { return {}; }

   private:
    PlanRunner& runner_;
  };

  class Host final : public HostOps {
   public:
    explicit Host(PlanRunner& runner) : op_(runner) {}
    const HostOp* find(std::string_view op, std::string_view) override {
      return op.find("::") != std::string_view::npos ? &op_ : nullptr;
    }
    HostTensor wrap(const TensorView& view) override { return std::make_shared<Tensor>(Tensor{view, nullptr}); }
    HostTensor allocate(int64_t, Device) override { throw Unsupported("no memory"); }
    TensorView view(const HostTensor& tensor) override { return std::static_pointer_cast<Tensor>(tensor)->view; }

   private:
    Op op_;
  };

  const Plan& plan_;
  std::vector<const loops::Kernel*> kernels_;
  Host host_;
  std::vector<const KernelLaunch*> launches_;
  std::vector<const HostCall*> calls_;
  size_t next_launch_ = 0, next_call_ = 0;
};

}  // namespace tatara
