#include "codegen/cuda/tiles.h"

#include <algorithm>
#include <bit>

#include "support/error.h"
#include "symbolic/multiples.h"

namespace tatara::codegen {

using namespace loops;

namespace {

constexpr int64_t kBatch = 16;  // loads that a thread has under way at once

}  // namespace

Tiles::Tiles(GpuContext& gpu, KernelEmitter& emitter)
    : ir_(gpu.context.ir), scope_(gpu.context.scope), gpu_(gpu), emitter_(emitter), kernel_(gpu.context.kernel) {}

/// Rows begin and end at multiples of it.
int64_t Tiles::vector_of_rows(const Transpose& tile, int64_t most) const {
  const int size = dtype_size(scope_.buffer(tile.from).dtype);
  int64_t n = std::min<int64_t>(most, 16 / size);
  while (n > 1 &&
         !(multiple_of(tile.from_index, n) && multiple_of(tile.from_stride, n) && multiple_of(tile.columns, n))) {
    n /= 2;
  }
  return n;
}

Tiles::Shape Tiles::shape_of(const Transpose& tile) const {
  TATARA_CHECK(tile.to_stride.is_const() && !is_complex(scope_.buffer(tile.from).dtype), "a tile in ", kernel_.name);
  Shape s{};
  s.pitch = tile.to_stride.const_value();
  s.columns = scope_.buffer(tile.to).numel.const_value() / s.pitch;
  s.rows = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(kernel_.ctx->range(tile.rows).hi)));
  const int64_t threads = kernel_.gpu.threads;
  TATARA_CHECK(s.rows <= s.pitch && std::has_single_bit(static_cast<uint64_t>(s.columns)), "a tile in ", kernel_.name);
  s.vector = vector_of_rows(tile, std::max<int64_t>(s.rows * s.columns / threads, 1));
  s.passes = (s.rows * s.columns + threads * s.vector - 1) / (threads * s.vector);
  s.batch = std::min(s.passes, kBatch);
  return s;
}

void Tiles::copy(const Transpose& tile) {
  const Shape shape = shape_of(tile);
  Places places;
  places.from = scope_.index(tile.from_index);
  places.to = scope_.index(tile.to_index);
  places.stride = scope_.index(tile.from_stride);
  places.first = ir_.binary("mul nuw nsw", "i64", gpu_.threads.thread(), std::to_string(shape.vector));
  if (shape.batch == shape.passes) {
    copy_batch(tile, shape, places, "");
  } else {
    std::vector<Reg> none;
    const int64_t step = shape.batch * kernel_.gpu.threads * shape.vector;
    emitter_.counted_loop("0", std::to_string(shape.rows * shape.columns), std::to_string(step), {}, none,
                          [&](const std::string& base, std::vector<Reg>&) { copy_batch(tile, shape, places, base); });
  }
  copied_ = true;
}

/// All loads before the first store: a thread waits for all of them at once.
void Tiles::copy_batch(const Transpose& tile, const Shape& shape, const Places& places, const std::string& base) {
  std::vector<std::pair<std::string, std::string>> parts;
  for (int64_t k = 0; k < shape.batch; ++k) {
    std::string at = places.first;
    if (!base.empty()) at = ir_.binary("add nuw nsw", "i64", base, at);
    if (k > 0) {
      at = ir_.binary("add nuw nsw", "i64", at, std::to_string(k * kernel_.gpu.threads * shape.vector));
    }
    parts.push_back(load(tile, shape, places, at));
  }
  const DType dtype = scope_.buffer(tile.from).dtype;
  const std::string element = memory_type(dtype);
  const std::string type = vector_of(static_cast<int>(shape.vector), element);
  for (const auto& [value, place] : parts) {
    for (int64_t j = 0; j < shape.vector; ++j) {
      std::string one = value;
      if (shape.vector > 1) one = ir_.assign("extractelement " + type + " " + value + ", i64 " + std::to_string(j));
      const std::string at = j == 0 ? place : ir_.binary("add nuw nsw", "i64", place, std::to_string(j * shape.pitch));
      ir_.line("store " + element + " " + one + ", ptr " + gpu_.memory.address(tile.to, at) + ", align " +
               std::to_string(dtype_size(dtype)));
    }
  }
}

/// Whether a row or column lies in the tile (i1); "" where all do.
std::string Tiles::within(const std::string& at, Expr extent, int64_t most) {
  return extent.is_const(most) ? std::string() : ir_.assign("icmp slt i64 " + at + ", " + scope_.index(extent));
}

/// The elements from `at` on, and their place in shared memory; neighbouring threads read neighbours. What lies past the ends
/// of the tile is not read: in its place the first element is, once more, and nobody looks there.
std::pair<std::string, std::string> Tiles::load(const Transpose& tile, const Shape& shape, const Places& places,
                                                const std::string& at) {
  const DType dtype = scope_.buffer(tile.from).dtype;
  const std::string element = memory_type(dtype);
  const std::string type = shape.vector > 1 ? vector_of(static_cast<int>(shape.vector), element) : element;
  const std::string align = ", align " + std::to_string(dtype_size(dtype) * shape.vector);
  const std::string r = ir_.binary("udiv", "i64", at, std::to_string(shape.columns));
  const std::string c = ir_.binary("urem", "i64", at, std::to_string(shape.columns));
  std::string source = ir_.binary("add nsw", "i64", ir_.binary("mul nsw", "i64", r, places.stride), c);
  for (const std::string& inside : {within(r, tile.rows, shape.rows), within(c, tile.columns, shape.columns)}) {
    if (!inside.empty()) source = ir_.select(inside, "i64", source, "0", false);
  }
  source = gpu_.memory.address(tile.from, ir_.binary("add nsw", "i64", places.from, source));
  const std::string value = ir_.assign("load " + type + ", ptr " + source + align + gpu_.memory.load_flags(tile.from));
  const std::string column = ir_.binary("mul nuw nsw", "i64", c, std::to_string(shape.pitch));
  return {value, ir_.binary("add nsw", "i64", places.to, ir_.binary("add nsw", "i64", column, r))};
}

void Tiles::rows(const For& loop) {
  copied_ = false;
  TATARA_CHECK(loop.carried.empty(), "values carried from row to row of a tile in ", kernel_.name);
  gpu_.threads.barrier();
  const int64_t groups = kernel_.gpu.threads / kernel_.gpu.row;
  const int64_t most = kernel_.ctx->range(loop.extent).hi;
  const bool even = loop.extent.is_const() && most % groups == 0;
  const std::string extent = scope_.index(loop.extent);
  std::vector<Reg> none;
  emitter_.counted_loop(
      "0", std::to_string(most), std::to_string(groups), {}, none, [&](const std::string& base, std::vector<Reg>&) {
        const std::string row = ir_.binary("add nuw nsw", "i64", base, gpu_.threads.group());
        scope_.bind(loop.var, row);
        const std::string inside = even ? std::string() : ir_.assign("icmp slt i64 " + row + ", " + extent);
        emitter_.run_if(inside, [&] { emitter_.block(*loop.body); });
      });
}

}  // namespace tatara::codegen
