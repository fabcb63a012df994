// Functions of float32, expanded in place. The polynomials are least-squares fits on Chebyshev nodes with Lawson's
// reweighting toward the minimax error (C. L. Lawson, 1961), computed in 40 digits by tools/fit_math.py.
#include <array>
#include <cmath>

#include "codegen/emitter.h"

namespace tatara::codegen {

std::string Emitter::fconst(double value, bool vec) const {
  const std::string one = float_bits(value, DType::kFloat32);
  if (!vec) return one;
  return "splat (float " + one + ")";
}

std::string Emitter::fma(const std::string& a, const std::string& b, const std::string& c, bool vec) {
  const std::string args[] = {a, b, c};
  if (target_.has_fma) return intrinsic("fma", DType::kFloat32, vec, args);
  const std::string type = type_of("float", vec);
  return binary("fadd", type, binary("fmul", type, a, b), c);
}

/// Horner's scheme, coefficients from the constant term up.
std::string Emitter::poly(const std::string& x, std::span<const double> c, bool vec) {
  std::string value = fconst(c.back(), vec);
  for (size_t i = c.size() - 1; i-- > 0;) value = fma(value, x, fconst(c[i], vec), vec);
  return value;
}

/// exp(x) = 2^k * exp(r), |r| <= ln2/2; k is applied in two halves, so that results reach down into the subnormals.
std::string Emitter::exp_f32(const std::string& x, bool vec) {
  static constexpr std::array<double, 5> kP = {0.499999996, 0.166665772, 0.0416668537, 0.00836316213, 0.001390129};
  const std::string f = type_of("float", vec);
  const std::string i = type_of("i32", vec);
  const auto ic = [&](int value) { return vec ? "splat (i32 " + std::to_string(value) + ")" : std::to_string(value); };
  // Outside of this range the result is 0 or infinity anyway; NaN passes through both bounds.
  const std::string low_args[] = {x, fconst(-104.5, vec)};
  const std::string low = intrinsic("maximum", DType::kFloat32, vec, low_args);
  const std::string high_args[] = {low, fconst(89.0, vec)};
  const std::string bounded = intrinsic("minimum", DType::kFloat32, vec, high_args);
  const std::string scaled[] = {binary("fmul", f, bounded, fconst(1.4426950408889634, vec))};
  const std::string k = intrinsic("roundeven", DType::kFloat32, vec, scaled);
  std::string r = fma(k, fconst(-0.693145751953125, vec), bounded, vec);
  r = fma(k, fconst(-1.42860677e-06, vec), r, vec);
  const std::string p = poly(r, kP, vec);
  const std::string square = binary("fmul", f, r, r);
  const std::string tail = fma(square, p, r, vec);
  const std::string e = binary("fadd", f, tail, fconst(1.0, vec));
  std::string whole = assign("fptosi " + f + " " + k + " to " + i);
  whole = assign("freeze " + i + " " + whole);
  const std::string half = binary("ashr", i, whole, ic(1));
  const std::string rest = binary("sub", i, whole, half);
  const auto power = [&](const std::string& n) {
    const std::string bits = binary("shl", i, binary("add", i, n, ic(127)), ic(23));
    return assign("bitcast " + i + " " + bits + " to " + f);
  };
  return binary("fmul", f, binary("fmul", f, e, power(half)), power(rest));
}

/// log(x) = e*ln2 + log(m), m in [sqrt(1/2), sqrt(2)).
std::string Emitter::log_f32(const std::string& x, bool vec) {
  static constexpr std::array<double, 8> kP = {0.3333333,   -0.250003042, 0.20001199,  -0.166415617,
                                               0.142100075, -0.129896398, 0.126552369, -0.0797224867};
  const std::string f = type_of("float", vec);
  const std::string i = type_of("i32", vec);
  const auto ic = [&](int value) { return vec ? "splat (i32 " + std::to_string(value) + ")" : std::to_string(value); };
  // Subnormals are scaled up by 2^23 first.
  const std::string tiny = assign("fcmp olt " + f + " " + x + ", " + fconst(1.17549435e-38, vec));
  const std::string normal = select(tiny, f, binary("fmul", f, x, fconst(8388608.0, vec)), x, vec);
  const std::string bits = assign("bitcast " + f + " " + normal + " to " + i);
  // Subtracting the bits of sqrt(1/2) makes the exponent field count from there.
  const std::string shifted = binary("sub", i, bits, ic(0x3f3504f3));
  const std::string exponent = binary("ashr", i, shifted, ic(23));
  const std::string mantissa = binary("sub", i, bits, binary("shl", i, exponent, ic(23)));
  const std::string m = assign("bitcast " + i + " " + mantissa + " to " + f);
  const std::string e0 = assign("sitofp " + i + " " + exponent + " to " + f);
  const std::string e = select(tiny, f, binary("fadd", f, e0, fconst(-23.0, vec)), e0, vec);
  const std::string t = binary("fadd", f, m, fconst(-1.0, vec));
  const std::string square = binary("fmul", f, t, t);
  const std::string cube = binary("fmul", f, square, t);
  std::string y = binary("fmul", f, cube, poly(t, kP, vec));
  y = fma(e, fconst(-2.12194440e-4, vec), y, vec);
  y = fma(square, fconst(-0.5, vec), y, vec);
  y = binary("fadd", f, t, y);
  y = fma(e, fconst(0.693359375, vec), y, vec);
  // log(0) = -inf, log(inf) = inf, negative: NaN.
  const std::string zero = assign("fcmp oeq " + f + " " + x + ", " + fconst(0.0, vec));
  const std::string infinite = assign("fcmp oeq " + f + " " + x + ", " + fconst(INFINITY, vec));
  const std::string bad = assign("fcmp ult " + f + " " + x + ", " + fconst(0.0, vec));
  y = select(zero, f, fconst(-INFINITY, vec), y, vec);
  y = select(infinite, f, x, y, vec);
  return select(bad, f, vec ? "splat (float 0x7FF8000000000000)" : "0x7FF8000000000000", y, vec);
}

std::string Emitter::tanh_f32(const std::string& x, bool vec) {
  static constexpr std::array<double, 5> kP = {-0.333333284, 0.133327192, -0.05384331, 0.0209615151, -0.00604539637};
  const std::string f = type_of("float", vec);
  const std::string one_arg[] = {x};
  const std::string magnitude = intrinsic("fabs", DType::kFloat32, vec, one_arg);
  const std::string square = binary("fmul", f, x, x);
  const std::string inner = binary("fmul", f, square, poly(square, kP, vec));
  const std::string small = fma(x, inner, x, vec);
  // 1 - 2 / (exp(2|x|) + 1)
  const std::string e = exp_f32(binary("fadd", f, magnitude, magnitude), vec);
  const std::string ratio = binary("fdiv", f, fconst(2.0, vec), binary("fadd", f, e, fconst(1.0, vec)));
  const std::string signed_args[] = {binary("fsub", f, fconst(1.0, vec), ratio), x};
  const std::string large = intrinsic("copysign", DType::kFloat32, vec, signed_args);
  const std::string near = assign("fcmp olt " + f + " " + magnitude + ", " + fconst(0.625, vec));
  return select(near, f, small, large, vec);
}

std::string Emitter::erf_f32(const std::string& x, bool vec) {
  static constexpr std::array<double, 7> kNear = {0.12837917,    -0.37612635,     0.11283715,    -0.0268605084,
                                                  0.00520385912, -0.000817563887, 8.51310232e-05};
  static constexpr std::array<double, 10> kFar = {0.00030264794,  -1.13017645,    -0.631892974,   -0.110055122,
                                                  0.0264370935,   -0.00478107544, 0.000607015716, -4.85997652e-05,
                                                  1.96713903e-06, -1.76648714e-08};
  const std::string f = type_of("float", vec);
  const std::string one_arg[] = {x};
  const std::string magnitude = intrinsic("fabs", DType::kFloat32, vec, one_arg);
  // x + x * (P(x^2) - 1): the large term is added last.
  const std::string near = fma(x, poly(binary("fmul", f, x, x), kNear, vec), x, vec);
  // 1 - exp(log(erfc(|x|))); erf is 1 to the last bit from 4 on. `minimum` keeps NaN.
  const std::string bound_args[] = {magnitude, fconst(4.0, vec)};
  const std::string bounded = intrinsic("minimum", DType::kFloat32, vec, bound_args);
  const std::string e = exp_f32(poly(bounded, kFar, vec), vec);
  const std::string signed_args[] = {binary("fsub", f, fconst(1.0, vec), e), x};
  const std::string far = intrinsic("copysign", DType::kFloat32, vec, signed_args);
  const std::string close = assign("fcmp olt " + f + " " + magnitude + ", " + fconst(0.875, vec));
  return select(close, f, near, far, vec);
}

std::string Emitter::sigmoid_f32(const std::string& x, bool vec) {
  const std::string f = type_of("float", vec);
  const std::string e = exp_f32(assign("fneg " + f + " " + x), vec);
  return binary("fdiv", f, fconst(1.0, vec), binary("fadd", f, e, fconst(1.0, vec)));
}

}  // namespace tatara::codegen
