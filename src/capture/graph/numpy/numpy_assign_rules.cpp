// Rules of calls that write where a mask or an array of places says, choose among arrays, or leave out what is there twice.
#include <algorithm>
#include <numeric>

#include "capture/graph/numpy/numpy_rules_internal.h"
#include "capture/host/numpy_loops.h"
#include "support/error.h"

namespace tatara::capture {
namespace {

using ArrayRef = NumpyGraph::ArrayRef;

ValueId dense(GraphBuilder& b, ValueId x) { return b.op("clone", {TensorArg{x}, std::string("contiguous_format")}); }

ValueId one_row(GraphBuilder& b, ValueId x) {
  if (b.type(x).dim() == 1) return x;
  return b.reshape(dense(b, x), {b.type(x).numel(b.ctx())});
}

TensorType dense_like(GraphBuilder& b, ValueId x) {
  TensorType type;
  type.dtype = b.type(x).dtype;
  type.sizes = b.type(x).sizes;
  type.strides = contiguous_strides(b.ctx(), type.sizes);
  return type;
}

bool is_empty_row(const NumpyRules& g, ValueId row) { return g.shape(row)[0] == 0; }

/// What is given as values, in the target's type.
ValueId values_for(const NumpyRules& g, PyObject* value, DType dtype) {
  if (slot_of(value) < 0) {
    if (PyList_Check(value) || PyTuple_Check(value)) return listed(g, value, dtype);
    return g.as_dtype(value, dtype);
  }
  if (is_complex(g.slot_dtype(value)) && !is_complex(dtype)) throw Unsupported("a complex cast");
  const ValueId given = g.read(value);
  return g.tested_cast(given, g.b().cast(given, dtype));
}

ValueId holds(const NumpyRules& g, PyObject* mask) {
  const ValueId x = g.read(mask);
  return g.b().type(x).dtype == DType::kBool ? x : g.b().binary("ne", x, Scalar(int64_t{0}));
}

void write_masked(const NumpyRules& g, ArrayRef target, ValueId mask, ValueId values, bool again) {
  GraphBuilder& b = g.b();
  const ValueId now = g.fz().read(target);
  if (b.type(mask).sizes != b.type(now).sizes || b.type(mask).dim() == 0) throw Unsupported("a mask of another shape");
  g.may_stop();
  const ValueId made =
      b.host_call(masked_loop(again), {TensorList{{now, mask, one_row(b, values)}}}, {dense_like(b, now)})[0];
  g.write_ref(target, made);
}

void rule_place(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"arr", "mask", "vals"});
  const ArrayRef target = g.tensor(args["arr"]);
  const TensorType type = g.fz().type(target);
  ValueId values = values_for(g, args["vals"], type.dtype);
  if (g.b().type(values).dim() == 0) values = g.b().unsqueeze(values, 0);
  write_masked(g, target, holds(g, args["mask"]), values, true);
}

/// One element of the flat array.
void rule_put(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a", "ind", "v", "mode"});
  if (args["mode"] != nullptr && text_of(args["mode"]) != "raise") throw Unsupported("the mode of put");
  ArrayRef target = g.tensor(args["a"]);
  const std::vector<Expr> sizes = g.fz().type(target).sizes;
  int64_t count = 1;
  for (const Expr& e : sizes) count *= e.const_value();
  int64_t at = args.integer("ind", 0);
  at += at < 0 ? count : 0;
  const ValueId value = values_for(g, args["v"], g.fz().type(target).dtype);
  if (at < 0 || at >= count || g.b().type(value).dim() != 0) throw Unsupported("such a put");
  for (const Expr& e : sizes) {
    count /= e.const_value();
    target = g.view("select", {TensorArg{target}, Scalar(int64_t{0}), Scalar(at / count)});
    at %= count;
  }
  g.write_ref(target, value);
}

/// The items of a list or tuple, numbers in the type, or those of an array along its first dimension.
std::vector<ValueId> items(const NumpyRules& g, PyObject* list, DType dtype) {
  constexpr int64_t kMost = 8;  // as many as a kernel reads
  std::vector<ValueId> made;
  if (slot_of(list) >= 0) {
    const ValueId x = g.read(list);
    const int64_t count = g.b().type(x).dim() > 0 ? g.shape(x)[0] : 0;
    for (int64_t i = 0; i < std::min(count, kMost + 1); ++i) {
      made.push_back(g.b().op("select", {TensorArg{x}, Scalar(int64_t{0}), Scalar(i)}));
    }
  } else if (list != nullptr && (PyList_Check(list) || PyTuple_Check(list))) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list); ++i) {
      PyObject* const item = PySequence_Fast_GET_ITEM(list, i);
      made.push_back(slot_of(item) < 0 && !PyList_Check(item) && !PyTuple_Check(item) ? g.as_dtype(item, dtype)
                                                                                      : g.read(item));
    }
  }
  if (made.empty() || made.size() > kMost) throw Unsupported("so many choices");
  return made;
}

/// The first choice whose condition holds.
void rule_select(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"condlist", "choicelist", "default"});
  const DType dtype = g.result_dtype(node);
  const std::vector<ValueId> conditions = items(g, args["condlist"], DType::kBool),
                             choices = items(g, args["choicelist"], dtype);
  if (conditions.size() != choices.size()) throw Unsupported("such a select");
  ValueId made = args["default"] == nullptr ? g.b().constant(0, dtype) : g.as_dtype(args["default"], dtype);
  made = g.b().expand(made, g.result_sizes(node));
  for (size_t i = conditions.size(); i-- > 0;) {
    if (g.b().type(conditions[i]).dtype != DType::kBool) throw Unsupported("such a condition");
    made = g.b().where(conditions[i], g.b().cast(choices[i], dtype), made);
  }
  g.set_value(node, 0, made);
}

/// Of each element the choice whose number it is; the kernel stops at one that is none.
void rule_choose(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a", "choices", "out", "mode"});
  args.refuse({"out"});
  if (args["mode"] != nullptr && text_of(args["mode"]) != "raise") throw Unsupported("the mode of choose");
  GraphBuilder& b = g.b();
  ValueId which = g.read(args["a"]);
  if (!is_integral(b.type(which).dtype) && b.type(which).dtype != DType::kBool) throw Unsupported("such a choose");
  which = b.cast(which, DType::kInt64);
  const DType dtype = g.result_dtype(node);
  const std::vector<ValueId> choices = items(g, args["choices"], dtype);
  const auto count = static_cast<int64_t>(choices.size());
  which = g.stops_always(
      which, b.binary("logical_or", b.binary("lt", which, Scalar(int64_t{0})), b.binary("ge", which, Scalar(count))));
  ValueId made = b.expand(b.cast(choices.back(), dtype), g.result_sizes(node));
  for (int64_t i = count - 1; i-- > 0;) {
    made = b.where(b.binary("eq", which, Scalar(i)), b.cast(choices[static_cast<size_t>(i)], dtype), made);
  }
  g.set_value(node, 0, made);
}

/// Coordinates at each place of a grid, as copies.
void rule_meshgrid(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  GraphBuilder& b = g.b();
  const Py_ssize_t count = PyTuple_GET_SIZE(node.args.get());
  if ((node.kwargs && PyDict_GET_SIZE(node.kwargs.get()) > 0) || static_cast<size_t>(count) != node.outputs.size()) {
    throw Unsupported("such a meshgrid");
  }
  for (Py_ssize_t k = 0; k < count; ++k) {
    const ValueId x = one_row(b, g.read(PyTuple_GET_ITEM(node.args.get(), k)));
    const std::vector<Expr> sizes = g.sizes_in(node.outputs[static_cast<size_t>(k)]);
    // The first two dimensions are the second's and the first's.
    const Py_ssize_t own = count > 1 && k < 2 ? 1 - k : k;
    std::vector<Expr> along(sizes.size(), b.ctx().constant(1));
    along[static_cast<size_t>(own)] = b.type(x).sizes[0];
    g.set_value(node, static_cast<size_t>(k), dense(b, b.expand(b.reshape(x, along), sizes)));
  }
}

TensorType counts_type(const NumpyRules& g, int64_t size) {
  TensorType type;
  type.dtype = DType::kInt64;
  type.sizes = {g.b().ctx().constant(size)};
  type.strides = {g.b().ctx().constant(1)};
  return type;
}

void rule_bincount(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"x", "weights", "minlength"});
  args.refuse({"weights"});
  const ValueId x = g.read(args["x"]);
  const int64_t least = args.integer("minlength", 0), size = g.result_sizes(node).at(0).const_value();
  if (!is_integral(g.b().type(x).dtype) || g.b().type(x).dim() != 1 || size == 0) throw Unsupported("such a bincount");
  const OpDef& op = count_loop(size > least);
  g.may_stop();
  g.set_value(node, 0, g.b().host_call(op, {TensorList{{g.b().cast(x, DType::kInt64)}}}, {counts_type(g, size)})[0]);
}

/// Bins of one width over an array, as NumPy computes their edges.
struct Bins {
  ValueId x = kNoValue;  // in one row
  ValueId first = kNoValue, last = kNoValue, edges = kNoValue;
  int64_t count = 10;
};

Bins bins_of(const NumpyRules& g, const TapeNode& node, const NumpyArgs& args) {
  args.refuse({"range", "weights"});
  GraphBuilder& b = g.b();
  Bins bins;
  bins.count = args.integer("bins", 10);
  const ValueId given = one_row(b, g.read(args["a"]));
  const DType dtype = b.type(given).dtype;
  const bool whole = dtype == DType::kInt64 || dtype == DType::kInt32;
  if ((!whole && dtype != DType::kFloat64) || bins.count < 1 || is_empty_row(g, given)) {
    throw Unsupported("such bins of " + node.name);
  }
  bins.x = b.cast(given, DType::kFloat64);
  if (whole) {
    constexpr double kMostExact = 4503599627370496.0;
    bins.x = g.stops_always(bins.x, b.binary("ge", b.unary("abs", bins.x), Scalar(kMostExact)));
  }
  const ValueId low = b.reduce("amin", bins.x, {0}, false), high = b.reduce("amax", bins.x, {0}, false);
  const ValueId one = b.binary("eq", low, high);
  bins.first = b.where(one, b.binary("sub", low, Scalar(0.5)), low);
  bins.last = b.where(one, b.binary("add", high, Scalar(0.5)), high);
  const ValueId width = b.binary("sub", bins.last, bins.first);
  const ValueId fine = b.unary("isfinite", width);
  bins.first = g.stops_always(bins.first, b.unary("logical_not", fine));
  const ValueId step = b.binary("div", width, Scalar(static_cast<double>(bins.count)));
  // Widths that no float64 has are NumPy's.
  bins.first = g.stops_always(bins.first, b.binary("eq", step, Scalar(0.0)));
  const ValueId numbers = b.op("arange.step", {Scalar(int64_t{0}), Scalar(bins.count + 1), Scalar(int64_t{1}),
                                               DType::kInt64, NoneArg{}, Device{}});
  const ValueId inner = b.binary("add", b.binary("mul", b.cast(numbers, DType::kFloat64), step), bins.first);
  bins.edges = b.where(b.binary("eq", numbers, Scalar(bins.count)), bins.last, inner);
  const ValueId disorder =
      b.binary("ge", b.slice(bins.edges, 0, b.ctx().constant(0), b.ctx().constant(bins.count), b.ctx().constant(1)),
               b.slice(bins.edges, 0, b.ctx().constant(1), b.ctx().constant(bins.count + 1), b.ctx().constant(1)));
  bins.edges =
      g.stops_always(bins.edges, b.expand(b.reduce("any", disorder, {0}, false), {b.ctx().constant(bins.count + 1)}));
  return bins;
}

void rule_bin_edges(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a", "bins", "range", "weights"});
  g.set_value(node, 0, bins_of(g, node, args).edges);
}

void rule_histogram(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a", "bins", "range", "density", "weights"});
  args.refuse({"density"});
  GraphBuilder& b = g.b();
  const Bins bins = bins_of(g, node, args);
  const ValueId width = b.binary("sub", bins.last, bins.first);
  const ValueId part = b.binary("div", b.binary("sub", bins.x, bins.first), width);
  ValueId index = b.cast(b.binary("mul", part, Scalar(static_cast<double>(bins.count))), DType::kInt64);
  index = b.where(b.binary("eq", index, Scalar(bins.count)),
                  b.constant(static_cast<double>(bins.count - 1), DType::kInt64), index);
  // The division rounds: the edges decide.
  const auto edge = [&](ValueId at) { return b.op("index", {TensorArg{bins.edges}, TensorList{{at}}}); };
  index = b.binary("sub", index, b.cast(b.binary("lt", bins.x, edge(index)), DType::kInt64));
  const ValueId above = b.binary("ge", bins.x, edge(b.binary("add", index, Scalar(int64_t{1}))));
  const ValueId more = b.binary("logical_and", above, b.binary("ne", index, Scalar(bins.count - 1)));
  index = b.binary("add", index, b.cast(more, DType::kInt64));
  g.set_value(node, 0, b.host_call(count_loop(false), {TensorList{{index}}}, {counts_type(g, bins.count)})[0]);
  g.set_value(node, 1, bins.edges);
}

/// Different elements in order, where the program sorts what NumPy gives in an order of its own.
void rule_unique_hash(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const TapeNode* next = g.next(node);
  const bool sorts = next != nullptr && next->name == "sort" && next->mutates && !next->kwargs &&
                     PyTuple_GET_SIZE(next->args.get()) == 1 &&
                     slot_of(PyTuple_GET_ITEM(next->args.get(), 0)) == node.outputs.at(0);
  const ValueId x = g.read(PyTuple_GET_ITEM(node.args.get(), 0));
  const DType dtype = g.b().type(x).dtype;
  if (!sorts || g.b().type(x).dim() != 1 || !(is_integral(dtype) || is_complex(dtype))) {
    throw Unsupported("different elements in NumPy's order");
  }
  TensorType type = dense_like(g.b(), x);
  type.sizes = g.result_sizes(node);
  g.may_stop();
  g.set_value(node, 0, g.b().host_call(unique_loop(g.np(), dtype), {TensorList{{x}}}, {type})[0]);
}

}  // namespace

bool assign_by_mask(const NumpyRules& g, ArrayRef target, ValueId mask, PyObject* value) {
  const ValueId values = values_for(g, value, g.fz().type(target).dtype);
  if (g.b().type(values).dim() != 1) return false;
  write_masked(g, target, mask, values, false);
  return true;
}

bool assign_by_places(const NumpyRules& g, ArrayRef target, ValueId places, PyObject* value) {
  GraphBuilder& b = g.b();
  const ValueId now = g.fz().read(target);
  if (b.type(now).dim() == 0) return false;
  // All of the array is copied for it.
  constexpr int64_t kMostCopied = 2048;
  int64_t count = 1, elements = 1;
  for (const int64_t size : g.shape(places)) count *= size;
  for (const int64_t size : g.shape(now)) elements *= size;
  if (std::max(count, elements) > kMostCopied) throw Unsupported("writes to places of a large array");
  std::vector<Expr> wide = b.type(places).sizes, rows = {b.ctx().constant(count)};
  for (size_t d = 1; d < b.type(now).sizes.size(); ++d) {
    wide.push_back(b.type(now).sizes[d]);
    rows.push_back(b.type(now).sizes[d]);
  }
  ValueId values = values_for(g, value, b.type(now).dtype);
  values = b.reshape(dense(b, b.expand(values, wide)), rows);
  g.may_stop();
  const ValueId made =
      b.host_call(assign_loop(), {TensorList{{now, one_row(b, places), values}}}, {dense_like(b, now)})[0];
  g.write_ref(target, made);
  return true;
}

void add_numpy_assign_rules(NumpyRuleTable& table) {
  const std::initializer_list<std::pair<const char*, NumpyRule>> rules = {
      {"place", rule_place},
      {"put", rule_put},
      {"select", rule_select},
      {"bincount", rule_bincount},
      {"histogram", rule_histogram},
      {"histogram_bin_edges", rule_bin_edges},
      {"choose", rule_choose},
      {"meshgrid", rule_meshgrid},
      {"_unique_hash", rule_unique_hash},
  };
  table.insert(rules.begin(), rules.end());
}

}  // namespace tatara::capture
