// The elementary functions of the math table against references of higher precision, on arguments spread evenly over all
// bit patterns and around the places where the methods change. TATARA_MATH_REPORT=1 prints the largest errors.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <memory>
#include <random>

#include "codegen/abi.h"
#include "codegen/emit_cpu.h"
#include "llvm_for_tests.h"
#include "loops/kernel.h"
#include "math_reference.h"
#include "runtime/jit/jit_loader.h"
#include "support/error.h"
#include "testing.h"

namespace tatara {
namespace {

using namespace loops;
using Op = ScalarOp;

template <typename T>
void append(Block& block, T stmt) {
  block.stmts.emplace_back(std::in_place_type<T>, std::move(stmt));
}

/// out[i] = op(in[0][i], ...), compiled once and run on any number of elements up to the vectors' size.
template <typename T>
std::vector<T> map(Op op, const std::vector<std::vector<T>>& in, const CpuTarget& target = host_cpu_target()) {
  const DType dtype = std::is_same_v<T, float>    ? DType::kFloat32
                      : std::is_same_v<T, double> ? DType::kFloat64
                      : sizeof(T) == 2            ? DType::kInt16
                                                  : DType::kInt64;
  Kernel kernel;
  kernel.ctx = std::make_shared<ExprContext>();
  kernel.name = "math";
  const auto n = static_cast<int64_t>(in[0].size());
  const Expr numel = kernel.ctx->constant(n);
  const Expr i = kernel.ctx->symbol("i", {0, n - 1});
  For loop;
  loop.var = i;
  loop.extent = numel;
  loop.kind = LoopKind::kVector;
  loop.body = std::make_unique<Block>();
  Scalar call;
  call.op = op;
  call.dtype = dtype;
  std::vector<void*> buffers;
  for (size_t k = 0; k < in.size(); ++k) {
    kernel.buffers.push_back({"x" + std::to_string(k), dtype, ArgKind::kInput, numel});
    buffers.push_back(const_cast<T*>(in[k].data()));
    call.operands.push_back(kernel.new_scalar(dtype));
    append(*loop.body, Load{call.operands.back(), static_cast<int>(k), i});
  }
  kernel.buffers.push_back({"y", dtype, ArgKind::kOutput, numel});
  const ScalarId y = kernel.new_scalar(dtype);
  append(*loop.body, Let{y, call});
  append(*loop.body, Store{static_cast<int>(in.size()), i, y});
  append(kernel.body, std::move(loop));
  std::vector<T> out(in[0].size(), T(-777));
  buffers.push_back(out.data());
  const std::string text = emit_cpu(kernel, target, "tatara_kernel");
  if (std::getenv("TATARA_MATH_TEXT") != nullptr) std::puts(text.c_str());
  const auto cpu_seconds = [] {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  };
  const double start = cpu_seconds();
  const CompiledObject code = llvm_for_tests()->compile(text, {});
  const double seconds = cpu_seconds() - start;
  if (std::getenv("TATARA_MATH_REPORT") != nullptr) {
    std::printf("%-12s %s %zu instructions of IR, %.1f ms\n", std::string(scalar_op_name(op)).c_str(),
                sizeof(T) == 4 ? "f32" : "f64", static_cast<size_t>(std::count(text.begin(), text.end(), '\n')),
                1e3 * seconds);
  }
  const auto object = load_object(code.bytes);
  KernelFault fault{};
  EXPECT_EQ(reinterpret_cast<KernelFn>(object->find("tatara_kernel"))(buffers.data(), nullptr, nullptr, 0, 1, &fault),
            0);
  return out;
}

/// Distance of got from exact in units of the last place of the result nearest to exact.
template <typename T, typename Wide>
double ulps(T got, Wide exact) {
  if (std::isnan(exact)) return std::isnan(got) ? 0 : 1e9;
  if (std::isnan(got)) return 1e9;
  const T nearest = static_cast<T>(exact);
  if (got == nearest) return std::signbit(got) == std::signbit(nearest) ? 0 : 1e9;
  if (std::isinf(nearest)) {
    // The largest finite number is one unit from infinity.
    return std::isinf(got) ? 1e9 : got == std::copysign(std::numeric_limits<T>::max(), nearest) ? 1 : 1e9;
  }
  if (std::isinf(got)) return std::fabs(nearest) == std::numeric_limits<T>::max() ? 1 : 1e9;
  const T away = std::nextafter(std::fabs(nearest), T(INFINITY));
  const Wide spacing = std::isinf(away) ? std::ldexp(Wide(1), sizeof(T) == 4 ? 104 : 971)
                                        : static_cast<Wide>(away) - static_cast<Wide>(std::fabs(nearest));
  return static_cast<double>(std::fabs((static_cast<Wide>(got) - exact) / spacing));
}

template <typename T>
std::vector<T> special_values() {
  using L = std::numeric_limits<T>;
  std::vector<T> values;
  for (const T v : {T(0),      L::denorm_min(), L::min() / 2, L::min(), L::epsilon(), T(0.25),     T(0.5),
                    T(1),      T(1.5),          T(2),         T(3),     T(4),         T(5),        T(10),
                    T(24),     T(31),           T(100),       T(1e5),   T(131072),    T(16777216), T(1e10),
                    L::max(),  L::infinity(),   T(M_PI_2),    T(M_PI),  T(M_PI_4),    T(M_LN2),    T(88.72284),
                    T(103.97), T(709.78),       T(745.13)}) {
    for (const T w : {std::nextafter(v, T(0)), v, std::nextafter(v, L::infinity())}) {
      values.push_back(w);
      values.push_back(-w);
    }
  }
  values.push_back(L::quiet_NaN());
  return values;
}

/// Arguments with all signs and exponents, and more of them around 1.
std::vector<float> spread_f32(size_t count) {
  std::vector<float> values = special_values<float>();
  const auto stride = static_cast<uint32_t>((uint64_t{1} << 32) / count) | 1U;
  for (uint64_t pattern = 0; pattern < (uint64_t{1} << 32); pattern += stride)
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(pattern)));
  std::mt19937_64 engine(7);
  std::uniform_real_distribution<float> unit(-1.0F, 1.0F);
  for (size_t i = 0; i < count / 4; ++i) {
    values.push_back(unit(engine));
    values.push_back(unit(engine) * 16);
    values.push_back(unit(engine) * 128);
    values.push_back(unit(engine) * 1e5F);
  }
  return values;
}

struct Worst {
  double error = 0;
  size_t at = 0;
};

/// Errors below `absolute` do not count: for functions with zeros that no float is near enough to.
template <typename T, typename Wide, typename Exact>
Worst compare(const std::vector<T>& got, Exact exact, double absolute = 0) {
  Worst worst;
  for (size_t i = 0; i < got.size(); ++i) {
    const Wide wanted = exact(i);
    const double error = ulps<T, Wide>(got[i], wanted);
    if (error > worst.error && !(std::fabs(static_cast<Wide>(got[i]) - wanted) <= static_cast<Wide>(absolute)))
      worst = {error, i};
  }
  return worst;
}

void check_unary(Op op, double (*reference)(double), double limit, size_t count = 1 << 20, double absolute = 0) {
  if (llvm_for_tests() == nullptr) GTEST_SKIP() << "no LLVM";
  const std::vector<float> x = spread_f32(count);
  const std::vector<float> y = map<float>(op, {x});
  const Worst worst =
      compare<float, double>(y, [&](size_t i) { return reference(static_cast<double>(x[i])); }, absolute);
  if (std::getenv("TATARA_MATH_REPORT") != nullptr)
    std::printf("%-12s f32 %.3f ulp at %.9g\n", std::string(scalar_op_name(op)).c_str(), worst.error,
                static_cast<double>(x[worst.at]));
  EXPECT_LE(worst.error, limit) << scalar_op_name(op) << "(" << x[worst.at] << ") = " << y[worst.at] << ", exact is "
                                << reference(static_cast<double>(x[worst.at]));
}

// The float32 function goes through exp(-x), which overflows below -88.7228, in eager too: 0 there, not a subnormal number.
double sigmoid(double x) { return x < -88.722839 ? 0 : 1 / (1 + std::exp(-x)); }

template <long double (*function)(long double)>
double narrow(double x) {
  return static_cast<double>(function(x));
}
long double bessel_i0(long double x) { return reference::bessel(0, x); }
long double bessel_i0e(long double x) { return reference::bessel_scaled(0, x); }
long double bessel_i1(long double x) { return reference::bessel(1, x); }
long double bessel_i1e(long double x) { return reference::bessel_scaled(1, x); }

TEST(Math, ExpF32) { check_unary(Op::kExp, std::exp, 2); }
TEST(Math, ExpTermF32) { check_unary(Op::kExpTerm, std::exp, 2); }
TEST(Math, Exp2F32) { check_unary(Op::kExp2, std::exp2, 2); }
TEST(Math, Expm1F32) { check_unary(Op::kExpm1, std::expm1, 2); }
TEST(Math, LogF32) { check_unary(Op::kLog, std::log, 2); }
TEST(Math, Log2F32) { check_unary(Op::kLog2, std::log2, 2); }
TEST(Math, Log10F32) { check_unary(Op::kLog10, std::log10, 2); }
TEST(Math, Log1pF32) { check_unary(Op::kLog1p, std::log1p, 2); }
TEST(Math, SinhF32) { check_unary(Op::kSinh, std::sinh, 2); }
TEST(Math, CoshF32) { check_unary(Op::kCosh, std::cosh, 2); }
TEST(Math, TanhF32) { check_unary(Op::kTanh, std::tanh, 2); }
TEST(Math, ErfF32) { check_unary(Op::kErf, std::erf, 2); }
TEST(Math, ErfcF32) { check_unary(Op::kErfc, std::erfc, 2); }
TEST(Math, ErfinvF32) { check_unary(Op::kErfinv, narrow<reference::erfinv>, 2, 1 << 17); }
TEST(Math, NdtriF32) { check_unary(Op::kNdtri, narrow<reference::ndtri>, 2, 1 << 14); }
TEST(Math, LogNdtrF32) { check_unary(Op::kLogNdtr, narrow<reference::log_ndtr>, 2, 1 << 17); }
TEST(Math, LgammaF32) { check_unary(Op::kLgamma, std::lgamma, 2, 1 << 20, 1e-9); }
TEST(Math, DigammaF32) { check_unary(Op::kDigamma, narrow<reference::digamma>, 2, 1 << 17, 1e-9); }
TEST(Math, I0F32) { check_unary(Op::kI0, narrow<bessel_i0>, 2, 1 << 15); }
TEST(Math, I0eF32) { check_unary(Op::kI0e, narrow<bessel_i0e>, 2, 1 << 15); }
TEST(Math, I1F32) { check_unary(Op::kI1, narrow<bessel_i1>, 2, 1 << 15); }
TEST(Math, I1eF32) { check_unary(Op::kI1e, narrow<bessel_i1e>, 2, 1 << 15); }
TEST(Math, SigmoidF32) { check_unary(Op::kSigmoid, sigmoid, 2.5); }
TEST(Math, SinF32) { check_unary(Op::kSin, std::sin, 2); }
TEST(Math, CosF32) { check_unary(Op::kCos, std::cos, 2); }
TEST(Math, TanF32) { check_unary(Op::kTan, std::tan, 2); }
TEST(Math, AsinF32) { check_unary(Op::kAsin, std::asin, 2); }
TEST(Math, AcosF32) { check_unary(Op::kAcos, std::acos, 2); }
TEST(Math, AtanF32) { check_unary(Op::kAtan, std::atan, 2); }
TEST(Math, AsinhF32) { check_unary(Op::kAsinh, std::asinh, 2); }
TEST(Math, AcoshF32) { check_unary(Op::kAcosh, std::acosh, 2); }
TEST(Math, AtanhF32) { check_unary(Op::kAtanh, std::atanh, 2); }
TEST(Math, RsqrtF32) {
  check_unary(Op::kRsqrt, [](double x) { return 1 / std::sqrt(x); }, 2);
}

std::vector<double> spread_f64(size_t count) {
  std::vector<double> values = special_values<double>();
  const uint64_t stride = (~uint64_t{0} / count) | 1U;
  for (size_t i = 0; i < count; ++i) values.push_back(std::bit_cast<double>(stride * i));
  std::mt19937_64 engine(11);
  std::uniform_real_distribution<double> unit(-1, 1);
  for (size_t i = 0; i < count / 4; ++i) {
    for (const double size : {1.0, 16.0, 745.0, 1e9}) values.push_back(unit(engine) * size);
  }
  return values;
}

void check_unary_f64(Op op, long double (*reference)(long double), double limit, size_t count = 1 << 17,
                     double absolute = 0) {
  if (llvm_for_tests() == nullptr) GTEST_SKIP() << "no LLVM";
  if (std::numeric_limits<long double>::digits < 64) GTEST_SKIP() << "no reference: long double is float64";
  const std::vector<double> x = spread_f64(count);
  const std::vector<double> y = map<double>(op, {x});
  const Worst worst = compare<double, long double>(y, [&](size_t i) { return reference(x[i]); }, absolute);
  if (std::getenv("TATARA_MATH_REPORT") != nullptr)
    std::printf("%-12s f64 %.3f ulp at %.17g\n", std::string(scalar_op_name(op)).c_str(), worst.error, x[worst.at]);
  EXPECT_LE(worst.error, limit) << scalar_op_name(op) << "(" << x[worst.at] << ") = " << y[worst.at] << ", exact is "
                                << static_cast<double>(reference(x[worst.at]));
}

long double sigmoid_long(long double x) { return x < -709.782712893384L ? 0 : 1 / (1 + std::exp(-x)); }

TEST(Math, ExpF64) { check_unary_f64(Op::kExp, std::exp, 2); }
TEST(Math, Exp2F64) { check_unary_f64(Op::kExp2, std::exp2, 2); }
TEST(Math, Expm1F64) { check_unary_f64(Op::kExpm1, std::expm1, 2); }
TEST(Math, LogF64) { check_unary_f64(Op::kLog, std::log, 2); }
TEST(Math, Log2F64) { check_unary_f64(Op::kLog2, std::log2, 2); }
TEST(Math, Log10F64) { check_unary_f64(Op::kLog10, std::log10, 2); }
TEST(Math, Log1pF64) { check_unary_f64(Op::kLog1p, std::log1p, 2); }
TEST(Math, TanhF64) { check_unary_f64(Op::kTanh, std::tanh, 2); }
TEST(Math, SigmoidF64) { check_unary_f64(Op::kSigmoid, sigmoid_long, 2.5); }
TEST(Math, ErfF64) { check_unary_f64(Op::kErf, std::erf, 2); }
TEST(Math, ErfcF64) { check_unary_f64(Op::kErfc, std::erfc, 5); }
TEST(Math, ErfinvF64) { check_unary_f64(Op::kErfinv, reference::erfinv, 4); }
TEST(Math, NdtriF64) { check_unary_f64(Op::kNdtri, reference::ndtri, 4, 1 << 14); }
TEST(Math, LogNdtrF64) { check_unary_f64(Op::kLogNdtr, reference::log_ndtr, 6); }
TEST(Math, DigammaF64) { check_unary_f64(Op::kDigamma, reference::digamma, 4, 1 << 15, 1e-14); }
TEST(Math, I0F64) { check_unary_f64(Op::kI0, bessel_i0, 4, 1 << 14); }
TEST(Math, I0eF64) { check_unary_f64(Op::kI0e, bessel_i0e, 4, 1 << 14); }
TEST(Math, I1F64) { check_unary_f64(Op::kI1, bessel_i1, 4, 1 << 14); }
TEST(Math, I1eF64) { check_unary_f64(Op::kI1e, bessel_i1e, 4, 1 << 14); }
TEST(Math, SinhF64) { check_unary_f64(Op::kSinh, std::sinh, 2); }
TEST(Math, CoshF64) { check_unary_f64(Op::kCosh, std::cosh, 2); }
TEST(Math, TanF64) { check_unary_f64(Op::kTan, std::tan, 3); }
TEST(Math, AsinF64) { check_unary_f64(Op::kAsin, std::asin, 2); }
TEST(Math, AcosF64) { check_unary_f64(Op::kAcos, std::acos, 2); }
TEST(Math, AtanF64) { check_unary_f64(Op::kAtan, std::atan, 2); }
TEST(Math, AsinhF64) { check_unary_f64(Op::kAsinh, std::asinh, 3); }
TEST(Math, AcoshF64) { check_unary_f64(Op::kAcosh, std::acosh, 3); }
TEST(Math, AtanhF64) { check_unary_f64(Op::kAtanh, std::atanh, 3); }
TEST(Math, LgammaF64) { check_unary_f64(Op::kLgamma, std::lgamma, 6, 1 << 16, 4e-15); }
TEST(Math, SinF64) { check_unary_f64(Op::kSin, std::sin, 2); }
TEST(Math, CosF64) { check_unary_f64(Op::kCos, std::cos, 2); }

/// The same functions for narrower vectors, for scalars, and without FMA.
TEST(Math, OtherTargets) {
  if (llvm_for_tests() == nullptr) GTEST_SKIP() << "no LLVM";
  struct Case {
    Op op;
    double (*reference)(double);
  };
  const Case cases[] = {{Op::kExp, std::exp},     {Op::kExpm1, std::expm1}, {Op::kLog, std::log},
                        {Op::kLog1p, std::log1p}, {Op::kTanh, std::tanh},   {Op::kSin, std::sin},
                        {Op::kCos, std::cos},     {Op::kTan, std::tan}};
  const std::vector<float> x = spread_f32(1 << 14);
  for (const auto& [isa, fma] :
       {std::pair(VectorIsa::kAvx2, true), std::pair(VectorIsa::kScalar, true), std::pair(VectorIsa::kNeon, false)}) {
    CpuTarget target = host_cpu_target();
    target.isa = isa;
    target.has_fma = fma && target.has_fma;
    for (const auto& [op, reference] : cases) {
      const std::vector<float> y = map<float>(op, {x}, target);
      const Worst worst = compare<float, double>(y, [&](size_t i) { return reference(static_cast<double>(x[i])); });
      EXPECT_LE(worst.error, 2.2) << scalar_op_name(op) << "(" << x[worst.at] << ") = " << y[worst.at] << ", target "
                                  << static_cast<int>(isa);
    }
  }
}

/// Pairs of special values, and of random numbers of all sizes.
template <typename T>
void binary_arguments(std::vector<T>& x, std::vector<T>& y, int exponents, size_t count) {
  const std::vector<T> special = special_values<T>();
  for (const T a : special) {
    for (const T b : special) {
      x.push_back(a);
      y.push_back(b);
    }
  }
  std::mt19937_64 engine(3);
  std::uniform_real_distribution<double> unit(-1, 1);
  for (size_t i = 0; i < count; ++i) {
    const double a = std::exp2(unit(engine) * (i % 2 == 0 ? exponents : 4));
    const double b = std::exp2(unit(engine) * (i % 2 == 0 ? exponents : 4));
    x.push_back(static_cast<T>(i % 3 == 0 ? -a : a));
    y.push_back(static_cast<T>(i % 5 == 0 ? -b : b));
  }
}

template <typename T, typename Wide, typename Exact>
void check_binary(Op op, const std::vector<T>& x, const std::vector<T>& y, Exact exact, double limit) {
  if (llvm_for_tests() == nullptr) GTEST_SKIP() << "no LLVM";
  const std::vector<T> z = map<T>(op, {x, y});
  const Worst worst = compare<T, Wide>(z, [&](size_t i) { return exact(x[i], y[i]); });
  if (std::getenv("TATARA_MATH_REPORT") != nullptr)
    std::printf("%-12s %s %.3f ulp\n", std::string(scalar_op_name(op)).c_str(), sizeof(T) == 4 ? "f32" : "f64",
                worst.error);
  EXPECT_LE(worst.error, limit) << scalar_op_name(op) << "(" << x[worst.at] << ", " << y[worst.at]
                                << ") = " << z[worst.at] << ", exact is "
                                << static_cast<double>(exact(x[worst.at], y[worst.at]));
}

/// Bases of all sizes with exponents that give results of all sizes.
template <typename T>
void power_arguments(std::vector<T>& x, std::vector<T>& y, int range, size_t count) {
  binary_arguments(x, y, range, 1000);
  std::mt19937_64 engine(5);
  std::uniform_real_distribution<double> unit(-1, 1);
  for (size_t i = 0; i < count; ++i) {
    const double base = std::exp2(unit(engine) * (i % 2 == 0 ? range : 1));
    x.push_back(static_cast<T>(base));
    y.push_back(static_cast<T>(unit(engine) * range * 1.1 / std::max(0.01, std::fabs(std::log2(base)))));
  }
}

TEST(Math, PowF32) {
  std::vector<float> x;
  std::vector<float> y;
  power_arguments(x, y, 140, 400000);
  check_binary<float, double>(Op::kPow, x, y, [](double a, double b) { return std::pow(a, b); }, 2);
}

TEST(Math, PowF64) {
  std::vector<double> x;
  std::vector<double> y;
  power_arguments(x, y, 1020, 200000);
  check_binary<double, long double>(Op::kPow, x, y, [](long double a, long double b) { return std::pow(a, b); }, 2);
}

template <typename T>
void check_integer_pow() {
  std::vector<T> x;
  std::vector<T> n;
  for (const T a : {T(0), T(1), T(-1), T(2), T(-2), T(3), T(-7), T(10), T(255), std::numeric_limits<T>::max()}) {
    for (const T b : {T(0), T(1), T(2), T(3), T(7), T(15), T(62), T(63), T(64), T(1001), T(-1), T(-2)}) {
      x.push_back(a);
      n.push_back(b);
    }
  }
  const std::vector<T> y = map<T>(Op::kPow, {x, n});
  for (size_t i = 0; i < x.size(); ++i) {
    uint64_t expected = 1;
    for (T k = 0; k < n[i]; ++k) expected *= static_cast<uint64_t>(x[i]);
    if (n[i] < 0) expected = x[i] == 1 || (x[i] == -1 && n[i] % 2 == 0) ? 1 : x[i] == -1 ? ~uint64_t{0} : 0;
    EXPECT_EQ(y[i], static_cast<T>(expected)) << x[i] << " ** " << n[i];
  }
}

TEST(Math, PowOfIntegers) {
  if (llvm_for_tests() == nullptr) GTEST_SKIP() << "no LLVM";
  check_integer_pow<int64_t>();
  check_integer_pow<int16_t>();
}

TEST(Math, Atan2F32) {
  std::vector<float> x;
  std::vector<float> y;
  binary_arguments(x, y, 126, 400000);
  check_binary<float, double>(Op::kAtan2, x, y, [](double a, double b) { return std::atan2(a, b); }, 2);
}

TEST(Math, Atan2F64) {
  std::vector<double> x;
  std::vector<double> y;
  binary_arguments(x, y, 1020, 100000);
  check_binary<double, long double>(Op::kAtan2, x, y, [](long double a, long double b) { return std::atan2(a, b); }, 2);
}

TEST(Math, Hypot) {
  std::vector<float> x;
  std::vector<float> y;
  binary_arguments(x, y, 126, 200000);
  check_binary<float, double>(Op::kHypot, x, y, [](double a, double b) { return std::hypot(a, b); }, 1);
  std::vector<double> p;
  std::vector<double> q;
  binary_arguments(p, q, 1020, 200000);
  check_binary<double, long double>(Op::kHypot, p, q, [](long double a, long double b) { return std::hypot(a, b); }, 2);
}

template <typename T>
T python_mod(T x, T y) {
  const T rest = std::fmod(x, y);
  return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

// The quotient of the exact remainder, as ATen's div_floor.
template <typename T>
T python_floor_divide(T x, T y) {
  if (y == 0) return x / y;
  const T rest = std::fmod(x, y);
  T quotient = (x - rest) / y;
  if (rest != 0 && (rest < 0) != (y < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(T(0), x / y);
  const T whole = std::floor(quotient);
  return quotient - whole > T(0.5) ? whole + 1 : whole;
}

/// Remainders are exact.
TEST(Math, Remainders) {
  std::vector<float> x;
  std::vector<float> y;
  binary_arguments(x, y, 140, 200000);
  check_binary<float, double>(Op::kFmod, x, y, [](float a, float b) { return double{std::fmod(a, b)}; }, 0);
  check_binary<float, double>(Op::kMod, x, y, [](float a, float b) { return double{python_mod(a, b)}; }, 0);
  check_binary<float, double>(
      Op::kFloorDiv, x, y, [](float a, float b) { return double{python_floor_divide(a, b)}; }, 0);
  std::vector<double> p;
  std::vector<double> q;
  binary_arguments(p, q, 1070, 100000);
  check_binary<double, double>(Op::kFmod, p, q, [](double a, double b) { return std::fmod(a, b); }, 0);
  check_binary<double, double>(Op::kMod, p, q, python_mod<double>, 0);
  check_binary<double, double>(Op::kFloorDiv, p, q, python_floor_divide<double>, 0);
}

}  // namespace
}  // namespace tatara
