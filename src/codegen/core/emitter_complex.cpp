// Complex scalars: a pair of reals in two registers. Products and quotients follow the host's own order of operations;
// the other functions are the C library's, lane by lane, as in eager.
#include <array>
#include <cmath>

#include "codegen/core/emitter.h"
#include "support/error.h"

namespace tatara::codegen {

using namespace loops;
using Op = ScalarOp;

Reg Emitter::widened(DType dtype, const Reg& r) {
  if (r.vec || ir_.lanes() == 1) return r;
  const std::string part = llvm_type(real_dtype(dtype));
  Reg wide{ir_.splat(part, r.text), true};
  if (is_complex(dtype)) wide.im = ir_.splat(part, r.im);
  return wide;
}

Reg Emitter::lane_of(DType dtype, const Reg& value, int lane) {
  const std::string type = ir_.vec_type(llvm_type(real_dtype(dtype)));
  const auto take = [&](const std::string& v) {
    return ir_.assign("extractelement " + type + " " + v + ", i64 " + std::to_string(lane));
  };
  Reg one{take(value.text), false};
  if (is_complex(dtype)) one.im = take(value.im);
  return one;
}

Reg Emitter::choose(DType dtype, const Reg& condition, const Reg& a, const Reg& b, bool vec) {
  const std::string part = llvm_type(real_dtype(dtype));
  if (!vec) {
    Reg result{ir_.select(condition.text, part, a.text, b.text, false), false};
    if (is_complex(dtype)) result.im = ir_.select(condition.text, part, a.im, b.im, false);
    return result;
  }
  const Reg x = widened(dtype, a);
  const Reg y = widened(dtype, b);
  const std::string type = ir_.vec_type(part);
  // One condition for all lanes stays a scalar.
  const auto pick = [&](const std::string& p, const std::string& q) {
    if (condition.vec) return ir_.select(condition.text, type, p, q, true);
    return ir_.assign("select i1 " + condition.text + ", " + type + " " + p + ", " + type + " " + q);
  };
  Reg result{pick(x.text, y.text), true};
  if (is_complex(dtype)) result.im = pick(x.im, y.im);
  return result;
}

Reg Emitter::complex_cast(DType from, DType to, const Reg& x) {
  const DType a = real_dtype(from);
  if (!is_complex(to)) {
    if (to != DType::kBool) return cast(a, to, {x.text, x.vec});
    const std::string re = cast(a, to, {x.text, x.vec}).text;
    const std::string im = cast(a, to, {x.im, x.vec}).text;
    return {ir_.binary("or", ir_.type_of("i1", x.vec), re, im), x.vec};
  }
  const DType b = real_dtype(to);
  Reg result = cast(a, b, {x.text, x.vec});
  result.im = is_complex(from) ? cast(a, b, {x.im, x.vec}).text : (x.vec ? "zeroinitializer" : float_bits(0, b));
  return result;
}

/// |a + bi| without overflow: squares of magnitudes beyond the middle of the exponents are taken of scaled numbers. The
/// scale is a power of two, so the error is that of one sum and one root.
std::string Emitter::magnitude(const std::string& re, const std::string& im, DType part, bool vec) {
  const bool single = part == DType::kFloat32;
  const std::string t = llvm_type(part);
  const std::string type = ir_.type_of(t, vec);
  const auto c = [&](double value) {
    const std::string text = float_bits(value, part);
    return vec ? "splat (" + t + " " + text + ")" : text;
  };
  const std::string first[] = {re};
  const std::string second[] = {im};
  const std::string a = ir_.intrinsic("fabs", part, vec, first);
  const std::string b = ir_.intrinsic("fabs", part, vec, second);
  // The greater one, where neither is NaN; an infinity wins over NaN below.
  const std::string above = ir_.assign("fcmp ogt " + type + " " + a + ", " + b);
  const std::string top = ir_.select(above, type, a, b, vec);
  const std::string big = ir_.assign("fcmp ogt " + type + " " + top + ", " + c(std::ldexp(1.0, single ? 62 : 510)));
  const std::string small = ir_.assign("fcmp olt " + type + " " + top + ", " + c(std::ldexp(1.0, single ? -40 : -400)));
  const auto scale = [&](int down, int up) {
    return ir_.select(big, type, c(std::ldexp(1.0, down)), ir_.select(small, type, c(std::ldexp(1.0, up)), c(1.0), vec),
                      vec);
  };
  const std::string there = single ? scale(-68, 100) : scale(-600, 600);
  const std::string back = single ? scale(68, -100) : scale(600, -600);
  const std::string x = ir_.binary("fmul", type, a, there);
  const std::string y = ir_.binary("fmul", type, b, there);
  const std::string square = ir_.binary("fmul", type, y, y);
  std::string sum;
  if (target_.has_fma) {
    const std::string operands[] = {x, x, square};
    sum = ir_.intrinsic("fma", part, vec, operands);
  } else {
    sum = ir_.binary("fadd", type, ir_.binary("fmul", type, x, x), square);
  }
  const std::string operand[] = {sum};
  const std::string root = ir_.binary("fmul", type, ir_.intrinsic("sqrt", part, vec, operand), back);
  const auto infinite = [&](const std::string& v) {
    return ir_.assign("fcmp oeq " + type + " " + v + ", " + c(INFINITY));
  };
  const std::string any = ir_.binary("or", ir_.type_of("i1", vec), infinite(a), infinite(b));
  return ir_.select(any, type, c(INFINITY), root, vec);
}

/// Smith's method (Communications of the ACM 5, 1962), with the host's result for a zero divisor: the parts divided by +0.
Reg Emitter::quotient(const Reg& x, const Reg& y, DType part, bool vec) {
  const std::string t = llvm_type(part);
  const std::string type = ir_.type_of(t, vec);
  const auto c = [&](double value) {
    const std::string text = float_bits(value, part);
    return vec ? "splat (" + t + " " + text + ")" : text;
  };
  const std::string first[] = {y.text};
  const std::string second[] = {y.im};
  const std::string p = ir_.intrinsic("fabs", part, vec, first);
  const std::string q = ir_.intrinsic("fabs", part, vec, second);
  const std::string wide = ir_.assign("fcmp oge " + type + " " + p + ", " + q);
  const auto pick = [&](const std::string& a, const std::string& b) { return ir_.select(wide, type, a, b, vec); };
  const std::string major = pick(y.text, y.im);
  const std::string minor = pick(y.im, y.text);
  const std::string nothing = ir_.assign("fcmp oeq " + type + " " + pick(p, q) + ", " + c(0.0));
  const std::string ratio = ir_.binary("fdiv", type, minor, major);
  const std::string whole = ir_.binary("fadd", type, major, ir_.binary("fmul", type, minor, ratio));
  const std::string scale = ir_.binary("fdiv", type, c(1.0), ir_.select(nothing, type, p, whole, vec));
  // wide: a + b*r, b - a*r; else a*r + b, b*r - a
  const std::string ar = ir_.binary("fmul", type, x.text, ratio);
  const std::string br = ir_.binary("fmul", type, x.im, ratio);
  const std::string re = ir_.binary("fadd", type, pick(x.text, ar), pick(br, x.im));
  const std::string im = ir_.binary("fsub", type, pick(x.im, br), pick(ar, x.text));
  return {ir_.binary("fmul", type, ir_.select(nothing, type, x.text, re, vec), scale), vec,
          ir_.binary("fmul", type, ir_.select(nothing, type, x.im, im, vec), scale)};
}

Reg Emitter::complex_arithmetic(const Scalar& s, std::span<const Reg> v, bool vec) {
  if (s.op == Op::kComplex) {
    const DType in = dtype(s.operands[0]);
    const Reg re = vec ? widened(in, v[0]) : v[0];
    const Reg im = vec ? widened(in, v[1]) : v[1];
    return {re.text, vec, im.text};
  }
  const DType in = s.operands.empty() ? s.dtype : dtype(s.operands[0]);
  const DType part = real_dtype(in);
  const std::string type = ir_.type_of(llvm_type(part), vec);
  std::array<Reg, 2> x;
  TATARA_CHECK(!v.empty() && v.size() <= 2, "operands of complex ", scalar_op_name(s.op));
  for (size_t i = 0; i < v.size(); ++i) x[i] = vec ? widened(in, v[i]) : v[i];
  const auto both = [&](const char* op) -> Reg {
    return {ir_.binary(op, type, x[0].text, x[1].text), vec, ir_.binary(op, type, x[0].im, x[1].im)};
  };
  const auto negative = [&](const std::string& text) { return ir_.assign("fneg " + type + " " + text); };
  const auto test = [&](Op op) -> Reg {
    Scalar one{};
    one.op = op;
    one.dtype = part;
    const Reg re[] = {{x[0].text, vec}};
    const Reg im[] = {{x[0].im, vec}};
    return {ir_.binary("or", ir_.type_of("i1", vec), arithmetic(one, re, vec).text, arithmetic(one, im, vec).text),
            vec};
  };
  switch (s.op) {
    case Op::kAdd: return both("fadd");
    case Op::kSub: return both("fsub");
    case Op::kMul: {
      const auto times = [&](const std::string& a, const std::string& b) { return ir_.binary("fmul", type, a, b); };
      const std::string re = ir_.binary("fsub", type, times(x[0].text, x[1].text), times(x[0].im, x[1].im));
      return {re, vec, ir_.binary("fadd", type, times(x[0].text, x[1].im), times(x[0].im, x[1].text))};
    }
    case Op::kDiv: return quotient(x[0], x[1], part, vec);
    case Op::kReciprocal: {
      const Reg one = vec ? widened(in, {float_bits(1, part), false, float_bits(0, part)})
                          : Reg{float_bits(1, part), false, float_bits(0, part)};
      return quotient(one, x[0], part, vec);
    }
    case Op::kNeg: return {negative(x[0].text), vec, negative(x[0].im)};
    case Op::kConj: return {x[0].text, vec, negative(x[0].im)};
    case Op::kReal: return {x[0].text, vec};
    case Op::kImag: return {x[0].im, vec};
    case Op::kAbs: return {magnitude(x[0].text, x[0].im, part, vec), vec};
    case Op::kAngle: {
      const Reg operands[] = {{x[0].im, vec}, {x[0].text, vec}};
      return function(Op::kAtan2, part, operands, vec);
    }
    case Op::kIsNan:
    case Op::kIsInf: return test(s.op);
    default: return complex_function(s.op, part, std::span(x).first(v.size()), vec);  // NOLINT: functions of libm
  }
}

Reg Emitter::complex_comparison(Op op, DType in, const Reg& a, const Reg& b, bool vec) {
  const Reg x = vec ? widened(in, a) : a;
  const Reg y = vec ? widened(in, b) : b;
  const std::string type = ir_.type_of(llvm_type(real_dtype(in)), vec);
  if (op != Op::kEq && op != Op::kNe) throw Unsupported("an order of complex numbers");
  const auto test = [&](const std::string& p, const std::string& q) {
    return ir_.assign(std::string("fcmp ") + (op == Op::kEq ? "oeq " : "une ") + type + " " + p + ", " + q);
  };
  const std::string re = test(x.text, y.text);
  return {ir_.binary(op == Op::kEq ? "and" : "or", ir_.type_of("i1", vec), re, test(x.im, y.im)), vec};
}

/// A function of libm on each lane. Complex numbers are passed as C does: on x86-64 a float pair shares one vector
/// register; everywhere else (and for double) the parts are separate.
Reg Emitter::complex_function(Op op, DType part, std::span<const Reg> v, bool vec) {
  const char* name = nullptr;
  switch (op) {
    case Op::kExp: name = "cexp"; break;
    case Op::kLog: name = "clog"; break;
    case Op::kSqrt: name = "csqrt"; break;
    case Op::kPow: name = "cpow"; break;
    case Op::kSin: name = "csin"; break;
    case Op::kCos: name = "ccos"; break;
    case Op::kTan: name = "ctan"; break;
    case Op::kAsin: name = "casin"; break;
    case Op::kAcos: name = "cacos"; break;
    case Op::kAtan: name = "catan"; break;
    case Op::kSinh: name = "csinh"; break;
    case Op::kCosh: name = "ccosh"; break;
    case Op::kTanh: name = "ctanh"; break;
    case Op::kAsinh: name = "casinh"; break;
    case Op::kAcosh: name = "cacosh"; break;
    case Op::kAtanh: name = "catanh"; break;
    default: break;  // NOLINT: the rest has no complex function in C
  }
  if (name == nullptr) throw Unsupported(str_cat("no code for ", scalar_op_name(op), " of complex numbers"));
  const bool shared = part == DType::kFloat32 && target_.isa != VectorIsa::kNeon;
  const std::string t = llvm_type(part);
  const std::string pair = shared ? "<2 x " + t + ">" : "{ " + t + ", " + t + " }";
  const std::string function = std::string("@") + name + (part == DType::kFloat32 ? "f" : "");
  std::string types;
  for (size_t i = 0; i < v.size(); ++i) types += (i > 0 ? ", " : "") + (shared ? pair : t + ", " + t);
  ir_.declare("declare " + pair + " " + function + "(" + types + ")");
  const auto lane = [&](const std::string& text, int i) {
    return vec ? ir_.assign("extractelement " + ir_.vec_type(t) + " " + text + ", i64 " + std::to_string(i)) : text;
  };
  Reg result{"poison", vec, "poison"};
  for (int i = 0; i < (vec ? ir_.lanes() : 1); ++i) {
    std::string args;
    for (size_t k = 0; k < v.size(); ++k) {
      const std::string re = lane(v[k].text, i);
      const std::string im = lane(v[k].im, i);
      if (shared) {
        const std::string low = ir_.assign("insertelement " + pair + " poison, " + t + " " + re + ", i64 0");
        args += (k > 0 ? ", " : "") + pair + " " +
                ir_.assign("insertelement " + pair + " " + low + ", " + t + " " + im + ", i64 1");
      } else {
        args += (k > 0 ? ", " : "") + t + " " + re + ", " + t + " " + im;
      }
    }
    const std::string both = ir_.call(function, pair, args);
    const auto part_of = [&](int k) {
      return shared ? ir_.assign("extractelement " + pair + " " + both + ", i64 " + std::to_string(k))
                    : ir_.assign("extractvalue " + pair + " " + both + ", " + std::to_string(k));
    };
    const auto put = [&](std::string& into, const std::string& value) {
      into = vec ? ir_.assign("insertelement " + ir_.vec_type(t) + " " + into + ", " + t + " " + value + ", i64 " +
                              std::to_string(i))
                 : value;
    };
    put(result.text, part_of(0));
    put(result.im, part_of(1));
  }
  return result;
}

}  // namespace tatara::codegen
