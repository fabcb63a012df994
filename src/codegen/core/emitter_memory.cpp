// Loads, stores and lookups. Complex elements lie in memory as (re, im) and live in registers as two vectors.
#include <algorithm>

#include "codegen/core/emitter.h"
#include "support/error.h"
#include "symbolic/multiples.h"

namespace tatara::codegen {

using namespace loops;

namespace {

std::string mangled(int lanes, const std::string& type) {
  constexpr std::pair<std::string_view, std::string_view> kShort[] = {
      {"half", "f16"}, {"float", "f32"}, {"double", "f64"}};
  const auto* found =
      std::find_if(std::begin(kShort), std::end(kShort), [&](const auto& p) { return p.first == type; });
  return str_cat("v", lanes, found == std::end(kShort) ? type : found->second);
}

std::string align_of(DType dtype) { return "align " + std::to_string(dtype_size(real_dtype(dtype))); }

/// first, first + step, ... (n of them)
std::vector<int> every(int first, int step, int n) {
  std::vector<int> indices;
  for (int i = 0; i < n; ++i) indices.push_back(first + i * step);
  return indices;
}

Combine combine_of(StoreMode mode) {
  switch (mode) {
    case StoreMode::kSet: return Combine::kNone;
    case StoreMode::kAdd: return Combine::kAdd;
    case StoreMode::kMul: return Combine::kMul;
    case StoreMode::kMin: return Combine::kMin;
    case StoreMode::kMax: return Combine::kMax;
  }
  TATARA_UNREACHABLE("store mode ", static_cast<int>(mode));
}

}  // namespace

/// Address of an element, for elements of the buffer's type.
std::string Emitter::address(int buffer, const std::string& index) {
  const DType type = kernel_.buffers[static_cast<size_t>(buffer)].dtype;
  const std::string element =
      is_complex(type) ? "{ " + memory_type(type) + ", " + memory_type(type) + " }" : memory_type(type);
  return ir_.assign("getelementptr inbounds " + element + ", ptr " + bases_[static_cast<size_t>(buffer)] + ", i64 " +
                    index);
}

std::string Emitter::addresses(int buffer, const std::string& index) {
  const DType type = kernel_.buffers[static_cast<size_t>(buffer)].dtype;
  const std::string element =
      is_complex(type) ? "{ " + memory_type(type) + ", " + memory_type(type) + " }" : memory_type(type);
  return ir_.assign("getelementptr inbounds " + element + ", ptr " + bases_[static_cast<size_t>(buffer)] + ", " +
                    ir_.vec_type("i64") + " " + index);
}

std::string Emitter::from_memory(DType dtype, const std::string& text, bool vec) {
  if (dtype != DType::kBool) return text;
  return ir_.assign("icmp ne " + ir_.type_of("i8", vec) + " " + text + ", " + (vec ? "zeroinitializer" : "0"));
}

std::string Emitter::to_memory(DType dtype, const std::string& text, bool vec) {
  if (dtype != DType::kBool) return text;
  return ir_.assign("zext " + ir_.type_of("i1", vec) + " " + text + " to " + ir_.type_of("i8", vec));
}

std::string Emitter::lane_mask(ScalarId mask) {
  if (mask == kNoScalar) return vector_mask_;
  const std::string own = ir_.as_vec("i1", reg(mask));
  return vector_mask_.empty() ? own : ir_.binary("and", ir_.vec_type("i1"), own, vector_mask_);
}

// ---- Vectors in memory -------------------------------------------------------------------------------------------------

std::string Emitter::masked_load(const std::string& element, int lanes, const std::string& at, const std::string& align,
                                 const std::string& mask, const std::string& flags) {
  const std::string count = std::to_string(lanes);
  const std::string type = "<" + count + " x " + element + ">";
  if (mask.empty()) return ir_.assign("load " + type + ", ptr " + at + ", " + align + flags);
  const std::string bits = "<" + count + " x i1>";
  if (on_gpu()) {
    // The scheduler takes several lanes only where one mask holds for all of them.
    const std::string own = ir_.assign("extractelement " + bits + " " + mask + ", i64 0");
    const std::string before = ir_.block();
    const std::string read = ir_.label(), done = ir_.label();
    ir_.line("br i1 " + own + ", label %" + read + ", label %" + done);
    ir_.start_block(read);
    const std::string value = ir_.assign("load " + type + ", ptr " + at + ", " + align + flags);
    ir_.line("br label %" + done);
    ir_.start_block(done);
    return ir_.assign("phi " + type + " [ " + value + ", %" + read + " ], [ zeroinitializer, %" + before + " ]");
  }
  const std::string name = "@llvm.masked.load." + mangled(lanes, element) + ".p0";
  ir_.declare("declare " + type + " " + name + "(ptr, " + bits + ", " + type + ")");
  return ir_.call(name, type, "ptr " + align + " " + at + ", " + bits + " " + mask + ", " + type + " zeroinitializer");
}

void Emitter::masked_store(const std::string& element, int bytes, int lanes, const std::string& value,
                           const std::string& at, const std::string& align, const std::string& mask) {
  const std::string count = std::to_string(lanes);
  const std::string type = "<" + count + " x " + element + ">";
  if (mask.empty()) {
    // Register by register, upwards: LLVM stores the upper half of a wider vector first, and two stores to the same line are
    // merged only when one follows the other.
    const int most = target_.vector_bytes() / bytes;
    for (int first = 0; first < lanes; first += most) {
      const std::string part =
          lanes > most ? ir_.shuffle(element, lanes, value, "poison", every(first, 1, most)) : value;
      const std::string to =
          first > 0 ? ir_.assign("getelementptr inbounds " + element + ", ptr " + at + ", i64 " + std::to_string(first))
                    : at;
      ir_.line("store <" + std::to_string(std::min(lanes, most)) + " x " + element + "> " + part + ", ptr " + to +
               ", " + align);
    }
    return;
  }
  const std::string flags = "<" + count + " x i1>";
  const std::string name = "@llvm.masked.store." + mangled(lanes, element) + ".p0";
  ir_.declare("declare void " + name + "(" + type + ", ptr, " + flags + ")");
  ir_.line("call void " + name + "(" + type + " " + value + ", ptr " + align + " " + at + ", " + flags + " " + mask +
           ")");
}

std::string Emitter::gather(const std::string& element, const std::string& pointers, const std::string& align,
                            const std::string& mask) {
  const std::string type = ir_.vec_type(element);
  const std::string name =
      "@llvm.masked.gather." + mangled(ir_.lanes(), element) + ".v" + std::to_string(ir_.lanes()) + "p0";
  ir_.declare("declare " + type + " " + name + "(" + ir_.vec_type("ptr") + ", " + ir_.vec_type("i1") + ", " + type +
              ")");
  return ir_.call(name, type,
                  ir_.vec_type("ptr") + " " + align + " " + pointers + ", " + ir_.vec_type("i1") + " " +
                      (mask.empty() ? "splat (i1 true)" : mask) + ", " + type + " zeroinitializer");
}

void Emitter::scatter(const std::string& element, const std::string& value, const std::string& pointers,
                      const std::string& align, const std::string& mask) {
  const std::string type = ir_.vec_type(element);
  const std::string name =
      "@llvm.masked.scatter." + mangled(ir_.lanes(), element) + ".v" + std::to_string(ir_.lanes()) + "p0";
  ir_.declare("declare void " + name + "(" + type + ", " + ir_.vec_type("ptr") + ", " + ir_.vec_type("i1") + ")");
  ir_.line("call void " + name + "(" + type + " " + value + ", " + ir_.vec_type("ptr") + " " + align + " " + pointers +
           ", " + ir_.vec_type("i1") + " " + (mask.empty() ? "splat (i1 true)" : mask) + ")");
}

/// Mask of `n` memory elements per lane, of which the first `used` count.
std::string Emitter::spread_mask(const std::string& mask, int n, int used) {
  std::vector<int> indices;
  for (int i = 0; i < ir_.lanes(); ++i) {
    for (int k = 0; k < n; ++k) indices.push_back(k < used ? i : ir_.lanes());
  }
  return ir_.shuffle("i1", ir_.lanes(), mask, "zeroinitializer", indices);
}

Reg Emitter::split_pairs(const std::string& element, const std::string& pairs) {
  return {ir_.shuffle(element, 2 * ir_.lanes(), pairs, "poison", every(0, 2, ir_.lanes())), true,
          ir_.shuffle(element, 2 * ir_.lanes(), pairs, "poison", every(1, 2, ir_.lanes()))};
}

std::string Emitter::join_pairs(const std::string& element, const Reg& value) {
  std::vector<int> indices;
  for (int i = 0; i < ir_.lanes(); ++i) {
    indices.push_back(i);
    indices.push_back(ir_.lanes() + i);
  }
  return ir_.shuffle(element, ir_.lanes(), value.text, value.im, indices);
}

std::string Emitter::second_part(const std::string& pointers, DType dtype) {
  return ir_.assign("getelementptr i8, " + ir_.vec_type("ptr") + " " + pointers + ", i64 " +
                    std::to_string(dtype_size(real_dtype(dtype))));
}

/// Asks for the lines that a run of stores reaches soon: a store waits for its line to be read from memory first, and the
/// processor looks less far ahead for stores than for loads.
void Emitter::prefetch_stores(int buffer, int bytes, int lanes, const std::string& at) {
  constexpr int64_t kLeastBytes = 1 << 20;  // a smaller buffer is in the cache as it is
  constexpr int kAhead = 4096;
  constexpr int kLine = 64;
  const auto at_least = [&](Expr count, int64_t least) {
    return !count.is_const() || count.const_value() * bytes >= least;
  };
  if (!streams_ || loaded_.contains(buffer) ||
      !at_least(kernel_.buffers[static_cast<size_t>(buffer)].numel, kLeastBytes))
    return;
  ir_.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)");
  for (int offset = 0; offset < std::max(bytes * lanes, kLine); offset += kLine) {
    const std::string line_at = ir_.assign("getelementptr i8, ptr " + at + ", i64 " + std::to_string(kAhead + offset));
    ir_.line("call void @llvm.prefetch.p0(ptr " + line_at + ", i32 1, i32 3, i32 1)");
  }
}

void Emitter::gpu_note_vectors(const For& loop) {
  const std::vector<Stmt>& body = loop.body->stmts;
  const bool plain = std::none_of(body.begin(), body.end(), [](const Stmt& s) {
    return std::holds_alternative<For>(s) || std::holds_alternative<If>(s);
  });
  if (ir_.lanes() == 1 || !plain) return;
  for (const Stmt& stmt : body) {
    const auto* load = std::get_if<Load>(&stmt);
    if (load == nullptr || load->mask != kNoScalar || stride_of(load->index) != Stride::kUnit) continue;
    const BufferArg& buffer = kernel_.buffers[static_cast<size_t>(load->buffer)];
    if (buffer.kind != ArgKind::kInput || is_complex(buffer.dtype)) continue;
    if (!multiple_of(kernel_.ctx->sub(load->index, vector_var_), ir_.lanes())) continue;
    gpu_vectors_[{load->buffer, load->index.node()}];
  }
}

std::optional<Reg> Emitter::gpu_across(int buffer, Expr where) {
  ExprContext& ctx = *kernel_.ctx;
  const DType dtype = kernel_.buffers[static_cast<size_t>(buffer)].dtype;
  const std::string element = memory_type(dtype);
  const auto whole = [&](Expr first) -> std::string* {
    const auto found = gpu_vectors_.find({buffer, first.node()});
    if (found == gpu_vectors_.end()) return nullptr;
    if (found->second.empty()) {
      found->second = ir_.assign("load " + ir_.vec_type(element) + ", ptr " + address(buffer, index(first)) + ", " +
                                 align_of_vector(dtype, first) + load_flags(buffer));
    }
    return &found->second;
  };
  if (const std::string* same = whole(where)) return Reg{*same, true};
  std::vector<std::pair<std::string*, int>> parts;  // vector and lane of each element; null: alone
  for (int i = 0; i < ir_.lanes(); ++i) {
    parts.emplace_back(nullptr, 0);
    for (int lane = 0; lane < ir_.lanes() && parts.back().first == nullptr; ++lane) {
      parts.back() = {whole(ctx.add(where, ctx.constant(i - lane))), lane};
    }
  }
  if (std::all_of(parts.begin(), parts.end(), [](const auto& part) { return part.first == nullptr; }))
    return std::nullopt;
  std::string value = "poison";
  for (int i = 0; i < ir_.lanes(); ++i) {
    const auto [vector, lane] = parts[static_cast<size_t>(i)];
    std::string one;
    if (vector != nullptr) {
      one = ir_.assign("extractelement " + ir_.vec_type(element) + " " + *vector + ", i64 " + std::to_string(lane));
    } else {
      const Expr at = ctx.add(where, ctx.constant(i));
      std::string& known = gpu_elements_[{buffer, at.node()}];
      if (known.empty()) known = plain_load(dtype, address(buffer, index(at)), load_flags(buffer)).text;
      one = known;
    }
    value = ir_.assign("insertelement " + ir_.vec_type(element) + " " + value + ", " + element + " " + one + ", i64 " +
                       std::to_string(i));
  }
  return Reg{value, true};
}

Reg Emitter::vector_load(int buffer, Expr where, const std::string& mask) {
  loaded_.insert(buffer);
  if (!gpu_vectors_.empty() && mask.empty() && stride_of(where) == Stride::kUnit) {
    if (std::optional<Reg> value = gpu_across(buffer, where)) return *value;
  }
  const DType dtype = kernel_.buffers[static_cast<size_t>(buffer)].dtype;
  const std::string element = memory_type(dtype);
  const bool pair = is_complex(dtype);
  const Stride stride = stride_of(where);
  const std::string align = stride == Stride::kUnit ? align_of_vector(dtype, where) : align_of(dtype);
  if (stride == Stride::kUnit || stride == Stride::kReversed) {
    std::string first = index(where);
    std::string lanes = mask;
    const bool reversed = stride == Stride::kReversed;
    const std::vector<int> backwards = every(ir_.lanes() - 1, -1, ir_.lanes());
    if (reversed) {
      first = ir_.binary("sub", "i64", first, std::to_string(ir_.lanes() - 1));
      if (!mask.empty()) lanes = ir_.shuffle("i1", ir_.lanes(), mask, "poison", backwards);
    }
    const std::string at = address(buffer, first);
    if (!pair) {
      const std::string value = masked_load(element, ir_.lanes(), at, align, lanes, load_flags(buffer));
      return {reversed ? ir_.shuffle(element, ir_.lanes(), value, "poison", backwards) : value, true};
    }
    if (!lanes.empty()) lanes = spread_mask(lanes, 2, 2);
    Reg value = split_pairs(element, masked_load(element, 2 * ir_.lanes(), at, align, lanes));
    if (reversed) {
      value.text = ir_.shuffle(element, ir_.lanes(), value.text, "poison", backwards);
      value.im = ir_.shuffle(element, ir_.lanes(), value.im, "poison", backwards);
    }
    return value;
  }
  if (const int step = small_step(where, dtype); step > 0) {
    // Neighbours are read together; nothing past the last element that counts.
    std::vector<int> all;
    for (int i = 0; i < step * ir_.lanes(); ++i) all.push_back(i <= step * (ir_.lanes() - 1) ? 1 : 0);
    std::string bits;
    for (const int on : all) bits += std::string(bits.empty() ? "" : ", ") + (on != 0 ? "i1 true" : "i1 false");
    const std::string lanes = mask.empty() ? "<" + bits + ">" : spread_mask(mask, step, 1);
    const std::string value = masked_load(element, step * ir_.lanes(), address(buffer, index(where)), align, lanes);
    return {ir_.shuffle(element, step * ir_.lanes(), value, "poison", every(0, step, ir_.lanes())), true};
  }
  const std::string pointers = addresses(buffer, index_vector(where));
  if (!pair) return {gather(element, pointers, align, mask), true};
  if (dtype == DType::kComplex128) {
    const std::string re = gather(element, pointers, align, mask);
    return {re, true, gather(element, second_part(pointers, dtype), align, mask)};
  }
  const std::string whole = "i" + std::to_string(8 * dtype_size(dtype));
  const std::string bits = gather(whole, pointers, align, mask);
  return split_pairs(element, ir_.assign("bitcast " + ir_.vec_type(whole) + " " + bits + " to <" +
                                         std::to_string(2 * ir_.lanes()) + " x " + element + ">"));
}

/// The constant distance of lanes where reading all between them beats a gather, else 0.
int Emitter::small_step(Expr where, DType dtype) const {
  if (is_complex(dtype) || dtype_size(dtype) < 4 || target_.isa == VectorIsa::kNeon || on_gpu() || ir_.lanes() < 4)
    return 0;
  if (stride_of(where) != Stride::kStrided) return 0;
  const Expr step = where.coefficient_of(vector_var_);
  return step.is_const() && step.const_value() >= 2 && step.const_value() <= 4 ? static_cast<int>(step.const_value())
                                                                               : 0;
}

void Emitter::vector_store(int buffer, Expr where, const Reg& given, const std::string& mask) {
  const DType dtype = kernel_.buffers[static_cast<size_t>(buffer)].dtype;
  const std::string element = memory_type(dtype);
  const int bytes = dtype_size(real_dtype(dtype));
  const bool pair = is_complex(dtype);
  Reg value = given;
  value.text = to_memory(dtype, value.text, true);
  const Stride stride = stride_of(where);
  const std::string align = stride == Stride::kUnit ? align_of_vector(dtype, where) : align_of(dtype);
  if (stride == Stride::kUniform) throw InternalError("all lanes store to one place in " + kernel_.name);
  if (stride == Stride::kUnit || stride == Stride::kReversed) {
    std::string first = index(where);
    std::string lanes = mask;
    if (stride == Stride::kReversed) {
      const std::vector<int> backwards = every(ir_.lanes() - 1, -1, ir_.lanes());
      first = ir_.binary("sub", "i64", first, std::to_string(ir_.lanes() - 1));
      if (!mask.empty()) lanes = ir_.shuffle("i1", ir_.lanes(), mask, "poison", backwards);
      value.text = ir_.shuffle(element, ir_.lanes(), value.text, "poison", backwards);
      if (pair) value.im = ir_.shuffle(element, ir_.lanes(), value.im, "poison", backwards);
    }
    const std::string at = address(buffer, first);
    if (!pair) {
      masked_store(element, bytes, ir_.lanes(), value.text, at, align, lanes);
    } else {
      masked_store(element, bytes, 2 * ir_.lanes(), join_pairs(element, value), at, align,
                   lanes.empty() ? lanes : spread_mask(lanes, 2, 2));
    }
    if (stride == Stride::kUnit) prefetch_stores(buffer, bytes, pair ? 2 * ir_.lanes() : ir_.lanes(), at);
    return;
  }
  const std::string pointers = addresses(buffer, index_vector(where));
  if (!pair) {
    scatter(element, value.text, pointers, align, mask);
  } else if (dtype == DType::kComplex128) {
    scatter(element, value.text, pointers, align, mask);
    scatter(element, value.im, second_part(pointers, dtype), align, mask);
  } else {
    const std::string whole = "i" + std::to_string(8 * dtype_size(dtype));
    const std::string bits = ir_.assign("bitcast <" + std::to_string(2 * ir_.lanes()) + " x " + element + "> " +
                                        join_pairs(element, value) + " to " + ir_.vec_type(whole));
    scatter(whole, bits, pointers, align, mask);
  }
}

// ---- Single elements ---------------------------------------------------------------------------------------------------

/// On a GPU lanes begin at multiples of their number, and so do the vectors of an access whose place beside the vector variable is
/// one, too.
std::string Emitter::align_of_vector(DType dtype, Expr where) const {
  const int size = dtype_size(real_dtype(dtype));
  if (!on_gpu()) return "align " + std::to_string(size);
  int lanes = ir_.lanes();
  const Expr rest = kernel_.ctx->sub(where, vector_var_);
  while (lanes > 1 && !multiple_of(rest, lanes)) lanes /= 2;
  return "align " + std::to_string(std::max(std::min(16, lanes * size), size));
}

/// On a GPU, memory that the kernel only reads comes through the read-only cache, and is read once where that will do.
std::string Emitter::load_flags(int buffer) const {
  return on_gpu() && kernel_.buffers[static_cast<size_t>(buffer)].kind == ArgKind::kInput ? ", !invariant.load !1" : "";
}

Reg Emitter::plain_load(DType dtype, const std::string& at, const std::string& flags) {
  const std::string element = memory_type(dtype);
  const std::string first = ir_.assign("load " + element + ", ptr " + at + ", " + align_of(dtype) + flags);
  if (!is_complex(dtype)) return {from_memory(dtype, first, false), false};
  const std::string next = ir_.assign("getelementptr " + element + ", ptr " + at + ", i64 1");
  return {first, false, ir_.assign("load " + element + ", ptr " + next + ", " + align_of(dtype) + flags)};
}

void Emitter::plain_store(DType dtype, const std::string& at, const Reg& value) {
  const std::string element = memory_type(dtype);
  ir_.line("store " + element + " " + to_memory(dtype, value.text, false) + ", ptr " + at + ", " + align_of(dtype));
  if (!is_complex(dtype)) return;
  const std::string next = ir_.assign("getelementptr " + element + ", ptr " + at + ", i64 1");
  ir_.line("store " + element + " " + value.im + ", ptr " + next + ", " + align_of(dtype));
}

/// What the element becomes; half types accumulate through float32.
Reg Emitter::updated(StoreMode mode, DType dtype, const Reg& old, const Reg& value, bool vec) {
  const DType wide = compute_dtype(dtype);
  return cast(wide, dtype, combine(combine_of(mode), wide, cast(dtype, wide, old), cast(dtype, wide, value), vec));
}

void Emitter::update_element(const Store& store, const std::string& at, const Reg& value) {
  const DType dtype = kernel_.buffers[static_cast<size_t>(store.buffer)].dtype;
  if (!store.atomic || store.mode == StoreMode::kSet) {
    plain_store(
        dtype, at,
        store.mode == StoreMode::kSet ? value : updated(store.mode, dtype, plain_load(dtype, at), value, false));
    return;
  }
  const bool floating = dtype == DType::kFloat32 || dtype == DType::kFloat64;
  if (!floating && !is_integral(dtype)) throw Unsupported(str_cat("atomic updates of ", dtype_name(dtype)));
  const char* operation = nullptr;
  switch (store.mode) {
    case StoreMode::kAdd: operation = floating ? "fadd" : "add"; break;
    case StoreMode::kMin: operation = floating ? "fminimum" : is_signed(dtype) ? "min" : "umin"; break;
    case StoreMode::kMax: operation = floating ? "fmaximum" : is_signed(dtype) ? "max" : "umax"; break;
    case StoreMode::kSet:
    case StoreMode::kMul: throw Unsupported("atomic multiplication");
  }
  ir_.assign(std::string("atomicrmw ") + operation + " ptr " + at + ", " + llvm_type(dtype) + " " + value.text +
             (on_gpu() ? " syncscope(\"device\") monotonic" : " monotonic"));
}

// ---- Statements --------------------------------------------------------------------------------------------------------

void Emitter::statement(const Load& load) {
  const DType type = kernel_.buffers[static_cast<size_t>(load.buffer)].dtype;
  const bool masked = load.mask != kNoScalar;
  if (kernel_.buffers[static_cast<size_t>(load.buffer)].kind == ArgKind::kValue) {
    Reg value = passed_value(load.buffer);
    const bool other = masked && load.other != kNoScalar;
    if (other) {
      const bool varies_here = reg(load.mask).vec || reg(load.other).vec;
      value = choose(type, reg(load.mask), value, reg(load.other), varies_here);
    }
    set(load.dst, value);
    return;
  }
  const bool vec = ir_.lanes() > 1 && (varies(load.index) || (masked && reg(load.mask).vec));
  if (vec) {
    Reg value = vector_load(load.buffer, load.index, lane_mask(load.mask));
    value.text = from_memory(type, value.text, true);
    if (masked && load.other != kNoScalar) value = choose(type, reg(load.mask), value, reg(load.other), true);
    set(load.dst, value);
    return;
  }
  if (!masked) {
    set(load.dst, plain_load(type, address(load.buffer, index(load.index)), load_flags(load.buffer)));
    return;
  }
  const std::string then = ir_.label();
  const std::string done = ir_.label();
  const std::string before = ir_.block();
  ir_.line("br i1 " + reg(load.mask).text + ", label %" + then + ", label %" + done);
  ir_.start_block(then);
  const Reg value = plain_load(type, address(load.buffer, index(load.index)), load_flags(load.buffer));
  const std::string last = ir_.block();
  ir_.line("br label %" + done);
  ir_.start_block(done);
  // `other` is uniform when the mask is: nothing here varies over lanes.
  const Reg other = load.other == kNoScalar ? zero(type) : reg(load.other);
  const std::string part = llvm_type(real_dtype(type));
  const auto merge = [&](const std::string& a, const std::string& b) {
    return ir_.assign("phi " + part + " [ " + a + ", %" + last + " ], [ " + b + ", %" + before + " ]");
  };
  Reg merged{merge(value.text, other.text), false};
  if (is_complex(type)) merged.im = merge(value.im, other.im);
  set(load.dst, merged);
}

/// Adds four float32 neighbours to memory by one instruction, where the GPU has it.
bool Emitter::vector_add(const Store& store, const Reg& value, const std::string& mask) {
  const DType type = kernel_.buffers[static_cast<size_t>(store.buffer)].dtype;
  if (!on_gpu() || !gpu_adds_vectors_ || type != DType::kFloat32 || ir_.lanes() != 4 || !mask.empty()) return false;
  if (store.mode != StoreMode::kAdd || stride_of(store.index) != Stride::kUnit) return false;
  if (!multiple_of(kernel_.ctx->sub(store.index, vector_var_), ir_.lanes())) return false;
  const auto body = [&] {
    std::string parts;
    for (int i = 0; i < ir_.lanes(); ++i) parts += ", float " + lane_of(type, value, i).text;
    const std::string at = address(store.buffer, index(store.index));
    const std::string global = ir_.assign("addrspacecast ptr " + at + " to ptr addrspace(1)");
    ir_.line(
        "call void asm sideeffect \"red.relaxed.gpu.global.add.v4.f32 [$0], {$1, $2, $3, $4};\", "
        "\"l,f,f,f,f,~{memory}\"(ptr addrspace(1) " +
        global + parts + ")");
  };
  if (gpu_guard_.empty()) {
    body();
  } else {
    ir_.when(gpu_guard_, body);
  }
  return true;
}

void Emitter::statement(const Store& store) {
  const DType type = kernel_.buffers[static_cast<size_t>(store.buffer)].dtype;
  if (ir_.lanes() == 1) {
    const auto body = [&] { update_element(store, address(store.buffer, index(store.index)), reg(store.value)); };
    if (on_gpu() && kernel_.gpu.row > 1 && !gpu_inside_) {
      // All threads of a row have the value: the first one stores it.
      std::string own = ir_.assign("icmp eq i64 " + gpu_lane_ + ", 0");
      if (store.mask != kNoScalar) own = ir_.binary("and", "i1", own, reg(store.mask).text);
      ir_.when(own, body);
    } else if (!gpu_guard_.empty()) {
      ir_.when(store.mask == kNoScalar ? gpu_guard_ : ir_.binary("and", "i1", gpu_guard_, reg(store.mask).text), body);
    } else if (store.mask == kNoScalar) {
      body();
    } else {
      ir_.when(reg(store.mask).text, body);
    }
    return;
  }
  const Reg value = widened(type, reg(store.value));
  const std::string mask = lane_mask(store.mask);
  const bool apart = stride_of(store.index) == Stride::kUnit && !store.atomic;
  if (store.mode == StoreMode::kSet || apart) {
    Reg result = value;
    if (store.mode != StoreMode::kSet) {
      Reg old = vector_load(store.buffer, store.index, mask);
      old.text = from_memory(type, old.text, true);
      result = updated(store.mode, type, old, value, true);
    }
    const auto body = [&] { vector_store(store.buffer, store.index, result, mask); };
    if (gpu_guard_.empty()) {
      body();
    } else {
      ir_.when(gpu_guard_, body);
    }
    return;
  }
  if (vector_add(store, value, mask)) return;
  // Lanes may meet at one element: one after the other.
  const std::string where = index_vector(store.index);
  for (int i = 0; i < ir_.lanes(); ++i) {
    const auto body = [&] {
      const std::string at = lane_of(DType::kInt64, {where, true}, i).text;
      update_element(store, address(store.buffer, at), lane_of(type, value, i));
    };
    if (mask.empty()) {
      body();
    } else {
      ir_.when(lane_of(DType::kBool, {mask, true}, i).text, body);
    }
  }
}

/// Where `bad` holds in any lane: tells the launcher, and leaves the kernel (on a GPU, where other threads may wait for this
/// one, it goes on with another index).
void Emitter::report_fault(const IndexValue& stmt, const std::string& bad, const std::string& given, bool vec) {
  const std::string type = ir_.type_of("i64", vec);
  std::string any = bad;
  const std::string bits = "i" + std::to_string(ir_.lanes());
  std::string packed;
  if (vec) {
    packed = ir_.assign("bitcast " + ir_.vec_type("i1") + " " + bad + " to " + bits);
    any = ir_.assign("icmp ne " + bits + " " + packed + ", 0");
  }
  const std::string fail = ir_.label();
  const std::string fine = ir_.label();
  ir_.line("br i1 " + any + ", label %" + fail + ", label %" + fine + ", !prof !0");
  ir_.start_block(fail);
  std::string offender = given;
  if (vec) {
    ir_.declare("declare " + bits + " @llvm.cttz." + bits + "(" + bits + ", i1)");
    const std::string lane = ir_.call("@llvm.cttz." + bits, bits, bits + " " + packed + ", i1 true");
    const std::string wide = ir_.lanes() < 64 ? ir_.assign("zext " + bits + " " + lane + " to i64") : lane;
    offender = ir_.assign("extractelement " + type + " " + given + ", i64 " + wide);
  }
  ir_.line("store i64 " + offender + ", ptr %fault");
  const std::string size_at = ir_.assign("getelementptr i8, ptr %fault, i64 8");
  ir_.line("store i64 " + index(stmt.size) + ", ptr " + size_at);
  const std::string site_at = ir_.assign("getelementptr i8, ptr %fault, i64 16");
  ir_.line("store i32 " + std::to_string(site_) + ", ptr " + site_at);
  if (on_gpu()) {
    const std::string raised_at = ir_.assign("getelementptr i8, ptr %fault, i64 20");
    ir_.line("store i32 1, ptr " + raised_at);
    ir_.line("br label %" + fine);
  } else {
    ir_.line("ret i32 1");
  }
  ir_.start_block(fine);
}

void Emitter::statement(const IndexValue& stmt) {
  const Reg source = cast(dtype(stmt.value), DType::kInt64, reg(stmt.value));
  const bool vec = source.vec;
  const std::string type = ir_.type_of("i64", vec);
  const std::string zero = vec ? "zeroinitializer" : "0";
  std::string value = source.text;
  const std::string size = vec ? index_vector(stmt.size) : index(stmt.size);
  const std::string given = value;
  if (stmt.wrap) {
    const std::string below = ir_.assign("icmp slt " + type + " " + value + ", " + zero);
    value = ir_.select(below, type, ir_.binary("add", type, value, size), value, vec);
  }
  if (stmt.check) {
    std::string bad = ir_.assign("icmp uge " + type + " " + value + ", " + size);
    if (vec) {
      const std::string mask = lane_mask(stmt.mask);
      if (!mask.empty()) bad = ir_.binary("and", ir_.vec_type("i1"), bad, mask);
    } else if (stmt.mask != kNoScalar) {
      bad = ir_.binary("and", "i1", bad, reg(stmt.mask).text);
    }
    report_fault(stmt, bad, given, vec);
    if (on_gpu()) value = ir_.select(bad, type, zero, value, vec);
  }
  ++site_;
  // Lanes that do not count may hold anything: keep their addresses inside.
  symbols_[stmt.symbol] = {value, vec};
}

}  // namespace tatara::codegen
