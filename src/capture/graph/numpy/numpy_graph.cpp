#include "capture/graph/numpy/numpy_graph.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <unordered_map>

#include "capture/graph/numpy/numpy_rules.h"
#include "capture/graph/numpy/numpy_rules_internal.h"
#include "runtime/host/torch_abi.h"
#include "support/error.h"
#include "support/made_once.h"

namespace tatara::capture {

using ArrayRef = NumpyGraph::ArrayRef;

NumpyGraph::NumpyGraph(const Tape& tape, const NumpyApi& np, For purpose, Tests tests)
    : tape_(tape),
      np_(np),
      result_{Graph(std::make_shared<ExprContext>()), {}, {}, {}, {}, {}, false, {}, {}, {}, {}},
      builder_(result_.graph, DType::kFloat64),
      fz_(builder_),
      refs_(tape.slots().size(), -1),
      made_(tape.slots().size(), false),
      purpose_(purpose),
      writes_(std::any_of(tape.nodes().begin(), tape.nodes().end(), [](const TapeNode& n) { return n.mutates; })),
      tests_(tests),
      holds_tests_(tape.slots().size(), false),
      is_read_(tape.slots().size(), false) {}

std::vector<Expr> NumpyGraph::exprs(PyObject* tuple) {
  std::vector<Expr> values;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    values.push_back(builder_.ctx().constant(PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i))));
  }
  return values;
}

TensorType NumpyGraph::type_of_slot(int index) {
  const TapeSlot& info = slot(index);
  TensorType type;
  type.dtype = dtype_of_slot(index);
  type.sizes = exprs(info.sizes.get());
  type.strides = exprs(info.strides.get());
  return type;
}

const TapeSlot& NumpyGraph::slot(int index) const {
  if (index < 0) throw Unsupported("an argument that is no array");
  return tape_.slots()[static_cast<size_t>(index)];
}

ArrayRef NumpyGraph::ref_of_slot(int index) {
  ArrayRef& ref = refs_[static_cast<size_t>(index)];
  const auto shares = [&](ArrayRef copy) { return fz_.same_storage(copy, ref); };
  if (ref >= 0 && std::any_of(copies_.stale.begin(), copies_.stale.end(), shares))
    throw Unsupported("a view that runs backwards, over what was written since");
  if (ref >= 0) return ref;
  TensorType type = type_of_slot(index);
  std::vector<int64_t> backwards;
  for (size_t d = 0; d < type.strides.size(); ++d) {
    const int64_t stride = type.strides[d].const_value();
    if (stride >= 0) continue;
    backwards.push_back(static_cast<int64_t>(d));
    type.strides[d] = builder_.ctx().constant(-stride);
  }
  if (!backwards.empty() && purpose_ != For::kArrays) throw Unsupported("an array with a negative stride");
  ref = fz_.input(result_.graph.add_input(std::move(type)), static_cast<int>(result_.inputs.size()));
  result_.inputs.push_back(index);
  if (backwards.empty()) return ref;
  const ArrayRef memory = ref;
  ref = as_copy(flipped(ref, backwards));
  turned_inputs_.push_back({ref, memory, backwards});
  return ref;
}

ArrayRef NumpyGraph::flipped(ArrayRef source, const std::vector<int64_t>& dims) {
  SymInts list;
  for (const int64_t d : dims) list.values.push_back(builder_.ctx().constant(d));
  return fz_.fresh(builder_.op("flip", {TensorArg{fz_.read(source)}, std::move(list)}));
}

ArrayRef NumpyGraph::as_copy(ArrayRef ref) {
  copies_.all.push_back(ref);
  return ref;
}

bool NumpyGraph::is_copy(ArrayRef ref) const {
  return std::any_of(copies_.all.begin(), copies_.all.end(),
                     [&](ArrayRef copy) { return fz_.same_storage(copy, ref); });
}

void NumpyGraph::set_late_view(const TapeNode& node, int base, int64_t offset, ArrayRef copy, size_t k) {
  if (purpose_ != For::kArrays) {
    // A copy is as good until somebody writes.
    const ArrayRef of = ref_of_slot(base);
    set_result(node, k, as_copy(copy));
    copies_.views.emplace_back(of, copy);
    return;
  }
  if (slot(base).scalar) throw Unsupported("a view of a scalar");
  for (const LateView& view : late_views_) {
    if (view.slot != base) continue;
    base = view.base;
    offset += view.offset;
    break;
  }
  late_ = true;
  try {
    set_result(node, k, copy);
  } catch (const Error&) {
    late_ = false;
    throw;
  }
  late_ = false;
  as_copy(copy);
  late_views_.push_back({node.outputs.at(k), base, offset});
}

ArrayRef NumpyGraph::tensor(PyObject* argument) {
  const int index = argument == nullptr ? -1 : slot_of(argument);
  const bool list = argument != nullptr && (PyList_Check(argument) || PyTuple_Check(argument));
  if (index < 0 && list && purpose_ == For::kArrays)
    return fz_.fresh(listed(NumpyRules{*this}, argument, type_of(argument)));
  if (index < 0) throw Unsupported("an argument that is no array");
  return ref_of_slot(index);
}

/// The element type of arrays in a list, which is one.
DType NumpyGraph::type_of(PyObject* list) const {
  std::optional<DType> found;
  for_each_slot(list, [&](int index) {
    const DType dtype = dtype_of_slot(index);
    if (found && *found != dtype) throw Unsupported("a list of several types");
    found = dtype;
  });
  bool numbers = PySequence_Fast_GET_SIZE(list) > 0;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(list, i);
    numbers = numbers && PyLong_CheckExact(item);
    if (slot_of(item) < 0 && !PyList_Check(item) && !PyTuple_Check(item) && found)
      throw Unsupported("a list of numbers");
  }
  if (numbers) return DType::kInt64;
  if (!found) throw Unsupported("an argument that is no array");
  return *found;
}

NumpyGraph::Operand NumpyGraph::operand(PyObject* argument) {
  if (slot_of(argument) >= 0) return {tensor(argument), nullptr};
  const bool number = PyBool_Check(argument) || PyLong_CheckExact(argument) || PyFloat_CheckExact(argument) ||
                      PyComplex_CheckExact(argument) || np_.is_scalar(argument);
  if (!number) throw Unsupported("an operand of type " + type_name(argument));
  return {-1, argument};
}

std::vector<int64_t> NumpyGraph::shape(ValueId v) const {
  std::vector<int64_t> sizes;
  for (const Expr e : result_.graph.type(v).sizes) sizes.push_back(e.const_value());
  return sizes;
}

/// The number as the loop of this type takes it.
Scalar NumpyGraph::number_as(PyObject* number, DType dtype) const {
  const Ref type = attr(np_.numpy.get(), dtype == DType::kBool ? "bool_" : torch_abi::dtype_attribute(dtype));
  const Ref cast = Ref::steal(PyObject_CallOneArg(type.get(), number));
  const Ref item = Ref::steal(cast ? PyObject_CallMethod(cast.get(), "item", nullptr) : nullptr);
  if (!item) {
    forget_error();
    throw Unsupported("a number that the type cannot hold");
  }
  if (PyBool_Check(item.get())) return item.get() == Py_True;
  if (PyFloat_Check(item.get())) return PyFloat_AS_DOUBLE(item.get());
  if (PyComplex_Check(item.get())) {
    const Py_complex c = PyComplex_AsCComplex(item.get());
    return std::complex<double>(c.real, c.imag);
  }
  const long long value = PyLong_AsLongLong(item.get());
  if (value == -1 && PyErr_Occurred() != nullptr) {
    forget_error();
    throw Unsupported("an integer beyond 64 bits");
  }
  return static_cast<int64_t>(value);
}

ValueId NumpyGraph::as_dtype(const Operand& o, DType dtype) {
  if (o.ref >= 0) return builder_.cast(fz_.read(o.ref), dtype);
  return builder_.op("full", {SymInts{}, number_as(o.number, dtype), dtype, NoneArg{}, Device{}});
}

ArrayRef NumpyGraph::view(const char* op, std::vector<Arg> args) {
  return fz_.apply(OpRegistry::global().get(op), std::move(args))[0];
}

void NumpyGraph::write(ArrayRef target, ValueId value) {
  // A view that runs backwards is a copy here.
  const auto shares = [&](const LateView& view) {
    const ArrayRef base = refs_[static_cast<size_t>(view.base)];
    return base >= 0 && fz_.same_storage(base, target);
  };
  const auto turned = std::find_if(turned_inputs_.begin(), turned_inputs_.end(),
                                   [&](const TurnedInput& each) { return fz_.same_storage(each.copy, target); });
  if ((is_copy(target) && turned == turned_inputs_.end()) ||
      std::any_of(late_views_.begin(), late_views_.end(), shares)) {
    throw Unsupported("a write to what a view runs over backwards");
  }
  for (const auto& [of, copy] : copies_.views) {
    if (fz_.same_storage(of, target)) copies_.stale.push_back(copy);
  }
  const TensorType type = fz_.type(target);
  if (untested_.erase(value) != 0) value = stop_unless_finite(value);
  ValueId cast = tested_cast(value, builder_.cast(value, type.dtype));
  // Leading dimensions of size 1 that the target has not.
  while (builder_.type(cast).dim() > type.dim() && builder_.type(cast).sizes[0].is_const(1)) {
    cast = builder_.squeeze(cast, 0);
  }
  fz_.write(target, builder_.expand(cast, type.sizes));
  if (turned != turned_inputs_.end()) fz_.write(turned->memory, fz_.read(flipped(turned->copy, turned->dims)));
}

void NumpyGraph::set_result(const TapeNode& node, size_t k, ArrayRef ref) {
  if (k >= node.outputs.size()) throw Unsupported(node.name + " has another number of results than NumPy's");
  const int index = node.outputs[k];
  const TapeSlot& info = slot(index);
  const TensorType& type = fz_.type(ref);
  const std::vector<Expr> sizes = exprs(info.sizes.get());
  if (type.dtype != dtype_of_slot(index) || type.sizes != sizes) {
    throw Unsupported("type of " + node.name + " inferred as " + type.str() + ", other than NumPy's");
  }
  if (!info.fresh && !info.scalar && !late_ && is_copy(ref) && purpose_ == For::kArrays)
    return set_view_of_copy(node, k, ref);
  ArrayRef& known = refs_[static_cast<size_t>(index)];
  if (known >= 0 && known != ref) throw Unsupported(node.name + " returned an operand");
  // NumPy's scalars are values of their own also where they were read from a view.
  known = info.scalar ? fz_.fresh(fz_.read(ref)) : ref;
  made_[static_cast<size_t>(index)] = true;
}

/// A view of an operand that is a copy in the graph: the runner makes it where the operand lies.
void NumpyGraph::set_view_of_copy(const TapeNode& node, size_t k, ArrayRef ref) {
  const TapeSlot& info = slot(node.outputs[k]);
  int base = -1;
  for_each_slot(node.args.get(), [&](int index) {
    const ArrayRef own = refs_[static_cast<size_t>(index)];
    if (base < 0 && own >= 0 && fz_.same_storage(own, ref)) base = index;
  });
  const bool known = base >= 0 && info.object && slot(base).object && np_.is_array(info.object.get()) &&
                     np_.is_array(slot(base).object.get()) && dtype_of_slot(base) == dtype_of_slot(node.outputs[k]);
  if (!known) throw Unsupported("a view of what runs backwards");
  const auto* begin = static_cast<const char*>(NumpyApi::data(slot(base).object.get()));
  const auto* at = static_cast<const char*>(NumpyApi::data(info.object.get()));
  set_late_view(node, base, (at - begin) / dtype_size(dtype_of_slot(base)), fz_.fresh(fz_.read(ref)), k);
}

void NumpyGraph::add(const TapeNode& node) {
  builder_.set_location({std::make_shared<const std::string>(node.location.file),
                         std::make_shared<const std::string>(node.location.function), node.location.line});
  const NumpyRule rule = find_numpy_rule(node, np_, purpose_ == For::kTensors);
  const auto apply = [&] {
    if (rule == nullptr) throw Unsupported("no operator for numpy's " + node.name);
    try {
      rule(*this, node);
    } catch (const Unsupported&) {
      // A loop of NumPy's own may do.
      if (purpose_ != For::kArrays || rule == rule_of_loop || !is_numpy_ufunc(node, np_)) throw;
      forget_error();
      rule_of_loop(*this, node);
    }
  };
  if (purpose_ == For::kArrays) {
    begin_tests(node);
    apply();
    end_tests(node);
  } else if (node.name == "empty" || node.name == "empty_like") {
    add_zeros(node);
  } else {
    try {
      apply();
    } catch (const InternalError&) {
      throw;
    } catch (const Error& error) {
      forget_error();
      add_call(node, error.what());
    }
  }
  forget_error();
  ++nodes_;
}

const OpDef& NumpyGraph::call_operator() {
  return made_once([] {
    OpDef def;
    def.name = "numpy_call";
    def.kind = OpKind::kHost;
    def.schema_text = "(Tensor[] arrays) -> Tensor[]";
    def.schema = parse_schema(def.schema_text);
    return def;
  });
}

void NumpyGraph::add_zeros(const TapeNode& node) {
  const ValueId zero = builder_.constant(0, dtype_of_slot(node.outputs.at(0)));
  const ValueId wide = builder_.expand(zero, exprs(slot(node.outputs[0]).sizes.get()));
  set_value(node, 0, builder_.op("clone", {TensorArg{wide}, std::string("contiguous_format")}));
}

/// A call whose meaning is not known here: a node of its results alone. One that writes gives its first operand anew.
void NumpyGraph::add_call(const TapeNode& node, std::string why) {
  Call call{&node, {}, std::move(why)};
  TensorList operands;
  const auto collect = [&](int index) {
    call.slots.push_back(index);
    operands.values.push_back(fz_.read(ref_of_slot(index)));
  };
  for_each_slot(node.args.get(), collect);
  if (node.kwargs) for_each_slot(node.kwargs.get(), collect);
  std::vector<TensorType> types;
  ArrayRef target = -1;
  if (node.mutates) {
    const Ref out = node.kwargs ? Ref::borrow(PyDict_GetItemString(node.kwargs.get(), "out")) : Ref();
    if ((out && out.get() != Py_None) || PyTuple_GET_SIZE(node.args.get()) == 0) throw Unsupported(call.why);
    target = tensor(PyTuple_GET_ITEM(node.args.get(), 0));
    types.push_back(fz_.type(target));
  } else {
    for (const int index : node.outputs) {
      if (!slot(index).fresh && !slot(index).scalar && writes_)
        throw Unsupported(call.why + ", in a program that writes");
      types.push_back(type_of_slot(index));
      types.back().strides = contiguous_strides(builder_.ctx(), types.back().sizes);
    }
  }
  if (types.empty()) throw Unsupported(call.why);
  const std::vector<ValueId> values = builder_.host_call(call_operator(), {std::move(operands)}, std::move(types));
  calls_[values[0]] = std::move(call);
  if (node.mutates) return write(target, values[0]);
  for (size_t k = 0; k < values.size(); ++k) set_value(node, k, values[k]);
}

/// A result that NumPy makes lies in the graph as it does there: views of it, and what is written to it, keep its strides.
void NumpyGraph::set_value(const TapeNode& node, size_t k, ValueId value) {
  if (purpose_ == For::kArrays && k < node.outputs.size()) {
    const int index = node.outputs[k];
    const TapeSlot& info = slot(index);
    const bool known = builder_.type(value).sizes == exprs(info.sizes.get());
    if (info.fresh && !info.scalar && known && is_dense(index)) value = with_layout(value, index);
  }
  set_result(node, k, fz_.fresh(value));
}

bool NumpyGraph::is_dense(int index) {
  const std::vector<Expr> sizes = exprs(slot(index).sizes.get()), strides = exprs(slot(index).strides.get());
  int64_t count = 1, last = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (strides[i].const_value() < 0) return false;
    count *= sizes[i].const_value();
    last += (sizes[i].const_value() - 1) * strides[i].const_value();
  }
  return last == count - 1;
}

/// The value laid out as NumPy's result is: same elements, strides in the same order.
ValueId NumpyGraph::with_layout(ValueId value, int index) {
  const TensorType& type = builder_.type(value);
  std::vector<int64_t> strides;
  for (const Expr e : exprs(slot(index).strides.get())) strides.push_back(e.const_value());
  bool same = true;
  for (size_t i = 0; i < strides.size(); ++i) {
    if (type.sizes[i].is_const(0)) return value;
    same = same && (type.sizes[i].is_const(1) || type.strides[i].is_const(strides[i]));
  }
  if (same) return value;
  std::vector<int64_t> order(strides.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return strides[static_cast<size_t>(a)] > strides[static_cast<size_t>(b)];
  });
  int64_t dense = 1;
  for (size_t i = order.size(); i-- > 0;) {
    const auto d = static_cast<size_t>(order[i]);
    if (!type.sizes[d].is_const(1) && strides[d] != dense)
      throw Unsupported("strides of an output as NumPy makes them");
    dense *= type.sizes[d].const_value();
  }
  std::vector<int64_t> inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) inverse[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  const ValueId laid =
      builder_.op("clone", {TensorArg{builder_.permute(value, order)}, std::string("contiguous_format")});
  return builder_.permute(laid, inverse);
}

TapeGraph NumpyGraph::finish(std::vector<int> wanted) {
  std::vector<ArrayRef> outputs;
  std::erase_if(late_views_, [&](const LateView& view) {
    const auto at = std::find(wanted.begin(), wanted.end(), view.slot);
    if (at == wanted.end()) return true;
    wanted.erase(at);
    if (made(view.base) && std::find(wanted.begin(), wanted.end(), view.base) == wanted.end()) {
      wanted.push_back(view.base);
    }
    return false;
  });
  for (const int index : wanted) {
    result_.outputs.push_back(index);
    ArrayRef ref = refs_[static_cast<size_t>(index)];
    settle(ref);
    const TapeSlot& info = slot(index);
    if (purpose_ == For::kTensors) {
      outputs.push_back(ref_of_slot(index));
      continue;
    }
    if (info.fresh || info.scalar) {
      bool shared = false;
      for (size_t other = 0; other < refs_.size(); ++other) {
        const auto o = static_cast<int>(other);
        shared =
            shared || (o != index && refs_[other] >= 0 && refs_[other] != ref && fz_.same_storage(refs_[other], ref));
      }
      if (!shared) {
        const ValueId value = fz_.read(ref), laid = with_layout(value, index);
        if (laid != value) ref = fz_.fresh(laid);
      }
    }
    const TensorType& type = fz_.type(ref);
    const std::vector<Expr> strides = exprs(info.strides.get());
    for (size_t i = 0; i < strides.size(); ++i) {
      if (type.sizes[i].is_const(1) || type.sizes[i].is_const(0) || info.scalar) continue;
      if (type.strides[i] != strides[i]) throw Unsupported("strides of a view as NumPy makes them");
    }
    outputs.push_back(ref);
  }
  compute_in_full(outputs, wanted);
  fz_.finish(outputs);
  return std::move(result_);
}

}  // namespace tatara::capture
