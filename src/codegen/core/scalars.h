// Scalar operators: one instruction or a few for each, on a register or on all lanes of a vector.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "codegen/core/emission.h"

namespace tatara::codegen {

class Scalars {
 public:
  explicit Scalars(Emission& emission) : ir_(emission.ir), scope_(emission.scope), emission_(emission) {}
  Scalars(const Scalars&) = delete;
  Scalars& operator=(const Scalars&) = delete;
  virtual ~Scalars() = default;

  /// The value of a scalar whose operands have theirs.
  Reg value(const loops::Scalar& s);
  /// x * y + z, rounded once where the target can.
  Reg multiply_add(DType dtype, std::span<const loops::ScalarId> xyz);
  /// The value that leaves others as they are. Sums start from -0.0, which keeps the sign of a zero.
  Reg identity(loops::Combine how, DType dtype) const;
  Reg combine(loops::Combine how, DType dtype, const Reg& a, const Reg& b, bool vec);

 protected:
  /// An operator and its operands, as text of one type.
  struct Operation {
    const loops::Scalar& scalar;
    DType dtype;       // of the operands
    std::string type;  // of the operands in LLVM
    bool vec;
    std::span<const Reg> given;
    std::vector<std::string> x;  // widened to vectors where `vec`
    bool floating() const { return is_llvm_float(dtype); }
    std::string zero() const { return vec ? "zeroinitializer" : floating() ? "0.0" : "0"; }
  };
  /// Operators that some target computes in a way of its own: division, minimum and maximum (NaN wins), 1 / sqrt(x).
  virtual Reg divide(const Operation& o);
  virtual Reg extremum(const Operation& o);
  virtual Reg inverse_root(const Operation& o);

  Reg binary(const Operation& o, const char* floating, const char* integer);
  Reg intrinsic(const Operation& o, const char* name) { return {ir_.intrinsic(name, o.dtype, o.vec, o.x), o.vec}; }
  /// A constant of the operands' type, in a register of its own where it is a vector.
  std::string constant_operand(const Operation& o, const std::string& text);

  IrWriter& ir_;
  Scope& scope_;
  Emission& emission_;

 private:
  Reg arithmetic(const loops::Scalar& s, std::span<const Reg> v, bool vec);
  Reg real(const Operation& o);
  Reg comparison(const loops::Scalar& s, std::span<const Reg> v, bool vec);
  Reg negate(const Operation& o);
  Reg absolute(const Operation& o);
  Reg division(const Operation& o);
  Reg real_division(loops::ScalarOp op, DType dtype, const Reg& a, const Reg& b, bool vec);
  Reg is_infinite(const Operation& o);
  Reg sign_bit(const Operation& o);
  Reg complex(const loops::Scalar& s, std::span<const Reg> v, bool vec);
  Reg complex_test(const loops::Scalar& s, DType part, const Reg& x, bool vec);
  Reg function(loops::ScalarOp op, DType dtype, std::span<const Reg> v, bool vec);
  Reg sigmoid(DType dtype, std::span<const Reg> v, bool vec);
  std::optional<std::string> table_function(loops::ScalarOp op, DType dtype, std::span<const Reg> v, bool vec);
};

}  // namespace tatara::codegen
