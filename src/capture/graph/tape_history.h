// What the engine of gradients knows of the tensors on a tape: leaves, histories, and which of them a pass has used up.
#pragma once

#include <unordered_map>
#include <utility>
#include <vector>

#include "capture/graph/tape_conversion.h"
#include "ops/core/builder.h"
#include "transforms/autodiff.h"

namespace tatara::capture {

/// Follows a tape with passes of gradients, or with leaves of its own, while it becomes a graph. Eager tells the contents of a
/// tensor from its history, the graph does not: what it cannot tell apart is refused (Unsupported).
class TapeHistory {
 public:
  using TensorRef = Functionalizer::TensorRef;
  /// `engine`: gradients come from passes of the engine too, else from torch.func's transforms alone.
  TapeHistory(TapeConversion& conversion, bool engine) : c_(conversion), engine_(engine) {}
  /// After each input has become one of the graph.
  void add_input(int slot);

  struct Operand {
    TensorRef ref;
    int64_t version;
    bool history, storage_history;  // of the engine's gradients
    bool level_history, storage_level_history;
  };
  /// Around the conversion of each node.
  std::vector<Operand> before(const TapeNode& node);
  void after(const TapeNode& node, const std::vector<Operand>& operands);
  /// requires_grad_(); true for a tensor from before the tape, which is to be told before the graph runs.
  bool make_leaf(const TapeNode& node);
  /// A tensor that a transform asks gradients by.
  void add_variable(int slot);
  /// A value that a transform tells from its operand: gradients or tangents begin there.
  void add_level_value(ValueId value);
  /// One example of a batch: a write to it would be one to the batch.
  void add_example(TensorRef ref) { examples_.push_back(ref); }
  /// `batch`: its tensors are examples.
  void enter_level(int level, bool batch) {
    open_levels_.push_back(level);
    open_batches_.push_back(batch);
  }
  void exit_level() {
    open_levels_.pop_back();
    open_batches_.pop_back();
  }
  /// Where histories begin; not in levels that have ended, whose values are those of one example.
  std::vector<ValueId> starts() const;
  /// Results of a pass, and what was given to it (cotangents or tangents), which they may be, or be views of. Tangents have a
  /// `group` (OutputAlias).
  void note_pass(const std::vector<TensorRef>& results, const std::vector<TensorRef>& given,
                 OutputAlias::Sharing sharing = OutputAlias::Sharing::kMay, int group = -1);
  /// The node that stands for a pass.
  std::vector<ValueId> gradients(const TapeNode& pass, std::vector<TensorType> types);
  /// Writes the passes out and says what the results are: used up, leaves, or with a history that goes on (`training`).
  void finish(TapeGraph& result, const PassOptions& passes);

 private:
  struct Leaf {
    std::vector<ValueId> values;  // so far
    int slot = -1;
    bool made = false;  // on the tape
  };
  /// What was given to a pass, and what came of it.
  struct Pass {
    struct Tensor {
      TensorRef ref;
      int64_t version;
      ValueId value;
    };
    std::vector<Tensor> results, given;
    OutputAlias::Sharing sharing;
    int group;
  };
  void mark_sharing(TapeGraph& result);
  void expand(TapeGraph& result, const PassOptions& passes);
  bool needs(ValueId v) { return needs_[static_cast<size_t>(v)]; }
  bool level_needs(ValueId v) { return level_needs_[static_cast<size_t>(v)]; }
  void note_values();
  void note_write(const TapeNode& node, const Operand& operand);
  bool is_written_leaf(TensorRef ref) const;
  std::vector<ValueId> values_of(PyObject* list);
  void check_live(const TapeGraph& result, const std::vector<size_t>& live) const;
  void stop_used_up(TapeGraph& result);

  TapeConversion& c_;
  const bool engine_;
  std::vector<bool> needs_;                     // per value of the graph: it has a history, or is a leaf's
  std::vector<bool> level_needs_;               // per value: it depends on a variable of a transform
  std::unordered_map<int, ValueId> variables_;  // slots that transforms ask gradients by
  std::vector<bool> slot_needs_;                // per slot: it had a history at some time
  size_t noted_ = 0;                            // nodes that needs_ has seen
  std::unordered_map<TensorRef, Leaf> leaves_;
  std::vector<std::pair<int, ValueId>> histories_;  // level and value of gradients that can be differentiated again
  std::vector<int> open_levels_;
  std::vector<bool> open_batches_;  // beside open_levels_
  std::vector<TensorRef> examples_;
  std::vector<Pass> passes_;
};

}  // namespace tatara::capture
