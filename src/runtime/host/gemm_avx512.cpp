// gemm_kernel.h for AVX-512; cmake/core.cmake has this file compiled for it.
#if defined(__AVX512F__) && defined(__FMA__)
#define TATARA_GEMM_VECTOR_BYTES 64
#endif
#include "runtime/host/gemm_kernel.h"

namespace tatara {

#if defined(TATARA_GEMM_VECTOR_BYTES)
const GemmKernel* gemm_avx512(bool is_double) { return is_double ? &Gemm<double>::kKernel : &Gemm<float>::kKernel; }
#else
const GemmKernel* gemm_avx512(bool) { return nullptr; }
#endif

}  // namespace tatara
