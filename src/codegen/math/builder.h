// Elementary functions are written as C++ expressions over Val; each operation prints one LLVM instruction on a scalar or
// on all lanes of a vector. Only plain instructions and generic intrinsics are used, so one text serves all targets.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "codegen/text/ir_writer.h"

namespace tatara::codegen {

enum class Lane : uint8_t { kI1, kI32, kI64, kF32, kF64 };

class MathBuilder;

/// A register or constant of the function under construction.
struct Val {
  MathBuilder* b = nullptr;
  std::string text;
  Lane lane = Lane::kF32;
};

/// What the functions are printed for.
struct MathTarget {
  int lanes = 0;  // 0: scalars
  bool has_fma = true;
  bool has_scale = false;  // llvm.ldexp of vectors is one or two instructions (AVX-512)
  std::string attributes;  // of functions: "#0"
  bool has_power = false;  // 2^x of float32 is one instruction (GPUs)
};

class MathBuilder {
 public:
  /// Without FMA, fma() is a product and a sum; see two_product for where that matters. `entry` has the lines at the head of
  /// the function, if more can still be added.
  MathBuilder(IrWriter& ir, const MathTarget& target, std::string* entry = nullptr)
      : ir_(ir),
        entry_(entry),
        lanes_(target.lanes),
        has_fma_(target.has_fma),
        has_scale_(target.has_scale),
        has_power_(target.has_power) {}

  int lanes() const { return lanes_; }
  bool has_fma() const { return has_fma_; }
  /// Vectors of at least one small register.
  bool can_scale(Lane lane) const { return has_scale_ && lanes_ >= (lane == Lane::kF32 ? 4 : 2); }
  bool has_power(Lane lane) const { return has_power_ && lane == Lane::kF32; }
  std::string type(Lane lane) const;
  /// The same value in every lane; floating values are rounded to the lane's type.
  Val constant(Lane lane, double value);
  Val integer(Lane lane, int64_t value);
  Val value(Lane lane, std::string text) { return {this, std::move(text), lane}; }

  Val binary(const char* op, const Val& x, const Val& y);
  Val compare(const char* test, const Val& x, const Val& y);
  Val convert(const char* op, const Val& x, Lane to);
  Val intrinsic(const char* name, std::span<const Val> args);
  /// x * 2^k for i32 lanes k, rounded once.
  Val ldexp(const Val& x, const Val& k);
  /// 2^x by the chip, to two units in the last place; what is subnormal is 0.
  Val power(const Val& x);
  /// 1 / x likewise, to one unit.
  Val reciprocal(const Val& x);
  Val select(const Val& condition, const Val& x, const Val& y);
  Val negate(const Val& x);
  Val freeze(const Val& x);

  /// words[index[lane]] of a constant table, for i64 indices inside of it; i32 words.
  Val lookup(const std::string& table, std::span<const uint32_t> words, const Val& index);

  /// Where `condition` holds, the values of slow(); elsewhere `values`. slow() is jumped over when it holds in no lane; it
  /// runs on all lanes otherwise and must not trap on the others.
  std::vector<Val> patch(const Val& condition, std::vector<Val> values, const std::function<std::vector<Val>()>& slow);
  /// patch() for lanes that seldom need it and whose code is long: a loop over the lanes runs slow() as a scalar function of
  /// x where condition(x) holds. Both get a value that belongs to a builder of scalars.
  std::vector<Val> patch_each(const Val& x, const std::function<Val(const Val&)>& condition, std::vector<Val> values,
                              const std::function<std::vector<Val>(const Val&)>& slow);
  /// Repeats step while more(state) holds in any lane; step must leave lanes that are finished as they are.
  std::vector<Val> repeat(std::vector<Val> state, const std::function<Val(const std::vector<Val>&)>& more,
                          const std::function<std::vector<Val>(const std::vector<Val>&)>& step);

 private:
  Val by_chip(const char* function, const Val& x);
  std::string stack_slot(const Val& initial);
  std::string suffix(Lane lane) const;
  std::string any(const Val& condition);

  IrWriter& ir_;
  std::string* entry_;
  int lanes_;
  bool has_fma_;
  bool has_scale_;
  bool has_power_;
};

// ---- Operators. A number on one side is a constant of the other side's type; integer compares are signed. ----------------

bool is_float(Lane lane);
/// A constant of x's type.
Val like(const Val& x, double value);

Val operator+(const Val& x, const Val& y);
Val operator-(const Val& x, const Val& y);
Val operator*(const Val& x, const Val& y);
Val operator/(const Val& x, const Val& y);
Val operator&(const Val& x, const Val& y);
Val operator|(const Val& x, const Val& y);
Val operator^(const Val& x, const Val& y);
Val operator<(const Val& x, const Val& y);
Val operator<=(const Val& x, const Val& y);
Val operator>(const Val& x, const Val& y);
Val operator>=(const Val& x, const Val& y);
Val operator==(const Val& x, const Val& y);
Val operator!=(const Val& x, const Val& y);
#define TATARA_MATH_MIXED(op)                                                \
  inline Val operator op(const Val& x, double y) { return x op like(x, y); } \
  inline Val operator op(double x, const Val& y) { return like(y, x) op y; }
TATARA_MATH_MIXED(+)
TATARA_MATH_MIXED(-)
TATARA_MATH_MIXED(*)
TATARA_MATH_MIXED(/)
TATARA_MATH_MIXED(&)
TATARA_MATH_MIXED(|)
TATARA_MATH_MIXED(^)
TATARA_MATH_MIXED(<)
TATARA_MATH_MIXED(<=)
TATARA_MATH_MIXED(>)
TATARA_MATH_MIXED(>=)
TATARA_MATH_MIXED(==)
TATARA_MATH_MIXED(!=)
#undef TATARA_MATH_MIXED
Val operator-(const Val& x);
Val operator!(const Val& condition);

Val shl(const Val& x, int bits);
Val lshr(const Val& x, int bits);
Val ashr(const Val& x, int bits);
/// The high half of (x:y) << n, i32.
Val funnel_left(const Val& x, const Val& y, const Val& n);

Val select(const Val& condition, const Val& x, const Val& y);
Val select(const Val& condition, const Val& x, double y);
Val select(const Val& condition, double x, const Val& y);
Val is_nan(const Val& x);

Val abs(const Val& x);
Val sqrt(const Val& x);
Val floor(const Val& x);
Val trunc(const Val& x);
Val round_even(const Val& x);
Val copysign(const Val& magnitude, const Val& sign);
/// x * y + z, rounded once where the target can.
Val fma(const Val& x, const Val& y, const Val& z);
Val fma(const Val& x, const Val& y, double z);
Val fma(const Val& x, double y, const Val& z);
Val fma(const Val& x, double y, double z);
/// The smaller (larger) one; y when x or y is NaN.
Val least(const Val& x, const Val& y);
Val largest(const Val& x, const Val& y);
/// x between two numbers; NaN becomes one of them.
Val within(const Val& x, double low, double high);

Val to_f64(const Val& x);
Val to_f32(const Val& x);
/// From integer to floating lanes of the same size and back. Floating lanes hold whole numbers; of 64-bit lanes only
/// numbers below 2^51 count (what is out of range gives some number).
Val to_float(const Val& x);
Val to_int(const Val& x);
Val to_i64(const Val& x);           // sign extension
Val to_i64_unsigned(const Val& x);  // zero extension
Val to_i32(const Val& x);
Val bits(const Val& x);
Val from_bits(const Val& x);

/// Horner's scheme, coefficients from the constant term up.
Val poly(const Val& x, std::span<const double> coefficients);

/// An unevaluated sum: |low| is at most half a unit in the last place of high.
struct Pair {
  Val high;
  Val low;
};
/// Exact sums: Moller-Knuth's for any order, Dekker's where |x| >= |y| or x is 0 (T. J. Dekker, Numerische Mathematik 18,
/// 1971).
Pair two_sum(const Val& x, const Val& y);
Pair fast_two_sum(const Val& x, const Val& y);
/// The exact product, barring over- and underflow of its error.
Pair two_product(const Val& x, const Val& y);

}  // namespace tatara::codegen
