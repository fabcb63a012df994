#include "capture/graph/tape_indexing.h"

#include <algorithm>

#include "capture/graph/tape_arguments.h"
#include "support/error.h"

namespace tatara::capture {

TapeIndexing::TensorRef TapeIndexing::view(const char* op, std::vector<Arg> args) {
  return c_.fz.apply(OpRegistry::global().get(op), std::move(args))[0];
}

Scalar TapeIndexing::number(PyObject* o) {
  if (is_size_ref(o)) return scalar_of(c_.builder.ctx(), o);
  if (!PyLong_Check(o) || PyBool_Check(o)) throw Unsupported("an index of type " + type_name(o));
  return int_value(o);
}

namespace {

/// What indexes as a tensor of its numbers does.
bool is_list_of_ints(PyObject* item) {
  if (!PyList_CheckExact(item) || PyList_GET_SIZE(item) == 0) return false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(item); ++i) {
    if (!PyLong_CheckExact(PyList_GET_ITEM(item, i))) return false;
  }
  return true;
}

}  // namespace

TapeIndexing::TensorRef TapeIndexing::constant(PyObject* numbers, Device device) {
  const Ref torch = Ref::steal(PyImport_ImportModule("torch"));
  const Ref name = Ref::steal(PyUnicode_FromString(device.str().c_str()));
  const Ref made = torch ? Ref::steal(PyObject_CallMethod(torch.get(), "tensor", "O", numbers)) : Ref();
  Ref placed = made && name ? Ref::steal(PyObject_CallMethod(made.get(), "to", "O", name.get())) : Ref();
  if (!placed) {
    forget_error();
    throw Unsupported("an index of numbers that make no tensor");
  }
  return c_.constant(std::move(placed));
}

TapeIndexing::Indexed TapeIndexing::index(const TapeNode& node, Of of) {
  PyObject* self = PyTuple_GET_ITEM(node.args.get(), 0);
  PyObject* key = PyTuple_GET_ITEM(node.args.get(), 1);
  Indexed result{c_.refs[static_cast<size_t>(slot_of(self))], {}, false};
  std::vector<PyObject*> items;
  if (PyTuple_Check(key)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i) items.push_back(PyTuple_GET_ITEM(key, i));
  } else {
    items.push_back(key);
  }
  // Beside tensors of places the host takes numbers by themselves, also those that are tensors.
  const bool places = std::any_of(items.begin(), items.end(), [this](PyObject* item) {
    return is_list_of_ints(item) ||
           (slot_of(item) >= 0 && c_.fz.type(c_.refs[static_cast<size_t>(slot_of(item))]).dim() > 0);
  });
  int64_t taken = 0;
  for (PyObject* item : items) taken += item != Py_None && item != Py_Ellipsis && !PyBool_Check(item) ? 1 : 0;
  const int64_t rank = c_.fz.type(result.base).dim();
  int64_t dim = 0;
  bool ellipsis = false;
  const auto full = [&result] { result.tensors.values.push_back(kNoValue); };
  for (PyObject* item : items) {
    const Arg at = Scalar(dim);
    if (item == Py_None) {
      result.base = view("unsqueeze", {TensorArg{result.base}, at});
      full();
      ++dim;
    } else if (item == Py_Ellipsis) {
      if (ellipsis) throw Unsupported("two ellipses in an index");
      ellipsis = true;
      for (int64_t i = 0; i < rank - taken; ++i) full();
      dim += rank - taken;
    } else if (PySlice_Check(item)) {
      result.base = slice(result.base, dim, reinterpret_cast<PySliceObject*>(item));
      full();
      ++dim;
    } else if (slot_of(item) >= 0) {
      const TensorRef tensor = c_.refs[static_cast<size_t>(slot_of(item))];
      if (!is_integral(c_.fz.type(tensor).dtype) || c_.fz.type(tensor).dtype == DType::kUInt8) {
        throw Unsupported("an index tensor of type " + c_.fz.type(tensor).str());
      }
      if (places && c_.fz.type(tensor).dim() == 0) {
        if (of == Of::kWrite) throw Unsupported("a write to places and a number that are tensors");
        TensorList alone;
        alone.values.assign(static_cast<size_t>(dim), kNoValue);
        alone.values.push_back(tensor);
        result.base = view("index", {TensorArg{result.base}, std::move(alone)});
        continue;
      }
      result.tensors.values.push_back(tensor);
      result.advanced = true;
      ++dim;
    } else if (is_list_of_ints(item)) {
      result.tensors.values.push_back(constant(item, c_.fz.type(result.base).device));
      result.advanced = true;
      ++dim;
    } else {
      result.base = view("select", {TensorArg{result.base}, at, number(item)});
    }
  }
  return result;
}

TapeIndexing::TensorRef TapeIndexing::slice(TensorRef base, int64_t dim, const PySliceObject* slice) {
  if (slice->start == Py_None && slice->stop == Py_None && slice->step == Py_None) return base;
  std::vector<Arg> args{TensorArg{base}, Scalar(dim)};
  for (PyObject* bound : {slice->start, slice->stop}) {
    if (bound == Py_None) {
      args.emplace_back(NoneArg{});
    } else {
      args.emplace_back(number(bound));
    }
  }
  args.emplace_back(slice->step == Py_None ? Scalar(int64_t{1}) : number(slice->step));
  return view("slice", std::move(args));
}

TapeIndexing::TensorRef TapeIndexing::get_item(const TapeNode& node) {
  const TensorRef self = c_.refs[static_cast<size_t>(slot_of(PyTuple_GET_ITEM(node.args.get(), 0)))];
  Indexed indexed = index(node, Of::kRead);
  if (!indexed.advanced) {
    // A tensor of its own, also for x[:] and x[...].
    return indexed.base == self ? view("alias", {TensorArg{self}}) : indexed.base;
  }
  return TapeIndexing::view("index", {TensorArg{indexed.base}, std::move(indexed.tensors)});
}

/// x[mask] = number, with a mask of the tensor's own sizes.
bool TapeIndexing::fill_masked(const TapeNode& node) {
  PyObject* key = PyTuple_GET_ITEM(node.args.get(), 1);
  PyObject* value = PyTuple_GET_ITEM(node.args.get(), 2);
  const int mask = slot_of(key);
  const int number = slot_of(value);
  if (mask < 0 || (number >= 0 && !c_.slot(number).number)) return false;
  if (number < 0 && !PyLong_Check(value) && !PyFloat_Check(value)) return false;
  const TensorRef self = c_.refs[static_cast<size_t>(slot_of(PyTuple_GET_ITEM(node.args.get(), 0)))];
  const TensorRef where = c_.refs[static_cast<size_t>(mask)];
  if (c_.fz.type(where).dtype != DType::kBool || c_.fz.type(where).sizes != c_.fz.type(self).sizes) return false;
  const Arg fill = number >= 0 ? Arg(TensorArg{c_.ref(number)}) : Arg(scalar_of(c_.builder.ctx(), value));
  c_.fz.apply_inplace(OpRegistry::global().get("masked_fill"), {TensorArg{self}, TensorArg{where}, fill});
  return true;
}

void TapeIndexing::set_item(const TapeNode& node) {
  if (fill_masked(node)) return;
  Indexed indexed = index(node, Of::kWrite);
  PyObject* value = PyTuple_GET_ITEM(node.args.get(), 2);
  const OpRegistry& registry = OpRegistry::global();
  const int slot = slot_of(value);
  if (indexed.advanced) {
    const TensorRef source = slot >= 0 ? c_.refs[static_cast<size_t>(slot)] : filled(indexed.base, value);
    c_.fz.apply_inplace(registry.get("index_put"),
                        {TensorArg{indexed.base}, std::move(indexed.tensors), TensorArg{source}, Scalar(false)});
    return;
  }
  if (slot < 0) {
    c_.fz.apply_inplace(registry.get("fill"), {TensorArg{indexed.base}, scalar_of(c_.builder.ctx(), value)});
    return;
  }
  c_.fz.apply_inplace(registry.get("copy"),
                      {TensorArg{indexed.base}, TensorArg{c_.refs[static_cast<size_t>(slot)]}, Scalar(false)});
}

TapeIndexing::TensorRef TapeIndexing::filled(TensorRef like, PyObject* value) {
  const TensorType& type = c_.fz.type(like);
  return c_.fz.fresh(
      c_.builder.op("full", {SymInts{}, scalar_of(c_.builder.ctx(), value), type.dtype, NoneArg{}, type.device}));
}

}  // namespace tatara::capture
