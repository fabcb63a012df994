#include "capture/entries/number_ranges.h"

#include "capture/host/object_kinds.h"

namespace tatara::capture {

bool other_number(PyObject* before, PyObject* now) {
  if (before == nullptr || now == nullptr) return false;
  const bool ints = PyLong_CheckExact(before) && PyLong_CheckExact(now);
  const bool floats = PyFloat_CheckExact(before) && PyFloat_CheckExact(now);
  return (ints || floats) && !same_value(before, now);
}

namespace {

constexpr int64_t kUsual = int64_t{1} << 31;    // products of two such numbers fit in 64 bits
constexpr int64_t kLargest = int64_t{1} << 62;  // and sums of two of these

/// Numbers are in the smallest of these ranges, so that little arithmetic with them needs a guard against overflow.
IntRange range_around(int64_t value) {
  const int64_t most = value >= -kUsual && value <= kUsual ? kUsual : kLargest;
  return {-most, most};
}

}  // namespace

bool any_number_range(PyObject* number, IntRange& range) {
  if (!PyLong_CheckExact(number)) return false;
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
  range = range_around(value);
  return overflow == 0 && value >= range.lo && value <= range.hi;
}

IntRange size_range(int64_t size) { return {2, size <= kUsual ? kUsual : kLargest}; }

bool number_range(PyObject* number, IntRange& range) {
  if (!any_number_range(number, range)) return false;
  const long long value = PyLong_AsLongLong(number);
  range = value > 0 ? IntRange{2, range.hi} : IntRange{range.lo, -1};
  return value != 0 && value != 1;
}

}  // namespace tatara::capture
