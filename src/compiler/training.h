// The pipeline of graphs that gradients flow through: forward graph -> differentiable form -> joint graph -> forward and backward
// plans, and later more backward plans and the backward computation as a graph to be differentiated again.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "compiler/compiler.h"
#include "ir/graph.h"
#include "transforms/autodiff.h"
#include "transforms/result_groups.h"

namespace tatara {

/// A compiled graph as a function of its inputs.
struct TrainingPlan {
  std::shared_ptr<Executable> executable;  // null: there is nothing to compute
  std::vector<TensorType> inputs;
  size_t outputs = 0;
};
/// Throws tatara::Error. What is compiled is added to `results`.
TrainingPlan compile_plan(const Graph& graph, const CompileOptions& options, std::vector<CompileResult>& results);

/// The backward plan for one choice of cotangents that are there.
struct BackwardStage {
  JointGraph joint;
  BackwardGraph cut;
  TrainingPlan plan;
  bool reentrant = false;  // gradients pass through a checkpoint with use_reentrant=True
};

/// A size or stride of an input that the backward may need, and that no saved value has: an empty tensor of that size is kept.
struct SizeCarrier {
  Expr symbol;
  int input, dim;
  bool stride;
};

struct SecondStage;

/// Results that passes go through together (result_groups.h): to the host one node.
struct StageGroup {
  std::vector<int> results;  // places among `differentiable`
  std::vector<int> saved;    // what their gradients read: places among the saved values and, behind them, carriers
  std::vector<int> second_inputs;  // inputs that second derivatives read, and that are not saved
  std::vector<int> unreached;      // inputs that require grad, and whose history is none of these results'
  /// Inputs and outputs that the host keeps for these results, and the plans don't: it refuses a pass once they are written.
  std::vector<int> checked_inputs, checked_outputs;
  bool used_up = true;  // false: a pass uses up nothing
};

/// A graph with the plans of its gradients. What is compiled later has the options that it was made with.
struct TrainingStage {
  Graph graph;              // in differentiable form
  std::vector<bool> needs;  // per input: whether it requires grad
  CompileOptions options;
  std::vector<ValueId> saved;
  std::vector<TensorType> saved_types;
  std::vector<ForwardGraph::Saved> saved_places;
  std::vector<bool> outputs_need;
  std::vector<int> differentiable;                 // fresh outputs with gradients
  std::vector<std::vector<int>> cotangent_orders;  // one for each of these, or none where all are contiguous
  std::vector<bool> values_matter;                 // per input: whether gradients depend on more than its sizes
  std::vector<StageGroup> groups;                  // all of `differentiable`
  std::vector<SizeCarrier> carriers;               // what they carry follows the saved values
  TrainingPlan forward;
  size_t known_guards = 0;  // of the context: later ones are no guards of the entry

  /// Compiles the forward plan and for each group the backward plan for all of its cotangents. Throws tatara::Error, also where
  /// second derivatives do not exist: a graph never does less than eager. `result_groups` null: all results are one group.
  TrainingStage(const Graph& forward_graph_of, std::vector<bool> input_needs, const CompileOptions& compile_options,
                std::vector<CompileResult>& results, const ResultGroups* result_groups = nullptr);

  /// The plan for the cotangents that are there (one flag for each of `differentiable`), compiled at its first use.
  const BackwardStage& backward(const std::vector<bool>& given);
  /// The backward computation for these, to be differentiated again; which cotangents require grad. Compiled anew in each call.
  SecondStage second(const std::vector<bool>& given, const std::vector<bool>& cotangents_need) const;
  /// One flag for each of `differentiable`.
  std::vector<bool> mask_of(const std::vector<int>& places) const;
  /// Those of `differentiable` whose memory no other of them has part of.
  std::vector<int> alone_in_memory() const;
  /// An output before it that the view is a view of, in eager the next on the way of its gradient; -1: none but its base.
  int nearest_result(size_t output) const;
  /// Of the empty tensor that carries the size.
  TensorType carried_type(const SizeCarrier& carrier) const;

 private:
  /// The joint graph with what a cut may choose from; the rest is empty.
  BackwardStage cut_ready(const JointGraph& joint) const;
  BackwardGraph cut_backward(const JointGraph& joint) const;
  /// A view that needs a gradient is made anew from its base by the host, so the base must need one.
  void check_aliases() const;
  void find_groups(const ResultGroups* result_groups);
  /// What of inputs and outputs may be saved as it is.
  SavedAsIs saved_as_is(const ResultGroups* result_groups) const;
  void find_checked(const ResultGroups& result_groups);
  void complete_group(StageGroup& group, const JointGraph& joint);
  /// Inputs that require grad and are in no history of the results: `detach` may stand between.
  std::vector<int> unreached_by(const std::vector<int>& places, const JointGraph& joint) const;
  /// What one group of several reads of what is saved.
  std::vector<int> read_by(const StageGroup& group, const JointGraph& joint) const;
  /// Per input: whether gradients read more than its sizes. Where it `tries`, second derivatives are made once.
  std::vector<bool> inputs_read(const JointGraph& joint, bool tries) const;
  void find_carriers();
  /// Adds inputs for the sizes that none of a graph's inputs has. The numbers of their carriers.
  std::vector<int> carry_sizes(Graph& g) const;
  std::vector<bool> output_mask(const std::vector<bool>& given) const;

  std::map<std::vector<bool>, BackwardStage> backwards_;
};

struct SecondStage {
  std::unique_ptr<TrainingStage> stage;
  struct Source {
    char kind;  // 'i': an input of the first stage, 's': a saved value, 'g': a cotangent
    int index;
  };
  std::vector<Source> sources;
  std::vector<int> gradients;  // input of the first stage that each result belongs to
  /// Results that a value that requires grad decides, but not smoothly (through comparisons): eager's require grad, with a
  /// gradient of zeros.
  std::vector<int> constant;
};

}  // namespace tatara
