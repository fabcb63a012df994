// Training graphs at run time: a compiled forward and backward plan behind one node of the host's autograd.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "capture/entries/entry_cache.h"
#include "capture/graph/graph_from_tape.h"
#include "capture/run/compiled_runner.h"
#include "capture/tape/view_origins.h"
#include "compiler/compiler.h"

namespace tatara::capture {

struct CompiledTraining {
  std::unique_ptr<GraphRunner> runner;
  std::vector<CompileResult> results;  // forward and backward of each stage
};

/// Of each input of the graph, whether it requires grad.
std::vector<bool> inputs_needing_grad(const TapeGraph& made, const Tape& tape);

/// Differentiates and compiles the graph of a training tape. Throws tatara::Error.
CompiledTraining compile_training(TapeGraph made, const std::shared_ptr<const Tape>& tape,
                                  const CompileOptions& options);

/// Runs a graph with passes of gradients in it. The tensors in `used_up` leave it with a history that can only say that it was
/// used up, as in eager; those in `leaves` as leaves.
std::unique_ptr<GraphRunner> make_step_runner(std::unique_ptr<GraphRunner> plan, const Tape& tape,
                                              std::vector<int> used_up, std::vector<int> leaves);

/// A runner that calls nodes of the tape behind the plan, see TapeGraph::late_nodes.
std::unique_ptr<GraphRunner> make_late_runner(std::unique_ptr<GraphRunner> plan, std::vector<size_t> nodes);

}  // namespace tatara::capture
