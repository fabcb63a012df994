#include "capture/host/numpy_loops.h"

#include <algorithm>
#include <cfenv>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>

#include "capture/host/numpy_loops_internal.h"
#include "support/error.h"
#include "support/fork.h"
#include "support/str_cat.h"

namespace tatara::capture {
namespace {

constexpr std::string_view kPrefix = "tatara::numpy/";
using Views = LoopViews;
using Body = LoopBody;

TensorView& loop_view(const HostTensor& tensor) { return *static_cast<TensorView*>(tensor.get()); }

class LoopOp final : public HostOp {
 public:
  explicit LoopOp(Body body) : body_(std::move(body)) {}
  std::vector<HostTensor> call(std::span<const HostValue> args) const override {
    Views views;
    for (const HostTensor& tensor : args[0].tensors) views.push_back(&loop_view(tensor));
    for (const HostValue& out : args.subspan(1)) views.push_back(&loop_view(out.tensor));
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
  TensorView view(const HostTensor& tensor) override { return loop_view(tensor); }

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
  ForkSafeMutex mutex_;
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

}  // namespace

std::vector<char*> begins(const LoopViews& views) {
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

void stop_unless(int64_t found, int64_t wanted) {
  if (found != wanted) throw Unsupported("data decide otherwise how large a result is");
}

const OpDef& add_numpy_loop(const std::string& key, LoopBody body) { return host().add(key, std::move(body)); }

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
    for_rows({views[1], views[1]}, 1, [sort](char*, int64_t n, char* out) {
      if (n > 1) sort(out, n, nullptr);  // some read the first element of none
    });
  });
}

const OpDef* argsort_loop(const NumpyApi& np, DType dtype, int kind) {
  const auto sort = reinterpret_cast<ArgsortFunction>(np.array_function(dtype, kArgsort + kind));
  return &host().add(str_cat("argsort_", letter_of(dtype), "_", kind), [sort](const Views& views) {
    for_rows(views, 1, [sort](char* row, int64_t n, char* out) {
      auto* places = reinterpret_cast<Py_ssize_t*>(out);
      std::iota(places, places + n, Py_ssize_t{0});
      if (n > 1) sort(row, places, n, nullptr);
    });
  });
}

const OpDef& extreme_loop(const NumpyApi& np, DType dtype, bool largest) {
  const auto find = reinterpret_cast<ExtremeFunction>(np.array_function(dtype, largest ? kArgmax : kArgmin));
  return host().add(str_cat(largest ? "argmax_" : "argmin_", letter_of(dtype)), [find](const Views& views) {
    for_rows(views, 0,
             [find](char* row, int64_t n, char* out) { find(row, n, reinterpret_cast<Py_ssize_t*>(out), nullptr); });
  });
}

}  // namespace tatara::capture
