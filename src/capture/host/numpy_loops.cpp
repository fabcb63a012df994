#include "capture/host/numpy_loops.h"

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <complex>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <unordered_set>

#include "support/error.h"
#include "support/str_cat.h"

namespace tatara::capture {
namespace {

constexpr std::string_view kPrefix = "tatara::numpy/";
using Views = std::vector<const TensorView*>;
using Body = std::function<void(const Views&)>;

TensorView& view_of(const HostTensor& tensor) { return *static_cast<TensorView*>(tensor.get()); }

class LoopOp final : public HostOp {
 public:
  explicit LoopOp(Body body) : body_(std::move(body)) {}
  std::vector<HostTensor> call(std::span<const HostValue> args) const override {
    Views views;
    for (const HostTensor& tensor : args[0].tensors) views.push_back(&view_of(tensor));
    for (const HostValue& out : args.subspan(1)) views.push_back(&view_of(out.tensor));
    body_(views);
    return {};
  }
  std::string objection(std::span<const HostKind> args, size_t results) const override {
    using Kind = HostValue::Kind;
    const bool fits = !args.empty() && args[0].kind == Kind::kTensorList && !args[0].has_none && results == 0 &&
                      std::all_of(args.begin() + 1, args.end(), [](HostKind k) { return k.kind == Kind::kTensor; });
    return fits ? "" : "other arguments than arrays and results";
  }

 private:
  Body body_;
};

class NumpyHost final : public HostOps {
 public:
  const HostOp* find(std::string_view op, std::string_view overload) override {
    const std::lock_guard lock(mutex_);
    const auto found = overload == "out" ? made_.find(std::string(op)) : made_.end();
    return found == made_.end() ? nullptr : found->second.op.get();
  }
  HostTensor wrap(const TensorView& view) override { return std::make_shared<TensorView>(view); }
  HostTensor allocate(int64_t bytes, Device) override {
    auto memory = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(bytes));
    TensorView view;
    view.data = memory->data();
    view.dtype = DType::kUInt8;
    view.sizes = {bytes};
    view.strides = {1};
    return {memory, new TensorView(view)};
  }
  TensorView view(const HostTensor& tensor) override { return view_of(tensor); }

  const OpDef* known(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto found = made_.find(str_cat(kPrefix, key));
    return found == made_.end() ? nullptr : found->second.def.get();
  }
  /// What the key names is always the same.
  const OpDef& add(const std::string& key, Body body) {
    const std::lock_guard lock(mutex_);
    Made& made = made_[str_cat(kPrefix, key)];
    if (made.def != nullptr) return *made.def;
    made.op = std::make_unique<LoopOp>(std::move(body));
    made.def = std::make_unique<OpDef>();
    made.def->name = str_cat("numpy_", key);
    made.def->kind = OpKind::kHost;
    made.def->schema_text = "(Tensor[] arrays) -> Tensor[]";
    made.def->schema = parse_schema(made.def->schema_text);
    made.def->host_name = str_cat(kPrefix, key);
    made.def->host_overload = "out";
    return *made.def;
  }

 private:
  struct Made {
    std::unique_ptr<HostOp> op;
    std::unique_ptr<OpDef> def;
  };
  std::mutex mutex_;
  std::map<std::string, Made> made_;
};

NumpyHost& host() {
  static auto* const made = new NumpyHost;  // plans may end after the process's statics
  return *made;
}

// ---- Faults ----------------------------------------------------------------------------------------------------------

std::string letters(FloatFaults watched) {
  return str_cat(watched.divide ? "d" : "", watched.over ? "o" : "", watched.invalid ? "i" : "");
}

/// The processor's flags of one loop, as NumPy looks at them.
class Flags {
 public:
  explicit Flags(FloatFaults watched) : watched_(watched) { std::feclearexcept(FE_ALL_EXCEPT); }
  void check() const {
    const int raised = std::fetestexcept(FE_DIVBYZERO | FE_OVERFLOW | FE_INVALID);
    if (raised == 0) return;
    std::feclearexcept(FE_ALL_EXCEPT);
    if ((watched_.divide && (raised & FE_DIVBYZERO) != 0) || (watched_.over && (raised & FE_OVERFLOW) != 0) ||
        (watched_.invalid && (raised & FE_INVALID) != 0)) {
      throw Unsupported("a floating-point fault");
    }
  }

 private:
  FloatFaults watched_;
};

// ---- Ufuncs ----------------------------------------------------------------------------------------------------------

using InnerLoop = void (*)(char** args, const Py_ssize_t* dimensions, const Py_ssize_t* steps, void* data);

// ufuncobject.h of NumPy, as far as it is read.
struct UfuncFields {
  PyObject_HEAD int nin, nout, nargs, identity;
  InnerLoop* functions;
  void* const* data;
  int ntypes, reserved;
  const char* name;
  const char* types;
  const char* doc;
  void* ptr;
  PyObject *obj, *userloops;
  int core_enabled, core_num_dim_ix;
  int *core_num_dims, *core_dim_ixs, *core_offsets;
};
const UfuncFields& ufunc_fields(PyObject* ufunc) { return *reinterpret_cast<UfuncFields*>(ufunc); }

struct Loop {
  InnerLoop function;
  void* data;
  size_t inputs, operands;
  std::vector<std::vector<int>> core;  // of each operand: which sizes its last dimensions have
  size_t core_sizes;
  FloatFaults watched;
  bool in_place;
};

/// The outer dimensions of a loop's operands together, as few as their strides allow. Strides in bytes.
struct Outer {
  std::vector<int64_t> sizes;
  std::vector<std::vector<Py_ssize_t>> strides;  // by dimension and operand

  Outer(const Views& views, const std::vector<size_t>& core) {
    size_t rank = 0;
    for (size_t k = 0; k < views.size(); ++k) rank = std::max(rank, views[k]->sizes.size() - core[k]);
    for (size_t d = 0; d < rank; ++d) {
      int64_t size = 1;
      std::vector<Py_ssize_t> steps;
      for (size_t k = 0; k < views.size(); ++k) {
        const size_t own = views[k]->sizes.size() - core[k];
        const bool has = d + own >= rank && views[k]->sizes[d + own - rank] != 1;
        if (has) size = views[k]->sizes[d + own - rank];
        steps.push_back(has ? views[k]->strides[d + own - rank] * dtype_size(views[k]->dtype) : 0);
      }
      if (size == 1) continue;
      bool joins = !sizes.empty();
      for (size_t k = 0; joins && k < steps.size(); ++k) joins = strides.back()[k] == steps[k] * size;
      if (joins) {
        sizes.back() *= size;
        strides.back() = std::move(steps);
      } else {
        sizes.push_back(size);
        strides.push_back(std::move(steps));
      }
    }
    if (!sizes.empty()) return;
    sizes.push_back(1);
    strides.emplace_back(views.size(), 0);
  }
};

/// Calls `run(pointers, count, steps)` for the last of the outer dimensions at each place of the others.
template <class Run>
void for_each_row(const Outer& outer, std::vector<char*> at, const Run& run, size_t dim = 0) {
  if (dim + 1 == outer.sizes.size()) {
    if (outer.sizes[dim] > 0) run(at, outer.sizes[dim], outer.strides[dim]);
    return;
  }
  for (int64_t i = 0; i < outer.sizes[dim]; ++i) {
    for_each_row(outer, at, run, dim + 1);
    for (size_t k = 0; k < at.size(); ++k) at[k] += outer.strides[dim][k];
  }
}

std::vector<char*> begins(const Views& views) {
  std::vector<char*> at;
  for (const TensorView* view : views) at.push_back(static_cast<char*>(view->data));
  return at;
}

void copy_item(void* to, const void* from, int64_t item) {
  switch (item) {
    case 1: std::memcpy(to, from, 1); return;
    case 4: std::memcpy(to, from, 4); return;
    case 8: std::memcpy(to, from, 8); return;
    default: std::memcpy(to, from, static_cast<size_t>(item));
  }
}

void copy_elements(const TensorView& from, const TensorView& to) {
  const auto item = static_cast<size_t>(dtype_size(from.dtype));
  const Views views{&from, &to};
  for_each_row(Outer(views, {0, 0}), begins(views), [item](const std::vector<char*>& at, int64_t n, const auto& steps) {
    if (steps[0] == static_cast<Py_ssize_t>(item) && steps[1] == steps[0]) {
      std::memcpy(at[1], at[0], static_cast<size_t>(n) * item);
      return;
    }
    for (int64_t i = 0; i < n; ++i) {
      copy_item(at[1] + i * steps[1], at[0] + i * steps[0], static_cast<int64_t>(item));
    }
  });
}

void run_ufunc_loop(const Loop& loop, const Views& given) {
  Views views = given;
  if (loop.in_place) {
    copy_elements(*views[0], *views.back());
    views[0] = views.back();
    views.pop_back();
  }
  if (views.size() != loop.operands) throw InternalError("a ufunc of another number of operands");
  std::vector<Py_ssize_t> sizes(1 + loop.core_sizes, 0), inner;
  std::vector<size_t> core;
  for (size_t k = 0; k < views.size(); ++k) {
    core.push_back(loop.core[k].size());
    const size_t first = views[k]->sizes.size() - core[k];
    for (size_t d = 0; d < core[k]; ++d) {
      sizes[1 + static_cast<size_t>(loop.core[k][d])] = views[k]->sizes[first + d];
      inner.push_back(views[k]->strides[first + d] * dtype_size(views[k]->dtype));
    }
  }
  const Flags flags(loop.watched);
  for_each_row(Outer(views, core), begins(views), [&](std::vector<char*> at, int64_t count, const auto& outer) {
    std::vector<Py_ssize_t> steps(outer.begin(), outer.end());
    steps.insert(steps.end(), inner.begin(), inner.end());
    sizes[0] = count;
    loop.function(at.data(), sizes.data(), steps.data(), loop.data);
  });
  flags.check();
}

char letter_of(DType dtype) {
  switch (dtype) {
    case DType::kBool: return '?';
    case DType::kInt8: return 'b';
    case DType::kUInt8: return 'B';
    case DType::kInt16: return 'h';
    case DType::kUInt16: return 'H';
    case DType::kInt32: return 'i';
    case DType::kUInt32: return 'I';
    case DType::kInt64: return 'l';
    case DType::kUInt64: return 'L';
    case DType::kFloat16: return 'e';
    case DType::kFloat32: return 'f';
    case DType::kFloat64: return 'd';
    case DType::kComplex64: return 'F';
    case DType::kComplex128: return 'D';
    case DType::kBFloat16:
    case DType::kComplex32:
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E5M2: return ' ';
  }
  return ' ';
}

bool same_type(int number, DType dtype) {
  DType known = DType::kFloat32;
  return dtype_of_type_num(number, known) && known == dtype;
}

/// Which of the ufunc's loops has these types.
std::optional<int> find_loop(const UfuncFields& ufunc, const std::vector<DType>& types) {
  for (int i = 0; i < ufunc.ntypes; ++i) {
    const char* numbers = ufunc.types + static_cast<ptrdiff_t>(i) * ufunc.nargs;
    bool fits = static_cast<int>(types.size()) == ufunc.nargs;
    for (size_t k = 0; fits && k < types.size(); ++k) fits = same_type(numbers[k], types[k]);
    if (fits) return i;
  }
  return std::nullopt;
}

std::string key_of(const UfuncFields& ufunc, const std::vector<DType>& types, FloatFaults watched) {
  std::string text;
  for (const DType t : types) text += t == DType::kBool ? 'Q' : letter_of(t);
  return str_cat(ufunc.name, ufunc.core_enabled != 0 ? "_of_" : "_", text, "_", letters(watched));
}

// ---- Rows ------------------------------------------------------------------------------------------------------------

// Of PyArray_ArrFuncs in ndarraytypes.h; `kind` is NumPy's number.
constexpr int kArgmax = 26, kSort = 33, kArgsort = 36, kArgmin = 46;

using SortFunction = int (*)(void*, Py_ssize_t, void*);
using ArgsortFunction = int (*)(void*, Py_ssize_t*, Py_ssize_t, void*);
using ExtremeFunction = int (*)(void*, Py_ssize_t, Py_ssize_t*, void*);

/// `run(row, n, result)` for each row of the first view, lying as one, and its place in the second.
template <class Run>
void for_rows(const Views& views, size_t result_core, const Run& run) {
  const TensorView& x = *views[0];
  const int64_t n = x.sizes.back();
  const auto item = static_cast<size_t>(dtype_size(x.dtype));
  const auto step = x.strides.back() * static_cast<int64_t>(item);
  std::vector<char> row(x.strides.back() == 1 ? 0 : static_cast<size_t>(n) * item);
  for_each_row(Outer(views, {1, result_core}), begins(views),
               [&](std::vector<char*> at, int64_t count, const auto& steps) {
                 for (int64_t i = 0; i < count; ++i, at[0] += steps[0], at[1] += steps[1]) {
                   char* begin = at[0];
                   if (!row.empty()) {
                     for (int64_t j = 0; j < n; ++j) {
                       std::memcpy(row.data() + static_cast<size_t>(j) * item, at[0] + j * step, item);
                     }
                     begin = row.data();
                   }
                   run(begin, n, at[1]);
                 }
               });
}

void stop_unless(int64_t found, int64_t wanted) {
  if (found != wanted) throw Unsupported("data decide otherwise how large a result is");
}

/// Whether a mask lies as one row; its elements then.
std::optional<std::span<const uint8_t>> one_row(const TensorView& mask) {
  int64_t count = 1;
  for (size_t d = mask.sizes.size(); d-- > 0;) {
    if (mask.sizes[d] != 1 && mask.strides[d] != count) return std::nullopt;
    count *= mask.sizes[d];
  }
  return std::span(static_cast<const uint8_t*>(mask.data), static_cast<size_t>(count));
}

/// `put(i, k)` with k as the place among those that hold, for each i in turn until there are `wanted`; without branches by the mask, so
/// that it may be called again for the same k. Returns how many hold, or more than wanted.
template <class Put>
int64_t for_held_in_row(std::span<const uint8_t> mask, int64_t wanted, const Put& put) {
  int64_t count = 0;
  size_t i = 0;
  for (; i < mask.size() && count < wanted; ++i) {
    put(i, count);
    count += mask[i];
  }
  const bool more = std::any_of(mask.begin() + static_cast<ptrdiff_t>(i), mask.end(), [](uint8_t m) { return m != 0; });
  return more ? wanted + 1 : count;
}

template <class T>
int64_t pick_row(std::span<const uint8_t> mask, const TensorView& x, const TensorView& out) {
  const auto* from = static_cast<const T*>(x.data);
  auto* to = static_cast<T*>(out.data);
  return for_held_in_row(mask, out.sizes[0], [&](size_t i, int64_t k) { to[k] = from[i]; });
}

/// Of arrays that lie as one row, with a mask of the same shape. Nothing: they do not.
std::optional<int64_t> pick_in_rows(const TensorView& x, const TensorView& mask, const TensorView& out) {
  const auto row = one_row(mask);
  if (!row || !one_row(x) || x.sizes.size() != mask.sizes.size() || out.strides[0] != 1) return std::nullopt;
  struct Two {
    uint64_t parts[2];
  };
  switch (dtype_size(x.dtype)) {
    case 1: return pick_row<uint8_t>(*row, x, out);
    case 2: return pick_row<uint16_t>(*row, x, out);
    case 4: return pick_row<uint32_t>(*row, x, out);
    case 8: return pick_row<uint64_t>(*row, x, out);
    case 16: return pick_row<Two>(*row, x, out);
    default: return std::nullopt;
  }
}

template <class Take>
int64_t for_each_held(const TensorView& mask, const Take& take) {
  std::vector<int64_t> index(mask.sizes.size(), 0);
  const auto* at = static_cast<const bool*>(mask.data);
  if (std::find(mask.sizes.begin(), mask.sizes.end(), 0) != mask.sizes.end()) return 0;
  const size_t last = mask.sizes.size() - 1;
  int64_t count = 0;
  while (true) {
    for (int64_t& i = index[last] = 0; i < mask.sizes[last]; ++i) {
      if (at[i * mask.strides[last]]) take(index, count++);
    }
    size_t d = last;
    while (d > 0) {
      --d;
      at += mask.strides[d];
      if (++index[d] < mask.sizes[d]) break;
      at -= mask.strides[d] * mask.sizes[d];
      index[d] = 0;
      if (d == 0) return count;
    }
    if (last == 0) return count;
  }
}

}  // namespace

HostOps& numpy_host() { return host(); }

bool is_numpy_loop(const std::string& host_name) { return host_name.starts_with(kPrefix); }

UfuncShape shape_of_ufunc(PyObject* ufunc) {
  const UfuncFields& fields = ufunc_fields(ufunc);
  UfuncShape shape{fields.nin, fields.nout, {}, fields.core_enabled != 0};
  for (int k = 0; k < fields.nargs; ++k) shape.core_dims.push_back(shape.has_core ? fields.core_num_dims[k] : 0);
  return shape;
}

const OpDef* ufunc_loop(PyObject* ufunc, const std::vector<DType>& types, FloatFaults watched, bool in_place) {
  const UfuncFields& fields = ufunc_fields(ufunc);
  const std::optional<int> index = find_loop(fields, types);
  if (!index) return nullptr;
  Loop loop{fields.functions[*index],
            const_cast<void*>(fields.data == nullptr ? nullptr : fields.data[*index]),
            static_cast<size_t>(fields.nin),
            static_cast<size_t>(fields.nargs),
            {},
            0,
            watched,
            in_place};
  if (loop.function == nullptr) return nullptr;
  for (int k = 0; k < fields.nargs; ++k) {
    std::vector<int>& core = loop.core.emplace_back();
    for (int d = 0; fields.core_enabled != 0 && d < fields.core_num_dims[k]; ++d) {
      core.push_back(fields.core_dim_ixs[fields.core_offsets[k] + d]);
    }
  }
  if (fields.core_enabled != 0) loop.core_sizes = static_cast<size_t>(fields.core_num_dim_ix);
  return &host().add(key_of(fields, types, watched), [loop](const Views& views) { run_ufunc_loop(loop, views); });
}

const OpDef* reduction_loop(PyObject* ufunc, DType dtype, FloatFaults watched) {
  const UfuncFields& fields = ufunc_fields(ufunc);
  const std::vector<DType> types(3, dtype);
  const std::optional<int> index = fields.nargs == 3 ? find_loop(fields, types) : std::nullopt;
  if (!index || fields.functions[*index] == nullptr) return nullptr;
  const InnerLoop function = fields.functions[*index];
  void* const data = const_cast<void*>(fields.data == nullptr ? nullptr : fields.data[*index]);
  const std::string key = str_cat(key_of(fields, types, watched), "_reduce");
  return &host().add(key, [function, data, watched](const Views& views) {
    const Flags flags(watched);
    const Py_ssize_t item = dtype_size(views[0]->dtype);
    for_rows(views, 0, [&](char* row, int64_t n, char* out) {
      std::memcpy(out, row, static_cast<size_t>(item));
      char* args[] = {out, row + item, out};
      const Py_ssize_t count = n - 1, steps[] = {0, item, 0};
      if (count > 0) function(args, &count, steps, data);
    });
    flags.check();
  });
}

const OpDef& sort_loop(const NumpyApi& np, DType dtype, int kind) {
  const auto sort = reinterpret_cast<SortFunction>(np.array_function(dtype, kSort + kind));
  return host().add(str_cat("sort_", letter_of(dtype), "_", kind), [sort](const Views& views) {
    copy_elements(*views[0], *views[1]);
    for_rows({views[1], views[1]}, 1, [sort](char*, int64_t n, char* out) { sort(out, n, nullptr); });
  });
}

const OpDef* argsort_loop(const NumpyApi& np, DType dtype, int kind) {
  const auto sort = reinterpret_cast<ArgsortFunction>(np.array_function(dtype, kArgsort + kind));
  return &host().add(str_cat("argsort_", letter_of(dtype), "_", kind), [sort](const Views& views) {
    for_rows(views, 1, [sort](char* row, int64_t n, char* out) {
      auto* places = reinterpret_cast<Py_ssize_t*>(out);
      std::iota(places, places + n, Py_ssize_t{0});
      sort(row, places, n, nullptr);
    });
  });
}

const OpDef& extreme_loop(const NumpyApi& np, DType dtype, bool largest) {
  const auto find = reinterpret_cast<ExtremeFunction>(np.array_function(dtype, largest ? kArgmax : kArgmin));
  return host().add(str_cat(largest ? "argmax_" : "argmin_", letter_of(dtype)), [find](const Views& views) {
    for_rows(views, 0, [find](char* row, int64_t n, char* out) {
      find(row, n, reinterpret_cast<Py_ssize_t*>(out), nullptr);
    });
  });
}

const OpDef& places_loop() {
  return host().add("places", [](const Views& views) {
    const int64_t wanted = views[1]->sizes.at(0);
    if (const auto row = one_row(*views[0]); row && views[0]->sizes.size() == 1 && views[1]->strides[0] == 1) {
      auto* to = static_cast<int64_t*>(views[1]->data);
      const int64_t held =
          for_held_in_row(*row, wanted, [to](size_t i, int64_t k) { to[k] = static_cast<int64_t>(i); });
      return stop_unless(held, wanted);
    }
    const int64_t found = for_each_held(*views[0], [&](const std::vector<int64_t>& index, int64_t count) {
      const TensorView& out = *views[1];
      for (size_t d = 0; count < wanted && d < index.size(); ++d) {
        static_cast<int64_t*>(out.data)[count * out.strides[0] + static_cast<int64_t>(d) * out.strides[1]] = index[d];
      }
    });
    stop_unless(found, wanted);
  });
}

const OpDef& picked_loop() {
  return host().add("picked", [](const Views& views) {
    const TensorView &x = *views[0], &mask = *views[1], &out = *views[2];
    const size_t rank = mask.sizes.size();
    if (const auto held = pick_in_rows(x, mask, out)) return stop_unless(*held, out.sizes[0]);
    const int64_t wanted = out.sizes.at(0), item = dtype_size(x.dtype);
    TensorView from = x, to = out;
    from.sizes.erase(from.sizes.begin(), from.sizes.begin() + static_cast<ptrdiff_t>(rank));
    from.strides.erase(from.strides.begin(), from.strides.begin() + static_cast<ptrdiff_t>(rank));
    to.sizes.erase(to.sizes.begin());
    to.strides.erase(to.strides.begin());
    const int64_t found = for_each_held(mask, [&](const std::vector<int64_t>& index, int64_t count) {
      if (count >= wanted) return;
      int64_t offset = 0;
      for (size_t d = 0; d < rank; ++d) offset += index[d] * x.strides[d];
      char* source = static_cast<char*>(x.data) + offset * item;
      char* target = static_cast<char*>(out.data) + count * out.strides[0] * item;
      if (from.sizes.empty()) {
        std::memcpy(target, source, static_cast<size_t>(item));
        return;
      }
      from.data = source;
      to.data = target;
      copy_elements(from, to);
    });
    stop_unless(found, wanted);
  });
}

const OpDef& assign_loop() {
  return host().add("assign", [](const Views& views) {
    const TensorView &x = *views[0], &places = *views[1], &values = *views[2], &out = *views[3];
    copy_elements(x, out);
    const int64_t item = dtype_size(x.dtype);
    TensorView from = values, to = out;
    for (TensorView* view : {&from, &to}) {
      view->sizes.erase(view->sizes.begin());
      view->strides.erase(view->strides.begin());
    }
    for (int64_t i = 0; i < places.sizes[0]; ++i) {
      int64_t at = static_cast<const int64_t*>(places.data)[i * places.strides[0]];
      at += at < 0 ? x.sizes[0] : 0;
      if (at < 0 || at >= x.sizes[0]) throw Unsupported("a place out of range");
      from.data = static_cast<char*>(values.data) + i * values.strides[0] * item;
      to.data = static_cast<char*>(out.data) + at * out.strides[0] * item;
      if (from.sizes.empty()) {
        copy_item(to.data, from.data, item);
      } else {
        copy_elements(from, to);
      }
    }
  });
}

const OpDef& masked_loop(bool again) {
  return host().add(again ? "masked_again" : "masked", [again](const Views& views) {
    const TensorView &mask = *views[1], &values = *views[2], &out = *views[3];
    copy_elements(*views[0], out);
    const int64_t given = values.sizes[0], item = dtype_size(out.dtype);
    const auto row = one_row(mask);
    if (row && one_row(out) && mask.sizes.size() == out.sizes.size() && given > 0 && !again) {
      int64_t held = 0;
      for (size_t i = 0; i < row->size(); ++i) {
        if ((*row)[i] == 0) continue;
        if (held < given) {
          copy_item(static_cast<char*>(out.data) + static_cast<int64_t>(i) * item,
                    static_cast<const char*>(values.data) + held * values.strides[0] * item, item);
        }
        ++held;
      }
      return stop_unless(held, given);
    }
    const int64_t found = for_each_held(mask, [&](const std::vector<int64_t>& index, int64_t count) {
      if (given == 0 || (!again && count >= given)) return;
      int64_t offset = 0;
      for (size_t d = 0; d < index.size(); ++d) offset += index[d] * out.strides[d];
      copy_item(static_cast<char*>(out.data) + offset * item,
                static_cast<const char*>(values.data) + (count < given ? count : count % given) * values.strides[0] * item,
                item);
    });
    if (!again || given == 0) stop_unless(found, given);
  });
}

const OpDef& count_loop(bool last) {
  return host().add(last ? "counts_to_last" : "counts", [last](const Views& views) {
    const TensorView &x = *views[0], &out = *views[1];
    auto* counts = static_cast<int64_t*>(out.data);
    const auto* at = static_cast<const int64_t*>(x.data);
    for (int64_t i = 0; i < out.sizes[0]; ++i) counts[i * out.strides[0]] = 0;
    for (int64_t i = 0; i < x.sizes[0]; ++i) {
      const int64_t number = at[i * x.strides[0]];
      if (number < 0 || number >= out.sizes[0]) throw Unsupported("a number out of range");
      ++counts[number * out.strides[0]];
    }
    if (last) stop_unless(counts[(out.sizes[0] - 1) * out.strides[0]] > 0 ? 1 : 0, 1);
  });
}

namespace {

/// Numbers that differ in order, of which a comparison tells.
template <class T>
int64_t leave_different(T* row, int64_t n) {
  return std::unique(row, row + n) - row;
}

template <class T>
int64_t leave_different(std::complex<T>* row, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    for (const T part : {row[i].real(), row[i].imag()}) {
      if (std::isnan(part) || (part == 0 && std::signbit(part))) throw Unsupported("numbers that equal others");
    }
  }
  return std::unique(row, row + n) - row;
}

template <class T>
int64_t leave_different_in(void* row, int64_t n) {
  return leave_different(static_cast<T*>(row), n);
}

using Leave = int64_t (*)(void* row, int64_t n);
Leave leave_of(DType dtype) {
  if (dtype == DType::kComplex64) return leave_different_in<std::complex<float>>;
  if (dtype == DType::kComplex128) return leave_different_in<std::complex<double>>;
  switch (dtype_size(dtype)) {
    case 1: return leave_different_in<uint8_t>;
    case 2: return leave_different_in<uint16_t>;
    case 4: return leave_different_in<uint32_t>;
    default: return leave_different_in<uint64_t>;
  }
}

}  // namespace

const OpDef& unique_loop(const NumpyApi& np, DType dtype) {
  const auto sort = reinterpret_cast<SortFunction>(np.array_function(dtype, kSort));
  return host().add(str_cat("unique_", letter_of(dtype)), [sort, leave = leave_of(dtype)](const Views& views) {
    TensorView row = *views[0];
    const int64_t n = row.sizes[0], item = dtype_size(row.dtype);
    std::vector<char> elements(static_cast<size_t>(n * item));
    row.data = elements.data();
    row.strides[0] = 1;
    copy_elements(*views[0], row);
    // Where few differ, a table of them is faster than a sort of all.
    constexpr int64_t kFew = 256;
    if (n > kFew && item == 8) {
      std::unordered_set<uint64_t> different;
      auto* all = reinterpret_cast<uint64_t*>(elements.data());
      const auto most = static_cast<size_t>(std::max(kFew, n / 8));
      int64_t i = 0;
      for (; i < n && different.size() <= most; ++i) different.insert(all[i]);
      if (i == n) row.sizes[0] = std::copy(different.begin(), different.end(), all) - all;
    }
    sort(row.data, row.sizes[0], nullptr);
    row.sizes[0] = leave(row.data, row.sizes[0]);
    stop_unless(row.sizes[0], views[1]->sizes[0]);
    copy_elements(row, *views[1]);
  });
}

}  // namespace tatara::capture
