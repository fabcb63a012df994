// Two-operand pointwise operators. Either operand may be a Python number.
#include "ops/core/pointwise_util.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;
using Op = ScalarOp;

constexpr const char* kSchema = "(Operand self, Operand other) -> Tensor";
// Operators whose second operand eager takes as a tensor only.
constexpr const char* kTensors = "(Tensor self, Tensor other) -> Tensor";

bool tensors_only(std::string_view name) {
  for (const std::string_view other : {"maximum", "minimum", "fmax", "fmin", "atan2", "hypot", "nextafter"}) {
    if (name == other) return true;
  }
  return false;
}

struct BinaryRow {
  const char* name;
  Promotion promotion;
  Op op;
  const char* names;
  const char* inplace;
  const char* reflected;
  /// Which dtypes eager refuses.
  enum class Refuse : uint8_t { kNothing, kBool, kComplex, kFloating } refuse = Refuse::kNothing;
};

using Refuse = BinaryRow::Refuse;

// clang-format off
constexpr BinaryRow kBinaryRows[] = {
    {"mul", Promotion::kSame, Op::kMul, "torch.mul torch.multiply torch.Tensor.mul torch.Tensor.multiply torch.Tensor.__mul__ numpy.multiply", "torch.Tensor.mul_ torch.Tensor.multiply_ torch.Tensor.__imul__", "torch.Tensor.__rmul__"},
    {"div", Promotion::kIntToFloat, Op::kDiv, "torch.div torch.divide torch.true_divide torch.Tensor.div torch.Tensor.divide torch.Tensor.true_divide torch.Tensor.__truediv__ torch.Tensor.__div__ numpy.divide", "torch.Tensor.div_ torch.Tensor.divide_ torch.Tensor.true_divide_ torch.Tensor.__itruediv__ torch.Tensor.__idiv__", ""},
    {"floor_divide", Promotion::kSame, Op::kFloorDiv, "torch.floor_divide torch.Tensor.floor_divide numpy.floor_divide", "torch.Tensor.floor_divide_", "", Refuse::kComplex},
    {"remainder", Promotion::kSame, Op::kMod, "torch.remainder torch.Tensor.remainder torch.Tensor.__mod__ numpy.remainder", "torch.Tensor.remainder_ torch.Tensor.__imod__", "", Refuse::kComplex},
    {"fmod", Promotion::kSame, Op::kFmod, "torch.fmod torch.Tensor.fmod numpy.fmod", "torch.Tensor.fmod_", "", Refuse::kComplex},
    {"maximum", Promotion::kSame, Op::kMax, "torch.maximum torch.Tensor.maximum numpy.maximum", "", "", Refuse::kComplex},
    {"minimum", Promotion::kSame, Op::kMin, "torch.minimum torch.Tensor.minimum numpy.minimum", "", "", Refuse::kComplex},
    {"fmax", Promotion::kSame, Op::kFmax, "torch.fmax torch.Tensor.fmax numpy.fmax", "", "", Refuse::kComplex},
    {"fmin", Promotion::kSame, Op::kFmin, "torch.fmin torch.Tensor.fmin numpy.fmin", "", "", Refuse::kComplex},
    {"atan2", Promotion::kIntToFloat, Op::kAtan2, "torch.atan2 torch.arctan2 torch.Tensor.atan2 torch.Tensor.arctan2 numpy.arctan2", "torch.Tensor.atan2_ torch.Tensor.arctan2_", "", Refuse::kComplex},
    {"hypot", Promotion::kSame, Op::kHypot, "torch.hypot torch.Tensor.hypot numpy.hypot", "torch.Tensor.hypot_", "", Refuse::kComplex},
    {"copysign", Promotion::kIntToFloat, Op::kCopysign, "torch.copysign torch.Tensor.copysign numpy.copysign", "torch.Tensor.copysign_", "", Refuse::kComplex},
    {"nextafter", Promotion::kSame, Op::kNextafter, "torch.nextafter torch.Tensor.nextafter numpy.nextafter", "torch.Tensor.nextafter_", "", Refuse::kComplex},
    {"bitwise_and", Promotion::kSame, Op::kAnd, "torch.bitwise_and torch.Tensor.bitwise_and torch.Tensor.__and__ numpy.bitwise_and", "torch.Tensor.bitwise_and_ torch.Tensor.__iand__", "torch.Tensor.__rand__", Refuse::kFloating},
    {"bitwise_or", Promotion::kSame, Op::kOr, "torch.bitwise_or torch.Tensor.bitwise_or torch.Tensor.__or__ numpy.bitwise_or", "torch.Tensor.bitwise_or_ torch.Tensor.__ior__", "torch.Tensor.__ror__", Refuse::kFloating},
    {"bitwise_xor", Promotion::kSame, Op::kXor, "torch.bitwise_xor torch.Tensor.bitwise_xor torch.Tensor.__xor__ numpy.bitwise_xor", "torch.Tensor.bitwise_xor_ torch.Tensor.__ixor__", "torch.Tensor.__rxor__", Refuse::kFloating},
    {"bitwise_left_shift", Promotion::kSame, Op::kShl, "torch.bitwise_left_shift torch.Tensor.bitwise_left_shift torch.Tensor.__lshift__ numpy.left_shift", "torch.Tensor.bitwise_left_shift_ torch.Tensor.__ilshift__", "", Refuse::kFloating},
    {"bitwise_right_shift", Promotion::kSame, Op::kShr, "torch.bitwise_right_shift torch.Tensor.bitwise_right_shift torch.Tensor.__rshift__ numpy.right_shift", "torch.Tensor.bitwise_right_shift_ torch.Tensor.__irshift__", "", Refuse::kFloating},
    // Of integers, by what is not zero and not -1, and by less bits than the type has.
    {"whole_quotient", Promotion::kSame, Op::kFloorDiv, "", "", "", Refuse::kFloating},
    {"whole_modulus", Promotion::kSame, Op::kMod, "", "", "", Refuse::kFloating},
    {"whole_rest", Promotion::kSame, Op::kFmod, "", "", "", Refuse::kFloating},
    {"whole_shl", Promotion::kSame, Op::kShl, "", "", "", Refuse::kFloating},
    {"whole_shr", Promotion::kSame, Op::kShr, "", "", "", Refuse::kFloating},
    {"eq", Promotion::kBool, Op::kEq, "torch.eq torch.Tensor.eq torch.Tensor.__eq__ numpy.equal", "torch.Tensor.eq_", ""},
    {"ne", Promotion::kBool, Op::kNe, "torch.ne torch.not_equal torch.Tensor.ne torch.Tensor.not_equal torch.Tensor.__ne__ numpy.not_equal", "torch.Tensor.ne_ torch.Tensor.not_equal_", ""},
    {"lt", Promotion::kBool, Op::kLt, "torch.lt torch.less torch.Tensor.lt torch.Tensor.less torch.Tensor.__lt__ numpy.less", "torch.Tensor.lt_ torch.Tensor.less_", "", Refuse::kComplex},
    {"le", Promotion::kBool, Op::kLe, "torch.le torch.less_equal torch.Tensor.le torch.Tensor.less_equal torch.Tensor.__le__ numpy.less_equal", "torch.Tensor.le_ torch.Tensor.less_equal_", "", Refuse::kComplex},
    {"gt", Promotion::kBool, Op::kGt, "torch.gt torch.greater torch.Tensor.gt torch.Tensor.greater torch.Tensor.__gt__ numpy.greater", "torch.Tensor.gt_ torch.Tensor.greater_", "", Refuse::kComplex},
    {"ge", Promotion::kBool, Op::kGe, "torch.ge torch.greater_equal torch.Tensor.ge torch.Tensor.greater_equal torch.Tensor.__ge__ numpy.greater_equal", "torch.Tensor.ge_ torch.Tensor.greater_equal_", "", Refuse::kComplex},
};
// clang-format on

void refuse(const std::string& name, Refuse what, DType dtype) {
  const bool no = (what == Refuse::kBool && dtype == DType::kBool) || (what == Refuse::kComplex && is_complex(dtype)) ||
                  (what == Refuse::kFloating && (is_floating(dtype) || is_complex(dtype)));
  if (no) throw InvalidArgument(str_cat("\"", name, "\" not implemented for ", dtype_name(dtype)));
}

/// Whether operand 1 is a number by which integers of the type can be divided (or shifted) without a special case.
bool harmless(MetaContext& m, Op op, DType dtype) {
  if (m.is_tensor(1) || !is_integral(dtype)) return false;
  if (!m.is_tensor(0) && std::holds_alternative<bool>(m.scalar(0))) return false;
  const Scalar value = m.scalar(1);
  const auto* n = std::get_if<int64_t>(&value);
  if (n == nullptr) return false;
  const int bits = 8 * dtype_size(dtype) - 1;  // of a number that fits the type, signed or not
  if (op == Op::kShl || op == Op::kShr) return m.is_tensor(0) && *n >= 0 && *n < bits;
  const int64_t limit = int64_t{1} << std::min(bits, 62);
  return *n != 0 && *n != -1 && *n < limit && (is_signed(dtype) ? *n > -limit : *n > 0);
}

MetaFn binary_row_meta(const BinaryRow& row) {
  return [row](MetaContext& m) -> std::vector<TensorType> {
    const size_t both[] = {0, 1};
    const DType common = m.result_type(both);
    refuse(row.name, row.refuse, common);
    const bool trusted = row.names[0] == '\0';
    if (row.op == Op::kNextafter && compute_dtype(common) != common) {
      throw Unsupported("nextafter of half types runs by the host");
    }
    // Shifts past the width have torch's results, but a number that its type does not hold is an error.
    const bool shift = row.op == Op::kShl || row.op == Op::kShr;
    const bool integer_division = row.op == Op::kFloorDiv || row.op == Op::kMod || row.op == Op::kFmod ||
                                  (shift && !(m.is_tensor(0) && m.is_tensor(1)));
    // Division by an integer zero raises: only known numbers are computed here, the rest by the host (choose_integer).
    if (integer_division && !trusted && !is_floating(common) && !harmless(m, row.op, common)) {
      throw Unsupported(str_cat(row.name, " of integers runs by the host"));
    }
    return {pointwise_type(m, both, promoted(m, both, row.promotion))};
  };
}

/// A number times a tensor is the tensor times the number.
Keeps kept_by(Op op) {
  if (op == Op::kMul) return Keeps::kLastAndNumbers;
  return op == Op::kDiv || op == Op::kFloorDiv ? Keeps::kLast : Keeps::kNone;
}

/// floor division of floats as CPython and torch do it: exact floor of the quotient by way of fmod.
ScalarId floor_divide(LoopBuilder& b, ScalarId x, ScalarId y) {
  const DType t = b.dtype(x);
  return b.apply(Op::kFloorDiv, t, std::vector<ScalarId>{x, y});
}

PointwiseBody row_body(const BinaryRow& row) {
  return [row](LoopBuilder& b, DType dtype, std::span<const ScalarId> v) -> ScalarId {
    if (row.promotion == Promotion::kBool) return b.compare(row.op, v[0], v[1]);
    if (dtype == DType::kBool) {
      if (row.op == Op::kMul || row.op == Op::kMin || row.op == Op::kFmin) return b.apply(Op::kAnd, dtype, v);
      if (row.op == Op::kMax || row.op == Op::kFmax) return b.apply(Op::kOr, dtype, v);
    }
    if (row.op == Op::kFloorDiv) return floor_divide(b, v[0], v[1]);
    return b.apply(row.op, dtype, v);
  };
}

// ---- add, sub, rsub: a + alpha * b -----------------------------------------------------------------------------------

enum class Sum : uint8_t { kAdd, kSub, kRsub };

MetaFn sum_meta(Sum form) {
  return [form](MetaContext& m) -> std::vector<TensorType> {
    const size_t both[] = {0, 1};
    const DType dtype = m.result_type(both);
    if (form != Sum::kAdd && dtype == DType::kBool) {
      throw InvalidArgument(
          "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
          "`logical_xor()` operator instead.");
    }
    const auto is_bool = [&](size_t i) {
      return m.is_tensor(i) ? m.tensor(i).dtype == DType::kBool : std::holds_alternative<bool>(m.scalar(i));
    };
    if (form != Sum::kAdd && (is_bool(0) || is_bool(1))) {
      throw InvalidArgument(
          "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert "
          "a mask, use the `~` or `logical_not()` operator instead.");
    }
    const Scalar alpha = m.is_tensor(2) ? Scalar(0.0) : m.scalar(2);
    if (!is_floating(dtype) && !is_complex(dtype) && std::holds_alternative<double>(alpha)) {
      throw InvalidArgument("For integral input tensors, argument alpha must not be a floating point number.");
    }
    if (std::holds_alternative<bool>(alpha) && dtype != DType::kBool) {
      throw InvalidArgument("Boolean alpha only supported for Boolean results.");
    }
    return {pointwise_type(m, both, dtype)};
  };
}

bool equals_one(const Scalar& s) {
  if (const auto* n = std::get_if<int64_t>(&s)) return *n == 1;
  if (const auto* d = std::get_if<double>(&s)) return *d == 1;
  if (const auto* flag = std::get_if<bool>(&s)) return *flag;
  return false;
}

bool is_zero_number(const Scalar& s) {
  if (const auto* n = std::get_if<int64_t>(&s)) return *n == 0;
  if (const auto* flag = std::get_if<bool>(&s)) return !*flag;
  return false;
}

LowerFn sum_lower(Sum form) {
  return [form](LowerContext& ctx) {
    const DType common = ctx.result().dtype, dtype = compute_dtype(common);
    const auto* const fixed = std::get_if<Scalar>(&ctx.node().args[2]);
    const Scalar alpha = fixed != nullptr ? *fixed : Scalar(0.0);
    ctx.pointwise(0, [&ctx, form, common, dtype, alpha](LoopBuilder& b, std::span<const Expr> indices) {
      ScalarId x = converted_at(ctx, b, 0, common, false, indices);
      ScalarId y = converted_at(ctx, b, 1, common, false, indices);
      if (form == Sum::kRsub) std::swap(x, y);
      if (dtype == DType::kBool) {
        const ScalarId scaled = is_zero_number(alpha) ? b.constant_int(0, dtype) : y;
        return b.apply2(Op::kOr, x, scaled);
      }
      const bool scaled = !equals_one(alpha);
      if (scaled) y = b.apply2(Op::kMul, y, converted_at(ctx, b, 2, common, false, {}));
      return b.apply2(form == Sum::kAdd ? Op::kAdd : Op::kSub, x, y);
    });
  };
}

// ---- the rest --------------------------------------------------------------------------------------------------------

enum class Logic : uint8_t { kAnd, kOr, kXor };

LowerFn logical_lower(Logic logic) {
  return [logic](LowerContext& ctx) {
    ctx.pointwise(0, [&ctx, logic](LoopBuilder& b, std::span<const Expr> indices) {
      // Truth of each operand in its own type: promotion does not change it.
      const ScalarId x = operand_at(ctx, b, 0, DType::kBool, indices);
      const ScalarId y = operand_at(ctx, b, 1, DType::kBool, indices);
      const Op op = logic == Logic::kAnd ? Op::kAnd : logic == Logic::kOr ? Op::kOr : Op::kXor;
      return b.apply2(op, x, y);
    });
  };
}

ScalarId power(LoopBuilder& b, DType dtype, std::span<const ScalarId> v) { return b.apply(Op::kPow, dtype, v); }

/// The same with a number that varies. Where eager takes roots, these and pow() differ in zeros, infinities and their signs.
ScalarId power_by_number(LoopBuilder& b, DType dtype, std::span<const ScalarId> v) {
  ScalarId result = power(b, dtype, v);
  if (!is_floating(dtype)) return result;
  const auto at = [&](double exponent, Op op) {
    result = b.select(b.compare(Op::kEq, v[1], b.constant(exponent, dtype)), b.apply1(op, v[0]), result);
  };
  at(0.5, Op::kSqrt);    // NOLINT(readability-magic-numbers): a root
  at(-0.5, Op::kRsqrt);  // NOLINT(readability-magic-numbers): a root
  return result;
}

/// x ** n for the exponents that eager computes without pow().
LowerFn pow_lower() {
  return [](LowerContext& ctx) {
    const DType common = ctx.result().dtype, dtype = compute_dtype(common);
    ctx.pointwise(0, [&ctx, common, dtype](LoopBuilder& b, std::span<const Expr> indices) {
      const ScalarId x = converted_at(ctx, b, 0, common, false, indices);
      if (const auto* scalar = std::get_if<Scalar>(&ctx.node().args[1])) {
        double exponent = 0;
        bool known = true;
        if (const auto* n = std::get_if<int64_t>(scalar)) {
          exponent = static_cast<double>(*n);
        } else if (const auto* d = std::get_if<double>(scalar)) {
          exponent = *d;
        } else {
          known = false;
        }
        const bool real = is_floating(dtype);
        if (known && exponent == 2) return b.apply2(Op::kMul, x, x);
        if (known && exponent == 3) return b.apply2(Op::kMul, b.apply2(Op::kMul, x, x), x);
        if (known && exponent == 1) return x;
        if (known && real && exponent == 0.5) return b.apply1(Op::kSqrt, x);
        if (known && real && exponent == -0.5) return b.apply1(Op::kRsqrt, x);
        if (known && real && exponent == -1) return b.apply1(Op::kReciprocal, x);
        if (known && real && exponent == -2) return b.apply1(Op::kReciprocal, b.apply2(Op::kMul, x, x));
      }
      const ScalarId v[] = {x, converted_at(ctx, b, 1, common, false, indices)};
      const int number = ctx.operand_number(1);
      const bool varies = number >= 0 && ctx.operand(number).is_wrapped_number;
      return varies ? power_by_number(b, dtype, v) : power(b, dtype, v);
    });
  };
}

MetaFn pow_meta() {
  return [](MetaContext& m) -> std::vector<TensorType> {
    const size_t both[] = {0, 1};
    const DType dtype = m.result_type(both);
    if (!is_floating(dtype) && !is_complex(dtype)) {
      const bool small =
          !m.is_tensor(1) && std::holds_alternative<int64_t>(m.scalar(1)) && m.integer(1) >= 1 && m.integer(1) <= 3;
      if (!small || dtype == DType::kBool) throw Unsupported("pow of integers runs by the host");
    }
    TensorType type = pointwise_type(m, both, dtype, Numbers::kParameters);
    if (!m.is_tensor(0) || m.tensor(0).is_wrapped_number) type.strides = contiguous_strides(m.ctx(), type.sizes);
    return {type};
  };
}

ScalarId xlogy(LoopBuilder& b, DType dtype, std::span<const ScalarId> v) {
  const ScalarId zero = b.constant(0, dtype);
  const ScalarId product = b.apply2(Op::kMul, v[0], b.apply1(Op::kLog, v[1]));
  const ScalarId chosen = b.select(b.compare(Op::kEq, v[0], zero), zero, product);
  return b.select(b.apply(Op::kIsNan, DType::kBool, std::vector<ScalarId>{v[1]}), v[1], chosen);
}

/// 0 at NaN.
ScalarId heaviside(LoopBuilder& b, DType dtype, std::span<const ScalarId> v) {
  const bool whole = !is_floating(dtype);
  const ScalarId zero = whole ? b.constant_int(0, dtype) : b.constant(0, dtype);
  const ScalarId one = whole ? b.constant_int(1, dtype) : b.constant(1, dtype);
  const ScalarId sides = b.select(b.compare(Op::kGt, v[0], zero), one, zero);
  return b.select(b.compare(Op::kEq, v[0], zero), v[1], sides);
}

ScalarId round_quotient(LoopBuilder& b, DType dtype, std::span<const ScalarId> v, bool floor) {
  if (floor) return floor_divide(b, v[0], v[1]);
  if (!is_floating(dtype)) {
    return floor_divide(b, b.apply2(Op::kSub, v[0], b.apply(Op::kFmod, dtype, v)), v[1]);
  }
  return b.apply1(Op::kTrunc, b.apply2(Op::kDiv, v[0], v[1]));
}

/// torch.div of two Python integers, where sizes may be symbols: the tensor that holds the rounded quotient.
Choice quotient_of_numbers(MetaContext& m) {
  const Scalar self = m.scalar(0), other = m.scalar(1);
  const auto* by = std::get_if<int64_t>(&other);
  const bool whole = std::holds_alternative<int64_t>(self) || std::holds_alternative<Expr>(self);
  if (m.is_none(2) || !whole || by == nullptr || *by <= 0) {
    throw Unsupported("a rounded quotient of such numbers runs by the host");
  }
  ExprContext& ctx = m.ctx();
  const auto* symbolic = std::get_if<Expr>(&self);
  const Expr divided = symbolic != nullptr ? *symbolic : ctx.constant(std::get<int64_t>(self));
  if (m.string(2) == "trunc" && !ctx.guard(ctx.le(ctx.constant(0), divided))) {
    throw Unsupported("the quotient of a negative number, rounded to zero, runs by the host");
  }
  const Expr quotient = ctx.floordiv(divided, ctx.constant(*by));
  return {"full", {SymInts{}, expr_arg(quotient), DType::kInt64, NoneArg{}, Device{}, NoneArg{}, bool_arg(false)}};
}

void register_sums(OpRegistry& r) {
  const char* sum_schema = "(Operand self, Operand other, *, Scalar alpha=1) -> Tensor";
  OpDef add =
      make_op({"add", OpKind::kPointwise, sum_schema, "torch.add torch.Tensor.add torch.Tensor.__add__ numpy.add",
               "torch.Tensor.add_ torch.Tensor.__iadd__"},
              sum_meta(Sum::kAdd), nullptr, sum_lower(Sum::kAdd));
  add.reflected_names = "torch.Tensor.__radd__";
  r.add(std::move(add));
  r.add(make_op({"sub", OpKind::kPointwise, sum_schema,
                 "torch.sub torch.subtract torch.Tensor.sub torch.Tensor.subtract torch.Tensor.__sub__ numpy.subtract",
                 "torch.Tensor.sub_ torch.Tensor.subtract_ torch.Tensor.__isub__"},
                sum_meta(Sum::kSub), nullptr, sum_lower(Sum::kSub)));
  r.add(make_op({"rsub", OpKind::kPointwise, sum_schema, "torch.rsub torch.Tensor.__rsub__"}, sum_meta(Sum::kRsub),
                nullptr, sum_lower(Sum::kRsub)));
  r.take_values({"add", "sub", "rsub"});
  r.mark(&OpTraits::scales_sum, {"add", "sub"});
  r.mark(&OpTraits::hands_tangent_on, {"fmod", "remainder"});
  r.mark(&OpTraits::unnamed, {"whole_quotient", "whole_modulus", "whole_rest", "whole_shl", "whole_shr"});
}

void register_powers(OpRegistry& r) {
  r.add(make_op({"pow", OpKind::kPointwise, kSchema,
                 "torch.pow torch.Tensor.pow torch.Tensor.__pow__ numpy.power numpy.float_power",
                 "torch.Tensor.pow_ torch.Tensor.__ipow__"},
                pow_meta(), nullptr, pow_lower()));
  OpDef rpow = make_op(
      {"rpow", OpKind::kPointwise, kSchema, "torch.Tensor.__rpow__"},
      [](MetaContext& m) -> std::vector<TensorType> {
        const size_t both[] = {0, 1};
        const DType dtype = m.result_type(both);
        if (!is_floating(dtype) && !is_complex(dtype)) throw Unsupported("pow of integers runs by the host");
        TensorType type = pointwise_type(m, both, dtype);
        type.strides = contiguous_strides(m.ctx(), type.sizes);
        return {type};
      },
      nullptr, pointwise_lower({1, 0}, Promotion::kSame, power));
  r.add(std::move(rpow));
}

void register_logic(OpRegistry& r) {
  const struct {
    const char* name;
    Logic logic;
    const char* names;
    const char* inplace;
  } logicals[] = {
      {"logical_and", Logic::kAnd, "torch.logical_and torch.Tensor.logical_and numpy.logical_and",
       "torch.Tensor.logical_and_"},
      {"logical_or", Logic::kOr, "torch.logical_or torch.Tensor.logical_or numpy.logical_or",
       "torch.Tensor.logical_or_"},
      {"logical_xor", Logic::kXor, "torch.logical_xor torch.Tensor.logical_xor numpy.logical_xor",
       "torch.Tensor.logical_xor_"},
  };
  for (const auto& row : logicals) {
    r.add(make_op({row.name, OpKind::kPointwise, kTensors, row.names, row.inplace},
                  pointwise_meta({0, 1}, Promotion::kBool), nullptr, logical_lower(row.logic)));
  }
}

}  // namespace

void register_pointwise_binary(OpRegistry& r) {
  for (const BinaryRow& row : kBinaryRows) {
    OpDef def =
        make_op({row.name, OpKind::kPointwise, tensors_only(row.name) ? kTensors : kSchema, row.names, row.inplace},
                binary_row_meta(row), nullptr, pointwise_lower({0, 1}, row.promotion, row_body(row), kept_by(row.op)));
    def.reflected_names = row.reflected;
    r.add(std::move(def));
  }
  register_sums(r);
  register_powers(r);
  register_logic(r);
  OpDef rdiv =
      make_op({"rdiv", OpKind::kPointwise, kSchema, "torch.Tensor.__rtruediv__ torch.Tensor.__rdiv__"},
              pointwise_meta({0, 1}, Promotion::kIntToFloat), nullptr,
              pointwise_lower({1, 0}, Promotion::kIntToFloat, [](LoopBuilder& b, DType, std::span<const ScalarId> v) {
                return b.apply2(Op::kDiv, v[0], v[1]);
              }));
  r.add(std::move(rdiv));
  r.add(make_op(
      {"xlogy", OpKind::kPointwise, kSchema, "torch.xlogy torch.special.xlogy torch.Tensor.xlogy",
       "torch.Tensor.xlogy_"},
      [](MetaContext& m) -> std::vector<TensorType> {
        const size_t both[] = {0, 1};
        const DType dtype = promoted(m, both, Promotion::kIntToFloat);
        if (is_complex(dtype)) throw InvalidArgument("\"xlogy_cpu\" not implemented for complex types");
        return {pointwise_type(m, both, dtype)};
      },
      nullptr, pointwise_lower({0, 1}, Promotion::kIntToFloat, xlogy)));
  r.add(make_op(
      {"heaviside", OpKind::kPointwise, kTensors, "torch.heaviside torch.Tensor.heaviside", "torch.Tensor.heaviside_"},
      [](MetaContext& m) -> std::vector<TensorType> {
        const size_t both[] = {0, 1};
        const DType dtype = m.result_type(both);
        if (is_complex(dtype) || dtype == DType::kBool) throw Unsupported("heaviside of bool or complex");
        if (m.tensor(0).dtype != m.tensor(1).dtype) {
          throw InvalidArgument("heaviside is not yet implemented for tensors with different dtypes.");
        }
        return {pointwise_type(m, both, dtype)};
      },
      nullptr, pointwise_lower({0, 1}, Promotion::kSame, heaviside)));
  OpDef numbers =
      make_op({"div.numbers", OpKind::kComposite, "(Scalar self, Scalar other, *, str? rounding_mode=None) -> Tensor",
               "torch.div torch.divide"},
              nullptr);
  numbers.choose = quotient_of_numbers;
  r.add(std::move(numbers));
  r.add(make_op(
      {"div.mode", OpKind::kPointwise, "(Operand self, Operand other, *, str? rounding_mode) -> Tensor",
       "torch.div torch.divide torch.Tensor.div torch.Tensor.divide", "torch.Tensor.div_ torch.Tensor.divide_"},
      [](MetaContext& m) -> std::vector<TensorType> {
        const size_t both[] = {0, 1};
        const DType dtype = m.result_type(both);
        if (m.is_none(2)) return {pointwise_type(m, both, promoted(m, both, Promotion::kIntToFloat))};
        if (!is_floating(dtype) && (dtype == DType::kBool || !harmless(m, Op::kFloorDiv, dtype))) {
          throw Unsupported("rounded division of integers runs by the host");
        }
        return {pointwise_type(m, both, dtype)};
      },
      nullptr,
      [](LowerContext& ctx) {
        const DType common = ctx.result().dtype, dtype = compute_dtype(common);
        const auto* mode = std::get_if<std::string>(&ctx.node().args[2]);
        ctx.pointwise(0, [&ctx, common, dtype, mode](LoopBuilder& b, std::span<const Expr> indices) {
          const ScalarId v[] = {converted_at(ctx, b, 0, common, false, indices),
                                converted_at(ctx, b, 1, common, true, indices)};
          if (mode == nullptr) return b.apply(Op::kDiv, dtype, v);
          return round_quotient(b, dtype, v, *mode == "floor");
        });
      }));
}

}  // namespace tatara
