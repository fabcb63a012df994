#include "codegen/cuda/threads.h"

#include <algorithm>
#include <tuple>

#include "support/error.h"

namespace tatara::codegen {

using namespace loops;

namespace {

/// The vector loop of a kernel whose threads are independent; null when there is none.
const For* only_vector(const Block& block) {
  for (const Stmt& stmt : block.stmts) {
    const auto* loop = std::get_if<For>(&stmt);
    if (loop == nullptr) continue;
    if (loop->kind == LoopKind::kVector) return loop;
    if (const For* found = only_vector(*loop->body)) return found;
  }
  return nullptr;
}

/// Whether the iterations of the parallel loops, times `more`, are known to be few enough for positive 32-bit numbers.
bool narrow_positions(const Block& block, int64_t more) {
  constexpr int64_t kMost = INT32_MAX - 2048;  // the threads of the last block come on top
  for (const Block* at = &block; at != nullptr;) {
    const Block* inner = nullptr;
    for (const Stmt& stmt : at->stmts) {
      const auto* loop = std::get_if<For>(&stmt);
      if (loop == nullptr || loop->kind != LoopKind::kParallel) continue;
      if (!loop->extent.is_const() || loop->extent.const_value() <= 0) return false;
      if (more > kMost / loop->extent.const_value()) return false;
      more *= loop->extent.const_value();
      inner = loop->body.get();
    }
    at = inner;
  }
  return true;
}

/// The integer type with the bits of a floating one; "" where the register is an integer already.
std::string bits_type(DType dtype) {
  const bool integer = !is_floating(dtype) || llvm_type(dtype).front() == 'i';
  return integer ? "" : "i" + std::to_string(dtype_size(dtype) * 8);
}

}  // namespace

std::string to_word(IrWriter& ir, DType dtype, const std::string& text) {
  const std::string type = llvm_type(dtype);
  if (type == "i64") return text;
  const std::string integer = bits_type(dtype);
  if (integer.empty()) return ir.assign("zext " + type + " " + text + " to i64");
  const std::string bits = ir.assign("bitcast " + type + " " + text + " to " + integer);
  return integer == "i64" ? bits : ir.assign("zext " + integer + " " + bits + " to i64");
}

std::string from_word(IrWriter& ir, DType dtype, const std::string& word) {
  const std::string type = llvm_type(dtype);
  if (type == "i64") return word;
  const std::string integer = bits_type(dtype);
  if (integer.empty()) return ir.assign("trunc i64 " + word + " to " + type);
  const std::string bits = integer == "i64" ? word : ir.assign("trunc i64 " + word + " to " + integer);
  return ir.assign("bitcast " + integer + " " + bits + " to " + type);
}

// ---- Places ------------------------------------------------------------------------------------------------------------

std::string Threads::special_register(const char* name) {
  const std::string full = std::string("@llvm.nvvm.read.ptx.sreg.") + name + ".x";
  ir_.declare("declare i32 " + full + "()");
  return ir_.assign("zext i32 " + ir_.call(full, "i32", "") + " to i64");
}

/// Dividing 64 bits takes several times the instructions of 32.
std::pair<std::string, std::string> Threads::divide_position(const std::string& position, const std::string& count) {
  if (!narrow_) return {ir_.binary("udiv", "i64", position, count), ir_.binary("urem", "i64", position, count)};
  const auto narrow = [&](const std::string& text) {
    return text.front() == '%' ? ir_.assign("trunc i64 " + text + " to i32") : text;
  };
  const auto wide = [&](const std::string& text) { return ir_.assign("zext nneg i32 " + text + " to i64"); };
  const std::string whole = narrow(position);
  const std::string divisor = narrow(count);
  return {wide(ir_.binary("udiv", "i32", whole, divisor)), wide(ir_.binary("urem", "i32", whole, divisor))};
}

void Threads::stop_unless(const std::string& condition) {
  const std::string go = ir_.label();
  ir_.branch(condition, go, "exit");
  ir_.start_block(go);
}

void Threads::compute_positions() {
  const GpuMapping& map = kernel_.gpu;
  const std::string thread = special_register("tid");
  const std::string block = map.items > 0 ? "%block" : special_register("ctaid");
  if (map.tiles) {
    narrow_ = narrow_positions(kernel_.body, 1);
    iteration_ = block;
    thread_ = ir_.binary("and", "i64", thread, std::to_string(map.threads - 1));
    lane_ = ir_.binary("and", "i64", thread, std::to_string(map.row - 1));
    group_ = ir_.binary("udiv", "i64", thread_, std::to_string(map.row));
  } else if (map.row > 0) {
    find_row(thread, block);
  } else {
    find_part(thread, block);
  }
}

/// Where several threads share an iteration.
void Threads::find_row(const std::string& thread, const std::string& block) {
  const GpuMapping& map = kernel_.gpu;
  const int rows = map.threads / map.row;
  narrow_ = narrow_positions(kernel_.body, 1);
  lane_ = rows == 1 ? thread : ir_.binary("and", "i64", thread, std::to_string(map.row - 1));
  iteration_ = block;
  if (rows == 1) return;
  const std::string first = ir_.binary("mul nuw nsw", "i64", block, std::to_string(rows));
  const std::string own = ir_.binary("udiv", "i64", thread, std::to_string(map.row));
  iteration_ = ir_.binary("add nuw nsw", "i64", first, own);
  stop_unless(ir_.assign("icmp ult i64 " + iteration_ + ", %iterations"));
}

/// Where a thread has an iteration, or a part of its vector loop, to itself.
void Threads::find_part(const std::string& thread, const std::string& block) {
  const GpuMapping& map = kernel_.gpu;
  const int columns = map.threads / map.column;
  std::string own = thread;
  if (map.column > 1) {
    thread_ = thread;
    own = ir_.binary("and", "i64", thread, std::to_string(columns - 1));
    group_ = ir_.binary("udiv", "i64", thread, std::to_string(columns));
  }
  const std::string first = ir_.binary("mul nuw nsw", "i64", block, std::to_string(columns));
  const std::string flat = ir_.binary("add nuw nsw", "i64", first, own);
  const For* loop = only_vector(kernel_.body);
  if (loop == nullptr) {
    narrow_ = narrow_positions(kernel_.body, 1);
    iteration_ = flat;
    stop_unless(ir_.assign("icmp ult i64 " + flat + ", %iterations"));
    return;
  }
  if (loop->extent.is_const()) {
    narrow_ = narrow_positions(kernel_.body, std::max<int64_t>(loop->extent.const_value(), 1));
  }
  std::string count = scope_.index(loop->extent);
  if (map.lanes * map.passes > 1) {
    ExprContext& ctx = *kernel_.ctx;
    count = scope_.index(ctx.simplify(ctx.ceildiv(loop->extent, ctx.constant(map.lanes * map.passes))));
  }
  const bool one = !has_parallel_loops(kernel_);
  const std::string all = one ? count : ir_.binary("mul nuw nsw", "i64", count, "%iterations");
  stop_unless(ir_.assign("icmp ult i64 " + flat + ", " + all));
  std::string part = flat;
  if (!one) std::tie(iteration_, part) = divide_position(flat, count);
  lane_ = map.lanes > 1 ? ir_.binary("mul nuw nsw", "i64", part, std::to_string(map.lanes)) : part;
}

// ---- Values of other threads -------------------------------------------------------------------------------------------

/// Threads of rows past the end are gone.
void Threads::compute_row_mask() {
  const int row = kernel_.gpu.row;
  if (row >= kWarp) {
    row_mask_ = "-1";
    return;
  }
  const std::string thread = special_register("tid");
  const std::string place = ir_.binary("and", "i64", thread, std::to_string(kWarp - row));
  const std::string first = ir_.assign("trunc i64 " + place + " to i32");
  row_mask_ = ir_.binary("shl", "i32", std::to_string((int64_t{1} << row) - 1), first);
}

std::string Threads::shuffle_part(DType part, const std::string& text, const char* mode, int operand, int clamp) {
  const std::string name = std::string("@llvm.nvvm.shfl.sync.") + mode + ".i32";
  ir_.declare("declare i32 " + name + "(i32, i32, i32, i32)");
  const auto fetch = [&](const std::string& word) {
    return ir_.call(
        name, "i32",
        "i32 " + row_mask_ + ", i32 " + word + ", i32 " + std::to_string(operand) + ", i32 " + std::to_string(clamp));
  };
  const std::string word = to_word(ir_, part, text);
  const std::string low = ir_.assign("trunc i64 " + word + " to i32");
  const std::string other = ir_.assign("zext i32 " + fetch(low) + " to i64");
  const std::string type = llvm_type(part);
  if (type != "i64" && type != "double") return from_word(ir_, part, other);
  const std::string high = ir_.assign("trunc i64 " + ir_.binary("lshr", "i64", word, "32") + " to i32");
  const std::string upper = ir_.binary("shl", "i64", ir_.assign("zext i32 " + fetch(high) + " to i64"), "32");
  return from_word(ir_, part, ir_.binary("or", "i64", upper, other));
}

Reg Threads::shuffle(DType dtype, const Reg& value, const char* mode, int operand, int clamp) {
  const DType part = real_dtype(dtype);
  Reg result{shuffle_part(part, value.text, mode, operand, clamp), false};
  if (is_complex(dtype)) result.im = shuffle_part(part, value.im, mode, operand, clamp);
  return result;
}

void Threads::barrier() {
  ir_.declare("declare void @llvm.nvvm.barrier0()");
  ir_.line("call void @llvm.nvvm.barrier0()");
}

void Threads::reserve_shared(int64_t words) { shared_words_ = std::max(shared_words_, words); }

std::string Threads::shared_slot(size_t value, const std::string& at) {
  reserve_shared(static_cast<int64_t>(value + 1) * kWarp);
  return shared_word(ir_.binary("add nuw nsw", "i64", at, std::to_string(value * kWarp)));
}

std::string Threads::shared_word(const std::string& at) {
  return ir_.assign("getelementptr i64, ptr addrspace(3) @tatara_shared, i64 " + at);
}

std::string Threads::load_shared(size_t value, const std::string& at) {
  return ir_.assign("load i64, ptr addrspace(3) " + shared_slot(value, at) + ", align 8");
}

}  // namespace tatara::codegen
