#include "codegen/emitter.h"

#include <algorithm>

#include "support/error.h"

namespace tatara::codegen {

using namespace loops;

std::string llvm_type(DType dtype) {
  switch (dtype) {
    case DType::kBool: return "i1";
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E5M2: return "i8";
    case DType::kUInt16:
    case DType::kInt16:
    case DType::kBFloat16: return "i16";
    case DType::kUInt32:
    case DType::kInt32: return "i32";
    case DType::kUInt64:
    case DType::kInt64: return "i64";
    case DType::kFloat16: return "half";
    case DType::kFloat32: return "float";
    case DType::kFloat64: return "double";
    case DType::kComplex32:
    case DType::kComplex64:
    case DType::kComplex128: break;
  }
  throw Unsupported("complex kernels are not generated yet");
}

Emitter::Emitter(const Kernel& kernel, const CpuTarget& target, std::string_view symbol)
    : kernel_(kernel), target_(target), symbol_(symbol), regs_(kernel.scalar_types.size()) {}

std::string Emitter::assign(const std::string& text) {
  std::string r = fresh();
  line(r + " = " + text);
  return r;
}

void Emitter::start_block(const std::string& name) {
  out_ += name + ":\n";
  current_block_ = name;
}

std::string Emitter::splat(const std::string& scalar_type, const std::string& text) {
  const std::string type = vec_type(scalar_type);
  const std::string one = assign("insertelement " + type + " poison, " + scalar_type + " " + text + ", i64 0");
  return assign("shufflevector " + type + " " + one + ", " + type + " poison, " + vec_type("i32") + " zeroinitializer");
}

// ---- Indices ---------------------------------------------------------------------------------------------------------

bool Emitter::varies(Expr e) const {
  if (lanes_ == 1) return false;
  if (e.is_symbol()) {
    if (e == vector_var_) return true;
    const auto found = symbols_.find(e);
    return found != symbols_.end() && found->second.vec;
  }
  return std::any_of(e.operands().begin(), e.operands().end(), [&](Expr x) { return varies(x); });
}

std::string Emitter::index(Expr e) { return index_expr(e, false); }

std::string Emitter::index_vector(Expr e) {
  return varies(e) ? index_expr(e, true) : splat("i64", index_expr(e, false));
}

std::string Emitter::index_expr(Expr e, bool vec) {
  if (e.is_const()) return vec ? splat("i64", std::to_string(e.const_value())) : std::to_string(e.const_value());
  if (e.is_symbol()) {
    const auto found = symbols_.find(e);
    TATARA_CHECK(found != symbols_.end(), "index symbol ", e.str(), " has no value in ", kernel_.name);
    if (vec && e == vector_var_) {
      std::string lanes = vec_type("i64") + " <";
      std::string list;
      for (int i = 0; i < lanes_; ++i) list += (i > 0 ? ", i64 " : "i64 ") + std::to_string(i);
      return assign("add " + vec_type("i64") + " " + splat("i64", found->second.text) + ", <" + list + ">");
    }
    return vec ? as_vec("i64", found->second) : found->second.text;
  }
  const std::string type = vec ? vec_type("i64") : "i64";
  const auto operand = [&](Expr x) { return vec ? index_vector(x) : index_expr(x, false); };
  const auto fold = [&](const char* op) {
    std::string value = operand(e.operands()[0]);
    for (size_t i = 1; i < e.operands().size(); ++i) value = binary(op, type, value, operand(e.operands()[i]));
    return value;
  };
  const auto nonnegative = [&](Expr x) { return kernel_.ctx->range(x).lo >= 0; };
  switch (e.kind()) {
    case ExprKind::kAdd: return fold("add nsw");
    case ExprKind::kMul: return fold("mul nsw");
    case ExprKind::kFloorDiv:
    case ExprKind::kMod: {
      if (!nonnegative(e.operands()[0]) || kernel_.ctx->range(e.operands()[1]).lo <= 0) {
        // floor(a / b) for b > 0: (a - ((a < 0) ? b - 1 : 0)) / b, truncating.
        const std::string a = operand(e.operands()[0]);
        const std::string b = operand(e.operands()[1]);
        const std::string one = vec ? splat("i64", "1") : "1";
        const std::string zero = vec ? "zeroinitializer" : "0";
        const std::string below = assign("icmp slt " + type + " " + a + ", " + zero);
        const std::string less = binary("sub", type, b, one);
        const std::string shift = select(below, type, less, zero, vec);
        const std::string q = binary("sdiv", type, binary("sub", type, a, shift), b);
        return e.kind() == ExprKind::kFloorDiv ? q : binary("sub", type, a, binary("mul", type, q, b));
      }
      return fold(e.kind() == ExprKind::kFloorDiv ? "udiv" : "urem");
    }
    case ExprKind::kMin:
    case ExprKind::kMax: {
      const std::string a = operand(e.operands()[0]);
      const std::string b = operand(e.operands()[1]);
      const char* test = e.kind() == ExprKind::kMin ? "slt" : "sgt";
      return select(assign(std::string("icmp ") + test + " " + type + " " + a + ", " + b), type, a, b, vec);
    }
    case ExprKind::kConst:
    case ExprKind::kSymbol:
    case ExprKind::kEq:
    case ExprKind::kNe:
    case ExprKind::kLt:
    case ExprKind::kLe:
    case ExprKind::kAnd:
    case ExprKind::kOr:
    case ExprKind::kNot: break;
  }
  throw InternalError("a condition as an index: " + e.str());
}

Emitter::Stride Emitter::stride_of(Expr e) const {
  using Kind = Stride::Kind;
  if (!varies(e)) return {Kind::kUniform};
  const Expr coefficient = e.coefficient_of(vector_var_);
  if (!coefficient.valid() || varies(coefficient)) return {Kind::kGather};
  const Expr rest = kernel_.ctx->sub(e, kernel_.ctx->mul(coefficient, vector_var_));
  if (varies(rest)) return {Kind::kGather};
  if (coefficient.is_const(1)) return {Kind::kUnit};
  if (coefficient.is_const(-1)) return {Kind::kReversed};
  return {Kind::kStrided};
}

// ---- Memory ------------------------------------------------------------------------------------------------------------

std::string Emitter::memory_type(DType dtype) const { return dtype == DType::kBool ? "i8" : llvm_type(dtype); }

std::string Emitter::address(int buffer, const std::string& index) {
  const BufferArg& arg = kernel_.buffers[static_cast<size_t>(buffer)];
  return assign("getelementptr inbounds " + memory_type(arg.dtype) + ", ptr " + bases_[static_cast<size_t>(buffer)] +
                ", i64 " + index);
}

std::string Emitter::from_memory(DType dtype, const std::string& text, bool vec) {
  if (dtype != DType::kBool) return text;
  return assign("icmp ne " + type_of("i8", vec) + " " + text + ", " + (vec ? "zeroinitializer" : "0"));
}

std::string Emitter::to_memory(DType dtype, const std::string& text, bool vec) {
  if (dtype != DType::kBool) return text;
  return assign("zext " + type_of("i1", vec) + " " + text + " to " + type_of("i8", vec));
}

std::string Emitter::lane_mask(ScalarId mask) {
  if (mask == kNoScalar) return vector_mask_;
  const std::string own = as_vec("i1", reg(mask));
  return vector_mask_.empty() ? own : binary("and", vec_type("i1"), own, vector_mask_);
}

namespace {
std::string mangled(int lanes, const std::string& type) {
  static const std::unordered_map<std::string, std::string> kShort = {
      {"half", "f16"}, {"float", "f32"}, {"double", "f64"}};
  const auto found = kShort.find(type);
  return "v" + std::to_string(lanes) + (found == kShort.end() ? type : found->second);
}
}  // namespace

std::string Emitter::vector_load(const Load& load, const std::string& mask) {
  const DType dtype = kernel_.buffers[static_cast<size_t>(load.buffer)].dtype;
  const std::string element = memory_type(dtype);
  const std::string type = vec_type(element);
  const std::string align = "align " + std::to_string(dtype_size(dtype));
  const Stride stride = stride_of(load.index);
  using Kind = Stride::Kind;
  if (stride.kind == Kind::kUnit || stride.kind == Kind::kReversed) {
    std::string first = index(load.index);
    std::string lanes = mask;
    std::string reversal;
    if (stride.kind == Kind::kReversed) {
      first = binary("sub", "i64", first, std::to_string(lanes_ - 1));
      for (int i = lanes_ - 1; i >= 0; --i) reversal += (reversal.empty() ? "i32 " : ", i32 ") + std::to_string(i);
      reversal = vec_type("i32") + " <" + reversal + ">";
      const std::string bits = vec_type("i1");
      if (!mask.empty()) lanes = assign("shufflevector " + bits + " " + mask + ", " + bits + " poison, " + reversal);
    }
    const std::string at = address(load.buffer, first);
    std::string value;
    if (lanes.empty()) {
      value = assign("load " + type + ", ptr " + at + ", " + align);
    } else {
      const std::string name = "@llvm.masked.load." + mangled(lanes_, element) + ".p0";
      declare("declare " + type + " " + name + "(ptr, " + vec_type("i1") + ", " + type + ")");
      value = call(name, type,
                   "ptr " + align + " " + at + ", " + vec_type("i1") + " " + lanes + ", " + type + " zeroinitializer");
    }
    if (!reversal.empty()) value = assign("shufflevector " + type + " " + value + ", " + type + " poison, " + reversal);
    return value;
  }
  const std::string at = index_vector(load.index);
  const std::string pointers = assign("getelementptr inbounds " + element + ", ptr " +
                                      bases_[static_cast<size_t>(load.buffer)] + ", " + vec_type("i64") + " " + at);
  const std::string name = "@llvm.masked.gather." + mangled(lanes_, element) + ".v" + std::to_string(lanes_) + "p0";
  declare("declare " + type + " " + name + "(" + vec_type("ptr") + ", " + vec_type("i1") + ", " + type + ")");
  const std::string lanes = mask.empty() ? splat("i1", "true") : mask;
  return call(name, type,
              vec_type("ptr") + " " + align + " " + pointers + ", " + vec_type("i1") + " " + lanes + ", " + type +
                  " zeroinitializer");
}

void Emitter::statement(const Load& load) {
  const DType type = kernel_.buffers[static_cast<size_t>(load.buffer)].dtype;
  const std::string element = memory_type(type);
  const bool masked = load.mask != kNoScalar;
  const bool vec = lanes_ > 1 && (varies(load.index) || (masked && reg(load.mask).vec));
  if (vec) {
    std::string value = from_memory(type, vector_load(load, lane_mask(load.mask)), true);
    if (masked && load.other != kNoScalar) {
      value = select(as_vec("i1", reg(load.mask)), vec_type(llvm_type(type)), value,
                     as_vec(llvm_type(type), reg(load.other)), true);
    }
    set(load.dst, {value, true});
    return;
  }
  const auto plain = [&] {
    const std::string at = address(load.buffer, index(load.index));
    return from_memory(type, assign("load " + element + ", ptr " + at + ", align " + std::to_string(dtype_size(type))),
                       false);
  };
  if (!masked) {
    set(load.dst, {plain(), false});
    return;
  }
  const std::string then = label();
  const std::string done = label();
  const std::string before = current_block_;
  line("br i1 " + reg(load.mask).text + ", label %" + then + ", label %" + done);
  start_block(then);
  const std::string value = plain();
  const std::string last = current_block_;
  line("br label %" + done);
  start_block(done);
  // `other` is uniform when the mask is: nothing here varies over lanes.
  const Reg other = load.other == kNoScalar ? Reg{is_floating(type)      ? "0.0"
                                                  : type == DType::kBool ? "false"
                                                                         : "0",
                                                  false}
                                            : reg(load.other);
  const std::string merged =
      assign("phi " + llvm_type(type) + " [ " + value + ", %" + last + " ], [ " + other.text + ", %" + before + " ]");
  set(load.dst, {merged, false});
}

void Emitter::statement(const Store& store) {
  const DType type = kernel_.buffers[static_cast<size_t>(store.buffer)].dtype;
  const std::string element = memory_type(type);
  const std::string align = "align " + std::to_string(dtype_size(type));
  const bool vec = lanes_ > 1;
  if (store.mode != StoreMode::kSet && vec) throw Unsupported("read-modify-write stores in a vector loop");
  if (vec) {
    const Stride stride = stride_of(store.index);
    if (stride.kind == Stride::Kind::kUniform) throw InternalError("all lanes store to one place in " + kernel_.name);
    const std::string value = to_memory(type, as_vec(llvm_type(type), reg(store.value)), true);
    const std::string mask = lane_mask(store.mask);
    const std::string whole = vec_type(element);
    if (stride.kind == Stride::Kind::kUnit) {
      const std::string at = address(store.buffer, index(store.index));
      if (mask.empty()) {
        line("store " + whole + " " + value + ", ptr " + at + ", " + align);
      } else {
        const std::string name = "@llvm.masked.store." + mangled(lanes_, element) + ".p0";
        declare("declare void " + name + "(" + whole + ", ptr, " + vec_type("i1") + ")");
        line("call void " + name + "(" + whole + " " + value + ", ptr " + align + " " + at + ", " + vec_type("i1") +
             " " + mask + ")");
      }
      return;
    }
    const std::string at = index_vector(store.index);
    const std::string pointers = assign("getelementptr inbounds " + element + ", ptr " +
                                        bases_[static_cast<size_t>(store.buffer)] + ", " + vec_type("i64") + " " + at);
    const std::string name = "@llvm.masked.scatter." + mangled(lanes_, element) + ".v" + std::to_string(lanes_) + "p0";
    declare("declare void " + name + "(" + whole + ", " + vec_type("ptr") + ", " + vec_type("i1") + ")");
    const std::string lanes = mask.empty() ? splat("i1", "true") : mask;
    line("call void " + name + "(" + whole + " " + value + ", " + vec_type("ptr") + " " + align + " " + pointers +
         ", " + vec_type("i1") + " " + lanes + ")");
    return;
  }
  const auto plain = [&] {
    const std::string at = address(store.buffer, index(store.index));
    std::string value = reg(store.value).text;
    if (store.mode != StoreMode::kSet) {
      if (store.atomic) throw Unsupported("atomic stores");
      const std::string old = from_memory(type, assign("load " + element + ", ptr " + at + ", " + align), false);
      static constexpr Combine kCombines[] = {Combine::kNone, Combine::kAdd, Combine::kMul, Combine::kMin,
                                              Combine::kMax};
      // Half types accumulate through float32.
      const DType wide = compute_dtype(type);
      const Reg a = cast(type, wide, {old, false});
      const Reg b = cast(type, wide, {value, false});
      value = cast(wide, type, {combine(kCombines[static_cast<size_t>(store.mode)], wide, a, b, false), false}).text;
    }
    line("store " + element + " " + to_memory(type, value, false) + ", ptr " + at + ", " + align);
  };
  if (store.mask == kNoScalar) {
    plain();
    return;
  }
  const std::string then = label();
  const std::string done = label();
  line("br i1 " + reg(store.mask).text + ", label %" + then + ", label %" + done);
  start_block(then);
  plain();
  line("br label %" + done);
  start_block(done);
}

void Emitter::statement(const IndexValue& stmt) {
  const Reg source = cast(dtype(stmt.value), DType::kInt64, reg(stmt.value));
  const bool vec = source.vec;
  const std::string type = type_of("i64", vec);
  const std::string zero = vec ? "zeroinitializer" : "0";
  std::string value = source.text;
  const std::string size = vec ? index_vector(stmt.size) : index(stmt.size);
  const std::string given = value;
  if (stmt.wrap) {
    const std::string below = assign("icmp slt " + type + " " + value + ", " + zero);
    value = select(below, type, binary("add", type, value, size), value, vec);
  }
  if (stmt.check) {
    std::string bad = assign("icmp uge " + type + " " + value + ", " + size);
    if (vec) {
      const std::string mask = lane_mask(stmt.mask);
      if (!mask.empty()) bad = binary("and", vec_type("i1"), bad, mask);
    } else if (stmt.mask != kNoScalar) {
      bad = binary("and", "i1", bad, reg(stmt.mask).text);
    }
    std::string any = bad;
    const std::string bits = "i" + std::to_string(lanes_);
    std::string packed;
    if (vec) {
      packed = assign("bitcast " + vec_type("i1") + " " + bad + " to " + bits);
      any = assign("icmp ne " + bits + " " + packed + ", 0");
    }
    const std::string fail = label();
    const std::string fine = label();
    line("br i1 " + any + ", label %" + fail + ", label %" + fine + ", !prof !0");
    start_block(fail);
    std::string offender = given;
    if (vec) {
      declare("declare " + bits + " @llvm.cttz." + bits + "(" + bits + ", i1)");
      const std::string lane = call("@llvm.cttz." + bits, bits, bits + " " + packed + ", i1 true");
      const std::string wide = lanes_ < 64 ? assign("zext " + bits + " " + lane + " to i64") : lane;
      offender = assign("extractelement " + type + " " + given + ", i64 " + wide);
    }
    line("store i64 " + offender + ", ptr %fault");
    const std::string size_at = assign("getelementptr i8, ptr %fault, i64 8");
    line("store i64 " + index(stmt.size) + ", ptr " + size_at);
    const std::string site_at = assign("getelementptr i8, ptr %fault, i64 16");
    line("store i32 " + std::to_string(site_) + ", ptr " + site_at);
    line("ret i32 1");
    start_block(fine);
  }
  ++site_;
  // Lanes that do not count may hold anything: keep their addresses inside.
  symbols_[stmt.symbol] = {value, vec};
}

void Emitter::statement(const Let& let) { set(let.dst, scalar(let.scalar)); }

void Emitter::statement(const If& branch) {
  if (reg(branch.condition).vec) throw InternalError("a branch on a vector in " + kernel_.name);
  const std::string then = label();
  const std::string done = label();
  line("br i1 " + reg(branch.condition).text + ", label %" + then + ", label %" + done);
  start_block(then);
  block(*branch.body);
  line("br label %" + done);
  start_block(done);
}

void Emitter::block(const Block& b) {
  for (const Stmt& stmt : b.stmts) {
    std::visit([&](const auto& s) { statement(s); }, stmt);
  }
}

std::string Emitter::run() {
  std::string head =
      "define dso_local i32 @" + symbol_ +
      "(ptr noalias readonly %buffers, ptr noalias readonly %sizes, ptr readonly %scalars, i64 %begin, i64 %end, "
      "ptr noalias %fault) #0 {\nentry:\n";
  for (size_t i = 0; i < kernel_.buffers.size(); ++i) {
    const std::string slot = assign("getelementptr ptr, ptr %buffers, i64 " + std::to_string(i));
    bases_.push_back(assign("load ptr, ptr " + slot));
  }
  for (size_t i = 0; i < kernel_.sizes.size(); ++i) {
    const std::string slot = assign("getelementptr i64, ptr %sizes, i64 " + std::to_string(i));
    symbols_[kernel_.sizes[i]] = {assign("load i64, ptr " + slot), false};
  }
  for (size_t i = 0; i < kernel_.scalar_args.size(); ++i) {
    const std::string slot = assign("getelementptr i64, ptr %scalars, i64 " + std::to_string(i));
    const DType type = kernel_.scalar_args[i];
    const DType stored = is_floating(type) ? DType::kFloat64 : DType::kInt64;
    const std::string raw = assign("load " + llvm_type(stored) + ", ptr " + slot);
    set(kernel_.scalar_arg_ids[i], cast(stored, type, {raw, false}));
  }
  block(kernel_.body);
  line("ret i32 0");
  std::string text = head + out_ + "}\n";
  std::vector<std::string> sorted(declarations_.begin(), declarations_.end());
  std::sort(sorted.begin(), sorted.end());
  for (const std::string& declaration : sorted) text += declaration + "\n";
  std::string attributes =
      "attributes #0 = { nounwind \"prefer-vector-width\"=\"" + std::to_string(target_.vector_bytes() * 8) + "\" }\n";
  return text + attributes + "!0 = !{!\"branch_weights\", i32 1, i32 1000000}\n";
}

}  // namespace tatara::codegen
