// What tells kernels of one schedule apart, before they get contexts of their own.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "schedule/internal.h"

namespace tatara::sched {

namespace {

/// Structures are taken apart by all their members, so that one with a new member does not compile until the key has it.
class KeyWriter {
 public:
  explicit KeyWriter(std::string& bytes) : bytes_(bytes) {}

  template <typename T>
    requires(std::is_arithmetic_v<T> || std::is_enum_v<T>)
  void put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  /// One place in memory for each expression of a context.
  void put(Expr e) { put(reinterpret_cast<uintptr_t>(e.node())); }
  void put(const std::string& text) {
    put(text.size());
    bytes_ += text;
  }
  template <typename T>
  void put(const std::vector<T>& list) {
    put(list.size());
    for (const T& item : list) put(item);
  }
  template <typename T>
  void put(const std::optional<T>& part) {
    put(part.has_value());
    if (part) put(*part);
  }
  template <typename T>
  void put(const std::unique_ptr<T>& part) {
    put(part != nullptr);
    if (part != nullptr) put(*part);
  }
  void put(const loops::Block& block) {
    const auto& [stmts] = block;
    put(stmts.size());
    for (const loops::Stmt& stmt : stmts) {
      put(stmt.index());
      std::visit([&](const auto& s) { put(s); }, stmt);
    }
  }
  void put(const loops::Let& let) {
    const auto& [dst, scalar] = let;
    const auto& [op, dtype, operands, const_re, const_im, const_int, index, lane] = scalar;
    all(dst, op, dtype, operands, const_re, const_im, const_int, index, lane);
  }
  void put(const loops::Load& load) {
    const auto& [dst, buffer, index, mask, other] = load;
    all(dst, buffer, index, mask, other);
  }
  void put(const loops::Store& store) {
    const auto& [buffer, index, value, mask, mode, atomic] = store;
    all(buffer, index, value, mask, mode, atomic);
  }
  void put(const loops::IndexValue& index) {
    const auto& [value, symbol, size, wrap, check, mask] = index;
    all(value, symbol, size, wrap, check, mask);
  }
  void put(const loops::Carried& carried) {
    const auto& [dtype, init, arg, next, result, combine] = carried;
    all(dtype, init, arg, next, result, combine);
  }
  void put(const loops::CombineFn& combine) {
    const auto& [left, right, result, body] = combine;
    all(left, right, result, body);
  }
  void put(const loops::For& loop) {
    const auto& [var, extent, kind, scan, until, carried, combine_fn, body] = loop;
    all(var, extent, kind, scan, until, carried, combine_fn, body);
  }
  void put(const loops::If& branch) {
    const auto& [condition, body] = branch;
    all(condition, body);
  }
  void put(const loops::Transpose& tile) {
    const auto& [from, from_index, from_stride, to, to_index, to_stride, rows, columns] = tile;
    all(from, from_index, from_stride, to, to_index, to_stride, rows, columns);
  }
  void put(const loops::Sort::Row& row) {
    const auto& [buffer, index, stride] = row;
    all(buffer, index, stride);
  }
  void put(const loops::Sort& sort) {
    const auto& [from, values, places, extent, count, descending] = sort;
    all(from, values, places, extent, count, descending);
  }
  void put(const loops::Product::Matrices& m) {
    const auto& [rows, inner, batches, row_stride, inner_stride, batch_stride, offset, number, interleaved, bytes] = m;
    all(rows, inner, batches, row_stride, inner_stride, batch_stride, offset, number, interleaved, bytes);
  }
  void put(const loops::Product::Side& side) {
    const auto& [parts, index, first, extent, matrices] = side;
    all(parts, index, first, extent, matrices);
  }
  void put(const loops::Product::Span& span) {
    const auto& [first, end] = span;
    all(first, end);
  }
  void put(const loops::Product::Scales& scales) {
    const auto& [left, right, left_index, right_index, left_row, left_block, right_block] = scales;
    all(left, right, left_index, right_index, left_row, left_block, right_block);
  }
  void put(const loops::Product& product) {
    const auto& [left, right, blocks, span, by_blocks, scales, row, rows, value, each] = product;
    all(left, right, blocks, span, by_blocks, scales, row, rows, value, each);
  }
  void put(const loops::Attention::Side& side) {
    const auto& [buffer, rows, width, row_stride, offset, batches, batch_strides, number] = side;
    all(buffer, rows, width, row_stride, offset, batches[0], batches[1], batch_strides[0], batch_strides[1], number[0],
        number[1]);
  }
  void put(const loops::Attention::Score& score) {
    const auto& [queries, keys, product] = score;
    all(queries, keys, product);
  }
  void put(const loops::Attention::Sum& sum) {
    const auto& [values, share, result, done] = sum;
    all(values, share, result, done);
  }
  void put(const loops::Attention& attention) {
    const auto& [form, scores, sums, first, extent, block, row, rows, hidden, each, table, table_index, table_block,
                 norms, norm_index] = attention;
    all(form, scores, sums, first, extent, block, row, rows, hidden, each, table, table_index, table_block, norms,
        norm_index);
  }
  void put(const loops::WeighedProduct& product) {
    const auto& [matrix, row_stride, offset, first_row, first_result, rows, extent, bands, slices, words, run, steps,
                 result, results, weights, weigh, row, count, value, each] = product;
    all(matrix, row_stride, offset, first_row, first_result, rows, extent, bands, slices, words, run, steps, result,
        results, weights, weigh, row, count, value, each);
  }
  void put(const loops::BufferArg& arg) {
    const auto& [name, dtype, kind, numel] = arg;
    all(name, dtype, kind, numel);
  }
  void put(const loops::GpuMapping& mapping) {
    const auto& [threads, row, lanes, passes, items, column, tiles, shared, resident] = mapping;
    all(threads, row, lanes, passes, items, column, tiles, shared, resident);
  }
  void put(const loops::Kernel& kernel) {
    const auto& [name, ctx, buffers, sizes, scalar_args, scalar_arg_ids, body, scalar_types, gpu, strict_float] =
        kernel;
    all(name, reinterpret_cast<uintptr_t>(ctx.get()), buffers, sizes, scalar_args, scalar_arg_ids, body, scalar_types,
        gpu, strict_float);
  }

 private:
  template <typename... Parts>
  void all(const Parts&... parts) {
    (put(parts), ...);
  }

  std::string& bytes_;
};

}  // namespace

std::string kernel_key(const loops::Kernel& kernel, Expr parallel_iterations) {
  std::string key;
  KeyWriter writer(key);
  writer.put(kernel);
  writer.put(parallel_iterations);
  return key;
}

}  // namespace tatara::sched
