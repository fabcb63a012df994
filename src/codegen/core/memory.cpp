#include "codegen/core/memory.h"

#include <algorithm>

#include "support/error.h"

namespace tatara::codegen {

using loops::Combine;
using loops::Store;
using loops::StoreMode;

namespace {

std::string align_of(DType dtype) { return "align " + std::to_string(dtype_size(real_dtype(dtype))); }

/// Of an element, both of its parts together.
std::string whole_type(DType dtype) {
  const std::string part = memory_type(dtype);
  return is_complex(dtype) ? "{ " + part + ", " + part + " }" : part;
}

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

/// The instruction of memory that does it; null: there is none.
const char* atomic_instruction(StoreMode mode, DType dtype) {
  const bool whole = is_integral(dtype) && dtype_size(dtype) >= 4;
  switch (mode) {
    case StoreMode::kAdd:
      return dtype == DType::kFloat32 || dtype == DType::kFloat64 ? "fadd" : whole ? "add" : nullptr;
    case StoreMode::kMin: return !whole ? nullptr : is_signed(dtype) ? "min" : "umin";
    case StoreMode::kMax: return !whole ? nullptr : is_signed(dtype) ? "max" : "umax";
    case StoreMode::kMul: return nullptr;
    case StoreMode::kSet: break;
  }
  TATARA_UNREACHABLE("store mode ", static_cast<int>(mode));
}

}  // namespace

// ---- Single elements ---------------------------------------------------------------------------------------------------

std::string Memory::address(int buffer, const std::string& index) {
  return ir_.assign("getelementptr inbounds " + whole_type(scope_.buffer(buffer).dtype) + ", ptr " +
                    scope_.base(buffer) + ", i64 " + index);
}

std::string Memory::from_memory(DType dtype, const std::string& text, bool vec) {
  if (dtype != DType::kBool) return text;
  return ir_.assign("icmp ne " + ir_.type_of("i8", vec) + " " + text + ", " + (vec ? "zeroinitializer" : "0"));
}

std::string Memory::to_memory(DType dtype, const std::string& text, bool vec) {
  if (dtype != DType::kBool) return text;
  return ir_.assign("zext " + ir_.type_of("i1", vec) + " " + text + " to " + ir_.type_of("i8", vec));
}

Reg Memory::load(DType dtype, const std::string& at, const std::string& flags) {
  const std::string element = memory_type(dtype);
  const std::string first = ir_.assign("load " + element + ", ptr " + at + ", " + align_of(dtype) + flags);
  if (!is_complex(dtype)) return {from_memory(dtype, first, false), false};
  const std::string next = ir_.assign("getelementptr " + element + ", ptr " + at + ", i64 1");
  return {first, false, ir_.assign("load " + element + ", ptr " + next + ", " + align_of(dtype) + flags)};
}

void Memory::store(DType dtype, const std::string& at, const Reg& value) {
  const std::string element = memory_type(dtype);
  ir_.line("store " + element + " " + to_memory(dtype, value.text, false) + ", ptr " + at + ", " + align_of(dtype));
  if (!is_complex(dtype)) return;
  const std::string next = ir_.assign("getelementptr " + element + ", ptr " + at + ", i64 1");
  ir_.line("store " + element + " " + value.im + ", ptr " + next + ", " + align_of(dtype));
}

Reg Memory::updated(StoreMode mode, DType dtype, const Reg& old, const Reg& value, bool vec) {
  const DType wide = compute_dtype(dtype);
  return cast(
      ir_, wide, dtype,
      scalars_.combine(combine_of(mode), wide, cast(ir_, dtype, wide, old), cast(ir_, dtype, wide, value), vec));
}

void Memory::update(const Store& store, const std::string& at, const Reg& value) {
  const DType dtype = scope_.buffer(store.buffer).dtype;
  if (store.mode == StoreMode::kSet) {
    this->store(dtype, at, value);
    return;
  }
  if (!store.atomic) {
    this->store(dtype, at, updated(store.mode, dtype, load(dtype, at), value, false));
    return;
  }
  if (is_complex(dtype)) {
    if (store.mode != StoreMode::kAdd) throw Unsupported("atomic updates of complex numbers");
    const std::string part = memory_type(dtype);
    const std::string next = ir_.assign("getelementptr " + part + ", ptr " + at + ", i64 1");
    for (const auto& [where, text] : {std::pair(at, value.text), std::pair(next, value.im)}) {
      ir_.assign("atomicrmw fadd ptr " + where + ", " + part + " " + text + atomic_ordering());
    }
    return;
  }
  if (const char* operation = atomic_instruction(store.mode, dtype); operation != nullptr) {
    ir_.assign(std::string("atomicrmw ") + operation + " ptr " + at + ", " + llvm_type(dtype) + " " + value.text +
               atomic_ordering());
  } else {
    exchange(store.mode, dtype, at, value);
  }
}

/// Tries until no other thread came between. Where the element would not change, as most do not under a maximum, memory is only
/// read.
void Memory::exchange(StoreMode mode, DType dtype, const std::string& at, const Reg& value) {
  const std::string element = memory_type(dtype);
  const std::string bits = "i" + std::to_string(8 * dtype_size(dtype));
  const auto cast_bits = [&](const std::string& from, const std::string& to, const std::string& text) {
    return from == to ? text : ir_.assign("bitcast " + from + " " + text + " to " + to);
  };
  const std::string before = ir_.block(), again = ir_.label(), write = ir_.label(), done = ir_.label();
  const std::string first = ir_.assign("load " + bits + ", ptr " + at + ", " + align_of(dtype));
  const std::string old = ir_.fresh(), seen = ir_.fresh();
  ir_.jump(again);
  ir_.start_block(again);
  ir_.line(old + " = phi " + bits + " [ " + first + ", %" + before + " ], [ " + seen + ", %" + write + " ]");
  const Reg known{from_memory(dtype, cast_bits(bits, element, old), false), false};
  const std::string stored = to_memory(dtype, updated(mode, dtype, known, value, false).text, false);
  const std::string wanted = cast_bits(element, bits, stored);
  ir_.branch(ir_.assign("icmp eq " + bits + " " + wanted + ", " + old), done, write);
  ir_.start_block(write);
  const std::string both =
      ir_.assign("cmpxchg ptr " + at + ", " + bits + " " + old + ", " + bits + " " + wanted + exchange_ordering());
  ir_.line(seen + " = extractvalue { " + bits + ", i1 } " + both + ", 0");
  ir_.branch(ir_.assign("extractvalue { " + bits + ", i1 } " + both + ", 1"), done, again);
  ir_.start_block(done);
}

Reg Memory::passed_value(int buffer) {
  throw InternalError(str_cat("a buffer passed by value: ", scope_.buffer(buffer).name, " in ", context_.kernel.name));
}

// ---- Runs of elements --------------------------------------------------------------------------------------------------

/// As LLVM writes a vector type in the names of its functions.
std::string Memory::mangled(int lanes, const std::string& element) const {
  constexpr std::pair<std::string_view, std::string_view> kShort[] = {
      {"half", "f16"}, {"float", "f32"}, {"double", "f64"}};
  const auto* found =
      std::find_if(std::begin(kShort), std::end(kShort), [&](const auto& p) { return p.first == element; });
  return str_cat("v", lanes, found == std::end(kShort) ? element : found->second);
}

std::string Memory::load_run_of(const Run& run, const std::string& mask, const std::string& flags) {
  if (!mask.empty()) return load_masked(run, mask, flags);
  return ir_.assign("load " + run.type() + ", ptr " + run.at + ", " + run.align + flags);
}

void Memory::store_run_of(const Run& run, int bytes, const std::string& value, const std::string& mask) {
  if (mask.empty()) {
    // Register by register, upwards: LLVM stores the upper half of a wider vector first, and two stores to the same line are
    // merged only when one follows the other.
    const int most = context_.traits.vector_bytes / bytes;
    for (int first = 0; first < run.lanes; first += most) {
      const std::string part =
          run.lanes > most ? ir_.shuffle(run.element, run.lanes, value, "poison", every(first, 1, most)) : value;
      const std::string to = first > 0 ? ir_.assign("getelementptr inbounds " + run.element + ", ptr " + run.at +
                                                    ", i64 " + std::to_string(first))
                                       : run.at;
      ir_.line("store " + vector_of(std::min(run.lanes, most), run.element) + " " + part + ", ptr " + to + ", " +
               run.align);
    }
    return;
  }
  const std::string name = "@llvm.masked.store." + mangled(run.lanes, run.element) + ".p0";
  ir_.declare("declare void " + name + "(" + run.type() + ", ptr, " + run.bits() + ")");
  ir_.line("call void " + name + "(" + run.type() + " " + value + ", ptr " + run.align + " " + run.at + ", " +
           run.bits() + " " + mask + ")");
}

/// Mask of `n` memory elements per lane, of which the first `used` count.
std::string Memory::spread_mask(const std::string& mask, int n, int used) {
  std::vector<int> indices;
  for (int i = 0; i < ir_.lanes(); ++i) {
    for (int k = 0; k < n; ++k) indices.push_back(k < used ? i : ir_.lanes());
  }
  return ir_.shuffle("i1", ir_.lanes(), mask, "zeroinitializer", indices);
}

std::string Memory::backwards(const std::string& element, const std::string& value) {
  return ir_.shuffle(element, ir_.lanes(), value, "poison", every(ir_.lanes() - 1, -1, ir_.lanes()));
}

Reg Memory::split_pairs(const std::string& element, const std::string& pairs) {
  const int lanes = ir_.lanes();
  return {ir_.shuffle(element, 2 * lanes, pairs, "poison", every(0, 2, lanes)), true,
          ir_.shuffle(element, 2 * lanes, pairs, "poison", every(1, 2, lanes))};
}

std::string Memory::join_pairs(const std::string& element, const Reg& value) {
  std::vector<int> indices;
  for (int i = 0; i < ir_.lanes(); ++i) {
    indices.push_back(i);
    indices.push_back(ir_.lanes() + i);
  }
  return ir_.shuffle(element, ir_.lanes(), value.text, value.im, indices);
}

// ---- Elements anywhere -------------------------------------------------------------------------------------------------

/// A pointer for each lane.
std::string Memory::addresses(int buffer, Expr where) {
  const std::string index = scope_.index_vector(where);
  return ir_.assign("getelementptr inbounds " + whole_type(scope_.buffer(buffer).dtype) + ", ptr " +
                    scope_.base(buffer) + ", " + ir_.vec_type("i64") + " " + index);
}

std::string Memory::gather(const std::string& element, const std::string& pointers, const std::string& align,
                           const std::string& mask) {
  const std::string type = ir_.vec_type(element);
  const std::string lanes = std::to_string(ir_.lanes());
  const std::string name = "@llvm.masked.gather." + mangled(ir_.lanes(), element) + ".v" + lanes + "p0";
  ir_.declare("declare " + type + " " + name + "(" + ir_.vec_type("ptr") + ", " + ir_.vec_type("i1") + ", " + type +
              ")");
  return ir_.call(name, type,
                  ir_.vec_type("ptr") + " " + align + " " + pointers + ", " + ir_.vec_type("i1") + " " +
                      (mask.empty() ? "splat (i1 true)" : mask) + ", " + type + " zeroinitializer");
}

void Memory::scatter(const std::string& element, const std::string& value, const std::string& pointers,
                     const std::string& align, const std::string& mask) {
  const std::string type = ir_.vec_type(element);
  const std::string lanes = std::to_string(ir_.lanes());
  const std::string name = "@llvm.masked.scatter." + mangled(ir_.lanes(), element) + ".v" + lanes + "p0";
  ir_.declare("declare void " + name + "(" + type + ", " + ir_.vec_type("ptr") + ", " + ir_.vec_type("i1") + ")");
  ir_.line("call void " + name + "(" + type + " " + value + ", " + ir_.vec_type("ptr") + " " + align + " " + pointers +
           ", " + ir_.vec_type("i1") + " " + (mask.empty() ? "splat (i1 true)" : mask) + ")");
}

std::string Memory::second_part(const std::string& pointers, DType dtype) {
  return ir_.assign("getelementptr i8, " + ir_.vec_type("ptr") + " " + pointers + ", i64 " +
                    std::to_string(dtype_size(real_dtype(dtype))));
}

// ---- Vectors -----------------------------------------------------------------------------------------------------------

Reg Memory::load_vector(int buffer, Expr where, const std::string& mask) {
  Reg value = load_parts(buffer, where, mask);
  value.text = from_memory(scope_.buffer(buffer).dtype, value.text, true);
  return value;
}

Reg Memory::load_parts(int buffer, Expr where, const std::string& mask) {
  const Stride stride = scope_.stride_of(where);
  if (stride == Stride::kUnit || stride == Stride::kReversed) {
    return load_run(buffer, where, mask, stride == Stride::kReversed);
  }
  const int step = step_worth_reading(where, scope_.buffer(buffer).dtype);
  return step > 0 ? load_between(buffer, where, mask, step) : load_gathered(buffer, where, mask);
}

Reg Memory::load_run(int buffer, Expr where, const std::string& mask, bool reversed) {
  const DType dtype = scope_.buffer(buffer).dtype;
  const std::string element = memory_type(dtype);
  const int count = ir_.lanes();
  const std::string align = reversed ? align_of(dtype) : vector_align(dtype, where);
  std::string first = scope_.index(where);
  std::string lanes = mask;
  if (reversed) {
    first = ir_.binary("sub", "i64", first, std::to_string(count - 1));
    if (!mask.empty()) lanes = backwards("i1", mask);
  }
  const std::string at = address(buffer, first);
  if (!is_complex(dtype)) {
    const std::string value = load_run_of({element, count, at, align}, lanes, load_flags(buffer));
    return {reversed ? backwards(element, value) : value, true};
  }
  if (!lanes.empty()) lanes = spread_mask(lanes, 2, 2);
  Reg value = split_pairs(element, load_run_of({element, 2 * count, at, align}, lanes));
  if (reversed) {
    value.text = backwards(element, value.text);
    value.im = backwards(element, value.im);
  }
  return value;
}

/// Lanes that are `step` elements apart are read with what lies between them; nothing past the last element that counts.
Reg Memory::load_between(int buffer, Expr where, const std::string& mask, int step) {
  const DType dtype = scope_.buffer(buffer).dtype;
  const std::string element = memory_type(dtype);
  const int lanes = ir_.lanes();
  std::string bits;
  for (int i = 0; i < step * lanes; ++i) {
    bits += std::string(bits.empty() ? "" : ", ") + (i <= step * (lanes - 1) ? "i1 true" : "i1 false");
  }
  const std::string counts = mask.empty() ? "<" + bits + ">" : spread_mask(mask, step, 1);
  const std::string at = address(buffer, scope_.index(where));
  const std::string value = load_run_of({element, step * lanes, at, align_of(dtype)}, counts);
  return {ir_.shuffle(element, step * lanes, value, "poison", every(0, step, lanes)), true};
}

Reg Memory::load_gathered(int buffer, Expr where, const std::string& mask) {
  const DType dtype = scope_.buffer(buffer).dtype;
  const std::string element = memory_type(dtype);
  const std::string align = align_of(dtype);
  const std::string pointers = addresses(buffer, where);
  if (!is_complex(dtype)) return {gather(element, pointers, align, mask), true};
  if (dtype == DType::kComplex128) {
    const std::string re = gather(element, pointers, align, mask);
    return {re, true, gather(element, second_part(pointers, dtype), align, mask)};
  }
  const std::string whole = "i" + std::to_string(8 * dtype_size(dtype));
  const std::string bits = gather(whole, pointers, align, mask);
  return split_pairs(element, ir_.assign("bitcast " + ir_.vec_type(whole) + " " + bits + " to " +
                                         vector_of(2 * ir_.lanes(), element)));
}

void Memory::store_vector(int buffer, Expr where, const Reg& given, const std::string& mask) {
  Reg value = given;
  value.text = to_memory(scope_.buffer(buffer).dtype, value.text, true);
  const Stride stride = scope_.stride_of(where);
  if (stride == Stride::kUniform) throw InternalError("all lanes store to one place in " + context_.kernel.name);
  if (stride == Stride::kUnit || stride == Stride::kReversed) {
    store_run(buffer, where, std::move(value), mask, stride == Stride::kReversed);
  } else {
    store_scattered(buffer, where, value, mask);
  }
}

void Memory::store_run(int buffer, Expr where, Reg value, const std::string& mask, bool reversed) {
  const DType dtype = scope_.buffer(buffer).dtype;
  const std::string element = memory_type(dtype);
  const int bytes = dtype_size(real_dtype(dtype));
  const int count = ir_.lanes();
  const bool pair = is_complex(dtype);
  const std::string align = reversed ? align_of(dtype) : vector_align(dtype, where);
  std::string first = scope_.index(where);
  std::string lanes = mask;
  if (reversed) {
    first = ir_.binary("sub", "i64", first, std::to_string(count - 1));
    if (!mask.empty()) lanes = backwards("i1", mask);
    value.text = backwards(element, value.text);
    if (pair) value.im = backwards(element, value.im);
  }
  const Run run{element, pair ? 2 * count : count, address(buffer, first), align};
  if (!pair) {
    store_run_of(run, bytes, value.text, lanes);
  } else {
    store_run_of(run, bytes, join_pairs(element, value), lanes.empty() ? lanes : spread_mask(lanes, 2, 2));
  }
  if (!reversed) after_store(buffer, bytes, run);
}

void Memory::store_scattered(int buffer, Expr where, const Reg& value, const std::string& mask) {
  const DType dtype = scope_.buffer(buffer).dtype;
  const std::string element = memory_type(dtype);
  const std::string align = align_of(dtype);
  const std::string pointers = addresses(buffer, where);
  if (!is_complex(dtype)) {
    scatter(element, value.text, pointers, align, mask);
  } else if (dtype == DType::kComplex128) {
    scatter(element, value.text, pointers, align, mask);
    scatter(element, value.im, second_part(pointers, dtype), align, mask);
  } else {
    const std::string whole = "i" + std::to_string(8 * dtype_size(dtype));
    const std::string bits = ir_.assign("bitcast " + vector_of(2 * ir_.lanes(), element) + " " +
                                        join_pairs(element, value) + " to " + ir_.vec_type(whole));
    scatter(whole, bits, pointers, align, mask);
  }
}

}  // namespace tatara::codegen
