// Results of a stage that passes of gradients go through together: to the host one node for each group.
#pragma once

#include "capture/run/held_memory.h"
#include "capture/tape/tape.h"
#include "compiler/training.h"
#include "transforms/stages.h"

namespace tatara::capture {

/// The groups of the part's results, as the host's own nodes would have it. The tape is what the part's graph was made from.
ResultGroups groups_of_results(const GraphStage& part, const Tape& tape, HeldByHost& host);

/// What Python code is told of the stage's groups, for each a tuple: places of its results among the differentiable ones, and how
/// many these are; places of what it keeps among all saved values, and how many these are; whether a pass uses them up; inputs
/// that second derivatives read; inputs that it has no gradient for; inputs and outputs whose versions alone count.
Ref described_groups(const TrainingStage& stage);

/// A list of `size` with the items at their places, and None at the others. Null with a Python error set.
Ref spread_list(PyObject* items, PyObject* places, Py_ssize_t size);

}  // namespace tatara::capture
