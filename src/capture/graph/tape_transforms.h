// What the steps of torch.func's transforms on a tape mean in a graph.
#pragma once

#include <unordered_map>
#include <utility>
#include <vector>

#include "capture/graph/tape_history.h"
#include "transforms/batching.h"

namespace tatara::capture {

class TapeTransforms {
 public:
  using TensorRef = Functionalizer::TensorRef;
  TapeTransforms(TapeConversion& conversion, TapeHistory& history)
      : builder_(conversion.builder), fz_(conversion.fz), refs_(conversion.refs), history_(history) {}

  /// The tensors that a step gives (all but gradients), whose types are known.
  std::vector<TensorRef> results_of(const TapeNode& node, std::vector<TensorType> types);
  /// Results whose tangent may be that of an operand, as in eager (OpTraits::hands_tangent_on).
  void hand_on(const std::vector<TensorRef>& results) { handed_.insert(handed_.end(), results.begin(), results.end()); }
  /// Whether tangents have been given to tensors in the level.
  bool has_duals(int level) const { return duals_.contains(level); }
  /// The node that stands for the tangent of a step's operand.
  std::vector<ValueId> tangents(const TapeNode& node, TensorType type);

 private:
  TensorRef operand(const TapeNode& node, Py_ssize_t place = 0) const;
  Expr batch_size(const TapeNode& node);
  void enter(const TapeNode& node);
  TensorRef alias(TensorRef of);
  TensorRef one_example(const TapeNode& node);
  TensorRef all_examples(const TapeNode& node);
  TensorRef make_dual(const TapeNode& node);
  std::vector<TensorRef> unpack_dual(const TapeNode& node, std::vector<TensorType> types);

  GraphBuilder& builder_;
  Functionalizer& fz_;
  const std::vector<TensorRef>& refs_;
  TapeHistory& history_;
  struct Dual {
    ValueId value, tangent;
    TensorRef tensor, given;
    TangentIs is;
    bool whole;
  };
  OutputAlias::Sharing sharing_of_copy(int level, TensorRef root);
  OutputAlias::Sharing sharing_of(int level, TensorRef root);
  int group_of(int level, TensorRef root);
  std::unordered_map<int, std::vector<Dual>> duals_;        // by level
  std::unordered_map<int, std::vector<ValueId>> unpacked_;  // primals that tensors of the level had
  std::unordered_map<int, Randomness> randomness_;          // of levels of vmap
  std::vector<TensorRef> handed_;                           // see hand_on()
  std::vector<std::pair<int, TensorRef>> groups_;  // primals whose tangents were asked for, one a storage and level
  std::vector<TensorRef> examples_, finished_;     // what vmap gives its functions, and gets back
};

}  // namespace tatara::capture
