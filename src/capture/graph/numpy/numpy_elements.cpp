// Rules of elementwise calls whose meaning has several operators: integer division and shifts, the order of complex numbers, roots, masks.
#include <algorithm>
#include <limits>
#include <numbers>

#include "capture/graph/numpy/numpy_rules_internal.h"
#include "support/error.h"

namespace tatara::capture {
namespace {

/// A binary ufunc's operands in its loop's type, broadcast; nothing else but them is given.
struct Pair {
  ValueId x = kNoValue, y = kNoValue;
  DType dtype = DType::kBool;  // of the result
};

Pair pair_of(const NumpyRules& g, const TapeNode& node) {
  if (PyTuple_GET_SIZE(node.args.get()) != 2 || (node.kwargs && PyDict_GET_SIZE(node.kwargs.get()) > 0)) {
    throw Unsupported("such arguments of " + node.name);
  }
  const std::vector<PyObject*> operands = {PyTuple_GET_ITEM(node.args.get(), 0), PyTuple_GET_ITEM(node.args.get(), 1)};
  const Ref ufunc = attr(g.np().numpy.get(), node.name.c_str());
  const std::vector<DType> types = g.loop_types(ufunc.get(), operands, 1);
  if (types[0] != types[1]) throw Unsupported(node.name + " of two types");
  return {g.as_dtype(operands[0], types[0]), g.as_dtype(operands[1], types[1]), types[2]};
}

/// The result, in place where the call is.
void give_value(const NumpyRules& g, const TapeNode& node, ValueId value) {
  if (node.mutates) return g.write(PyTuple_GET_ITEM(node.args.get(), 0), value);
  g.set_value(node, 0, value);
}

ValueId whole_number(GraphBuilder& b, double value, ValueId like) { return b.constant(value, b.type(like).dtype); }

// ---- integers --------------------------------------------------------------------------------------------------------

enum class Division : uint8_t { kFloor, kRemainder, kFmod };

/// A quotient or remainder of integers. Where NumPy warns the kernel stops: zeros below, and the one quotient that has no place.
ValueId divided(const NumpyRules& g, Division form, ValueId x, ValueId y) {
  GraphBuilder& b = g.b();
  const DType dtype = b.type(x).dtype;
  const ValueId zero = b.binary("eq", y, Scalar(int64_t{0}));
  ValueId apart = zero, negative = kNoValue;
  if (is_signed(dtype)) {
    negative = b.binary("eq", y, Scalar(int64_t{-1}));
    apart = b.binary("logical_or", zero, negative);
  }
  const ValueId divisor = b.where(apart, whole_number(b, 1, y), y);
  const char* op = form == Division::kFloor       ? "whole_quotient"
                   : form == Division::kRemainder ? "whole_modulus"
                                                  : "whole_rest";
  ValueId made = b.binary(op, x, divisor);
  if (negative != kNoValue) {
    made = b.where(negative, form == Division::kFloor ? b.unary("neg", x) : whole_number(b, 0, x), made);
  }
  made = b.where(zero, whole_number(b, 0, x), made);
  ValueId fault = zero;
  if (negative != kNoValue && form == Division::kFloor) {
    const int bits = 8 * dtype_size(dtype) - 1;
    const Scalar least(bits == 63 ? std::numeric_limits<int64_t>::min() : -(int64_t{1} << bits));
    fault = b.binary("logical_or", fault, b.binary("logical_and", negative, b.binary("eq", x, least)));
  }
  return g.stops(made, fault);
}

/// Numbers of bits that are none of the type's shift everything out, as NumPy has it.
ValueId shifted(const NumpyRules& g, bool left, ValueId x, ValueId y) {
  GraphBuilder& b = g.b();
  const DType dtype = b.type(x).dtype;
  ValueId out = b.binary("ge", y, Scalar(int64_t{8 * dtype_size(dtype)}));
  if (is_signed(dtype)) out = b.binary("logical_or", out, b.binary("lt", y, Scalar(int64_t{0})));
  const ValueId made = b.binary(left ? "whole_shl" : "whole_shr", x, b.where(out, whole_number(b, 0, y), y));
  ValueId rest = whole_number(b, 0, x);
  if (!left && is_signed(dtype)) rest = b.where(b.binary("lt", x, Scalar(int64_t{0})), whole_number(b, -1, x), rest);
  return b.where(out, rest, made);
}

/// By squares. Exponents that are negative, or so large that most results have no place, are NumPy's.
ValueId whole_power(const NumpyRules& g, ValueId x, ValueId y) {
  constexpr int kBits = 6;
  GraphBuilder& b = g.b();
  const DType dtype = b.type(x).dtype;
  if (dtype_size(dtype) < 4) throw Unsupported("powers of narrow integers");
  const ValueId fine = b.binary("lt", b.cast(y, DType::kInt64), Scalar(int64_t{1 << kBits}));
  ValueId fault = b.unary("logical_not", fine);
  if (is_signed(dtype)) fault = b.binary("logical_or", fault, b.binary("lt", y, Scalar(int64_t{0})));
  ValueId square = x, made = whole_number(b, 1, x);
  for (int bit = 0; bit < kBits; ++bit) {
    const ValueId set = b.binary("ne", b.binary("bitwise_and", y, Scalar(int64_t{1} << bit)), Scalar(int64_t{0}));
    made = b.binary("mul", made, b.where(set, square, whole_number(b, 1, x)));
    if (bit + 1 < kBits) square = b.binary("mul", square, square);
  }
  return g.stops_always(made, fault);
}

/// The rule of the ufunc, where its loop is not of integers.
void integer_rule(NumpyGraph& graph, const TapeNode& node, ValueId (*make)(const NumpyRules&, ValueId, ValueId)) {
  const NumpyRules g{graph};
  const bool integers = !node.outputs.empty() && is_integral(g.result_dtype(node));
  if (!integers) return rule_of_ufunc(graph, node);
  const Pair pair = pair_of(g, node);
  if (!is_integral(g.b().type(pair.x).dtype)) return rule_of_ufunc(graph, node);
  give_value(g, node, make(g, pair.x, pair.y));
}

template <Division form>
void rule_division(NumpyGraph& graph, const TapeNode& node) {
  integer_rule(graph, node, [](const NumpyRules& g, ValueId x, ValueId y) { return divided(g, form, x, y); });
}

template <bool left>
void rule_shift(NumpyGraph& graph, const TapeNode& node) {
  integer_rule(graph, node, [](const NumpyRules& g, ValueId x, ValueId y) { return shifted(g, left, x, y); });
}

void rule_power(NumpyGraph& graph, const TapeNode& node) { integer_rule(graph, node, whole_power); }

void rule_divmod_of(NumpyGraph& graph, const TapeNode& node) {
  NumpyRules g{graph};
  if (PyTuple_GET_SIZE(node.args.get()) != 2 || node.kwargs) throw Unsupported("such a divmod");
  const std::vector<PyObject*> both = {PyTuple_GET_ITEM(node.args.get(), 0), PyTuple_GET_ITEM(node.args.get(), 1)};
  if (!is_integral(g.result_dtype(node))) {
    const ValueId quotient = g.apply_ufunc("floor_divide", both), rest = g.apply_ufunc("remainder", both);
    g.set_value(node, 0, quotient);
    return g.set_value(node, 1, rest);
  }
  const Ref ufunc = attr(g.np().numpy.get(), "floor_divide");
  const std::vector<DType> types = g.loop_types(ufunc.get(), both, 1);
  const ValueId x = g.as_dtype(both[0], types[0]), y = g.as_dtype(both[1], types[1]);
  g.set_value(node, 0, divided(g, Division::kFloor, x, y));
  g.set_value(node, 1, divided(g, Division::kRemainder, x, y));
}

// ---- complex numbers -------------------------------------------------------------------------------------------------

struct Parts {
  ValueId re, im;
};

Parts parts_of(GraphBuilder& b, ValueId x) { return {b.unary("real_part", x), b.unary("imag_part", x)}; }

/// By real parts, then by imaginary ones, as NumPy compares: `last` is lt, le, gt or ge.
ValueId compared(GraphBuilder& b, const std::string& last, ValueId x, ValueId y) {
  const Parts one = parts_of(b, x), other = parts_of(b, y);
  const ValueId nan = b.binary("logical_or", b.unary("isnan", one.im), b.unary("isnan", other.im));
  const ValueId strict =
      b.binary("logical_and", b.binary(last[0] == 'l' ? "lt" : "gt", one.re, other.re), b.unary("logical_not", nan));
  return b.binary("logical_or", strict,
                  b.binary("logical_and", b.binary("eq", one.re, other.re), b.binary(last, one.im, other.im)));
}

ValueId has_nan(GraphBuilder& b, ValueId x) {
  const Parts parts = parts_of(b, x);
  return b.binary("logical_or", b.unary("isnan", parts.re), b.unary("isnan", parts.im));
}

/// The larger or smaller one; `skips`: NaNs of the second operand are left out, else those of the first win.
ValueId chosen(GraphBuilder& b, const char* order, bool skips, ValueId x, ValueId y) {
  const ValueId first = b.binary("logical_or", has_nan(b, skips ? y : x), compared(b, order, x, y));
  return b.where(first, x, y);
}

/// The rule of the ufunc, where its loop is not of complex numbers.
template <class Make>
void complex_rule(NumpyGraph& graph, const TapeNode& node, const Make& make) {
  const NumpyRules g{graph};
  bool complex = false;
  const auto look = [&](int slot) { complex = complex || is_complex(g.dtype_in(slot)); };
  for_each_slot(node.args.get(), look);
  if (!complex || node.mutates) return rule_of_ufunc(graph, node);
  const Pair pair = pair_of(g, node);
  if (!is_complex(g.b().type(pair.x).dtype)) return rule_of_ufunc(graph, node);
  // Of NaNs NumPy may speak.
  const ValueId nan = g.b().binary("logical_or", has_nan(g.b(), pair.x), has_nan(g.b(), pair.y));
  g.set_value(node, 0, g.stops(make(g.b(), pair.x, pair.y), nan));
}

void rule_less(NumpyGraph& graph, const TapeNode& node) {
  complex_rule(graph, node, [](GraphBuilder& b, ValueId x, ValueId y) { return compared(b, "lt", x, y); });
}
void rule_less_equal(NumpyGraph& graph, const TapeNode& node) {
  complex_rule(graph, node, [](GraphBuilder& b, ValueId x, ValueId y) { return compared(b, "le", x, y); });
}
void rule_greater(NumpyGraph& graph, const TapeNode& node) {
  complex_rule(graph, node, [](GraphBuilder& b, ValueId x, ValueId y) { return compared(b, "gt", x, y); });
}
void rule_greater_equal(NumpyGraph& graph, const TapeNode& node) {
  complex_rule(graph, node, [](GraphBuilder& b, ValueId x, ValueId y) { return compared(b, "ge", x, y); });
}
void rule_maximum(NumpyGraph& graph, const TapeNode& node) {
  complex_rule(graph, node, [](GraphBuilder& b, ValueId x, ValueId y) { return chosen(b, "ge", false, x, y); });
}
void rule_minimum(NumpyGraph& graph, const TapeNode& node) {
  complex_rule(graph, node, [](GraphBuilder& b, ValueId x, ValueId y) { return chosen(b, "le", false, x, y); });
}
void rule_fmax(NumpyGraph& graph, const TapeNode& node) {
  complex_rule(graph, node, [](GraphBuilder& b, ValueId x, ValueId y) { return chosen(b, "ge", true, x, y); });
}
void rule_fmin(NumpyGraph& graph, const TapeNode& node) {
  complex_rule(graph, node, [](GraphBuilder& b, ValueId x, ValueId y) { return chosen(b, "le", true, x, y); });
}

/// A ufunc of one operand that is given nothing else, in its loop's type.
ValueId only_operand(const NumpyRules& g, const TapeNode& node, size_t outputs) {
  if (PyTuple_GET_SIZE(node.args.get()) != 1 || (node.kwargs && PyDict_GET_SIZE(node.kwargs.get()) > 0)) {
    throw Unsupported("such arguments of " + node.name);
  }
  PyObject* operand = PyTuple_GET_ITEM(node.args.get(), 0);
  const Ref ufunc = attr(g.np().numpy.get(), node.name.c_str());
  return g.as_dtype(operand, g.loop_types(ufunc.get(), {operand}, outputs).at(0));
}

void rule_rint(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  if (node.mutates || node.outputs.empty() || !is_complex(g.result_dtype(node))) return rule_of_ufunc(graph, node);
  const Parts parts = parts_of(g.b(), only_operand(g, node, 1));
  g.set_value(node, 0, g.b().binary("complex", g.b().unary("round", parts.re), g.b().unary("round", parts.im)));
}

void rule_reciprocal(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  if (node.mutates || node.outputs.empty() || is_floating(g.result_dtype(node))) return rule_of_ufunc(graph, node);
  const ValueId x = only_operand(g, node, 1);
  if (is_complex(g.b().type(x).dtype)) {
    const ValueId one = g.b().cast(g.b().constant(1, real_dtype(g.b().type(x).dtype)), g.b().type(x).dtype);
    return g.set_value(node, 0, g.tested(node, g.b().binary("div", one, x), {x}));
  }
  if (dtype_size(g.b().type(x).dtype) < 4 || !is_integral(g.b().type(x).dtype)) throw Unsupported("such a reciprocal");
  // 1 and -1 stay; of others nothing remains, and of 0 NumPy tells.
  const ValueId zero = g.b().binary("eq", x, Scalar(int64_t{0}));
  ValueId unit = g.b().binary("eq", x, Scalar(int64_t{1}));
  if (is_signed(g.b().type(x).dtype))
    unit = g.b().binary("logical_or", unit, g.b().binary("eq", x, Scalar(int64_t{-1})));
  g.set_value(node, 0, g.stops_always(g.b().where(unit, x, whole_number(g.b(), 0, x)), zero));
}

// ---- others ----------------------------------------------------------------------------------------------------------

/// Logarithms and exponentials of complex numbers by those to the base e, as NumPy has them.
template <class Make>
void complex_only(NumpyGraph& graph, const TapeNode& node, const Make& make) {
  const NumpyRules g{graph};
  if (node.mutates || node.outputs.empty() || !is_complex(g.result_dtype(node))) return rule_of_ufunc(graph, node);
  const ValueId x = only_operand(g, node, 1);
  g.set_value(node, 0, g.tested(node, make(g.b(), x), {x}));
}

void rule_log2(NumpyGraph& graph, const TapeNode& node) {
  complex_only(graph, node, [](GraphBuilder& b, ValueId x) {
    return b.binary("mul", b.unary("log", x), Scalar(std::numbers::log2e));
  });
}
void rule_log10(NumpyGraph& graph, const TapeNode& node) {
  complex_only(graph, node, [](GraphBuilder& b, ValueId x) {
    return b.binary("mul", b.unary("log", x), Scalar(std::numbers::log10e));
  });
}
void rule_exp2(NumpyGraph& graph, const TapeNode& node) {
  complex_only(graph, node, [](GraphBuilder& b, ValueId x) {
    return b.unary("exp", b.binary("mul", x, Scalar(std::numbers::ln2)));
  });
}
void rule_log1p(NumpyGraph& graph, const TapeNode& node) {
  complex_only(graph, node, [](GraphBuilder& b, ValueId x) {
    const Parts parts = parts_of(b, x);
    const ValueId above = b.binary("add", parts.re, Scalar(1.0));
    return b.binary("complex", b.unary("log", b.binary("hypot", above, parts.im)), b.binary("atan2", parts.im, above));
  });
}

/// The place before which each value belongs; the kernel stops at boundaries that are NaN, which NumPy orders.
void rule_searchsorted(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a", "v", "side", "sorter"});
  args.refuse({"sorter"});
  const ValueId a = g.read(args["a"]);
  const DType dtype = g.b().type(a).dtype;
  ValueId v = g.as_dtype(args["v"], dtype);
  if (slot_of(args["v"]) >= 0 && g.slot_dtype(args["v"]) != dtype) throw Unsupported("values of another type");
  if (is_complex(dtype) || dtype_size(dtype) < 4) throw Unsupported("boundaries of this type");
  // Of boundaries out of order NumPy's own search decides.
  const int64_t count = g.shape(a)[0];
  const auto part = [&](int64_t from, int64_t to) {
    ExprContext& ctx = g.b().ctx();
    return g.b().slice(a, 0, ctx.constant(from), ctx.constant(to), ctx.constant(1));
  };
  ValueId bad = kNoValue;
  if (count > 1) {
    const ValueId fine = g.b().binary("le", part(0, count - 1), part(1, count));
    bad = g.b().reduce("any", g.b().unary("logical_not", fine), {0}, false);
  } else if (is_floating(dtype)) {
    bad = g.b().reduce("any", g.b().unary("isnan", a), {0}, false);
  }
  if (bad != kNoValue) v = g.stops_always(v, g.b().expand(bad, g.b().type(v).sizes));
  const std::string side = args["side"] == nullptr ? "left" : text_of(args["side"]);
  if (side != "left" && side != "right") throw Unsupported("such a side");
  g.set_value(node, 0,
              g.b().op("searchsorted.Tensor",
                       {TensorArg{a}, TensorArg{v}, Scalar(false), Scalar(side == "right"), NoneArg{}, NoneArg{}}));
}

/// Of real numbers the method gives its array.
void rule_conjugate(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  PyObject* operand = PyTuple_GET_SIZE(node.args.get()) > 0 ? PyTuple_GET_ITEM(node.args.get(), 0) : Py_None;
  const bool itself = !node.mutates && slot_of(operand) >= 0 && node.outputs.at(0) == slot_of(operand);
  if (!itself) return rule_of_ufunc(graph, node);
  g.tensor(operand);
}

/// The fraction and the whole part, with the operand's sign.
void rule_modf(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const ValueId x = only_operand(g, node, 2);
  if (dtype_size(g.b().type(x).dtype) < 4) throw Unsupported("modf of float16");
  const ValueId part = g.b().unary("trunc", x);
  const ValueId rest = g.b().where(g.b().unary("isinf", x), whole_number(g.b(), 0, x), g.b().binary("sub", x, part));
  g.set_value(node, 0, g.b().binary("copysign", rest, x));
  g.set_value(node, 1, part);
}

/// np.float64(x) and its kin of a scalar.
void rule_cast(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const bool alone = PyTuple_GET_SIZE(node.args.get()) == 1 && !node.kwargs;
  const ValueId x = alone ? g.read(PyTuple_GET_ITEM(node.args.get(), 0)) : kNoValue;
  if (x == kNoValue || (is_complex(g.b().type(x).dtype) && !is_complex(g.result_dtype(node))))
    throw Unsupported("such a cast");
  g.set_value(node, 0, g.tested_cast(x, g.b().op("clone", {TensorArg{g.b().cast(x, g.result_dtype(node))}})));
}

/// What is written where a mask holds: the array's shape, or one that it is broadcast from.
void write_where(const NumpyRules& g, PyObject* target, PyObject* mask, PyObject* value) {
  const NumpyRules::ArrayRef array = g.tensor(target);
  const DType dtype = g.fz().type(array).dtype;
  if (slot_of(value) >= 0 && is_complex(g.slot_dtype(value)) && !is_complex(dtype)) throw Unsupported("a complex cast");
  ValueId given = kNoValue;
  if (slot_of(value) >= 0) {
    given = g.read(value);
    given = g.tested_cast(given, g.b().cast(given, dtype));
  } else {
    given = g.as_dtype(value, dtype);
  }
  if (mask == nullptr || mask == Py_True) return g.write_ref(array, given);
  const ValueId now = g.fz().read(array);
  if (slot_of(mask) < 0) throw Unsupported("such a mask");
  ValueId holds = g.read(mask);
  if (g.b().type(holds).dtype != DType::kBool) holds = g.b().binary("ne", holds, Scalar(int64_t{0}));
  const std::vector<Expr>& sizes = g.b().type(now).sizes;
  const auto fits = [&](ValueId v) { return g.b().type(v).dim() <= static_cast<int64_t>(sizes.size()); };
  if (!fits(holds) || !fits(given)) throw Unsupported("a mask of more dimensions");
  g.write_ref(array, g.b().where(g.b().expand(holds, sizes), g.b().expand(given, sizes), now));
}

void rule_copyto(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"dst", "src", "casting", "where"});
  write_where(g, args["dst"], args["where"], args["src"]);
}

/// Values for each element of the array, or one for all.
void rule_putmask(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a", "mask", "values"});
  PyObject* values = args["values"];
  if (values == nullptr || args["mask"] == nullptr) throw Unsupported("such a putmask");
  const std::vector<Expr> sizes = g.fz().type(g.tensor(args["a"])).sizes;
  if (slot_of(values) >= 0) {
    const TensorType& type = g.fz().type(g.tensor(values));
    if (type.sizes != sizes && type.dim() > 0) throw Unsupported("values of another shape than the array's");
  }
  if (slot_of(args["mask"]) < 0 || g.fz().type(g.tensor(args["mask"])).sizes != sizes) throw Unsupported("such a mask");
  write_where(g, args["a"], args["mask"], values);
}

void rule_count_nonzero(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a", "axis", "keepdims"});
  const ValueId x = g.read(args["a"]);
  const int64_t rank = g.b().type(x).dim();
  std::vector<int64_t> dims;
  if (args["axis"] == nullptr || args["axis"] == Py_None) {
    for (int64_t d = 0; d < rank; ++d) dims.push_back(d);
  } else {
    const int64_t axis = args.integer("axis", 0);
    dims.push_back(axis < 0 ? axis + rank : axis);
  }
  if (dims.empty() || dims[0] < 0 || dims[0] >= rank) throw Unsupported("such an axis");
  const ValueId counted = g.b().type(x).dtype == DType::kBool ? x : g.b().binary("ne", x, Scalar(int64_t{0}));
  g.set_value(node, 0,
              g.b().op("sum", {TensorArg{g.b().cast(counted, DType::kInt64)}, ints(g.b(), dims),
                               Scalar(args.flag("keepdims", false)), DType::kInt64}));
}

/// Elements at places along one axis, or of the flat array. The kernel stops at a place that is none.
void rule_take(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"a", "indices", "axis", "out", "mode"});
  args.refuse({"out"});
  if (args["mode"] != nullptr && text_of(args["mode"]) != "raise") throw Unsupported("the mode of take");
  ValueId x = g.read(args["a"]);
  const bool flat = args["axis"] == nullptr || args["axis"] == Py_None;
  if (flat) {
    x = g.b().op("clone", {TensorArg{x}, std::string("contiguous_format")});
    x = g.b().reshape(x, {g.b().type(x).numel(g.b().ctx())});
  }
  const int64_t rank = g.b().type(x).dim();
  int64_t axis = flat ? 0 : args.integer("axis", 0);
  axis += axis < 0 ? rank : 0;
  if (axis < 0 || axis >= rank || args["indices"] == nullptr) throw Unsupported("such a take");
  PyObject* const given = args["indices"];
  const bool several = PyTuple_Check(given) || PyList_Check(given);
  const ValueId places = slot_of(given) >= 0 || several ? g.read(given) : g.as_dtype(given, DType::kInt64);
  if (!is_integral(g.b().type(places).dtype)) throw Unsupported("places of this type");
  TensorList list;
  for (int64_t d = 0; d < axis; ++d) list.values.push_back(kNoValue);
  list.values.push_back(g.b().cast(places, DType::kInt64));
  const ValueId made = g.b().op("index", {TensorArg{x}, std::move(list)});
  g.set_value(node, 0, g.b().op("clone", {TensorArg{made}, std::string("contiguous_format")}));
}

}  // namespace

void add_numpy_element_rules(NumpyRuleTable& table) {
  const std::initializer_list<std::pair<const char*, NumpyRule>> rules = {
      {"floor_divide", rule_division<Division::kFloor>},
      {"remainder", rule_division<Division::kRemainder>},
      {"fmod", rule_division<Division::kFmod>},
      {"divmod", rule_divmod_of},
      {"left_shift", rule_shift<true>},
      {"right_shift", rule_shift<false>},
      {"power", rule_power},
      {"less", rule_less},
      {"less_equal", rule_less_equal},
      {"greater", rule_greater},
      {"greater_equal", rule_greater_equal},
      {"maximum", rule_maximum},
      {"minimum", rule_minimum},
      {"fmax", rule_fmax},
      {"fmin", rule_fmin},
      {"rint", rule_rint},
      {"reciprocal", rule_reciprocal},
      {"log2", rule_log2},
      {"log10", rule_log10},
      {"exp2", rule_exp2},
      {"log1p", rule_log1p},
      {"searchsorted", rule_searchsorted},
      {"conjugate", rule_conjugate},
      {"conj", rule_conjugate},
      {"modf", rule_modf},
      {"cast", rule_cast},
      {"copyto", rule_copyto},
      {"putmask", rule_putmask},
      {"count_nonzero", rule_count_nonzero},
      {"take", rule_take},
  };
  table.insert(rules.begin(), rules.end());
}

}  // namespace tatara::capture
