// What functions of NumPy, and of Python, mean in a loop's code.
#include <opcode.h>

#include <algorithm>
#include <string_view>

#include "capture/native/loop_ints.h"
#include "capture/native/loop_operations.h"
#include "support/error.h"
#include "support/str_cat.h"

namespace tatara::capture::native {

using loops::ScalarOp;

namespace {

/// Ufuncs by their name.
struct UfuncRow {
  std::string_view name;
  int operands;
  ScalarOp op;
};
constexpr UfuncRow kUfuncs[] = {
    {"add", 2, ScalarOp::kAdd},      {"subtract", 2, ScalarOp::kSub}, {"multiply", 2, ScalarOp::kMul},
    {"divide", 2, ScalarOp::kDiv},   {"minimum", 2, ScalarOp::kMin},  {"maximum", 2, ScalarOp::kMax},
    {"sqrt", 1, ScalarOp::kSqrt},    {"absolute", 1, ScalarOp::kAbs}, {"fabs", 1, ScalarOp::kAbs},
    {"negative", 1, ScalarOp::kNeg}, {"exp", 1, ScalarOp::kExp},      {"log", 1, ScalarOp::kLog},
    {"sin", 1, ScalarOp::kSin},      {"cos", 1, ScalarOp::kCos},      {"tanh", 1, ScalarOp::kTanh},
    {"floor", 1, ScalarOp::kFloor},  {"ceil", 1, ScalarOp::kCeil},    {"trunc", 1, ScalarOp::kTrunc},
    {"rint", 1, ScalarOp::kRound},   {"tan", 1, ScalarOp::kTan},      {"arcsin", 1, ScalarOp::kAsin},
    {"arccos", 1, ScalarOp::kAcos},  {"arctan", 1, ScalarOp::kAtan},  {"arctan2", 2, ScalarOp::kAtan2},
    {"sinh", 1, ScalarOp::kSinh},    {"cosh", 1, ScalarOp::kCosh},    {"exp2", 1, ScalarOp::kExp2},
    {"expm1", 1, ScalarOp::kExpm1},  {"log2", 1, ScalarOp::kLog2},    {"log10", 1, ScalarOp::kLog10},
    {"log1p", 1, ScalarOp::kLog1p},  {"hypot", 2, ScalarOp::kHypot},  {"copysign", 2, ScalarOp::kCopysign},
};

/// Functions of the module math.
constexpr UfuncRow kMathRows[] = {
    {"sqrt", 1, ScalarOp::kSqrt},   {"exp", 1, ScalarOp::kExp},     {"log", 1, ScalarOp::kLog},
    {"sin", 1, ScalarOp::kSin},     {"cos", 1, ScalarOp::kCos},     {"tan", 1, ScalarOp::kTan},
    {"asin", 1, ScalarOp::kAsin},   {"acos", 1, ScalarOp::kAcos},   {"atan", 1, ScalarOp::kAtan},
    {"atan2", 2, ScalarOp::kAtan2}, {"tanh", 1, ScalarOp::kTanh},   {"sinh", 1, ScalarOp::kSinh},
    {"cosh", 1, ScalarOp::kCosh},   {"fabs", 1, ScalarOp::kAbs},    {"expm1", 1, ScalarOp::kExpm1},
    {"log2", 1, ScalarOp::kLog2},   {"log10", 1, ScalarOp::kLog10}, {"log1p", 1, ScalarOp::kLog1p},
    {"hypot", 2, ScalarOp::kHypot}, {"pow", 2, ScalarOp::kPow},     {"copysign", 2, ScalarOp::kCopysign},
};

struct OrderRow {
  std::string_view name;
  int op;
};
constexpr OrderRow kOrderRows[] = {{"less", Py_LT},      {"less_equal", Py_LE}, {"equal", Py_EQ},
                                   {"not_equal", Py_NE}, {"greater", Py_GT},    {"greater_equal", Py_GE}};

const UfuncRow* ufunc_row(const std::string& name) {
  const auto* found =
      std::find_if(std::begin(kUfuncs), std::end(kUfuncs), [&](const UfuncRow& row) { return row.name == name; });
  return found != std::end(kUfuncs) ? found : nullptr;
}

/// Other libraries have ufuncs of the same names.
bool is_numpys_own(PyObject* ufunc, const std::string& name, const NumpyApi& np) {
  return attr_or_null(np.numpy.get(), name.c_str()).get() == ufunc;
}

std::string text_attribute(PyObject* object, const char* name) {
  const Ref found = attr_or_null(object, name);
  return found && PyUnicode_Check(found.get()) ? PyUnicode_AsUTF8(found.get()) : std::string();
}

}  // namespace

Value LoopOperations::method(const Method& method, const std::vector<Value>& arguments) {
  if (method.ufunc) {
    const std::string name = text_attribute(method.ufunc.get(), "__name__");
    const UfuncRow* row = is_numpys_own(method.ufunc.get(), name, np_) ? ufunc_row(name) : nullptr;
    if (row == nullptr || row->operands != 2 || method.name != "outer" || arguments.size() != 2)
      throw Unsupported(str_cat("the method ", method.name, " of a ufunc"));
    return outer(row->op, arguments[0], arguments[1]);
  }
  if (method.name == "dot" && arguments.size() == 1) return dot(method.self, arguments[0]);
  if (method.name == "copy" && arguments.empty()) {
    auto copy = std::make_shared<Grid>(*method.self);
    copy->view.reset();
    return copy;
  }
  throw Unsupported(str_cat("the method ", method.name, " of an array"));
}

/// np.sign of floats.
Value LoopOperations::sign(const Value& value) {
  const auto of_scalar = [this](ScalarId x, DType dtype) {
    const auto test = [&](ScalarOp op) { return builder_->emit(op, DType::kBool, {x, builder_->number(0, dtype)}); };
    const auto chosen = [&](ScalarOp op, double then, ScalarId other) {
      return builder_->emit(ScalarOp::kSelect, dtype, {test(op), builder_->number(then, dtype), other});
    };
    return chosen(ScalarOp::kGt, 1, chosen(ScalarOp::kLt, -1, chosen(ScalarOp::kEq, 0, x)));
  };
  if (const auto* grid = std::get_if<GridRef>(&value)) {
    if (!is_floating((*grid)->dtype)) throw Unsupported("a sign of other elements than floats");
    auto result = std::make_shared<Grid>(**grid);
    result->view.reset();
    result->at = [of_scalar, of = *grid](const std::vector<Expr>& at) { return of_scalar(of->at(at), of->dtype); };
    return result;
  }
  const auto* number = std::get_if<Number>(&value);
  if (number == nullptr || !is_floating(number->dtype) || number->strength == Strength::kEither)
    throw Unsupported("a sign of another number than a float");
  return Number{of_scalar(number->id, number->dtype), number->dtype, Strength::kStrong};
}

/// Of Python's math, which gives its floats. Where it raises an error, the kernel stops.
Value LoopOperations::math_function(const std::string& name, const std::vector<Value>& arguments) {
  const auto* row =
      std::find_if(std::begin(kMathRows), std::end(kMathRows), [&](const UfuncRow& each) { return each.name == name; });
  if (row == std::end(kMathRows) || static_cast<size_t>(row->operands) != arguments.size())
    throw Unsupported(str_cat("a call of math.", name));
  std::vector<ScalarId> operands;
  for (const Value& given : arguments) {
    const auto* number = std::get_if<Number>(&given);
    if (number != nullptr && is_complex(number->dtype)) throw Unsupported("math of complex numbers");
    operands.push_back(as_number(given, DType::kFloat64).id);
  }
  return Number{emit_function(row->op, DType::kFloat64, std::move(operands)), DType::kFloat64, Strength::kWeak};
}

Value LoopOperations::attribute_of_number(const Number& number, const std::string& name) {
  if (!is_complex(number.dtype) || number.strength == Strength::kEither || (name != "real" && name != "imag"))
    throw Unsupported(str_cat("the attribute ", name, " of a number"));
  const DType part = real_dtype(number.dtype);
  return Number{builder_->emit(name == "real" ? ScalarOp::kReal : ScalarOp::kImag, part, {number.id}), part,
                number.strength};
}

/// int(x), float(x), bool(x).
Value LoopOperations::python_type(PyObject* type, const Value& argument) {
  const auto is = [type](PyTypeObject& other) { return type == reinterpret_cast<PyObject*>(&other); };
  if (is(PyBool_Type)) {
    Condition condition = truth(argument);
    condition.strength = Strength::kWeak;
    return condition;
  }
  const auto* condition = std::get_if<Condition>(&argument);
  if (condition != nullptr && condition->strength != Strength::kWeak)
    throw Unsupported("a number made of a bool of NumPy's");
  const Value given = condition != nullptr ? as_int(*condition) : argument;
  const auto* number = std::get_if<Number>(&given);
  if (number == nullptr && !std::holds_alternative<Whole>(given)) throw Unsupported("a number made of an object");
  if (number != nullptr && (is_complex(number->dtype) || number->dtype == DType::kUInt64))
    throw Unsupported("a number made of a complex or unsigned one");
  if (is(PyLong_Type)) {
    if (number == nullptr) return given;
    const bool whole = is_integral(number->dtype);
    const ScalarId id = whole ? builder_->cast(number->id, DType::kInt64) : truncated(*builder_, number->id);
    return Number{id, DType::kInt64, Strength::kWeak};
  }
  if (!is(PyFloat_Type)) throw Unsupported("a call of a type");
  return Number{as_number(given, DType::kFloat64).id, DType::kFloat64, Strength::kWeak};
}

/// complex(x) and complex(x, y) of real numbers.
Value LoopOperations::python_complex(const std::vector<Value>& arguments) {
  if (arguments.empty() || arguments.size() > 2) throw Unsupported("a complex number of other arguments");
  std::vector<ScalarId> parts;
  for (const Value& given : arguments) {
    const auto* number = std::get_if<Number>(&given);
    const bool real = number != nullptr ? !is_complex(number->dtype) && number->dtype != DType::kUInt64
                                        : std::holds_alternative<Whole>(given);
    if (!real) throw Unsupported("a complex number made of something else than real numbers");
    parts.push_back(as_number(given, DType::kFloat64).id);
  }
  if (parts.size() == 1) parts.push_back(builder_->number(0, DType::kFloat64));
  const DType dtype = DType::kComplex128;
  return Number{builder_->emit(ScalarOp::kComplex, dtype, std::move(parts)), dtype, Strength::kWeak};
}

Value LoopOperations::along_axis(PyObject* callable, const Value& argument, int64_t axis) {
  const std::string name = text_attribute(callable, "__name__");
  const bool numpys = np_.is_dispatcher(callable) && text_attribute(callable, "__module__") == "numpy";
  const auto* grid = std::get_if<GridRef>(&argument);
  if (numpys && name == "diff" && grid != nullptr) return difference(*grid, dimension_of(axis, *grid));
  if (numpys && name == "concatenate") return joined_arrays(argument, axis);
  throw Unsupported("a call with keywords");
}

Value LoopOperations::function(PyObject* callable, const std::vector<Value>& arguments) {
  const std::string name = text_attribute(callable, "__name__");
  const size_t count = arguments.size();
  if (np_.is_ufunc(callable) && is_numpys_own(callable, name, np_)) {
    const UfuncRow* row = ufunc_row(name);
    if (row != nullptr && count == 1 && row->operands == 1) return apply_unary(row->op, arguments[0], false);
    if (row != nullptr && count == 2 && row->operands == 2) return apply_binary(row->op, arguments[0], arguments[1]);
    if (name == "matmul" && count == 2) return dot(arguments[0], arguments[1]);
    if (name == "sign" && count == 1) return sign(arguments[0]);
    if (name == "square" && count == 1 && std::holds_alternative<GridRef>(arguments[0]))
      return binary(NB_MULTIPLY, arguments[0], arguments[0]);
    const auto* order = std::find_if(std::begin(kOrderRows), std::end(kOrderRows),
                                     [&](const OrderRow& each) { return each.name == name; });
    const bool arrays =
        count == 2 && (std::holds_alternative<GridRef>(arguments[0]) || std::holds_alternative<GridRef>(arguments[1]));
    if (order != std::end(kOrderRows) && arrays) return comparison(order->op, arguments[0], arguments[1]);
  } else if (np_.is_dispatcher(callable) && text_attribute(callable, "__module__") == "numpy") {
    if ((name == "round" || name == "around") && count == 1) return apply_unary(ScalarOp::kRound, arguments[0], false);
    if (name == "where" && count == 3) return selection(arguments[0], arguments[1], arguments[2]);
    if (name == "dot" && count == 2) return dot(arguments[0], arguments[1]);
    if (name == "outer" && count == 2) return outer(ScalarOp::kMul, arguments[0], arguments[1]);
    if ((name == "empty_like" || name == "zeros_like") && count == 1 && std::holds_alternative<GridRef>(arguments[0])) {
      auto zeros = std::make_shared<Grid>(*std::get<GridRef>(arguments[0]));
      zeros->view.reset();
      zeros->at = [this, dtype = zeros->dtype](const std::vector<Expr>&) { return builder_->number(0, dtype); };
      return zeros;
    }
    if (name == "diff" && count == 1 && std::holds_alternative<GridRef>(arguments[0]))
      return difference(std::get<GridRef>(arguments[0]), dimension_of(-1, std::get<GridRef>(arguments[0])));
    if (name == "hstack" && count == 1) return joined_arrays(arguments[0], std::nullopt);
    if ((name == "vstack" || name == "concatenate") && count == 1) return joined_arrays(arguments[0], 0);
    if (name == "flip" && count == 1 && std::holds_alternative<GridRef>(arguments[0]))
      return reversed(std::get<GridRef>(arguments[0]));
  } else if (np_.is_dispatcher(callable) && text_attribute(callable, "__module__") == "numpy.linalg") {
    const auto* grid = count == 1 ? std::get_if<GridRef>(&arguments[0]) : nullptr;
    if (name == "norm" && grid != nullptr && (*grid)->extents.size() == 1 && is_floating((*grid)->dtype)) {
      const Value vector = (*grid)->view ? *grid : materialise(*grid);
      return apply_unary(ScalarOp::kSqrt, dot(vector, vector), false);
    }
  } else if (PyCFunction_CheckExact(callable) && text_attribute(callable, "__module__") == "math") {
    return math_function(name, arguments);
  } else if (PyCFunction_CheckExact(callable) && text_attribute(callable, "__module__") == "builtins") {
    const auto* grid = count == 1 ? std::get_if<GridRef>(&arguments[0]) : nullptr;
    if (name == "abs" && count == 1) return apply_unary(ScalarOp::kAbs, arguments[0], true);
    if (name == "len" && grid != nullptr && !(*grid)->extents.empty()) {
      const Expr extent = (*grid)->extents[0];
      return Whole{extent, range_of(extent)};
    }
    if ((name == "max" || name == "min") && count >= 2) {
      Value best = arguments[0];
      for (size_t i = 1; i < count; ++i) best = extremum(name == "max", best, arguments[i]);
      return best;
    }
  }
  throw Unsupported(str_cat("a call of ", name.empty() ? "an object" : name));
}

}  // namespace tatara::capture::native
