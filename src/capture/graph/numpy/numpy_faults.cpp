// Floating-point faults. NumPy warns of them (or raises, calls, prints: np.errstate), kernels do not. So a graph tests the values
// that come from a fault: a call that made what is not finite of finite operands. Such a run is taken back, and NumPy makes the calls.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string_view>

#include "capture/graph/numpy/numpy_graph.h"
#include "capture/graph/numpy/numpy_rules.h"
#include "support/error.h"

namespace tatara::capture {
namespace {

using Tests = NumpyGraph::Tests;

constexpr std::string_view kQuiet[] = {
    "negative", "positive", "conjugate", "sign",    "rint",    "floor",    "ceil",    "trunc",
    "maximum",  "minimum",  "fmax",      "fmin",    "clip",    "copysign", "arctan",  "tanh",
    "arcsinh",  "arctan2",  "heaviside", "degrees", "radians", "fabs",     "deg2rad",
};
/// What is not finite in an operand is not finite in the result.
constexpr std::string_view kHandOn[] = {
    "negative", "positive", "conjugate", "absolute", "add", "subtract", "multiply", "square",     "sqrt",
    "sum",      "prod",     "mean",      "var",      "std", "cumsum",   "cumprod",  "add.reduce",
};
constexpr std::string_view kDivisions[] = {"log", "log2", "log10", "log1p", "arctanh"};
constexpr std::string_view kBoth[] = {"divide",     "true_divide",  "power",     "float_power",
                                      "reciprocal", "floor_divide", "remainder", "fmod"};

template <size_t n>
bool among(const std::string_view (&names)[n], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool has_infinities(DType dtype) { return is_floating(dtype) || is_complex(dtype); }

}  // namespace

/// Whether each element of the result needs each of an operand's, or the results together do. Views that leave out none count.
bool NumpyGraph::reads_all(const TapeNode& node) const {
  constexpr std::string_view kAll[] = {
      "where",
      "astype",
      "copy",
      "round",
      "around",
      "clip",
      "concatenate",
      "concat",
      "stack",
      "hstack",
      "vstack",
      "dstack",
      "T",
      "mT",
      "transpose",
      "swapaxes",
      "moveaxis",
      "reshape",
      "ravel",
      "flatten",
      "squeeze",
      "ascontiguousarray",
      "expand_dims",
      "sum",
      "prod",
      "mean",
      "var",
      "std",
      "max",
      "min",
      "amax",
      "amin",
      "argmax",
      "argmin",
      "any",
      "all",
      "cumsum",
      "cumprod",
      "add.reduce",
      "diff",
      "roll",
      "tile",
      "maximum.reduce",
      "minimum.reduce",
      "add.accumulate",
      "multiply.accumulate",
      "nansum",
      "nanprod",
      "nan_to_num",
      "dot",
      "inner",
      "vdot",
      "matmul",
      "vecdot",
      "matvec",
      "vecmat",
      "einsum",
      "c_einsum",
      "copyto",
      "array",
      "asarray",
      "asanyarray",
      "count_nonzero",
      "divmod",
      "modf",
      "sort",
      "median",
      "convolve",
      "correlate",
      "ediff1d",
  };
  if (among(kAll, node.name)) return true;
  return find_numpy_ufunc(node.name) && !node.outputs.empty();
}

/// What has tests and is no output, nor read as a whole by what is.
void NumpyGraph::compute_in_full(std::vector<ArrayRef>& outputs, const std::vector<int>& wanted) {
  if (tests_ == Tests::kNone) return;
  for (size_t s = 0; s < refs_.size(); ++s) {
    const auto index = static_cast<int>(s);
    if (!made_[s] || is_read_[s] || std::find(wanted.begin(), wanted.end(), index) != wanted.end()) continue;
    settle(refs_[s]);
    if (holds_tests_[s]) in_full_.push_back(fz_.read(refs_[s]));
  }
  for (const ValueId value : in_full_) {
    const bool given =
        std::any_of(outputs.begin(), outputs.end(), [&](ArrayRef ref) { return fz_.read(ref) == value; });
    if (given) continue;
    outputs.push_back(fz_.fresh(builder_.op("clone", {TensorArg{value}, std::string("contiguous_format")})));
  }
}

/// Before the rule of a call: what it reads has been tested, if its result does not tell.
void NumpyGraph::begin_tests(const TapeNode& node) {
  if (tests_ == Tests::kNone || tests_decision(node)) return;
  const PyObject* own = std::get<NumpyOperation>(node.kind).errstate.get();
  faults_ = np_.faults(own != nullptr ? const_cast<PyObject*>(own) : errstate_.get());
  hands_on_ = false;
  tests_before_ = tests_made_;
  const auto note = [this](int index) {
    const ArrayRef ref = refs_[static_cast<size_t>(index)];
    if (ref < 0 || !holds_tests_[static_cast<size_t>(index)]) return;
    settle(ref);
    in_full_.push_back(fz_.read(ref));
  };
  if (!reads_all(node)) {
    for_each_slot(node.args.get(), note);
    if (node.kwargs) for_each_slot(node.kwargs.get(), note);
  }
  if (untested_.empty()) return;
  const bool division = node.name == "divide" || node.name == "true_divide";
  const bool plain = !node.kwargs || PyDict_GET_SIZE(node.kwargs.get()) == 0;
  const bool made = !node.outputs.empty() && has_infinities(dtype_of_slot(node.outputs[0]));
  hands_on_ = (division || among(kHandOn, node.name)) && plain && made && faults_.all();
  const auto look = [this](int index) {
    if (const ArrayRef ref = refs_[static_cast<size_t>(index)]; ref >= 0) settle(ref);
  };
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(node.args.get()); ++i) {
    if (!hands_on_ || (division && i > 0)) for_each_slot(PyTuple_GET_ITEM(node.args.get(), i), look);
  }
  if (node.kwargs) for_each_slot(node.kwargs.get(), look);
}

/// After it: operands that the result tells of need no test of their own.
void NumpyGraph::end_tests(const TapeNode& node) {
  if (tests_ == Tests::kNone) return;
  const bool all = reads_all(node);
  bool holds = tests_made_ != tests_before_;
  for (const int index : node.outputs) {
    const ArrayRef ref = refs_[static_cast<size_t>(index)];
    holds = holds || (ref >= 0 && untested_.contains(fz_.read(ref)));
  }
  const auto look = [&](int index) {
    const auto at = static_cast<size_t>(index);
    if (std::find(node.outputs.begin(), node.outputs.end(), index) != node.outputs.end()) return;
    holds = holds || holds_tests_[at];
    is_read_[at] = is_read_[at] || all;
    if (hands_on_ && refs_[at] >= 0) untested_.erase(fz_.read(refs_[at]));
  };
  for_each_slot(node.args.get(), look);
  if (node.kwargs) for_each_slot(node.kwargs.get(), look);
  // What it has written to an array of the graph's tells of the tests once more.
  const int target = std::get<NumpyOperation>(node.kind).target;
  if (node.mutates && target >= 0 && holds) {
    holds_tests_[static_cast<size_t>(target)] = true;
    is_read_[static_cast<size_t>(target)] = false;
  }
  for (const int index : node.outputs) {
    const auto at = static_cast<size_t>(index);
    if (!made_[at]) continue;  // an array that came in
    holds_tests_[at] = holds_tests_[at] || holds;
  }
}

void NumpyGraph::settle(ArrayRef ref) {
  if (untested_.empty() || ref < 0) return;
  const ValueId value = fz_.read(ref);
  if (untested_.erase(value) != 0) fz_.write(ref, stop_unless_finite(value));
}

ValueId NumpyGraph::stop_unless_finite(ValueId value) {
  ++tests_made_;
  return builder_.unary("checked_finite", value);
}

ValueId NumpyGraph::stop_where(ValueId value, ValueId fault) {
  ++tests_made_;
  return builder_.binary("checked", value, fault);
}

/// isnan or isinf of a number, or of either part of it.
ValueId NumpyGraph::either(std::string_view test, ValueId value) {
  if (!is_complex(builder_.type(value).dtype)) return builder_.unary(test, value);
  return builder_.binary("logical_or", builder_.unary(test, builder_.unary("real_part", value)),
                         builder_.unary(test, builder_.unary("imag_part", value)));
}

/// `number`: an operand that is no tensor. `dims`: of the operand, over which the call went.
ValueId NumpyGraph::tested(const std::string& name, ValueId value, const std::vector<ValueId>& operands, double number,
                           const std::vector<int64_t>& dims, bool keepdims) {
  const DType dtype = builder_.type(value).dtype;
  if (tests_ == Tests::kNone || !faults_.any() || !has_infinities(dtype)) return value;
  const bool hands_on = among(kHandOn, name);
  if (among(kQuiet, name)) {
    const auto untold = [this](ValueId v) { return untested_.contains(v); };
    if (hands_on && std::any_of(operands.begin(), operands.end(), untold)) untested_.insert(value);
    return value;
  }
  bool infinity = among(kDivisions, name) ? faults_.divide
                  : among(kBoth, name)    ? faults_.divide || faults_.over
                                          : faults_.over;
  bool nan = faults_.invalid;
  if (is_complex(dtype)) infinity = nan = true;
  if (!infinity && !nan) return value;
  if (!hands_on && (is_complex(dtype) || name.starts_with("logaddexp"))) return tested_widely(name, value, operands);
  if (tests_ == Tests::kTogether && infinity && nan) {
    untested_.insert(value);
    return value;
  }
  GraphBuilder& b = builder_;
  // 0 to the power of -inf, the neighbour of the largest number towards inf.
  const bool first_only = name == "power" || name == "float_power" || name == "nextafter";
  // A test in the shape of the result that an operand was so already.
  const auto before = [&](std::string_view test) {
    ValueId found = kNoValue;
    for (const ValueId operand : operands) {
      if (!has_infinities(b.type(operand).dtype)) continue;
      if (first_only && test == "isinf" && operand != operands[0]) continue;
      ValueId each = either(test, operand);
      if (!dims.empty()) each = b.reduce("any", each, dims, keepdims);
      found = found == kNoValue ? each : b.binary("logical_or", found, each);
    }
    return found;
  };
  const auto made = [&](std::string_view test, bool given) {
    const ValueId now = either(test, value), old = before(test);
    if (given && !first_only) return kNoValue;
    return old == kNoValue ? now : b.binary("logical_and", now, b.unary("logical_not", old));
  };
  ValueId fault = kNoValue;
  if (nan) fault = made("isnan", std::isnan(number));
  if (infinity) {
    ValueId infinite = made("isinf", std::isinf(number));
    const bool division = name == "divide" && operands.size() == 2;
    if (division && !faults_.divide && infinite != kNoValue && !is_complex(dtype)) {
      infinite = b.binary("logical_and", infinite, b.binary("ne", operands[1], Scalar(0.0)));
    }
    if (infinite != kNoValue) fault = fault == kNoValue ? infinite : b.binary("logical_or", fault, infinite);
  }
  return fault == kNoValue ? value : stop_where(value, fault);
}

/// Of functions that have faults on their way to results, too: stops where an operand or the result is not finite, or near to it.
ValueId NumpyGraph::tested_widely(const std::string& name, ValueId value, const std::vector<ValueId>& operands) {
  GraphBuilder& b = builder_;
  ValueId fault = b.binary("logical_or", either("isnan", value), either("isinf", value));
  for (const ValueId operand : operands) {
    if (!has_infinities(b.type(operand).dtype)) continue;
    ValueId given = b.binary("logical_or", either("isnan", operand), either("isinf", operand));
    const int64_t rank = b.type(given).dim();
    if (rank > b.type(value).dim()) {  // of a reduction: any of them
      std::vector<int64_t> all(static_cast<size_t>(rank));
      std::iota(all.begin(), all.end(), 0);
      given = b.reduce("any", given, all, false);
    }
    fault = b.binary("logical_or", fault, given);
  }
  if (name.starts_with("logaddexp") && operands.size() == 2) {
    fault = b.binary("logical_or", fault, b.unary("isinf", b.binary("sub", operands[0], operands[1])));
  }
  return stop_where(value, fault);
}

/// Scalars of whole numbers say when they leave their type, arrays do not. Where a result comes near to that NumPy runs the call.
ValueId NumpyGraph::tested_scalar(const std::string& name, std::string_view op, ValueId value,
                                  const std::vector<ValueId>& operands, const std::optional<Scalar>& number) {
  if (tests_ == Tests::kNone || !faults_.over || !among(kHandOn, name) || operands.empty()) return value;
  GraphBuilder& b = builder_;
  const DType dtype = b.type(value).dtype;
  const auto wide = [&](ValueId v) { return b.cast(v, DType::kFloat64); };
  const ValueId first = wide(operands[0]);
  const ValueId exact = number                ? b.binary(op, first, *number)
                        : operands.size() > 1 ? b.binary(op, first, wide(operands[1]))
                                              : b.unary(op, first);
  const int bits = 8 * dtype_size(dtype) - (is_signed(dtype) ? 1 : 0);
  constexpr int kExact = 32;
  constexpr double kRounding = 4096;  // of numbers of 64 bits in float64
  const double rounding = bits > kExact ? kRounding : 0, above = std::ldexp(1.0, bits) - rounding;
  const double below = is_signed(dtype) ? -std::ldexp(1.0, bits) + rounding : 0.0;
  const ValueId fine =
      b.binary("logical_and", b.binary("lt", exact, Scalar(above)), b.binary("ge", exact, Scalar(below)));
  return stop_where(value, b.unary("logical_not", fine));
}

/// `value` is `from` in another type.
ValueId NumpyGraph::tested_cast(ValueId from, ValueId value) {
  const DType given = builder_.type(from).dtype, made = builder_.type(value).dtype;
  if (tests_ == Tests::kNone || given == made || !(faults_.invalid || faults_.over)) return value;
  GraphBuilder& b = builder_;
  if (is_floating(given) && is_integral(made)) {
    // Outside of the type's range the result is NumPy's, too.
    const int bits = 8 * dtype_size(made) - (is_signed(made) ? 1 : 0);
    const double above = std::ldexp(1.0, bits), below = is_signed(made) ? -above : 0.0;
    const ValueId fine =
        b.binary("logical_and", b.binary("lt", from, Scalar(above)),
                 b.binary(is_signed(made) ? "ge" : "gt", from, Scalar(is_signed(made) ? below : -1.0)));
    return stop_where(value, b.unary("logical_not", fine));
  }
  if (!has_infinities(made) || !faults_.over || (has_infinities(given) && dtype_size(given) <= dtype_size(made))) {
    return value;
  }
  if (is_integral(given) && made != DType::kFloat16) return value;
  const ValueId infinite = either("isinf", value);
  if (is_integral(given)) return stop_where(value, infinite);
  return stop_where(value, b.binary("logical_and", infinite, b.unary("logical_not", either("isinf", from))));
}

}  // namespace tatara::capture
