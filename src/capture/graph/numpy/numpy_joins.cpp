// Rules of calls that put arrays together, apart, or their elements in other places.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <optional>

#include "capture/graph/numpy/numpy_rules_internal.h"
#include "support/error.h"

namespace tatara::capture {
namespace {

using ArrayRef = NumpyGraph::ArrayRef;

bool missing(PyObject* o) { return o == nullptr || o == Py_None; }

int64_t axis_in(int64_t axis, int64_t rank) {
  if (axis < 0) axis += rank;
  if (axis < 0 || axis >= rank) throw Unsupported("an axis out of range");
  return axis;
}

/// An int, or a sequence of them.
std::vector<int64_t> integers_of(PyObject* o) {
  std::vector<int64_t> values;
  const auto take = [&values](PyObject* each) {
    if (!PyLong_CheckExact(each)) throw Unsupported("an argument that is no int");
    values.push_back(PyLong_AsLongLong(each));
  };
  if (o == nullptr) throw Unsupported("an argument that is missing");
  if (PyTuple_Check(o) || PyList_Check(o)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); ++i) take(PySequence_Fast_GET_ITEM(o, i));
  } else {
    take(o);
  }
  return values;
}

ValueId flat(const NumpyRules& g, ValueId x) {
  if (g.b().type(x).dim() == 1) return x;
  const ValueId dense = g.b().op("clone", {TensorArg{x}, std::string("contiguous_format")});
  return g.b().reshape(dense, {g.b().type(x).numel(g.b().ctx())});
}

/// The call's result is new memory, as all of these rules give it.
void give(const NumpyRules& g, const TapeNode& node, ValueId value) {
  if (!g.result(node).fresh && !g.result(node).scalar) throw Unsupported(node.name + " shares memory as NumPy decides");
  g.set_value(node, 0, value);
}

void stacked(NumpyGraph& graph, const TapeNode& node, const char* op) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"tup", "dtype", "casting"});
  if (args["casting"] != nullptr && text_of(args["casting"]) != "same_kind")
    throw Unsupported("casting of " + node.name);
  TensorList list{joined_parts(g, node, args["tup"])};
  give(g, node, g.b().op(op, {std::move(list)}));
}

void rule_hstack(NumpyGraph& graph, const TapeNode& node) { stacked(graph, node, "hstack"); }
void rule_vstack(NumpyGraph& graph, const TapeNode& node) { stacked(graph, node, "vstack"); }
void rule_dstack(NumpyGraph& graph, const TapeNode& node) { stacked(graph, node, "dstack"); }
void rule_column_stack(NumpyGraph& graph, const TapeNode& node) { stacked(graph, node, "column_stack"); }

void rule_roll(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a", "shift", "axis"});
  const ValueId x = g.read(args["a"]);
  const int64_t rank = g.b().type(x).dim();
  if (rank == 0) throw Unsupported("roll of a scalar");
  std::vector<int64_t> shifts = integers_of(args["shift"]), dims;
  if (!missing(args["axis"])) {
    for (const int64_t axis : integers_of(args["axis"])) dims.push_back(axis_in(axis, rank));
    shifts.resize(std::max(shifts.size(), dims.size()), shifts.empty() ? 0 : shifts.front());
    dims.resize(shifts.size(), dims.empty() ? 0 : dims.front());
  }
  if (shifts.empty()) throw Unsupported("roll by nothing");
  if (dims.empty() && shifts.size() != 1) throw Unsupported("roll by several numbers");
  give(g, node, g.b().op("roll", {TensorArg{x}, ints(g.b(), shifts), ints(g.b(), dims)}));
}

void triangle_rule(NumpyGraph& graph, const TapeNode& node, const char* op) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"m", "k"});
  const ValueId x = g.read(args["m"]);
  // A vector is each of the rows.
  const ValueId rows = g.b().type(x).dim() == 1 ? g.b().expand(g.b().unsqueeze(x, 0), g.result_sizes(node)) : x;
  give(g, node, g.b().op(op, {TensorArg{rows}, Scalar(args.integer("k", 0))}));
}

void rule_tril(NumpyGraph& graph, const TapeNode& node) { triangle_rule(graph, node, "tril"); }
void rule_triu(NumpyGraph& graph, const TapeNode& node) { triangle_rule(graph, node, "triu"); }

void rule_diff(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a", "n", "axis", "prepend", "append"});
  args.refuse({"prepend", "append"});
  ValueId x = g.read(args["a"]);
  const DType dtype = g.b().type(x).dtype;
  const int64_t rank = g.b().type(x).dim(), times = args.integer("n", 1);
  const int64_t dim = axis_in(args.integer("axis", -1), rank);
  if (times < 1 || g.shape(x)[static_cast<size_t>(dim)] <= times) throw Unsupported("diff of so few elements");
  ExprContext& ctx = g.b().ctx();
  const Expr one = ctx.constant(1);
  for (int64_t i = 0; i < times; ++i) {
    const Expr size = g.b().type(x).sizes[static_cast<size_t>(dim)];
    const ValueId after = g.b().slice(x, dim, one, size, one);
    const ValueId before = g.b().slice(x, dim, ctx.constant(0), ctx.sub(size, one), one);
    x = g.b().binary(dtype == DType::kBool ? "ne" : "sub", after, before);
    x = g.tested(node, x, {after, before});
  }
  give(g, node, x);
}

void rule_tile(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"A", "reps"});
  ValueId x = g.read(args["A"]);
  std::vector<int64_t> times = integers_of(args["reps"]), sizes = g.shape(x);
  sizes.insert(sizes.begin(), times.size() > sizes.size() ? times.size() - sizes.size() : 0, 1);
  times.insert(times.begin(), sizes.size() - times.size(), 1);
  ExprContext& ctx = g.b().ctx();
  std::vector<Expr> apart, wide;  // each dimension behind the number of its copies
  for (size_t d = 0; d < sizes.size(); ++d) {
    apart.insert(apart.end(), {ctx.constant(1), ctx.constant(sizes[d])});
    wide.insert(wide.end(), {ctx.constant(times[d]), ctx.constant(sizes[d])});
  }
  x = g.b().reshape(g.b().op("clone", {TensorArg{x}, std::string("contiguous_format")}), apart);
  x = g.b().op("clone", {TensorArg{g.b().expand(x, wide)}, std::string("contiguous_format")});
  give(g, node, g.b().reshape(x, g.result_sizes(node)));
}

void rule_repeat(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a", "repeats", "axis"});
  ValueId x = g.read(args["a"]);
  const int64_t count = args.integer("repeats", -1);
  if (count < 0) throw Unsupported("repeat by other than one int");
  const int64_t dim = missing(args["axis"]) ? 0 : axis_in(args.integer("axis", 0), g.b().type(x).dim());
  if (missing(args["axis"])) x = flat(g, x);
  std::vector<Expr> sizes = g.b().type(x).sizes, spread = sizes;
  const Expr times = g.b().ctx().constant(count);
  spread.insert(spread.begin() + dim + 1, times);
  sizes[static_cast<size_t>(dim)] = g.b().ctx().mul(sizes[static_cast<size_t>(dim)], times);
  const ValueId wide = g.b().op(
      "clone", {TensorArg{g.b().expand(g.b().unsqueeze(x, dim + 1), spread)}, std::string("contiguous_format")});
  give(g, node, g.b().reshape(wide, sizes));
}

void rule_append(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"arr", "values", "axis"});
  TensorList list;
  for (const char* name : {"arr", "values"}) {
    const ValueId x = g.as_dtype(args[name], g.result_dtype(node));
    list.values.push_back(missing(args["axis"]) ? flat(g, x) : x);
  }
  const int64_t rank = g.b().type(list.values[0]).dim();
  const int64_t axis = missing(args["axis"]) ? 0 : axis_in(args.integer("axis", 0), rank);
  give(g, node, g.b().op("cat", {std::move(list), Scalar(axis)}));
}

// ---- views -----------------------------------------------------------------------------------------------------------

/// The dimensions in an order that gives the result's sizes and strides.
void rule_moved(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  PyObject* array = PyTuple_GET_SIZE(node.args.get()) > 0 ? PyTuple_GET_ITEM(node.args.get(), 0) : nullptr;
  const ArrayRef source = g.tensor(array);
  if (slot_of(array) < 0 && node.name.ends_with("matrix_transpose")) {
    std::vector<int64_t> turned(static_cast<size_t>(g.fz().type(source).dim()));
    std::iota(turned.begin(), turned.end(), 0);
    if (turned.size() < 2) throw Unsupported("such a matrix_transpose");
    std::swap(turned.end()[-1], turned.end()[-2]);
    return g.set_result(node, 0, g.view("permute", {TensorArg{source}, ints(g.b(), turned)}));
  }
  const TapeSlot& from = g.slot(array);
  const TapeSlot& to = g.result(node);
  const Py_ssize_t rank = PyTuple_GET_SIZE(from.sizes.get());
  if (PyTuple_GET_SIZE(to.sizes.get()) != rank || to.fresh || to.scalar) throw Unsupported("a view of " + node.name);
  std::vector<int64_t> order;
  const auto at = [](PyObject* tuple, Py_ssize_t i) { return PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i)); };
  for (Py_ssize_t i = 0; i < rank; ++i) {
    for (Py_ssize_t k = 0; k < rank; ++k) {
      const bool alike =
          at(from.sizes.get(), k) == at(to.sizes.get(), i) && at(from.strides.get(), k) == at(to.strides.get(), i);
      if (!alike || std::find(order.begin(), order.end(), k) != order.end()) continue;
      order.push_back(k);
      break;
    }
  }
  if (static_cast<Py_ssize_t>(order.size()) != rank) throw Unsupported("a view of " + node.name);
  g.set_view(node, slot_of(array), 0, g.view("permute", {TensorArg{source}, ints(g.b(), order)}));
}

/// atleast_1d and its kin, of each array: it, or a view with more dimensions.
void rule_at_least(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const auto count = static_cast<size_t>(PyTuple_GET_SIZE(node.args.get()));
  if (count != node.outputs.size()) throw Unsupported("such arguments of " + node.name);
  for (size_t k = 0; k < count; ++k) {
    PyObject* array = PyTuple_GET_ITEM(node.args.get(), static_cast<Py_ssize_t>(k));
    const ArrayRef source = g.tensor(array);
    if (node.outputs[k] == slot_of(array)) continue;
    const TapeSlot& made = g.info(node.outputs[k]);
    if (slot_of(array) < 0) {
      const ValueId whole = g.b().reshape(g.fz().read(source), g.sizes_in(node.outputs[k]));
      g.set_value(node, k, whole);
      continue;
    }
    if (made.fresh || g.is_copy(source)) throw Unsupported(node.name + " of a scalar, or of what runs backwards");
    g.set_result(node, k, g.view("reshape", {TensorArg{source}, SymInts{g.sizes_in(node.outputs[k])}}));
  }
}

/// The dimensions that the result goes through the other way round.
void backwards(const NumpyRules& g, const TapeNode& node, PyObject* array, const std::vector<int64_t>& dims) {
  const ArrayRef source = g.tensor(array);
  if (g.result(node).fresh || g.result(node).scalar) throw Unsupported(node.name + " as a copy");
  int64_t offset = 0;
  for (const int64_t d : dims) {
    const int64_t size = g.fz().type(source).sizes[static_cast<size_t>(d)].const_value();
    if (size == 0) throw Unsupported("an empty array");
    offset += (size - 1) * PyLong_AsLongLong(PyTuple_GET_ITEM(g.slot(array).strides.get(), static_cast<Py_ssize_t>(d)));
  }
  g.set_late_view(node, slot_of(array), offset, g.flipped(source, dims));
}

void flip_rule(NumpyGraph& graph, const TapeNode& node, int64_t fallback) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"m", "axis"});
  const int64_t rank = g.fz().type(g.tensor(args["m"])).dim();
  std::vector<int64_t> dims;
  if (fallback >= 0) {
    dims.push_back(axis_in(fallback, rank));
  } else if (missing(args["axis"])) {
    dims.resize(static_cast<size_t>(rank));
    std::iota(dims.begin(), dims.end(), 0);
  } else {
    for (const int64_t axis : integers_of(args["axis"])) dims.push_back(axis_in(axis, rank));
  }
  if (dims.empty()) throw Unsupported("flip of nothing");
  backwards(g, node, args["m"], dims);
}

void rule_flip(NumpyGraph& graph, const TapeNode& node) { flip_rule(graph, node, -1); }
void rule_flipud(NumpyGraph& graph, const TapeNode& node) { flip_rule(graph, node, 0); }
void rule_fliplr(NumpyGraph& graph, const TapeNode& node) { flip_rule(graph, node, 1); }

void rule_rot90(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"m", "k", "axes"});
  const ArrayRef source = g.tensor(args["m"]);
  const int64_t rank = g.fz().type(source).dim(), turns = ((args.integer("k", 1) % 4) + 4) % 4;
  std::vector<int64_t> axes = missing(args["axes"]) ? std::vector<int64_t>{0, 1} : integers_of(args["axes"]);
  if (axes.size() != 2 || turns == 0 || g.result(node).fresh) throw Unsupported("such a rot90");
  for (int64_t& axis : axes) axis = axis_in(axis, rank);
  int64_t offset = 0;
  for (size_t i = 0; i < 2; ++i) {
    const bool turned = turns == 2 || turns == (i == 0 ? 3 : 1);
    const int64_t size = g.fz().type(source).sizes[static_cast<size_t>(axes[i])].const_value();
    if (size == 0) throw Unsupported("an empty array");
    if (!turned) continue;
    PyObject* const strides = g.slot(args["m"]).strides.get();
    offset += (size - 1) * PyLong_AsLongLong(PyTuple_GET_ITEM(strides, static_cast<Py_ssize_t>(axes[i])));
  }
  const ValueId x = g.fz().read(source);
  const ValueId made = g.b().op("rot90", {TensorArg{x}, Scalar(turns), ints(g.b(), axes)});
  g.set_late_view(node, slot_of(args["m"]), offset, g.fz().fresh(made));
}

void part_rule(NumpyGraph& graph, const TapeNode& node, const char* op) {
  const NumpyRules g{graph};
  PyObject* array = PyTuple_GET_SIZE(node.args.get()) > 0 ? PyTuple_GET_ITEM(node.args.get(), 0) : nullptr;
  const ArrayRef source = g.tensor(array);
  if (!is_complex(g.fz().type(source).dtype)) {
    if (node.outputs.at(0) != slot_of(array)) throw Unsupported(node.name + " of real numbers");
    return;
  }
  if (g.result(node).fresh) throw Unsupported(node.name + " as a copy");
  g.set_result(node, 0, g.view(op, {TensorArg{source}}));
}

void rule_real(NumpyGraph& graph, const TapeNode& node) { part_rule(graph, node, "real_part"); }
void rule_imag(NumpyGraph& graph, const TapeNode& node) { part_rule(graph, node, "imag_part"); }

/// np.array(x): a copy.
void rule_array(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"object", "dtype", "copy", "order", "subok", "ndmin"});
  if (args["order"] != nullptr && args["order"] != Py_None && text_of(args["order"]) != "K") {
    throw Unsupported("the order of array");
  }
  const ValueId x = g.read(args["object"]);
  if (is_complex(g.b().type(x).dtype) && !is_complex(g.result_dtype(node))) throw Unsupported("a complex cast");
  if (g.b().type(x).sizes != g.result_sizes(node) || !g.result(node).fresh) throw Unsupported("such an array");
  const ValueId made = g.b().op("clone", {TensorArg{g.b().cast(x, g.result_dtype(node))}});
  g.set_value(node, 0, g.tested_cast(x, made));
}

/// A number of decimals: x * 10^n, rounded, divided again, as NumPy does it.
void rule_round(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a", "decimals", "out"});
  args.refuse({"out"});
  const ValueId x = g.read(args["a"]);
  const DType dtype = g.b().type(x).dtype;
  const int64_t decimals = args.integer("decimals", 0);
  if (g.result_dtype(node) != dtype || dtype == DType::kFloat16) throw Unsupported("such a round");
  if (is_complex(dtype)) {
    if (decimals != 0) throw Unsupported("such a round");
    const ValueId re = g.b().unary("round", g.b().unary("real_part", x));
    const ValueId im = g.b().unary("round", g.b().unary("imag_part", x));
    return g.set_value(node, 0, g.b().binary("complex", re, im));
  }
  if (!is_floating(dtype)) {
    if (decimals < 0) throw Unsupported("round of integers to tens");
    return g.set_value(node, 0, g.b().op("clone", {TensorArg{x}}));
  }
  if (decimals == 0) return g.set_value(node, 0, g.b().unary("round", x));
  constexpr int64_t kMost = 22;  // powers of ten that a float64 has
  if (std::abs(decimals) > kMost) throw Unsupported("round to so many decimals");
  const Scalar power(std::pow(10.0, static_cast<double>(std::abs(decimals))));
  const ValueId scaled = g.tested(node, g.b().binary(decimals > 0 ? "mul" : "div", x, power), {x});
  const ValueId whole = g.b().unary("round", scaled);
  g.set_value(node, 0, g.tested(node, g.b().binary(decimals > 0 ? "div" : "mul", whole, power), {whole}));
}

void rule_nan_to_num(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"x", "copy", "nan", "posinf", "neginf"});
  args.refuse({"posinf", "neginf"});
  const ValueId x = g.read(args["x"]);
  if (!args.flag("copy", true)) throw Unsupported("such a nan_to_num");
  if (is_complex(g.b().type(x).dtype)) {
    if (args["nan"] != nullptr && !PyFloat_CheckExact(args["nan"])) throw Unsupported("such a nan_to_num");
    const auto finite = [&](const char* half) {
      const ValueId y = g.b().unary(half, x);
      const ValueId nan = args["nan"] == nullptr ? g.b().constant(0, g.b().type(y).dtype)
                                                 : g.as_dtype(args["nan"], g.b().type(y).dtype);
      return g.b().where(g.b().unary("isnan", y), nan, g.b().op("nan_to_num", {TensorArg{y}}));
    };
    return give(g, node, g.b().binary("complex", finite("real_part"), finite("imag_part")));
  }
  if (!is_floating(g.b().type(x).dtype)) return give(g, node, g.b().op("clone", {TensorArg{x}}));
  const ValueId nan =
      args["nan"] == nullptr ? g.b().constant(0, g.b().type(x).dtype) : g.as_dtype(args["nan"], g.b().type(x).dtype);
  give(g, node, g.b().where(g.b().unary("isnan", x), nan, g.b().op("nan_to_num", {TensorArg{x}})));
}

void rule_trace(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a", "offset", "axis1", "axis2", "dtype", "out"});
  args.refuse({"out", "dtype"});
  const ValueId x = g.read(args["a"]);
  const DType result = g.result_dtype(node);
  const DType acc = is_integral(result) || result == DType::kBool ? DType::kInt64 : result;
  const ValueId across = g.b().op("diagonal", {TensorArg{x}, Scalar(args.integer("offset", 0)),
                                               Scalar(args.integer("axis1", 0)), Scalar(args.integer("axis2", 1))});
  const int64_t last = g.b().type(across).dim() - 1;
  const ValueId sum = g.b().op("sum", {TensorArg{g.b().cast(across, acc)}, ints(g.b(), {last}), Scalar(false), acc});
  g.set_value(node, 0, g.tested(node, g.b().cast(sum, result), {across}, {last}));
}

void rule_divmod(NumpyGraph& graph, const TapeNode& node) {
  NumpyRules g{graph};
  if (PyTuple_GET_SIZE(node.args.get()) != 2 || node.kwargs) throw Unsupported("such a divmod");
  const std::vector<PyObject*> both = {PyTuple_GET_ITEM(node.args.get(), 0), PyTuple_GET_ITEM(node.args.get(), 1)};
  const ValueId quotient = g.apply_ufunc("floor_divide", both), rest = g.apply_ufunc("remainder", both);
  g.set_value(node, 0, quotient);
  g.set_value(node, 1, rest);
}

/// The parts of an array along a dimension, one behind the other.
void rule_split(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"ary", "indices_or_sections", "axis"});
  const ArrayRef source = g.tensor(args["ary"]);
  const std::vector<Expr>& sizes = g.fz().type(source).sizes;
  const auto rank = static_cast<int64_t>(sizes.size());
  int64_t dim = args.integer("axis", 0);
  if (node.name == "hsplit") dim = rank == 1 ? 0 : 1;
  if (node.name == "dsplit") dim = 2;
  dim = axis_in(dim, rank);
  const int64_t size = sizes[static_cast<size_t>(dim)].const_value();
  std::vector<int64_t> bounds = {0};
  PyObject* const places = args["indices_or_sections"];
  if (places != nullptr && PyLong_CheckExact(places)) {
    for (const int slot : node.outputs) {
      bounds.push_back(bounds.back() + PyLong_AsLongLong(PyTuple_GET_ITEM(g.info(slot).sizes.get(), dim)));
    }
    if (bounds.back() != size) throw Unsupported("parts that are not all of the array");
  } else {
    for (const int64_t at : integers_of(places)) bounds.push_back(at);
    bounds.push_back(size);
  }
  if (bounds.size() != node.outputs.size() + 1) throw Unsupported("another number of parts");
  for (size_t k = 0; k < node.outputs.size(); ++k) {
    if (g.info(node.outputs[k]).fresh) throw Unsupported("parts that are copies");
    Py_ssize_t start = bounds[k], stop = bounds[k + 1];  // of slices, as Python takes them
    if (PySlice_AdjustIndices(size, &start, &stop, 1) == 0) stop = start;
    g.set_result(node, k,
                 g.view("slice", {TensorArg{source}, Scalar(dim), Scalar(int64_t{start}), Scalar(int64_t{stop}),
                                  Scalar(int64_t{1})}));
  }
}

}  // namespace

/// The arrays of a tuple or list, or those that an array is made of.
/// A list of numbers and arrays of one shape, as an array.
ValueId listed(const NumpyRules& g, PyObject* items, DType dtype) {
  constexpr Py_ssize_t kMost = 8;
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(items);
  if (count == 0 || count > kMost) throw Unsupported("a list of so many items");
  TensorList parts;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(items, i);
    const bool inner = PyList_Check(item) || PyTuple_Check(item);
    const ValueId value = inner ? listed(g, item, dtype) : g.as_dtype(item, dtype);
    if (!parts.values.empty() && g.b().type(value).sizes != g.b().type(parts.values[0]).sizes) {
      throw Unsupported("a list of several shapes");
    }
    parts.values.push_back(value);
  }
  for (ValueId& v : parts.values) v = g.b().unsqueeze(v, 0);
  return g.b().op("cat", {std::move(parts), Scalar(int64_t{0})});
}

std::vector<ValueId> joined_parts(const NumpyRules& g, const TapeNode& node, PyObject* items) {
  std::vector<ValueId> values;
  if (items != nullptr && slot_of(items) >= 0) {
    const ValueId x = g.read(items);
    constexpr int64_t kMost = 64;
    const int64_t count = g.b().type(x).dim() > 0 ? g.shape(x)[0] : 0;
    if (count > kMost) throw Unsupported(node.name + " of so many arrays");
    for (int64_t i = 0; i < count; ++i)
      values.push_back(g.b().op("select", {TensorArg{x}, Scalar(int64_t{0}), Scalar(i)}));
  } else if (items != nullptr && (PyTuple_Check(items) || PyList_Check(items))) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items); ++i) {
      PyObject* const item = PySequence_Fast_GET_ITEM(items, i);
      if (slot_of(item) >= 0) {
        values.push_back(g.read(item));
      } else if (PyList_Check(item) || PyTuple_Check(item)) {
        values.push_back(listed(g, item, g.result_dtype(node)));
      } else {
        values.push_back(g.as_dtype(item, g.result_dtype(node)));
      }
    }
  }
  if (values.empty()) throw Unsupported(node.name + " of nothing, or of something other than arrays");
  for (ValueId& x : values) x = g.tested_cast(x, g.b().cast(x, g.result_dtype(node)));
  return values;
}

void add_numpy_join_rules(NumpyRuleTable& table) {
  const std::initializer_list<std::pair<const char*, NumpyRule>> rules = {
      {"hstack", rule_hstack},
      {"vstack", rule_vstack},
      {"row_stack", rule_vstack},
      {"dstack", rule_dstack},
      {"column_stack", rule_column_stack},
      {"roll", rule_roll},
      {"tril", rule_tril},
      {"triu", rule_triu},
      {"diff", rule_diff},
      {"tile", rule_tile},
      {"repeat", rule_repeat},
      {"append", rule_append},
      {"moveaxis", rule_moved},
      {"rollaxis", rule_moved},
      {"matrix_transpose", rule_moved},
      {"linalg.matrix_transpose", rule_moved},
      {"mT", rule_moved},
      {"atleast_1d", rule_at_least},
      {"atleast_2d", rule_at_least},
      {"atleast_3d", rule_at_least},
      {"round", rule_round},
      {"around", rule_round},
      {"nan_to_num", rule_nan_to_num},
      {"trace", rule_trace},
      {"divmod", rule_divmod},
      {"real", rule_real},
      {"imag", rule_imag},
      {"array", rule_array},
      {"split", rule_split},
      {"array_split", rule_split},
      {"hsplit", rule_split},
      {"vsplit", rule_split},
      {"dsplit", rule_split},
  };
  table.insert(rules.begin(), rules.end());
}

void add_numpy_flip_rules(NumpyRuleTable& table) {
  table.emplace("flip", rule_flip);
  table.emplace("flipud", rule_flipud);
  table.emplace("fliplr", rule_fliplr);
  table.emplace("rot90", rule_rot90);
}

}  // namespace tatara::capture
