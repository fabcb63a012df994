#include "codegen/cuda/grouped_entry.h"

#include <bit>

#include "loops/list_table.h"
#include "support/str_cat.h"

namespace tatara::codegen {

using namespace loops;

namespace {

std::string entry_number(size_t n) { return std::to_string(n); }

size_t words_of_item(const Kernel& kernel) {
  size_t words = kernel.sizes.size() + (has_parallel_loops(kernel) ? 1 : 0);
  for (const BufferArg& buffer : kernel.buffers) words += buffer.kind == ArgKind::kScratch ? 0 : 1;
  return words;
}

/// The number of the first block of an item.
std::string first_block(IrWriter& ir, const std::string& firsts, const std::string& item) {
  const std::string at = ir.assign("getelementptr inbounds i32, ptr " + firsts + ", i32 " + item);
  return ir.assign("load i32, ptr " + at + ", align 4");
}

std::string first_blocks(IrWriter& ir) {
  return ir.assign("getelementptr inbounds i8, ptr %table, i64 " + entry_number(ListTable::kFirstBlocks));
}

/// The last item whose first block is not after this one: items without blocks are passed over.
std::string search_item(IrWriter& ir, const ListTable& table, const std::string& block) {
  const std::string firsts = first_blocks(ir);
  const auto items = static_cast<unsigned>(table.items);
  std::string item = "0";
  for (int step = static_cast<int>(std::bit_ceil(items)) / 2; step > 0; step /= 2) {
    std::string probe =
        item == "0" ? std::to_string(step) : ir.binary("add nuw nsw", "i32", item, std::to_string(step));
    if (!std::has_single_bit(items)) {
      ir.declare("declare i32 @llvm.umin.i32(i32, i32)");
      probe = ir.call("@llvm.umin.i32", "i32", "i32 " + probe + ", i32 " + std::to_string(table.items - 1));
    }
    const std::string reached = ir.assign("icmp ule i32 " + first_block(ir, firsts, probe) + ", " + block);
    item = ir.select(reached, "i32", probe, item, false);
  }
  return item;
}

/// The arguments of an item's buffers and sizes, and its iterations, out of its words at `row`.
std::string arguments_of(IrWriter& ir, const Kernel& kernel, const std::string& row) {
  size_t next = 0;
  const auto word = [&] {
    const std::string at = ir.assign("getelementptr inbounds i64, ptr " + row + ", i64 " + entry_number(next++));
    return ir.assign("load i64, ptr " + at + ", align 8");
  };
  std::string arguments;
  for (const BufferArg& buffer : kernel.buffers) {
    if (buffer.kind == ArgKind::kScratch) continue;
    const std::string value = word();
    if (buffer.kind == ArgKind::kValue) {
      arguments += "i64 " + value + ", ";
      continue;
    }
    // Memory of the device, which a pointer out of a table does not say.
    const std::string global = ir.assign("inttoptr i64 " + value + " to ptr addrspace(1)");
    arguments += "ptr " + ir.assign("addrspacecast ptr addrspace(1) " + global + " to ptr") + ", ";
  }
  for (size_t i = 0; i < kernel.sizes.size(); ++i) arguments += "i64 " + word() + ", ";
  return arguments + "i64 " + (has_parallel_loops(kernel) ? word() : "1");
}

}  // namespace

std::string grouped_entry(EmitContext& context, std::string_view symbol) {
  IrWriter& ir = context.ir;
  const size_t words = words_of_item(context.kernel);
  const ListTable table{context.kernel.gpu.items, words};
  ir.declare("declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()");
  const std::string block = ir.call("@llvm.nvvm.read.ptx.sreg.ctaid.x", "i32", "");
  const std::string each = ir.assign("load i32, ptr %table, align 8");
  const std::string divide = ir.label(), search = ir.label(), found = ir.label();
  ir.branch(ir.assign("icmp ne i32 " + each + ", 0"), divide, search);

  ir.start_block(divide);
  const std::string quotient = ir.binary("udiv", "i32", block, each);
  ir.jump(found);

  ir.start_block(search);
  const std::string item = search_item(ir, table, block);
  ir.jump(found);

  ir.start_block(found);
  const std::string mine =
      ir.assign("phi i32 [ " + quotient + ", %" + divide + " ], [ " + item + ", %" + search + " ]");
  const std::string start = first_blocks(ir);
  const std::string own = ir.binary("sub nuw nsw", "i32", block, first_block(ir, start, mine));
  const std::string rows = ir.assign("getelementptr inbounds i8, ptr %table, i64 " + entry_number(table.items_at()));
  const std::string row =
      ir.assign("getelementptr inbounds [" + entry_number(words) + " x i64], ptr " + rows + ", i32 " + mine);
  const std::string arguments = arguments_of(ir, context.kernel, row);
  const std::string wide = ir.assign("zext i32 " + own + " to i64");
  ir.line("call void @tatara_item(" + arguments + ", ptr %fault, i64 " + wide + ")");
  return str_cat("define ptx_kernel void @", symbol, "(ptr byval([", table.bytes(),
                 " x i8]) align 8 %table, ptr noalias %fault) #1 {\nentry:\n", ir.take(), "  ret void\n}\n");
}

}  // namespace tatara::codegen
