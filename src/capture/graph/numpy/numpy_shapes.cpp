// Rules of calls that are no ufuncs and no reductions: creation, selection, joins, views.
#include <algorithm>
#include <numeric>

#include "capture/graph/numpy/numpy_rules_internal.h"
#include "support/error.h"

namespace tatara::capture {
namespace {

using ArrayRef = NumpyGraph::ArrayRef;

int64_t rank_of(const NumpyRules& g, PyObject* array) { return g.fz().type(g.tensor(array)).dim(); }

/// The view where NumPy made one, the copy where it made that.
void give_view(const NumpyRules& g, const TapeNode& node, ArrayRef source, ArrayRef ref) {
  const TapeSlot& info = g.result(node);
  if (info.scalar) return g.set_value(node, 0, g.fz().read(ref));
  if (!info.fresh && g.fz().type(source).sizes == g.fz().type(ref).sizes && !g.fz().same_storage(source, ref)) {
    ref = source;
  }
  if (ref == source && !info.fresh) ref = g.view("alias", {TensorArg{source}});
  if (info.fresh && g.fz().same_storage(source, ref)) {
    return g.set_value(node, 0, g.b().op("clone", {TensorArg{g.fz().read(ref)}, std::string("contiguous_format")}));
  }
  if (info.fresh == g.fz().same_storage(source, ref)) throw Unsupported(node.name + " shares memory as NumPy decides");
  if (info.fresh) return g.set_result(node, 0, ref);
  g.set_view(node, slot_of(PyTuple_GET_ITEM(node.args.get(), 0)), 0, ref);
}

// ---- elementwise -----------------------------------------------------------------------------------------------------

void rule_where(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  if (PyTuple_GET_SIZE(node.args.get()) == 1 && !node.kwargs) return rule_of_places(graph, node);
  const NumpyArgs args(node, g.np(), {"condition", "x", "y"});
  const DType dtype = g.result_dtype(node);
  const ValueId condition = g.as_dtype(args["condition"], DType::kBool);
  const ValueId x = g.as_dtype(args["x"], dtype), y = g.as_dtype(args["y"], dtype);
  g.set_value(node, 0, g.b().where(condition, x, y));
}

void rule_clip(NumpyGraph& graph, const TapeNode& node) {
  NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a", "a_min", "a_max", "out", "min", "max"});
  const auto given = [](PyObject* o) { return o != nullptr && o != Py_None; };
  const auto give = [&](ValueId made) {
    if (given(args["out"])) return g.write(args["out"], made);
    g.set_value(node, 0, made);
  };
  PyObject* low = given(args["a_min"]) ? args["a_min"] : args["min"];
  PyObject* high = given(args["a_max"]) ? args["a_max"] : args["max"];
  if (given(low) && given(high)) return give(g.apply_ufunc("clip", {args["a"], low, high}));
  if (given(low)) return give(g.apply_ufunc("maximum", {args["a"], low}));
  if (given(high)) return give(g.apply_ufunc("minimum", {args["a"], high}));
  give(g.b().op("clone", {TensorArg{g.read(args["a"])}}));
}

void rule_astype(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a", "dtype", "order", "casting", "subok", "copy"});
  if (!args.flag("copy", true) && node.outputs.at(0) == slot_of(args["a"])) {
    g.tensor(args["a"]);
    return;  // the operand itself
  }
  PyObject* order = args["order"];
  if (order != nullptr && text_of(order) != "K") throw Unsupported("the order of astype");
  const ValueId x = g.read(args["a"]);
  if (is_complex(g.b().type(x).dtype) && !is_complex(g.result_dtype(node))) throw Unsupported("a complex cast");
  const ValueId made = g.b().op("clone", {TensorArg{g.b().cast(x, g.result_dtype(node))}});
  g.set_value(node, 0, g.tested_cast(x, made));
}

void rule_copy(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a", "order", "subok"});
  if (g.result(node).scalar) throw Unsupported("the copy of a scalar");
  g.set_value(node, 0, g.b().op("clone", {TensorArg{g.read(args["a"])}}));
}

// ---- creation --------------------------------------------------------------------------------------------------------

ValueId filled(const NumpyRules& g, const TapeNode& node, PyObject* value, double number) {
  const DType dtype = g.result_dtype(node);
  const ValueId one = value != nullptr ? g.as_dtype(value, dtype) : g.b().constant(number, dtype);
  if (g.b().type(one).dim() > static_cast<int64_t>(g.result_sizes(node).size())) throw Unsupported("a fill value");
  const ValueId wide = g.b().expand(one, g.result_sizes(node));
  return g.b().op("clone", {TensorArg{wide}, std::string("contiguous_format")});
}

void rule_zeros(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  g.set_value(node, 0, filled(g, node, nullptr, 0));
}

void rule_ones(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  g.set_value(node, 0, filled(g, node, nullptr, 1));
}

void rule_full_like(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a", "fill_value", "dtype", "order", "subok", "shape", "device"});
  g.set_value(node, 0, filled(g, node, args["fill_value"], 0));
}

void rule_full(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"shape", "fill_value", "dtype", "order", "device", "like"});
  g.set_value(node, 0, filled(g, node, args["fill_value"], 0));
}

void rule_arange(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"start", "stop", "step", "dtype", "device", "like"});
  const DType dtype = g.result_dtype(node);
  for (const char* name : {"start", "stop", "step"}) {
    PyObject* value = args[name];
    if (value != nullptr && value != Py_None && !PyLong_CheckExact(value)) throw Unsupported("arange of such bounds");
  }
  const bool one = args["stop"] == nullptr || args["stop"] == Py_None;
  const int64_t start = one ? 0 : args.integer("start", 0);
  const int64_t stop = one ? args.integer("start", 0) : args.integer("stop", 0);
  const int64_t step = args["step"] == nullptr || args["step"] == Py_None ? 1 : args.integer("step", 1);
  // Floats are multiples of the step, as long as all of them are whole.
  constexpr int64_t kMostWhole = int64_t{1} << 20;
  const bool whole = std::max({std::abs(start), std::abs(stop), std::abs(step)}) < kMostWhole;
  if (dtype != DType::kInt64 &&
      !(whole && (is_complex(dtype) || dtype == DType::kFloat64 || dtype == DType::kFloat32))) {
    throw Unsupported("arange of such types");
  }
  const DType own = dtype == DType::kFloat64 ? dtype : DType::kInt64;
  const ValueId steps = g.b().op("arange.step", {Scalar(start), Scalar(stop), Scalar(step), own, NoneArg{}, Device{}});
  g.set_value(node, 0, g.b().cast(steps, dtype));
}

// ---- joins -----------------------------------------------------------------------------------------------------------

int64_t axis_of(const NumpyArgs& args, int64_t rank, int64_t fallback) {
  PyObject* axis = args["axis"];
  if (axis == Py_None) throw Unsupported("axis None");
  int64_t value = args.integer("axis", fallback);
  if (value < 0) value += rank;
  return value;
}

/// A kernel reads a few arrays at once; NumPy joins many in one go.
ValueId join_parts(NumpyGraph& graph, std::vector<ValueId> values, int64_t axis) {
  constexpr size_t kMostParts = 8;  // as the operator's
  if (values.size() > kMostParts && graph.is_for_arrays()) throw Unsupported("a join of many arrays");
  return NumpyRules{graph}.b().op("cat", {TensorList{std::move(values)}, Scalar(axis)});
}

void rule_concatenate(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"arrays", "axis", "out", "dtype", "casting"});
  args.refuse({"out"});
  if (args["casting"] != nullptr && text_of(args["casting"]) != "same_kind")
    throw Unsupported("casting of " + node.name);
  std::vector<ValueId> values = joined_parts(g, node, args["arrays"]);
  if (args["axis"] == Py_None) {
    for (ValueId& v : values) {
      v = g.b().op("clone", {TensorArg{v}, std::string("contiguous_format")});
      v = g.b().reshape(v, {g.b().type(v).numel(g.b().ctx())});
    }
    return g.set_value(node, 0, join_parts(graph, std::move(values), 0));
  }
  const int64_t axis = axis_of(args, g.b().type(values[0]).dim(), 0);
  g.set_value(node, 0, join_parts(graph, std::move(values), axis));
}

void rule_stack(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"arrays", "axis", "out", "dtype", "casting"});
  args.refuse({"out"});
  if (args["casting"] != nullptr && text_of(args["casting"]) != "same_kind")
    throw Unsupported("casting of " + node.name);
  std::vector<ValueId> values = joined_parts(g, node, args["arrays"]);
  const int64_t axis = axis_of(args, g.b().type(values[0]).dim() + 1, 0);
  for (ValueId& v : values) v = g.b().unsqueeze(v, axis);
  g.set_value(node, 0, join_parts(graph, std::move(values), axis));
}

// ---- views -----------------------------------------------------------------------------------------------------------

void permuted(const NumpyRules& g, const TapeNode& node, PyObject* array, const std::vector<int64_t>& order) {
  const ArrayRef source = g.tensor(array);
  give_view(g, node, source, g.view("permute", {TensorArg{source}, ints(g.b(), order)}));
}

std::vector<int64_t> identity_order(int64_t rank) {
  std::vector<int64_t> order(static_cast<size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

int64_t wrapped(int64_t axis, int64_t rank) {
  if (axis < 0) axis += rank;
  if (axis < 0 || axis >= rank) throw Unsupported("an axis out of range");
  return axis;
}

void rule_turned(NumpyGraph& graph, const TapeNode& node) {  // .T
  const NumpyRules g{graph};
  PyObject* array = PyTuple_GET_ITEM(node.args.get(), 0);
  std::vector<int64_t> order = identity_order(rank_of(g, array));
  std::reverse(order.begin(), order.end());
  permuted(g, node, array, order);
}

void rule_transpose(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  PyObject* array = PyTuple_GET_ITEM(node.args.get(), 0);
  const int64_t rank = rank_of(g, array);
  std::vector<int64_t> order;
  const auto take = [&order, rank](PyObject* o) {
    if (!PyLong_CheckExact(o)) throw Unsupported("axes of transpose");
    order.push_back(wrapped(PyLong_AsLongLong(o), rank));
  };
  PyObject* axes = node.kwargs ? PyDict_GetItemString(node.kwargs.get(), "axes") : nullptr;
  const Py_ssize_t count = PyTuple_GET_SIZE(node.args.get());
  if (axes == nullptr && count == 2) axes = PyTuple_GET_ITEM(node.args.get(), 1);
  if (axes != nullptr && (PyTuple_Check(axes) || PyList_Check(axes))) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(axes); ++i) take(PySequence_Fast_GET_ITEM(axes, i));
  } else if (axes != nullptr && axes != Py_None) {
    take(axes);
  } else {
    for (Py_ssize_t i = 1; i < count && axes == nullptr; ++i) take(PyTuple_GET_ITEM(node.args.get(), i));
  }
  if (order.empty()) return rule_turned(graph, node);
  if (static_cast<int64_t>(order.size()) != rank) throw Unsupported("axes of transpose");
  permuted(g, node, array, order);
}

void rule_swapaxes(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a", "axis1", "axis2"});
  const int64_t rank = rank_of(g, args["a"]);
  std::vector<int64_t> order = identity_order(rank);
  std::swap(order[static_cast<size_t>(wrapped(args.integer("axis1", 0), rank))],
            order[static_cast<size_t>(wrapped(args.integer("axis2", 0), rank))]);
  permuted(g, node, args["a"], order);
}

/// reshape, ravel, squeeze, expand_dims: the result's sizes are known, C order.
void reshaped(const NumpyRules& g, const TapeNode& node, PyObject* array) {
  const ArrayRef source = g.tensor(array);
  if (node.outputs.at(0) == slot_of(array)) return;  // the array itself
  give_view(g, node, source, g.view("reshape", {TensorArg{source}, SymInts{g.result_sizes(node)}}));
}

/// Whether the order of memory, or the array's own, is that of rows.
bool in_rows(const NumpyRules& g, const TapeNode& node, const std::string& order) {
  if (order != "K" && order != "A") return false;
  const TensorType& type = g.fz().type(g.tensor(PyTuple_GET_ITEM(node.args.get(), 0)));
  const std::vector<Expr> rows = contiguous_strides(g.b().ctx(), type.sizes);
  for (size_t d = 0; d < rows.size(); ++d) {
    if (!type.sizes[d].is_const(1) && type.strides[d] != rows[d]) return false;
  }
  return true;
}

void rule_reshape(NumpyGraph& graph, const TapeNode& node) {
  PyObject* order = node.kwargs ? PyDict_GetItemString(node.kwargs.get(), "order") : nullptr;
  if (node.kwargs && PyDict_GET_SIZE(node.kwargs.get()) > (order != nullptr ? 1 : 0)) {
    for (const char* name : {"copy", "newshape"}) {
      if (PyDict_GetItemString(node.kwargs.get(), name) != nullptr) throw Unsupported("argument of reshape");
    }
  }
  if (order != nullptr && text_of(order) != "C" && !in_rows(NumpyRules{graph}, node, text_of(order))) {
    throw Unsupported("the order of reshape");
  }
  for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(node.args.get()); ++i) {
    if (PyUnicode_Check(PyTuple_GET_ITEM(node.args.get(), i))) throw Unsupported("the order of reshape");
  }
  reshaped(NumpyRules{graph}, node, PyTuple_GET_ITEM(node.args.get(), 0));
}

void rule_flatten(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  if (PyTuple_GET_SIZE(node.args.get()) > 1 || node.kwargs) throw Unsupported("the order of flatten");
  const ValueId x = g.read(PyTuple_GET_ITEM(node.args.get(), 0));
  const ValueId dense = g.b().op("clone", {TensorArg{x}, std::string("contiguous_format")});
  g.set_value(node, 0, g.b().reshape(dense, g.result_sizes(node)));
}

void rule_identity(NumpyGraph& graph, const TapeNode& node) {  // np.asarray and its kin where nothing is to be done
  const NumpyRules g{graph};
  PyObject* array = PyTuple_GET_ITEM(node.args.get(), 0);
  if (slot_of(array) < 0 || node.outputs.empty() || node.outputs[0] != slot_of(array)) {
    throw Unsupported(node.name + " of what is no array yet");
  }
  g.tensor(array);
}

}  // namespace

void add_numpy_shape_rules(NumpyRuleTable& table) {
  const std::initializer_list<std::pair<const char*, NumpyRule>> rules = {
      {"where", rule_where},
      {"clip", rule_clip},
      {"astype", rule_astype},
      {"copy", rule_copy},
      {"zeros", rule_zeros},
      {"empty", rule_zeros},
      {"empty_like", rule_zeros},
      {"zeros_like", rule_zeros},
      {"ones_like", rule_ones},
      {"full_like", rule_full_like},
      {"ones", rule_ones},
      {"full", rule_full},
      {"arange", rule_arange},
      {"concatenate", rule_concatenate},
      {"concat", rule_concatenate},
      {"stack", rule_stack},
      {"T", rule_turned},
      {"transpose", rule_transpose},
      {"permute_dims", rule_transpose},
      {"swapaxes", rule_swapaxes},
      {"reshape", rule_reshape},
      {"ravel", rule_reshape},
      {"squeeze", rule_reshape},
      {"expand_dims", rule_reshape},
      {"flatten", rule_flatten},
      {"asarray", rule_identity},
      {"asanyarray", rule_identity},
      {"ascontiguousarray", rule_identity},
  };
  table.insert(rules.begin(), rules.end());
}

}  // namespace tatara::capture
