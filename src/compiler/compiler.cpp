#include "compiler/compiler.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <optional>
#include <unordered_map>
#include <utility>

#include "codegen/emit_cpu.h"
#include "compiler/dump.h"
#include "compiler/kernel_store.h"
#include "compiler/loops.h"
#include "compiler/plan_store.h"
#include "ops/core/op_def.h"
#include "ops/core/parse.h"
#include "runtime/base/cache.h"
#include "runtime/base/history.h"
#include "runtime/base/thread_pool.h"
#include "runtime/cuda/cuda.h"
#include "runtime/host/gemm.h"
#include "runtime/host/matrix_ops.h"
#include "support/cancel.h"
#include "support/error.h"
#include "support/hash.h"
#include "support/log.h"
#include "support/options.h"
#include "transforms/host_share.h"
#include "transforms/pass.h"
#include "transforms/pipeline.h"

namespace tatara {
namespace {

/// Times the stages of one compilation.
class StageClock {
 public:
  explicit StageClock(std::vector<StageTime>& times) : times_(times) {}

  template <typename Fn>
  auto run(std::string stage, Fn&& fn) {
    const auto start = std::chrono::steady_clock::now();
    struct Stop {
      std::vector<StageTime>& times;
      std::string stage;
      std::chrono::steady_clock::time_point start;
      ~Stop() {
        times.push_back(
            {std::move(stage), std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()});
      }
    } const stop{times_, std::move(stage), start};
    return fn();
  }

 private:
  std::vector<StageTime>& times_;
};

const char* origin_name(KernelOrigin origin) {
  switch (origin) {
    case KernelOrigin::kMemory: return "memory";
    case KernelOrigin::kDisk: return "disk";
    case KernelOrigin::kCompiled: return "compiled";
  }
  return "?";
}

HistoryEvent compile_event(const PlanKernel& kernel, size_t index, KernelOrigin origin, double seconds) {
  HistoryEvent event;
  event.kind = HistoryEvent::Kind::kCompile;
  event.name = kernel.name;
  event.kernel = static_cast<int>(index);
  event.operators = kernel.fused_ops;
  event.loops = kernel.loop_text;
  event.origin = origin_name(origin);
  event.bytes = kernel.bytes_read + kernel.bytes_written;
  event.seconds = seconds;
  event.start = history_seconds(HistoryClock::now()) - seconds;
  event.thread = history_thread();
  return event;
}

/// Values that may lie on the CPU in a graph on a GPU: numbers that kernels get by value or compute again where they need
/// them, or that only operators of the host make and read (seeds).
std::vector<bool> passable_numbers(const Graph& graph) {
  std::vector<bool> passable(graph.num_values());
  for (size_t v = 0; v < passable.size(); ++v) {
    const auto id = static_cast<ValueId>(v);
    passable[v] = graph.type(id).dim() == 0 && graph.type(id).device.kind == DeviceKind::kCpu;
  }
  // Others must find what was computed in the host's memory.
  const auto of_host = [](const Node& node) {
    return node.op->kind == OpKind::kHost || (!node.op->lower && node.op->kind != OpKind::kView);
  };
  const auto made_by_host = [&](ValueId v) {
    const NodeId made = graph.value(v).producer;
    return made >= 0 && of_host(graph.node(made));
  };
  const auto outside = [&](ValueId v) {
    if (v == kNoValue || graph.value(v).producer < 0 || made_by_host(v)) return;
    passable[static_cast<size_t>(v)] = false;
  };
  for (const Node& node : graph.nodes()) {
    if (of_host(node)) {
      for_each_operand(node, outside);
      continue;
    }
    for_each_operand(node, [&](ValueId v) {
      if (made_by_host(v)) passable[static_cast<size_t>(v)] = false;
    });
  }
  for (const GraphOutput& output : graph.outputs()) outside(output.value);
  for (const InputWrite& write : graph.input_writes()) {
    passable[static_cast<size_t>(graph.inputs()[static_cast<size_t>(write.input_index)])] = false;
  }
  return passable;
}

/// A graph on a GPU is on that one altogether, but for numbers.
void choose_gpu(const Graph& graph, KernelTarget& target, ScheduleOptions& schedule) {
  std::optional<Device> device;
  std::vector<bool> used(graph.num_values());
  for (size_t v = 0; v < graph.num_values(); ++v) {
    const Device& own = graph.type(static_cast<ValueId>(v)).device;
    if (own.kind == DeviceKind::kCuda && !device) device = own;
    used[v] = graph.value(static_cast<ValueId>(v)).producer >= 0;
  }
  if (!device) return;
  for (const Node& node : graph.nodes())
    for_each_operand(node, [&](ValueId v) { used[static_cast<size_t>(v)] = true; });
  const std::vector<bool> passable = passable_numbers(graph);
  const auto is_here = [&](ValueId v) {
    return !used[static_cast<size_t>(v)] || passable[static_cast<size_t>(v)] || graph.type(v).device == *device;
  };
  // Best named is a call between devices: without it there might be none on two.
  const Node* other = nullptr;
  Device its;
  for (const Node& node : graph.nodes()) {
    bool here = false, away = false;
    const auto look = [&](ValueId v) {
      if (v == kNoValue) return;
      (is_here(v) ? here : away) = true;
      if (!is_here(v)) its = graph.type(v).device;
    };
    for_each_operand(node, look);
    for (const ValueId v : node.outputs) look(v);
    if (away && (other == nullptr || here)) other = &node;
    if (away && here) break;
  }
  if (other != nullptr) {
    at_node(*other, [&] { throw SeveralDevices(str_cat("a graph on ", device->str(), " and on ", its.str())); });
  }
  std::string why_not;
  if (!cuda::available(&why_not)) throw Unsupported(why_not);
  const int number = std::max<int>(device->index, 0);
  target.gpu = cuda::target_of(number);
  schedule.gpu = GpuShape{.multiprocessors = cuda::device_info(number).multiprocessors};
  schedule.num_threads = schedule.gpu->multiprocessors;
}

/// Whether the host is to multiply float32 as such: it may be told that less is enough.
bool exact_float32_products() {
  const auto& asked = torch_python_hooks().exact_products;
  return !asked || asked();
}

/// Code for every kernel of the schedule: equal kernels share one compilation, the rest compile side by side.
std::vector<KernelCode> compile_kernels(Schedule& schedule, const CompileOptions& options, const KernelTarget& target,
                                        CompileResult& result, std::vector<HistoryEvent>& events) {
  if (options.passes.verify) {
    for (const auto& kernel : schedule.kernels) loops::verify_kernel(*kernel);
  }
  std::vector<KernelRequest> requests(schedule.kernels.size());
  std::unordered_map<const loops::Kernel*, size_t> first_with_loops;
  std::unordered_map<std::string, size_t> first_with_key;
  std::vector<size_t> representative(schedule.kernels.size());
  std::vector<size_t> distinct;
  for (size_t i = 0; i < schedule.kernels.size(); ++i) {
    check_cancelled();
    PlanKernel& kernel = schedule.plan.kernels[i];
    const auto [same, is_new] = first_with_loops.emplace(schedule.kernels[i].get(), i);
    KernelRequest& request = requests[same->second];
    if (is_new) {
      request = make_kernel_request(*schedule.kernels[i], target);
      const auto [found, inserted] = first_with_key.emplace(request.key, i);
      representative[i] = found->second;
      if (inserted) distinct.push_back(i);
    } else {
      representative[i] = representative[same->second];
    }
    kernel.cache_key = request.key;
    kernel.symbol = request.symbol;
    if (options.keep_text) kernel.loop_text = request.loop_text;
  }
  std::vector<KernelCode> code(schedule.kernels.size());
  std::vector<KernelOrigin> origins(schedule.kernels.size(), KernelOrigin::kMemory);
  const bool recording = history_on();
  if (recording) events.resize(code.size());
  const CancelScope::Wanted* const cancel = CancelScope::current();
  compile_in_parallel(distinct.size(), [&](size_t n) {
    const CancelScope cancelled(cancel);
    check_cancelled();
    const size_t i = distinct[n];
    PlanKernel& kernel = schedule.plan.kernels[i];
    const auto start = HistoryClock::now();
    std::string* text = options.keep_text ? &kernel.llvm_text : nullptr;
    code[i] = obtain_kernel(requests[i], *schedule.kernels[i], target, options.use_cache, origins[i], text);
    const double seconds = std::chrono::duration<double>(HistoryClock::now() - start).count();
    if (recording) events[i] = compile_event(kernel, i, origins[i], seconds);
    if ((options.explain || !options.dump.empty()) && kernel.llvm_text.empty()) {
      kernel.llvm_text = emit_kernel(*schedule.kernels[i], target, requests[i].symbol);
    }
  });
  for (size_t i = 0; i < code.size(); ++i) {
    if (representative[i] != i) {
      code[i] = code[representative[i]];
      schedule.plan.kernels[i].llvm_text = schedule.plan.kernels[representative[i]].llvm_text;
      if (recording) events[i] = compile_event(schedule.plan.kernels[i], i, KernelOrigin::kMemory, 0);
    }
  }
  for (const size_t i : distinct) {
    if (origins[i] == KernelOrigin::kCompiled) ++result.kernels_compiled;
    if (origins[i] == KernelOrigin::kDisk) ++result.cache_hits;
  }
  return code;
}

HostOps* host_of(const CompileOptions& options) { return options.host != nullptr ? options.host : torch_host_ops(); }

/// A plan from the disk cache with all of its code. Null when either is not there.
std::shared_ptr<Executable> find_executable(const std::string& key, const Graph& graph, const KernelTarget& target,
                                            const CompileOptions& options, CompileResult& result,
                                            std::vector<HistoryEvent>& events) {
  std::optional<StoredPlan> stored = find_plan(key, graph, target);
  if (!stored) return nullptr;
  const bool recording = history_on();
  std::vector<KernelCode> code;
  std::vector<HistoryEvent> found;
  int from_disk = 0;
  for (size_t i = 0; i < stored->plan.kernels.size(); ++i) {
    const PlanKernel& kernel = stored->plan.kernels[i];
    const auto start = HistoryClock::now();
    KernelOrigin origin = KernelOrigin::kMemory;
    code.push_back(find_kernel(kernel.cache_key, kernel.symbol, target.gpu.has_value(), true, origin));
    if (!code.back()) return nullptr;
    from_disk += origin == KernelOrigin::kDisk ? 1 : 0;
    const double seconds = std::chrono::duration<double>(HistoryClock::now() - start).count();
    if (recording) found.push_back(compile_event(kernel, i, origin, seconds));
  }
  std::shared_ptr<Executable> executable;
  try {
    HostOps* const host = host_of(options);
    verify_host_calls(stored->plan, host);
    std::vector<std::shared_ptr<const LoopPlan>> loops = compile_loops(stored->plan, options, result);
    executable = std::make_shared<Executable>(std::move(stored->plan), std::move(code), host, options.cuda_graphs,
                                              std::move(loops));
  } catch (const Error& error) {
    TATARA_LOG(kCache, error.what());
    disk_cache(true).remove(key);
    return nullptr;
  }
  result.lowered_text = std::move(stored->lowered_text);
  result.notes = std::move(stored->notes);
  result.cache_hits += from_disk;
  events = std::move(found);
  return executable;
}

/// Rewrites, schedules and compiles.
std::shared_ptr<Executable> make_executable(const Graph& graph, const CompileOptions& options,
                                            const ScheduleOptions& schedule_options, const KernelTarget& target,
                                            const std::string& key, StageClock& clock, CompileResult& result,
                                            std::vector<HistoryEvent>& events) {
  DumpFiles dumped;
  const Graph lowered = clock.run("rewrite", [&] {
    if (options.dump.empty()) return run_passes(graph, schedule_options.passes);
    dumped.emplace_back("", graph_file(graph));
    return run_passes(graph, schedule_options.passes,
                      [&](std::string_view pass, const Graph& now) { dumped.emplace_back(pass, graph_file(now)); });
  });
  if (options.keep_text) result.lowered_text = print_graph(lowered, true);
  if (options.passes.verify) verify_graph(lowered);
  if (options.explain) result.lowered = std::make_shared<const Graph>(lowered);

  Schedule schedule = clock.run("schedule", [&] { return schedule_graph(lowered, schedule_options); });
  const std::string schedule_text = options.dump.empty() ? std::string() : print_schedule(schedule);
  result.notes = std::move(schedule.notes);

  std::vector<KernelCode> code =
      clock.run("code", [&] { return compile_kernels(schedule, options, target, result, events); });
  if (!options.dump.empty()) {
    dump_compilation(options.dump,
                     {print_graph(graph, true), print_graph(lowered, true), schedule_text, std::move(dumped)},
                     schedule.plan.kernels);
  }
  if (options.passes.verify && options.keep_text && has_constant_sizes(graph, schedule.plan)) {
    verify_stored_plan(schedule.plan, graph, target);
    verify_host_calls(schedule.plan, host_of(options));
  }
  if (!key.empty() && schedule.plan.size_symbols.empty()) {
    keep_plan(key, schedule.plan, result.lowered_text, result.notes);
  }
  std::vector<std::shared_ptr<const LoopPlan>> loops =
      clock.run("loops", [&] { return compile_loops(schedule.plan, options, result); });
  return clock.run("load", [&] {
    return std::make_shared<Executable>(std::move(schedule.plan), std::move(code), host_of(options),
                                        options.cuda_graphs, std::move(loops));
  });
}

/// What became of the graph, also where it came from the cache.
void log_stages(const CompileResult& result) {
  TATARA_LOG(kGraph, "after the passes: ", result.lowered_text);
  if (!log_enabled(LogChannel::kLoops)) return;
  for (const PlanKernel& kernel : result.executable->plan().kernels) log_line(LogChannel::kLoops, kernel.loop_text);
}

}  // namespace

CpuTarget chosen_target(int64_t bits) {
  CpuTarget target = host_cpu_target();
  if (bits == 0) return target;
  if (bits < 512 && target.isa == VectorIsa::kAvx512) target.isa = VectorIsa::kAvx2;
  if (bits < 256 && target.isa == VectorIsa::kAvx2) target.isa = VectorIsa::kScalar;
  return target;
}

CompileOptions CompileOptions::resolve(const OptionOverrides& own) {
  CompileOptions options;
  options.passes = PassOptions::resolve(own);
  options.code.opt_level = static_cast<int>(option_int(Option::kOptLevel, own));
  options.code.cpu = option_text(Option::kCpu, own);
  options.code.cpu_features = option_text(Option::kCpuFeatures, own);
  options.vector_width = option_int(Option::kVectorWidth, own);
  options.use_cache = option_bool(Option::kCache, own);
  options.dump = option_text(Option::kDump);
  options.cuda_graphs = option_int(Option::kCudaGraphs, own);
  options.fallback = option_bool(Option::kFallback, own);
  options.keep_outputs_mb = option_int(Option::kKeepOutputsMb, own);
  return options;
}

namespace {

/// Which processor the graph is for, and what passes and scheduler have to know of it.
KernelTarget choose_target(const Graph& graph, const CompileOptions& options, ScheduleOptions& schedule_options) {
  KernelTarget target{chosen_target(options.vector_width), std::nullopt, options.code};
  schedule_options.passes = options.passes;
  schedule_options.vector_bytes = target.cpu.vector_bytes();
  choose_gpu(graph, target, schedule_options);
  if (target.gpu && target.gpu->has_product_kernels()) {
    schedule_options.passes.product_processors = schedule_options.gpu->multiprocessors;
    schedule_options.passes.float32_products = exact_float32_products();
  }
  return target;
}

}  // namespace

PassOptions passes_of(const Graph& graph, const CompileOptions& options) {
  ScheduleOptions schedule_options = options.schedule;
  const std::optional<HostShare> share = take_host_share(graph);
  choose_target(share ? share->gpu : graph, options, schedule_options);
  return schedule_options.passes;
}

namespace {

/// The GPU's plan, with the CPU's before and behind it.
CompileResult compile_shares(const HostShare& share, const CompileOptions& options) {
  CompileResult result = compile_graph(share.gpu, options);
  const auto compiled = [&](const HostGraph& host, const char* title) -> HostPlan {
    if (!host.graph) return {};
    CompileResult own = compile_graph(*host.graph, options);
    if (!own.executable->plan().size_symbols.empty()) throw SeveralDevices("sizes that vary of what the CPU computes");
    if (options.keep_text) result.lowered_text += str_cat(title, own.lowered_text);
    result.kernels_compiled += own.kernels_compiled;
    result.cache_hits += own.cache_hits;
    return {std::move(own.executable), host.inputs};
  };
  HostPlan ahead = compiled(share.ahead, "by the CPU, before: ");
  HostPlan behind = compiled(share.behind, "by the CPU, behind: ");
  result.executable->set_host_plans(std::move(ahead), std::move(behind), share.writes);
  return result;
}

}  // namespace

CompileResult compile_graph(const Graph& graph, const CompileOptions& options) {
  if (const std::optional<HostShare> share = take_host_share(graph)) return compile_shares(*share, options);
  CompileResult result;
  StageClock clock(result.times);
  const auto start = HistoryClock::now();
  TATARA_LOG(kGraph, "before the passes: ", print_graph(graph, true));
  ScheduleOptions schedule_options = options.schedule;
  const KernelTarget target = choose_target(graph, options, schedule_options);
  schedule_options.passes.thin_weights = ours_multiply();
  schedule_options.passes.wide_products = ours_multiply() && has_wide_products();
  schedule_options.passes.slow_bfloat16 = !multiplies_bfloat16();
  schedule_options.passes.vector_bytes = schedule_options.gpu ? 0 : target.cpu.vector_bytes();
  if (schedule_options.num_threads <= 0) schedule_options.num_threads = num_threads();
  // Texts of all stages are wanted: they are made anew.
  const bool all_texts = options.explain || !options.dump.empty() || options.passes.verify;
  std::string key;
  std::vector<HistoryEvent> events;
  if (options.use_cache && options.keep_text && !all_texts) {
    clock.run("find", [&] {
      key = plan_key(graph, schedule_options, target);
      if (!key.empty()) result.executable = find_executable(key, graph, target, options, result, events);
    });
  }
  if (result.executable == nullptr) {
    result.executable = make_executable(graph, options, schedule_options, target, key, clock, result, events);
  }
  log_stages(result);
  result.lowered_text += result.loop_texts;
  if (!events.empty() || history_on()) {
    HistoryEvent whole;
    whole.kind = HistoryEvent::Kind::kGraph;
    whole.name = "graph";
    whole.start = history_seconds(start);
    whole.seconds = std::chrono::duration<double>(HistoryClock::now() - start).count();
    whole.thread = history_thread();
    events.push_back(std::move(whole));
    for (HistoryEvent& event : events) event.graph = result.executable->id();
    record_history(std::move(events));
  }
  return result;
}

}  // namespace tatara
