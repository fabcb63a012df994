#include "codegen/cuda/column_reduce.h"

#include <utility>

namespace tatara::codegen {

using namespace loops;

ColumnReduction::ColumnReduction(GpuContext& gpu, const For& loop, Merge merge)
    : ir_(gpu.context.ir), gpu_(gpu), loop_(loop), merge_(std::move(merge)), threads_(gpu.context.kernel.gpu.threads) {}

/// Each thread has a word for each lane of each part of each value; neighbours have neighbouring words.
void ColumnReduction::put(const std::vector<Reg>& values) {
  int64_t place = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const DType dtype = loop_.carried[i].dtype;
    for (int lane = 0; lane < ir_.lanes(); ++lane) {
      const Reg one = values[i].vec ? lane_of(ir_, dtype, values[i], lane) : values[i];
      for (const std::string* part : {&one.text, &one.im}) {
        if (part == &one.im && !is_complex(dtype)) continue;
        const std::string word = to_word(ir_, real_dtype(dtype), *part);
        const std::string at = ir_.binary("add nuw nsw", "i64", gpu_.threads.thread(), std::to_string(place));
        ir_.line("store i64 " + word + ", ptr addrspace(3) " + gpu_.threads.shared_word(at) + ", align 8");
        place += threads_;
      }
    }
  }
  gpu_.threads.reserve_shared(place);
}

std::vector<Reg> ColumnReduction::get(const std::string& thread) {
  int64_t place = 0;
  std::vector<Reg> values;
  for (const Carried& c : loop_.carried) {
    const DType part = real_dtype(c.dtype);
    const bool vec = ir_.lanes() > 1;
    const std::string type = llvm_type(part);
    Reg value{"poison", vec, is_complex(c.dtype) ? "poison" : ""};
    for (int lane = 0; lane < ir_.lanes(); ++lane) {
      for (std::string* half : {&value.text, &value.im}) {
        if (half == &value.im && !is_complex(c.dtype)) continue;
        const std::string at = ir_.binary("add nuw nsw", "i64", thread, std::to_string(place));
        const std::string word = ir_.assign("load i64, ptr addrspace(3) " + gpu_.threads.shared_word(at));
        const std::string one = from_word(ir_, part, word);
        *half = !vec ? one
                     : ir_.assign("insertelement " + ir_.vec_type(type) + " " + *half + ", " + type + " " + one +
                                  ", i64 " + std::to_string(lane));
        place += threads_;
      }
    }
    values.push_back(std::move(value));
  }
  return values;
}

/// The lower half of the threads adds what the upper half has, until one thread of each column has it all.
void ColumnReduction::run(std::vector<Reg>& carried) {
  Threads& threads = gpu_.threads;
  const int column = gpu_.context.kernel.gpu.column;
  const int columns = threads_ / column;
  put(carried);
  for (int distance = column / 2; distance > 0; distance /= 2) {
    threads.barrier();
    ir_.when(ir_.assign("icmp ult i64 " + threads.group() + ", " + std::to_string(distance)), [&] {
      const std::string other =
          ir_.binary("add nuw nsw", "i64", threads.thread(), std::to_string(int64_t{distance} * columns));
      put(merge_(get(threads.thread()), get(other)));
    });
  }
  threads.barrier();
  carried = get(ir_.binary("and", "i64", threads.thread(), std::to_string(columns - 1)));
  threads.barrier();
}

}  // namespace tatara::codegen
