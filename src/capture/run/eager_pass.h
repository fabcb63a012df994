// The calls of a compiled graph once more in eager, for a pass of gradients that a torch-dispatch mode looks on at.
//
// A mode that is on for backward() alone (a counter of floating-point operations, say) sees eager's operators of the pass. The
// compiled backward plan has none of them, and the graph of gradients that eager would walk was never made. So the recorded
// calls are made again, unseen by the mode, on the inputs of that run, and the engine goes through what they recorded.
#pragma once

#include <memory>
#include <vector>

#include "capture/graph/graph_from_tape.h"
#include "capture/host/torch_api.h"
#include "capture/tape/tape.h"
#include "transforms/stages.h"

namespace tatara::capture {

struct EagerPass {
  std::weak_ptr<const Tape> tape;  // the entry's: it may be gone when the pass begins
  struct Read {
    int slot;
    bool sizes_only;  // gradients don't depend on its values
  };
  std::vector<Read> read;  // what comes with each run
  struct Stage {
    std::vector<int> inputs, outputs;  // slots; below zero: a constant, or a result that is no slot's
    std::vector<size_t> cuts;          // behind nodes that make such inputs or outputs, and behind the last node
  };
  std::vector<Stage> stages;
  bool hooked = false;          // Tape::has_hooked_results()
  std::vector<Ref> generators;  // of random numbers that its calls draw
};

/// Null where the calls can't be made twice: they write to inputs, or are more than recorded calls. `values_matter`: for each
/// input of each stage whether gradients depend on its values.
std::shared_ptr<const EagerPass> eager_pass(const std::shared_ptr<const Tape>& tape, const TapeGraph& made,
                                            const std::vector<GraphStage>& stages,
                                            const std::vector<std::vector<bool>>& values_matter, bool draws);

/// What a run of the graph was given (`env`, by slot), as an object for its nodes of gradients: tensors are held weakly. Called
/// with (stage, wanted, again) while a mode is on, it gives (inputs, outputs): the outputs of the stage that `wanted` numbers,
/// recorded by eager, and the inputs they were recorded for; with `again` these have the history of the tensors they stand for.
/// None where a tensor whose values matter is gone or was written to since, or where a call fails, or where an input that is to
/// have its history is the result of another stage. Null with a Python error set.
Ref remember_run(const std::shared_ptr<const EagerPass>& pass, const std::vector<Ref>& env);

}  // namespace tatara::capture
