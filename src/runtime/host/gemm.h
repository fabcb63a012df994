// Products of matrices on the CPU, where the host's library is slow.
#pragma once

#include <atomic>
#include <cstdint>

#include "ir/dtype.h"

namespace tatara {

/// A matrix in memory: element (i, j) lies at data + (i * row_stride + j * column_stride), counted in elements.
struct MatrixRef {
  void* data = nullptr;
  int64_t row_stride = 0;
  int64_t column_stride = 0;
  DType narrow =
      DType::kFloat32;  // of an operand of a product of float32: int8 or bfloat16, which is widened as it is packed
};

/// out = alpha * left @ right + beta * addend, of (rows, inner) and (inner, columns). The addend may be the result itself, or
/// have strides of zero; without one (null) beta is not read. The result overlaps no operand.
struct MatrixProduct {
  DType dtype = DType::kFloat32;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t inner = 0;
  MatrixRef left, right, addend, out;
  double alpha = 1;
  double beta = 1;
};

/// True when multiply() takes the product: float32 or float64 on a CPU with AVX2 and FMA, a result with rows or columns in one
/// piece, and enough work for tiles to pay.
bool can_multiply(const MatrixProduct& product);

/// On num_threads() threads. Each element is summed in an order that depends on `inner` alone, so that neither threads nor the
/// other sizes change a bit of it. Needs can_multiply(). The scheme is that of K. Goto, R. van de Geijn, "Anatomy of
/// high-performance matrix multiplication", ACM TOMS 34 (2008): panels of both operands are packed so that one stays in the
/// first cache and the other in the second while a tile of the result is summed in registers.
void multiply(const MatrixProduct& product);

/// A product of float32 whose operands may be narrower, also where another kernel might be faster. False, with nothing done: on a CPU
/// without kernels (has_wide_products()).
bool multiply_wide(const MatrixProduct& product);
bool has_wide_products();

/// For tests: the same by the kernel of one instruction set that this machine has.
struct GemmKernel;
void multiply_by(const GemmKernel& kernel, const MatrixProduct& product);

/// Counts multiply()'s products (tatara.stats()).
std::atomic<uint64_t>& native_products();

}  // namespace tatara
