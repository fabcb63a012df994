#include "codegen/cpu/cpu_emitter.h"

#include <algorithm>

#include "support/error.h"

namespace tatara::codegen {

using namespace loops;

std::string emit_cpu_module(const Kernel& kernel, const CpuTarget& target, std::string_view symbol) {
  TargetTraits traits;
  traits.vector_bytes = target.vector_bytes();
  traits.has_fma = target.has_fma;
  traits.has_vector_ldexp = target.isa == VectorIsa::kAvx512;
  EmitContext context(kernel, traits);
  Scalars scalars(context);
  CpuMemory memory(context, scalars, target);
  return CpuEmitter(context, scalars, memory, target).run(symbol);
}

std::string CpuEmitter::run(std::string_view symbol) {
  arguments();
  block(context_.kernel.body);
  ir_.line("ret i32 0");
  return str_cat("define dso_local i32 @", symbol,
                 "(ptr noalias readonly %buffers, ptr noalias readonly %sizes, ptr readonly %scalars, i64 %begin, "
                 "i64 %end, ptr noalias %fault) #0 {\nentry:\n",
                 ir_.take(), "}\n", text_of(context_.declarations),
                 "attributes #0 = { nounwind \"prefer-vector-width\"=\"", target_.vector_bytes() * 8, "\" }\n",
                 "!0 = !{!\"branch_weights\", i32 1, i32 1000000}\n");
}

/// Reads the arguments of a KernelFn (codegen/abi.h).
void CpuEmitter::arguments() {
  const Kernel& kernel = context_.kernel;
  size_t argument = 0;
  for (const BufferArg& buffer : kernel.buffers) {
    if (buffer.kind == ArgKind::kScratch) {
      const int64_t bytes = buffer.numel.const_value() * dtype_size(buffer.dtype);
      scope_.add_base(ir_.assign("alloca [" + std::to_string(bytes) + " x i8], align 64"));
      continue;
    }
    const std::string slot = ir_.assign("getelementptr ptr, ptr %buffers, i64 " + std::to_string(argument++));
    scope_.add_base(ir_.assign("load ptr, ptr " + slot));
  }
  for (size_t i = 0; i < kernel.sizes.size(); ++i) {
    const std::string slot = ir_.assign("getelementptr i64, ptr %sizes, i64 " + std::to_string(i));
    scope_.bind(kernel.sizes[i], ir_.assign("load i64, ptr " + slot));
  }
  for (size_t i = 0; i < kernel.scalar_args.size(); ++i) {
    const std::string slot = ir_.assign("getelementptr i64, ptr %scalars, i64 " + std::to_string(i));
    const DType type = kernel.scalar_args[i];
    const DType stored = is_floating(type) ? DType::kFloat64 : DType::kInt64;
    const std::string raw = ir_.assign("load " + llvm_type(stored) + ", ptr " + slot);
    scope_.set(kernel.scalar_arg_ids[i], cast(ir_, stored, type, {raw, false}));
  }
}

void CpuEmitter::all_iterations(const std::function<void(const std::string&)>& body) {
  std::vector<Reg> none;
  counted_loop("%begin", "%end", "1", {}, none, [&](const std::string& flat, std::vector<Reg>&) { body(flat); });
}

std::pair<std::string, std::string> CpuEmitter::divide_position(const std::string& iteration,
                                                                const std::string& extent) {
  const std::string rest = ir_.binary("urem", "i64", iteration, extent);
  return {ir_.binary("udiv", "i64", iteration, extent), rest};
}

void CpuEmitter::sort(const Sort& /*sort*/) {
  throw InternalError("a sort in a kernel for CPUs: " + context_.kernel.name);
}

void CpuEmitter::product(const Product& /*product*/) {
  throw InternalError("a product in a kernel for CPUs: " + context_.kernel.name);
}

void CpuEmitter::attention(const Attention& /*attention*/) {
  throw InternalError("an attention in a kernel for CPUs: " + context_.kernel.name);
}

void CpuEmitter::weighed_product(const WeighedProduct& /*product*/) {
  throw InternalError("a product with a computed weight in a kernel for CPUs: " + context_.kernel.name);
}

void CpuEmitter::leave_after_fault(const std::string& /*next*/) { ir_.line("ret i32 1"); }

std::string CpuEmitter::safe_index(const std::string& /*bad*/, const std::string& index, bool /*vec*/) { return index; }

// ---- Vector loops ------------------------------------------------------------------------------------------------------

void CpuEmitter::vector_loop(const For& loop) {
  VectorLoop v{loop, vector_shape(context_.kernel, loop, target_), scope_.index(loop.extent)};
  if (v.shape.lanes == 1) {
    serial(loop, "0", v.extent);
    return;
  }
  std::vector<Reg> given;
  for (const Carried& c : loop.carried) given.push_back(scope_.reg(c.init));
  scope_.enter_lanes(loop.var, v.shape.lanes);
  find_multiply_adds(loop);
  // Where sums come first, computing them leaves the memory time enough; short runs seldom go on where they end.
  reduces_ = reduces_ || !loop.carried.empty();
  cpu_memory_.set_streaming(v.shape.light && !reduces_ && (!v.known() || v.count() >= 256));
  std::vector<Reg> carried = lanes_at_start(v, given);
  v.site = site_;
  v.whole = v.known() ? std::to_string(v.count() / v.shape.lanes * v.shape.lanes)
                      : ir_.binary("and", "i64", v.extent, std::to_string(-v.shape.lanes));
  passes(v, carried);
  if (loop.scan) {
    // Every lane has the total.
    for (size_t i = 0; i < carried.size(); ++i) carried[i] = lane_of(ir_, loop.carried[i].dtype, carried[i], 0);
  } else {
    reduce_lanes(loop, carried);
  }
  scope_.leave_lanes();
  for (size_t i = 0; i < loop.carried.size(); ++i) {
    const Carried& c = loop.carried[i];
    scope_.set(c.result,
               v.starts_from_given() ? carried[i] : scalars_.combine(c.combine, c.dtype, given[i], carried[i], false));
  }
  if (!v.even() && !v.shape.masks) rest_one_by_one(v);
}

std::vector<Reg> CpuEmitter::lanes_at_start(const VectorLoop& v, const std::vector<Reg>& given) {
  std::vector<Reg> carried;
  for (size_t i = 0; i < given.size(); ++i) {
    const Carried& c = v.loop.carried[i];
    carried.push_back(widened(ir_, c.dtype, v.starts_from_given() ? given[i] : scalars_.identity(c.combine, c.dtype)));
  }
  return carried;
}

void CpuEmitter::passes(const VectorLoop& v, std::vector<Reg>& carried) {
  const int lanes = v.shape.lanes;
  if (v.shape.heavy && v.shape.masks && !v.even() && (!v.known() || v.count() > lanes)) {
    // One copy of a long body, with a mask that is full but for the last pass.
    cascaded(v.loop, "0", v.extent, lanes, carried, [&](const std::string& base, std::vector<Reg>& values) {
      const std::string left = ir_.binary("sub", "i64", v.extent, base);
      const std::string less = ir_.assign("icmp slt i64 " + left + ", " + std::to_string(lanes));
      pass(v, base, mask_below(ir_.select(less, "i64", left, std::to_string(lanes), false)), values);
    });
    return;
  }
  if (!v.known() || v.count() >= lanes) {
    cascaded(v.loop, "0", v.whole, lanes, carried,
             [&](const std::string& base, std::vector<Reg>& values) { pass(v, base, "", values); });
  }
  if (!v.even() && v.shape.masks) masked_rest(v, carried);
}

void CpuEmitter::pass(const VectorLoop& v, const std::string& base, const std::string& mask,
                      std::vector<Reg>& carried) {
  site_ = v.site;
  if (v.loop.scan) {
    scan_pass(v, base, mask, carried);
  } else {
    vector_pass(v.loop, base, mask, carried);
  }
}

/// The elements after the whole passes, under a mask; skipped when there are none.
void CpuEmitter::masked_rest(const VectorLoop& v, std::vector<Reg>& carried) {
  const std::string then = ir_.label();
  const std::string done = ir_.label();
  const std::string left = ir_.binary("sub", "i64", v.extent, v.whole);
  const std::string any = ir_.assign("icmp sgt i64 " + left + ", 0");
  const std::string before = ir_.block();
  ir_.branch(any, then, done);
  ir_.start_block(then);
  std::vector<Reg> tail = carried;
  pass(v, v.whole, mask_below(left), tail);
  const std::string last = ir_.block();
  ir_.jump(done);
  ir_.start_block(done);
  for (size_t i = 0; i < carried.size(); ++i) {
    carried[i] = merged(ir_, v.loop.carried[i].dtype, tail[i], last, carried[i], before);
  }
}

/// Without masks in the instruction set: the elements after the whole passes go on from what the lanes gave.
void CpuEmitter::rest_one_by_one(const VectorLoop& v) {
  site_ = v.site;
  std::vector<Reg> carried;
  for (const Carried& c : v.loop.carried) carried.push_back(scope_.reg(c.result));
  serial_from(v.loop, v.whole, v.extent, std::move(carried));
}

/// Lanes below `left`, which is at most 2^31.
std::string CpuEmitter::mask_below(const std::string& left) {
  std::string ids;
  for (int i = 0; i < ir_.lanes(); ++i) ids += (i > 0 ? ", i32 " : "i32 ") + std::to_string(i);
  const std::string narrow = ir_.assign("trunc i64 " + left + " to i32");
  return ir_.assign("icmp sgt " + ir_.vec_type("i32") + " " + ir_.splat("i32", narrow) + ", <" + ids + ">");
}

// ---- Scans -------------------------------------------------------------------------------------------------------------

void CpuEmitter::scan_pass(const VectorLoop& v, const std::string& base, const std::string& mask,
                           std::vector<Reg>& carried) {
  begin_pass(v.loop, base, mask, carried);
  scan_body(v.loop,
            [&](const Let& let, size_t i) { carried[i] = scan_step(v.loop.carried[i], let, mask, carried[i]); });
  scope_.set_mask("");
}

/// The element of each lane becomes the total up to it; returns the total of all lanes, in every lane.
Reg CpuEmitter::scan_step(const Carried& c, const Let& let, const std::string& mask, const Reg& before) {
  const Reg element = scan_element(c, let);
  const Reg nothing = widened(ir_, c.dtype, scalars_.identity(c.combine, c.dtype));
  Reg sum = widened(ir_, c.dtype, element);
  if (!mask.empty()) sum = choose(ir_, c.dtype, {mask, true}, sum, nothing, true);
  sum = scan_lanes(c, std::move(sum), nothing);
  sum = scalars_.combine(c.combine, c.dtype, before, sum, true);
  scope_.set(c.next, sum);
  const std::string type = llvm_type(real_dtype(c.dtype));
  const std::vector<int> last(static_cast<size_t>(ir_.lanes()), ir_.lanes() - 1);
  Reg total{ir_.shuffle(type, ir_.lanes(), sum.text, sum.text, last), true};
  if (is_complex(c.dtype)) total.im = ir_.shuffle(type, ir_.lanes(), sum.im, sum.im, last);
  return total;
}

}  // namespace tatara::codegen
