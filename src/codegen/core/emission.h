// One kernel while its text is written: what every part of an emitter shares.
#pragma once

#include "codegen/core/scope.h"
#include "codegen/core/values.h"
#include "codegen/text/ir_writer.h"
#include "loops/kernel.h"

namespace tatara::codegen {

/// What the parts that serve all targets must know of one. The rest is in the classes that each target has of its own.
struct Machine {
  int vector_bytes = 16;  // of a vector register; on a GPU, of a thread's widest access
  bool has_fma = true;
  bool has_vector_ldexp = false;  // llvm.ldexp of vectors is one or two instructions
  bool has_float_power = false;   // 2^x of float32 is one instruction
  ComplexCall complex_call = ComplexCall::kFloatVector;
};

struct Emission {
  Emission(const loops::Kernel& of, const Machine& on) : kernel(of), machine(on) {}
  Emission(const Emission&) = delete;
  Emission& operator=(const Emission&) = delete;

  const loops::Kernel& kernel;
  const Machine machine;
  Declarations declarations;
  IrWriter ir{declarations};
  Scope scope{kernel, ir};
};

}  // namespace tatara::codegen
