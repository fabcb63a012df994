#include "runtime/host/gemm.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>

#include "codegen/emit_cpu.h"
#include "runtime/base/thread_pool.h"
#include "runtime/host/gemm_kernel.h"
#include "support/error.h"

namespace tatara {
namespace {

constexpr int64_t kInnerBlock = 384;               // of one panel: 8 rows of it are a third of the first cache
constexpr int64_t kAheadBytes = int64_t{8} << 20;  // of the operand that is packed ahead
constexpr int64_t kAheadLines = 512;               // of it at least, so that packing the other one again costs little
constexpr int64_t kLeastWork = 1 << 18;            // multiplications
constexpr int64_t kLeastLines = 8;
constexpr int64_t kLeastInner = 64;        // for writing the result is most of the work of short sums
constexpr double kLeastFill = 0.8;         // of the tiles that cover the result
constexpr int64_t kLeastPacked = 1 << 14;  // elements, by a thread of its own
constexpr int64_t kTasksPerThread = 3;     // so that a thread that is held up leaves its share to the others

const GemmKernel* kernel_for(DType dtype) {
  if (dtype != DType::kFloat32 && dtype != DType::kFloat64) return nullptr;
  const bool is_double = dtype == DType::kFloat64;
  const CpuTarget cpu = host_cpu_target();
  if (cpu.isa == VectorIsa::kAvx512) return gemm_avx512(is_double);
  return cpu.isa == VectorIsa::kAvx2 && cpu.has_fma ? gemm_avx2(is_double) : nullptr;
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

/// Memory of this thread that grows and stays, for packed panels.
class Panels {
 public:
  char* at_least(int64_t bytes) {
    if (bytes > size_) {
      memory_.reset();
      size_ = 0;
      const auto whole = static_cast<size_t>(round_up(bytes, 4096));
      memory_.reset(static_cast<char*>(std::aligned_alloc(4096, whole)));
      if (memory_ == nullptr) throw std::bad_alloc();
      size_ = static_cast<int64_t>(whole);
    }
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  std::unique_ptr<char, Free> memory_;
  int64_t size_ = 0;
};

thread_local Panels t_ahead, t_local;

/// One operand as lines along the inner dimension: the rows of the left one, the columns of the right one.
struct Lines {
  const char* data;
  int64_t count;
  int64_t line_stride;  // in elements, as the next
  int64_t stride;
  int64_t panel;
  int64_t element;  // bytes
  GemmKernel::Pack pack;
};

/// Lines cut at panels into pieces of nearly the same length.
class Pieces {
 public:
  /// As many as wanted, but fewer where they would be shorter than `least` lines, and more where longer than `most`.
  Pieces(int64_t lines, int64_t panel, int64_t wanted, int64_t least, int64_t most)
      : lines_(lines), panel_(panel), panels_(ceil_div(lines, panel)) {
    number_ = std::min(wanted, std::max<int64_t>(panels_ / ceil_div(least, panel), 1));
    number_ = std::max(number_, ceil_div(panels_, std::max<int64_t>(most / panel, 1)));
  }
  int64_t number() const { return number_; }
  int64_t begin(int64_t piece) const { return std::min(piece * panels_ / number_ * panel_, lines_); }
  int64_t longest() const { return ceil_div(panels_, number_) * panel_; }

 private:
  int64_t lines_, panel_, panels_, number_ = 1;
};

/// The smaller operand is packed ahead by all threads, the other one a chunk at a time by the thread that multiplies it.
class Multiplication {
 public:
  Multiplication(const MatrixProduct& p, const GemmKernel& kernel)
      : p_(p), kernel_(kernel), element_(dtype_size(p.dtype)), rows_ahead_(p.rows <= p.columns) {
    const Lines rows = lines_of(p.left, p.rows, p.left.row_stride, p.left.column_stride, kernel_.tile_rows);
    const Lines columns = lines_of(p.right, p.columns, p.right.column_stride, p.right.row_stride, kernel_.tile_columns);
    ahead_ = rows_ahead_ ? rows : columns;
    other_ = rows_ahead_ ? columns : rows;
    inner_block_ = round_up(ceil_div(p.inner, ceil_div(p.inner, kInnerBlock)), 8);
  }

  void run() {
    const int64_t capacity = kAheadBytes / element_;
    const int64_t inner_step =
        std::max(inner_block_,
                 capacity / std::min(round_up(ahead_.count, ahead_.panel), kAheadLines) / inner_block_ * inner_block_);
    const int64_t line_step =
        std::max(ahead_.panel, capacity / std::min(inner_step, p_.inner) / ahead_.panel * ahead_.panel);
    for (int64_t k = 0; k < p_.inner; k += inner_step) {
      for (int64_t line = 0; line < ahead_.count; line += line_step) {
        step(k, std::min(inner_step, p_.inner - k), line, std::min(line_step, ahead_.count - line));
      }
    }
  }

 private:
  Lines lines_of(const MatrixRef& m, int64_t count, int64_t line_stride, int64_t stride, int64_t panel) const {
    Lines lines{static_cast<const char*>(m.data), count, line_stride, stride, panel, element_, kernel_.pack};
    if (m.narrow == DType::kInt8) lines.pack = kernel_.pack_int8;
    if (m.narrow == DType::kBFloat16) lines.pack = kernel_.pack_bfloat16;
    if (m.narrow != DType::kFloat32) lines.element = dtype_size(m.narrow);
    return lines;
  }

  static void pack(char* out, const Lines& from, int64_t line, int64_t count, int64_t k, int64_t inner) {
    from.pack(out, from.data + (line * from.line_stride + k * from.stride) * from.element, count, inner,
              from.line_stride, from.stride, from.panel);
  }

  /// The products of `inner` elements from k on, of some lines of the operand that is packed ahead.
  void step(int64_t k, int64_t inner, int64_t line, int64_t count) {
    const int64_t padded = round_up(count, ahead_.panel);
    char* ahead = t_ahead.at_least(padded * inner * element_);
    const int64_t shortest = std::max(ceil_div(count, 4 * num_threads()), kLeastPacked / inner);
    const int64_t pack_grain = round_up(std::max<int64_t>(shortest, 1), ahead_.panel);
    parallel_for(0, ceil_div(count, pack_grain), 1, [&](int64_t b, int64_t e) {
      const int64_t from = b * pack_grain, to = std::min(e * pack_grain, count);
      for (int64_t at = 0; at < inner; at += inner_block_) {
        const int64_t block = std::min(inner_block_, inner - at);
        pack(ahead + (at * padded + from * block) * element_, ahead_, line + from, to - from, k + at, block);
      }
    });

    const int64_t tasks = kTasksPerThread * num_threads();
    const int64_t most = rows_ahead_ ? 384 : 192;  // lines whose panels fill half of a second cache of 1 MB
    const Pieces chunks(other_.count, other_.panel, tasks, 16, most);
    // Where these are too few, the lines ahead are split as well, though each part packs the chunk again.
    const Pieces parts(count, ahead_.panel, ceil_div(tasks, chunks.number()), 64, count);
    const int64_t number = chunks.number() * parts.number();
    std::atomic<int64_t> next{0};  // a task at a time: parallel_for would hand out several
    parallel_for(0, std::min<int64_t>(number, num_threads()), 1, [&](int64_t, int64_t) {
      for (int64_t task = 0; (task = next.fetch_add(1, std::memory_order_relaxed)) < number;) {
        const int64_t first = chunks.begin(task / parts.number()), n = chunks.begin(task / parts.number() + 1) - first;
        const int64_t begin = parts.begin(task % parts.number()), end = parts.begin(task % parts.number() + 1);
        char* local = t_local.at_least(chunks.longest() * inner_block_ * element_);
        for (int64_t at = 0; at < inner; at += inner_block_) {
          const int64_t block = std::min(inner_block_, inner - at);
          pack(local, other_, first, n, k + at, block);
          const char* panels = ahead + at * padded * element_;
          for (int64_t i = begin; i < end; i += ahead_.panel) {
            for (int64_t j = 0; j < n; j += other_.panel) {
              const char* there = panels + i * block * element_;
              const char* here = local + j * block * element_;
              if (rows_ahead_) {
                tile(k + at, block, there, here, line + i, first + j, count - i, n - j);
              } else {
                tile(k + at, block, here, there, first + j, line + i, n - j, count - i);
              }
            }
          }
        }
      }
    });
  }

  void tile(int64_t k, int64_t inner, const char* left, const char* right, int64_t row, int64_t column, int64_t rows,
            int64_t columns) const {
    char* out = static_cast<char*>(p_.out.data) + (row * p_.out.row_stride + column) * element_;
    GemmTile t{inner, left, right, out, p_.out.row_stride, nullptr, 0, 0, p_.alpha, p_.beta, 0, 0};
    t.rows = std::min(rows, kernel_.tile_rows);
    t.columns = std::min(columns, kernel_.tile_columns);
    if (k > 0) {
      t.addend = out;
      t.addend_row_stride = p_.out.row_stride;
      t.addend_column_stride = 1;
      t.beta = 1;
    } else if (p_.addend.data != nullptr) {
      t.addend = static_cast<const char*>(p_.addend.data) +
                 (row * p_.addend.row_stride + column * p_.addend.column_stride) * element_;
      t.addend_row_stride = p_.addend.row_stride;
      t.addend_column_stride = p_.addend.column_stride;
    }
    kernel_.multiply(t);
  }

  const MatrixProduct& p_;
  const GemmKernel& kernel_;
  const int64_t element_;
  const bool rows_ahead_;
  Lines ahead_{}, other_{};
  int64_t inner_block_ = 0;
};

MatrixRef turned(const MatrixRef& m) { return {m.data, m.column_stride, m.row_stride, m.narrow}; }

}  // namespace

std::atomic<uint64_t>& native_products() {
  static constinit std::atomic<uint64_t> count{0};
  return count;
}

bool can_multiply(const MatrixProduct& p) {
  const auto rows = static_cast<double>(p.rows), columns = static_cast<double>(p.columns);
  if (std::min(p.rows, p.columns) < kLeastLines || p.inner < kLeastInner ||
      rows * columns * static_cast<double>(p.inner) < kLeastWork) {
    return false;
  }
  const GemmKernel* kernel = kernel_for(p.dtype);
  if (kernel == nullptr || (p.out.row_stride != 1 && p.out.column_stride != 1)) return false;
  const bool along_rows = p.out.column_stride == 1;
  const int64_t whole_rows = round_up(p.rows, along_rows ? kernel->tile_rows : kernel->tile_columns);
  const int64_t whole_columns = round_up(p.columns, along_rows ? kernel->tile_columns : kernel->tile_rows);
  return rows * columns >= kLeastFill * static_cast<double>(whole_rows) * static_cast<double>(whole_columns);
}

void multiply(const MatrixProduct& product) {
  if (!can_multiply(product)) throw InternalError("a matrix product without a kernel");
  native_products().fetch_add(1, std::memory_order_relaxed);
  multiply_by(*kernel_for(product.dtype), product);
}

bool has_wide_products() {
  const GemmKernel* kernel = kernel_for(DType::kFloat32);
  return kernel != nullptr && kernel->pack_int8 != nullptr;
}

bool multiply_wide(const MatrixProduct& product) {
  if (!has_wide_products()) return false;
  native_products().fetch_add(1, std::memory_order_relaxed);
  multiply_by(*kernel_for(DType::kFloat32), product);
  return true;
}

void multiply_by(const GemmKernel& kernel, const MatrixProduct& product) {
  if (product.out.column_stride == 1) return Multiplication(product, kernel).run();
  // Tiles are written along rows: the transposed product has them.
  MatrixProduct p = product;
  std::swap(p.rows, p.columns);
  p.left = turned(product.right);
  p.right = turned(product.left);
  p.addend = turned(product.addend);
  p.out = turned(product.out);
  Multiplication(p, kernel).run();
}

}  // namespace tatara
