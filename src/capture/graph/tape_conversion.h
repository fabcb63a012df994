// What the parts of a conversion share: the tape, the graph so far, and the tensor of each slot.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "capture/graph/graph_from_tape.h"
#include "ops/core/builder.h"

namespace tatara::capture {

struct TapeConversion {
  using TensorRef = Functionalizer::TensorRef;
  TapeConversion(const Tape& of, TorchApi& host, std::shared_ptr<ExprContext> ctx);
  TapeConversion(const TapeConversion&) = delete;
  TapeConversion& operator=(const TapeConversion&) = delete;

  const TapeSlot& slot(int number) const { return tape->slots()[static_cast<size_t>(number)]; }
  TensorRef ref(int slot) const { return refs[static_cast<size_t>(slot)]; }
  /// How often the memory behind each slot was written to; -1: no tensor yet.
  std::vector<int64_t> versions() const;
  /// A tuple of numbers.
  std::vector<Expr> exprs(PyObject* tuple);
  /// A tensor made once, and read as an input that nobody else sees.
  TensorRef constant(Ref tensor);
  /// What the CPU makes for the GPU alone, on the GPU (transforms/place_constants.cpp).
  void place_constants();
  /// How the tensor lies behind the nodes that were converted.
  const SlotLayout& layout(int slot) const {
    const auto found = reshaped.find(slot);
    return found == reshaped.end() ? this->slot(slot) : *found->second;
  }
  /// As the host inferred it.
  TensorType slot_type(int slot);

  TorchApi& api;
  const Tape* tape;
  TapeGraph made;
  GraphBuilder builder;
  Functionalizer fz;
  std::vector<TensorRef> refs;                                ///< by slot; -1: not made yet
  std::map<int, std::shared_ptr<const SlotLayout>> reshaped;  ///< of slots whose shape nodes have changed

 private:
  std::vector<Expr> sizes_of(const std::vector<Expr>& symbolic, PyObject* tuple);
};

}  // namespace tatara::capture
