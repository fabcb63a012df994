// The state that all parts of an emitter share while one kernel is written.
#pragma once

#include <vector>

#include "codegen/core/scope.h"
#include "codegen/core/values.h"
#include "codegen/text/ir_writer.h"
#include "loops/kernel.h"

namespace tatara::codegen {

/// Properties of the target that the shared code asks for. What differs in code is in virtual functions.
struct TargetTraits {
  int vector_bytes = 16;  // of a vector register; on a GPU, of the widest memory access of a thread
  bool has_fma = true;
  bool has_vector_ldexp = false;  // llvm.ldexp of vectors is one or two instructions
  bool has_float_power = false;   // 2^x of float32 is one instruction
};

struct EmitContext {
  EmitContext(const loops::Kernel& of, const TargetTraits& on) : kernel(of), traits(on) {}
  EmitContext(const EmitContext&) = delete;
  EmitContext& operator=(const EmitContext&) = delete;

  const loops::Kernel& kernel;
  const TargetTraits traits;
  Declarations declarations;
  IrWriter ir{declarations};
  Scope scope{kernel, ir};
  std::vector<IntRange> ranges;  // of scalars, on targets where 32 bits are cheaper; else empty
};

}  // namespace tatara::codegen
