// From a tape of host calls to an ir::Graph: operators found by identity, arguments bound, views and writes functionalised.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "capture/tape/tape.h"
#include "ir/graph.h"
#include "ops/core/op_def.h"
#include "support/pass_options.h"

namespace tatara::capture {

struct TapeGraph {
  Graph graph;
  std::vector<int> inputs;     // tape slot of each graph input; -1 - k: constants[k]
  std::vector<Ref> constants;  // tensors made from Python data (torch.tensor), once
  std::vector<int> outputs;    // tape slot of the first graph outputs (hidden ones follow)
  /// Of a tape with passes of gradients: slots of outputs that have a history in eager, which a pass has used up.
  std::vector<int> used_up;
  std::vector<int> leaves;  // slots of outputs that the tape has made leaves
  bool training = false;    // such a tape has results that can be differentiated later
  /// Nodes of the tape on Python floats alone, whose results are among the graph's inputs, and those that make inputs leaves:
  /// to be called before the graph.
  std::vector<size_t> host_nodes;
  /// Nodes that change the shape of inputs in place, or of views of them: to be called, or counted as writes, behind the graph.
  std::vector<size_t> late_nodes;
  std::map<ValueId, int> slots;            // of values: the first slot of each
  std::vector<std::pair<int, int>> loops;  // the first and the last call of each loop that is a node
};

/// Whether the graph is to know of each value what eager can still differentiate: the engine computes gradients on the tape
/// itself, tensors are made leaves on it, or a write has spoiled the history of a result.
bool follows_histories(const Tape& tape);
struct GradientLayout {
  std::vector<int64_t> sizes, strides;  // of the present call
  bool history = false;                 // of a pass with create_graph=True: the gradient requires grad in eager
};

/// Whether gradients may flow through the tape: an operation that was recorded with gradients on reads an input that requires grad.
bool is_training_tape(const Tape& tape);

/// Throws tatara::Error (Unsupported: no operator, other result types than the host's).
TapeGraph build_graph(const Tape& tape, TorchApi& api, const PassOptions& passes = {});

class TapeConverter;

/// The graph of a tape that grows: what one use has converted the next one goes on from. Where that would not give what a
/// conversion of the whole tape gives, it begins anew. A copy of the tape as it is (Tape::detach) comes with each use.
class GrowingGraph {
 public:
  GrowingGraph();
  ~GrowingGraph();
  GrowingGraph(const GrowingGraph&) = delete;
  GrowingGraph& operator=(const GrowingGraph&) = delete;
  /// Of a pass that may be added to the end of the tape: nothing for a variable that no gradient reaches. Throws Unsupported.
  std::vector<std::optional<GradientLayout>> gradient_layouts(const std::shared_ptr<const Tape>& tape, TorchApi& api,
                                                              const TapeNode& pass);
  /// What build_graph() gives; nothing is left here.
  TapeGraph finish(const std::shared_ptr<const Tape>& tape, TorchApi& api, const PassOptions& passes = {});

 private:
  std::unique_ptr<TapeConverter> grow(const std::shared_ptr<const Tape>& tape, TorchApi& api, bool engine);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// What an operator's own inference says of one result.
struct InferredTensor {
  int slot = -1;  // the result is this known tensor itself
  int32_t ref = -1;
  DType dtype = DType::kFloat32;
  Device device;
  std::vector<Expr> sizes, strides;  // of the trace's context
};

/// What an operator asks of a number that varies.
struct NumberWithin {
  int slot;
  Within within;
};

/// Result types from the registry while a trace is open: no call of the host, so no import of its Python decompositions.
class LiveInference {
 public:
  LiveInference(TorchApi& api, const TraceSymbols& symbols);
  ~LiveInference();
  /// Results of the node (its outputs not set yet). Throws Unsupported when the registry cannot tell, InvalidArgument when the
  /// call is wrong.
  std::vector<InferredTensor> infer(const Tape& tape, const TapeNode& node);
  /// What the last call asks of numbers that vary.
  std::vector<NumberWithin> bounds() const;
  /// The tensor in `slot` is the result `ref`.
  void bind(int slot, int32_t ref);
  /// The host has changed the shape of what is in the slot.
  void forget(int slot);
  /// How often the memory behind each slot was written to, as far as it is known here; -1 for other slots.
  std::vector<int64_t> versions() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Element type of a torch dtype object; Unsupported for others.
DType dtype_of(PyObject* dtype);
Device device_of(PyObject* device);

}  // namespace tatara::capture
