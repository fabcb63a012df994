#include "codegen/cpu/cpu_memory.h"

#include <algorithm>

namespace tatara::codegen {

Reg CpuMemory::load_parts(int buffer, Expr where, const std::string& mask) {
  loaded_.insert(buffer);
  const DType dtype = scope_.buffer(buffer).dtype;
  if (scope_.stride_of(where) == Stride::kGather) {
    if (std::optional<Reg> value = from_table(buffer, where, mask)) return *value;
  }
  const bool one_place = scope_.stride_of(where) == Stride::kUniform && !mask.empty();
  if (one_place && !is_complex(dtype)) return load_of_some(buffer, where, mask);
  const bool own_mask = !mask.empty() && mask != scope_.mask();  // not only the last iteration's
  if (mask.empty() && step_worth_reading(where, dtype) == 0) {
    if (const auto step = step_of_lanes(buffer, where)) return load_lanes(buffer, where, *step);
  }
  if (!own_mask) return Memory::load_parts(buffer, where, mask);
  const Stride stride = scope_.stride_of(where);
  if (stride == Stride::kUnit || stride == Stride::kReversed) {
    if (is_far(buffer, where)) wanted_ = any_of(mask);
    Reg value = Memory::load_parts(buffer, where, mask);
    wanted_.clear();
    return value;
  }
  const bool gathers = stride == Stride::kGather || step_worth_reading(where, dtype) == 0;
  return gathers || is_far(buffer, where) ? load_if_any(buffer, where, mask) : Memory::load_parts(buffer, where, mask);
}

/// How far lanes are from each other, where that is known; nullopt: they follow each other, or who knows.
std::optional<int64_t> CpuMemory::step_of_lanes(int buffer, Expr where) const {
  constexpr int kMost = 2048;  // instructions of a kernel, which take time to compile
  if (is_complex(scope_.buffer(buffer).dtype) || scope_.stride_of(where) != Stride::kStrided) return std::nullopt;
  if (lanes_apart_ + ir_.lanes() > kMost) return std::nullopt;
  const Expr step = where.coefficient_of(scope_.vector_var());
  return step.valid() && step.is_const() ? std::optional(step.const_value()) : std::nullopt;
}

/// The place of each lane.
std::vector<std::string> CpuMemory::lane_places(int buffer, Expr where, int64_t step) {
  const std::string element = memory_type(scope_.buffer(buffer).dtype);
  lanes_apart_ += ir_.lanes();
  std::vector<std::string> places{address(buffer, scope_.index(where))};
  for (int lane = 1; lane < ir_.lanes(); ++lane) {
    const std::string offset = std::to_string(lane * step);
    places.push_back(ir_.assign("getelementptr inbounds " + element + ", ptr " + places[0] + ", i64 " + offset));
  }
  return places;
}

/// Lane by lane, which takes half the time of the instructions that gather and scatter.
Reg CpuMemory::load_lanes(int buffer, Expr where, int64_t step) {
  const DType dtype = scope_.buffer(buffer).dtype;
  const std::string element = memory_type(dtype), align = std::to_string(dtype_size(dtype));
  std::string all = "poison";
  int lane = 0;
  for (const std::string& place : lane_places(buffer, where, step)) {
    const std::string one = ir_.assign("load " + element + ", ptr " + place + ", align " + align);
    all = ir_.assign("insertelement " + ir_.vec_type(element) + " " + all + ", " + element + " " + one + ", i64 " +
                     std::to_string(lane++));
  }
  return {all, true};
}

void CpuMemory::store_scattered(int buffer, Expr where, const Reg& value, const std::string& mask) {
  const std::optional<int64_t> known = mask.empty() ? step_of_lanes(buffer, where) : std::nullopt;
  if (!known) return Memory::store_scattered(buffer, where, value, mask);
  const int64_t step = *known;
  const DType dtype = scope_.buffer(buffer).dtype;
  const std::string element = memory_type(dtype), align = std::to_string(dtype_size(dtype));
  int lane = 0;
  for (const std::string& place : lane_places(buffer, where, step)) {
    const std::string one =
        ir_.assign("extractelement " + ir_.vec_type(element) + " " + value.text + ", i64 " + std::to_string(lane++));
    ir_.line("store " + element + " " + one + ", ptr " + place + ", align " + align);
  }
}

/// Whether lanes that don't count may lie so far outside that no memory is there. Then the processor takes a hundred times as long.
bool CpuMemory::is_far(int buffer, Expr where) const {
  constexpr int64_t kNear = 256;
  const ExprContext& ctx = *context_.kernel.ctx;
  const IntRange places = ctx.range(where), count = ctx.range(scope_.buffer(buffer).numel);
  return places.lo < -kNear || places.hi - kNear >= count.lo;
}

/// Whether a lane counts.
std::string CpuMemory::any_of(const std::string& mask) {
  const std::string bits = str_cat("i", ir_.lanes());
  const std::string lanes = ir_.assign("bitcast " + vector_of(ir_.lanes(), "i1") + " " + mask + " to " + bits);
  return ir_.assign("icmp ne " + bits + " " + lanes + ", 0");
}

/// A gather takes its time whether lanes count or not. Where parts are joined, mostly none do, or all.
Reg CpuMemory::load_if_any(int buffer, Expr where, const std::string& mask) {
  const std::string type = vector_of(ir_.lanes(), memory_type(scope_.buffer(buffer).dtype));
  const std::string then = ir_.label(), done = ir_.label(), before = ir_.block();
  ir_.branch(any_of(mask), then, done);
  ir_.start_block(then);
  const Reg value = Memory::load_parts(buffer, where, mask);
  const std::string last = ir_.block();
  ir_.jump(done);
  ir_.start_block(done);
  const auto found = [&](const std::string& text) {
    return ir_.assign("phi " + type + " [ " + text + ", %" + last + " ], [ zeroinitializer, %" + before + " ]");
  };
  Reg result{found(value.text), true};
  if (!value.im.empty()) result.im = found(value.im);
  return result;
}

/// One element, for the lanes that want it. If none does there may be no such element: then something that is there is read. (A gather
/// takes a load for each lane.)
Reg CpuMemory::load_of_some(int buffer, Expr where, const std::string& mask) {
  const DType dtype = scope_.buffer(buffer).dtype;
  const std::string element = memory_type(dtype), any = any_of(mask);
  const std::string at = ir_.select(any, "ptr", address(buffer, scope_.index(where)), "%buffers", false);
  const std::string value =
      ir_.assign("load " + element + ", ptr " + at + ", align " + std::to_string(dtype_size(dtype)));
  const std::string all = ir_.as_vec(element, Reg{value, false});
  return {ir_.select(mask, vector_of(ir_.lanes(), element), all, "zeroinitializer", true), true};
}

std::optional<Reg> CpuMemory::from_table(int buffer, Expr where, const std::string& mask) {
  constexpr int kTable = 16;
  const DType dtype = scope_.buffer(buffer).dtype;
  const Expr count = scope_.buffer(buffer).numel;
  const bool fits = target_.isa == VectorIsa::kAvx512 ? ir_.lanes() == 16 || ir_.lanes() == 8
                                                      : target_.isa == VectorIsa::kAvx2 && ir_.lanes() == 8;
  if (!fits || !count.is_const(kTable) || is_complex(dtype) || dtype_size(dtype) > 4) return std::nullopt;
  const int lanes = ir_.lanes();
  const bool is_float = dtype == DType::kFloat32;
  const std::string element = memory_type(dtype), part = is_float ? "float" : "i32";
  const std::string word = is_float ? part : str_cat("i", 8 * dtype_size(dtype));
  const auto typed = [&](const std::string& value) { return vector_of(lanes, part) + " " + value; };
  const std::string type = vector_of(lanes, "i32");
  const std::string places =
      ir_.assign("trunc " + ir_.vec_type("i64") + " " + scope_.index_vector(where) + " to " + type);
  const char* function = lanes == 16
                             ? (is_float ? "@llvm.x86.avx512.permvar.sf.512" : "@llvm.x86.avx512.permvar.si.512")
                             : (is_float ? "@llvm.x86.avx2.permps" : "@llvm.x86.avx2.permd");
  ir_.declare("declare " + vector_of(lanes, part) + " " + function + "(" + vector_of(lanes, part) + ", " + type + ")");
  std::vector<std::string> found;
  for (int first = 0; first < kTable; first += lanes) {
    const std::string at = address(buffer, std::to_string(first));
    std::string table =
        ir_.assign("load " + vector_of(lanes, word) + ", ptr " + at + ", align " + std::to_string(dtype_size(dtype)));
    if (dtype_size(dtype) < 4) {
      table = ir_.assign("zext " + vector_of(lanes, word) + " " + table + " to " + vector_of(lanes, part));
    }
    found.push_back(ir_.call(function, vector_of(lanes, part), typed(table) + ", " + type + " " + places));
  }
  std::string value = found[0];
  if (found.size() > 1) {
    const std::string upper = ir_.assign("icmp ugt " + type + " " + places + ", splat (i32 7)");
    value = ir_.select(upper, vector_of(lanes, part), found[1], found[0], true);
  }
  if (dtype_size(dtype) < 4) value = ir_.assign("trunc " + typed(value) + " to " + vector_of(lanes, word));
  if (element != word)
    value = ir_.assign("bitcast " + vector_of(lanes, word) + " " + value + " to " + vector_of(lanes, element));
  if (!mask.empty()) value = ir_.select(mask, vector_of(lanes, element), value, "zeroinitializer", true);
  return Reg{value, true};
}

std::string CpuMemory::load_masked(const Run& run, const std::string& mask, const std::string& /*flags*/) {
  const std::string name = "@llvm.masked.load." + mangled(run.lanes, run.element) + ".p0";
  const std::string at = wanted_.empty() ? run.at : ir_.select(wanted_, "ptr", run.at, "%buffers", false);
  ir_.declare("declare " + run.type() + " " + name + "(ptr, " + run.bits() + ", " + run.type() + ")");
  return ir_.call(
      name, run.type(),
      "ptr " + run.align + " " + at + ", " + run.bits() + " " + mask + ", " + run.type() + " zeroinitializer");
}

int CpuMemory::step_worth_reading(Expr where, DType dtype) const {
  if (is_complex(dtype) || dtype_size(dtype) < 4 || target_.isa == VectorIsa::kNeon || ir_.lanes() < 4) return 0;
  if (scope_.stride_of(where) != Stride::kStrided) return 0;
  const Expr step = where.coefficient_of(scope_.vector_var());
  if (!step.is_const() || step.const_value() < 2 || step.const_value() > 4) return 0;
  return static_cast<int>(step.const_value());
}

std::string CpuMemory::vector_align(DType dtype, Expr /*where*/) const {
  return "align " + std::to_string(dtype_size(real_dtype(dtype)));
}

/// Asks for the lines that a run of stores reaches soon: a store waits for its line to be read from memory first, and the
/// processor looks less far ahead for stores than for loads.
void CpuMemory::after_store(int buffer, int bytes, const Run& run) {
  constexpr int64_t kLeastBytes = 1 << 20;  // a smaller buffer is in the cache as it is
  constexpr int kAhead = 4096;
  constexpr int kLine = 64;
  const Expr count = scope_.buffer(buffer).numel;
  const bool large = !count.is_const() || count.const_value() * bytes >= kLeastBytes;
  if (!streams_ || !large || loaded_.contains(buffer)) return;
  ir_.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)");
  for (int offset = 0; offset < std::max(bytes * run.lanes, kLine); offset += kLine) {
    const std::string at = ir_.assign("getelementptr i8, ptr " + run.at + ", i64 " + std::to_string(kAhead + offset));
    ir_.line("call void @llvm.prefetch.p0(ptr " + at + ", i32 1, i32 3, i32 1)");
  }
}

}  // namespace tatara::codegen
