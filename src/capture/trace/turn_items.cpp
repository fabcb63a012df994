#include "capture/trace/turn_items.h"

#include <algorithm>

#include "support/made_once.h"

namespace tatara::capture {
namespace {

constexpr int64_t kLargest = int64_t{1} << 61;

Ref reduced(PyObject* iterator) {
  static PyObject* const name = PyUnicode_InternFromString("__reduce__");
  Ref made = Ref::steal(PyObject_CallMethodNoArgs(iterator, name));
  if (!made) forget_error();
  const bool plain = made && PyTuple_CheckExact(made.get()) && PyTuple_GET_SIZE(made.get()) >= 2 &&
                     PyTuple_CheckExact(PyTuple_GET_ITEM(made.get(), 1));
  return plain ? made : Ref();
}

std::optional<int64_t> whole(PyObject* number) {
  int overflow = 0;
  if (number == nullptr || !PyLong_CheckExact(number)) return std::nullopt;
  const long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
  if (overflow != 0 || value > kLargest || value < -kLargest) return std::nullopt;
  return value;
}

bool read_sequence(PyObject* iterator, std::vector<TurnItems>& items) {
  const Ref parts = reduced(iterator);
  if (!parts || PyTuple_GET_SIZE(parts.get()) < 3) return false;
  PyObject* const args = PyTuple_GET_ITEM(parts.get(), 1);
  const std::optional<int64_t> index = whole(PyTuple_GET_ITEM(parts.get(), 2));
  PyObject* const sequence = PyTuple_GET_SIZE(args) == 1 ? PyTuple_GET_ITEM(args, 0) : nullptr;
  if (!index || sequence == nullptr || !(PyTuple_CheckExact(sequence) || PyList_CheckExact(sequence))) return false;
  const bool back = Py_TYPE(iterator) == &PyListRevIter_Type || Py_TYPE(iterator) == &PyReversed_Type;
  const int64_t size = PySequence_Fast_GET_SIZE(sequence);
  TurnItems made;
  made.sequence = Ref::borrow(sequence);
  made.first = *index;
  made.step = back ? -1 : 1;
  made.left = back ? *index + 1 : std::max<int64_t>(size - *index, 0);
  items.push_back(std::move(made));
  return true;
}

}  // namespace

PyObject* TurnItems::at(int64_t turn) const {
  const int64_t place = first + step * turn;
  return place >= 0 && place < PySequence_Fast_GET_SIZE(sequence.get())
             ? PySequence_Fast_GET_ITEM(sequence.get(), static_cast<Py_ssize_t>(place))
             : nullptr;
}

bool read_items(PyObject* iterator, std::vector<TurnItems>& items) {
  const PyTypeObject* type = Py_TYPE(iterator);
  if (type == &PyRangeIter_Type) {
    TurnItems made;
    made.left = PyObject_LengthHint(iterator, 0);
    items.push_back(std::move(made));
    return true;
  }
  if (type == &PyTupleIter_Type || type == &PyListIter_Type || type == &PyListRevIter_Type || type == &PyReversed_Type)
    return read_sequence(iterator, items);
  if (type != &PyEnum_Type && type != &PyZip_Type) return false;
  const Ref parts = reduced(iterator);
  if (!parts) return false;
  PyObject* const args = PyTuple_GET_ITEM(parts.get(), 1);
  if (type == &PyZip_Type) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) {
      if (!read_items(PyTuple_GET_ITEM(args, i), items)) return false;
    }
    return PyTuple_GET_SIZE(args) > 0;
  }
  if (PyTuple_GET_SIZE(args) != 2 || !whole(PyTuple_GET_ITEM(args, 1))) return false;
  TurnItems numbers;
  numbers.left = INT64_MAX;
  items.push_back(std::move(numbers));
  return read_items(PyTuple_GET_ITEM(args, 0), items);
}

int64_t turns_left(const std::vector<TurnItems>& items) {
  int64_t left = INT64_MAX;
  for (const TurnItems& each : items) left = std::min(left, each.left);
  return left;
}

void flatten_item(PyObject* item, std::vector<Ref>& parts) {
  if (!PyTuple_CheckExact(item)) return parts.push_back(Ref::borrow(item));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(item); ++i) flatten_item(PyTuple_GET_ITEM(item, i), parts);
}

std::optional<int64_t> step_between(const Ref& before, const Ref& after) {
  const std::optional<int64_t> a = whole(before.get()), b = whole(after.get());
  return a && b ? std::optional(*b - *a) : std::nullopt;
}

}  // namespace tatara::capture
