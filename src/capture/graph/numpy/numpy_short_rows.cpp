// Rules of calls that go over each pair of a few elements: sorting short rows, medians of them, convolutions with short arrays. Others
// are NumPy's own. Also choices among several arrays.
#include <algorithm>

#include "capture/graph/numpy/numpy_rules_internal.h"
#include "support/error.h"

namespace tatara::capture {
namespace {

/// Up to here comparisons of each with each, and sums of that many products, take less time in a kernel than a call of NumPy's
/// (docs/decisions/061).
constexpr int64_t kMostSorted = 4, kMostElements = int64_t{1} << 14;
constexpr int64_t kMostTaps = 16;

ValueId in_one_row(const NumpyRules& g, ValueId x) {
  if (g.b().type(x).dim() == 1) return x;
  const ValueId dense = g.b().op("clone", {TensorArg{x}, std::string("contiguous_format")});
  return g.b().reshape(dense, {g.b().type(x).numel(g.b().ctx())});
}

int64_t axis_among(int64_t axis, int64_t rank) {
  axis += axis < 0 ? rank : 0;
  if (axis < 0 || axis >= rank) throw Unsupported("an axis out of range");
  return axis;
}

ValueId part(GraphBuilder& b, ValueId x, int64_t dim, int64_t from, int64_t to) {
  ExprContext& ctx = b.ctx();
  return b.slice(x, dim, ctx.constant(from), ctx.constant(to), ctx.constant(1));
}

/// Whether x comes before y: NaNs come last.
ValueId earlier(GraphBuilder& b, ValueId x, ValueId y) {
  const DType dtype = b.type(x).dtype;
  if (dtype == DType::kBool) return b.binary("logical_and", b.unary("logical_not", x), y);
  const ValueId less = b.binary("lt", x, y);
  if (!is_floating(dtype)) return less;
  return b.binary("logical_or", less,
                  b.binary("logical_and", b.unary("isnan", y), b.unary("logical_not", b.unary("isnan", x))));
}

/// The rows along a dimension in order: each element's place is how many come before it. kNoValue: they are too long.
ValueId sorted(const NumpyRules& g, ValueId x, int64_t dim) {
  GraphBuilder& b = g.b();
  const int64_t count = g.shape(x)[static_cast<size_t>(dim)];
  int64_t elements = 1;
  for (const int64_t size : g.shape(x)) elements *= size;
  if (count == 0) throw Unsupported("rows without elements");
  if (count > kMostSorted || elements > kMostElements || is_complex(b.type(x).dtype)) return kNoValue;
  // Of zeros NumPy decides which comes first.
  if (is_floating(b.type(x).dtype)) {
    x = g.stops_always(x, b.binary("logical_and", b.binary("eq", x, Scalar(0.0)), b.unary("signbit", x)));
  }
  const std::vector<Expr> sizes = b.type(x).sizes;
  std::vector<Expr> along(sizes.size(), b.ctx().constant(1));
  along[static_cast<size_t>(dim)] = sizes[static_cast<size_t>(dim)];
  const ValueId steps =
      b.op("arange.step", {Scalar(int64_t{0}), Scalar(count), Scalar(int64_t{1}), DType::kInt64, NoneArg{}, Device{}});
  const ValueId places = b.reshape(steps, along);
  std::vector<ValueId> items, ranks;
  for (int64_t i = 0; i < count; ++i) items.push_back(part(b, x, dim, i, i + 1));
  for (int64_t i = 0; i < count; ++i) {
    ValueId rank = b.constant(0, DType::kInt64);
    for (int64_t j = 0; j < count; ++j) {
      if (j == i) continue;
      const auto at = [&](int64_t k) { return items[static_cast<size_t>(k)]; };
      // Of equal ones the first comes first.
      const ValueId before = j < i ? b.unary("logical_not", earlier(b, at(i), at(j))) : earlier(b, at(j), at(i));
      rank = b.binary("add", rank, b.cast(before, DType::kInt64));
    }
    ranks.push_back(rank);
  }
  ValueId made = b.expand(items.back(), sizes);
  for (int64_t i = 0; i + 1 < count; ++i) {
    const auto at = static_cast<size_t>(i);
    made = b.where(b.binary("eq", ranks[at], places), items[at], made);
  }
  return made;
}

void rule_sort(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a", "axis", "kind", "order", "stable"});
  args.refuse({"order"});
  ValueId x = g.read(args["a"]);
  if (args["axis"] == Py_None) x = in_one_row(g, x);
  const int64_t rank = g.b().type(x).dim();
  if (rank == 0) throw Unsupported("sort of a scalar");
  const int64_t dim = args["axis"] == Py_None ? 0 : axis_among(args.integer("axis", -1), rank);
  ValueId made = sorted(g, x, dim);
  if (made == kNoValue) made = sorted_by_loop(g, x, dim, args);
  if (node.mutates) return g.write(args["a"], made);
  g.set_value(node, 0, made);
}

/// The middle one, or the mean of both; NaN where there is one.
void rule_median(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a", "axis", "out", "overwrite_input", "keepdims"});
  args.refuse({"out"});
  if (args.flag("overwrite_input", false) || args.flag("keepdims", false)) throw Unsupported("such a median");
  GraphBuilder& b = g.b();
  ValueId x = g.read(args["a"]);
  const bool all = args["axis"] == nullptr || args["axis"] == Py_None;
  if (all) x = in_one_row(g, x);
  const DType result = g.result_dtype(node);
  if (b.type(x).dtype == DType::kFloat16 || b.type(x).dtype == DType::kBool) throw Unsupported("such a median");
  const int64_t dim = all ? 0 : axis_among(args.integer("axis", 0), b.type(x).dim());
  ValueId row = sorted(g, x, dim);
  if (row == kNoValue) {
    // NumPy's own selection reads long rows once.
    constexpr int64_t kMostForMedian = 256;
    if (g.shape(x)[static_cast<size_t>(dim)] > kMostForMedian) throw Unsupported("the median of long rows");
    row = sorted_by_loop(g, x, dim);
  }
  const int64_t count = g.shape(x)[static_cast<size_t>(dim)], middle = count / 2;
  const ValueId upper = b.cast(part(b, row, dim, middle, middle + 1), result);
  ValueId made = upper;
  if (count % 2 == 0) {
    const ValueId lower = b.cast(part(b, row, dim, middle - 1, middle), result);
    made = b.binary("div", b.binary("add", lower, upper), Scalar(2.0));
  }
  if (is_floating(b.type(x).dtype)) {
    const ValueId last = part(b, row, dim, count - 1, count);
    made = b.where(b.unary("isnan", last), b.cast(last, result), made);
  }
  g.set_value(node, 0, g.tested(node, b.squeeze(made, dim), {x}, {dim}));
}

/// Sums of products of a row with another that is short, turned round, at each place where they meet.
void convolution(const NumpyRules& g, const TapeNode& node, PyObject* longer, PyObject* shorter,
                 const std::string& mode, bool turned) {
  GraphBuilder& b = g.b();
  const DType dtype = g.result_dtype(node);
  if (dtype == DType::kBool || dtype == DType::kFloat16) throw Unsupported(node.name + " of this type");
  ValueId x = g.read(longer), taps = g.read(shorter);
  if (b.type(x).dim() != 1 || b.type(taps).dim() != 1) throw Unsupported(node.name + " of such arrays");
  if (turned && g.shape(x)[0] < g.shape(taps)[0]) std::swap(x, taps);
  const int64_t count = g.shape(x)[0], width = g.shape(taps)[0];
  if (width == 0 || width > count || width > kMostTaps) throw Unsupported(node.name + " of such sizes");
  if (is_complex(b.type(taps).dtype) && !turned) taps = b.unary("conj_complex", taps);
  const std::vector<ValueId> given = {x, taps};
  x = b.cast(x, dtype);
  taps = b.cast(taps, dtype);
  const ValueId zeros = b.expand(b.constant(0, dtype), {b.ctx().constant(width - 1)});
  if (width > 1) x = b.op("cat", {TensorList{{zeros, x, zeros}}, Scalar(int64_t{0})});
  int64_t first = 0, size = count + width - 1;
  if (mode == "same") {
    first = turned ? (width - 1) / 2 : width / 2;
    size = count;
  } else if (mode == "valid") {
    first = width - 1;
    size = count - width + 1;
  } else if (mode != "full") {
    throw Unsupported("the mode of " + node.name);
  }
  ValueId sum = kNoValue;
  for (int64_t k = 0; k < width; ++k) {
    const int64_t tap = turned ? width - 1 - k : k;
    const ValueId term = b.binary("mul", part(b, x, 0, first + k, first + k + size), part(b, taps, 0, tap, tap + 1));
    sum = sum == kNoValue ? term : b.binary("add", sum, term);
  }
  g.set_value(node, 0, g.tested_alone(sum));
}

void rule_convolve(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a", "v", "mode"});
  convolution(g, node, args["a"], args["v"], args["mode"] == nullptr ? "full" : text_of(args["mode"]), true);
}

void rule_correlate(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a", "v", "mode"});
  const std::string mode = args["mode"] == nullptr ? "valid" : text_of(args["mode"]);
  if (mode == "same") throw Unsupported("the mode of correlate");
  convolution(g, node, args["a"], args["v"], mode, false);
}

/// The array's parts along an axis, as views.
void rule_unstack(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"x", "axis"});
  const NumpyRules::ArrayRef source = g.tensor(args["x"]);
  const int64_t rank = g.fz().type(source).dim();
  const int64_t axis = axis_among(args.integer("axis", 0), rank);
  for (size_t k = 0; k < node.outputs.size(); ++k) {
    const auto at = static_cast<int64_t>(k);
    g.set_result(node, k, g.view("select", {TensorArg{source}, Scalar(axis), Scalar(at)}));
  }
}

void rule_ediff(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"ary", "to_end", "to_begin"});
  args.refuse({"to_end", "to_begin"});
  const ValueId x = in_one_row(g, g.read(args["ary"]));
  const int64_t count = g.shape(x)[0];
  if (count < 2 || g.b().type(x).dtype == DType::kBool) throw Unsupported("such an ediff1d");
  const ValueId after = part(g.b(), x, 0, 1, count), before = part(g.b(), x, 0, 0, count - 1);
  g.set_value(node, 0, g.tested_alone(g.b().binary("sub", after, before)));
}

/// A number, or numbers, on the diagonal of a matrix.
void rule_fill_diagonal(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a", "val", "wrap"});
  const NumpyRules::ArrayRef target = g.tensor(args["a"]);
  const TensorType type = g.fz().type(target);
  PyObject* value = args["val"];
  const bool number = value != nullptr && slot_of(value) < 0 && !PyList_Check(value) && !PyTuple_Check(value);
  if (args.flag("wrap", false) || type.dim() != 2 || value == nullptr) throw Unsupported("such a fill_diagonal");
  ValueId fill = number ? g.as_dtype(value, type.dtype) : in_one_row(g, g.read(value));
  if (!number) {
    // One after the other.
    const int64_t count = type.sizes[0].const_value();
    const bool fits = type.sizes[0] == type.sizes[1] && g.shape(fill)[0] >= count && count > 0;
    if (!fits || g.b().type(fill).dtype != type.dtype) throw Unsupported("such values of fill_diagonal");
    fill = g.b().unsqueeze(part(g.b(), fill, 0, 0, count), 1);
  }
  const auto steps = [&](const Expr& n) {
    return g.b().op("arange.step", {Scalar(int64_t{0}), Scalar(n.const_value()), Scalar(int64_t{1}), DType::kInt64,
                                    NoneArg{}, Device{}});
  };
  const ValueId mask =
      g.b().binary("eq", g.b().unsqueeze(steps(type.sizes[0]), 1), g.b().unsqueeze(steps(type.sizes[1]), 0));
  g.write_ref(target, g.b().where(mask, fill, g.fz().read(target)));
}

}  // namespace

void add_numpy_short_row_rules(NumpyRuleTable& table) {
  const std::initializer_list<std::pair<const char*, NumpyRule>> rules = {
      {"sort", rule_sort},
      {"median", rule_median},
      {"convolve", rule_convolve},
      {"correlate", rule_correlate},
      {"unstack", rule_unstack},
      {"ediff1d", rule_ediff},
      {"fill_diagonal", rule_fill_diagonal},
  };
  table.insert(rules.begin(), rules.end());
}

}  // namespace tatara::capture
