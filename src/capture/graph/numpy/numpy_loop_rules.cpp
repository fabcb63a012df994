// Rules of calls that NumPy's own inner loops compute within the plan: ufuncs without an operator or a kernel (numpy.linalg and
// numpy.fft are made of such), sorts, places of extremes, and what a mask picks (capture/host/numpy_loops.h).
#include <algorithm>
#include <numeric>
#include <string_view>

#include "capture/graph/numpy/numpy_rules_internal.h"
#include "capture/host/numpy_loops.h"
#include "support/error.h"

namespace tatara::capture {
namespace {

DType type_of_letter(char letter) {
  switch (letter) {
    case '?': return DType::kBool;
    case 'i': return DType::kInt32;
    case 'l': return DType::kInt64;
    case 'f': return DType::kFloat32;
    case 'd': return DType::kFloat64;
    case 'F': return DType::kComplex64;
    case 'D': return DType::kComplex128;
    default: throw Unsupported("a loop of such a type");
  }
}

/// "dd->d": inputs, then outputs.
std::vector<DType> types_of_text(const std::string& text) {
  std::vector<DType> types;
  for (const char each : text) {
    if (each != '-' && each != '>') types.push_back(type_of_letter(each));
  }
  return types;
}

/// What a call of a ufunc is given.
struct UfuncCall {
  std::vector<PyObject*> operands;
  std::vector<PyObject*> outs;  // of each result; null: a new array
  PyObject* axes = nullptr;
  std::string signature;
};

UfuncCall read_call(const TapeNode& node, const UfuncShape& shape) {
  UfuncCall call;
  const auto count = static_cast<int>(PyTuple_GET_SIZE(node.args.get()));
  for (int i = 0; i < std::min(count, shape.inputs); ++i) call.operands.push_back(PyTuple_GET_ITEM(node.args.get(), i));
  if (count < shape.inputs || count > shape.inputs + shape.outputs) throw Unsupported("the operands of " + node.name);
  call.outs.resize(static_cast<size_t>(shape.outputs), nullptr);
  const auto take_out = [&call](size_t k, PyObject* out) {
    if (out == Py_None || out == Py_Ellipsis) return;
    if (k >= call.outs.size() || slot_of(out) < 0) throw Unsupported("such an out");
    call.outs[k] = out;
  };
  for (int i = shape.inputs; i < count; ++i) {
    take_out(static_cast<size_t>(i - shape.inputs), PyTuple_GET_ITEM(node.args.get(), i));
  }
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  while (node.kwargs && PyDict_Next(node.kwargs.get(), &at, &key, &value) != 0) {
    const std::string name = text_of(key);
    if (name == "signature" && PyUnicode_Check(value)) {
      call.signature = text_of(value);
    } else if (name == "axes" && PyList_Check(value)) {
      call.axes = value;
    } else if (name == "out") {
      for (Py_ssize_t i = 0; PyTuple_Check(value) && i < PyTuple_GET_SIZE(value); ++i) {
        take_out(static_cast<size_t>(i), PyTuple_GET_ITEM(value, i));
      }
      if (!PyTuple_Check(value)) take_out(0, value);
    } else if (name != "casting" && value != Py_None && value != Py_True) {
      throw Unsupported("argument " + name + " of " + node.name);
    }
  }
  const bool none = std::all_of(call.outs.begin(), call.outs.end(), [](PyObject* out) { return out == nullptr; });
  if (node.mutates && none && node.name != "qr_r_raw") call.outs.at(0) = call.operands[0];
  return call;
}

/// The order of dimensions in which an operand's core dimensions are the last ones.
std::vector<int64_t> core_last(PyObject* axes, size_t operand, int64_t rank, int core) {
  std::vector<int64_t> last;
  PyObject* own = axes == nullptr ? nullptr : PyList_GetItem(axes, static_cast<Py_ssize_t>(operand));
  for (int d = 0; d < core; ++d) {
    int64_t axis = rank - core + d;
    if (own != nullptr) {
      PyObject* item = PyTuple_Check(own) ? PyTuple_GET_ITEM(own, d) : own;
      if (!PyLong_CheckExact(item)) throw Unsupported("such axes");
      axis = PyLong_AsLongLong(item);
      axis += axis < 0 ? rank : 0;
    }
    last.push_back(axis);
  }
  std::vector<int64_t> order;
  for (int64_t d = 0; d < rank; ++d) {
    if (std::find(last.begin(), last.end(), d) == last.end()) order.push_back(d);
  }
  order.insert(order.end(), last.begin(), last.end());
  if (static_cast<int64_t>(order.size()) != rank) throw Unsupported("such axes");
  return order;
}

std::vector<int64_t> inverse_of(const std::vector<int64_t>& order) {
  std::vector<int64_t> inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) inverse[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return inverse;
}

ValueId in_order_of(GraphBuilder& b, ValueId x, const std::vector<int64_t>& order) {
  return std::is_sorted(order.begin(), order.end()) ? x : b.permute(x, order);
}

TensorType dense_type(GraphBuilder& b, DType dtype, std::vector<Expr> sizes) {
  TensorType type;
  type.dtype = dtype;
  type.strides = contiguous_strides(b.ctx(), sizes);
  type.sizes = std::move(sizes);
  return type;
}

std::vector<Expr> in_order(const std::vector<Expr>& sizes, const std::vector<int64_t>& order) {
  std::vector<Expr> made;
  for (const int64_t d : order) made.push_back(sizes[static_cast<size_t>(d)]);
  return made;
}

/// The rows along `dim` are the loop's, which makes rows of the same length (`keeps`) or one element of each.
ValueId of_rows(const NumpyRules& g, const OpDef& op, ValueId x, int64_t dim, DType dtype, bool keeps) {
  GraphBuilder& b = g.b();
  const std::vector<int64_t> order = core_last(nullptr, 0, b.type(x).dim(), 0);
  std::vector<int64_t> last = order;
  std::rotate(last.begin() + dim, last.begin() + dim + 1, last.end());
  std::vector<Expr> sizes = in_order(b.type(x).sizes, last);
  if (!keeps) sizes.pop_back();
  const ValueId made = b.host_call(op, {TensorList{{in_order_of(b, x, last)}}}, {dense_type(b, dtype, sizes)})[0];
  return keeps ? in_order_of(b, made, inverse_of(last)) : made;
}

int sort_kind(const NumpyArgs& args) {
  PyObject *kind = args["kind"], *stable = args["stable"];
  if (stable == Py_True) return 2;
  if (kind == nullptr || kind == Py_None) return 0;
  const std::string text = text_of(kind);
  if (text == "stable" || text == "mergesort") return 2;
  if (text == "quicksort") return 0;
  throw Unsupported("such a kind of sort");
}

ValueId in_a_row(GraphBuilder& b, ValueId x) {
  if (b.type(x).dim() == 1) return x;
  const ValueId dense = b.op("clone", {TensorArg{x}, std::string("contiguous_format")});
  return b.reshape(dense, {b.type(x).numel(b.ctx())});
}

/// The axis of the call, of the array or of all of its elements in one row.
int64_t take_axis(const NumpyRules& g, const NumpyArgs& args, ValueId& x, int64_t otherwise) {
  if (args["axis"] == Py_None) {
    x = in_a_row(g.b(), x);
    return 0;
  }
  const int64_t rank = g.b().type(x).dim(), axis = args.integer("axis", otherwise);
  const int64_t at = axis < 0 ? axis + rank : axis;
  if (at < 0 || at >= rank) throw Unsupported("such an axis");
  return at;
}

bool is_empty(GraphBuilder& b, ValueId x) {
  const std::vector<Expr>& sizes = b.type(x).sizes;
  return std::any_of(sizes.begin(), sizes.end(), [](const Expr& e) { return e.is_const(0); });
}

void rule_argsort(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a", "axis", "kind", "order", "stable"});
  args.refuse({"order"});
  ValueId x = g.read(args["a"]);
  if (g.b().type(x).dim() == 0 || is_empty(g.b(), x)) throw Unsupported("argsort of such an array");
  const int64_t dim = take_axis(g, args, x, -1);
  const OpDef* op = argsort_loop(g.np(), g.b().type(x).dtype, sort_kind(args));
  g.set_value(node, 0, of_rows(g, *op, x, dim, DType::kInt64, true));
}

/// Keys one after the other, the last one first in importance: each is sorted stably in the order so far.
void rule_lexsort(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"keys", "axis"});
  GraphBuilder& b = g.b();
  std::vector<ValueId> keys;
  PyObject* given = args["keys"];
  if (given != nullptr && (PyTuple_Check(given) || PyList_Check(given))) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(given); ++i) {
      keys.push_back(g.read(PySequence_Fast_GET_ITEM(given, i)));
    }
  } else {
    const ValueId all = g.read(given);
    if (b.type(all).dim() < 2) throw Unsupported("such keys");
    for (int64_t i = 0; i < g.shape(all)[0]; ++i) {
      keys.push_back(b.op("select", {TensorArg{all}, Scalar(int64_t{0}), Scalar(i)}));
    }
  }
  if (keys.empty() || b.type(keys[0]).dim() != 1 || is_empty(b, keys[0])) throw Unsupported("such keys");
  ValueId order = kNoValue;
  for (const ValueId key : keys) {
    const ValueId in_turn = order == kNoValue ? key : b.op("index", {TensorArg{key}, TensorList{{order}}});
    const ValueId next = of_rows(g, *argsort_loop(g.np(), b.type(key).dtype, 2), in_turn, 0, DType::kInt64, true);
    order = order == kNoValue ? next : b.op("index", {TensorArg{order}, TensorList{{next}}});
  }
  g.set_value(node, 0, order);
}

/// int(x), where the graph stops unless it is what it was in the trace.
void rule_int(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  if (!NumpyGraph::tests_decision(node) || PyTuple_GET_SIZE(node.args.get()) != 1) throw Unsupported("such an int");
  const ValueId x = g.read(PyTuple_GET_ITEM(node.args.get(), 0));
  if (!is_integral(g.b().type(x).dtype) || g.b().type(x).dim() != 0) throw Unsupported("an int of such a value");
  const int64_t was = PyLong_AsLongLong(std::get<NumpyOperation>(node.kind).fell.get());
  g.compute(g.stops_always(x, g.b().binary("ne", x, Scalar(was))));
}

/// Likewise whether two arrays are equal where one is as wide as the other.
void rule_array_equiv(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a1", "a2"});
  GraphBuilder& b = g.b();
  ValueId x = g.read(args["a1"]), y = g.read(args["a2"]);
  if (b.type(x).dtype != b.type(y).dtype || b.type(x).sizes != b.type(y).sizes)
    throw Unsupported("such an array_equiv");
  if (b.type(x).dim() == 0) throw Unsupported("such an array_equiv");
  std::vector<int64_t> all(static_cast<size_t>(b.type(x).dim()));
  std::iota(all.begin(), all.end(), 0);
  const ValueId same = b.reduce("all", b.binary("eq", x, y), all, false);
  const bool was = std::get<NumpyOperation>(node.kind).fell.get() == Py_True;
  g.compute(g.stops_always(same, was ? b.unary("logical_not", same) : same));
}

/// Bools of what a condition is.
ValueId truth(const NumpyRules& g, PyObject* condition) {
  const ValueId x = g.read(condition);
  if (g.b().type(x).dtype == DType::kBool) return x;
  return g.b().binary("ne", x, Scalar(int64_t{0}));
}

/// Where the mask holds, for as many places as the call found: a row of indices each.
ValueId places(const NumpyRules& g, ValueId mask, const Expr& count) {
  const int64_t rank = g.b().type(mask).dim();
  if (rank == 0) throw Unsupported("places in a scalar");
  const TensorType type = dense_type(g.b(), DType::kInt64, {count, g.b().ctx().constant(rank)});
  g.may_stop();
  return g.b().host_call(places_loop(), {TensorList{{mask}}}, {type})[0];
}

void rule_nonzero(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a"});
  const ValueId mask = truth(g, args["a"]);
  if (node.outputs.size() != static_cast<size_t>(g.b().type(mask).dim())) throw Unsupported("such a nonzero");
  // Columns of one array.
  const NumpyRules::ArrayRef found = g.fz().fresh(places(g, mask, g.result_sizes(node).at(0)));
  for (size_t k = 0; k < node.outputs.size(); ++k) {
    const auto at = static_cast<int64_t>(k);
    g.set_result(node, k, g.view("select", {TensorArg{found}, Scalar(int64_t{1}), Scalar(at)}));
  }
}

void rule_flatnonzero(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a"});
  const ValueId found = places(g, in_a_row(g.b(), truth(g, args["a"])), g.result_sizes(node).at(0));
  const NumpyRules::ArrayRef column = g.fz().fresh(found);
  g.set_result(node, 0, g.view("select", {TensorArg{column}, Scalar(int64_t{1}), Scalar(int64_t{0})}));
}

void rule_argwhere(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a"});
  g.set_value(node, 0, places(g, truth(g, args["a"]), g.result_sizes(node).at(0)));
}

ValueId picked(const NumpyRules& g, ValueId x, ValueId mask, const Expr& count) {
  GraphBuilder& b = g.b();
  const int64_t rank = b.type(mask).dim();
  if (rank == 0 || rank > b.type(x).dim()) throw Unsupported("such a mask");
  std::vector<Expr> sizes = {count};
  for (int64_t d = 0; d < b.type(x).dim(); ++d) {
    if (d >= rank) {
      sizes.push_back(b.type(x).sizes[static_cast<size_t>(d)]);
    } else if (b.type(x).sizes[static_cast<size_t>(d)] != b.type(mask).sizes[static_cast<size_t>(d)]) {
      throw Unsupported("a mask of another shape");
    }
  }
  g.may_stop();
  return b.host_call(picked_loop(), {TensorList{{x, mask}}}, {dense_type(b, b.type(x).dtype, sizes)})[0];
}

/// np.extract and np.compress; a condition that is shorter stands for fewer elements.
void rule_compress(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  GraphBuilder& b = g.b();
  const bool function = node.name == "extract" || PyTuple_GET_SIZE(node.args.get()) < 2 ||
                        slot_of(PyTuple_GET_ITEM(node.args.get(), 0)) < 0 || g.np().is_dispatcher(node.func.get());
  const NumpyArgs args = node.name == "extract" ? NumpyArgs(node, g.np(), {"condition", "a"})
                         : function             ? NumpyArgs(node, g.np(), {"condition", "a", "axis", "out"})
                                                : NumpyArgs(node, g.np(), {"a", "condition", "axis", "out"});
  ValueId mask = truth(g, args["condition"]), x = g.read(args["a"]);
  int64_t dim = 0;
  if (node.name == "extract") {
    mask = in_a_row(b, mask);
    x = in_a_row(b, x);
  } else {
    args.refuse({"out"});
    if (args["axis"] == nullptr || args["axis"] == Py_None) {
      x = in_a_row(b, x);
    } else {
      dim = take_axis(g, args, x, 0);
    }
  }
  if (b.type(mask).dim() != 1) throw Unsupported("such a condition");
  const Expr length = b.type(mask).sizes[0], whole = b.type(x).sizes[static_cast<size_t>(dim)];
  if (length.const_value() > whole.const_value()) throw Unsupported("a condition that is longer than the array");
  x = b.slice(x, dim, b.ctx().constant(0), length, b.ctx().constant(1));
  std::vector<int64_t> order(static_cast<size_t>(b.type(x).dim()));
  std::iota(order.begin(), order.end(), 0);
  std::rotate(order.begin(), order.begin() + dim, order.begin() + dim + 1);
  const Expr count = g.result_sizes(node).at(static_cast<size_t>(dim));
  const ValueId made = picked(g, in_order_of(b, x, order), mask, count);
  g.set_value(node, 0, in_order_of(b, made, inverse_of(order)));
}

}  // namespace

bool NumpyGraph::tests_decision(const TapeNode& node) {
  const auto& call = std::get<NumpyOperation>(node.kind);
  if (node.name == "int") return call.fell && PyLong_CheckExact(call.fell.get());
  return node.name == "array_equiv" && call.fell && PyBool_Check(call.fell.get());
}

bool NumpyGraph::tests_size(const TapeNode& node) {
  constexpr std::string_view kTested[] = {"getitem",  "nonzero", "flatnonzero",  "argwhere", "where",
                                          "compress", "extract", "_unique_hash", "bincount"};
  return std::find(std::begin(kTested), std::end(kTested), node.name) != std::end(kTested);
}

void rule_of_loop(NumpyGraph& graph, const TapeNode& node) {
  NumpyRules g{graph};
  GraphBuilder& b = g.b();
  PyObject* const ufunc = node.func.get();
  const UfuncShape shape = shape_of_ufunc(ufunc);
  UfuncCall call = read_call(node, shape);
  const std::vector<DType> types = call.signature.empty()
                                       ? g.loop_types(ufunc, call.operands, static_cast<size_t>(shape.outputs))
                                       : types_of_text(call.signature);
  // It raises from within its loop.
  if (node.name == "power" && is_integral(types.back())) throw Unsupported("powers of integers");
  const bool in_place = node.name == "qr_r_raw";
  const OpDef* op = ufunc_loop(ufunc, types, g.faults(), in_place);
  if (op == nullptr) throw Unsupported("no loop of numpy's " + node.name);
  TensorList operands;
  for (size_t k = 0; k < call.operands.size(); ++k) {
    const ValueId value = g.as_dtype(call.operands[k], types[k]);
    if (is_empty(b, value)) throw Unsupported("a loop over no elements");
    operands.values.push_back(in_order_of(b, value, core_last(call.axes, k, b.type(value).dim(), shape.core_dims[k])));
  }
  const auto outputs = static_cast<size_t>(shape.outputs);
  if (!node.mutates && node.outputs.size() != outputs) throw Unsupported("such results of " + node.name);
  const auto is_new = [&](size_t k) { return call.outs[k] == nullptr; };
  if (node.outputs.size() < outputs &&
      std::any_of(call.outs.begin(), call.outs.end(), [](PyObject* o) { return !o; })) {
    throw Unsupported("such results of " + node.name);
  }
  std::vector<TensorType> made;
  std::vector<std::vector<int64_t>> orders;
  for (size_t k = 0; k < outputs; ++k) {
    const std::vector<Expr> sizes = is_new(k) ? g.sizes_in(node.outputs[k]) : g.fz().type(g.tensor(call.outs[k])).sizes;
    const size_t at = call.operands.size() + k;
    orders.push_back(core_last(call.axes, at, static_cast<int64_t>(sizes.size()), shape.core_dims[at]));
    made.push_back(dense_type(b, types[at], in_order(sizes, orders.back())));
  }
  if (in_place) made.push_back(dense_type(b, types[0], b.type(operands.values[0]).sizes));
  if (g.faults().any()) g.may_stop();
  const std::vector<ValueId> values = b.host_call(*op, {std::move(operands)}, std::move(made));
  for (size_t k = 0; k < outputs; ++k) {
    const ValueId value = in_order_of(b, values[k], inverse_of(orders[k]));
    if (is_new(k)) {
      g.set_value(node, k, value);
    } else {
      g.write(call.outs[k], value);
    }
  }
  if (in_place) g.write(call.operands[0], values.back());
}

ValueId sorted_by_loop(const NumpyRules& g, ValueId x, int64_t dim, const NumpyArgs& args) {
  return of_rows(g, sort_loop(g.np(), g.b().type(x).dtype, sort_kind(args)), x, dim, g.b().type(x).dtype, true);
}

ValueId sorted_by_loop(const NumpyRules& g, ValueId x, int64_t dim) {
  return of_rows(g, sort_loop(g.np(), g.b().type(x).dtype, 0), x, dim, g.b().type(x).dtype, true);
}

ValueId extreme_by_loop(const NumpyRules& g, ValueId x, int64_t dim, bool largest) {
  return of_rows(g, extreme_loop(g.np(), g.b().type(x).dtype, largest), x, dim, DType::kInt64, false);
}

ValueId reduced_by_loop(const NumpyRules& g, PyObject* ufunc, ValueId x, int64_t dim) {
  const DType dtype = g.b().type(x).dtype;
  const OpDef* op = is_empty(g.b(), x) ? nullptr : reduction_loop(ufunc, dtype, g.faults());
  if (op == nullptr) throw Unsupported("no reduction of this type");
  if (g.faults().any()) g.may_stop();
  return of_rows(g, *op, x, dim, dtype, false);
}

void rule_of_places(NumpyGraph& graph, const TapeNode& node) { rule_nonzero(graph, node); }

ValueId picked_by_mask(const NumpyRules& g, PyObject* array, PyObject* mask, const TapeNode& node) {
  return picked(g, g.read(array), truth(g, mask), g.result_sizes(node).at(0));
}

void add_numpy_loop_rules(NumpyRuleTable& table) {
  const std::initializer_list<std::pair<const char*, NumpyRule>> rules = {
      {"array_equiv", rule_array_equiv}, {"int", rule_int},          {"argsort", rule_argsort},
      {"lexsort", rule_lexsort},         {"nonzero", rule_nonzero},  {"flatnonzero", rule_flatnonzero},
      {"compress", rule_compress},       {"extract", rule_compress}, {"argwhere", rule_argwhere},
  };
  table.insert(rules.begin(), rules.end());
}

}  // namespace tatara::capture
