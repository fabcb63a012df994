// Writes of a trace to objects that existed before it. They happen for real while the trace is made; later calls repeat
// them after the graph ran.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "capture/entries/reconstruction.h"

namespace tatara::capture {

/// One write, in terms of C code only: what a program's own __setattr__ and properties do, it does in the trace.
struct Effect {
  enum class Kind : uint8_t {
    kAttribute,  ///< operand as attribute `name`, by object's own __setattr__; no operand: deletion
    kCell,       ///< operand as the contents of a cell
    kCall,       ///< the method `name` (a descriptor of a C type) with the operands
    kSwitch,     ///< a function of the interpreter's or torch's, `target`, with the operands
    kContents,   ///< the operands as all of a list, set, dict (keys and values in turn) or deque
    kNext,       ///< one step of an iterator, whose end is none of an error. Done when the tape has run
  };
  Kind kind = Kind::kAttribute;
  Ref target;
  Ref name;
  std::vector<Ref> operands;
  size_t nodes = 0;    // of the tape that were recorded before it
  bool later = false;  // done when the tape has run (the gradient of a leaf), not while the trace is open
};

/// Does one write, in a trace's own terms. False with a Python error set.
bool perform(const Effect& effect);
/// Gives a dict, list, set, deque, cell or object with slots back what it held (see TraceWrites::Written::before). False with or
/// without a Python error set.
bool restore_contents(PyObject* target, PyObject* before);

/// The writes of an entry; their objects are wanted results of its reconstruction.
class EffectReplay {
 public:
  /// Asks `builder` for the objects of the first `count` effects that are not overwritten by later ones. False when one
  /// cannot be rebuilt.
  bool build(const std::vector<Effect>& effects, size_t count, ReconstructionBuilder& builder);
  bool empty() const { return steps_.empty(); }
  /// How many of the results, its last ones, are the effects' objects.
  size_t objects() const { return objects_; }
  /// Does the writes. False with a Python error set.
  bool replay(const std::vector<Ref>& made) const;
  std::vector<std::string> describe() const;

 private:
  struct Step {
    Effect::Kind kind = Effect::Kind::kAttribute;
    Ref name;
    size_t count = 0;  // operands
    size_t times = 1;  // kNext: steps
  };
  std::vector<Step> steps_;
  size_t objects_ = 0;
};

}  // namespace tatara::capture
