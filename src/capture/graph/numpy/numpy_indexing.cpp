// Rules of a[key] and a[key] = value.
#include <algorithm>

#include "capture/graph/numpy/numpy_rules_internal.h"
#include "support/error.h"

namespace tatara::capture {
namespace {

using ArrayRef = NumpyGraph::ArrayRef;

struct Indexed {
  ArrayRef base = -1;  // after the basic part of the key
  TensorList tensors;  // kNoValue: a full slice
  bool advanced = false;
};

std::vector<PyObject*> items_of(PyObject* key) {
  std::vector<PyObject*> items;
  if (PyTuple_Check(key)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i) items.push_back(PyTuple_GET_ITEM(key, i));
  } else {
    items.push_back(key);
  }
  return items;
}

/// A slice by Python's own arithmetic.
ArrayRef take_slice(const NumpyRules& g, ArrayRef base, int64_t dim, PyObject* slice) {
  Py_ssize_t start = 0, stop = 0, step = 0;
  if (PySlice_Unpack(slice, &start, &stop, &step) != 0) {
    forget_error();
    throw Unsupported("the bounds of a slice");
  }
  if (step < 0) throw Unsupported("a slice that runs backwards");
  const int64_t size = g.fz().type(base).sizes[static_cast<size_t>(dim)].const_value();
  const Py_ssize_t count = PySlice_AdjustIndices(size, &start, &stop, step);
  if (start == 0 && step == 1 && count == size) return base;
  if (count == 0) stop = start;
  return g.view("slice",
                {TensorArg{base}, Scalar(dim), Scalar(int64_t{start}), Scalar(int64_t{stop}), Scalar(int64_t{step})});
}

Indexed index(const NumpyRules& g, PyObject* array, PyObject* key) {
  Indexed result{g.tensor(array), {}, false};
  const std::vector<PyObject*> items = items_of(key);
  const auto rank = static_cast<int64_t>(g.fz().type(result.base).dim());
  int64_t taken = 0;
  bool numbers = false, ellipsis = false;
  for (PyObject* item : items) {
    taken += item != Py_None && item != Py_Ellipsis ? 1 : 0;
    numbers = numbers || PyLong_CheckExact(item);
  }
  int64_t dim = 0;
  const auto full = [&result] { result.tensors.values.push_back(kNoValue); };
  for (PyObject* item : items) {
    if (item == Py_None) {
      result.base = g.view("unsqueeze", {TensorArg{result.base}, Scalar(dim++)});
      full();
    } else if (item == Py_Ellipsis) {
      if (ellipsis) throw Unsupported("two ellipses");
      ellipsis = true;
      for (int64_t i = 0; i < rank - taken; ++i) full();
      dim += rank - taken;
    } else if (PySlice_Check(item)) {
      result.base = take_slice(g, result.base, dim++, item);
      full();
    } else if (PyLong_CheckExact(item)) {
      result.base = g.view("select", {TensorArg{result.base}, Scalar(dim), Scalar(int64_t{PyLong_AsLongLong(item)})});
    } else if (slot_of(item) >= 0) {
      const ValueId indices = g.read(item);
      if (!is_integral(g.b().type(indices).dtype)) throw Unsupported("an index of this type");
      result.tensors.values.push_back(g.fz().fresh(g.b().cast(indices, DType::kInt64)));
      result.advanced = true;
      ++dim;
    } else {
      throw Unsupported("an index of type " + type_name(item));
    }
  }
  // NumPy counts numbers among the arrays then, which moves the result's axes.
  if (result.advanced && numbers) throw Unsupported("an index of numbers and arrays");
  return result;
}

/// a[key] of slices and numbers, where some run backwards or the array does. False: it is none.
bool reversed(const NumpyRules& g, const TapeNode& node, PyObject* array, PyObject* key) {
  const std::vector<PyObject*> items = items_of(key);
  const TapeSlot& from = g.slot(array);
  ArrayRef base = g.tensor(array);
  if (items.size() > g.fz().type(base).sizes.size() || g.result(node).fresh || g.result(node).scalar) return false;
  std::vector<int64_t> dims;
  int64_t offset = 0, d = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    Py_ssize_t start = 0, stop = 0, step = 0;
    const int64_t size = g.fz().type(base).sizes[static_cast<size_t>(d)].const_value();
    const int64_t stride = PyLong_AsLongLong(PyTuple_GET_ITEM(from.strides.get(), static_cast<Py_ssize_t>(i)));
    if (PyLong_CheckExact(items[i])) {
      int64_t at = PyLong_AsLongLong(items[i]);
      at += at < 0 ? size : 0;
      offset += at * stride;
      base = g.view("select", {TensorArg{base}, Scalar(d), Scalar(at)});
      continue;
    }
    if (!PySlice_Check(items[i])) return false;
    if (PySlice_Unpack(items[i], &start, &stop, &step) != 0) return forget_error(), false;
    const Py_ssize_t count = PySlice_AdjustIndices(size, &start, &stop, step);
    if (count == 0) return false;
    offset += start * stride;
    if (step < 0) {
      dims.push_back(d);
      start += (count - 1) * step;
      step = -step;
    }
    base = g.view("slice", {TensorArg{base}, Scalar(d), Scalar(int64_t{start}),
                            Scalar(int64_t{start + (count - 1) * step + 1}), Scalar(int64_t{step})});
    ++d;
  }
  if (dims.empty() && !g.is_copy(base)) return false;
  if (!dims.empty()) base = g.flipped(base, dims);
  g.set_late_view(node, slot_of(array), offset, dims.empty() ? g.fz().fresh(g.fz().read(base)) : base);
  return true;
}

void rule_get_item(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  PyObject* array = PyTuple_GET_ITEM(node.args.get(), 0);
  PyObject* const key = PyTuple_GET_ITEM(node.args.get(), 1);
  if (slot_of(key) >= 0 && g.slot_dtype(key) == DType::kBool) {
    return g.set_value(node, 0, picked_by_mask(g, array, key, node));
  }
  if (reversed(g, node, array, key)) return;
  Indexed indexed = index(g, array, key);
  const ArrayRef source = g.tensor(array);
  if (!indexed.advanced) {
    if (indexed.base == source) indexed.base = g.view("alias", {TensorArg{source}});
    return g.set_result(node, 0, indexed.base);
  }
  if (!g.result(node).fresh && !g.result(node).scalar) throw Unsupported("a view at a position that is a value");
  g.set_result(node, 0, g.view("index", {TensorArg{indexed.base}, std::move(indexed.tensors)}));
}

/// a[mask] = number, where the mask has a's shape.
bool masked_fill(const NumpyRules& g, PyObject* array, PyObject* key, PyObject* value) {
  if (slot_of(key) < 0) return false;
  const ArrayRef target = g.tensor(array), mask = g.tensor(key);
  if (g.fz().type(mask).dtype != DType::kBool) return false;
  if (g.fz().type(mask).sizes != g.fz().type(target).sizes) throw Unsupported("a mask of another shape");
  const DType dtype = g.fz().type(target).dtype;
  const bool one = slot_of(value) < 0 || g.fz().type(g.tensor(value)).dim() == 0;
  if (!one && assign_by_mask(g, target, g.fz().read(mask), value)) return true;
  if (!one) throw Unsupported("values for a mask");
  const ValueId fill = g.as_dtype(value, dtype);
  g.write_ref(target, g.b().where(g.fz().read(mask), fill, g.fz().read(target)));
  return true;
}

void rule_set_item(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  PyObject* array = PyTuple_GET_ITEM(node.args.get(), 0);
  PyObject* key = PyTuple_GET_ITEM(node.args.get(), 1);
  PyObject* value = PyTuple_GET_ITEM(node.args.get(), 2);
  if (masked_fill(g, array, key, value)) return;
  if (slot_of(key) >= 0 && is_integral(g.slot_dtype(key))) {
    const ValueId places = g.b().cast(g.read(key), DType::kInt64);
    if (g.b().type(places).dim() > 0 && assign_by_places(g, g.tensor(array), places, value)) return;
  }
  const Indexed indexed = index(g, array, key);
  if (indexed.advanced) throw Unsupported("a write by arrays of indices");
  const DType dtype = g.fz().type(indexed.base).dtype;
  if (slot_of(value) >= 0 && is_complex(g.slot_dtype(value)) && !is_complex(dtype)) throw Unsupported("a complex cast");
  // A number is converted as Python's own (an array of int8 refuses 300): NumPy did so already.
  const ValueId given = slot_of(value) >= 0 ? g.read(value) : g.as_dtype(value, dtype);
  g.write_ref(indexed.base, given);
}

}  // namespace

void add_numpy_indexing_rules(NumpyRuleTable& table) {
  table["getitem"] = rule_get_item;
  table["setitem"] = rule_set_item;
}

}  // namespace tatara::capture
