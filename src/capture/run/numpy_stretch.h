// A stretch of a tape of NumPy calls as a graph.
#pragma once

#include <limits>
#include <vector>

#include "capture/entries/stats.h"
#include "capture/graph/numpy/numpy_graph.h"
#include "capture/host/numpy_loops.h"
#include "compiler/compiler.h"
#include "support/error.h"

namespace tatara::capture {

inline CompileResult compile_stretch(const Graph& graph, const CompileOptions& given) {
  CompileOptions options = given;
  options.host = &numpy_host();
  CompileResult result = compile_graph(graph, options);
  for (const PlanStep& step : result.executable->plan().steps) {
    const auto* call = std::get_if<HostCall>(&step);
    if (call != nullptr && !is_numpy_loop(call->op)) throw Unsupported("an operator without a kernel");
  }
  stats().kernels_compiled += static_cast<uint64_t>(result.kernels_compiled);
  stats().cache_hits += static_cast<uint64_t>(result.cache_hits);
  return result;
}

/// Data decide which value the call has, which is looked at behind each run.
inline bool falls(const TapeNode& node) {
  return std::get<NumpyOperation>(node.kind).fell && !NumpyGraph::tests_decision(node);
}

/// Data decide how large its result is, and nothing else.
inline bool only_sized(const TapeNode& node) {
  const auto& call = std::get<NumpyOperation>(node.kind);
  const bool tested = call.fell ? NumpyGraph::tests_decision(node) : NumpyGraph::tests_size(node);
  return !call.decides.empty() && tested && !call.crosses && !draws_by_numpy(node);
}

/// The calls in [first, end) of a tape as a graph.
class StretchGraph {
 public:
  StretchGraph(const Tape& tape, const NumpyApi& np, PyObject* errstate, NumpyGraph::Tests tests)
      : tape_(tape), last_(tape.last_uses()), graph_(tape, np, NumpyGraph::For::kArrays, tests) {
    for (const int slot : tape.outputs()) last_[static_cast<size_t>(slot)] = std::numeric_limits<int>::max();
    // What data decide is looked at in each run.
    for (const TapeNode& node : tape.nodes()) {
      const auto* call = std::get_if<NumpyOperation>(&node.kind);
      if (call == nullptr || !call->fell) continue;
      for (const int slot : node.outputs) last_[static_cast<size_t>(slot)] = std::numeric_limits<int>::max();
    }
    graph_.set_errstate(errstate);
  }
  bool made(int slot) const { return graph_.made(slot); }
  const std::vector<NumpyGraph::LateView>& late_views() const { return graph_.late_views(); }
  void add(const TapeNode& node) { graph_.add(node); }
  TapeGraph finish(size_t end) {
    std::vector<int> wanted;
    for (size_t s = 0; s < tape_.slots().size(); ++s) {
      if (graph_.made(static_cast<int>(s)) && last_[s] >= static_cast<int>(end)) wanted.push_back(static_cast<int>(s));
    }
    return graph_.finish(wanted);
  }

 private:
  const Tape& tape_;
  std::vector<int> last_;
  NumpyGraph graph_;
};

}  // namespace tatara::capture
