// Tiles that a block of threads copies from rows to columns in shared memory, and the loops over their rows.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "codegen/core/kernel_emitter.h"
#include "codegen/cuda/gpu_context.h"

namespace tatara::codegen {

class Tiles {
 public:
  Tiles(GpuContext& gpu, KernelEmitter& emitter);
  void copy(const loops::Transpose& tile);
  /// Whether tiles have been copied whose loop over rows is still to come.
  bool copied() const { return copied_; }
  /// The loop over rows of the tiles: groups of threads take turns.
  void rows(const loops::For& loop);

 private:
  /// How a tile is shared among the threads.
  struct Shape {
    int64_t rows;     // a power of two
    int64_t columns;  // a power of two
    int64_t pitch;    // from one column to the next in shared memory
    int64_t vector;   // elements that a thread reads with one instruction
    int64_t passes;   // over the tile by all threads
    int64_t batch;    // passes whose loads are under way at once
  };
  /// Index expressions of a tile, as registers.
  struct Places {
    std::string from;
    std::string to;
    std::string stride;
    std::string first;  // this thread's first element
  };
  Shape shape_of(const loops::Transpose& tile) const;
  int64_t vector_of_rows(const loops::Transpose& tile, int64_t most) const;
  void copy_batch(const loops::Transpose& tile, const Shape& shape, const Places& places, const std::string& base);
  std::pair<std::string, std::string> load(const loops::Transpose& tile, const Shape& shape, const Places& places,
                                           const std::string& at);
  std::string within(const std::string& at, Expr extent, int64_t most);

  IrWriter& ir_;
  Scope& scope_;
  GpuContext& gpu_;
  KernelEmitter& emitter_;
  const loops::Kernel& kernel_;
  bool copied_ = false;
};

}  // namespace tatara::codegen
