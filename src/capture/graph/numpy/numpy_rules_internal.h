// Shared by the rules' source files.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "capture/graph/numpy/numpy_rules.h"

namespace tatara::capture {

/// What rules do with the graph.
struct NumpyRules {
  using ArrayRef = NumpyGraph::ArrayRef;
  NumpyGraph& g;
  PyObject* given_type = nullptr;  // dtype= of the ufunc

  GraphBuilder& b() const { return g.builder_; }
  Functionalizer& fz() const { return g.fz_; }
  const NumpyApi& np() const { return g.np_; }
  NumpyGraph::ArrayRef tensor(PyObject* o) const { return g.tensor(o); }
  ValueId read(PyObject* o) const { return g.read(o); }
  NumpyGraph::ArrayRef view(const char* op, std::vector<Arg> args) const { return g.view(op, std::move(args)); }
  ValueId as_dtype(PyObject* o, DType dtype) const { return g.as_dtype(g.operand(o), dtype); }
  void write(PyObject* target, ValueId value) const { g.write(g.tensor(target), value); }
  void write_ref(NumpyGraph::ArrayRef target, ValueId value) const { g.write(target, value); }
  void set_value(const TapeNode& node, size_t k, ValueId value) const { g.set_value(node, k, value); }
  void set_result(const TapeNode& node, size_t k, NumpyGraph::ArrayRef ref) const { g.set_result(node, k, ref); }
  /// The call behind it on the tape; null: it is the last one.
  const TapeNode* next(const TapeNode& node) const {
    const std::vector<TapeNode>& nodes = g.tape_.nodes();
    const auto at = static_cast<size_t>(&node - nodes.data()) + 1;
    return at < nodes.size() ? &nodes[at] : nullptr;
  }
  const TapeSlot& result(const TapeNode& node) const { return g.slot(node.outputs.at(0)); }
  bool is_copy(ArrayRef ref) const { return g.is_copy(ref); }
  ArrayRef flipped(ArrayRef source, const std::vector<int64_t>& dims) const { return g.flipped(source, dims); }
  void set_late_view(const TapeNode& node, int base, int64_t offset, ArrayRef copy) const {
    g.set_late_view(node, base, offset, copy);
  }
  /// A view of the array in slot `base`, `offset` elements behind its first one.
  void set_view(const TapeNode& node, int base, int64_t offset, ArrayRef ref) const {
    if (base < 0 || !g.is_copy(ref)) return g.set_result(node, 0, ref);
    g.set_late_view(node, base, offset, g.fz_.fresh(g.fz_.read(ref)));
  }
  const TapeSlot& info(int slot) const { return g.slot(slot); }
  const TapeSlot& slot(PyObject* o) const { return g.slot(slot_of(o)); }
  DType result_dtype(const TapeNode& node) const { return g.dtype_of_slot(node.outputs.at(0)); }
  std::vector<Expr> result_sizes(const TapeNode& node) const { return g.exprs(result(node).sizes.get()); }
  DType slot_dtype(PyObject* o) const { return g.dtype_of_slot(slot_of(o)); }
  /// The value, which the call made of these operands, when it is no fault; else the graph stops.
  ValueId tested(const TapeNode& node, ValueId value, const std::vector<ValueId>& operands,
                 const std::vector<int64_t>& dims = {}, bool keepdims = false) const {
    return g.tested(node.name, value, operands, 0, dims, keepdims);
  }
  /// The value, when it is finite; else the graph stops.
  ValueId tested_alone(ValueId value) const {
    const DType dtype = g.builder_.type(value).dtype;
    const bool tests = g.tests_ != NumpyGraph::Tests::kNone && g.faults_.any();
    return tests && (is_floating(dtype) || is_complex(dtype)) ? g.stop_unless_finite(value) : value;
  }
  /// The graph stops at a fault, of which NumPy speaks unless np.errstate has it otherwise; the other one stops in any case.
  ValueId stops(ValueId value, ValueId fault) const {
    return g.tests_ != NumpyGraph::Tests::kNone && g.faults_.any() ? g.stop_where(value, fault) : value;
  }
  ValueId stops_always(ValueId value, ValueId fault) const { return g.stop_where(value, fault); }
  /// The call's result is computed although nobody reads it: the plan may stop there.
  void may_stop() const { ++g.tests_made_; }
  /// Computed although nobody reads it.
  void compute(ValueId value) const { g.in_full_.push_back(value); }
  std::vector<Expr> sizes_in(int slot) const { return g.exprs(g.slot(slot).sizes.get()); }
  DType dtype_in(int slot) const { return g.dtype_of_slot(slot); }
  ValueId tested_cast(ValueId from, ValueId value) const { return g.tested_cast(from, value); }
  FloatFaults faults() const { return g.tests_ != NumpyGraph::Tests::kNone ? g.faults_ : FloatFaults(); }
  std::vector<int64_t> shape(ValueId v) const { return g.shape(v); }

  /// Types of a ufunc's loop for these arguments: inputs, then outputs.
  std::vector<DType> loop_types(PyObject* ufunc, const std::vector<PyObject*>& operands, size_t outputs) const;
  ValueId apply_ufunc(const std::string& name, const std::vector<PyObject*>& operands);
  size_t arity(const std::string& name) const;
};

inline SymInts ints(GraphBuilder& b, const std::vector<int64_t>& values) {
  SymInts list;
  for (const int64_t v : values) list.values.push_back(b.ctx().constant(v));
  return list;
}

using NumpyRuleTable = std::unordered_map<std::string, NumpyRule>;
void add_numpy_shape_rules(NumpyRuleTable& table);
void add_numpy_join_rules(NumpyRuleTable& table);
void add_numpy_flip_rules(NumpyRuleTable& table);
void add_numpy_indexing_rules(NumpyRuleTable& table);
void add_numpy_reduction_rules(NumpyRuleTable& table);
void add_numpy_product_rules(NumpyRuleTable& table);
void add_numpy_element_rules(NumpyRuleTable& table);
void add_numpy_placing_rules(NumpyRuleTable& table);
void add_numpy_short_row_rules(NumpyRuleTable& table);
void add_numpy_loop_rules(NumpyRuleTable& table);
void add_numpy_assign_rules(NumpyRuleTable& table);
/// The rule of a ufunc without one: NumPy's own loop, within the plan.
void rule_of_loop(NumpyGraph& graph, const TapeNode& node);
/// Likewise rows along a dimension in order; the places of their extremes; what a ufunc makes of each; what a mask picks.
ValueId sorted_by_loop(const NumpyRules& g, ValueId x, int64_t dim, const NumpyArgs& args);
ValueId sorted_by_loop(const NumpyRules& g, ValueId x, int64_t dim);
ValueId extreme_by_loop(const NumpyRules& g, ValueId x, int64_t dim, bool largest);
ValueId reduced_by_loop(const NumpyRules& g, PyObject* ufunc, ValueId x, int64_t dim);
/// np.nonzero, and np.where of a condition alone.
void rule_of_places(NumpyGraph& graph, const TapeNode& node);
/// What is written where a mask holds, or along the first dimension at places. False: such values do not fit.
bool assign_by_mask(const NumpyRules& g, NumpyGraph::ArrayRef target, ValueId mask, PyObject* value);
bool assign_by_places(const NumpyRules& g, NumpyGraph::ArrayRef target, ValueId places, PyObject* value);
ValueId picked_by_mask(const NumpyRules& g, PyObject* array, PyObject* mask, const TapeNode& node);
/// The rule of a ufunc that is an operator of the registry.
void rule_of_ufunc(NumpyGraph& graph, const TapeNode& node);
/// A list of numbers and arrays of one shape, as an array.
ValueId listed(const NumpyRules& g, PyObject* items, DType dtype);
/// The arrays of a tuple or list, or those that an array is made of, in the result's type.
std::vector<ValueId> joined_parts(const NumpyRules& g, const TapeNode& node, PyObject* items);
void g_write(NumpyGraph& g, PyObject* target, ValueId value);

}  // namespace tatara::capture
