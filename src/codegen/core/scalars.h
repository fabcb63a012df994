// Emits scalar operators, on single registers or on vectors.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "codegen/core/emit_context.h"
#include "codegen/math/builder.h"

namespace tatara::codegen {

class Scalars {
 public:
  explicit Scalars(EmitContext& context) : ir_(context.ir), scope_(context.scope), context_(context) {}
  Scalars(const Scalars&) = delete;
  Scalars& operator=(const Scalars&) = delete;
  virtual ~Scalars() = default;

  /// Emits an operator whose operands have been emitted.
  Reg value(const loops::Scalar& s);
  /// llvm.fmuladd: x * y + z, fused if the target has FMA.
  Reg multiply_add(DType dtype, std::span<const loops::ScalarId> xyz);
  /// The neutral element. For floating sums it is -0.0, since 0.0 + -0.0 would lose the sign.
  Reg identity(loops::Combine how, DType dtype) const;
  Reg combine(loops::Combine how, DType dtype, const Reg& a, const Reg& b, bool vec);

 protected:
  /// An operator with operands of one type.
  struct Operation {
    const loops::Scalar& scalar;
    DType dtype;       // of the operands
    std::string type;  // of the operands in LLVM
    bool vec;
    std::span<const Reg> given;
    std::vector<std::string> x;  // the operands, broadcast if `vec`
    bool floating() const { return is_llvm_float(dtype); }
    std::string zero() const { return vec ? "zeroinitializer" : floating() ? "0.0" : "0"; }
  };
  /// Target hooks: true division; minimum and maximum, which propagate NaN; 1 / sqrt(x).
  virtual Reg divide(const Operation& o);
  virtual Reg extremum(const Operation& o);
  virtual Reg inverse_root(const Operation& o);

  Reg binary(const Operation& o, const char* floating, const char* integer);
  Reg intrinsic(const Operation& o, const char* name) { return {ir_.intrinsic(name, o.dtype, o.vec, o.x), o.vec}; }
  /// A constant as an operand, broadcast if `vec`.
  std::string constant_operand(const Operation& o, const std::string& text);

  IrWriter& ir_;
  Scope& scope_;
  EmitContext& context_;

 private:
  Reg arithmetic(const loops::Scalar& s, std::span<const Reg> v, bool vec);
  Reg real(const Operation& o);
  /// `type`: of the operands.
  Reg comparison(loops::ScalarOp op, DType type, std::span<const Reg> v, bool vec);
  bool takes_narrow(const loops::Scalar& s) const;
  Reg narrow_value(const loops::Scalar& s, std::vector<Reg> v, bool vec);
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
  Reg complex_function(loops::ScalarOp op, DType part, std::span<const Reg> v, bool vec);
  MathTarget math_target(bool vec) const;
  std::optional<std::string> table_function(loops::ScalarOp op, DType dtype, std::span<const Reg> v, bool vec);
};

}  // namespace tatara::codegen
