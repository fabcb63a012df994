// Rules of reductions and scans. The type of the result, which NumPy knows, is the type of the accumulator.
#include <algorithm>
#include <limits>
#include <numeric>

#include "capture/graph/numpy/numpy_rules_internal.h"
#include "support/error.h"

namespace tatara::capture {
namespace {

/// Arguments of a reduction, and its operand.
struct Reduction {
  ValueId x = kNoValue;
  std::vector<int64_t> dims;
  bool keepdims = false;
  int64_t count = 1;  // elements that go into one result
};

/// Of a ufunc's method.
NumpyArgs arguments_of_reduce(const NumpyRules& g, const TapeNode& node) {
  return NumpyArgs(node, g.np(), {"array", "axis", "dtype", "out", "keepdims", "initial", "where"});
}

Reduction reduction(const NumpyRules& g, const NumpyArgs& args, const char* operand,
                    int64_t fallback_axis = INT64_MIN) {
  Reduction r;
  r.x = g.read(args[operand]);
  r.keepdims = args.flag("keepdims", false);
  const int64_t rank = g.b().type(r.x).dim();
  PyObject* axis = args["axis"];
  const auto add = [&](PyObject* o) {
    if (!PyLong_CheckExact(o)) throw Unsupported("an axis that is no int");
    int64_t d = PyLong_AsLongLong(o);
    if (d < 0) d += rank;
    if (d < 0 || d >= rank) throw Unsupported("an axis out of range");
    r.dims.push_back(d);
  };
  if (axis == nullptr && fallback_axis != INT64_MIN) {
    r.dims.push_back(fallback_axis);
  } else if (axis == nullptr || axis == Py_None) {
    r.dims.resize(static_cast<size_t>(rank));
    std::iota(r.dims.begin(), r.dims.end(), 0);
  } else if (PyTuple_Check(axis)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(axis); ++i) add(PyTuple_GET_ITEM(axis, i));
  } else {
    add(axis);
  }
  if (rank == 0 || r.dims.empty()) throw Unsupported("a reduction over nothing");
  for (const int64_t d : r.dims) r.count *= g.shape(r.x)[static_cast<size_t>(d)];
  return r;
}

/// The type in which sums run: integers as int64, whose bits are those of every narrower sum.
DType accumulator(DType result) { return is_integral(result) || result == DType::kBool ? DType::kInt64 : result; }

ValueId sum_of(const NumpyRules& g, ValueId x, const Reduction& r, DType result) {
  const DType acc = accumulator(result);
  const ValueId sum = g.b().op("sum", {TensorArg{g.b().cast(x, acc)}, ints(g.b(), r.dims), Scalar(r.keepdims), acc});
  return g.b().cast(sum, result);
}

void sum_rule(const NumpyRules& g, const TapeNode& node, const NumpyArgs& args, const char* operand,
              int64_t fallback_axis = INT64_MIN) {
  const Reduction r = reduction(g, args, operand, fallback_axis);
  const DType result = g.result_dtype(node);
  if (result == DType::kBool) throw Unsupported("a sum of bools as bool");
  g.set_value(node, 0, g.tested(node, sum_of(g, r.x, r, result), {r.x}, r.dims, r.keepdims));
}

void rule_sum(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a", "axis", "dtype", "out", "keepdims", "initial", "where"});
  args.refuse({"out", "initial", "where"});
  sum_rule(g, node, args, "a");
}

/// nansum and nanprod: NaNs count as `neutral`.
void without_nans(NumpyGraph& graph, const TapeNode& node, double neutral) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a", "axis", "dtype", "out", "keepdims", "initial", "where"});
  args.refuse({"dtype", "out", "initial", "where"});
  Reduction r = reduction(g, args, "a");
  const DType dtype = g.b().type(r.x).dtype, result = g.result_dtype(node);
  if (!is_floating(dtype) || result != dtype) throw Unsupported(node.name + " of this type");
  const ValueId given = r.x;
  r.x = g.b().where(g.b().unary("isnan", given), g.b().constant(neutral, dtype), given);
  ValueId made = kNoValue;
  if (neutral == 0) {
    made = sum_of(g, r.x, r, result);
  } else {
    if (r.keepdims || (r.dims.size() > 1 && r.dims.size() != g.shape(r.x).size()))
      throw Unsupported("nanprod over axes");
    const bool all = r.dims.size() > 1;
    const ValueId x = all ? g.b().reshape(r.x, {g.b().type(r.x).numel(g.b().ctx())}) : r.x;
    made = g.b().op("prod", {TensorArg{x}, Scalar(all ? 0 : r.dims[0]), Scalar(false), dtype});
  }
  g.set_value(node, 0, g.tested(node, made, {r.x}, r.dims, r.keepdims));
}

void rule_nansum(NumpyGraph& graph, const TapeNode& node) { without_nans(graph, node, 0); }
void rule_nanprod(NumpyGraph& graph, const TapeNode& node) { without_nans(graph, node, 1); }

void rule_add_reduce(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args = arguments_of_reduce(g, node);
  args.refuse({"out", "initial", "where"});
  sum_rule(g, node, args, "array", 0);
}

void rule_prod(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a", "axis", "dtype", "out", "keepdims", "initial", "where"});
  args.refuse({"out", "initial", "where"});
  const Reduction r = reduction(g, args, "a");
  const DType result = g.result_dtype(node), acc = accumulator(result);
  if (r.dims.size() != 1 && r.dims.size() != static_cast<size_t>(g.b().type(r.x).dim()))
    throw Unsupported("prod over axes");
  ValueId x = g.b().cast(r.x, acc);
  const bool all = r.dims.size() > 1;
  if (all && r.keepdims) throw Unsupported("prod over all axes, kept");
  if (all) x = g.b().reshape(x, {g.b().type(x).numel(g.b().ctx())});
  const int64_t dim = all ? 0 : r.dims[0];
  const ValueId product = g.b().op("prod", {TensorArg{x}, Scalar(dim), Scalar(r.keepdims), acc});
  g.set_value(node, 0, g.tested(node, g.b().cast(product, result), {r.x}, r.dims, r.keepdims));
}

void rule_mean(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a", "axis", "dtype", "out", "keepdims", "where"});
  args.refuse({"dtype", "out", "where"});
  const Reduction r = reduction(g, args, "a");
  const DType result = g.result_dtype(node);
  const DType wide = result == DType::kFloat16 ? DType::kFloat32 : result;
  if (r.count == 0) throw Unsupported("the mean of nothing");
  const ValueId sum = sum_of(g, r.x, r, wide);
  const ValueId mean = g.b().binary("div", sum, Scalar(static_cast<double>(r.count)));
  g.set_value(node, 0, g.tested(node, g.b().cast(mean, result), {r.x}, r.dims, r.keepdims));
}

ValueId variance(const NumpyRules& g, const Reduction& r, DType wide, double ddof) {
  const ValueId x = g.b().cast(r.x, wide);
  Reduction kept = r;
  kept.keepdims = true;
  const ValueId mean = g.b().binary("div", sum_of(g, x, kept, wide), Scalar(static_cast<double>(r.count)));
  const ValueId off = g.b().binary("sub", x, g.b().expand(mean, g.b().type(x).sizes));
  const double divisor = static_cast<double>(r.count) - ddof;
  if (r.count == 0 || divisor <= 0) throw Unsupported("the variance of too few elements");
  if (!is_complex(wide)) return g.b().binary("div", sum_of(g, g.b().binary("mul", off, off), r, wide), Scalar(divisor));
  const ValueId re = g.b().unary("real_part", off), im = g.b().unary("imag_part", off);
  const ValueId squares = g.b().binary("add", g.b().binary("mul", re, re), g.b().binary("mul", im, im));
  return g.b().binary("div", sum_of(g, squares, r, real_dtype(wide)), Scalar(divisor));
}

void moment_rule(NumpyGraph& graph, const TapeNode& node, bool root) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a", "axis", "dtype", "out", "ddof", "keepdims", "where", "mean", "correction"});
  args.refuse({"dtype", "out", "where", "mean", "correction"});
  const Reduction r = reduction(g, args, "a");
  const DType result = g.result_dtype(node);
  const DType given = g.b().type(r.x).dtype;
  const DType wide = is_complex(given) ? given : result == DType::kFloat16 ? DType::kFloat32 : result;
  ValueId v = variance(g, r, wide, static_cast<double>(args.integer("ddof", 0)));
  if (root) v = g.b().unary("sqrt", v);
  g.set_value(node, 0, g.tested(node, g.b().cast(v, result), {r.x}, r.dims, r.keepdims));
}

void rule_var(NumpyGraph& graph, const TapeNode& node) { moment_rule(graph, node, false); }
void rule_std(NumpyGraph& graph, const TapeNode& node) { moment_rule(graph, node, true); }

/// By the loop of a ufunc for which the order of its operands is the same to it.
void reduce_by_loop(const NumpyRules& g, const TapeNode& node, const Reduction& r, const char* ufunc) {
  ValueId x = r.x;
  std::vector<int64_t> dims = r.dims;
  std::sort(dims.begin(), dims.end(), std::greater<>());
  const Ref function = attr(g.np().numpy.get(), ufunc);
  for (const int64_t d : dims) x = reduced_by_loop(g, function.get(), x, d);
  std::sort(dims.begin(), dims.end());
  for (const int64_t d : dims) {
    if (r.keepdims) x = g.b().unsqueeze(x, d);
  }
  g.set_value(node, 0, x);
}

void extreme_rule(NumpyGraph& graph, const TapeNode& node, const char* op, const char* operand, int64_t fallback) {
  const NumpyRules g{graph};
  const bool ufunc = fallback != INT64_MIN;
  const NumpyArgs args =
      ufunc ? NumpyArgs(node, g.np(), {operand, "axis", "dtype", "out", "keepdims", "initial", "where"})
            : NumpyArgs(node, g.np(), {operand, "axis", "out", "keepdims", "initial", "where"});
  if (ufunc) args.refuse({"dtype"});
  args.refuse({"out", "where"});
  const Reduction r = reduction(g, args, operand, fallback);
  const bool starts = args["initial"] != nullptr && args["initial"] != Py_None;
  if (starts && (is_complex(g.b().type(r.x).dtype) || r.count == 0)) throw Unsupported("such an initial");
  if (is_complex(g.b().type(r.x).dtype)) {
    return reduce_by_loop(g, node, r, op[2] == 'a' ? "maximum" : "minimum");
  }
  ValueId made = g.b().reduce(op, r.x, r.dims, r.keepdims);
  if (starts) {
    const ValueId first = g.as_dtype(args["initial"], g.b().type(made).dtype);
    made = g.b().binary(std::string_view(op) == "amax" ? "maximum" : "minimum", made, first);
  }
  g.set_value(node, 0, made);
}

void rule_max(NumpyGraph& graph, const TapeNode& node) { extreme_rule(graph, node, "amax", "a", INT64_MIN); }
void rule_min(NumpyGraph& graph, const TapeNode& node) { extreme_rule(graph, node, "amin", "a", INT64_MIN); }
void rule_max_reduce(NumpyGraph& graph, const TapeNode& node) { extreme_rule(graph, node, "amax", "array", 0); }
void rule_min_reduce(NumpyGraph& graph, const TapeNode& node) { extreme_rule(graph, node, "amin", "array", 0); }

/// fmax.reduce and fmin.reduce: NaNs count where there is nothing else.
void without_nan_rule(NumpyGraph& graph, const TapeNode& node, const char* op, double least) {
  const NumpyRules g{graph};
  const NumpyArgs args = arguments_of_reduce(g, node);
  args.refuse({"dtype", "out"});
  args.refuse({"initial", "where"});
  const Reduction r = reduction(g, args, "array", 0);
  const DType dtype = g.b().type(r.x).dtype;
  if (is_complex(dtype)) return reduce_by_loop(g, node, r, least < 0 ? "fmax" : "fmin");
  if (dtype == DType::kFloat16) throw Unsupported("extremes of such numbers");
  if (!is_floating(dtype)) return g.set_value(node, 0, g.b().reduce(op, r.x, r.dims, r.keepdims));
  const ValueId nan = g.b().unary("isnan", r.x);
  const ValueId made = g.b().reduce(op, g.b().where(nan, g.b().constant(least, dtype), r.x), r.dims, r.keepdims);
  const ValueId none = g.b().reduce("all", nan, r.dims, r.keepdims);
  g.set_value(node, 0, g.b().where(none, g.b().constant(std::numeric_limits<double>::quiet_NaN(), dtype), made));
}

void rule_fmax_reduce(NumpyGraph& graph, const TapeNode& node) {
  without_nan_rule(graph, node, "amax", -std::numeric_limits<double>::infinity());
}
void rule_fmin_reduce(NumpyGraph& graph, const TapeNode& node) {
  without_nan_rule(graph, node, "amin", std::numeric_limits<double>::infinity());
}

void truth_rule(NumpyGraph& graph, const TapeNode& node, const char* op) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a", "axis", "out", "keepdims", "where"});
  args.refuse({"out", "where"});
  const Reduction r = reduction(g, args, "a");
  g.set_value(node, 0, g.b().reduce(op, r.x, r.dims, r.keepdims));
}

void rule_any(NumpyGraph& graph, const TapeNode& node) { truth_rule(graph, node, "any"); }
void rule_all(NumpyGraph& graph, const TapeNode& node) { truth_rule(graph, node, "all"); }

void place_rule(NumpyGraph& graph, const TapeNode& node, const char* op) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a", "axis", "out", "keepdims"});
  args.refuse({"out"});
  const ValueId x = g.read(args["a"]);
  const int64_t rank = g.b().type(x).dim();
  if (rank == 0) throw Unsupported("the place of an extreme");
  PyObject* axis = args["axis"];
  const bool keep = args.flag("keepdims", false);
  if (is_complex(g.b().type(x).dtype)) {
    const bool all = axis == nullptr || axis == Py_None;
    if (keep || g.shape(x)[0] == 0) throw Unsupported("the place of an extreme");
    const ValueId whole = g.b().op("clone", {TensorArg{x}, std::string("contiguous_format")});
    const ValueId row = all ? g.b().reshape(whole, {g.b().type(x).numel(g.b().ctx())}) : x;
    const int64_t at = all ? 0 : args.integer("axis", 0);
    return g.set_value(node, 0, extreme_by_loop(g, row, at < 0 ? at + rank : at, op[3] == 'm' && op[4] == 'a'));
  }
  if (axis == nullptr || axis == Py_None) {
    if (keep) throw Unsupported("keepdims of a place among all");
    return g.set_value(node, 0, g.b().op(op, {TensorArg{x}}));
  }
  g.set_value(node, 0, g.b().op(op, {TensorArg{x}, Scalar(args.integer("axis", 0)), Scalar(keep)}));
}

void rule_argmax(NumpyGraph& graph, const TapeNode& node) { place_rule(graph, node, "argmax"); }
void rule_argmin(NumpyGraph& graph, const TapeNode& node) { place_rule(graph, node, "argmin"); }

void scan_rule(NumpyGraph& graph, const TapeNode& node, const char* op) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a", "axis", "dtype", "out"});
  args.refuse({"out"});
  const DType result = g.result_dtype(node), acc = accumulator(result);
  if (result == DType::kFloat16) throw Unsupported("a scan that rounds each step to float16");
  ValueId x = g.b().cast(g.read(args["a"]), acc);
  if (g.b().type(x).dim() == 0) throw Unsupported("a scan over a scalar");
  PyObject* axis = args["axis"];
  const bool flat = axis == nullptr || axis == Py_None;
  if (flat && g.b().type(x).dim() != 1) x = g.b().reshape(x, {g.b().type(x).numel(g.b().ctx())});
  const ValueId scan = g.b().op(op, {TensorArg{x}, Scalar(flat ? 0 : args.integer("axis", 0)), acc});
  g.set_value(node, 0, g.tested(node, g.b().cast(scan, result), {x}));
}

/// `add.accumulate` along its axis, which is the first one if none is given.
void accumulate_rule(NumpyGraph& graph, const TapeNode& node, const char* op) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"array", "axis", "dtype", "out"});
  args.refuse({"out"});
  const DType result = g.result_dtype(node), acc = accumulator(result);
  const ValueId x = g.b().cast(g.read(args["array"]), acc);
  if (result == DType::kFloat16 || result == DType::kBool || g.b().type(x).dim() == 0) throw Unsupported("such a scan");
  const ValueId scan = g.b().op(op, {TensorArg{x}, Scalar(args.integer("axis", 0)), acc});
  g.set_value(node, 0, g.tested(node, g.b().cast(scan, result), {x}));
}

void rule_add_accumulate(NumpyGraph& graph, const TapeNode& node) { accumulate_rule(graph, node, "cumsum"); }
void rule_multiply_accumulate(NumpyGraph& graph, const TapeNode& node) { accumulate_rule(graph, node, "cumprod"); }

void rule_cumsum(NumpyGraph& graph, const TapeNode& node) { scan_rule(graph, node, "cumsum"); }
void rule_cumprod(NumpyGraph& graph, const TapeNode& node) { scan_rule(graph, node, "cumprod"); }

}  // namespace

void add_numpy_reduction_rules(NumpyRuleTable& table) {
  const std::initializer_list<std::pair<const char*, NumpyRule>> rules = {
      {"sum", rule_sum},
      {"add.reduce", rule_add_reduce},
      {"prod", rule_prod},
      {"nansum", rule_nansum},
      {"nanprod", rule_nanprod},
      {"mean", rule_mean},
      {"var", rule_var},
      {"std", rule_std},
      {"max", rule_max},
      {"amax", rule_max},
      {"maximum.reduce", rule_max_reduce},
      {"min", rule_min},
      {"amin", rule_min},
      {"minimum.reduce", rule_min_reduce},
      {"fmax.reduce", rule_fmax_reduce},
      {"fmin.reduce", rule_fmin_reduce},
      {"any", rule_any},
      {"all", rule_all},
      {"argmax", rule_argmax},
      {"argmin", rule_argmin},
      {"cumsum", rule_cumsum},
      {"cumprod", rule_cumprod},
      {"add.accumulate", rule_add_accumulate},
      {"multiply.accumulate", rule_multiply_accumulate},
  };
  table.insert(rules.begin(), rules.end());
}

}  // namespace tatara::capture
