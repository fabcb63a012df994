// Tiles copied from rows to columns. Whole blocks go through registers, exchanged in log2 steps (Eklundh 1972); what is left at
// the edges is copied element by element.
#include <algorithm>

#include "codegen/core/emitter.h"
#include "support/error.h"

namespace tatara::codegen {

using namespace loops;

namespace {

/// Lanes e of two vectors of `width`, by a function that gives the number among both.
template <typename Pick>
std::string lane_list(int width, Pick&& pick) {
  std::string list = vector_of(width, "i32") + " <";
  for (int e = 0; e < width; ++e) list += (e > 0 ? ", i32 " : "i32 ") + std::to_string(pick(e));
  return list + ">";
}

}  // namespace

void Emitter::transpose_registers(std::vector<std::string>& rows, const std::string& element) {
  const int width = static_cast<int>(rows.size());
  const std::string type = vector_of(width, element);
  for (int block = width / 2; block >= 1; block /= 2) {
    const std::string upper = lane_list(width, [&](int e) { return (e & block) == 0 ? e : width + e - block; });
    const std::string lower = lane_list(width, [&](int e) { return (e & block) == 0 ? e + block : width + e; });
    for (int i = 0; i < width; ++i) {
      if ((i & block) != 0) continue;
      std::string& a = rows[static_cast<size_t>(i)];
      std::string& b = rows[static_cast<size_t>(i + block)];
      const std::string pair = type + " " + a + ", " + type + " " + b;
      const std::string top = ir_.assign("shufflevector " + pair + ", " + upper);
      b = ir_.assign("shufflevector " + pair + ", " + lower);
      a = top;
    }
  }
}

void Emitter::statement(const Transpose& tile) {
  if (on_gpu()) {
    gpu_tile(tile);
    return;
  }
  if (ir_.lanes() > 1) throw InternalError("a tile inside of a vector loop in " + kernel_.name);
  const DType dtype = kernel_.buffers[static_cast<size_t>(tile.from)].dtype;
  if (is_complex(dtype)) throw InternalError("a tile of complex numbers in " + kernel_.name);
  const std::string element = memory_type(dtype);
  const std::string align = "align " + std::to_string(dtype_size(dtype));
  const std::string rows = index(tile.rows);
  const std::string columns = index(tile.columns);
  const std::string from = address(tile.from, index(tile.from_index));
  const std::string to = address(tile.to, index(tile.to_index));
  const std::string from_stride = index(tile.from_stride);
  const std::string to_stride = index(tile.to_stride);
  const auto at = [&](const std::string& base, const std::string& step, const std::string& stride,
                      const std::string& offset) {
    const std::string place = ir_.binary("add nsw", "i64", ir_.binary("mul nsw", "i64", step, stride), offset);
    return ir_.assign("getelementptr inbounds " + element + ", ptr " + base + ", i64 " + place);
  };
  std::vector<Reg> none;
  const auto element_loop = [&](const std::string& first_row, const std::string& first_column,
                                const std::string& last_row) {
    counted(first_row, last_row, "1", {}, none, [&](const std::string& r, std::vector<Reg>&) {
      counted(first_column, columns, "1", {}, none, [&](const std::string& c, std::vector<Reg>&) {
        const std::string value = ir_.assign("load " + element + ", ptr " + at(from, r, from_stride, c) + ", " + align);
        ir_.line("store " + element + " " + value + ", ptr " + at(to, c, to_stride, r) + ", " + align);
      });
    });
  };
  const int width = std::min(16, target_.vector_bytes() / dtype_size(dtype));
  if (width < 2) {
    element_loop("0", "0", rows);
    return;
  }
  const std::string step = std::to_string(width);
  const std::string whole_rows = ir_.binary("and", "i64", rows, std::to_string(-width));
  const std::string whole_columns = ir_.binary("and", "i64", columns, std::to_string(-width));
  const std::string type = vector_of(width, element);
  counted("0", whole_rows, step, {}, none, [&](const std::string& r, std::vector<Reg>&) {
    counted("0", whole_columns, step, {}, none, [&](const std::string& c, std::vector<Reg>&) {
      std::vector<std::string> block;
      for (int i = 0; i < width; ++i) {
        const std::string row = ir_.binary("add nsw", "i64", r, std::to_string(i));
        block.push_back(ir_.assign("load " + type + ", ptr " + at(from, row, from_stride, c) + ", " + align));
      }
      transpose_registers(block, element);
      for (int i = 0; i < width; ++i) {
        const std::string column = ir_.binary("add nsw", "i64", c, std::to_string(i));
        ir_.line("store " + type + " " + block[static_cast<size_t>(i)] + ", ptr " + at(to, column, to_stride, r) +
                 ", " + align);
      }
    });
  });
  element_loop("0", whole_columns, whole_rows);
  element_loop(whole_rows, "0", rows);
}

}  // namespace tatara::codegen
