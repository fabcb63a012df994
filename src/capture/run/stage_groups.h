// Results of a stage that passes of gradients go through together: to the host one node for each group.
#pragma once

#include "capture/run/held_memory.h"
#include "capture/tape/tape.h"
#include "compiler/training.h"
#include "transforms/stages.h"

namespace tatara::capture {

/// The groups of the part's results, as the host's own nodes would have it. The tape is what the part's graph was made from.
ResultGroups groups_of_results(const GraphStage& part, const Tape& tape, HeldByHost& host);

/// What nodes are told of the stage's groups: a tuple of tatara.torch._training.Group. Null with a Python error set.
Ref described_groups(const TrainingStage& stage);

/// The number at index `i` of a tuple of places.
inline Py_ssize_t place_of(PyObject* places, Py_ssize_t i) { return PyLong_AsSsize_t(PyTuple_GET_ITEM(places, i)); }

/// Reads a tatara.torch._training.Group.
class DescribedGroup {
 public:
  explicit DescribedGroup(PyObject* group) : group_(group) {}
  /// Places of its results among the differentiable ones, and how many these are.
  PyObject* results() const { return item(0); }
  Py_ssize_t all_results() const { return place_of(group_, 1); }
  /// Places of what it keeps among all saved values, and how many these are.
  PyObject* saved() const { return item(2); }
  Py_ssize_t all_saved() const { return place_of(group_, 3); }
  /// Whether a pass uses up what it keeps.
  bool used_up() const { return item(4) == Py_True; }
  /// Inputs that second derivatives read.
  PyObject* second_inputs() const { return item(5); }
  /// Inputs that it has no gradient for.
  PyObject* unreached() const { return item(6); }
  /// Inputs and outputs whose versions alone count.
  PyObject* checked_inputs() const { return item(7); }
  PyObject* checked_outputs() const { return item(8); }

 private:
  PyObject* item(Py_ssize_t i) const { return PyTuple_GET_ITEM(group_, i); }
  PyObject* group_;
};

/// A list of `size` with the items at their places, and None at the others. Null with a Python error set.
Ref spread_list(PyObject* items, PyObject* places, Py_ssize_t size);

}  // namespace tatara::capture
