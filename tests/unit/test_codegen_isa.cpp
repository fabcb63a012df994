// Kernels run with the vectors of each instruction set: reductions, tails, strides, conversions, division, scans, updates.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <numeric>
#include <random>

#include "codegen/abi.h"
#include "codegen/emit_cpu.h"
#include "llvm_for_tests.h"
#include "loops/parser.h"
#include "runtime/jit/jit_loader.h"
#include "runtime/jit/llvm_provider.h"
#include "support/error.h"
#include "support/str_cat.h"
#include "testing.h"

namespace tatara {
namespace {

constexpr VectorIsa kAll[] = {VectorIsa::kScalar, VectorIsa::kNeon, VectorIsa::kAvx2, VectorIsa::kAvx512};

struct Code {
  std::shared_ptr<LoadedObject> object;
  KernelFn fn = nullptr;

  int run(std::vector<void*> buffers, std::vector<int64_t> sizes = {}, std::vector<int64_t> scalars = {}) const {
    KernelFault fault{};
    return fn(buffers.data(), sizes.data(), scalars.data(), 0, 1, &fault);
  }
};

Code compile(const std::string& text, VectorIsa isa) {
  const loops::Kernel kernel = loops::parse_kernel(text);
  CpuTarget target = host_cpu_target();
  target.isa = isa;
  LlvmProvider* llvm = llvm_for_tests();
  if (llvm == nullptr) throw CompilationError("these tests need LLVM");
  Code code;
  code.object = load_object(llvm->compile(emit_cpu(kernel, target, "tatara_kernel"), {}).bytes);
  code.fn = reinterpret_cast<KernelFn>(code.object->find("tatara_kernel"));
  return code;
}

/// Memory that ends where reading one byte more is a fault.
template <typename T>
class Fenced {
 public:
  explicit Fenced(const std::vector<T>& values) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t bytes = values.size() * sizeof(T);
    size_ = (bytes + page - 1) / page * page + page;
    base_ = static_cast<char*>(mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(base_ + size_ - page, page, PROT_NONE);
    data_ = reinterpret_cast<T*>(base_ + size_ - page - bytes);
    if (bytes > 0) std::memcpy(data_, values.data(), bytes);
  }
  ~Fenced() { munmap(base_, size_); }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;
  T* data() { return data_; }
  T& operator[](size_t i) { return data_[i]; }

 private:
  char* base_;
  size_t size_;
  T* data_;
};

std::string reduction(const std::string& type, const std::string& op, const std::string& start,
                      const std::string& extent) {
  return str_cat("kernel reduction(in b0: ", type, "[", extent, "], out b1: ", type, "[1]",
                 extent == "s0" ? ", size s0" : "", ") {\n  %0: ", type, " = const(", start, ")\n  vector i in ",
                 extent, "\n      carry %1: ", type, " from %0 next %3 result %4 combine ", op, " {\n    %2: ", type,
                 " = load b0[i]\n    %3: ", type, " = ", op, "(%1, %2)\n  }\n  store b1[0] = %4\n}\n");
}

TEST(CodegenIsa, Reductions) {
  std::mt19937 engine(1);
  for (const VectorIsa isa : kAll) {
    const Code any = compile(reduction("f32", "add", "0.5", "s0"), isa);
    const Code top = compile(reduction("i16", "max", "-32768", "s0"), isa);
    const Code sums = compile(reduction("c128", "add", "0, 1", "s0"), isa);
    for (const size_t n : {0, 1, 2, 3, 7, 8, 15, 16, 17, 33, 63, 64, 65, 100, 129, 1000, 30000}) {
      std::vector<float> x(n);
      std::vector<int16_t> y(n);
      std::vector<std::complex<double>> z(n);
      for (float& v : x) v = std::uniform_real_distribution<float>(-1, 1)(engine);
      for (int16_t& v : y) v = static_cast<int16_t>(engine());
      for (auto& v : z) v = {std::uniform_real_distribution<double>(-1, 1)(engine), 2};
      const double exact = std::accumulate(x.begin(), x.end(), 0.5);
      const auto size = static_cast<int64_t>(n);
      float sum = 0;
      Fenced<float> fenced(x);
      any.run({fenced.data(), &sum}, {size});
      EXPECT_NEAR(sum, exact, 1e-5 * std::sqrt(static_cast<double>(n) + 1));
      if (n > 0) {
        const Code known = compile(reduction("f32", "add", "0.5", std::to_string(n)), isa);
        known.run({fenced.data(), &sum});
        EXPECT_NEAR(sum, exact, 1e-5 * std::sqrt(static_cast<double>(n) + 1));
      }
      int16_t best = 0;
      Fenced<int16_t> shorts(y);
      top.run({shorts.data(), &best}, {size});
      EXPECT_EQ(best, n == 0 ? int16_t{-32768} : *std::max_element(y.begin(), y.end()));
      std::complex<double> total;
      Fenced<std::complex<double>> pairs(z);
      sums.run({pairs.data(), &total}, {size});
      EXPECT_NEAR(std::abs(total - std::accumulate(z.begin(), z.end(), std::complex<double>(0, 1))), 0, 1e-9);
    }
  }
}

/// Long sums are sums of short ones: the error does not grow with the length.
TEST(CodegenIsa, LongSumsAreAccurate) {
  const size_t n = 1U << 22;
  std::vector<float> x(n, 0.1F);
  for (const VectorIsa isa : kAll) {
    for (const char* extent : {"s0", "4194304"}) {
      float sum = 0;
      compile(reduction("f32", "add", "0", extent), isa).run({x.data(), &sum}, {static_cast<int64_t>(n)});
      EXPECT_NEAR(sum / (static_cast<double>(0.1F) * static_cast<double>(n)), 1.0, 1e-6);
    }
  }
}

TEST(CodegenIsa, TailsWriteNothingElse) {
  const std::string text =
      "kernel tails(in b0: u8[s0], in b1: f64[s0], out b2: u8[s0], out b3: bool[s0], out b4: bf16[s0], size s0) {\n"
      "  vector i in s0 {\n    %0: u8 = load b0[i]\n    %1: f64 = load b1[s0 + -1*i - 1]\n    %2: u8 = const(3)\n"
      "    %3: u8 = add(%0, %2)\n    store b2[s0 + -1*i - 1] = %3\n    %4: f64 = const(0)\n    %5: bool = lt(%1, %4)\n"
      "    store b3[i] = %5\n    %6: bf16 = cast(%1)\n    store b4[i] = %6\n  }\n}\n";
  for (const VectorIsa isa : kAll) {
    const Code code = compile(text, isa);
    for (const size_t n : {1, 3, 8, 16, 31, 64, 67, 200}) {
      std::vector<uint8_t> a(n);
      std::vector<double> b(n);
      for (size_t i = 0; i < n; ++i) {
        a[i] = static_cast<uint8_t>(7 * i);
        b[i] = i % 3 == 0 ? -1.5 : 2.25;
      }
      Fenced<uint8_t> in(a);
      Fenced<double> numbers(b);
      Fenced<uint8_t> out(std::vector<uint8_t>(n, 9));
      Fenced<uint8_t> flags(std::vector<uint8_t>(n, 9));
      Fenced<uint16_t> halves(std::vector<uint16_t>(n, 9));
      code.run({in.data(), numbers.data(), out.data(), flags.data(), halves.data()}, {static_cast<int64_t>(n)});
      for (size_t i = 0; i < n; ++i) {
        EXPECT_EQ(out[n - 1 - i], static_cast<uint8_t>(a[i] + 3));
        EXPECT_EQ(flags[i], b[n - 1 - i] < 0 ? 1 : 0);
        EXPECT_EQ(halves[i], b[n - 1 - i] < 0 ? 0xbfc0 : 0x4010);
      }
    }
  }
}

TEST(CodegenIsa, StridesStayInside) {
  for (const VectorIsa isa : kAll) {
    for (const int64_t step : {2, 3, 4, 5}) {
      for (const int64_t n : {1, 7, 16, 50, 128}) {
        const int64_t numel = (n - 1) * step + 1;
        const Code code = compile(
            str_cat("kernel strides(in b0: f32[", numel, "], in b1: c64[", numel, "], out b2: f32[", n,
                    "]) {\n  vector i in ", n, " {\n    %0: f32 = load b0[", step, "*i]\n    %1: c64 = load b1[", step,
                    "*i]\n    %2: f32 = imag(%1)\n    %3: f32 = add(%0, %2)\n    store b2[i] = "
                    "%3\n  }\n}\n"),
            isa);
        std::vector<float> x(static_cast<size_t>(numel));
        std::vector<std::complex<float>> z(x.size());
        std::iota(x.begin(), x.end(), 1.0F);
        for (size_t i = 0; i < z.size(); ++i) z[i] = {-1, static_cast<float>(1000 * i)};
        Fenced<float> in(x);
        Fenced<std::complex<float>> pairs(z);
        Fenced<float> out(std::vector<float>(static_cast<size_t>(n), 0));
        code.run({in.data(), pairs.data(), out.data()});
        for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
          const size_t at = i * static_cast<size_t>(step);
          EXPECT_EQ(out[i], x[at] + z[at].imag());
        }
      }
    }
  }
}

/// Every float8 number widens exactly and comes back; every float32 between two of them goes to the nearer one.
TEST(CodegenIsa, Float8) {
  struct Format {
    const char* name;
    int exponent;
    int mantissa;
    bool infinity;
  };
  for (const Format& f : {Format{"f8e4m3fn", 4, 3, false}, Format{"f8e5m2", 5, 2, true}}) {
    const auto exact = [&](int bits) {
      const int e = (bits >> f.mantissa) & ((1 << f.exponent) - 1);
      const int m = bits & ((1 << f.mantissa) - 1);
      const int bias = (1 << (f.exponent - 1)) - 1;
      double value =
          e == 0 ? std::ldexp(m, 1 - bias - f.mantissa) : std::ldexp(m + (1 << f.mantissa), e - bias - f.mantissa);
      if (f.infinity && e == (1 << f.exponent) - 1) value = m == 0 ? INFINITY : NAN;
      if (!f.infinity && (bits & 127) == 127) value = NAN;
      return (bits & 128) != 0 ? -value : value;
    };
    std::vector<float> numbers = {INFINITY, -INFINITY, NAN,    1e30F,    -1e30F,  1e-30F,
                                  464.0F,   464.1F,    480.0F, 61439.0F, 61440.0F};
    for (int bits = 0; bits < 128; ++bits) {
      const double here = exact(bits);
      const double next = exact(bits + 1);
      if (!std::isfinite(here) || !std::isfinite(next) || bits == 127) continue;
      for (const double part : {0.0, 0.25, 0.5, 0.75}) {
        numbers.push_back(static_cast<float>(here + part * (next - here)));
        numbers.push_back(-numbers.back());
      }
    }
    const auto n = static_cast<int64_t>(numbers.size());
    const std::string widen = str_cat("kernel widen(in b0: ", f.name, "[256], out b1: f32[256], out b2: ", f.name,
                                      "[256]) {\n  vector i in 256 {\n    %0: ", f.name,
                                      " = load b0[i]\n    %1: f32 = cast(%0)\n    store b1[i] = %1\n    %2: ", f.name,
                                      " = cast(%1)\n    store b2[i] = %2\n  }\n}\n");
    const std::string narrow =
        str_cat("kernel narrow(in b0: f32[", n, "], out b1: ", f.name, "[", n, "]) {\n  vector i in ", n,
                " {\n    %0: f32 = load b0[i]\n    %1: ", f.name, " = cast(%0)\n    store b1[i] = %1\n  }\n}\n");
    for (const VectorIsa isa : kAll) {
      std::vector<uint8_t> all(256);
      std::iota(all.begin(), all.end(), uint8_t{0});
      std::vector<float> wide(256);
      std::vector<uint8_t> back(256);
      compile(widen, isa).run({all.data(), wide.data(), back.data()});
      for (int bits = 0; bits < 256; ++bits) {
        const auto i = static_cast<size_t>(bits);
        if (std::isnan(exact(bits))) {
          EXPECT_TRUE(std::isnan(wide[i]));
        } else {
          EXPECT_EQ(static_cast<double>(wide[i]), exact(bits));
          EXPECT_EQ(back[i], all[i]);
        }
      }
      std::vector<uint8_t> narrowed(numbers.size());
      compile(narrow, isa).run({numbers.data(), narrowed.data()});
      for (size_t i = 0; i < numbers.size(); ++i) {
        const double x = numbers[i];
        int nearest = f.infinity ? 0x7c : 0x7f;
        if (std::isnan(x)) nearest = 0x7f;
        // The first number that is out of range counts as a step like the others.
        double best = std::isnan(x) ? 0 : std::fabs((f.infinity ? 65536.0 : 480.0) - std::fabs(x));
        if (std::fabs(x) > (f.infinity ? 65536.0 : 480.0)) best = 0;
        for (int bits = (f.infinity ? 0x7b : 0x7e); bits >= 0 && !std::isnan(x); --bits) {
          const double distance = std::fabs(exact(bits) - std::fabs(x));
          if (distance < best || (distance == best && best > 0 && bits % 2 == 0)) {
            best = distance;
            nearest = bits;
          }
        }
        EXPECT_EQ(narrowed[i] & 127, nearest);
        EXPECT_EQ((narrowed[i] & 128) != 0, std::signbit(x));
      }
    }
  }
}

/// Any divisor, zero and -1 among them, and any shift: nothing traps.
TEST(CodegenIsa, DivisionAndShifts) {
  const std::string text =
      "kernel division(in b0: i32[n], in b1: i32[n], out b2: i32[n], out b3: i32[n], out b4: i32[n], out b5: i32[n], "
      "out "
      "b6: i32[n], size n) {\n  vector i in n {\n    %0: i32 = load b0[i]\n    %1: i32 = load b1[i]\n"
      "    %2: i32 = floordiv(%0, %1)\n    store b2[i] = %2\n    %3: i32 = mod(%0, %1)\n    store b3[i] = %3\n"
      "    %4: i32 = fmod(%0, %1)\n    store b4[i] = %4\n    %5: i32 = shl(%0, %1)\n    store b5[i] = %5\n"
      "    %6: i32 = shr(%0, %1)\n    store b6[i] = %6\n  }\n}\n";
  std::vector<int32_t> a;
  std::vector<int32_t> b;
  for (const int32_t x : {INT32_MIN, INT32_MIN + 1, -17, -7, -1, 0, 1, 6, 7, 100, INT32_MAX}) {
    for (const int32_t y : {INT32_MIN, -32, -7, -2, -1, 0, 1, 2, 7, 31, 32, INT32_MAX}) {
      a.push_back(x);
      b.push_back(y);
    }
  }
  const size_t n = a.size();
  for (const VectorIsa isa : kAll) {
    std::vector<std::vector<int32_t>> out(5, std::vector<int32_t>(n));
    compile(text, isa).run(
        {a.data(), b.data(), out[0].data(), out[1].data(), out[2].data(), out[3].data(), out[4].data()},
        {static_cast<int64_t>(n)});
    for (size_t i = 0; i < n; ++i) {
      const int64_t x = a[i];
      const int64_t y = b[i];
      if (y != 0) {
        const int64_t floor = x / y - (x % y != 0 && (x % y < 0) != (y < 0) ? 1 : 0);
        EXPECT_EQ(out[0][i], static_cast<int32_t>(floor));
        EXPECT_EQ(out[1][i], static_cast<int32_t>(x - floor * y));
        EXPECT_EQ(out[2][i], static_cast<int32_t>(x % y));
      }
      const bool inside = y >= 0 && y < 32;
      EXPECT_EQ(out[3][i], inside ? static_cast<int32_t>(static_cast<uint32_t>(a[i]) << y) : 0);
      EXPECT_EQ(out[4][i], a[i] >> (inside ? y : 31));
    }
  }
}

TEST(CodegenIsa, LanesThatMeetAddUp) {
  for (const char* kind : {".add", ".add.atomic"}) {
    const std::string text = str_cat(
        "kernel meet(in b0: i64[n], in b1: f32[n], inout b2: f32[10], size n) {\n  vector i in n {\n    %0: i64 = load "
        "b0[i]\n    index to = %0 in 10 check\n    %1: f32 = load b1[i]\n    %2: f32 = const(0)\n    %3: bool = gt(%1, "
        "%2)\n    store",
        kind, " b2[to] = %1 if %3\n  }\n}\n");
    for (const VectorIsa isa : kAll) {
      std::vector<int64_t> to(101);
      std::vector<float> x(101);
      std::vector<float> expected(10, 1.0F);
      for (size_t i = 0; i < x.size(); ++i) {
        to[i] = static_cast<int64_t>(i * i % 10);
        x[i] = i % 4 == 0 ? -1.0F : static_cast<float>(i);
        if (x[i] > 0) expected[static_cast<size_t>(to[i])] += x[i];
      }
      std::vector<float> out(10, 1.0F);
      EXPECT_EQ(compile(text, isa).run({to.data(), x.data(), out.data()}, {101}), 0);
      EXPECT_TRUE(out == expected);
    }
  }
}

TEST(CodegenIsa, RunningTotals) {
  for (const VectorIsa isa : kAll) {
    for (const bool backwards : {false, true}) {
      const std::string at = backwards ? "n + -1*i - 1" : "i";
      const Code sums =
          compile(str_cat("kernel sums(in b0: i32[n], out b1: i64[n], out b2: i64[1], size n) {\n  %0: i64 = "
                          "const(10)\n  vector i in n scan\n      carry %1: i64 from %0 next %4 result %5 "
                          "combine add {\n    %2: i32 = load b0[",
                          at, "]\n    %3: i64 = cast(%2)\n    %4: i64 = add(%1, %3)\n    store b1[", at,
                          "] = %4\n  }\n  store b2[0] = %5\n}\n"),
                  isa);
      for (const size_t n : {1, 2, 7, 8, 9, 40, 333}) {
        std::vector<int32_t> x(n);
        for (size_t i = 0; i < n; ++i) x[i] = static_cast<int32_t>(i * 37 % 101) - 50;
        std::vector<int64_t> out(n);
        int64_t last = 0;
        sums.run({x.data(), out.data(), &last}, {static_cast<int64_t>(n)});
        int64_t total = 10;
        for (size_t k = 0; k < n; ++k) {
          const size_t i = backwards ? n - 1 - k : k;
          total += x[i];
          EXPECT_EQ(out[i], total);
        }
        EXPECT_EQ(last, total);
      }
    }
  }
}

TEST(CodegenIsa, MaximaKeepNan) {
  for (const VectorIsa isa : kAll) {
    for (const char* op : {"max", "min"}) {
      const Code code = compile(reduction("f32", op, std::string(op) == "max" ? "-inf" : "inf", "s0"), isa);
      for (const size_t place : {size_t{0}, size_t{5}, size_t{64}, size_t{99}}) {
        std::vector<float> x(100, 1.0F);
        x[(place + 1) % 100] = 3.0F;
        float best = 0;
        code.run({x.data(), &best}, {100});
        EXPECT_EQ(best, std::string(op) == "max" ? 3.0F : 1.0F);
        x[place] = NAN;
        code.run({x.data(), &best}, {100});
        EXPECT_TRUE(std::isnan(best));
      }
    }
  }
}

}  // namespace
}  // namespace tatara
