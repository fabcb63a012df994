// Kernels for lists: one launch for kernels that differ in nothing but their arguments. See loops/list_table.h.
#include "codegen/core/emitter.h"
#include "loops/list_table.h"

namespace tatara::codegen {

using namespace loops;

std::string Emitter::list_entry() {
  size_t words = kernel_.sizes.size() + (has_parallel_loops(kernel_) ? 1 : 0);
  for (const BufferArg& buffer : kernel_.buffers) words += buffer.kind == ArgKind::kScratch ? 0 : 1;
  const ListTable table{kernel_.gpu.items, words};
  const auto number = [](size_t n) { return std::to_string(n); };
  ir_.declare("declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()");
  const std::string block = ir_.call("@llvm.nvvm.read.ptx.sreg.ctaid.x", "i32", "");
  const std::string each = ir_.assign("load i32, ptr %table, align 8");
  const std::string divide = ir_.label(), search = ir_.label(), found = ir_.label();
  ir_.line("br i1 " + ir_.assign("icmp ne i32 " + each + ", 0") + ", label %" + divide + ", label %" + search);

  ir_.start_block(divide);
  const std::string quotient = ir_.binary("udiv", "i32", block, each);
  ir_.line("br label %" + found);

  // The last item whose first block is not after this one: items without blocks are passed over.
  ir_.start_block(search);
  const std::string firsts =
      ir_.assign("getelementptr inbounds i8, ptr %table, i64 " + number(ListTable::kFirstBlocks));
  const auto first_block = [&](const std::string& item) {
    const std::string at = ir_.assign("getelementptr inbounds i32, ptr " + firsts + ", i32 " + item);
    return ir_.assign("load i32, ptr " + at + ", align 4");
  };
  std::string item = "0";
  for (int step = static_cast<int>(std::bit_ceil(static_cast<unsigned>(table.items))) / 2; step > 0; step /= 2) {
    std::string probe =
        item == "0" ? std::to_string(step) : ir_.binary("add nuw nsw", "i32", item, std::to_string(step));
    if (!std::has_single_bit(static_cast<unsigned>(table.items))) {
      ir_.declare("declare i32 @llvm.umin.i32(i32, i32)");
      probe = ir_.call("@llvm.umin.i32", "i32", "i32 " + probe + ", i32 " + std::to_string(table.items - 1));
    }
    const std::string reached = ir_.assign("icmp ule i32 " + first_block(probe) + ", " + block);
    item = ir_.select(reached, "i32", probe, item, false);
  }
  ir_.line("br label %" + found);

  ir_.start_block(found);
  const std::string mine =
      ir_.assign("phi i32 [ " + quotient + ", %" + divide + " ], [ " + item + ", %" + search + " ]");
  const std::string start = ir_.assign("getelementptr inbounds i8, ptr %table, i64 " + number(ListTable::kFirstBlocks));
  const std::string first_at = ir_.assign("getelementptr inbounds i32, ptr " + start + ", i32 " + mine);
  const std::string own =
      ir_.binary("sub nuw nsw", "i32", block, ir_.assign("load i32, ptr " + first_at + ", align 4"));
  const std::string rows = ir_.assign("getelementptr inbounds i8, ptr %table, i64 " + number(table.items_at()));
  const std::string row =
      ir_.assign("getelementptr inbounds [" + number(words) + " x i64], ptr " + rows + ", i32 " + mine);
  size_t next = 0;
  const auto word = [&] {
    const std::string at = ir_.assign("getelementptr inbounds i64, ptr " + row + ", i64 " + number(next++));
    return ir_.assign("load i64, ptr " + at + ", align 8");
  };
  std::string arguments;
  for (const BufferArg& buffer : kernel_.buffers) {
    if (buffer.kind == ArgKind::kScratch) continue;
    const std::string value = word();
    if (buffer.kind == ArgKind::kValue) {
      arguments += "i64 " + value + ", ";
      continue;
    }
    // Memory of the device, which a pointer out of a table does not say.
    const std::string global = ir_.assign("inttoptr i64 " + value + " to ptr addrspace(1)");
    arguments += "ptr " + ir_.assign("addrspacecast ptr addrspace(1) " + global + " to ptr") + ", ";
  }
  for (size_t i = 0; i < kernel_.sizes.size(); ++i) arguments += "i64 " + word() + ", ";
  const std::string iterations = has_parallel_loops(kernel_) ? word() : "1";
  const std::string wide = ir_.assign("zext i32 " + own + " to i64");
  ir_.line("call void @tatara_item(" + arguments + "i64 " + iterations + ", ptr %fault, i64 " + wide + ")");
  return "define ptx_kernel void @" + symbol_ + "(ptr byval([" + number(table.bytes()) +
         " x i8]) align 8 %table, ptr noalias %fault) #1 {\nentry:\n" + ir_.take() + "  ret void\n}\n";
}

}  // namespace tatara::codegen
