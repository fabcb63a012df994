// Rows sorted by the threads of a GPU that share them: bitonic networks (Batcher 1968), in registers within a thread, by
// exchange within a warp, through shared memory beyond. Merges begin by comparing an element with its mirror image, so that all
// comparators point upwards.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "codegen/core/kernel_emitter.h"
#include "codegen/cuda/gpu_context.h"
#include "codegen/cuda/sort_words.h"

namespace tatara::codegen {

class RowSorter {
 public:
  RowSorter(GpuContext& gpu, KernelEmitter& emitter, const loops::Sort& sort);
  void run();
  /// Whether it wrote loops that LLVM is told to keep as such (metadata !2).
  bool has_loops() const { return has_loops_; }

 private:
  using Item = SortItem;
  using Items = SortItems;
  using Number = std::function<std::string(const std::string& counter)>;
  using Pass = std::function<void(const std::string& counter, Items& items)>;

  // -- The two ways --
  void sort();
  void select();
  void merge(Items& items, const Items& others);
  void share_warps(Items& best, const Pass& join);

  // -- Networks within a thread --
  void halve(Items& items, size_t from);
  void sort_thread(Items& items);

  // -- Other threads --
  std::string butterfly(const std::string& type, const std::string& value, const std::string& mask);
  Item of_lane(const Item& item, const std::string& mask);
  void keep(Items& items, const Items& others, const std::string& upper);
  void exchange_lanes(Items& items, const std::string& mask, const std::string& bit, bool mirrored);
  void exchange_warps(Items& items, const std::string& mask, const std::string& bit, bool mirrored);
  std::string is_upper(const std::string& bit);
  std::string slot(const std::string& type, int64_t bytes_before, int64_t first, const std::string& at);
  void put(const Item& item, int64_t slots, int64_t first, const std::string& at);
  Item get(int64_t slots, int64_t first, const std::string& at);

  // -- Loops --
  void loop(const std::string& first, Items& items, const Number& again, const Number& next, const Pass& body);
  void doubling(int64_t first, int64_t last, Items& items, const Pass& body);
  void halving(const std::string& first, int64_t last, Items& items, const Pass& body);

  // -- Memory (row_sort_memory.cpp) --
  int64_t access_width(const loops::Sort::Row& row, int64_t size, int64_t most, int64_t length) const;
  std::string address(const loops::Sort::Row& row, const std::string& base, const std::string& stride,
                      const std::string& place);
  Items load(size_t count, const std::string& first, int64_t bound);
  std::vector<std::string> elements(const Items& items);
  void store_row(const loops::Sort::Row& row, const std::string& type, int64_t size,
                 const std::vector<std::string>& values, const std::string& first, bool all_count);
  void store(const Items& items, const std::string& first, bool all_count);

  GpuContext& gpu_;
  IrWriter& ir_;
  Scope& scope_;
  KernelEmitter& emitter_;
  const loops::Sort& sort_;
  DType dtype_;
  SortWords words_;
  int64_t row_;  // threads that share a row
  std::string thread_;
  std::string lane_;
  std::string from_;
  std::string from_stride_;
  bool has_loops_ = false;
};

}  // namespace tatara::codegen
