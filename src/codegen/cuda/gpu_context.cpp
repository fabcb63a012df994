#include "codegen/cuda/gpu_context.h"

#include <algorithm>

#include "symbolic/multiples.h"

namespace tatara::codegen {

using namespace loops;

void GpuContext::enter_loop(const For& of, int lanes) {
  context.scope.enter_lanes(lanes > 1 ? of.var : Expr(), lanes);
  loop.inside = true;
}

void GpuContext::leave_loop() {
  context.scope.leave_lanes();
  loop.inside = false;
}

// ---- Scalars -----------------------------------------------------------------------------------------------------------

Reg GpuScalars::divide(const Operation& o) {
  if (o.dtype != DType::kFloat32) return Scalars::divide(o);
  if (!loop_.same_lanes.empty() && !o.vec) {
    // By a count of elements, whose quotient need not be rounded correctly: a call that rounds would keep loads from being
    // started before it.
    const Reg count[] = {{o.x[1], false}};
    const std::string about = ir_.per_lane("llvm.nvvm.rcp.approx.ftz.f", o.dtype, count, false);
    const std::string product = ir_.binary("fmul", o.type, o.x[1], about);
    const std::string rest = ir_.binary("fsub", o.type, float_bits(2.0, o.dtype), product);
    return {ir_.binary("fmul", o.type, o.x[0], ir_.binary("fmul", o.type, about, rest)), false};
  }
  const std::optional<double> divisor = scope_.constant(o.scalar.operands[1]);
  if (!divisor) return Scalars::divide(o);
  const std::string reciprocal = float_bits(1.0F / static_cast<float>(*divisor), o.dtype);
  return {ir_.binary("fmul", o.type, o.x[0], constant_operand(o, reciprocal)), o.vec};
}

Reg GpuScalars::extremum(const Operation& o) {
  if (o.dtype != DType::kFloat32) return Scalars::extremum(o);
  return intrinsic(o, o.scalar.op == ScalarOp::kMin ? "minimum" : "maximum");
}

Reg GpuScalars::inverse_root(const Operation& o) {
  if (o.dtype != DType::kFloat32) return Scalars::inverse_root(o);
  return {ir_.per_lane("llvm.nvvm.rsqrt.approx.f", o.dtype, o.given, o.vec), o.vec};
}

// ---- Memory ------------------------------------------------------------------------------------------------------------

Reg GpuMemory::passed_value(int buffer) {
  const DType dtype = scope_.buffer(buffer).dtype;
  const DType part = real_dtype(dtype);
  const std::string& word = scope_.base(buffer);
  Reg value{from_word(ir_, part, word), false};
  if (is_complex(dtype)) {
    value.im = from_word(ir_, part, ir_.binary("lshr", "i64", word, std::to_string(8 * dtype_size(part))));
  }
  return value;
}

std::string GpuMemory::load_flags(int buffer) const {
  return scope_.buffer(buffer).kind == ArgKind::kInput ? ", !invariant.load !1" : "";
}

/// The scheduler takes several lanes only where one mask holds for all of them.
std::string GpuMemory::load_masked(const Run& run, const std::string& mask, const std::string& flags) {
  const std::string own = ir_.assign("extractelement " + run.bits() + " " + mask + ", i64 0");
  const std::string before = ir_.block();
  const std::string read = ir_.label(), done = ir_.label();
  ir_.branch(own, read, done);
  ir_.start_block(read);
  const std::string value = ir_.assign("load " + run.type() + ", ptr " + run.at + ", " + run.align + flags);
  ir_.jump(done);
  ir_.start_block(done);
  return ir_.assign("phi " + run.type() + " [ " + value + ", %" + read + " ], [ zeroinitializer, %" + before + " ]");
}

/// Lanes begin at multiples of their number, and so do the vectors of an access whose place beside the vector variable is a
/// multiple, too.
std::string GpuMemory::vector_align(DType dtype, Expr where) const {
  const int size = dtype_size(real_dtype(dtype));
  int lanes = ir_.lanes();
  const Expr rest = context_.kernel.ctx->sub(where, scope_.vector_var());
  while (lanes > 1 && !multiple_of(rest, lanes)) lanes /= 2;
  return "align " + std::to_string(std::max(std::min(16, lanes * size), size));
}

void GpuMemory::note_aligned_loads(const For& loop) {
  const std::vector<Stmt>& body = loop.body->stmts;
  const bool plain = std::none_of(body.begin(), body.end(), [](const Stmt& s) {
    return std::holds_alternative<For>(s) || std::holds_alternative<If>(s);
  });
  if (ir_.lanes() == 1 || !plain) return;
  for (const Stmt& stmt : body) {
    const auto* load = std::get_if<Load>(&stmt);
    if (load == nullptr || load->mask != kNoScalar || scope_.stride_of(load->index) != Stride::kUnit) continue;
    const BufferArg& buffer = scope_.buffer(load->buffer);
    if (buffer.kind != ArgKind::kInput || is_complex(buffer.dtype)) continue;
    if (!multiple_of(context_.kernel.ctx->sub(load->index, scope_.vector_var()), ir_.lanes())) continue;
    vectors_[{load->buffer, load->index.node()}];
  }
}

void GpuMemory::forget_aligned_loads() {
  vectors_.clear();
  elements_.clear();
}

Reg GpuMemory::load_parts(int buffer, Expr where, const std::string& mask) {
  if (!vectors_.empty() && mask.empty() && scope_.stride_of(where) == Stride::kUnit) {
    if (std::optional<Reg> value = from_aligned_vectors(buffer, where)) return *value;
  }
  return Memory::load_parts(buffer, where, mask);
}

/// The noted vector that begins there, loaded when it is first needed; null: none does.
std::string* GpuMemory::aligned_vector(int buffer, Expr first) {
  const auto found = vectors_.find({buffer, first.node()});
  if (found == vectors_.end()) return nullptr;
  if (found->second.empty()) {
    const DType dtype = scope_.buffer(buffer).dtype;
    const std::string at = address(buffer, scope_.index(first));
    found->second = ir_.assign("load " + ir_.vec_type(memory_type(dtype)) + ", ptr " + at + ", " +
                               vector_align(dtype, first) + load_flags(buffer));
  }
  return &found->second;
}

/// As it lies in memory.
std::string GpuMemory::single_element(int buffer, Expr where) {
  std::string& known = elements_[{buffer, where.node()}];
  if (known.empty()) {
    const DType dtype = scope_.buffer(buffer).dtype;
    const std::string at = address(buffer, scope_.index(where));
    known = ir_.assign("load " + memory_type(dtype) + ", ptr " + at + ", align " + std::to_string(dtype_size(dtype)) +
                       load_flags(buffer));
  }
  return known;
}

/// A vector that lies across noted ones, element by element; nullopt: none of it is there.
std::optional<Reg> GpuMemory::from_aligned_vectors(int buffer, Expr where) {
  ExprContext& ctx = *context_.kernel.ctx;
  const int lanes = ir_.lanes();
  const std::string element = memory_type(scope_.buffer(buffer).dtype);
  if (const std::string* same = aligned_vector(buffer, where)) return Reg{*same, true};
  std::vector<std::pair<std::string*, int>> parts;  // vector and lane of each element; null: alone
  for (int i = 0; i < lanes; ++i) {
    parts.emplace_back(nullptr, 0);
    for (int lane = 0; lane < lanes && parts.back().first == nullptr; ++lane) {
      parts.back() = {aligned_vector(buffer, ctx.add(where, ctx.constant(i - lane))), lane};
    }
  }
  if (std::all_of(parts.begin(), parts.end(), [](const auto& part) { return part.first == nullptr; }))
    return std::nullopt;
  std::string value = "poison";
  for (int i = 0; i < lanes; ++i) {
    const auto [vector, lane] = parts[static_cast<size_t>(i)];
    const std::string one =
        vector != nullptr
            ? ir_.assign("extractelement " + ir_.vec_type(element) + " " + *vector + ", i64 " + std::to_string(lane))
            : single_element(buffer, ctx.add(where, ctx.constant(i)));
    value = ir_.assign("insertelement " + ir_.vec_type(element) + " " + value + ", " + element + " " + one + ", i64 " +
                       std::to_string(i));
  }
  return Reg{value, true};
}

}  // namespace tatara::codegen
