// Which tensors of a tape are views of which.
#pragma once

#include <algorithm>
#include <vector>

#include "capture/tape/node_operators.h"
#include "capture/tape/tape.h"

namespace tatara::capture {

/// Where a tensor comes from by calls that may be views.
struct ViewOrigin {
  int base = -1;           // slot of the tensor at their begin; -1: there are none
  bool detached = false;   // detach() is the last of them
  bool constant = false;   // detach() is among them
  bool uncounted = false;  // `.data` is among them: writes do not count as the base's
  bool recorded = false;   // some were called with gradients on
  bool silent = false;     // some were not
  int of_result = -1;      // slot of the result whose memory it is given in
  std::vector<int> bases;  // the tensors on the way that it is a view of: those behind detach() are not
  bool is_view_of(int slot) const { return std::find(bases.begin(), bases.end(), slot) != bases.end(); }
};
ViewOrigin view_origin(const Tape& tape, int slot);
/// The tensor of whose memory the slot's is a part: where it is no view, itself.
int memory_owner(const Tape& tape, int slot);
/// The tensor as the program has it: no view of its base, by `.data` or detach().
Ref apart_as(const ViewOrigin& origin, PyObject* tensor);
/// Whether the node writes through `.data`.
bool writes_uncounted(const Tape& tape, const TapeNode& node);
/// Whether the node writes through `.data` to what an operator before it, recorded with gradients on, had as an operand or gave: where a
/// pass is to come (`later`, or on the tape), it reads the new values in eager.
bool changes_saved(const Tape& tape, const TapeNode& node, bool later);
/// Whether NumPy writes to memory that is not an array's own, as far as is known.
bool writes_shared_memory(const Tape& tape);
/// Whether the node `n` changes a tensor that was there before the node `first`, as far as is known.
bool changes_older(const Tape& tape, size_t n, size_t first);

}  // namespace tatara::capture
