// Graphs that tests of passes, scheduler and emitters build.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "ops/core/builder.h"
#include "ops/core/op_def.h"
#include "schedule/schedule.h"
#include "testing.h"
#include "transforms/passes.h"

namespace tatara {

/// Operators of the schedule that the host runs.
inline size_t host_calls(const Schedule& s) {
  size_t n = 0;
  for (const PlanStep& step : s.plan.steps) n += std::holds_alternative<HostCall>(step) ? 1 : 0;
  return n;
}

/// A graph under construction, whose inputs are contiguous and lie on one device.
struct Program {
  explicit Program(Device where = {}) : device(where) {}

  Device device;
  std::shared_ptr<ExprContext> ctx = std::make_shared<ExprContext>();
  Graph graph{ctx};
  GraphBuilder b{graph};
  PassOptions passes = {};

  ValueId input(const std::vector<int64_t>& sizes, DType dtype = DType::kFloat32) {
    std::vector<Expr> exprs;
    for (const int64_t n : sizes) exprs.push_back(ctx->constant(n));
    return symbolic(exprs, dtype);
  }
  ValueId symbolic(const std::vector<Expr>& sizes, DType dtype = DType::kFloat32) {
    TensorType type;
    type.dtype = dtype;
    type.device = device;
    type.sizes = sizes;
    type.strides = contiguous_strides(*ctx, sizes);
    return graph.add_input(type);
  }
  /// What the compiler would schedule for these outputs, on the program's device.
  Schedule schedule(const std::vector<ValueId>& outputs, int threads = 2) {
    for (const ValueId v : outputs) graph.add_output(v);
    const Graph parts = eliminate_common_subexpressions(canonicalize(decompose(canonicalize(graph))));
    const Graph g = canonicalize(eliminate_dead_code(online_softmax(parts)));
    ScheduleOptions options;
    options.num_threads = threads;
    options.passes = passes;
    if (device.kind == DeviceKind::kCuda) {
      options.gpu = GpuShape{};
      options.num_threads = options.gpu->multiprocessors;
    }
    Schedule made = schedule_graph(g, options);
    for (const auto& kernel : made.kernels) loops::verify_kernel(*kernel);
    return made;
  }
};

/// How many nodes run the operator.
inline size_t count(const Graph& graph, std::string_view op) {
  size_t n = 0;
  for (const Node& node : graph.nodes()) n += node.op->name == op ? 1 : 0;
  return n;
}

/// Compares with tests/golden/`name`; TATARA_UPDATE_GOLDEN=1 rewrites it.
inline void expect_golden_text(const std::string& name, const std::string& text) {
  const std::string path = std::string(TATARA_TEST_DIR) + "/golden/" + name;
  if (std::getenv("TATARA_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path) << text;
    return;
  }
  std::ifstream file(path);
  std::stringstream golden;
  golden << file.rdbuf();
  EXPECT_EQ(golden.str(), text);
}

}  // namespace tatara
