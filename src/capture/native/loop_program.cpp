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

/// The int that an object is, of 64 bits; nullopt: it is none.
std::optional<int64_t> int_of(PyObject* object) {
  const Ref index = PyLong_Check(object) ? Ref::borrow(object) : Ref::steal(PyNumber_Index(object));
  int overflow = 0;
  const int64_t value = index ? PyLong_AsLongLongAndOverflow(index.get(), &overflow) : 0;
  if (!index || PyErr_Occurred() != nullptr) {
    forget_error();
    const int truth = PyObject_IsTrue(object);  // a bool of NumPy's
    return truth >= 0 ? std::optional<int64_t>(truth) : std::nullopt;
  }
  return overflow == 0 ? std::optional(value) : std::nullopt;
}

bool fits_fact(const LocalFact& fact, PyObject* object, std::span<const int64_t> values, const NumpyApi& np) {
  using Kind = LocalFact::Kind;
  if (object == nullptr) return false;
  switch (fact.kind) {
    case Kind::kUnbound: return false;
    case Kind::kWhole: return PyLong_CheckExact(object) && int_of(object) == fact.whole.value(values);
    case Kind::kInt: {
      constexpr int64_t kMost = int64_t{1} << 52;
      const std::optional<int64_t> value = PyLong_CheckExact(object) ? int_of(object) : std::nullopt;
      return value && *value >= -kMost && *value <= kMost;
    }
    case Kind::kBool: return PyBool_Check(object) != 0;
    case Kind::kFloat: return PyFloat_CheckExact(object);
    case Kind::kComplex: return PyComplex_CheckExact(object);
    case Kind::kScalar:
      if (!np.is_scalar(object)) return false;
      if (fact.dtype == DType::kUInt64 && !int_of(object)) return false;
      break;
    case Kind::kList: return PyList_CheckExact(object);
    case Kind::kArray: break;
  }
  DType dtype = DType::kFloat64;
  std::vector<int64_t> sizes, strides;
  if (np.is_array(object) != (fact.kind == Kind::kArray) || !np.describe(object, dtype, sizes, strides)) return false;
  return dtype == fact.dtype && fact.has_layout(sizes, strides, values);
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

bool LoopRange::goes_as(const LoopRange& other) const {
  return kind == other.kind && first == other.first && step == other.step &&
         (kind != Kind::kRange || turns == other.turns) &&
         std::equal(parts.begin(), parts.end(), other.parts.begin(), other.parts.end(),
                    [](const LoopRange& a, const LoopRange& b) { return a.goes_as(b); });
}

namespace {
void add_arrays(const LoopRange& range, std::vector<PyObject*>& arrays) {
  if (range.array) arrays.push_back(range.array.get());
  for (const LoopRange& part : range.parts) add_arrays(part, arrays);
}
}  // namespace

LoopPlace place_of(const Frame& f, const LoopRange& range) {
  LoopPlace place{f, {}};
  add_arrays(range, place.iterated);
  return place;
}

bool LoopProgram::fits(const LoopPlace& place, const LoopRange& now, const NumpyApi& np) const {
  const std::optional<std::vector<int64_t>> values = read_sizes(place, now, np);
  if (!values || !fits_range(now, *values)) return false;
  const Frame& f = place.frame;
  for (const LocalFact& fact : locals) {
    PyObject* const object = place.object(fact.local);
    if (!fits_fact(fact, object != nullptr ? seen_value(object).get() : nullptr, *values, np)) return false;
    // Names of one array are names of one array again, and of no other.
    for (const LocalFact& other : locals) {
      if (fact.kind != LocalFact::Kind::kArray || other.kind != LocalFact::Kind::kArray) continue;
      if ((fact.array == other.array) != (object == place.object(other.local))) return false;
    }
    const bool is_written = fact.kind == LocalFact::Kind::kArray && buffers[static_cast<size_t>(fact.array)].written;
    if (is_written && (!np.writeable(object) || (fact.terms.empty() && !is_plain(fact)))) return false;
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
      const LoopSpan span = span_of(written, place.object(written.local), *values);
      if (span.meets(span_of(other, place.object(other.local), *values))) return false;
    }
  }
  return true;
}

/// The memory of one run. What arrays held before it can be put back.
class LoopMemory {
 public:
  /// Throws std::bad_alloc.
  LoopMemory(LoopProgram& program, const LoopPlace& place, std::vector<int64_t> values)
      : sizes(std::move(values)), log_of_(program) {
    if (program.log.count >= 0) log_ = std::move(program.log_memory);
    if (program.log.count >= 0 && !log_)
      log_ = std::make_unique_for_overwrite<std::byte[]>(3 * kMostAppended * sizeof(int64_t));
    std::byte* log = log_.get();
    numbers.resize(static_cast<size_t>(program.numbers) + 1);
    tags.resize(numbers.size());
    wholes.resize(2 * static_cast<size_t>(program.wholes) + 1);
    flags.resize(static_cast<size_t>(program.flags) + 1);
    for (const LoopProgram::Given& given : program.given) {
      double* const at = &numbers[static_cast<size_t>(given.slot)];
      if (given.pair) {
        const Py_complex pair = PyComplex_AsCComplex(place.object(given.local));
        at[0] = pair.real;
        at[1] = pair.imag;
      } else {
        *at = number_of(place.object(given.local));
      }
    }
    for (const auto& [local, slot] : program.given_wholes)
      wholes[2 * static_cast<size_t>(slot)] = int_of(place.object(local)).value_or(0);
    for (const Buffer& buffer : program.buffers) {
      switch (buffer.kind) {
        case Buffer::Kind::kNumbers: pointers.push_back(numbers.data()); break;
        case Buffer::Kind::kTags: pointers.push_back(tags.data()); break;
        case Buffer::Kind::kWholes: pointers.push_back(wholes.data()); break;
        case Buffer::Kind::kFlags: pointers.push_back(flags.data()); break;
        case Buffer::Kind::kScratch:
          owned_.push_back(std::make_unique_for_overwrite<std::max_align_t[]>(
              program.bytes_of(buffer, sizes) / sizeof(std::max_align_t) + 1));
          if (buffer.begins_as >= 0) {
            const Buffer& from = program.buffers[static_cast<size_t>(buffer.begins_as)];
            std::memcpy(owned_.back().get(), program.span_of(from, place.object(from.local), sizes).begin,
                        program.bytes_of(buffer, sizes));
          }
          pointers.push_back(owned_.back().get());
          break;
        case Buffer::Kind::kLog:
          pointers.push_back(log);
          log += kMostAppended * sizeof(int64_t);
          break;
        case Buffer::Kind::kArray: {
          const LoopSpan span = program.span_of(buffer, place.object(buffer.local), sizes);
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
  ~LoopMemory() {
    if (log_) log_of_.log_memory = std::move(log_);
  }
  LoopMemory(const LoopMemory&) = delete;
  LoopMemory& operator=(const LoopMemory&) = delete;
  void put_back() {
    for (const Kept& kept : kept_) std::memcpy(kept.at, kept.copy.get(), kept.bytes);
  }

  std::vector<double> numbers;
  std::vector<int64_t> tags, wholes, flags;
  std::vector<int64_t> sizes;
  std::vector<void*> pointers;

 private:
  struct Kept {
    char* at;
    std::unique_ptr<char[]> copy;
    size_t bytes;
  };
  std::vector<Kept> kept_;
  LoopProgram& log_of_;
  std::unique_ptr<std::byte[]> log_;
  std::vector<std::unique_ptr<std::max_align_t[]>> owned_;
};

NumberTag tag_of(DType dtype, bool numpys) {
  if (is_complex(dtype))
    return !numpys ? NumberTag::kComplex : dtype == DType::kComplex128 ? NumberTag::kComplex128 : NumberTag::kComplex64;
  return !numpys ? NumberTag::kFloat : dtype == DType::kFloat64 ? NumberTag::kFloat64 : NumberTag::kFloat32;
}

namespace {

Ref number_object(const double* at, NumberTag tag, const NumpyApi& np) {
  double value = *at;
  switch (tag) {
    case NumberTag::kNone: break;
    case NumberTag::kFloat: return Ref::steal(PyFloat_FromDouble(value));
    case NumberTag::kFloat64: return np.scalar(&value, DType::kFloat64);
    case NumberTag::kFloat32: {
      auto narrow = static_cast<float>(value);
      return np.scalar(&narrow, DType::kFloat32);
    }
    case NumberTag::kWhole: return Ref::steal(PyLong_FromDouble(value));
    case NumberTag::kComplex: return Ref::steal(PyComplex_FromDoubles(at[0], at[1]));
    case NumberTag::kComplex128: {
      double pair[] = {at[0], at[1]};
      return np.scalar(pair, DType::kComplex128);
    }
    case NumberTag::kComplex64: {
      float pair[] = {static_cast<float>(at[0]), static_cast<float>(at[1])};
      return np.scalar(pair, DType::kComplex64);
    }
  }
  return {};
}

Ref whole_object(int64_t value, int64_t tag, const LocalResult& result, const NumpyApi& np) {
  const bool numpys = result.either ? tag == static_cast<int64_t>(NumberTag::kFloat64) : result.numpys;
  if (numpys) return np.scalar(&value, result.dtype);  // its low bytes
  return Ref::steal(result.dtype == DType::kBool ? PyBool_FromLong(value != 0 ? 1 : 0) : PyLong_FromLongLong(value));
}

}  // namespace

namespace {

/// All or none. False with a Python error set.
bool extend(const std::vector<std::pair<PyObject*, Ref>>& lists) {
  for (size_t n = 0; n < lists.size(); ++n) {
    const Py_ssize_t end = PyList_GET_SIZE(lists[n].first);
    if (PyList_SetSlice(lists[n].first, end, end, lists[n].second.get()) == 0) continue;
    const ErrorAside aside;
    for (; n-- > 0;) {
      const Py_ssize_t to = PyList_GET_SIZE(lists[n].first);
      PyList_SetSlice(lists[n].first, to - PyList_GET_SIZE(lists[n].second.get()), to, nullptr);
    }
    return false;
  }
  return true;
}

}  // namespace

/// What the loop has appended, by list. False with a Python error set.
bool LoopProgram::read_log(const LoopPlace& place, const NumpyApi& np, const LoopMemory& memory,
                           std::vector<std::pair<PyObject*, Ref>>& lists) const {
  const int64_t count = log.count >= 0 ? memory.flags[static_cast<size_t>(log.count)] : 0;
  const auto buffer = [&memory](int n) { return n >= 0 ? memory.pointers[static_cast<size_t>(n)] : nullptr; };
  const auto* const sites = static_cast<const int64_t*>(buffer(log.sites));
  const auto* const ints = static_cast<const int64_t*>(buffer(log.wholes));
  const auto* const floats = static_cast<const double*>(buffer(log.floats));
  const auto object_at = [&](int64_t k) {
    const AppendSite& site = appends[static_cast<size_t>(sites[k])];
    if (!site.whole) return number_object(floats + k, site.tag, np);
    return whole_object(ints[k], 1, {site.local, false, -1, site.dtype, site.numpys}, np);
  };
  for (int64_t k = 0; k < count;) {
    const AppendSite& site = appends[static_cast<size_t>(sites[k])];
    PyObject* const list = place.object(site.local);
    auto found = std::find_if(lists.begin(), lists.end(), [list](const auto& each) { return each.first == list; });
    if (found == lists.end()) found = lists.insert(found, {list, Ref::steal(PyList_New(0))});
    Ref object = site.of_tuple > 0 ? Ref::steal(PyTuple_New(site.of_tuple)) : object_at(k);
    for (Py_ssize_t n = 0; object && n < site.of_tuple; ++n) {
      Ref item = object_at(k + n);
      if (!item) return false;
      PyTuple_SET_ITEM(object.get(), n, item.release());
    }
    if (!object || !found->second || PyList_Append(found->second.get(), object.get()) != 0) return false;
    k += std::max(site.of_tuple, 1);
  }
  return true;
}

/// False with a Python error set: nothing has changed.
bool LoopProgram::set_locals(Frame& f, const LoopPlace& place, const NumpyApi& np, LoopMemory& memory) const {
  std::vector<std::pair<int, Ref>> made;
  const auto object_of = [&](const LocalResult& result) {
    const auto slot = static_cast<size_t>(result.slot);
    if (result.number) return number_object(&memory.numbers[slot], static_cast<NumberTag>(memory.tags[slot]), np);
    const int64_t tag = memory.wholes[2 * slot + 1];
    return tag != 0 ? whole_object(memory.wholes[2 * slot], tag, result, np) : Ref();
  };
  for (const LocalResult& result : results) {
    if (Ref object = object_of(result)) made.emplace_back(result.local, std::move(object));
  }
  for (const TupleResult& result : tuples) {
    Ref tuple = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(result.items.size())));
    if (!tuple) return false;
    bool all = true;
    for (size_t n = 0; all && n < result.items.size(); ++n) {
      Ref item = object_of(result.items[n]);
      all = static_cast<bool>(item);
      PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(n), item.release());
    }
    if (PyErr_Occurred() != nullptr) return false;
    if (all) made.emplace_back(result.local, std::move(tuple));
  }
  for (const ArrayResult& result : arrays) {
    const auto slot = static_cast<size_t>(result.slot);
    if (memory.wholes[2 * slot + 1] != result.statement) continue;
    const Buffer& buffer = buffers[static_cast<size_t>(result.buffer)];
    auto* data = static_cast<char*>(memory.pointers[static_cast<size_t>(result.buffer)]);
    const auto all = [&memory](const std::vector<ExprProgram>& programs) {
      std::vector<int64_t> values;
      for (const ExprProgram& program : programs) values.push_back(program.evaluate(memory.sizes));
      return values;
    };
    const std::vector<int64_t> shape = all(result.sizes), strides = all(result.strides);
    Ref object;
    if (buffer.kind == Buffer::Kind::kArray) {
      data += memory.wholes[2 * slot] * dtype_size(buffer.dtype);
      object = np.view(place.object(buffer.local), data, buffer.dtype, shape, strides);
    } else {
      object = np.new_array(buffer.dtype, shape, strides);
      if (object) std::memcpy(NumpyApi::data(object.get()), data, bytes_of(buffer, memory.sizes));
    }
    if (!object) return false;
    made.emplace_back(result.local, std::move(object));
  }
  std::vector<std::pair<PyObject*, Ref>> lists;
  if (!read_log(place, np, memory, lists) || !extend(lists)) return false;
  for (const auto& [local, object] : made) f.set_local(local, object.get());
  return true;
}

LoopProgram::Outcome LoopProgram::run(Frame& f, const LoopPlace& place, const LoopRange& now, const NumpyApi& np,
                                      int64_t& done, const LoopExit*& left) {
  std::optional<LoopMemory> kept;
  try {
    kept.emplace(*this, place, read_sizes(place, now, np).value());
  } catch (const std::bad_alloc&) {
    return Outcome::kTakenBack;  // the interpreter may need less
  }
  LoopMemory& memory = *kept;
  done = 0;
  bool fault = false;
  // A signal is looked for as often as a person notices.
  constexpr std::chrono::milliseconds kPatience(50);
  for (int64_t share = 1; done < now.turns && !fault && memory.flags[0] == 0;) {
    const int64_t end = std::min(now.turns, done + share);
    const auto start = std::chrono::steady_clock::now();
    Py_BEGIN_ALLOW_THREADS;
    KernelFault where{};
    std::feclearexcept(FE_ALL_EXCEPT);
    fault = code.fn(memory.pointers.data(), memory.sizes.data(), nullptr, done, end, &where) != 0;
    // NumPy warns of these, and Python raises errors for some: they say so themselves.
    fault = fault || std::fetestexcept(FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW) != 0;
    Py_END_ALLOW_THREADS;
    done = end;
    if (std::chrono::steady_clock::now() - start < kPatience) share *= 2;
    if (!fault && memory.flags[0] == 0 && done < now.turns && PyErr_CheckSignals() != 0) break;
  }
  if (fault) {
    memory.put_back();
    return Outcome::kTakenBack;
  }
  if (!set_locals(f, place, np, memory)) {
    forget_error();
    memory.put_back();
    return Outcome::kTakenBack;
  }
  if (memory.flags[0] != 0) {
    left = &exits[static_cast<size_t>(memory.flags[0]) - 1];
    done = memory.flags[1] + 1;
    return Outcome::kLeft;
  }
  return done < now.turns ? Outcome::kInterrupted : Outcome::kDone;
}

}  // namespace tatara::capture::native
