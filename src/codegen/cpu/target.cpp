#include "codegen/cpu/target.h"

namespace tatara {

int CpuTarget::vector_bytes() const {
  switch (isa) {
    case VectorIsa::kScalar: return 4;
    case VectorIsa::kAvx2: return 32;
    case VectorIsa::kAvx512: return 64;
    case VectorIsa::kNeon: return 16;
  }
  return 4;
}

}  // namespace tatara
