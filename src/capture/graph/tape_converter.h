// Makes the graph of a tape, node by node.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "capture/graph/tape_conversion.h"
#include "capture/graph/tape_functions.h"
#include "capture/graph/tape_history.h"
#include "capture/graph/tape_indexing.h"
#include "capture/graph/tape_numbers.h"
#include "capture/graph/tape_regions.h"
#include "capture/graph/tape_transforms.h"
#include "ops/core/op_def.h"

namespace tatara::capture {

/// Converts a tape and, as it grows, what is new on it. All functions throw tatara::Error (Unsupported: no operator, other
/// result types than the host's); after that the converter is of no more use.
class TapeConverter {
 public:
  using TensorRef = Functionalizer::TensorRef;
  TapeConverter(const Tape& tape, TorchApi& api, std::shared_ptr<ExprContext> ctx) : c_(tape, api, std::move(ctx)) {}

  /// Converts the nodes that it has not converted yet. `engine`: gradients come from passes of the engine, or may.
  void grow(const Tape& tape, bool engine);
  /// Whether grow() leads to what a new converter would make of the tape: it begins with what was converted, which is
  /// looked at in the same way, and nothing was done here that is no part of the tape.
  bool leads_to(const Tape& tape, bool engine) const;
  /// The graph of the tape, all of which was converted. The converter is of no more use.
  TapeGraph finish(const PassOptions& passes);
  /// The results of a pass of gradients at the end of the tape, all of which was converted.
  std::vector<std::optional<GradientLayout>> probe(const TapeNode& pass);

  /// See LiveInference.
  std::vector<InferredTensor> infer(const TapeNode& node);
  void bind(int slot, TensorRef ref);
  void forget(int slot);
  std::vector<int64_t> versions() const { return c_.versions(); }
  const std::vector<NumberWithin>& bounds() const { return numbers_.bounds(); }

 private:
  void note_slot(int slot);
  int slot_with(TensorRef ref);
  void add_input(int slot);

  void convert_with_history(const TapeNode& node);
  void convert(const TapeNode& node);
  std::vector<TensorRef> results_of(const TapeNode& node);
  std::vector<TensorRef> results_of(const TapeNode& node, const OpRegistry::PythonName& candidate,
                                    std::vector<Arg> args, const std::vector<TensorRef>& out);
  std::vector<TensorRef> gradient_tensors(const TapeNode& node);
  TensorRef constant(const TapeNode& node);
  std::vector<TensorType> host_types(const TapeNode& node);
  std::vector<bool> registered_derivative(const TapeNode& node);
  std::vector<TensorRef> opaque_results(const TapeNode& node);
  void set_outputs(const TapeNode& node, const std::vector<TensorRef>& refs);
  void check_type(const TapeNode& node, int slot);
  std::vector<ValueId> present_values();
  void uncount_writes(const std::vector<int64_t>& before, const std::vector<ValueId>& values);

  void lay_out(int slot);
  void check_strides(int slot);

  TapeConversion c_;
  TapeIndexing indexing_{c_};
  TapeNumbers numbers_{c_};
  TapeFunctions functions_{c_};
  TapeRegions regions_{c_};
  std::unique_ptr<TapeTransforms> steps_;
  std::unique_ptr<TapeHistory> history_;         // of tapes with gradients of their own
  std::unordered_map<TensorRef, int> slots_of_;  // while the trace is open
  /// How the nodes of a tape are looked at, which follows from all of it.
  struct View {
    bool training = false;
    bool engine = false;  // of gradients
    bool history = false;
    friend bool operator==(const View&, const View&) = default;
  };
  static View view_of(const Tape& tape, bool engine);
  View view_;
  size_t nodes_done_ = 0, slots_done_ = 0;
  std::vector<size_t> conjugates_;  // nodes: lazy views whose numbers the graph has (tape_conjugates.h)
  bool apart_ = false;              // a pass was tried which changed what will follow
  bool awaits_pass_ = false;        // the same, unless the pass itself follows
};

}  // namespace tatara::capture
