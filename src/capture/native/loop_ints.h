// Types that numbers are computed in, and arithmetic of ints that are not known when the code is read. What leaves 64 bits (of
// Python's ints) or its type (of NumPy's) stops the kernel.
#pragma once

#include "capture/native/loop_values.h"

namespace tatara::capture::native {

/// The type of two that have one. Throws Unsupported for some.
DType joined_types(DType a, DType b);
/// The type in which Python or NumPy computes with both, numbers or arrays; `/` gives floats.
DType joined(const Value& a, const Value& b);
Strength joined_strength(Strength a, Strength b);
/// An int of Python's, or a float of Python's.
bool is_python_int(const Value& value);
/// An int of Python's, or an int64 that may be one.
bool is_loose_int(const Value& value);

/// The scalar operator for one of `+ - * /`.
std::optional<loops::ScalarOp> scalar_operator(int op);
/// `a op b` of int64, as Python has it; `range` is what b is within.
ScalarId python_int(LoopBuilder& builder, int op, ScalarId a, ScalarId b, const IntRange& range);
/// `a op b` of ints of NumPy's of one type.
ScalarId numpy_int(LoopBuilder& builder, int op, ScalarId a, ScalarId b);
/// The kernel stops where the int is beyond this power of two, on either side.
void stop_beyond(LoopBuilder& builder, ScalarId value, int bits);
/// A float as an int, towards zero.
ScalarId truncated(LoopBuilder& builder, ScalarId value);

}  // namespace tatara::capture::native
