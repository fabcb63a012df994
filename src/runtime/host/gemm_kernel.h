// The innermost loops of gemm.cpp, for one instruction set: a source file that is compiled for it includes this file and makes
// its table. Nothing here may be an inline function that another source file has too: the linker would keep one of them, perhaps
// with instructions that the machine lacks.
#pragma once

#include <cstdint>

namespace tatara {

/// A tile of the result: the sums over `inner` of left panel times right panel, written to `out` with alpha and beta.
struct GemmTile {
  int64_t inner;
  const void* left;   // [inner][tile_rows]
  const void* right;  // [inner][tile_columns], aligned to vectors
  void* out;          // columns next to each other
  int64_t out_row_stride;
  const void* addend;  // null: none
  int64_t addend_row_stride;
  int64_t addend_column_stride;
  double alpha;
  double beta;
  int64_t rows;  // at most tile_rows, as many of them are written
  int64_t columns;
};

struct GemmKernel {
  int64_t tile_rows;
  int64_t tile_columns;
  void (*multiply)(const GemmTile& tile);
  /// Lays `count` lines of `inner` elements out in panels of `panel` lines, [inner][panel] each, the last one filled up with zeros.
  /// Strides in elements: from line to line, and within a line.
  using Pack = void (*)(void* out, const void* in, int64_t count, int64_t inner, int64_t line_stride, int64_t stride,
                        int64_t panel);
  Pack pack;
  /// The same of narrower elements. Null: there is none.
  Pack pack_int8, pack_bfloat16;
};

/// Null where the compiler does not make them.
const GemmKernel* gemm_avx512(bool is_double);
const GemmKernel* gemm_avx2(bool is_double);

}  // namespace tatara

#if defined(TATARA_GEMM_VECTOR_BYTES)
namespace {

template <typename T>
struct Gemm {
  // Three vectors of columns times as many rows as registers are left for: 8 x 3 sums in 32 registers, 4 x 3 in 16.
  static constexpr int kWidth = TATARA_GEMM_VECTOR_BYTES / static_cast<int>(sizeof(T));
  static constexpr int kVectors = 3;
  static constexpr int kRows = TATARA_GEMM_VECTOR_BYTES / 8;
  static constexpr int kColumns = kVectors * kWidth;
  static constexpr int kFour = 4;

  using Vector [[gnu::vector_size(TATARA_GEMM_VECTOR_BYTES), gnu::may_alias]] = T;
  using Unaligned [[gnu::vector_size(TATARA_GEMM_VECTOR_BYTES), gnu::may_alias, gnu::aligned(sizeof(T))]] = T;
  using Quad [[gnu::vector_size(4 * sizeof(T)), gnu::may_alias, gnu::aligned(sizeof(T))]] = T;

  static void multiply(const tatara::GemmTile& tile) {
    const T* left = static_cast<const T*>(tile.left);
    const T* right = static_cast<const T*>(tile.right);
    T* out = static_cast<T*>(tile.out);
    // The result's lines come from memory while the sums are made.
    for (int64_t i = 0; i < tile.rows; ++i) {
      for (int j = 0; j < kVectors; ++j) __builtin_prefetch(out + i * tile.out_row_stride + j * kWidth, 1);
    }
    Vector sums[kRows][kVectors] = {};
    for (int64_t k = 0; k < tile.inner; ++k, left += kRows, right += kColumns) {
      Vector columns[kVectors];
      for (int j = 0; j < kVectors; ++j) columns[j] = *reinterpret_cast<const Vector*>(right + j * kWidth);
      for (int i = 0; i < kRows; ++i) {
        for (int j = 0; j < kVectors; ++j) sums[i][j] += left[i] * columns[j];
      }
    }
    const T* addend = static_cast<const T*>(tile.addend);
    const T alpha = static_cast<T>(tile.alpha);
    const T beta = static_cast<T>(tile.beta);
    if (tile.columns == kColumns && (addend == nullptr || tile.addend_column_stride == 1)) {
      for (int i = 0; i < kRows; ++i) {
        if (i >= tile.rows) break;
        for (int j = 0; j < kVectors; ++j) {
          Vector value = sums[i][j] * alpha;
          if (addend != nullptr) {
            value += *reinterpret_cast<const Unaligned*>(addend + i * tile.addend_row_stride + j * kWidth) * beta;
          }
          *reinterpret_cast<Unaligned*>(out + i * tile.out_row_stride + j * kWidth) = value;
        }
      }
      return;
    }
    alignas(TATARA_GEMM_VECTOR_BYTES) T whole[kRows * kColumns];
    for (int i = 0; i < kRows; ++i) {
      for (int j = 0; j < kVectors; ++j)
        *reinterpret_cast<Vector*>(whole + i * kColumns + j * kWidth) = sums[i][j] * alpha;
    }
    for (int64_t i = 0; i < tile.rows; ++i) {
      for (int64_t j = 0; j < tile.columns; ++j) {
        T value = whole[i * kColumns + j];
        if (addend != nullptr) value += addend[i * tile.addend_row_stride + j * tile.addend_column_stride] * beta;
        out[i * tile.out_row_stride + j] = value;
      }
    }
  }

  // What is packed: elements as they are, or narrower ones.
  struct Same {
    using Element = T;
    static Quad four(const T* p) { return *reinterpret_cast<const Quad*>(p); }
    static T one(T value) { return value; }
  };
  struct Int8 {
    using Element = int8_t;
    using Four [[gnu::vector_size(4), gnu::may_alias, gnu::aligned(1)]] = int8_t;
    static Quad four(const int8_t* p) { return __builtin_convertvector(*reinterpret_cast<const Four*>(p), Quad); }
    static T one(int8_t value) { return static_cast<T>(value); }
  };
  struct BFloat16 {
    using Element = uint16_t;
    using Four [[gnu::vector_size(8), gnu::may_alias, gnu::aligned(2)]] = uint16_t;
    using Words [[gnu::vector_size(16)]] = uint32_t;
    static Quad four(const uint16_t* p) {
      const Words words = __builtin_convertvector(*reinterpret_cast<const Four*>(p), Words) << 16;
      Quad result;
      __builtin_memcpy(&result, &words, sizeof result);
      return result;
    }
    static T one(uint16_t value) {
      const uint32_t word = static_cast<uint32_t>(value) << 16;
      T result{};
      __builtin_memcpy(&result, &word, sizeof word);
      return result;
    }
  };

  /// Four lines of four elements each, turned.
  template <typename From>
  static void turn(T* out, int64_t panel, const typename From::Element* in, int64_t line_stride, int64_t lines) {
    Quad a[kFour];
    for (int64_t i = 0; i < kFour; ++i) a[i] = i < lines ? From::four(in + i * line_stride) : Quad{};
    const Quad low0 = __builtin_shufflevector(a[0], a[1], 0, 4, 1, 5);
    const Quad high0 = __builtin_shufflevector(a[0], a[1], 2, 6, 3, 7);
    const Quad low1 = __builtin_shufflevector(a[2], a[3], 0, 4, 1, 5);
    const Quad high1 = __builtin_shufflevector(a[2], a[3], 2, 6, 3, 7);
    *reinterpret_cast<Quad*>(out) = __builtin_shufflevector(low0, low1, 0, 1, 4, 5);
    *reinterpret_cast<Quad*>(out + panel) = __builtin_shufflevector(low0, low1, 2, 3, 6, 7);
    *reinterpret_cast<Quad*>(out + 2 * panel) = __builtin_shufflevector(high0, high1, 0, 1, 4, 5);
    *reinterpret_cast<Quad*>(out + 3 * panel) = __builtin_shufflevector(high0, high1, 2, 3, 6, 7);
  }

  /// One panel; kPanel is a multiple of four.
  template <typename From, int kPanel>
  static void pack_panel(T* out, const typename From::Element* in, int64_t lines, int64_t inner, int64_t line_stride,
                         int64_t stride) {
    int64_t k = 0;
    if (line_stride == 1 && lines == kPanel) {
      for (; k < inner; ++k) {
        for (int i = 0; i < kPanel; i += kFour)
          *reinterpret_cast<Quad*>(out + k * kPanel + i) = From::four(in + k * stride + i);
      }
    } else if (stride == 1) {
      for (; k + kFour <= inner; k += kFour) {
        for (int i = 0; i < kPanel; i += kFour) {
          turn<From>(out + k * kPanel + i, kPanel, in + i * line_stride + k, line_stride, lines - i);
        }
      }
    }
    for (; k < inner; ++k) {
      for (int64_t i = 0; i < kPanel; ++i)
        out[k * kPanel + i] = i < lines ? From::one(in[i * line_stride + k * stride]) : T{0};
    }
  }

  template <typename From>
  static void pack(void* out, const void* in, int64_t count, int64_t inner, int64_t line_stride, int64_t stride,
                   int64_t panel) {
    T* to = static_cast<T*>(out);
    const auto* from = static_cast<const typename From::Element*>(in);
    for (int64_t i = 0; i < count; i += panel, from += panel * line_stride, to += panel * inner) {
      const int64_t lines = count - i < panel ? count - i : panel;
      if (panel == kRows) {
        pack_panel<From, kRows>(to, from, lines, inner, line_stride, stride);
      } else {
        pack_panel<From, kColumns>(to, from, lines, inner, line_stride, stride);
      }
    }
  }

  static constexpr tatara::GemmKernel::Pack narrow(tatara::GemmKernel::Pack of_float) {
    return sizeof(T) == sizeof(float) ? of_float : nullptr;
  }
  static constexpr tatara::GemmKernel kKernel{
      kRows, kColumns, &multiply, &pack<Same>, narrow(&pack<Int8>), narrow(&pack<BFloat16>)};
};

}  // namespace
#endif
