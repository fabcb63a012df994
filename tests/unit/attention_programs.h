// Attention as programs write it, for tests of the kernels that become of it.
#pragma once

#include <functional>
#include <vector>

#include "loops/find.h"
#include "programs.h"
#include "transforms/pipeline.h"

namespace tatara {

inline const Device kGpu{DeviceKind::kCuda, 0};

/// On a GPU that has kernels of ours for products.
inline Schedule schedule_on_hopper(const Graph& graph, PassOptions passes, int processors = 132) {
  passes.product_processors = processors;
  const Graph g = run_passes(graph, passes);
  ScheduleOptions options;
  options.gpu = GpuShape{.multiprocessors = 132};
  options.num_threads = 132;
  options.passes = passes;
  Schedule made = schedule_graph(g, options);
  for (const auto& kernel : made.kernels) loops::verify_kernel(*kernel);
  return made;
}

inline Schedule schedule_attention(Program& p, const std::vector<ValueId>& outputs, int processors = 132) {
  for (const ValueId v : outputs) p.graph.add_output(v);
  return schedule_on_hopper(p.graph, p.passes, processors);
}

inline const loops::Kernel* attention_kernel(const Schedule& s) {
  for (const auto& kernel : s.kernels) {
    if (loops::find_statement<loops::Attention>(kernel->body) != nullptr) return kernel.get();
  }
  return nullptr;
}

struct AttentionForm {
  int64_t batch = 2, heads = 4, rows = 512, keys = 512, width = 64;
  DType dtype = DType::kFloat16;
};

/// As programs write it: q @ k.mT * scale, `f` of that, softmax, @ v. Results are seen as [batch, rows, heads, width].
inline ValueId attend(Program& p, const AttentionForm& form, const std::function<ValueId(ValueId)>& f,
                      const char* softmax = "softmax") {
  const auto split = [&](int64_t rows) {
    return p.b.permute(p.input({form.batch, rows, form.heads, form.width}, form.dtype), {0, 2, 1, 3});
  };
  const auto c = [&](int64_t n) { return p.graph.ctx().constant(n); };
  const int64_t all = form.batch * form.heads;
  const ValueId q = p.b.reshape(split(form.rows), {c(all), c(form.rows), c(form.width)});
  const ValueId k = p.b.permute(p.b.reshape(split(form.keys), {c(all), c(form.keys), c(form.width)}), {0, 2, 1});
  const ValueId v = p.b.reshape(split(form.keys), {c(all), c(form.keys), c(form.width)});
  ValueId scores = p.b.reshape(p.b.binary("bmm", q, k), {c(form.batch), c(form.heads), c(form.rows), c(form.keys)});
  scores = f(p.b.binary("mul", scores, Scalar(0.125)));
  ValueId shares = p.b.op(softmax, {TensorArg{scores}, Scalar(int64_t{-1}), Arg(DType::kFloat32)});
  shares = p.b.reshape(p.b.cast(shares, form.dtype), {c(all), c(form.rows), c(form.keys)});
  const ValueId out =
      p.b.reshape(p.b.binary("bmm", shares, v), {c(form.batch), c(form.heads), c(form.rows), c(form.width)});
  return p.b.op("clone", {TensorArg{p.b.permute(out, {0, 2, 1, 3})}, Arg(std::string("contiguous_format"))});
}

inline ValueId as_it_is(ValueId scores) { return scores; }

}  // namespace tatara
