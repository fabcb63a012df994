// Reverse differentiation of whole graphs: forward graph -> joint graph -> forward and backward graphs.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "ir/graph.h"
#include "ops/core/builder.h"
#include "support/pass_options.h"

namespace tatara {

/// Per value: whether eager's result would require grad, given which inputs do.
std::vector<bool> values_needing_grad(const Graph& graph, const std::vector<bool>& inputs);
/// The same with leaves anywhere, and with the values that need one although they have no smooth derivative: a comparison in a
/// derivative rule belongs to an operator of eager's that has one.
std::vector<bool> values_with_history(const Graph& graph, const std::vector<ValueId>& leaves);

/// The graph with operators that have no rule of their own, but are made of some that do, written out where gradients
/// flow. Values are numbered densely: inputs first, then results in order.
Graph differentiable_form(const Graph& graph, const std::vector<bool>& inputs, const PassOptions& options = {});

/// Whether the value can have a history, if what it is made of has one.
bool differentiable_result(const Graph& graph, ValueId v);
/// Whether a gradient flows through the node, given which values want one.
bool gives_gradients(const Node& node, const std::vector<bool>& needs);
/// The same for tangents, which also pass where gradients are off.
bool gives_tangents(const Node& node, const std::vector<bool>& needs);

/// A backward pass inside a graph: the gradients of `roots`, weighted by `cotangents`, by each variable. A variable that was
/// written to has several values, and its gradient is the sum of theirs.
struct GradientsCall {
  std::vector<ValueId> roots, cotangents;
  std::vector<std::vector<ValueId>> variables;
  /// The gradients can be differentiated again (create_graph=True); else nothing flows through what computes them.
  bool create_graph = false;
  /// Of a level of torch.func's transforms, which sees what is closed to derivatives from outside.
  bool level = false;
  /// Where histories begin: leaves, and results of earlier calls that have one in eager.
  std::vector<ValueId> histories;
};
/// What is known of a gradient once it is written out.
struct GradientFound {
  TensorType type;
  /// Eager's would have a history under create_graph=True: something with a history decides it, be it not smoothly.
  bool history = false;
};
/// A node that stands for the gradients until expand_transforms(), with results of the given types.
std::vector<ValueId> add_gradients(GraphBuilder& builder, const GradientsCall& call, std::vector<TensorType> types);
bool is_gradients(const Node& node);
/// Replaces the node, whose graph is numbered densely, by what computes the gradients. Per variable: the type in which the
/// gradient is computed; nothing where the variable takes no part in a root (the result is zeros then, as it is where it
/// decides a root but not smoothly).
Graph expand_gradients_at(const Graph& graph, size_t node, std::vector<std::optional<GradientFound>>& found,
                          const PassOptions& options = {});
/// Writes operators without rules of their own out, as far as values that `needs` (made for a graph and the place of the node
/// that is asked for) names flow through them. `at`: the place of that node, before and after. `forward`: also where
/// gradients are off.
using NeedsFn = std::function<std::vector<bool>(const Graph&, size_t)>;
Graph written_out(Graph graph, const NeedsFn& needs, bool forward, size_t& at);
/// Values numbered densely: inputs first, then results in the order of the nodes.
Graph numbered(const Graph& graph);

struct JointGraph {
  /// The forward graph's values and nodes under their own numbers, then one input per cotangent, then the gradients' nodes.
  /// Outputs: the forward graph's, then the gradients.
  Graph graph;
  size_t forward_values = 0, forward_nodes = 0, forward_inputs = 0, forward_outputs = 0;
  std::vector<int> cotangents;  // forward output of each cotangent input
  std::vector<int> gradients;   // forward input of each gradient output; the others are reached by no gradient
};

/// The layout in which the cotangent of an output is given: the output's own where that is dense (the dimensions from the
/// outermost to the innermost), contiguous otherwise (empty).
std::vector<int> cotangent_order(ExprContext& ctx, const TensorType& type);

/// Throws Unsupported, at the node that writes, where the graph writes to an input and gradients go through that.
void refuse_written_gradients(const Graph& graph, const std::vector<bool>& inputs);

/// Differentiates a graph in differentiable form. Cotangents come for the fresh outputs that need a gradient and that
/// `outputs` names (empty: all). Unsupported where a rule is missing, and for writes that carry gradients to inputs.
JointGraph joint_graph(const Graph& forward, const std::vector<bool>& inputs, const std::vector<bool>& outputs = {});

/// The same joint graph with operators written out of which a cut may save less than their results (`expand_softmax.cpp`). Only
/// for cutting: derivatives of parts are not as exact as rules. Values have numbers of their own.
JointGraph in_parts(const JointGraph& joint, const PassOptions& options = {});

/// What of a graph's inputs and outputs the backward graph may be given as it is, at no cost, since nobody may change it unseen.
/// Of the rest it gets copies. Empty: all inputs, and outputs at the cost of what is saved otherwise.
struct SavedAsIs {
  std::vector<bool> inputs, outputs;
};

/// Which values of the forward graph the backward graph shall be given, by a minimum cut: a saved value costs its bytes
/// twice (written and read again), a recomputed node its work. Inputs are saved for free; products, host operators and
/// random numbers are never computed twice.
std::vector<ValueId> choose_saved(const JointGraph& joint, const SavedAsIs& as_is = {});

/// The forward graph with the saved values that are neither inputs nor fresh outputs as further outputs.
struct ForwardGraph {
  Graph graph;
  struct Saved {
    enum class From : uint8_t { kInput, kOutput } from = From::kInput;
    int index = 0;  // input or output of `graph`
  };
  std::vector<Saved> saved;  // in the order of the values
};
ForwardGraph forward_graph(const JointGraph& joint, const std::vector<ValueId>& saved, const SavedAsIs& as_is = {});

/// Gradients from saved values and cotangents. Unsupported where the saved values do not suffice.
struct BackwardGraph {
  Graph graph;               // inputs: saved values used, then cotangents used
  std::vector<int> inputs;   // of each input: position in `saved`, or -1 - position among the joint graph's cotangents
  std::vector<int> outputs;  // of each gradient: output of `graph`, or -1 - cotangent where it is a cotangent itself
};
BackwardGraph backward_graph(const JointGraph& joint, const std::vector<ValueId>& saved);

/// The whole backward computation as a function of what the forward graph was given, to be differentiated again. Inputs: the
/// forward graph's inputs, then `given` (values that cannot be computed twice), then the cotangents. Outputs: the gradients.
Graph backward_of_inputs(const JointGraph& joint, const std::vector<ValueId>& given);
/// Random values among the forward graph's that gradients depend on.
std::vector<ValueId> random_values(const JointGraph& joint);

}  // namespace tatara
