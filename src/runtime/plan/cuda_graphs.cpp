#include "runtime/plan/cuda_graphs.h"

#include <algorithm>

#include "runtime/base/history.h"
#include "runtime/plan/plan_effects.h"
#include "support/log.h"
#include "support/str_cat.h"

namespace tatara {
namespace {

constexpr int64_t kLeanBytes = int64_t{8} << 20;  // of scratch memory, that a graph of a lean run may keep
constexpr size_t kSizesKnown = 64;

}  // namespace

CudaGraphs::CudaGraphs(const PlanPrograms& programs, const StepRunner& steps, HostOps& host, int64_t limit)
    : steps_(steps), limit_(limit), reason_(objection(programs.plan)), recorder_(programs, steps, host) {
  if (reason_.empty()) operands_ = GraphOperands(programs.plan);
  in_parts_ = std::ranges::any_of(programs.plan.steps, [](const PlanStep& step) {
    const auto* call = std::get_if<HostCall>(&step);
    return call != nullptr && runs_between_graphs(*call);
  });
}

CudaGraphs::~CudaGraphs() { recorder_.wait(); }

std::string CudaGraphs::objection(const Plan& plan) const {
  if (limit_ <= 0) return "the option cuda_graphs is 0";
  if (plan.steps.size() < kFewSteps) return str_cat("fewer than ", kFewSteps, " steps");
  for (const PlanStep& step : plan.steps) {
    const auto* call = std::get_if<HostCall>(&step);
    if (call == nullptr || runs_between_graphs(*call)) continue;
    const bool attention = call->op.starts_with("tatara::fused_attention");  // puts the host's operators together
    if (!call->op.starts_with("aten::") && !attention) return call->op + " is no operator of the host's own";
    for (const BufferRef& ref : call->tensors) {
      if (plan.buffers[static_cast<size_t>(ref.buffer)].device.kind != DeviceKind::kCuda) {
        return call->op + " reads a tensor of the CPU";
      }
    }
  }
  return cuda::graphs_missing();
}

int64_t CudaGraphs::recorded_sizes() const {
  return std::count_if(sizes_.begin(), sizes_.end(), [](const auto& s) { return s->graphs() > 0; });
}

std::string CudaGraphs::describe() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return "a CUDA graph is being recorded";
  if (!reason_.empty()) return "one by one: " + reason_;
  size_t recorded = 0, parts = 0;
  std::string text;
  for (const std::unique_ptr<GraphSizes>& sizes : sizes_) {
    if (!sizes->reason.empty()) text = "; one by one: " + sizes->reason;
    recorded += sizes->graphs();
    parts = std::max(parts, sizes->parts.stretches());
  }
  if (static_cast<int64_t>(sizes_.size()) > limit_ && recorded_sizes() >= limit_) {
    text += "; one by one for further sizes";
  }
  if (recorded == 0 && !text.empty()) return text.substr(2);
  if (recorded == 0) return "as a CUDA graph after some calls with the same sizes";
  if (parts > 1) return str_cat("as CUDA graphs of up to ", parts, " stretches (", recorded, " recorded)", text);
  return str_cat("as a CUDA graph (", recorded, " recorded)", text);
}

GraphSizes* CudaGraphs::sizes_for(std::span<const int64_t> symbols) {
  for (const std::unique_ptr<GraphSizes>& known : sizes_) {
    const bool same = std::equal(symbols.begin(), symbols.end(), known->symbols.begin(), known->symbols.end());
    if (same && (known->graphs() > 0 || recorded_sizes() < limit_)) return known.get();
    if (same) return nullptr;
  }
  if (sizes_.size() >= kSizesKnown) return nullptr;
  sizes_.push_back(std::make_unique<GraphSizes>(recorder_, operands_, symbols));
  return sizes_.back().get();
}

bool CudaGraphs::run(RunContext& context, RunIo& io, void* stream) {
  if (!reason_.empty() || history_on()) return false;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || cuda::recording(stream)) return false;
  GraphSizes* sizes = sizes_for(context.symbols);
  if (sizes == nullptr || !sizes->reason.empty()) return false;
  if (recorder_.busy_elsewhere(stream)) return false;
  ++sizes->calls;
  if (in_parts_ || (io.lean && context.arena_bytes > kLeanBytes)) {
    sizes->parts.run(sizes->calls, context, io, stream);
    return true;
  }
  if (sizes->calls <= kPlainCalls) {
    sizes->whole.watch(io);
    return false;
  }
  steps_.make_all_outputs(context);
  try {
    return sizes->whole.run(sizes->calls, context, io, stream);
  } catch (const Error& error) {
    if (io.as_graph) throw;  // it is on its way
    sizes->reason = error.what();
    TATARA_LOG(kRuntime, "no CUDA graph: ", error.what());
  }
  context.drop_results();
  return false;
}

}  // namespace tatara
