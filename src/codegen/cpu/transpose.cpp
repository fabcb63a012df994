// Tiles copied from rows to columns. Square blocks go through registers, whose elements change places in log2 steps (Eklundh
// 1972); what is left at the edges is copied element by element.
#include <algorithm>

#include "codegen/cpu/cpu_emitter.h"
#include "support/error.h"

namespace tatara::codegen {

using namespace loops;

namespace {

/// The lanes pick(e) among those of two vectors of `width`, for each lane e of the result.
template <typename Pick>
std::vector<int> lane_list(int width, Pick&& pick) {
  std::vector<int> lanes;
  for (int e = 0; e < width; ++e) lanes.push_back(pick(e));
  return lanes;
}

/// Rows of a square block become its columns.
void transpose_registers(IrWriter& ir, std::vector<std::string>& rows, const std::string& element) {
  const int width = static_cast<int>(rows.size());
  for (int block = width / 2; block >= 1; block /= 2) {
    const std::vector<int> upper = lane_list(width, [&](int e) { return (e & block) == 0 ? e : width + e - block; });
    const std::vector<int> lower = lane_list(width, [&](int e) { return (e & block) == 0 ? e + block : width + e; });
    for (int i = 0; i < width; ++i) {
      if ((i & block) != 0) continue;
      std::string& a = rows[static_cast<size_t>(i)];
      std::string& b = rows[static_cast<size_t>(i + block)];
      const std::string top = ir.shuffle(element, width, a, b, upper);
      b = ir.shuffle(element, width, a, b, lower);
      a = top;
    }
  }
}

/// One side of the copy: elements at steps of a stride, neighbours beside each other.
struct Side {
  std::string base;
  std::string stride;
  std::string element;
  std::string at(IrWriter& ir, const std::string& step, const std::string& offset) const {
    const std::string place = ir.binary("add nsw", "i64", ir.binary("mul nsw", "i64", step, stride), offset);
    return ir.assign("getelementptr inbounds " + element + ", ptr " + base + ", i64 " + place);
  }
};

}  // namespace

void CpuEmitter::transpose(const Transpose& tile) {
  if (ir_.lanes() > 1) throw InternalError("a tile inside of a vector loop in " + context_.kernel.name);
  const DType dtype = scope_.buffer(tile.from).dtype;
  if (is_complex(dtype)) throw InternalError("a tile of complex numbers in " + context_.kernel.name);
  const std::string element = memory_type(dtype);
  const std::string align = ", align " + std::to_string(dtype_size(dtype));
  const std::string rows = scope_.index(tile.rows);
  const std::string columns = scope_.index(tile.columns);
  Side from{memory_.address(tile.from, scope_.index(tile.from_index)), "", element};
  Side to{memory_.address(tile.to, scope_.index(tile.to_index)), "", element};
  from.stride = scope_.index(tile.from_stride);
  to.stride = scope_.index(tile.to_stride);
  const auto each = [&](const std::string& begin, const std::string& end, const std::string& step, const auto& body) {
    std::vector<Reg> none;
    counted_loop(begin, end, step, {}, none, [&](const std::string& counter, std::vector<Reg>&) { body(counter); });
  };
  const auto one_by_one = [&](const std::string& row, const std::string& column, const std::string& last_row) {
    each(row, last_row, "1", [&](const std::string& r) {
      each(column, columns, "1", [&](const std::string& c) {
        const std::string value = ir_.assign("load " + element + ", ptr " + from.at(ir_, r, c) + align);
        ir_.line("store " + element + " " + value + ", ptr " + to.at(ir_, c, r) + align);
      });
    });
  };
  const int width = std::min(16, target_.vector_bytes() / dtype_size(dtype));
  if (width < 2) {
    one_by_one("0", "0", rows);
    return;
  }
  const std::string step = std::to_string(width);
  const std::string whole_rows = ir_.binary("and", "i64", rows, std::to_string(-width));
  const std::string whole_columns = ir_.binary("and", "i64", columns, std::to_string(-width));
  const std::string type = vector_of(width, element);
  const auto block = [&](const std::string& r, const std::string& c) {
    std::vector<std::string> lines;
    for (int i = 0; i < width; ++i) {
      const std::string row = ir_.binary("add nsw", "i64", r, std::to_string(i));
      lines.push_back(ir_.assign("load " + type + ", ptr " + from.at(ir_, row, c) + align));
    }
    transpose_registers(ir_, lines, element);
    for (int i = 0; i < width; ++i) {
      const std::string column = ir_.binary("add nsw", "i64", c, std::to_string(i));
      ir_.line("store " + type + " " + lines[static_cast<size_t>(i)] + ", ptr " + to.at(ir_, column, r) + align);
    }
  };
  each("0", whole_rows, step,
       [&](const std::string& r) { each("0", whole_columns, step, [&](const std::string& c) { block(r, c); }); });
  one_by_one("0", whole_columns, whole_rows);
  one_by_one(whole_rows, "0", rows);
}

}  // namespace tatara::codegen
