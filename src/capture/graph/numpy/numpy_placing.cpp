// Rules of arrays that are made of others, of lists and numbers, or along a diagonal.
#include <algorithm>

#include "capture/graph/numpy/numpy_rules_internal.h"
#include "support/error.h"

namespace tatara::capture {
namespace {

using ArrayRef = NumpyGraph::ArrayRef;

constexpr Py_ssize_t kMostItems = 64;

/// A list of arrays, numbers and further lists as an array.
ValueId nested(const NumpyRules& g, const TapeNode& node, PyObject* object, DType dtype) {
  if (slot_of(object) >= 0) {
    const ValueId x = g.read(object);
    if (is_complex(g.b().type(x).dtype) && !is_complex(dtype)) throw Unsupported("a complex cast");
    return g.tested_cast(x, g.b().cast(x, dtype));
  }
  if (!PyTuple_Check(object) && !PyList_Check(object)) return g.as_dtype(object, dtype);
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(object);
  if (count == 0 || count > kMostItems) throw Unsupported(node.name + " of so many items");
  TensorList list;
  for (Py_ssize_t i = 0; i < count; ++i) {
    list.values.push_back(g.b().unsqueeze(nested(g, node, PySequence_Fast_GET_ITEM(object, i), dtype), 0));
  }
  for (const ValueId each : list.values) {
    if (g.b().type(each).sizes != g.b().type(list.values[0]).sizes) throw Unsupported(node.name + " of such items");
  }
  return g.b().op("cat", {std::move(list), Scalar(int64_t{0})});
}

/// A new array, the operand, or the operand with more dimensions.
void array_rule(NumpyGraph& graph, const TapeNode& node, const NumpyArgs& args, const char* operand) {
  const NumpyRules g{graph};
  PyObject* object = args[operand];
  if (object == nullptr || node.sequence) throw Unsupported("such an array");
  const int from = slot_of(object);
  if (from >= 0 && node.outputs.at(0) == from) {
    g.tensor(object);
    return;
  }
  const TapeSlot& result = g.result(node);
  if (from >= 0 && !result.fresh && !result.scalar) {
    if (g.dtype_in(from) != g.result_dtype(node)) throw Unsupported("such an array");
    return g.set_view(node, from, 0, g.view("reshape", {TensorArg{g.tensor(object)}, SymInts{g.result_sizes(node)}}));
  }
  const bool keeps = args["order"] == nullptr || args["order"] == Py_None || text_of(args["order"]) == "K";
  if (!keeps && !result.fresh) throw Unsupported("the order of " + node.name);
  ValueId made = nested(g, node, object, g.result_dtype(node));
  made = g.b().op("clone", {TensorArg{made}});
  while (g.b().type(made).dim() < static_cast<int64_t>(g.result_sizes(node).size())) made = g.b().unsqueeze(made, 0);
  g.set_value(node, 0, made);
}

void rule_array_of(NumpyGraph& graph, const TapeNode& node) {
  const NumpyArgs args(node, NumpyRules{graph}.np(), {"object", "dtype", "copy", "order", "subok", "ndmin"});
  array_rule(graph, node, args, "object");
}

void rule_as_array(NumpyGraph& graph, const TapeNode& node) {
  const NumpyArgs args(node, NumpyRules{graph}.np(), {"a", "dtype", "order", "device", "copy", "like"});
  args.refuse({"device", "like"});
  array_rule(graph, node, args, "a");
}

/// Whether the places of a matrix lie at or below a diagonal.
ValueId below(const NumpyRules& g, int64_t rows, int64_t columns, int64_t k, const char* order) {
  GraphBuilder& b = g.b();
  const auto count = [&b](int64_t from, int64_t size) {
    return b.op("arange.step",
                {Scalar(from), Scalar(from + size), Scalar(int64_t{1}), DType::kInt64, NoneArg{}, Device{}});
  };
  return b.binary(order, b.unsqueeze(count(k, rows), 1), b.unsqueeze(count(0, columns), 0));
}

/// np.tri ("ge") and np.eye ("eq"), whose first arguments are alike; `names` has them all.
void place_diagonal(NumpyGraph& graph, const TapeNode& node, std::initializer_list<const char*> names,
                    const char* order) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), names);
  const int64_t rows = args.integer("N", 0);
  const bool square = args["M"] == nullptr || args["M"] == Py_None;
  const ValueId mask = below(g, rows, square ? rows : args.integer("M", 0), args.integer("k", 0), order);
  g.set_value(node, 0, g.b().cast(mask, g.result_dtype(node)));
}

void rule_tri(NumpyGraph& graph, const TapeNode& node) {
  place_diagonal(graph, node, {"N", "M", "k", "dtype", "like"}, "ge");
}

void rule_eye(NumpyGraph& graph, const TapeNode& node) {
  place_diagonal(graph, node, {"N", "M", "k", "dtype", "order", "device", "like"}, "eq");
}

void rule_identity_matrix(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"n", "dtype", "like"});
  const int64_t rows = args.integer("n", 0);
  g.set_value(node, 0, g.b().cast(below(g, rows, rows, 0, "eq"), g.result_dtype(node)));
}

void rule_diagonal(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a", "offset", "axis1", "axis2"});
  const ArrayRef source = g.tensor(args["a"]);
  const ArrayRef made = g.view("diagonal", {TensorArg{source}, Scalar(args.integer("offset", 0)),
                                            Scalar(args.integer("axis1", 0)), Scalar(args.integer("axis2", 1))});
  if (g.result(node).scalar) throw Unsupported("such a diagonal");
  g.set_result(node, 0, made);
}

/// A vector on a diagonal of zeros. (diag of a matrix is its diagonal.)
void on_diagonal(const NumpyRules& g, const TapeNode& node, ValueId x, int64_t k) {
  GraphBuilder& b = g.b();
  const int64_t size = PyLong_AsLongLong(PyTuple_GET_ITEM(g.result(node).sizes.get(), 0));
  const ValueId mask = below(g, size, size, k, "eq");
  // Rows count where the diagonal is above, columns where it is below.
  ExprContext& ctx = b.ctx();
  const int64_t off = k < 0 ? -k : k;
  TensorList parts;
  if (off > 0) {
    const ValueId zeros = b.expand(b.constant(0, b.type(x).dtype), {ctx.constant(off)});
    parts.values = {x, zeros};
    x = b.op("cat", {std::move(parts), Scalar(int64_t{0})});
  }
  const ValueId wide = b.expand(b.unsqueeze(x, k < 0 ? 0 : 1), {ctx.constant(size), ctx.constant(size)});
  g.set_value(node, 0, b.where(mask, wide, b.constant(0, b.type(x).dtype)));
}

void rule_diag(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"v", "k"});
  const ArrayRef source = g.tensor(args["v"]);
  const int64_t k = args.integer("k", 0);
  if (g.fz().type(source).dim() == 1) return on_diagonal(g, node, g.fz().read(source), k);
  g.set_result(node, 0, g.view("diagonal", {TensorArg{source}, Scalar(k), Scalar(int64_t{0}), Scalar(int64_t{1})}));
}

void rule_diagflat(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"v", "k"});
  const ValueId dense = g.b().op("clone", {TensorArg{g.read(args["v"])}, std::string("contiguous_format")});
  on_diagonal(g, node, g.b().reshape(dense, {g.b().type(dense).numel(g.b().ctx())}), args.integer("k", 0));
}

void rule_broadcast_to(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  PyObject* array = PyTuple_GET_SIZE(node.args.get()) > 0 ? PyTuple_GET_ITEM(node.args.get(), 0) : nullptr;
  if (array != nullptr && slot_of(array) < 0) {
    return g.set_value(node, 0, g.b().expand(g.as_dtype(array, g.result_dtype(node)), g.result_sizes(node)));
  }
  if (g.result(node).fresh || g.result(node).scalar) throw Unsupported("such a broadcast_to");
  const ArrayRef source = g.tensor(array);
  g.set_view(node, slot_of(array), 0,
             g.view("expand", {TensorArg{source}, SymInts{g.result_sizes(node)}, Scalar(false)}));
}

/// The imaginary parts of real numbers: zeros, which NumPy keeps from being written to.
void rule_imaginary(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  PyObject* array = PyTuple_GET_SIZE(node.args.get()) > 0 ? PyTuple_GET_ITEM(node.args.get(), 0) : nullptr;
  const ValueId x = g.read(array);
  if (is_complex(g.b().type(x).dtype)) {
    if (g.result(node).fresh && !g.result(node).scalar) throw Unsupported(node.name + " as a copy");
    if (g.result(node).scalar) return g.set_value(node, 0, g.b().unary("imag_part", x));
    return g.set_result(node, 0, g.view("imag_part", {TensorArg{g.tensor(array)}}));
  }
  const ValueId zeros = g.b().expand(g.b().constant(0, g.result_dtype(node)), g.result_sizes(node));
  g.set_value(node, 0, g.b().op("clone", {TensorArg{zeros}, std::string("contiguous_format")}));
}

}  // namespace

void add_numpy_placing_rules(NumpyRuleTable& table) {
  const std::initializer_list<std::pair<const char*, NumpyRule>> rules = {
      {"array", rule_array_of},
      {"asarray", rule_as_array},
      {"asanyarray", rule_as_array},
      {"ascontiguousarray", rule_as_array},
      {"asfortranarray", rule_as_array},
      {"tri", rule_tri},
      {"eye", rule_eye},
      {"identity", rule_identity_matrix},
      {"diagonal", rule_diagonal},
      {"diag", rule_diag},
      {"diagflat", rule_diagflat},
      {"broadcast_to", rule_broadcast_to},
      {"imag", rule_imaginary},
  };
  table.insert(rules.begin(), rules.end());
}

}  // namespace tatara::capture
