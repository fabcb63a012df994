// Matrices in global memory as the copy engine of NVIDIA's GPUs of compute capability 9.0 sees them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "loops/kernel.h"

namespace tatara::loops {

/// Elements of a batch of matrices, and the boxes of them that a copy takes: kBoxBytes along memory. Dims begin with the innermost one,
/// whose stride is 1. A launch gives it to its kernel as bytes (CUDA Driver API, cuTensorMapEncodeTiled).
///
/// Of the columns of a product a thread gets two of each eight, from four threads beside each other. An interleaved map puts columns
/// 8 * thread + 2 * i + j of 32 where the tensor cores have column 8 * i + 2 * thread + j, so that a thread's columns lie beside each other.
struct TensorMap {
  friend bool operator==(const TensorMap&, const TensorMap&) = default;
  struct Dim {
    friend bool operator==(const Dim&, const Dim&) = default;
    int64_t size = 1, stride = 1, box = 1;  // elements
  };

  int buffer = 0;      // of the launch
  int64_t offset = 0;  // elements
  std::vector<Dim> dims;
  int64_t bytes = 2;  // of an element

  static constexpr int64_t kBoxBytes = 128;
  static constexpr int64_t kBox = kBoxBytes / 2;  // elements of two bytes
  static constexpr int64_t kInterleaved = 32;     // columns
  static constexpr int64_t kBytes = 128;          // of a map
  static constexpr int64_t kAlign = 64;
  static constexpr int64_t kLongest = int64_t{1} << 31;  // elements of a dim, at most

  /// Of a product's operand. Where its rows lie along memory a box has `extent` of them, else kBox elements of k.
  static TensorMap of(const Product::Side& side) {
    const Product::Matrices& m = *side.matrices;
    // A single matrix may have any stride; the engine wants one that it could take.
    const int64_t far = m.batches > 1 ? m.batch_stride : m.aligned(), box = kBoxBytes / m.bytes;
    if (m.interleaved) {
      const int64_t row = m.row_stride;
      return {0,
              m.offset,
              {{m.inner, 1, box},
               {2, row, 2},
               {4, 8 * row, 4},
               {4, 2 * row, 4},
               {m.rows / kInterleaved * m.batches, kInterleaved * row, side.extent / kInterleaved}},
              m.bytes};
    }
    if (m.along())
      return {0, m.offset, {{m.inner, 1, box}, {m.rows, m.row_stride, side.extent}, {m.batches, far, 1}}, m.bytes};
    return {0, m.offset, {{m.rows, 1, kBox}, {m.inner, m.inner_stride, kBox}, {m.batches, far, 1}}};
  }
  /// Of matrices of an attention: boxes of kBox elements of so many rows.
  static TensorMap of(const Attention::Side& side, int64_t rows) {
    TensorMap map{0, side.offset, {{side.width, 1, kBox}, {side.rows, side.row_stride, rows}}};
    for (const size_t d : {size_t{1}, size_t{0}}) {
      const int64_t far = side.batches[d] > 1 ? side.batch_strides[d] : Product::Matrices{}.aligned();
      map.dims.push_back({side.batches[d], far, 1});
    }
    return map;
  }
};

/// The kernel's product; null: it has none.
const Product* product_of(const Kernel& kernel);
const Attention* attention_of(const Kernel& kernel);
/// Of a kernel's product over matrices: the left operand's and the right one's. Of its attention: queries' and keys' of each
/// product, and values'. Empty for other kernels.
std::vector<TensorMap> tensor_maps(const Kernel& kernel);

}  // namespace tatara::loops
