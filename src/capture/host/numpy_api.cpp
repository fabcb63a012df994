#include "capture/host/numpy_api.h"

#include <algorithm>
#include <new>

namespace tatara::capture {
namespace {

// ndarrayobject.h and ndarraytypes.h of NumPy 2.
struct Descr {
  PyObject_HEAD PyTypeObject* typeobj;
  char kind, type, byteorder, former_flags;
  int type_num;
};
struct ArrayFields {
  PyObject_HEAD char* data;
  int nd;
  Py_ssize_t *dimensions, *strides;
  PyObject* base;
  Descr* descr;
  int flags;
};

constexpr int kOwnData = 0x4;
constexpr int kAligned = 0x100;
constexpr int kWriteable = 0x400;

// Places in the table of the C interface: part of NumPy's ABI.
enum TableIndex {
  kDescrFromType = 45,
  kScalar = 60,
  kFromScalar = 61,
  kNewFromDescr = 94,
  kSetBaseObject = 282,
  kGetArrFuncs = 365
};
using DescrFromTypeFn = PyObject* (*)(int);
using ScalarFn = PyObject* (*)(void*, PyObject*, PyObject*);
using FromScalarFn = PyObject* (*)(PyObject*, PyObject*);
using NewFromDescrFn = PyObject* (*)(PyTypeObject*, PyObject*, int, const Py_ssize_t*, const Py_ssize_t*, void*, int,
                                     PyObject*);
using GetArrFuncsFn = void** (*)(PyObject*);
using SetBaseObjectFn = int (*)(PyObject*, PyObject*);

ArrayFields* fields(PyObject* o) { return reinterpret_cast<ArrayFields*>(o); }

int type_num_of(DType dtype) {
  switch (dtype) {
    case DType::kBool: return 0;
    case DType::kInt8: return 1;
    case DType::kUInt8: return 2;
    case DType::kInt16: return 3;
    case DType::kUInt16: return 4;
    case DType::kInt32: return 5;
    case DType::kUInt32: return 6;
    case DType::kInt64: return 7;
    case DType::kUInt64: return 8;
    case DType::kFloat32: return 11;
    case DType::kFloat64: return 12;
    case DType::kComplex64: return 14;
    case DType::kComplex128: return 15;
    case DType::kFloat16: return 23;
    case DType::kBFloat16:
    case DType::kComplex32:
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E5M2: return -1;
  }
  return -1;
}

/// DLPack's code of an element type.
uint8_t code_of(DType dtype) {
  if (dtype == DType::kBool) return 6;
  if (is_complex(dtype)) return 5;
  if (is_floating(dtype)) return 2;
  return is_signed(dtype) ? 0 : 1;
}

bool describe_array(PyObject* o, DType& dtype) {
  const ArrayFields* a = fields(o);
  if (!dtype_of_type_num(a->descr->type_num, dtype)) return false;
  if (a->descr->byteorder != '=' && a->descr->byteorder != '|') return false;
  if ((a->flags & kAligned) == 0) return false;
  const Py_ssize_t size = dtype_size(dtype);
  return std::all_of(a->strides, a->strides + a->nd, [size](Py_ssize_t s) { return s % size == 0; });
}

}  // namespace

bool dtype_of_type_num(int num, DType& out) {
  static constexpr DType kTypes[] = {DType::kBool,  DType::kInt8,   DType::kUInt8, DType::kInt16, DType::kUInt16,
                                     DType::kInt32, DType::kUInt32, DType::kInt64, DType::kUInt64};
  static_assert(sizeof(long) == 8, "NumPy's long is taken for int64");
  if (num >= 0 && num <= 8) {
    out = kTypes[num];
    return true;
  }
  switch (num) {
    case 11: out = DType::kFloat32; return true;
    case 12: out = DType::kFloat64; return true;
    case 14: out = DType::kComplex64; return true;
    case 15: out = DType::kComplex128; return true;
    case 23: out = DType::kFloat16; return true;
    default: return false;  // long long (a type of its own), long double, object, text, dates
  }
}

NumpyApi* NumpyApi::get() {
  static NumpyApi* api = nullptr;
  if (api != nullptr) return api;
  PyObject* modules = PyImport_GetModuleDict();
  if (PyDict_GetItemString(modules, "numpy") == nullptr) return nullptr;
  auto* made = new NumpyApi;  // lives as long as the process
  if (!made->load()) {
    forget_error();
    delete made;
    return nullptr;  // in the middle of its import
  }
  if (api == nullptr) {
    api = made;
  } else {
    delete made;  // loading runs Python code: another thread was faster
  }
  return api;
}

bool NumpyApi::load() {
  numpy = Ref::steal(PyImport_ImportModule("numpy"));
  const Ref core = Ref::steal(PyImport_ImportModule("numpy._core._multiarray_umath"));
  if (!numpy || !core) return false;
  const std::string file = text_of(attr_or_null(numpy.get(), "__file__").get());
  folder = file.substr(0, file.rfind('/') + 1);
  const Ref array = attr(numpy.get(), "ndarray"), generic = attr(numpy.get(), "generic"),
            dtype = attr(numpy.get(), "dtype"), ufunc = attr(numpy.get(), "ufunc"),
            boolean = attr(numpy.get(), "bool_"), sum = attr(numpy.get(), "sum"),
            table = attr(core.get(), "_ARRAY_API");
  errstate_var_ = attr(core.get(), "_extobj_contextvar");
  errstate_dict_ = attr(core.get(), "_get_extobj_dict");
  if (!array || !generic || !dtype || !ufunc || !boolean || !sum || !table || !errstate_var_ || !errstate_dict_) {
    return false;
  }
  table_ = static_cast<void**>(PyCapsule_GetPointer(table.get(), nullptr));
  const auto type = [](const Ref& r) { return reinterpret_cast<PyTypeObject*>(Py_NewRef(r.get())); };
  array_type_ = type(array);
  generic_type_ = type(generic);
  descr_type_ = type(dtype);
  ufunc_type_ = type(ufunc);
  bool_type_ = type(boolean);
  dispatcher_type_ = reinterpret_cast<PyTypeObject*>(Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(sum.get()))));
  return table_ != nullptr;
}

bool NumpyApi::describe(PyObject* o, DType& dtype, std::vector<int64_t>& sizes, std::vector<int64_t>& strides) const {
  sizes.clear();
  strides.clear();
  if (is_array(o)) {
    if (!describe_array(o, dtype)) return false;
    const ArrayFields* a = fields(o);
    sizes.assign(a->dimensions, a->dimensions + a->nd);
    for (int i = 0; i < a->nd; ++i) strides.push_back(a->strides[i] / dtype_size(dtype));
    return true;
  }
  if (!is_scalar(o)) return false;
  const Ref descr = attr_or_null(o, "dtype");
  return descr && is_dtype(descr.get()) && dtype_of_type_num(reinterpret_cast<Descr*>(descr.get())->type_num, dtype) &&
         reinterpret_cast<Descr*>(descr.get())->typeobj == Py_TYPE(o);
}

bool NumpyApi::read_meta(PyObject* o, TensorMeta& out) const {
  DType dtype = DType::kFloat32;
  if (!describe(o, dtype, out.sizes, out.strides)) return false;
  out.code = code_of(dtype);
  out.bits = static_cast<uint8_t>(8 * dtype_size(dtype));
  out.device_type = kNumpyDevice;
  out.device_id = writeable(o) ? 1 : 0;
  out.data = is_array(o) ? fields(o)->data : nullptr;
  return true;
}

bool NumpyApi::matches(PyObject* o, const TensorMeta& expected, void** data) const {
  DType dtype = DType::kFloat32;
  if (expected.device_type != kNumpyDevice) return false;
  if (!is_array(o)) {
    TensorMeta now;
    return read_meta(o, now) && now == expected;
  }
  if (!describe_array(o, dtype)) return false;
  const ArrayFields* a = fields(o);
  if (data != nullptr) *data = a->data;
  if (expected.code != code_of(dtype) || expected.bits != 8 * dtype_size(dtype) ||
      expected.device_id != (writeable(o) ? 1 : 0) || a->nd != static_cast<int>(expected.sizes.size())) {
    return false;
  }
  for (int i = 0; i < a->nd; ++i) {
    const auto at = static_cast<size_t>(i);
    if (a->dimensions[i] != expected.sizes[at] || a->strides[i] != expected.strides[at] * dtype_size(dtype)) {
      return false;
    }
  }
  return true;
}

bool NumpyApi::writeable(PyObject* o) const { return is_any_array(o) && (fields(o)->flags & kWriteable) != 0; }
void* NumpyApi::data(PyObject* array) { return fields(array)->data; }
int NumpyApi::ndim(PyObject* array) { return fields(array)->nd; }
int64_t NumpyApi::dim(PyObject* array, int i) { return fields(array)->dimensions[i]; }
bool NumpyApi::owns_memory(PyObject* array) { return (fields(array)->flags & kOwnData) != 0; }

void NumpyApi::forbid_writes(PyObject* array) { fields(array)->flags &= ~kWriteable; }
PyObject* NumpyApi::base(PyObject* array) { return fields(array)->base; }

bool NumpyApi::fresh_memory(PyObject* array) const {
  PyObject* base = fields(array)->base;
  return owns_memory(array) || (base != nullptr && is_array(base) && Py_REFCNT(base) == 1 && owns_memory(base));
}

int64_t NumpyApi::size_of(PyObject* array) {
  int64_t size = 1;
  for (int i = 0; i < ndim(array); ++i) size *= dim(array, i);
  return size;
}

Ref NumpyApi::descr(DType dtype) const {
  return Ref::steal(reinterpret_cast<DescrFromTypeFn>(table_[kDescrFromType])(type_num_of(dtype)));
}

Ref NumpyApi::view(PyObject* base, void* data, DType dtype, std::span<const int64_t> sizes,
                   std::span<const int64_t> strides) const {
  std::vector<Py_ssize_t> bytes;
  for (const int64_t s : strides) bytes.push_back(s * dtype_size(dtype));
  // The descriptor's reference goes to the array.
  const std::vector<Py_ssize_t> dims(sizes.begin(), sizes.end());
  Ref made = Ref::steal(reinterpret_cast<NewFromDescrFn>(table_[kNewFromDescr])(
      array_type_, descr(dtype).release(), static_cast<int>(dims.size()), dims.data(), bytes.data(), data,
      writeable(base) ? kWriteable : 0, nullptr));
  if (!made) return {};
  if (reinterpret_cast<SetBaseObjectFn>(table_[kSetBaseObject])(made.get(), Py_NewRef(base)) != 0) return {};
  return made;
}

Ref NumpyApi::new_array(DType dtype, std::span<const int64_t> sizes, std::span<const int64_t> strides) const {
  const std::vector<Py_ssize_t> dims(sizes.begin(), sizes.end());
  std::vector<Py_ssize_t> bytes;
  for (const int64_t s : strides) bytes.push_back(s * dtype_size(dtype));
  return Ref::steal(reinterpret_cast<NewFromDescrFn>(table_[kNewFromDescr])(array_type_, descr(dtype).release(),
                                                                            static_cast<int>(dims.size()), dims.data(),
                                                                            bytes.data(), nullptr, 0, nullptr));
}

Ref NumpyApi::scalar(void* data, DType dtype) const {
  const Ref type = descr(dtype);
  return Ref::steal(reinterpret_cast<ScalarFn>(table_[kScalar])(data, type.get(), nullptr));
}

Ref NumpyApi::array_of(PyObject* scalar) const {
  return Ref::steal(reinterpret_cast<FromScalarFn>(table_[kFromScalar])(scalar, nullptr));
}

void* NumpyApi::array_function(DType dtype, int place) const {
  return reinterpret_cast<GetArrFuncsFn>(table_[kGetArrFuncs])(descr(dtype).get())[place];
}

Ref NumpyApi::errstate() const {
  PyObject* value = nullptr;
  if (PyContextVar_Get(errstate_var_.get(), nullptr, &value) != 0) forget_error();
  return Ref::steal(value);
}

Ref NumpyApi::call_with(PyObject* errstate, PyObject* fn, PyObject* args, PyObject* kwargs) const {
  if (errstate == nullptr) return Ref::steal(PyObject_Call(fn, args, kwargs));
  const Ref token = Ref::steal(PyContextVar_Set(errstate_var_.get(), errstate));
  if (!token) return {};
  Ref result = Ref::steal(PyObject_Call(fn, args, kwargs));
  const ErrorAside aside;
  if (PyContextVar_Reset(errstate_var_.get(), token.get()) != 0) forget_error();
  return result;
}

std::string NumpyApi::errstate_text(PyObject* errstate) const {
  const ErrorAside aside;
  const Ref none = Ref::steal(PyTuple_New(0));
  const Ref dict = call_with(errstate, errstate_dict_.get(), none.get(), nullptr);
  const Ref text = Ref::steal(dict ? PyObject_Repr(dict.get()) : nullptr);
  if (!text) forget_error();
  return text_of(text.get());
}

bool NumpyApi::same_errstate(PyObject* a, PyObject* b) const {
  return a == b || (a != nullptr && b != nullptr && errstate_text(a) == errstate_text(b));
}

FloatFaults NumpyApi::faults(PyObject* errstate) const {
  const std::string text = errstate_text(errstate);
  const auto seen = [&text](const char* ignored) { return text.find(ignored) == std::string::npos; };
  return {seen("'divide': 'ignore'"), seen("'over': 'ignore'"), seen("'invalid': 'ignore'")};
}

bool NumpyApi::sees_underflow(PyObject* errstate) const {
  return errstate_text(errstate).find("'under': 'ignore'") == std::string::npos;
}

bool NumpyApi::allows_kernels(PyObject* errstate) const {
  const std::string text = errstate_text(errstate);
  for (const char* mode : {": 'raise'", ": 'call'", ": 'print'", ": 'log'"}) {
    if (text.find(mode) != std::string::npos) return false;
  }
  return true;
}

bool NumpyApi::makes_array(PyObject* o) const {
  if (PyType_Check(o) || is_scalar(o) || is_dtype(o) || PyTuple_Check(o) || PyList_Check(o)) return false;
  PyTypeObject* const type = Py_TYPE(o);
  if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0) return false;
  static PyObject* const method = PyUnicode_InternFromString("__array__");
  static PyObject* const get = PyUnicode_InternFromString("__getitem__");
  static PyObject* const length = PyUnicode_InternFromString("__len__");
  if (_PyType_Lookup(type, method) != nullptr) return true;
  return _PyType_Lookup(type, get) != nullptr && _PyType_Lookup(type, length) != nullptr;
}

bool NumpyApi::same_bytes(PyObject* a, PyObject* b) const {
  if (a == b) return true;
  if (is_dtype(a)) return PyObject_RichCompareBool(a, b, Py_EQ) == 1;
  const Ref x = Ref::steal(PyObject_CallMethod(a, "tobytes", nullptr)),
            y = Ref::steal(PyObject_CallMethod(b, "tobytes", nullptr));
  const bool same = x && y && PyObject_RichCompareBool(x.get(), y.get(), Py_EQ) == 1;
  forget_error();
  return same;
}

}  // namespace tatara::capture
