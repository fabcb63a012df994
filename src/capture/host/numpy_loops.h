// NumPy's own inner loops as operators of a plan, without Python: those of ufuncs (also of numpy.linalg and numpy.fft), its sorts, and
// the places that a mask picks. Operands and results are views of the plan's memory.
#pragma once

#include <string>
#include <vector>

#include "capture/host/numpy_api.h"
#include "ops/core/op_def.h"
#include "runtime/host/host.h"

namespace tatara::capture {

/// The host that plans of NumPy's calls run with.
HostOps& numpy_host();
/// Whether the plan step is one of those calls.
bool is_numpy_loop(const std::string& host_name);

/// A ufunc as its signature tells it.
struct UfuncShape {
  int inputs = 0, outputs = 0;
  std::vector<int> core_dims;  // of each operand
  bool has_core = false;
};
UfuncShape shape_of_ufunc(PyObject* ufunc);

/// The operator of the ufunc's loop for elements of these types (inputs, then outputs). It stops the plan at a fault that is watched,
/// for NumPy to tell of. `in_place`: the loop also writes to its first operand, of which a copy is one more result. Null: no such loop.
/// The result lives as long as the process.
const OpDef* ufunc_loop(PyObject* ufunc, const std::vector<DType>& types, FloatFaults watched, bool in_place);

/// The ufunc's reduction along the last dimension, from its first element on; faults as above.
const OpDef* reduction_loop(PyObject* ufunc, DType dtype, FloatFaults watched);

/// Rows in order, by NumPy's algorithm number `kind`; or the places of their elements in order.
const OpDef& sort_loop(const NumpyApi& np, DType dtype, int kind);
const OpDef* argsort_loop(const NumpyApi& np, DType dtype, int kind);
/// The place of the largest or smallest element of each row.
const OpDef& extreme_loop(const NumpyApi& np, DType dtype, bool largest);

/// The places where a mask holds, a row of indices each. The plan stops where there are more or fewer than the result has rows.
const OpDef& places_loop();
/// The items (of the dimensions behind the mask's) where a mask holds; it stops likewise.
const OpDef& picked_loop();

/// The array with rows of values at places along its first dimension, in their order; it stops at a place that is none.
const OpDef& assign_loop();
/// The array with values, one after the other, where a mask holds. `again`: from the first one on behind the last, else the plan stops
/// where there are more or fewer.
const OpDef& masked_loop(bool again);
/// How often each number of an array is there, up to the size of the result. It stops at others. `last`: also where the last one is
/// not there.
const OpDef& count_loop(bool last);
/// Different elements in order, none of which is a NaN or a zero below zero; it stops where there are more or fewer than results.
const OpDef& unique_loop(const NumpyApi& np, DType dtype);

}  // namespace tatara::capture
