#include "codegen/core/scalars.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "codegen/core/c_functions.h"
#include "codegen/core/scalar_ranges.h"
#include "codegen/math/complex.h"
#include "codegen/math/table.h"
#include "support/error.h"

namespace tatara::codegen {

using namespace loops;
using Op = ScalarOp;

Reg Scalars::value(const Scalar& s) {
  if (s.op == Op::kConst) return constant(s);
  if (s.op == Op::kIndex) {
    const bool vec = scope_.varies(s.index);
    return cast(ir_, DType::kInt64, s.dtype, {vec ? scope_.index_vector(s.index) : scope_.index(s.index), vec});
  }
  std::vector<Reg> v;
  bool vec = false;
  for (const ScalarId id : s.operands) {
    v.push_back(scope_.reg(id));
    vec = vec || v.back().vec;
  }
  if (takes_narrow(s)) return narrow_value(s, std::move(v), vec);
  if (s.op == Op::kCast) return cast(ir_, scope_.dtype(s.operands[0]), s.dtype, v[0]);
  if (s.op == Op::kBitcast) {
    const std::string from = ir_.type_of(llvm_type(scope_.dtype(s.operands[0])), vec);
    return {ir_.assign("bitcast " + from + " " + v[0].text + " to " + ir_.type_of(llvm_type(s.dtype), vec)), vec};
  }
  if (s.op >= Op::kEq && s.op <= Op::kGe) return comparison(s.op, scope_.dtype(s.operands[0]), v, vec);
  if (s.op == Op::kSelect) return choose(ir_, s.dtype, v[0], v[1], v[2], vec);
  return arithmetic(s, v, vec);
}

/// Whether an operator on int64 may be done in 32 bits, by what its operands can be.
bool Scalars::takes_narrow(const Scalar& s) const {
  if (context_.ranges.empty() || s.operands.empty()) return false;
  int64_t most = 0;
  for (const ScalarId id : s.operands) {
    const IntRange& range = context_.ranges[static_cast<size_t>(id)];
    if (scope_.dtype(id) != DType::kInt64 || !is_narrow(range)) return false;
    most = std::max({most, std::abs(range.lo), std::abs(range.hi)});
  }
  switch (s.op) {
    case Op::kCast: return is_floating(s.dtype);
    case Op::kAdd:
    case Op::kSub:
    case Op::kNeg:
    case Op::kAbs: return most < INT32_MAX / 2;
    case Op::kMul: return most < 46341;  // whose square fits
    case Op::kMin:
    case Op::kMax: return true;
    default: return s.op >= Op::kEq && s.op <= Op::kGe;
  }
}

Reg Scalars::narrow_value(const Scalar& s, std::vector<Reg> v, bool vec) {
  for (Reg& x : v) x = cast(ir_, DType::kInt64, DType::kInt32, x);
  if (s.op == Op::kCast) return cast(ir_, DType::kInt32, s.dtype, v[0]);
  if (s.op >= Op::kEq && s.op <= Op::kGe) return comparison(s.op, DType::kInt32, v, vec);
  Scalar narrow{};
  narrow.op = s.op;
  narrow.dtype = DType::kInt32;
  return cast(ir_, DType::kInt32, DType::kInt64, arithmetic(narrow, v, vec));
}

Reg Scalars::multiply_add(DType dtype, std::span<const ScalarId> xyz) {
  const bool vec = std::any_of(xyz.begin(), xyz.end(), [&](ScalarId x) { return scope_.reg(x).vec; });
  std::vector<std::string> x;
  for (const ScalarId id : xyz) {
    x.push_back(vec ? ir_.as_vec(llvm_type(dtype), scope_.reg(id)) : scope_.reg(id).text);
  }
  return {ir_.intrinsic("fmuladd", dtype, vec, x), vec};
}

// ---- Values carried by loops -------------------------------------------------------------------------------------------

Reg Scalars::identity(Combine how, DType dtype) const {
  const std::string& name = context_.kernel.name;
  if (is_complex(dtype)) {
    const DType part = real_dtype(dtype);
    if (how == Combine::kAdd) return {float_bits(-0.0, part), false, float_bits(-0.0, part)};
    if (how == Combine::kMul) return {float_bits(1.0, part), false, float_bits(0.0, part)};
    throw InternalError("complex numbers have no order, in " + name);
  }
  const bool floating = is_floating(dtype);
  const bool truth = dtype == DType::kBool;
  switch (how) {
    case Combine::kAdd: return {floating ? float_bits(-0.0, dtype) : (truth ? "false" : "0"), false};
    case Combine::kMul: return {floating ? float_bits(1.0, dtype) : (truth ? "true" : "1"), false};
    case Combine::kOr:
    case Combine::kXor: return {truth ? "false" : "0", false};
    case Combine::kAnd: return {truth ? "true" : "-1", false};
    case Combine::kMin:
    case Combine::kMax: {
      const bool largest = how == Combine::kMin;
      if (floating) return {float_bits(largest ? INFINITY : -INFINITY, dtype), false};
      if (truth) return {largest ? "true" : "false", false};
      const int bits = dtype_size(dtype) * 8;
      if (!is_signed(dtype)) return {largest ? "-1" : "0", false};
      const int64_t top = static_cast<int64_t>((uint64_t{1} << (bits - 1)) - 1);
      return {std::to_string(largest ? top : -top - 1), false};
    }
    case Combine::kNone:
    case Combine::kCustom: break;
  }
  throw InternalError("a sequential value carried by a vector loop in " + name);
}

Reg Scalars::combine(Combine how, DType dtype, const Reg& a, const Reg& b, bool vec) {
  Scalar s{};
  s.dtype = dtype;
  const bool truth = dtype == DType::kBool;
  switch (how) {
    case Combine::kAdd: s.op = truth ? Op::kOr : Op::kAdd; break;
    case Combine::kMul: s.op = truth ? Op::kAnd : Op::kMul; break;
    case Combine::kMin: s.op = truth ? Op::kAnd : Op::kMin; break;
    case Combine::kMax: s.op = truth ? Op::kOr : Op::kMax; break;
    case Combine::kAnd: s.op = Op::kAnd; break;
    case Combine::kOr: s.op = Op::kOr; break;
    case Combine::kXor: s.op = Op::kXor; break;
    case Combine::kNone:
    case Combine::kCustom: throw InternalError("no simple combine function");
  }
  const Reg operands[] = {a, b};
  return arithmetic(s, operands, vec);
}

// ---- Real numbers ------------------------------------------------------------------------------------------------------

Reg Scalars::comparison(ScalarOp op, DType type, std::span<const Reg> v, bool vec) {
  if (is_complex(type)) return complex_comparison(ir_, op, type, v[0], v[1], vec);
  const bool floating = is_llvm_float(type);
  const bool sign = is_signed_integer(type);
  const char* test = "";
  switch (op) {
    case Op::kEq: test = floating ? "fcmp oeq" : "icmp eq"; break;
    case Op::kNe: test = floating ? "fcmp une" : "icmp ne"; break;
    case Op::kLt: test = floating ? "fcmp olt" : sign ? "icmp slt" : "icmp ult"; break;
    case Op::kLe: test = floating ? "fcmp ole" : sign ? "icmp sle" : "icmp ule"; break;
    case Op::kGt: test = floating ? "fcmp ogt" : sign ? "icmp sgt" : "icmp ugt"; break;
    case Op::kGe: test = floating ? "fcmp oge" : sign ? "icmp sge" : "icmp uge"; break;
    default: throw InternalError("not a comparison");  // NOLINT: only the six above come here
  }
  const std::string t = llvm_type(type);
  const std::string a = vec ? ir_.as_vec(t, v[0]) : v[0].text;
  const std::string b = vec ? ir_.as_vec(t, v[1]) : v[1].text;
  return {ir_.assign(std::string(test) + " " + ir_.type_of(t, vec) + " " + a + ", " + b), vec};
}

Reg Scalars::arithmetic(const Scalar& s, std::span<const Reg> v, bool vec) {
  const DType in = s.operands.empty() ? s.dtype : scope_.dtype(s.operands[0]);
  if (is_complex(in) || is_complex(s.dtype)) return complex(s, v, vec);
  const std::string t = llvm_type(in);
  Operation o{s, in, ir_.type_of(t, vec), vec, v, {}};
  for (const Reg& r : v) o.x.push_back(vec ? ir_.as_vec(t, r) : r.text);
  // Idle lanes hold zeros: where flags of the processor tell of faults, they raise none.
  const bool may_fault = s.op == Op::kDiv || s.op == Op::kSqrt;
  if (may_fault && vec && o.floating() && !scope_.mask().empty())
    o.x.back() = ir_.select(scope_.mask(), o.type, o.x.back(), constant_operand(o, float_bits(1.0, in)), true);
  return real(o);
}

Reg Scalars::real(const Operation& o) {
  const bool truth = o.dtype == DType::kBool;
  switch (o.scalar.op) {
    case Op::kAdd: return binary(o, "fadd", truth ? "or" : "add");
    case Op::kSub: return binary(o, "fsub", "sub");
    case Op::kMul: return binary(o, "fmul", truth ? "and" : "mul");
    case Op::kDiv: return divide(o);
    case Op::kNeg: return negate(o);
    case Op::kAbs: return absolute(o);
    case Op::kMin:
    case Op::kMax: return extremum(o);
    case Op::kFmin:
    case Op::kFmax: {
      const bool least = o.scalar.op == Op::kFmin;
      if (o.floating()) return intrinsic(o, least ? "minnum" : "maxnum");
      Scalar other = o.scalar;
      other.op = least ? Op::kMin : Op::kMax;
      return arithmetic(other, o.given, o.vec);
    }
    case Op::kFloorDiv:
    case Op::kTruncDiv:
    case Op::kMod:
    case Op::kFmod: return division(o);
    case Op::kFma: return intrinsic(o, "fma");
    case Op::kAnd: return binary(o, "and", "and");
    case Op::kOr: return binary(o, "or", "or");
    case Op::kXor: return binary(o, "xor", "xor");
    case Op::kShl:
    case Op::kShr:
      if (o.vec && ir_.permutes_bytes() && o.dtype == DType::kUInt8 && ir_.lanes() % 4 == 0) {
        const Reg& by = scope_.reg(o.scalar.operands[1]);
        if (!by.vec) return shift_bytes(ir_, o.x[0], by.text);
      }
      return shift(ir_, o.scalar.op, o.dtype, {o.x[0], o.vec}, {o.x[1], o.vec}, o.vec);
    case Op::kNot: return {ir_.binary("xor", o.type, o.x[0], constant_operand(o, truth ? "true" : "-1")), o.vec};
    case Op::kIsNan: return {ir_.assign("fcmp uno " + o.type + " " + o.x[0] + ", " + o.x[0]), o.vec};
    case Op::kIsInf: return is_infinite(o);
    case Op::kSignbit: return sign_bit(o);
    case Op::kFloor: return intrinsic(o, "floor");
    case Op::kCeil: return intrinsic(o, "ceil");
    case Op::kTrunc: return intrinsic(o, "trunc");
    case Op::kRound: return intrinsic(o, "roundeven");
    case Op::kSqrt: return intrinsic(o, "sqrt");
    case Op::kCopysign: return intrinsic(o, "copysign");
    case Op::kReciprocal:
      return {ir_.binary("fdiv", o.type, constant_operand(o, float_bits(1.0, o.dtype)), o.x[0]), o.vec};
    case Op::kRsqrt: return inverse_root(o);
    default: return function(o.scalar.op, o.dtype, o.given, o.vec);  // NOLINT: everything else is a function
  }
}

Reg Scalars::binary(const Operation& o, const char* floating, const char* integer) {
  return {ir_.binary(o.floating() ? floating : integer, o.type, o.x[0], o.x[1]), o.vec};
}

std::string Scalars::constant_operand(const Operation& o, const std::string& text) {
  return o.vec ? ir_.splat(llvm_type(o.dtype), text) : text;
}

Reg Scalars::divide(const Operation& o) { return binary(o, "fdiv", "sdiv"); }

Reg Scalars::extremum(const Operation& o) {
  const bool least = o.scalar.op == Op::kMin;
  const std::string operands = o.type + " " + o.x[0] + ", " + o.x[1];
  if (!o.floating()) {
    const char* how = is_signed_integer(o.dtype) ? (least ? "slt " : "sgt ") : (least ? "ult " : "ugt ");
    return {ir_.select(ir_.assign(std::string("icmp ") + how + operands), o.type, o.x[0], o.x[1], o.vec), o.vec};
  }
  // One instruction for minima or maxima, which gives its second operand when either is NaN, and a repair for the first.
  // Which of two zeros of different signs it is remains open, as in eager.
  const std::string ahead = ir_.assign(std::string("fcmp ") + (least ? "olt " : "ogt ") + operands);
  const std::string best = ir_.select(ahead, o.type, o.x[0], o.x[1], o.vec);
  const std::string nan = ir_.assign("fcmp uno " + o.type + " " + o.x[0] + ", " + o.x[0]);
  return {ir_.select(nan, o.type, o.x[0], best, o.vec), o.vec};
}

Reg Scalars::inverse_root(const Operation& o) {
  const std::string root = ir_.intrinsic("sqrt", o.dtype, o.vec, o.x);
  return {ir_.binary("fdiv", o.type, constant_operand(o, float_bits(1.0, o.dtype)), root), o.vec};
}

Reg Scalars::negate(const Operation& o) {
  if (o.floating()) return {ir_.assign("fneg " + o.type + " " + o.x[0]), o.vec};
  return {ir_.binary("sub", o.type, o.zero(), o.x[0]), o.vec};
}

Reg Scalars::absolute(const Operation& o) {
  if (o.floating()) return intrinsic(o, "fabs");
  if (!is_signed_integer(o.dtype)) return {o.x[0], o.vec};
  const std::string negative = ir_.assign("icmp slt " + o.type + " " + o.x[0] + ", " + o.zero());
  return {ir_.select(negative, o.type, ir_.binary("sub", o.type, o.zero(), o.x[0]), o.x[0], o.vec), o.vec};
}

Reg Scalars::is_infinite(const Operation& o) {
  const std::string size = ir_.intrinsic("fabs", o.dtype, o.vec, o.x);
  const std::string infinite = constant_operand(o, float_bits(INFINITY, o.dtype));
  return {ir_.assign("fcmp oeq " + o.type + " " + size + ", " + infinite), o.vec};
}

Reg Scalars::sign_bit(const Operation& o) {
  const std::string integer = ir_.type_of("i" + std::to_string(dtype_size(o.dtype) * 8), o.vec);
  const std::string bits = ir_.assign("bitcast " + o.type + " " + o.x[0] + " to " + integer);
  return {ir_.assign("icmp slt " + integer + " " + bits + ", " + (o.vec ? "zeroinitializer" : "0")), o.vec};
}

Reg Scalars::division(const Operation& o) {
  const Reg a{o.x[0], o.vec};
  const Reg b{o.x[1], o.vec};
  return o.floating() ? real_division(o.scalar.op, o.dtype, a, b, o.vec)
                      : integer_division(ir_, o.scalar.op, o.dtype, a, b, o.vec);
}

/// Floors of quotients by way of the exact remainder, as CPython and eager compute them.
Reg Scalars::real_division(Op op, DType dtype, const Reg& a, const Reg& b, bool vec) {
  const std::string type = ir_.type_of(llvm_type(dtype), vec);
  const std::string bits = ir_.type_of("i1", vec);
  const auto c = [&](double value) { return number(value, dtype, vec); };
  const auto test = [&](const char* how, const std::string& x, const std::string& y) {
    return ir_.assign(std::string("fcmp ") + how + " " + type + " " + x + ", " + y);
  };
  if (op == Op::kTruncDiv) {
    const std::string ratio[] = {ir_.binary("fdiv", type, a.text, b.text)};
    return {ir_.intrinsic("trunc", dtype, vec, ratio), vec};
  }
  const Reg operands[] = {a, b};
  const Reg rest = function(Op::kFmod, dtype, operands, vec);
  if (op == Op::kFmod) return rest;
  const std::string apart = ir_.binary("xor", bits, test("olt", b.text, c(0)), test("olt", rest.text, c(0)));
  const std::string down = ir_.binary("and", bits, test("une", rest.text, c(0)), apart);
  if (op == Op::kMod) return {ir_.select(down, type, ir_.binary("fadd", type, rest.text, b.text), rest.text, vec), vec};
  const std::string ratio = ir_.binary("fdiv", type, a.text, b.text);
  const std::string exact = ir_.binary("fdiv", type, ir_.binary("fsub", type, a.text, rest.text), b.text);
  const std::string lower = ir_.select(down, type, ir_.binary("fsub", type, exact, c(1)), exact, vec);
  const std::string one_arg[] = {lower};
  const std::string floor = ir_.intrinsic("floor", dtype, vec, one_arg);
  const std::string off = test("ogt", ir_.binary("fsub", type, lower, floor), c(0.5));
  const std::string nearest = ir_.select(off, type, ir_.binary("fadd", type, floor, c(1)), floor, vec);
  const std::string sign_args[] = {c(0), ratio};
  const std::string zero = ir_.intrinsic("copysign", dtype, vec, sign_args);
  const std::string result = ir_.select(test("oeq", lower, c(0)), type, zero, nearest, vec);
  return {ir_.select(test("oeq", b.text, c(0)), type, ratio, result, vec), vec};
}

// ---- Complex numbers ---------------------------------------------------------------------------------------------------

Reg Scalars::complex(const Scalar& s, std::span<const Reg> v, bool vec) {
  const DType in = s.operands.empty() ? s.dtype : scope_.dtype(s.operands[0]);
  if (s.op == Op::kComplex) {
    const Reg re = vec ? widened(ir_, in, v[0]) : v[0];
    const Reg im = vec ? widened(ir_, in, v[1]) : v[1];
    return {re.text, vec, im.text};
  }
  const DType part = real_dtype(in);
  const std::string type = ir_.type_of(llvm_type(part), vec);
  std::array<Reg, 2> x;
  TATARA_CHECK(!v.empty() && v.size() <= 2, "operands of complex ", scalar_op_name(s.op));
  for (size_t i = 0; i < v.size(); ++i) x[i] = vec ? widened(ir_, in, v[i]) : v[i];
  const auto both = [&](const char* op) -> Reg {
    return {ir_.binary(op, type, x[0].text, x[1].text), vec, ir_.binary(op, type, x[0].im, x[1].im)};
  };
  const auto negative = [&](const std::string& text) { return ir_.assign("fneg " + type + " " + text); };
  switch (s.op) {
    case Op::kAdd: return both("fadd");
    case Op::kSub: return both("fsub");
    case Op::kMul: {
      const auto times = [&](const std::string& a, const std::string& b) { return ir_.binary("fmul", type, a, b); };
      const std::string re = ir_.binary("fsub", type, times(x[0].text, x[1].text), times(x[0].im, x[1].im));
      return {re, vec, ir_.binary("fadd", type, times(x[0].text, x[1].im), times(x[0].im, x[1].text))};
    }
    case Op::kDiv: return complex_quotient(ir_, part, x[0], x[1], vec);
    case Op::kReciprocal: {
      const Reg one{float_bits(1, part), false, float_bits(0, part)};
      return complex_quotient(ir_, part, vec ? widened(ir_, in, one) : one, x[0], vec);
    }
    case Op::kNeg: return {negative(x[0].text), vec, negative(x[0].im)};
    case Op::kConj: return {x[0].text, vec, negative(x[0].im)};
    case Op::kReal: return {x[0].text, vec};
    case Op::kImag: return {x[0].im, vec};
    case Op::kAbs: return {magnitude(ir_, part, x[0].text, x[0].im, vec, context_.traits.has_fma), vec};
    case Op::kAngle: {
      const Reg operands[] = {{x[0].im, vec}, {x[0].text, vec}};
      return function(Op::kAtan2, part, operands, vec);
    }
    case Op::kIsNan:
    case Op::kIsInf: return complex_test(s, part, x[0], vec);
    default:  // NOLINT: elementary functions
      return complex_function(s.op, part, std::span(x).first(v.size()), vec);
  }
}

Reg Scalars::complex_function(Op op, DType part, std::span<const Reg> v, bool vec) {
  if (!has_complex_math(op)) throw Unsupported(str_cat("no code for ", scalar_op_name(op), " of complex numbers"));
  const std::string type = ir_.type_of(llvm_type(part), vec), both = "{ " + type + ", " + type + " }";
  std::string operands;
  for (const Reg& r : v) {
    operands += (operands.empty() ? "" : ", ") + type + " " + r.text + ", " + type + " " + r.im;
  }
  const std::string name = define_complex_math(op, part, math_target(vec), ir_.declarations());
  const std::string value = ir_.call(name, both, operands);
  const std::string re = ir_.assign("extractvalue " + both + " " + value + ", 0");
  return {re, vec, ir_.assign("extractvalue " + both + " " + value + ", 1")};
}

/// Whether the test of real numbers holds for a part.
Reg Scalars::complex_test(const Scalar& s, DType part, const Reg& x, bool vec) {
  Scalar one{};
  one.op = s.op;
  one.dtype = part;
  const Reg re[] = {{x.text, vec}};
  const Reg im[] = {{x.im, vec}};
  return {ir_.binary("or", ir_.type_of("i1", vec), arithmetic(one, re, vec).text, arithmetic(one, im, vec).text), vec};
}

// ---- Elementary functions ----------------------------------------------------------------------------------------------

MathTarget Scalars::math_target(bool vec) const {
  const TargetTraits& traits = context_.traits;
  return {vec ? ir_.lanes() : 0, traits.has_fma, traits.has_vector_ldexp, "#0", traits.has_float_power};
}

/// By the math table, if it has this function.
std::optional<std::string> Scalars::table_function(Op op, DType dtype, std::span<const Reg> v, bool vec) {
  const MathTarget target = math_target(vec);
  const MathForm form = math_form(op, dtype, target);
  if (form == MathForm::kNone) return std::nullopt;
  const std::string type = llvm_type(dtype);
  MathBuilder builder(ir_, target);
  std::vector<Val> args;
  std::string operands;
  for (const Reg& r : v) {
    args.push_back(builder.value(math_lane(dtype), vec ? ir_.as_vec(type, r) : r.text));
    operands += (operands.empty() ? "" : ", ") + ir_.type_of(type, vec) + " " + args.back().text;
  }
  if (form == MathForm::kInline) return expand_math(op, args).text;
  return ir_.call(define_math(op, dtype, target, ir_.declarations()), ir_.type_of(type, vec), operands);
}

Reg Scalars::function(Op op, DType dtype, std::span<const Reg> v, bool vec) {
  if (op == Op::kPow && is_integral(dtype)) {
    // In 64 bits, whose low ones are the same as in fewer.
    const Reg wide[] = {cast(ir_, dtype, DType::kInt64, v[0]), cast(ir_, dtype, DType::kInt64, v[1])};
    const std::optional<std::string> power = table_function(op, DType::kInt64, wide, vec);
    TATARA_CHECK(power.has_value(), "the math table has no power of integers");
    return cast(ir_, DType::kInt64, dtype, {*power, vec});
  }
  if (!is_llvm_float(dtype)) throw Unsupported(str_cat(scalar_op_name(op), " of ", dtype_name(dtype), " in a kernel"));
  if (op == Op::kPow && vec && !scope_.mask().empty()) {
    // As idle lanes divide: by what raises no flag.
    const std::string t = llvm_type(dtype), one = ir_.splat(t, float_bits(1.0, dtype));
    const Reg given[] = {{ir_.select(scope_.mask(), ir_.type_of(t, true), ir_.as_vec(t, v[0]), one, true), true}, v[1]};
    if (const std::optional<std::string> known = table_function(op, dtype, given, vec)) return {*known, vec};
  }
  if (const std::optional<std::string> known = table_function(op, dtype, v, vec)) return {*known, vec};
  if (op == Op::kSigmoid) return sigmoid(dtype, v, vec);
  const char* name = c_function(op);
  if (name == nullptr) throw Unsupported(str_cat("no code for ", scalar_op_name(op), " yet"));
  return {ir_.per_lane(dtype == DType::kFloat32 ? std::string(name) + "f" : name, dtype, v, vec), vec};
}

/// By C's exponential.
Reg Scalars::sigmoid(DType dtype, std::span<const Reg> v, bool vec) {
  const std::string t = llvm_type(dtype);
  const std::string type = ir_.type_of(t, vec);
  const std::string minus = ir_.assign("fneg " + type + " " + (vec ? ir_.as_vec(t, v[0]) : v[0].text));
  const Reg operand[] = {{minus, vec}};
  const std::string one = vec ? ir_.splat(t, float_bits(1.0, dtype)) : float_bits(1.0, dtype);
  const std::string power = ir_.per_lane(dtype == DType::kFloat32 ? "expf" : "exp", dtype, operand, vec);
  return {ir_.binary("fdiv", type, one, ir_.binary("fadd", type, one, power)), vec};
}

}  // namespace tatara::codegen
