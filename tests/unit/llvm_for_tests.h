// The LLVM that unit tests compile with: option llvm (TATARA_LLVM), else the llvmlite that CMake found.
#pragma once

#include "runtime/jit/llvm_provider.h"
#include "support/error.h"
#include "support/options.h"

namespace tatara {

/// Null when there is none; the test then skips itself.
inline LlvmProvider* llvm_for_tests() {
#ifdef TATARA_TEST_LLVM
  if (option_text(Option::kLlvm).empty()) set_llvm_path(TATARA_TEST_LLVM);
#endif
  try {
    return &llvm_provider();
  } catch (const CompilationError&) {
    return nullptr;
  }
}

}  // namespace tatara
