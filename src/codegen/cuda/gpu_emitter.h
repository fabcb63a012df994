// Kernels for NVIDIA GPUs: each thread runs its share of the iterations, and what loops carry is combined over threads.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "codegen/core/kernel_emitter.h"
#include "codegen/cuda/gpu_context.h"
#include "codegen/cuda/tiles.h"

namespace tatara::codegen {

class ProductTile;

/// The module text; see emit_gpu. `adds_vectors`: one instruction adds four float32 to memory.
std::string emit_gpu_module(const loops::Kernel& kernel, bool adds_vectors, std::string_view symbol);

class GpuEmitter final : public KernelEmitter {
 public:
  GpuEmitter(GpuContext& gpu, bool adds_vectors)
      : KernelEmitter(gpu.context, gpu.scalars, gpu.memory),
        gpu_(gpu),
        tiles_(gpu, *this),
        map_(gpu.context.kernel.gpu),
        adds_vectors_(adds_vectors) {
    // Both came with compute capability 9.0.
    gpu.context.ir.set_rounds_to_bfloat(adds_vectors);
    gpu.context.ir.set_permutes_bytes(true);
  }
  std::string run(std::string_view symbol);

 protected:
  void all_iterations(const std::function<void(const std::string&)>& body) override;
  std::pair<std::string, std::string> divide_position(const std::string& iteration, const std::string& extent) override;
  void vector_loop(const loops::For& loop) override;
  void serial_loop(const loops::For& loop) override;
  void transpose(const loops::Transpose& tile) override;
  void sort(const loops::Sort& sort) override;
  void product(const loops::Product& product) override;
  /// What becomes of the elements of a tile.
  void product_elements(const loops::Product& product, ProductTile& tile);
  void attention(const loops::Attention& attention) override;
  void weighed_product(const loops::WeighedProduct& product) override;
  std::string store_condition(const loops::Store& store) override;
  std::string vector_store_condition() const override { return gpu_.loop.guard; }
  bool update_vector(const loops::Store& store, const Reg& value, const std::string& mask) override;
  void leave_after_fault(const std::string& next) override;
  std::string safe_index(const std::string& bad, const std::string& index, bool vec) override;
  Reg next_carried(const loops::For& loop, size_t i, const Reg& before, const std::string& mask) override;

 private:
  std::string parameters(std::string& tiles);
  void attention_tiles(const loops::Attention& attention, const std::function<void(const std::string&)>& body);
  std::unordered_map<loops::ScalarId, Reg> loads_ahead(const loops::For& loop, int lanes, const std::string& column);
  void independent_elements(const loops::For& loop);
  void independent_passes(const loops::For& loop, int site);
  void column(const loops::For& loop);
  void row(const loops::For& loop);
  void row_passes(const loops::For& loop, const std::string& extent, std::vector<Reg>& carried);
  void pass(const loops::For& loop, const std::string& base, int site, std::vector<Reg>& carried);
  void when(const std::string& condition, const std::vector<DType>& dtypes, std::vector<Reg>& carried,
            const std::function<void(std::vector<Reg>&)>& body);

  GpuContext& gpu_;
  std::string locals_;  // memory of the thread itself, for the begin of the kernel
  Tiles tiles_;
  const loops::GpuMapping& map_;
  bool adds_vectors_;
  bool loading_ = false;               // what is emitted is for the thread that loads a product's blocks
  std::vector<Reg>* stage_ = nullptr;  // of a product, where it stands
  bool in_column_ = false;             // in a loop that the threads of a column share
  bool rolled_ = false;                // some loop stays a loop
  bool written_out_ = false;           // some loop has four passes written out
};

}  // namespace tatara::codegen
