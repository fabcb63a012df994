#include "capture/native/loop_program.h"

#include <algorithm>
#include <cfenv>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <optional>

#include "capture/numbers/symbolic_int.h"
#include "codegen/abi.h"
#include "support/error.h"

namespace tatara::capture::native {

using Buffer = LoopProgram::Buffer;

namespace {

struct Span {
  const char* begin;
  const char* end;
  bool meets(const Span& other) const { return begin < other.end && other.begin < end; }
};

Span span_of(const Buffer& buffer, PyObject* array) {
  const int64_t element = dtype_size(buffer.dtype);
  const char* begin = static_cast<const char*>(NumpyApi::data(array)) - buffer.low * element;
  return {begin, begin + buffer.numel * element};
}

/// No two elements of such an array are one in memory.
bool is_plain(const LocalFact& fact) {
  std::vector<std::pair<int64_t, int64_t>> dims;
  for (size_t d = 0; d < fact.sizes.size(); ++d) {
    if (fact.sizes[d] > 1) dims.emplace_back(std::abs(fact.strides[d]), fact.sizes[d]);
  }
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0;
  for (const auto& [stride, size] : dims) {
    if (stride <= reach) return false;
    reach += stride * (size - 1);
  }
  return true;
}

bool fits_fact(const LocalFact& fact, PyObject* object, const NumpyApi& np) {
  using Kind = LocalFact::Kind;
  if (object == nullptr) return false;
  switch (fact.kind) {
    case Kind::kUnbound: return false;
    case Kind::kWhole: {
      int overflow = 0;
      return PyLong_CheckExact(object) && PyLong_AsLongLongAndOverflow(object, &overflow) == fact.value &&
             overflow == 0;
    }
    case Kind::kFloat: return PyFloat_CheckExact(object);
    case Kind::kFloat64:
    case Kind::kFloat32:
    case Kind::kArray: break;
  }
  DType dtype = DType::kFloat64;
  std::vector<int64_t> sizes, strides;
  if (np.is_array(object) != (fact.kind == Kind::kArray) || !np.describe(object, dtype, sizes, strides)) return false;
  return dtype == fact.dtype && sizes == fact.sizes && strides == fact.strides;
}

PyObject* found_name(const NameFact& fact, const Frame& f) {
  if (fact.module) return PyDict_GetItemWithError(PyModule_GetDict(fact.module.get()), fact.name.get());
  PyObject* found = PyDict_GetItemWithError(f.globals(), fact.name.get());
  return found != nullptr || PyErr_Occurred() != nullptr ? found
                                                         : PyDict_GetItemWithError(f.builtins(), fact.name.get());
}

double number_of(PyObject* object) {
  return PyFloat_Check(object) ? PyFloat_AS_DOUBLE(object) : PyFloat_AsDouble(object);
}

}  // namespace

Ref seen_value(PyObject* object) {
  if (is_symbolic_int(object)) {
    const Expr e = symbolic_expr(object);
    const std::optional<int64_t> value = e.context().evaluate_hint(e);
    return value ? Ref::steal(PyLong_FromLongLong(*value)) : Ref();
  }
  if (is_symbolic_float(object)) return Ref::steal(PyFloat_FromDouble(float_value(object)));
  return is_derived_int(object) ? Ref() : Ref::borrow(object);
}

int LoopProgram::traverse(const Visitor& visit) const {
  for (const NameFact& fact : names) {
    if (const int result = visit(fact.module, fact.name, fact.value); result != 0) return result;
  }
  return visit(functions);
}

bool LoopProgram::fits(const Frame& f, const NumpyApi& np) const {
  for (const LocalFact& fact : locals) {
    if (!fits_fact(fact, f.local(fact.local) != nullptr ? seen_value(f.local(fact.local)).get() : nullptr, np))
      return false;
    // Names of one array are names of one array again, and of no other.
    for (const LocalFact& other : locals) {
      if (fact.kind != LocalFact::Kind::kArray || other.kind != LocalFact::Kind::kArray) continue;
      if ((fact.array == other.array) != (f.local(fact.local) == f.local(other.local))) return false;
    }
    const bool is_written = fact.kind == LocalFact::Kind::kArray && buffers[static_cast<size_t>(fact.array)].written;
    if (is_written && (!np.writeable(f.local(fact.local)) || !is_plain(fact))) return false;
  }
  for (const NameFact& fact : names) {
    if (found_name(fact, f) == fact.value.get()) continue;
    forget_error();
    return false;
  }
  for (const auto& [function, read] : functions) {
    if (PyFunction_GET_CODE(function.get()) != read.get()) return false;
  }
  for (const Buffer& written : buffers) {
    if (written.kind != Buffer::Kind::kArray || !written.written) continue;
    for (const Buffer& other : buffers) {
      if (other.kind != Buffer::Kind::kArray || &other == &written) continue;
      if (span_of(written, f.local(written.local)).meets(span_of(other, f.local(other.local)))) return false;
    }
  }
  return true;
}

/// The memory of one run. What arrays held before it can be put back.
class LoopMemory {
 public:
  LoopMemory(const LoopProgram& program, const Frame& f) {
    numbers.resize(static_cast<size_t>(program.numbers) + 1);
    tags.resize(numbers.size());
    wholes.resize(2 * static_cast<size_t>(program.wholes) + 1);
    for (const auto& [local, slot] : program.given) numbers[static_cast<size_t>(slot)] = number_of(f.local(local));
    for (const Buffer& buffer : program.buffers) {
      switch (buffer.kind) {
        case Buffer::Kind::kNumbers: pointers.push_back(numbers.data()); break;
        case Buffer::Kind::kTags: pointers.push_back(tags.data()); break;
        case Buffer::Kind::kWholes: pointers.push_back(wholes.data()); break;
        case Buffer::Kind::kScratch:
          owned_.push_back(std::make_unique_for_overwrite<std::max_align_t[]>(
              static_cast<size_t>(buffer.numel * dtype_size(buffer.dtype)) / sizeof(std::max_align_t) + 1));
          pointers.push_back(owned_.back().get());
          break;
        case Buffer::Kind::kArray: {
          const Span span = span_of(buffer, f.local(buffer.local));
          pointers.push_back(const_cast<char*>(span.begin));
          if (!buffer.written) break;
          const auto bytes = static_cast<size_t>(span.end - span.begin);
          auto copy = std::make_unique_for_overwrite<char[]>(bytes);
          std::memcpy(copy.get(), span.begin, bytes);
          kept_.push_back({const_cast<char*>(span.begin), std::move(copy), bytes});
          break;
        }
      }
    }
  }
  void put_back() {
    for (const Kept& kept : kept_) std::memcpy(kept.at, kept.copy.get(), kept.bytes);
  }

  std::vector<double> numbers;
  std::vector<int64_t> tags, wholes;
  std::vector<void*> pointers;

 private:
  struct Kept {
    char* at;
    std::unique_ptr<char[]> copy;
    size_t bytes;
  };
  std::vector<Kept> kept_;
  std::vector<std::unique_ptr<std::max_align_t[]>> owned_;
};

namespace {

Ref number_object(double value, NumberTag tag, const NumpyApi& np) {
  switch (tag) {
    case NumberTag::kNone: break;
    case NumberTag::kFloat: return Ref::steal(PyFloat_FromDouble(value));
    case NumberTag::kFloat64: return np.scalar(&value, DType::kFloat64);
    case NumberTag::kFloat32: {
      auto narrow = static_cast<float>(value);
      return np.scalar(&narrow, DType::kFloat32);
    }
    case NumberTag::kWhole: return Ref::steal(PyLong_FromDouble(value));
  }
  return {};
}

}  // namespace

/// False with a Python error set: nothing has changed.
bool LoopProgram::set_locals(Frame& f, const NumpyApi& np, LoopMemory& memory) const {
  std::vector<std::pair<int, Ref>> made;
  for (const LocalResult& result : results) {
    const auto slot = static_cast<size_t>(result.slot);
    Ref object;
    if (result.number) {
      object = number_object(memory.numbers[slot], static_cast<NumberTag>(memory.tags[slot]), np);
    } else if (memory.wholes[2 * slot + 1] != 0) {
      object = Ref::steal(PyLong_FromLongLong(memory.wholes[2 * slot]));
    }
    if (object) made.emplace_back(result.local, std::move(object));
  }
  for (const ArrayResult& result : arrays) {
    const auto slot = static_cast<size_t>(result.slot);
    if (memory.wholes[2 * slot + 1] != result.statement) continue;
    const Buffer& buffer = buffers[static_cast<size_t>(result.buffer)];
    auto* data = static_cast<char*>(memory.pointers[static_cast<size_t>(result.buffer)]);
    Ref object;
    if (buffer.kind == Buffer::Kind::kArray) {
      data += memory.wholes[2 * slot] * dtype_size(buffer.dtype);
      object = np.view(f.local(buffer.local), data, buffer.dtype, result.sizes, result.strides);
    } else {
      object = np.new_array(buffer.dtype, result.sizes, result.strides);
      const auto bytes = static_cast<size_t>(buffer.numel) * static_cast<size_t>(dtype_size(buffer.dtype));
      if (object) std::memcpy(NumpyApi::data(object.get()), data, bytes);
    }
    if (!object) return false;
    made.emplace_back(result.local, std::move(object));
  }
  for (const auto& [local, object] : made) f.set_local(local, object.get());
  return true;
}

LoopProgram::Outcome LoopProgram::run(Frame& f, const NumpyApi& np, int64_t& done) {
  std::optional<LoopMemory> kept;
  try {
    kept.emplace(*this, f);
  } catch (const std::bad_alloc&) {
    return Outcome::kTakenBack;  // the interpreter may need less
  }
  LoopMemory& memory = *kept;
  done = 0;
  bool fault = false;
  // A signal is looked for as often as a person notices.
  constexpr std::chrono::milliseconds kPatience(50);
  for (int64_t share = 1; done < range.turns && !fault;) {
    const int64_t end = std::min(range.turns, done + share);
    const auto start = std::chrono::steady_clock::now();
    Py_BEGIN_ALLOW_THREADS;
    KernelFault where{};
    std::feclearexcept(FE_ALL_EXCEPT);
    fault = code.fn(memory.pointers.data(), nullptr, nullptr, done, end, &where) != 0;
    // NumPy warns of these, and Python raises errors for some: they say so themselves.
    fault = fault || std::fetestexcept(FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW) != 0;
    Py_END_ALLOW_THREADS;
    done = end;
    if (std::chrono::steady_clock::now() - start < kPatience) share *= 2;
    if (!fault && done < range.turns && PyErr_CheckSignals() != 0) break;
  }
  if (fault) {
    memory.put_back();
    return Outcome::kTakenBack;
  }
  if (!set_locals(f, np, memory)) {
    forget_error();
    memory.put_back();
    return Outcome::kTakenBack;
  }
  return done < range.turns ? Outcome::kInterrupted : Outcome::kDone;
}

}  // namespace tatara::capture::native
