// Scalar operators.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "codegen/emitter.h"
#include "codegen/math_table.h"
#include "support/error.h"

namespace tatara::codegen {

using namespace loops;
using Op = ScalarOp;

std::string float_bits(double value, DType dtype) {
  char buffer[32];
  if (dtype == DType::kFloat16) {
    // LLVM writes half constants as the double they equal; those that are not exact are not constants here.
    std::snprintf(buffer, sizeof(buffer), "0x%016llX", static_cast<unsigned long long>(std::bit_cast<uint64_t>(value)));
    return std::string("fptrunc (double ") + buffer + " to half)";
  }
  const double rounded = dtype == DType::kFloat32 ? static_cast<double>(static_cast<float>(value)) : value;
  std::snprintf(buffer, sizeof(buffer), "0x%016llX", static_cast<unsigned long long>(std::bit_cast<uint64_t>(rounded)));
  return buffer;
}

std::string Emitter::binary(const char* op, const std::string& type, const std::string& a, const std::string& b) {
  return assign(std::string(op) + " " + type + " " + a + ", " + b);
}

std::string Emitter::call(const std::string& name, const std::string& result, const std::string& args) {
  return assign("call " + result + " " + name + "(" + args + ")");
}

std::string Emitter::select(const std::string& condition, const std::string& type, const std::string& a,
                            const std::string& b, bool vec) {
  return assign("select " + type_of("i1", vec) + " " + condition + ", " + type + " " + a + ", " + type + " " + b);
}

std::string Emitter::intrinsic(const char* name, DType dtype, bool vec, std::span<const std::string> args) {
  const std::string type = type_of(llvm_type(dtype), vec);
  std::string suffix = dtype == DType::kFloat32 ? "f32" : dtype == DType::kFloat64 ? "f64" : llvm_type(dtype);
  if (vec) suffix = "v" + std::to_string(lanes_) + suffix;
  const std::string full = std::string("@llvm.") + name + "." + suffix;
  std::string types;
  std::string values;
  for (size_t i = 0; i < args.size(); ++i) {
    types += (i > 0 ? ", " : "") + type;
    values += (i > 0 ? ", " : "") + type + " " + args[i];
  }
  declare("declare " + type + " " + full + "(" + types + ")");
  return call(full, type, values);
}

/// A C function on each lane.
std::string Emitter::per_lane(const std::string& function, DType dtype, std::span<const Reg> v, bool vec) {
  const std::string type = llvm_type(dtype);
  std::string types;
  for (size_t i = 0; i < v.size(); ++i) types += (i > 0 ? ", " : "") + type;
  declare("declare " + type + " @" + function + "(" + types + ")");
  if (!vec) {
    std::string args;
    for (size_t i = 0; i < v.size(); ++i) args += (i > 0 ? ", " : "") + type + " " + v[i].text;
    return call("@" + function, type, args);
  }
  std::string result = "poison";
  std::vector<std::string> vectors;
  for (const Reg& r : v) vectors.push_back(as_vec(type, r));
  for (int lane = 0; lane < lanes_; ++lane) {
    std::string args;
    for (size_t i = 0; i < v.size(); ++i) {
      args += (i > 0 ? ", " : "") + type + " " +
              assign("extractelement " + vec_type(type) + " " + vectors[i] + ", i64 " + std::to_string(lane));
    }
    const std::string one = call("@" + function, type, args);
    result = assign("insertelement " + vec_type(type) + " " + result + ", " + type + " " + one + ", i64 " +
                    std::to_string(lane));
  }
  return result;
}

Reg Emitter::constant(const Scalar& s) {
  if (s.dtype == DType::kBool) return {s.const_int != 0 ? "true" : "false", false};
  if (s.dtype == DType::kBFloat16) throw Unsupported("bfloat16 constants in a kernel");
  if (is_floating(s.dtype)) return {float_bits(s.const_re, s.dtype), false};
  if (is_complex(s.dtype)) throw Unsupported("complex kernels are not generated yet");
  return {std::to_string(s.const_int), false};
}

namespace {
bool floating_in_llvm(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kFloat32 || dtype == DType::kFloat64;
}
}  // namespace

Reg Emitter::cast(DType from, DType to, const Reg& x) {
  if (from == to) return x;
  if (is_complex(from) || is_complex(to)) throw Unsupported("complex kernels are not generated yet");
  const bool vec = x.vec;
  const auto convert = [&](const char* op, const std::string& text, DType a, DType b) {
    return assign(std::string(op) + " " + type_of(llvm_type(a), vec) + " " + text + " to " +
                  type_of(llvm_type(b), vec));
  };
  if (from == DType::kBFloat16) {
    const std::string wide = assign("zext " + type_of("i16", vec) + " " + x.text + " to " + type_of("i32", vec));
    const std::string sixteen = vec ? splat("i32", "16") : "16";
    const std::string bits = binary("shl", type_of("i32", vec), wide, sixteen);
    const std::string value = assign("bitcast " + type_of("i32", vec) + " " + bits + " to " + type_of("float", vec));
    return cast(DType::kFloat32, to, {value, vec});
  }
  if (to == DType::kBFloat16) {
    // Round to nearest even on the bits; NaN stays a quiet NaN.
    const Reg f = cast(from, DType::kFloat32, x);
    const std::string i32 = type_of("i32", vec);
    const auto c = [&](const char* text) { return vec ? splat("i32", text) : std::string(text); };
    const std::string bits = assign("bitcast " + type_of("float", vec) + " " + f.text + " to " + i32);
    const std::string odd = binary("and", i32, binary("lshr", i32, bits, c("16")), c("1"));
    const std::string rounded = binary("add", i32, bits, binary("add", i32, odd, c("32767")));
    const std::string high = binary("lshr", i32, rounded, c("16"));
    const std::string nan = assign("fcmp uno " + type_of("float", vec) + " " + f.text + ", " + f.text);
    const std::string chosen = select(nan, i32, c("32704"), high, vec);
    return {assign("trunc " + i32 + " " + chosen + " to " + type_of("i16", vec)), vec};
  }
  if (is_low_precision(from) && !floating_in_llvm(from)) throw Unsupported("float8 kernels are not generated yet");
  if (is_low_precision(to) && !floating_in_llvm(to)) throw Unsupported("float8 kernels are not generated yet");
  const std::string type = type_of(llvm_type(from), vec);
  if (to == DType::kBool) {
    const char* test = floating_in_llvm(from) ? "fcmp une " : "icmp ne ";
    return {assign(test + type + " " + x.text + ", " +
                   (vec                      ? "zeroinitializer"
                    : floating_in_llvm(from) ? "0.0"
                                             : "0")),
            vec};
  }
  if (floating_in_llvm(from) && floating_in_llvm(to)) {
    if (from == DType::kFloat64 && to == DType::kFloat16)
      return cast(DType::kFloat32, to, cast(from, DType::kFloat32, x));
    return {convert(dtype_size(from) < dtype_size(to) ? "fpext" : "fptrunc", x.text, from, to), vec};
  }
  if (floating_in_llvm(from)) {
    // Through a signed 64-bit integer and then the low bits, as the host's own conversion does for narrow types.
    const DType middle = dtype_size(to) < 4 ? DType::kInt32 : to == DType::kUInt32 ? DType::kInt64 : to;
    std::string value = convert(is_signed(middle) ? "fptosi" : "fptoui", x.text, from, middle);
    value = assign("freeze " + type_of(llvm_type(middle), vec) + " " + value);
    if (dtype_size(middle) > dtype_size(to)) value = convert("trunc", value, middle, to);
    return {value, vec};
  }
  if (floating_in_llvm(to)) {
    const bool sign = from != DType::kBool && is_signed(from);
    if (to == DType::kFloat16) return cast(DType::kFloat32, to, cast(from, DType::kFloat32, x));
    return {convert(sign ? "sitofp" : "uitofp", x.text, from, to), vec};
  }
  const int a = from == DType::kBool ? 0 : dtype_size(from);
  if (a == dtype_size(to)) return x;
  const bool sign = from != DType::kBool && is_signed(from);
  return {convert(a > dtype_size(to) ? "trunc" : sign ? "sext" : "zext", x.text, from, to), vec};
}

Reg Emitter::comparison(const Scalar& s, std::span<const Reg> v, bool vec) {
  const DType type = dtype(s.operands[0]);
  const bool floating = floating_in_llvm(type);
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
  const std::string a = vec ? as_vec(t, v[0]) : v[0].text;
  const std::string b = vec ? as_vec(t, v[1]) : v[1].text;
  return {assign(std::string(test) + " " + type_of(t, vec) + " " + a + ", " + b), vec};
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
    return {assign("bitcast " + type_of(llvm_type(dtype(s.operands[0])), vec) + " " + v[0].text + " to " +
                   type_of(llvm_type(s.dtype), vec)),
            vec};
  }
  if (s.op >= Op::kEq && s.op <= Op::kGe) return comparison(s, v, vec);
  if (s.op == Op::kSelect) {
    const std::string t = llvm_type(s.dtype);
    if (!vec) return {select(v[0].text, t, v[1].text, v[2].text, false), false};
    return {select(as_vec("i1", v[0]), vec_type(t), as_vec(t, v[1]), as_vec(t, v[2]), true), true};
  }
  return arithmetic(s, v, vec);
}

Reg Emitter::arithmetic(const Scalar& s, std::span<const Reg> v, bool vec) {
  const DType in = s.operands.empty() ? s.dtype : dtype(s.operands[0]);
  if (is_complex(in) || is_complex(s.dtype)) throw Unsupported("complex kernels are not generated yet");
  const bool floating = floating_in_llvm(in);
  const bool sign = in != DType::kBool && is_signed(in);
  const std::string t = llvm_type(in);
  const std::string type = type_of(t, vec);
  std::vector<std::string> x;
  for (const Reg& r : v) x.push_back(vec ? as_vec(t, r) : r.text);
  const auto two = [&](const char* f, const char* i) -> Reg {
    return {binary(floating ? f : i, type, x[0], x[1]), vec};
  };
  const auto zero = [&] { return std::string(vec ? "zeroinitializer" : floating ? "0.0" : "0"); };
  const auto one_of = [&](const char* name, std::span<const std::string> args) -> Reg {
    return {intrinsic(name, in, vec, args), vec};
  };
  switch (s.op) {
    case Op::kAdd: return two("fadd", in == DType::kBool ? "or" : "add");
    case Op::kSub: return two("fsub", "sub");
    case Op::kMul: return two("fmul", in == DType::kBool ? "and" : "mul");
    case Op::kDiv: return two("fdiv", "sdiv");
    case Op::kNeg:
      if (floating) return {assign("fneg " + type + " " + x[0]), vec};
      return {binary("sub", type, zero(), x[0]), vec};
    case Op::kAbs: {
      if (floating) return one_of("fabs", x);
      if (!sign) return {x[0], vec};
      const std::string negative = assign("icmp slt " + type + " " + x[0] + ", " + zero());
      return {select(negative, type, binary("sub", type, zero(), x[0]), x[0], vec), vec};
    }
    case Op::kMin:
    case Op::kMax: {
      const bool least = s.op == Op::kMin;
      if (floating) return one_of(least ? "minimum" : "maximum", x);
      const std::string test = std::string("icmp ") + (sign ? (least ? "slt " : "sgt ") : (least ? "ult " : "ugt "));
      return {select(assign(test + type + " " + x[0] + ", " + x[1]), type, x[0], x[1], vec), vec};
    }
    case Op::kFmin: return floating ? one_of("minnum", x) : two("", "");
    case Op::kFmax: return floating ? one_of("maxnum", x) : two("", "");
    case Op::kFma: return one_of("fma", x);
    case Op::kAnd: return {binary("and", type, x[0], x[1]), vec};
    case Op::kOr: return {binary("or", type, x[0], x[1]), vec};
    case Op::kXor: return {binary("xor", type, x[0], x[1]), vec};
    case Op::kShl: return {binary("shl", type, x[0], x[1]), vec};
    case Op::kShr: return {binary(sign ? "ashr" : "lshr", type, x[0], x[1]), vec};
    case Op::kNot: {
      const std::string ones = in == DType::kBool ? "true" : "-1";
      return {binary("xor", type, x[0], vec ? splat(t, ones) : ones), vec};
    }
    case Op::kIsNan: return {assign("fcmp uno " + type + " " + x[0] + ", " + x[0]), vec};
    case Op::kIsInf: {
      const std::string magnitude = intrinsic("fabs", in, vec, x);
      const std::string infinite = float_bits(INFINITY, in);
      return {assign("fcmp oeq " + type + " " + magnitude + ", " + (vec ? splat(t, infinite) : infinite)), vec};
    }
    case Op::kSignbit: {
      const std::string i = "i" + std::to_string(dtype_size(in) * 8);
      const std::string bits = assign("bitcast " + type + " " + x[0] + " to " + type_of(i, vec));
      return {assign("icmp slt " + type_of(i, vec) + " " + bits + ", " + (vec ? "zeroinitializer" : "0")), vec};
    }
    case Op::kFloor: return one_of("floor", x);
    case Op::kCeil: return one_of("ceil", x);
    case Op::kTrunc: return one_of("trunc", x);
    case Op::kRound: return one_of("roundeven", x);
    case Op::kSqrt: return one_of("sqrt", x);
    case Op::kCopysign: return one_of("copysign", x);
    case Op::kReciprocal:
    case Op::kRsqrt: {
      const std::string one = float_bits(1.0, in);
      const std::string divisor = s.op == Op::kRsqrt ? intrinsic("sqrt", in, vec, x) : x[0];
      return {binary("fdiv", type, vec ? splat(t, one) : one, divisor), vec};
    }
    default:  // NOLINT: everything else is a function
      return function(s.op, in, v, vec);
  }
}

bool Emitter::table_function(Op op, DType dtype, std::span<const Reg> v, bool vec, std::string& result) {
  const MathTarget target{vec ? lanes_ : 0, target_.has_fma, "#0"};
  const MathForm form = math_form(op, dtype, target);
  if (form == MathForm::kNone) return false;
  const std::string type = llvm_type(dtype);
  MathBuilder builder({&out_, &next_, &current_block_, &declarations_}, target.lanes, target.has_fma);
  std::vector<Val> args;
  std::string operands;
  for (const Reg& r : v) {
    args.push_back(builder.value(dtype == DType::kFloat32 ? Lane::kF32 : Lane::kF64, vec ? as_vec(type, r) : r.text));
    operands += (operands.empty() ? "" : ", ") + type_of(type, vec) + " " + args.back().text;
  }
  if (form == MathForm::kInline) {
    result = expand_math(op, builder, args).text;
  } else {
    result = call(define_math(op, dtype, target, declarations_), type_of(type, vec), operands);
  }
  return true;
}

Reg Emitter::function(Op op, DType dtype, std::span<const Reg> v, bool vec) {
  if (!floating_in_llvm(dtype))
    throw Unsupported(str_cat(scalar_op_name(op), " of ", dtype_name(dtype), " in a kernel"));
  std::string value;
  if (table_function(op, dtype, v, vec, value)) return {value, vec};
  if (op == Op::kSigmoid) {
    const std::string type = type_of(llvm_type(dtype), vec);
    const std::string minus = assign("fneg " + type + " " + (vec ? as_vec(llvm_type(dtype), v[0]) : v[0].text));
    const Reg operand[] = {{minus, vec}};
    const std::string one = vec ? splat(llvm_type(dtype), float_bits(1.0, dtype)) : float_bits(1.0, dtype);
    const std::string sum =
        binary("fadd", type, one, per_lane(dtype == DType::kFloat32 ? "expf" : "exp", dtype, operand, vec));
    return {binary("fdiv", type, one, sum), vec};
  }
  const char* name = nullptr;
  switch (op) {
    case Op::kExp: name = "exp"; break;
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
  return {per_lane(dtype == DType::kFloat32 ? std::string(name) + "f" : name, dtype, v, vec), vec};
}

}  // namespace tatara::codegen
