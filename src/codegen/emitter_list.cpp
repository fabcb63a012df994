// Kernels for lists: one launch for kernels that differ in nothing but their arguments. See loops/list_table.h.
#include "codegen/emitter.h"
#include "loops/list_table.h"

namespace tatara::codegen {

using namespace loops;

std::string Emitter::list_entry() {
  size_t words = kernel_.sizes.size() + (has_parallel_loops(kernel_) ? 1 : 0);
  for (const BufferArg& buffer : kernel_.buffers) words += buffer.kind == ArgKind::kScratch ? 0 : 1;
  const ListTable table{kernel_.gpu.items, words};
  const auto number = [](size_t n) { return std::to_string(n); };
  out_.clear();
  current_block_ = "entry";
  declare("declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()");
  const std::string block = call("@llvm.nvvm.read.ptx.sreg.ctaid.x", "i32", "");
  const std::string each = assign("load i32, ptr %table, align 8");
  const std::string divide = label(), search = label(), found = label();
  line("br i1 " + assign("icmp ne i32 " + each + ", 0") + ", label %" + divide + ", label %" + search);

  start_block(divide);
  const std::string quotient = binary("udiv", "i32", block, each);
  line("br label %" + found);

  // The last item whose first block is not after this one: items without blocks are passed over.
  start_block(search);
  const std::string firsts = assign("getelementptr inbounds i8, ptr %table, i64 " + number(ListTable::kFirstBlocks));
  const auto first_block = [&](const std::string& item) {
    const std::string at = assign("getelementptr inbounds i32, ptr " + firsts + ", i32 " + item);
    return assign("load i32, ptr " + at + ", align 4");
  };
  std::string item = "0";
  for (int step = static_cast<int>(std::bit_ceil(static_cast<unsigned>(table.items))) / 2; step > 0; step /= 2) {
    std::string probe = item == "0" ? std::to_string(step) : binary("add nuw nsw", "i32", item, std::to_string(step));
    if (!std::has_single_bit(static_cast<unsigned>(table.items))) {
      declare("declare i32 @llvm.umin.i32(i32, i32)");
      probe = call("@llvm.umin.i32", "i32", "i32 " + probe + ", i32 " + std::to_string(table.items - 1));
    }
    const std::string reached = assign("icmp ule i32 " + first_block(probe) + ", " + block);
    item = select(reached, "i32", probe, item, false);
  }
  line("br label %" + found);

  start_block(found);
  const std::string mine = assign("phi i32 [ " + quotient + ", %" + divide + " ], [ " + item + ", %" + search + " ]");
  const std::string start = assign("getelementptr inbounds i8, ptr %table, i64 " + number(ListTable::kFirstBlocks));
  const std::string first_at = assign("getelementptr inbounds i32, ptr " + start + ", i32 " + mine);
  const std::string own = binary("sub nuw nsw", "i32", block, assign("load i32, ptr " + first_at + ", align 4"));
  const std::string rows = assign("getelementptr inbounds i8, ptr %table, i64 " + number(table.items_at()));
  const std::string row = assign("getelementptr inbounds [" + number(words) + " x i64], ptr " + rows + ", i32 " + mine);
  size_t next = 0;
  const auto word = [&] {
    const std::string at = assign("getelementptr inbounds i64, ptr " + row + ", i64 " + number(next++));
    return assign("load i64, ptr " + at + ", align 8");
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
    const std::string global = assign("inttoptr i64 " + value + " to ptr addrspace(1)");
    arguments += "ptr " + assign("addrspacecast ptr addrspace(1) " + global + " to ptr") + ", ";
  }
  for (size_t i = 0; i < kernel_.sizes.size(); ++i) arguments += "i64 " + word() + ", ";
  const std::string iterations = has_parallel_loops(kernel_) ? word() : "1";
  const std::string wide = assign("zext i32 " + own + " to i64");
  line("call void @tatara_item(" + arguments + "i64 " + iterations + ", ptr %fault, i64 " + wide + ")");
  return "define ptx_kernel void @" + symbol_ + "(ptr byval([" + number(table.bytes()) +
         " x i8]) align 8 %table, ptr noalias %fault) #1 {\nentry:\n" + out_ + "  ret void\n}\n";
}

}  // namespace tatara::codegen
