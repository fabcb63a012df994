// Products of matrices against sums in long double, for every kernel that this machine runs.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <tuple>
#include <vector>

#include "codegen/emit_cpu.h"
#include "runtime/base/thread_pool.h"
#include "runtime/host/gemm.h"
#include "runtime/host/gemm_kernel.h"
#include "support/options.h"
#include "testing.h"

namespace tatara {
namespace {

/// Of error_of(): what rounding of the longest sums gives at most; an element missed is off by millions.
constexpr double kNoise = 16;

std::vector<const GemmKernel*> kernels(bool is_double) {
  std::vector<const GemmKernel*> found;
  const CpuTarget cpu = host_cpu_target();
  const bool wide = cpu.isa == VectorIsa::kAvx512;
  if (wide || (cpu.isa == VectorIsa::kAvx2 && cpu.has_fma)) found.push_back(gemm_avx2(is_double));
  if (wide) found.push_back(gemm_avx512(is_double));
  std::erase(found, nullptr);
  return found;
}

/// A matrix with memory around it that nobody may touch.
template <typename T>
struct Matrix {
  static constexpr T kUntouched = T(77);
  int64_t rows, columns;
  bool turned;
  int64_t gap;  // elements between lines
  std::vector<T> memory;

  Matrix(int64_t r, int64_t c, bool t, int64_t g = 0) : rows(r), columns(c), turned(t), gap(g) {
    memory.assign(static_cast<size_t>((turned ? c : r) * line() + 16), kUntouched);
  }
  int64_t line() const { return (turned ? rows : columns) + gap; }
  T& at(int64_t i, int64_t j) { return memory[static_cast<size_t>(8 + (turned ? j * line() + i : i * line() + j))]; }
  MatrixRef ref() { return {&memory[8], turned ? 1 : line(), turned ? line() : 1}; }
  void fill(std::mt19937& random) {
    std::uniform_real_distribution<double> values(-1, 1);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) at(i, j) = static_cast<T>(values(random));
    }
  }
  int64_t touched() const {
    int64_t count = 0;
    for (const T value : memory) count += value != kUntouched ? 1 : 0;
    return count;
  }
};

template <typename T>
MatrixProduct product(Matrix<T>& a, Matrix<T>& b, Matrix<T>& c) {
  MatrixProduct p;
  p.dtype = sizeof(T) == 8 ? DType::kFloat64 : DType::kFloat32;
  p.rows = a.rows;
  p.columns = b.columns;
  p.inner = a.columns;
  p.left = a.ref();
  p.right = b.ref();
  p.out = c.ref();
  return p;
}

/// The largest difference from the sum in long double, in units of the type's precision times sqrt(inner).
template <typename T>
double error_of(const MatrixProduct& p, Matrix<T>& a, Matrix<T>& b, Matrix<T>& c, Matrix<T>* addend,
                std::mt19937& random) {
  double worst = 0;
  const auto check = [&](int64_t i, int64_t j) {
    long double sum = 0;
    for (int64_t k = 0; k < p.inner; ++k)
      sum += static_cast<long double>(a.at(i, k)) * static_cast<long double>(b.at(k, j));
    sum *= static_cast<long double>(p.alpha);
    if (addend != nullptr) sum += static_cast<long double>(p.beta) * static_cast<long double>(addend->at(i, j));
    const auto off = static_cast<double>(std::fabs(static_cast<long double>(c.at(i, j)) - sum));
    worst = std::max(worst, std::isnan(off) ? std::numeric_limits<double>::infinity() : off);
  };
  if (p.rows * p.columns * p.inner < 1 << 22) {
    for (int64_t i = 0; i < p.rows; ++i) {
      for (int64_t j = 0; j < p.columns; ++j) check(i, j);
    }
  } else {  // some of them, and the corners
    for (const int64_t i : {int64_t{0}, p.rows - 1}) {
      for (const int64_t j : {int64_t{0}, p.columns - 1}) check(i, j);
    }
    for (int n = 0; n < 500; ++n) {
      check(static_cast<int64_t>(random() % static_cast<uint64_t>(p.rows)),
            static_cast<int64_t>(random() % static_cast<uint64_t>(p.columns)));
    }
  }
  return worst / std::numeric_limits<T>::epsilon() / std::sqrt(static_cast<double>(p.inner));
}

template <typename T>
void check_sizes(int64_t rows, int64_t inner, int64_t columns) {
  std::mt19937 random(7);
  for (const GemmKernel* kernel : kernels(sizeof(T) == 8)) {
    for (int form = 0; form < 16; ++form) {
      if (rows * inner * columns > 1 << 24 && form % 5 != 0) continue;
      Matrix<T> a(rows, inner, (form & 1) != 0, form % 3), b(inner, columns, (form & 2) != 0, form % 2),
          c(rows, columns, (form & 4) != 0, 3);
      Matrix<T> addend(rows, columns, (form & 8) != 0);
      a.fill(random);
      b.fill(random);
      addend.fill(random);
      MatrixProduct p = product(a, b, c);
      p.alpha = form % 2 != 0 ? 0.5 : 1;
      p.beta = -1.5;
      const bool added = form % 4 < 2;
      if (added) p.addend = addend.ref();
      multiply_by(*kernel, p);
      EXPECT_LT(error_of(p, a, b, c, added ? &addend : nullptr, random), kNoise)
          << rows << " x " << inner << " x " << columns << ", form " << form << ", tiles of " << kernel->tile_rows;
      EXPECT_EQ(c.touched(), rows * columns);
    }
  }
}

TEST(Gemm, AnySizesAndStrides) {
  if (kernels(false).empty()) GTEST_SKIP() << "no kernel for this machine";
  for (const auto& [rows, inner, columns] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{{1, 1, 1},
                                                                                               {1, 5, 1},
                                                                                               {8, 384, 48},
                                                                                               {9, 385, 49},
                                                                                               {7, 3, 130},
                                                                                               {130, 769, 23},
                                                                                               {65, 400, 97},
                                                                                               {48, 17, 400},
                                                                                               {300, 50, 6}}) {
    check_sizes<float>(rows, inner, columns);
    check_sizes<double>(rows, inner, columns);
  }
}

TEST(Gemm, MoreThanIsPackedAtOnce) {
  if (kernels(false).empty()) GTEST_SKIP() << "no kernel for this machine";
  check_sizes<float>(700, 4100, 900);  // the smaller operand in pieces
  check_sizes<float>(900, 4100, 700);
  check_sizes<double>(530, 9000, 540);  // and the inner dimension as well
}

TEST(Gemm, TheSameBitsOnAnyNumberOfThreads) {
  std::mt19937 random(3);
  Matrix<float> a(500, 900, false), b(900, 300, true), c(500, 300, false), again(500, 300, false);
  a.fill(random);
  b.fill(random);
  if (!can_multiply(product(a, b, c))) GTEST_SKIP() << "no kernel for this machine";
  set_option(Option::kNumThreads, int64_t{1});
  multiply(product(a, b, c));
  for (const int64_t threads : {2, 3, 7}) {
    set_option(Option::kNumThreads, threads);
    multiply(product(a, b, again));
    EXPECT_TRUE(c.memory == again.memory) << threads << " threads";
  }
  reset_option(Option::kNumThreads);
  // Nor do the other sizes matter: a row of the product is the product of the row.
  Matrix<float> some(16, 300, false);
  MatrixProduct p = product(a, b, some);
  p.rows = 16;
  multiply(p);
  for (int64_t i = 0; i < 16; ++i) {
    for (int64_t j = 0; j < 300; ++j) ASSERT_EQ(some.at(i, j), c.at(i, j));
  }
}

TEST(Gemm, TheAddendMayBeTheResultOrARow) {
  std::mt19937 random(5);
  Matrix<double> a(100, 800, false), b(800, 90, false), c(100, 90, false), before(100, 90, false), row(1, 90, false);
  a.fill(random);
  b.fill(random);
  c.fill(random);
  row.fill(random);
  before = c;
  MatrixProduct p = product(a, b, c);
  if (!can_multiply(p)) GTEST_SKIP() << "no kernel for this machine";
  p.addend = c.ref();
  p.beta = 2;
  multiply(p);
  EXPECT_LT(error_of(p, a, b, c, &before, random), kNoise);
  p.addend = row.ref();
  p.addend.row_stride = 0;
  multiply(p);
  for (int64_t i = 0; i < 100; ++i) {
    for (int64_t j = 0; j < 90; ++j) before.at(i, j) = row.at(0, j);
  }
  EXPECT_LT(error_of(p, a, b, c, &before, random), kNoise);
}

TEST(Gemm, NotANumberAndInfinityComeThrough) {
  std::mt19937 random(9);
  Matrix<float> a(101, 101, false), b(101, 96, false), c(101, 96, false);
  a.fill(random);
  b.fill(random);
  a.at(100, 3) = std::numeric_limits<float>::quiet_NaN();
  b.at(7, 95) = std::numeric_limits<float>::infinity();
  const MatrixProduct p = product(a, b, c);
  if (!can_multiply(p)) GTEST_SKIP() << "no kernel for this machine";
  multiply(p);
  for (int64_t i = 0; i < 101; ++i) {
    for (int64_t j = 0; j < 96; ++j) {
      const float value = c.at(i, j);
      EXPECT_EQ(std::isnan(value), i == 100) << i << ", " << j;
      EXPECT_EQ(std::isinf(value), i != 100 && j == 95) << i << ", " << j;
    }
  }
}

/// The elements as they are stored in fewer bits, in the same places.
template <typename T>
std::vector<T> narrowed(Matrix<float>& m, DType dtype) {
  std::vector<T> out;
  for (float& value : m.memory) {
    if (dtype == DType::kInt8) value = std::round(value * 127);
    uint32_t word = 0;
    std::memcpy(&word, &value, sizeof word);
    word &= 0xFFFF0000U;
    std::memcpy(&value, &word, sizeof word);
    out.push_back(dtype == DType::kInt8 ? static_cast<T>(static_cast<int>(value) & 0xFF) : static_cast<T>(word >> 16));
  }
  return out;
}

TEST(Gemm, NarrowOperandsAreWidened) {
  std::mt19937 random(7);
  for (const GemmKernel* kernel : kernels(false)) {
    for (const auto& [rows, inner, columns] : {std::tuple{8, 64, 48}, {5, 70, 17}, {33, 401, 65}, {130, 390, 100}}) {
      for (const int turned : {0, 1, 2, 3}) {
        Matrix<float> a(rows, inner, (turned & 1) != 0, 3), b(inner, columns, (turned & 2) != 0, 5);
        Matrix<float> expected(rows, columns, false), given(rows, columns, false);
        a.fill(random);
        b.fill(random);
        std::vector<uint16_t> halves = narrowed<uint16_t>(a, DType::kBFloat16);
        for (const bool bytes : {false, true}) {
          std::vector<uint8_t> ints;
          std::vector<uint16_t> others;
          if (bytes) {
            ints = narrowed<uint8_t>(b, DType::kInt8);
          } else {
            others = narrowed<uint16_t>(b, DType::kBFloat16);
          }
          MatrixProduct p = product(a, b, expected);
          multiply_by(*kernel, p);
          p.out = given.ref();
          p.left.data = &halves[8];
          p.left.narrow = DType::kBFloat16;
          p.right.data = bytes ? static_cast<void*>(&ints[8]) : static_cast<void*>(&others[8]);
          p.right.narrow = bytes ? DType::kInt8 : DType::kBFloat16;
          multiply_by(*kernel, p);
          EXPECT_TRUE(expected.memory == given.memory);
        }
      }
    }
  }
}

TEST(Gemm, LeavesToTheLibraryWhatDoesNotPay) {
  if (kernels(false).empty()) GTEST_SKIP() << "no kernel for this machine";
  Matrix<float> a(64, 64, false), b(64, 96, false), out(64, 96, false);
  MatrixProduct p = product(a, b, out);
  EXPECT_TRUE(can_multiply(p));
  Matrix<float> few(7, 4096, false), tall(4096, 4096, false), line(7, 4096, false);
  EXPECT_FALSE(can_multiply(product(few, tall, line)));  // hardly more than a product with a vector
  Matrix<float> thin(1000, 63, false), flat(63, 1000, false), square(1000, 1000, false);
  EXPECT_FALSE(can_multiply(product(thin, flat, square)));   // mostly writing
  const int64_t tile = kernels(false).back()->tile_columns;  // 16 to 32, by the machine
  Matrix<float> left(64, 256, false), full(256, tile, false), filled(64, tile, false);
  EXPECT_TRUE(can_multiply(product(left, full, filled)));
  Matrix<float> more(256, tile + 1, false), half(64, tile + 1, false);
  EXPECT_FALSE(can_multiply(product(left, more, half)));  // tiles that are half empty
  p.dtype = DType::kBFloat16;
  EXPECT_FALSE(can_multiply(p));
  p.dtype = DType::kFloat32;
  p.out.column_stride = p.out.row_stride = 2;
  EXPECT_FALSE(can_multiply(p));
}

}  // namespace
}  // namespace tatara
