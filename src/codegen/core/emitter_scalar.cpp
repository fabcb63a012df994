// Scalar operators.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "codegen/core/emitter.h"
#include "codegen/math/table.h"
#include "support/error.h"

namespace tatara::codegen {

using namespace loops;
using Op = ScalarOp;

Reg Emitter::comparison(const Scalar& s, std::span<const Reg> v, bool vec) {
  const DType type = dtype(s.operands[0]);
  if (is_complex(type)) return complex_comparison(s.op, type, v[0], v[1], vec);
  const bool floating = is_llvm_float(type);
  const bool sign = type != DType::kBool && is_signed(type);
  const char* test = "";
  switch (s.op) {
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

Reg Emitter::scalar(const Scalar& s) {
  if (s.op == Op::kConst) return constant(s);
  if (s.op == Op::kIndex) {
    const bool vec = varies(s.index);
    return cast(DType::kInt64, s.dtype, {index_expr(s.index, vec), vec});
  }
  std::vector<Reg> v;
  bool vec = false;
  for (const ScalarId id : s.operands) {
    v.push_back(reg(id));
    vec = vec || v.back().vec;
  }
  if (s.op == Op::kCast) return cast(dtype(s.operands[0]), s.dtype, v[0]);
  if (s.op == Op::kBitcast) {
    return {ir_.assign("bitcast " + ir_.type_of(llvm_type(dtype(s.operands[0])), vec) + " " + v[0].text + " to " +
                       ir_.type_of(llvm_type(s.dtype), vec)),
            vec};
  }
  if (s.op >= Op::kEq && s.op <= Op::kGe) return comparison(s, v, vec);
  if (s.op == Op::kSelect) return choose(s.dtype, v[0], v[1], v[2], vec);
  return arithmetic(s, v, vec);
}

Reg Emitter::arithmetic(const Scalar& s, std::span<const Reg> v, bool vec) {
  const DType in = s.operands.empty() ? s.dtype : dtype(s.operands[0]);
  if (is_complex(in) || is_complex(s.dtype)) return complex_arithmetic(s, v, vec);
  const bool floating = is_llvm_float(in);
  const bool sign = in != DType::kBool && is_signed(in);
  const std::string t = llvm_type(in);
  const std::string type = ir_.type_of(t, vec);
  std::vector<std::string> x;
  for (const Reg& r : v) x.push_back(vec ? ir_.as_vec(t, r) : r.text);
  const auto two = [&](const char* f, const char* i) -> Reg {
    return {ir_.binary(floating ? f : i, type, x[0], x[1]), vec};
  };
  const auto zero = [&] { return std::string(vec ? "zeroinitializer" : floating ? "0.0" : "0"); };
  const auto one_of = [&](const char* name, std::span<const std::string> args) -> Reg {
    return {ir_.intrinsic(name, in, vec, args), vec};
  };
  switch (s.op) {
    case Op::kAdd: return two("fadd", in == DType::kBool ? "or" : "add");
    case Op::kSub: return two("fsub", "sub");
    case Op::kMul: return two("fmul", in == DType::kBool ? "and" : "mul");
    case Op::kDiv: {
      const auto divisor = constants_.find(s.operands[1]);
      if (!gpu_same_.empty() && gpu_inside_ && !vec && in == DType::kFloat32) {
        // By a count of elements, which need not be rounded correctly: a call that rounds would keep loads from running ahead.
        const Reg count[] = {{x[1], false}};
        const std::string about = ir_.per_lane("llvm.nvvm.rcp.approx.ftz.f", in, count, false);
        const std::string rest = ir_.binary("fsub", type, float_bits(2.0, in), ir_.binary("fmul", type, x[1], about));
        return {ir_.binary("fmul", type, x[0], ir_.binary("fmul", type, about, rest)), false};
      }
      if (!on_gpu() || in != DType::kFloat32 || divisor == constants_.end()) return two("fdiv", "sdiv");
      // As eager divides by a number there.
      const std::string reciprocal = float_bits(1.0F / static_cast<float>(divisor->second), in);
      return {ir_.binary("fmul", type, x[0], vec ? ir_.splat(t, reciprocal) : reciprocal), vec};
    }
    case Op::kNeg:
      if (floating) return {ir_.assign("fneg " + type + " " + x[0]), vec};
      return {ir_.binary("sub", type, zero(), x[0]), vec};
    case Op::kAbs: {
      if (floating) return one_of("fabs", x);
      if (!sign) return {x[0], vec};
      const std::string negative = ir_.assign("icmp slt " + type + " " + x[0] + ", " + zero());
      return {ir_.select(negative, type, ir_.binary("sub", type, zero(), x[0]), x[0], vec), vec};
    }
    case Op::kMin:
    case Op::kMax: {
      const bool least = s.op == Op::kMin;
      if (floating && on_gpu() && in == DType::kFloat32) return one_of(least ? "minimum" : "maximum", x);
      if (floating) {
        // One min or max instruction, which gives its second operand when either is NaN, and a repair for the first.
        // The sign of a zero among zeros is not decided, as in eager.
        const std::string ahead =
            ir_.assign(std::string("fcmp ") + (least ? "olt " : "ogt ") + type + " " + x[0] + ", " + x[1]);
        const std::string best = ir_.select(ahead, type, x[0], x[1], vec);
        const std::string nan = ir_.assign("fcmp uno " + type + " " + x[0] + ", " + x[0]);
        return {ir_.select(nan, type, x[0], best, vec), vec};
      }
      const std::string test = std::string("icmp ") + (sign ? (least ? "slt " : "sgt ") : (least ? "ult " : "ugt "));
      return {ir_.select(ir_.assign(test + type + " " + x[0] + ", " + x[1]), type, x[0], x[1], vec), vec};
    }
    case Op::kFmin:
    case Op::kFmax: {
      if (floating) return one_of(s.op == Op::kFmin ? "minnum" : "maxnum", x);
      Scalar other = s;
      other.op = s.op == Op::kFmin ? Op::kMin : Op::kMax;
      return arithmetic(other, v, vec);
    }
    case Op::kFloorDiv:
    case Op::kTruncDiv:
    case Op::kMod:
    case Op::kFmod: {
      const Reg a{x[0], vec};
      const Reg b{x[1], vec};
      return floating ? real_division(s.op, in, a, b, vec) : integer_division(s.op, in, a, b, vec);
    }
    case Op::kFma: return one_of("fma", x);
    case Op::kAnd: return {ir_.binary("and", type, x[0], x[1]), vec};
    case Op::kOr: return {ir_.binary("or", type, x[0], x[1]), vec};
    case Op::kXor: return {ir_.binary("xor", type, x[0], x[1]), vec};
    case Op::kShl:
    case Op::kShr: return shift(s.op, in, {x[0], vec}, {x[1], vec}, vec);
    case Op::kNot: {
      const std::string ones = in == DType::kBool ? "true" : "-1";
      return {ir_.binary("xor", type, x[0], vec ? ir_.splat(t, ones) : ones), vec};
    }
    case Op::kIsNan: return {ir_.assign("fcmp uno " + type + " " + x[0] + ", " + x[0]), vec};
    case Op::kIsInf: {
      const std::string magnitude = ir_.intrinsic("fabs", in, vec, x);
      const std::string infinite = float_bits(INFINITY, in);
      return {ir_.assign("fcmp oeq " + type + " " + magnitude + ", " + (vec ? ir_.splat(t, infinite) : infinite)), vec};
    }
    case Op::kSignbit: {
      const std::string i = "i" + std::to_string(dtype_size(in) * 8);
      const std::string bits = ir_.assign("bitcast " + type + " " + x[0] + " to " + ir_.type_of(i, vec));
      return {ir_.assign("icmp slt " + ir_.type_of(i, vec) + " " + bits + ", " + (vec ? "zeroinitializer" : "0")), vec};
    }
    case Op::kFloor: return one_of("floor", x);
    case Op::kCeil: return one_of("ceil", x);
    case Op::kTrunc: return one_of("trunc", x);
    case Op::kRound: return one_of("roundeven", x);
    case Op::kSqrt: return one_of("sqrt", x);
    case Op::kCopysign: return one_of("copysign", x);
    case Op::kReciprocal:
    case Op::kRsqrt: {
      // As eager computes it there.
      if (on_gpu() && s.op == Op::kRsqrt && in == DType::kFloat32) {
        return {ir_.per_lane("llvm.nvvm.rsqrt.approx.f", in, v, vec), vec};
      }
      const std::string one = float_bits(1.0, in);
      const std::string divisor = s.op == Op::kRsqrt ? ir_.intrinsic("sqrt", in, vec, x) : x[0];
      return {ir_.binary("fdiv", type, vec ? ir_.splat(t, one) : one, divisor), vec};
    }
    default:  // NOLINT: everything else is a function
      return function(s.op, in, v, vec);
  }
}

bool Emitter::table_function(Op op, DType dtype, std::span<const Reg> v, bool vec, std::string& result) {
  const MathTarget target{vec ? ir_.lanes() : 0, target_.has_fma, target_.isa == VectorIsa::kAvx512, "#0", on_gpu()};
  const MathForm form = math_form(op, dtype, target);
  if (form == MathForm::kNone) return false;
  const std::string type = llvm_type(dtype);
  MathBuilder builder(ir_, target);
  std::vector<Val> args;
  std::string operands;
  for (const Reg& r : v) {
    args.push_back(builder.value(math_lane(dtype), vec ? ir_.as_vec(type, r) : r.text));
    operands += (operands.empty() ? "" : ", ") + ir_.type_of(type, vec) + " " + args.back().text;
  }
  if (form == MathForm::kInline) {
    result = expand_math(op, args).text;
  } else {
    result = ir_.call(define_math(op, dtype, target, declarations_), ir_.type_of(type, vec), operands);
  }
  return true;
}

Reg Emitter::function(Op op, DType dtype, std::span<const Reg> v, bool vec) {
  if (op == Op::kPow && is_integral(dtype)) {
    // In 64 bits, whose low ones are the same as in fewer.
    const Reg wide[] = {cast(dtype, DType::kInt64, v[0]), cast(dtype, DType::kInt64, v[1])};
    std::string power;
    table_function(op, DType::kInt64, wide, vec, power);
    return cast(DType::kInt64, dtype, {power, vec});
  }
  if (!is_llvm_float(dtype)) throw Unsupported(str_cat(scalar_op_name(op), " of ", dtype_name(dtype), " in a kernel"));
  std::string value;
  if (table_function(op, dtype, v, vec, value)) return {value, vec};
  if (op == Op::kSigmoid) {
    const std::string type = ir_.type_of(llvm_type(dtype), vec);
    const std::string minus = ir_.assign("fneg " + type + " " + (vec ? ir_.as_vec(llvm_type(dtype), v[0]) : v[0].text));
    const Reg operand[] = {{minus, vec}};
    const std::string one = vec ? ir_.splat(llvm_type(dtype), float_bits(1.0, dtype)) : float_bits(1.0, dtype);
    const std::string sum =
        ir_.binary("fadd", type, one, ir_.per_lane(dtype == DType::kFloat32 ? "expf" : "exp", dtype, operand, vec));
    return {ir_.binary("fdiv", type, one, sum), vec};
  }
  const char* name = nullptr;
  switch (op) {
    case Op::kExp:
    case Op::kExpTerm: name = "exp"; break;
    case Op::kExp2: name = "exp2"; break;
    case Op::kExpm1: name = "expm1"; break;
    case Op::kLog: name = "log"; break;
    case Op::kLog2: name = "log2"; break;
    case Op::kLog10: name = "log10"; break;
    case Op::kLog1p: name = "log1p"; break;
    case Op::kSin: name = "sin"; break;
    case Op::kCos: name = "cos"; break;
    case Op::kTan: name = "tan"; break;
    case Op::kAsin: name = "asin"; break;
    case Op::kAcos: name = "acos"; break;
    case Op::kAtan: name = "atan"; break;
    case Op::kAtan2: name = "atan2"; break;
    case Op::kSinh: name = "sinh"; break;
    case Op::kCosh: name = "cosh"; break;
    case Op::kTanh: name = "tanh"; break;
    case Op::kAsinh: name = "asinh"; break;
    case Op::kAcosh: name = "acosh"; break;
    case Op::kAtanh: name = "atanh"; break;
    case Op::kErf: name = "erf"; break;
    case Op::kErfc: name = "erfc"; break;
    case Op::kLgamma: name = "lgamma"; break;
    case Op::kPow: name = "pow"; break;
    case Op::kHypot: name = "hypot"; break;
    case Op::kNextafter: name = "nextafter"; break;
    case Op::kFmod: name = "fmod"; break;
    default: break;  // NOLINT: the rest has no function in C
  }
  if (name == nullptr) throw Unsupported(str_cat("no code for ", scalar_op_name(op), " yet"));
  return {ir_.per_lane(dtype == DType::kFloat32 ? std::string(name) + "f" : name, dtype, v, vec), vec};
}

}  // namespace tatara::codegen
