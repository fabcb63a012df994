// The NumPy of this process as capture sees it: types, metadata of arrays without Python, new arrays. NumPy is no build
// dependency: the parts of its C interface that are used are declared here (NumPy 2's ABI).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "capture/host/torch_api.h"
#include "ir/dtype.h"

namespace tatara::capture {

/// TensorMeta::device_type of NumPy arrays and scalars; device_id then tells whether the array is writeable.
inline constexpr int32_t kNumpyDevice = 101;

/// Which floating-point faults np.errstate does not leave unseen.
struct FloatFaults {
  bool divide = false, over = false, invalid = false;
  bool any() const { return divide || over || invalid; }
  bool all() const { return divide && over && invalid; }
};

class NumpyApi {
 public:
  /// Null while NumPy is not imported.
  static NumpyApi* get();

  bool is_array(PyObject* o) const { return Py_TYPE(o) == array_type_; }
  /// Arrays and instances of subclasses.
  bool is_any_array(PyObject* o) const { return PyObject_TypeCheck(o, array_type_) != 0; }
  bool is_scalar(PyObject* o) const { return PyObject_TypeCheck(o, generic_type_) != 0; }
  bool is_scalar_type(PyObject* o) const {
    return PyType_Check(o) && PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(o), generic_type_) != 0;
  }
  bool is_dtype(PyObject* o) const { return PyObject_TypeCheck(o, descr_type_) != 0; }
  bool is_ufunc(PyObject* o) const { return Py_TYPE(o) == ufunc_type_; }
  /// Functions that honour __array_function__: np.sum, np.concatenate, ...
  bool is_dispatcher(PyObject* o) const { return Py_TYPE(o) == dispatcher_type_; }
  bool is_bool_scalar(PyObject* o) const { return Py_TYPE(o) == bool_type_; }
  PyObject* array_type() const { return reinterpret_cast<PyObject*>(array_type_); }

  /// Metadata in elements; scalars count as arrays without dimensions. False for element types that the graph has not,
  /// foreign byte orders, unaligned memory, and strides that are no multiple of the element.
  bool read_meta(PyObject* o, TensorMeta& out) const;
  bool matches(PyObject* o, const TensorMeta& expected, void** data) const;
  /// Shape, strides (elements) and element type of an array or scalar; false as for read_meta.
  bool describe(PyObject* o, DType& dtype, std::vector<int64_t>& sizes, std::vector<int64_t>& strides) const;
  bool writeable(PyObject* array) const;
  /// Memory of the array.
  static void* data(PyObject* array);
  static int64_t size_of(PyObject* array);
  static int ndim(PyObject* array);
  static int64_t dim(PyObject* array, int i);
  static bool owns_memory(PyObject* array);
  static void forbid_writes(PyObject* array);
  /// Null: it has none.
  static PyObject* base(PyObject* array);
  /// Its memory is reached through this array only.
  bool fresh_memory(PyObject* array) const;

  /// A fresh array; strides in elements, dense.
  Ref new_array(DType dtype, std::span<const int64_t> sizes, std::span<const int64_t> strides) const;
  /// A view of memory that `base` owns.
  Ref view(PyObject* base, void* data, DType dtype, std::span<const int64_t> sizes,
           std::span<const int64_t> strides) const;
  /// A NumPy scalar from memory.
  Ref scalar(void* data, DType dtype) const;
  /// Whether code in Python, which nobody would see, tells NumPy of the object's elements.
  bool makes_array(PyObject* o) const;
  /// An array without dimensions holding the scalar's value.
  Ref array_of(PyObject* scalar) const;
  /// A function of PyArray_ArrFuncs for elements of this type, by its place there (sorts, places of extremes).
  void* array_function(DType dtype, int place) const;

  /// np.errstate of this context: an opaque object that changes with it. New reference.
  Ref errstate() const;
  /// Runs `fn` under an errstate that errstate() gave; null: the present one.
  Ref call_with(PyObject* errstate, PyObject* fn, PyObject* args, PyObject* kwargs) const;
  /// Whether both ask for the same; objects as errstate() gives them, null for none.
  bool same_errstate(PyObject* a, PyObject* b) const;
  /// Faults that are to be seen, under an errstate as errstate() gives it.
  FloatFaults faults(PyObject* errstate) const;
  /// Whether underflow, which kernels do not notice, is to be seen: then each operation runs by NumPy.
  bool sees_underflow(PyObject* errstate) const;
  /// False when a floating-point fault shall raise, call or print.
  bool allows_kernels(PyObject* errstate) const;
  /// Two scalars (or dtypes) of one type with the same value, NaNs and signed zeros by their bits.
  bool same_bytes(PyObject* a, PyObject* b) const;

  Ref numpy;
  std::string folder;  // of its modules in Python

 private:
  bool load();
  Ref descr(DType dtype) const;
  void** table_ = nullptr;
  PyTypeObject *array_type_ = nullptr, *generic_type_ = nullptr, *descr_type_ = nullptr, *ufunc_type_ = nullptr,
               *dispatcher_type_ = nullptr, *bool_type_ = nullptr;
  std::string errstate_text(PyObject* errstate) const;
  Ref errstate_var_, errstate_dict_;
};

/// Element type for a NumPy type number; false for object, text, dates, long double.
bool dtype_of_type_num(int num, DType& out);

}  // namespace tatara::capture
