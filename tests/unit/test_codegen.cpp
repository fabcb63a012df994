#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>

#include "codegen/abi.h"
#include "codegen/emit_cpu.h"
#include "loops/kernel.h"
#include "loops/parser.h"
#include "runtime/jit/jit_loader.h"
#include "runtime/jit/llvm_provider.h"
#include "support/error.h"
#include "support/str_cat.h"
#include "testing.h"

namespace tatara {
namespace {

using namespace loops;

/// A kernel under construction, and its code.
struct Lab {
  Kernel kernel;
  std::shared_ptr<LoadedObject> object;
  std::string text;

  Lab() {
    kernel.ctx = std::make_shared<ExprContext>();
    kernel.name = "test";
  }
  ExprContext& c() { return *kernel.ctx; }
  int buffer(DType dtype, Expr numel, ArgKind kind) {
    kernel.buffers.push_back({"b", dtype, kind, numel});
    return static_cast<int>(kernel.buffers.size()) - 1;
  }
  ScalarId let(Block& b, ScalarOp op, DType dtype, std::vector<ScalarId> operands) {
    const ScalarId id = kernel.new_scalar(dtype);
    Scalar s;
    s.op = op;
    s.dtype = dtype;
    s.operands = std::move(operands);
    b.stmts.push_back(Let{id, s});
    return id;
  }
  ScalarId constant(Block& b, double value, DType dtype) {
    const ScalarId id = kernel.new_scalar(dtype);
    Scalar s;
    s.op = ScalarOp::kConst;
    s.dtype = dtype;
    s.const_re = value;
    s.const_int = static_cast<int64_t>(value);
    b.stmts.push_back(Let{id, s});
    return id;
  }
  ScalarId load(Block& b, int buffer, Expr index) {
    const ScalarId id = kernel.new_scalar(kernel.buffers[static_cast<size_t>(buffer)].dtype);
    b.stmts.push_back(Load{id, buffer, index});
    return id;
  }
  For loop(Expr var, Expr extent, LoopKind kind) {
    For f;
    f.var = var;
    f.extent = extent;
    f.kind = kind;
    f.body = std::make_unique<Block>();
    return f;
  }
  KernelFn compile() {
    text = emit_cpu(kernel, host_cpu_target(), "tatara_kernel");
    const CompiledObject code = llvm_provider().compile(text, {});
    object = load_object(code.bytes);
    return reinterpret_cast<KernelFn>(object->find("tatara_kernel"));
  }
};

/// out[i] = op(in[i]) for n float32 elements.
std::vector<float> map_f32(ScalarOp op, const std::vector<float>& in) {
  Lab lab;
  const auto n = static_cast<int64_t>(in.size());
  const Expr numel = lab.c().constant(n);
  const int a = lab.buffer(DType::kFloat32, numel, ArgKind::kInput);
  const int o = lab.buffer(DType::kFloat32, numel, ArgKind::kOutput);
  const Expr i = lab.c().symbol("i", {0, n - 1});
  For f = lab.loop(i, numel, LoopKind::kVector);
  const ScalarId x = lab.load(*f.body, a, i);
  const ScalarId y = lab.let(*f.body, op, DType::kFloat32, {x});
  f.body->stmts.push_back(Store{o, i, y});
  lab.kernel.body.stmts.push_back(std::move(f));
  std::vector<float> out(in.size(), -777.0F);
  void* buffers[] = {const_cast<float*>(in.data()), out.data()};
  KernelFault fault{};
  EXPECT_EQ(lab.compile()(buffers, nullptr, nullptr, 0, 1, &fault), 0);
  return out;
}

double ulps(float got, double exact) {
  if (std::isnan(exact)) return std::isnan(got) ? 0 : 1e9;
  const float nearest = static_cast<float>(exact);
  if (std::isinf(nearest) || nearest == 0) {
    if (got == nearest) return 0;
    if (nearest == 0) return std::fabs(got) / 1.4e-45;
    return std::isinf(got) && (got > 0) == (nearest > 0) ? 0 : 1e9;
  }
  const double spacing =
      std::max(1.4e-45, std::fabs(static_cast<double>(std::nextafterf(nearest, INFINITY)) - nearest));
  return std::fabs(static_cast<double>(got) - exact) / spacing;
}

void check_function(const char* name, ScalarOp op, double (*exact)(double), double lo, double hi, double limit) {
  std::mt19937_64 engine(1);
  std::vector<float> in = {0.0F, -0.0F, 1.0F, -1.0F, INFINITY, -INFINITY, NAN, 1e-40F, -1e-40F, 3e38F, 1.17549435e-38F};
  std::uniform_real_distribution<double> uniform(lo, hi);
  std::uniform_real_distribution<double> exponent(-140, 120);
  for (int n = 0; n < 60000; ++n) in.push_back(static_cast<float>(uniform(engine)));
  for (int n = 0; n < 20000; ++n)
    in.push_back(static_cast<float>(std::ldexp(uniform(engine) / hi, static_cast<int>(exponent(engine)))));
  const std::vector<float> out = map_f32(op, in);
  double worst = 0;
  float at = 0;
  for (size_t i = 0; i < in.size(); ++i) {
    const double error = ulps(out[i], exact(static_cast<double>(in[i])));
    if (error > worst) {
      worst = error;
      at = in[i];
    }
  }
  EXPECT_LT(worst, limit) << name << " is off by " << worst << " ulp at " << at;
}

// exp(-x) overflows below -88.7228, in eager too: the result is 0 there, not a subnormal number.
double sigmoid(double x) { return x < -88.722839 ? 0 : 1 / (1 + std::exp(-x)); }

TEST(Codegen, ExpIsAccurate) { check_function("exp", ScalarOp::kExp, std::exp, -104, 89, 2.0); }
TEST(Codegen, LogIsAccurate) { check_function("log", ScalarOp::kLog, std::log, 0, 100, 2.0); }
TEST(Codegen, TanhIsAccurate) { check_function("tanh", ScalarOp::kTanh, std::tanh, -10, 10, 2.0); }
TEST(Codegen, ErfIsAccurate) { check_function("erf", ScalarOp::kErf, std::erf, -5, 5, 2.0); }
TEST(Codegen, SigmoidIsAccurate) { check_function("sigmoid", ScalarOp::kSigmoid, sigmoid, -90, 90, 2.5); }
TEST(Codegen, LibraryFunctionPerLane) { check_function("lgamma", ScalarOp::kLgamma, std::lgamma, 0, 100, 4.0); }

/// Rows of softmax: two reductions and a store, one parallel loop, columns with a tail.
TEST(Codegen, SoftmaxRows) {
  for (const int64_t columns : {1, 5, 16, 33, 100}) {
    Lab lab;
    const int64_t rows = 7;
    ExprContext& c = lab.c();
    const Expr numel = c.constant(rows * columns);
    const int a = lab.buffer(DType::kFloat32, numel, ArgKind::kInput);
    const int o = lab.buffer(DType::kFloat32, numel, ArgKind::kOutput);
    const Expr r = c.symbol("r", {0, rows - 1});
    For outer = lab.loop(r, c.constant(rows), LoopKind::kParallel);
    Block& body = *outer.body;
    const auto reduce = [&](const char* var, Combine combine, double start, auto&& element) {
      const Expr j = c.symbol(var, {0, columns - 1});
      const ScalarId init = lab.constant(body, start, DType::kFloat32);
      For f = lab.loop(j, c.constant(columns), LoopKind::kVector);
      Carried carried{DType::kFloat32,
                      init,
                      lab.kernel.new_scalar(DType::kFloat32),
                      kNoScalar,
                      lab.kernel.new_scalar(DType::kFloat32),
                      combine};
      const ScalarId value = element(*f.body, j);
      carried.next = lab.let(*f.body, combine == Combine::kAdd ? ScalarOp::kAdd : ScalarOp::kMax, DType::kFloat32,
                             {carried.arg, value});
      f.carried.push_back(carried);
      body.stmts.push_back(std::move(f));
      return carried.result;
    };
    const auto at = [&](Expr j) { return c.add(c.mul(r, c.constant(columns)), j); };
    const ScalarId top =
        reduce("j0", Combine::kMax, -INFINITY, [&](Block& b, Expr j) { return lab.load(b, a, at(j)); });
    const auto shifted = [&](Block& b, Expr j) {
      return lab.let(b, ScalarOp::kExp, DType::kFloat32,
                     {lab.let(b, ScalarOp::kSub, DType::kFloat32, {lab.load(b, a, at(j)), top})});
    };
    const ScalarId sum = reduce("j1", Combine::kAdd, 0, shifted);
    const Expr j = c.symbol("j2", {0, columns - 1});
    For last = lab.loop(j, c.constant(columns), LoopKind::kVector);
    const ScalarId y = lab.let(*last.body, ScalarOp::kDiv, DType::kFloat32, {shifted(*last.body, j), sum});
    last.body->stmts.push_back(Store{o, at(j), y});
    body.stmts.push_back(std::move(last));
    lab.kernel.body.stmts.push_back(std::move(outer));
    std::vector<float> in;
    std::mt19937 engine(3);
    for (int64_t i = 0; i < rows * columns; ++i) in.push_back(std::uniform_real_distribution<float>(-5, 5)(engine));
    std::vector<float> out(in.size() + 16, 42.0F);
    void* buffers[] = {in.data(), out.data()};
    KernelFault fault{};
    const KernelFn fn = lab.compile();
    EXPECT_EQ(fn(buffers, nullptr, nullptr, 0, 3, &fault), 0);
    EXPECT_EQ(fn(buffers, nullptr, nullptr, 3, rows, &fault), 0);
    for (int64_t row = 0; row < rows; ++row) {
      double total = 0;
      const float* x = in.data() + row * columns;
      const float highest = *std::max_element(x, x + columns);
      for (int64_t k = 0; k < columns; ++k) total += std::exp(static_cast<double>(x[k]) - highest);
      for (int64_t k = 0; k < columns; ++k) {
        EXPECT_NEAR(out[static_cast<size_t>(row * columns + k)], std::exp(static_cast<double>(x[k]) - highest) / total,
                    1e-6);
      }
    }
    EXPECT_EQ(out[in.size()], 42.0F);  // nothing written past the end
  }
}

// One element for all lanes, or what differs from lane to lane: the place and the mask are the same in all lanes.
TEST(Codegen, UniformLoadsWithOtherValuesOfLanes) {
  for (const bool given : {false, true}) {
    Lab lab;
    lab.kernel = parse_kernel(
        "kernel test(in b0: f32[1], in b1: f32[100], out b2: f32[100], scalar %0: bool) {\n"
        "  vector i in 100 {\n"
        "    %1: f32 = load b1[i]\n"
        "    %2: f32 = load b0[0] if %0 else %1\n"
        "    store b2[i] = %2\n"
        "  }\n"
        "}\n");
    std::vector<float> one = {-7};
    std::vector<float> others(100);
    std::vector<float> out(100);
    for (size_t i = 0; i < others.size(); ++i) others[i] = static_cast<float>(i);
    void* buffers[] = {one.data(), others.data(), out.data()};
    const int64_t scalars[] = {given ? 1 : 0};
    KernelFault fault{};
    EXPECT_EQ(lab.compile()(buffers, nullptr, scalars, 0, 1, &fault), 0);
    for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], given ? -7.0F : others[i]);
  }
}

// Lanes that want an element get it; where none does, there is none.
TEST(Codegen, OnePlaceForSomeLanes) {
  for (const int64_t wanted : {0, 7, 40}) {
    Lab lab;
    lab.kernel = parse_kernel(
        "kernel test(in b0: i32[1], in b1: bool[40], out b2: i32[40]) {\n"
        "  parallel p in 3 {\n"
        "    %9: i32 = const(5)\n"
        "    vector i in 40 {\n"
        "      %1: bool = load b1[i]\n"
        "      %2: i32 = load b0[1000000000000*p] if %1 else %9\n"
        "      store b2[i] = %2\n"
        "    }\n"
        "  }\n"
        "}\n");
    std::vector<int32_t> one = {-7};
    std::vector<uint8_t> given(40);
    std::vector<int32_t> out(40);
    for (size_t i = 0; i < given.size(); ++i) given[i] = static_cast<int64_t>(i * 13 % 40) < wanted ? 1 : 0;
    void* buffers[] = {one.data(), given.data(), out.data()};
    KernelFault fault{};
    const int64_t begin = wanted == 0 ? 2 : 0;  // far outside
    EXPECT_EQ(lab.compile()(buffers, nullptr, nullptr, begin, begin + 1, &fault), 0);
    for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], given[i] != 0 ? -7 : 5);
  }
}

/// Where an element of the first `counted` is read from `place`, and 5 elsewhere: those of the rows of 40 from `begin` on.
std::vector<float> first_lanes(const char* place, int64_t counted, int64_t begin, int64_t rows) {
  Lab lab;
  lab.kernel = parse_kernel(str_cat("kernel test(in b0: f32[400], out b1: f32[", 40 * rows, "]) {\n  parallel p in ",
                                    rows, " {\n    %0: i64 = const(", counted,
                                    ")\n"
                                    "    %9: f32 = const(5)\n"
                                    "    vector i in 40 {\n"
                                    "      %1: i64 = index(40*p + i)\n"
                                    "      %2: bool = lt(%1, %0)\n"
                                    "      %3: f32 = load b0[",
                                    place,
                                    "] if %2 else %9\n"
                                    "      store b1[40*p + i] = %3\n"
                                    "    }\n"
                                    "  }\n"
                                    "}\n"));
  std::vector<float> in(400);
  std::vector<float> out(static_cast<size_t>(40 * rows));
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i);
  void* buffers[] = {in.data(), out.data()};
  KernelFault fault{};
  EXPECT_EQ(lab.compile()(buffers, nullptr, nullptr, begin, rows, &fault), 0);
  return out;
}

// Lanes that don't count lie where there is no memory: in a row, backwards, with gaps, or at one place each.
TEST(Codegen, LanesFarOutside) {
  for (const char* place : {"i - 500000000000", "-i + 500000000039", "3*i - 1500000000000", "9*i - 4500000000000"}) {
    const std::vector<float> out = first_lanes(place, 40, 1, 3);
    for (size_t i = 40; i < out.size(); ++i) EXPECT_EQ(out[i], 5.0F);
  }
  for (const char* place : {"40*p + i", "-40*p - i + 39", "120*p + 3*i", "360*p + 9*i"}) {
    const std::vector<float> out = first_lanes(place, 37, 0, 1000);
    const size_t step = place[0] == '1' ? 3 : place[0] == '3' ? 9 : 1;
    for (size_t i = 0; i < out.size(); ++i) {
      EXPECT_EQ(out[i], i >= 37 ? 5.0F : static_cast<float>(place[0] == '-' ? 39 - i : step * i));
    }
  }
}

template <typename T>
void copy_with_steps(const char* dtype, int64_t from, int64_t to) {
  constexpr int64_t kCount = 150;
  const int64_t size = kCount * std::max(std::abs(from), std::abs(to));
  const auto place = [&](int64_t step) { return str_cat(step, "*i + ", step < 0 ? -step * (kCount - 1) : int64_t{0}); };
  Lab lab;
  lab.kernel = parse_kernel(str_cat("kernel test(in b0: ", dtype, "[", size, "], out b1: ", dtype, "[", size,
                                    "]) {\n  vector i in ", kCount, " {\n    %1: ", dtype, " = load b0[", place(from),
                                    "]\n    store b1[", place(to), "] = %1\n  }\n}\n"));
  std::vector<T> in(static_cast<size_t>(size));
  std::vector<T> out(static_cast<size_t>(size), T{1});
  std::vector<T> expected = out;
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<T>(i * 7 % 13 % 2);
  const auto at = [&](int64_t step, int64_t i) {
    return static_cast<size_t>(step < 0 ? -step * (kCount - 1 - i) : step * i);
  };
  for (int64_t i = 0; i < kCount; ++i) expected[at(to, i)] = in[at(from, i)];
  void* buffers[] = {in.data(), out.data()};
  KernelFault fault{};
  EXPECT_EQ(lab.compile()(buffers, nullptr, nullptr, 0, 1, &fault), 0);
  EXPECT_TRUE(out == expected) << dtype << " " << from << " " << to;
}

TEST(Codegen, LanesWithSteps) {
  for (const int64_t step : {2, 3, 5, 8, 33, -2, -9}) {
    for (const auto& [from, to] : {std::pair(step, int64_t{1}), std::pair(int64_t{1}, step), std::pair(step, step)}) {
      copy_with_steps<float>("f32", from, to);
      copy_with_steps<double>("f64", from, to);
      copy_with_steps<int8_t>("i8", from, to);
      copy_with_steps<uint8_t>("bool", from, to);
    }
  }
}

// Behind the iteration that says so, a serial loop has no further one.
TEST(Codegen, LoopsEndWhereTheirBodySaysSo) {
  const std::string text =
      "kernel test(in b0: i64[100], out b1: i64[1]) {\n"
      "  for i in 100 until %2 {\n"
      "    %0: i64 = load b0[i]\n"
      "    %1: i64 = const(7)\n"
      "    store b1[0] = %0\n"
      "    %2: bool = eq(%0, %1)\n"
      "  }\n"
      "}\n";
  for (const int64_t place : {0, 40, 99, 100}) {
    Lab lab;
    lab.kernel = parse_kernel(text);
    EXPECT_EQ(print_kernel(lab.kernel), text);
    std::vector<int64_t> given(100);
    for (size_t i = 0; i < given.size(); ++i) given[i] = 1000 + static_cast<int64_t>(i);
    if (place < 100) given[static_cast<size_t>(place)] = 7;
    int64_t last = 0;
    void* buffers[] = {given.data(), &last};
    KernelFault fault{};
    EXPECT_EQ(lab.compile()(buffers, nullptr, nullptr, 0, 1, &fault), 0);
    EXPECT_EQ(last, place < 100 ? 7 : 1099);
  }
}

TEST(Codegen, GatherChecksBounds) {
  Lab lab;
  ExprContext& c = lab.c();
  const int64_t n = 21;
  const int table = lab.buffer(DType::kFloat32, c.constant(5), ArgKind::kInput);
  const int at = lab.buffer(DType::kInt64, c.constant(n), ArgKind::kInput);
  const int o = lab.buffer(DType::kFloat32, c.constant(n), ArgKind::kOutput);
  const Expr i = c.symbol("i", {0, n - 1});
  const Expr k = c.symbol("k", {0, 4});
  For f = lab.loop(i, c.constant(n), LoopKind::kVector);
  const ScalarId index = lab.load(*f.body, at, i);
  IndexValue value{index, k, c.constant(5)};
  value.wrap = true;
  value.check = true;
  f.body->stmts.push_back(value);
  f.body->stmts.push_back(Store{o, i, lab.load(*f.body, table, k)});
  // The load was appended by its call before the store statement.
  lab.kernel.body.stmts.push_back(std::move(f));
  const KernelFn fn = lab.compile();
  std::vector<float> values = {10, 11, 12, 13, 14};
  std::vector<int64_t> indices(static_cast<size_t>(n));
  for (int64_t j = 0; j < n; ++j) indices[static_cast<size_t>(j)] = j % 10 - 5;
  std::vector<float> out(static_cast<size_t>(n), 0);
  void* buffers[] = {values.data(), indices.data(), out.data()};
  KernelFault fault{};
  ASSERT_EQ(fn(buffers, nullptr, nullptr, 0, 1, &fault), 0);
  for (size_t j = 0; j < out.size(); ++j) EXPECT_EQ(out[j], values[static_cast<size_t>((indices[j] + 5) % 5)]);
  indices[19] = 7;
  EXPECT_EQ(fn(buffers, nullptr, nullptr, 0, 1, &fault), 1);
  EXPECT_EQ(fault.value, 7);
  EXPECT_EQ(fault.size, 5);
}

// An index that is the same in all lanes is checked only where a lane counts.
TEST(Codegen, UniformIndicesUnderMasksOfLanes) {
  Lab lab;
  lab.kernel = parse_kernel(
      "kernel test(in b0: i64[1], in b1: f32[10], in b2: bool[100], out b3: f32[100]) {\n"
      "  %0: f32 = const(-1)\n"
      "  vector i in 100 {\n"
      "    %1: i64 = load b0[0]\n"
      "    %2: bool = load b2[i]\n"
      "    index place = %1 in 10 wrap check if %2\n"
      "    %3: f32 = load b1[place] if %2 else %0\n"
      "    store b3[i] = %3\n"
      "  }\n"
      "}\n");
  const KernelFn fn = lab.compile();
  std::vector<float> table = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  const auto run = [&](int64_t index, size_t counts, KernelFault& fault) {
    std::vector<float> out(100, -5);
    std::vector<uint8_t> mask(100);
    if (counts < mask.size()) mask[counts] = 1;
    void* buffers[] = {&index, table.data(), mask.data(), out.data()};
    const int32_t failed = fn(buffers, nullptr, nullptr, 0, 1, &fault);
    for (size_t i = 0; failed == 0 && i < out.size(); ++i) {
      EXPECT_EQ(out[i], i == counts ? table[static_cast<size_t>(index < 0 ? index + 10 : index)] : -1.0F);
    }
    return failed;
  };
  KernelFault fault{};
  EXPECT_EQ(run(3, 17, fault), 0);
  EXPECT_EQ(run(-2, 99, fault), 0);
  EXPECT_EQ(run(10, 100, fault), 0);  // no lane counts
  EXPECT_EQ(run(10, 99, fault), 1);
  EXPECT_EQ(fault.value, 10);
  EXPECT_EQ(run(-11, 0, fault), 1);
  EXPECT_EQ(fault.value, -11);
}

// A sum of sizes may have any value: expressions begin with a positive term, so that a positive divisor is written negated, too.
TEST(Codegen, IndicesAreDividedByWhatHasAnySign) {
  for (const char* kind : {"for", "vector"}) {
    Lab lab;
    lab.kernel = parse_kernel(
        str_cat("kernel test(out b0: i64[100], out b1: i64[100], out b2: i64[100], size s0, size s1) {\n  ", kind,
                " i in 100 {\n"
                "    %0: i64 = index(-i // (4*s0 - 8*s1))\n"
                "    store b0[i] = %0\n"
                "    %1: i64 = index((i - 50) % (s0 - s1))\n"
                "    store b1[i] = %1\n"
                "    %2: i64 = index((i - 50) // (s0 - s1))\n"
                "    store b2[i] = %2\n"
                "  }\n"
                "}\n"));
    const KernelFn fn = lab.compile();
    const auto floor_of = [](int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0); };
    for (const int64_t s0 : {2, 5, 9, 40}) {
      for (const int64_t s1 : {3, 4, 7, 30}) {
        std::vector<int64_t> out[3] = {std::vector<int64_t>(100), std::vector<int64_t>(100), std::vector<int64_t>(100)};
        void* buffers[] = {out[0].data(), out[1].data(), out[2].data()};
        const int64_t sizes[] = {s0, s1};
        KernelFault fault{};
        ASSERT_EQ(fn(buffers, sizes, nullptr, 0, 1, &fault), 0);
        const int64_t divisor = s0 - s1;
        for (int64_t i = 0; i < 100; ++i) {
          const auto at = static_cast<size_t>(i);
          EXPECT_EQ(out[0][at], floor_of(-i, 4 * s0 - 8 * s1)) << s0 << " " << s1 << " " << i;
          EXPECT_EQ(out[1][at], i - 50 - divisor * floor_of(i - 50, divisor)) << s0 << " " << s1 << " " << i;
          EXPECT_EQ(out[2][at], floor_of(i - 50, divisor)) << s0 << " " << s1 << " " << i;
        }
      }
    }
  }
}

TEST(Codegen, HalfTypesRoundToNearestEven) {
  Lab lab;
  ExprContext& c = lab.c();
  const std::vector<float> in = {1.0F,     1.00390625F, 1.01171875F, -3.3e38F, 1e-40F, NAN,
                                 INFINITY, 65504.0F,    65519.0F,    65520.0F, 0.1F};
  const auto n = static_cast<int64_t>(in.size());
  const int a = lab.buffer(DType::kFloat32, c.constant(n), ArgKind::kInput);
  const int b16 = lab.buffer(DType::kBFloat16, c.constant(n), ArgKind::kOutput);
  const int f16 = lab.buffer(DType::kFloat16, c.constant(n), ArgKind::kOutput);
  const Expr i = c.symbol("i", {0, n - 1});
  For f = lab.loop(i, c.constant(n), LoopKind::kVector);
  const ScalarId x = lab.load(*f.body, a, i);
  f.body->stmts.push_back(Store{b16, i, lab.let(*f.body, ScalarOp::kCast, DType::kBFloat16, {x})});
  f.body->stmts.push_back(Store{f16, i, lab.let(*f.body, ScalarOp::kCast, DType::kFloat16, {x})});
  lab.kernel.body.stmts.push_back(std::move(f));
  std::vector<uint16_t> bf(in.size());
  std::vector<uint16_t> hf(in.size());
  void* buffers[] = {const_cast<float*>(in.data()), bf.data(), hf.data()};
  KernelFault fault{};
  ASSERT_EQ(lab.compile()(buffers, nullptr, nullptr, 0, 1, &fault), 0);
  const std::vector<uint16_t> expected_bf = {0x3f80, 0x3f80, 0x3f82, 0xff78, 0x0001, 0x7fc0,
                                             0x7f80, 0x4780, 0x4780, 0x4780, 0x3dcd};
  EXPECT_TRUE(bf == expected_bf);
  EXPECT_EQ(hf[0], 0x3c00);
  EXPECT_EQ(hf[7], 0x7bff);
  EXPECT_EQ(hf[8], 0x7bff);
  EXPECT_EQ(hf[9], 0x7c00);
  EXPECT_EQ(hf[10], 0x2e66);
}

TEST(Codegen, PrintsAndVerifies) {
  Lab lab;
  ExprContext& c = lab.c();
  const int a = lab.buffer(DType::kFloat32, c.constant(8), ArgKind::kInput);
  const Expr i = c.symbol("i", {0, 7});
  For f = lab.loop(i, c.constant(8), LoopKind::kVector);
  const ScalarId x = lab.load(*f.body, a, i);
  f.body->stmts.push_back(Store{a, i, x});
  lab.kernel.body.stmts.push_back(std::move(f));
  EXPECT_EQ(
      print_kernel(lab.kernel),
      "kernel test(in b0: f32[8]) {\n  vector i in 8 {\n    %0: f32 = load b0[i]\n    store b0[i] = %0\n  }\n}\n");
  lab.kernel.body.stmts.push_back(Store{a, c.constant(0), 5});
  EXPECT_THROW(verify_kernel(lab.kernel), InternalError);
}

}  // namespace
}  // namespace tatara
