// Rules of elementwise calls, casts, creation, joins; shapes, reductions and indexing are in numpy_shapes.cpp.
#include "capture/graph/numpy/numpy_rules.h"

#include <string_view>
#include <utility>

#include "capture/graph/numpy/numpy_rules_internal.h"
#include "support/error.h"

namespace tatara::capture {

/// NumPy's own mark for what is not given.
static PyObject* no_value(const NumpyApi& np) {
  static PyObject* const mark = attr(np.numpy.get(), "_NoValue").release();
  return mark;
}

NumpyArgs::NumpyArgs(const TapeNode& node, const NumpyApi& np, std::initializer_list<const char*> names) {
  const auto clean = [&np](PyObject* o) { return o == no_value(np) ? nullptr : o; };
  for (const char* name : names) values_.emplace_back(name, nullptr);
  const Py_ssize_t count = PyTuple_GET_SIZE(node.args.get());
  if (static_cast<size_t>(count) > values_.size()) throw Unsupported("so many arguments of " + node.name);
  for (Py_ssize_t i = 0; i < count; ++i)
    values_[static_cast<size_t>(i)].second = clean(PyTuple_GET_ITEM(node.args.get(), i));
  if (!node.kwargs) return;
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(node.kwargs.get(), &at, &key, &value) != 0) {
    const std::string name = text_of(key);
    bool known = false;
    for (auto& [each, slot] : values_) {
      if (each != name) continue;
      slot = clean(value);
      known = true;
    }
    if (!known && value != Py_None && clean(value) != nullptr)
      throw Unsupported("argument " + name + " of " + node.name);
  }
}

PyObject* NumpyArgs::operator[](const char* name) const {
  for (const auto& [each, value] : values_) {
    if (each == name) return value;
  }
  throw InternalError(std::string("no parameter ") + name);
}

void NumpyArgs::refuse(std::initializer_list<const char*> names) const {
  for (const char* name : names) {
    PyObject* value = (*this)[name];
    if (value != nullptr && value != Py_None) throw Unsupported(std::string("argument ") + name);
  }
}

bool NumpyArgs::flag(const char* name, bool fallback) const {
  PyObject* value = (*this)[name];
  if (value == nullptr) return fallback;
  if (!PyBool_Check(value)) throw Unsupported(std::string("argument ") + name + " is no bool");
  return value == Py_True;
}

int64_t NumpyArgs::integer(const char* name, int64_t fallback) const {
  PyObject* value = (*this)[name];
  if (value == nullptr) return fallback;
  if (!PyLong_CheckExact(value)) throw Unsupported(std::string("argument ") + name + " is no int");
  return PyLong_AsLongLong(value);
}

namespace {

using Values = std::vector<ValueId>;
using Body = ValueId (*)(GraphBuilder&, const Values&);

ValueId identity(GraphBuilder& b, const Values& v) { return b.op("clone", {TensorArg{v[0]}}); }

ValueId absolute(GraphBuilder& b, const Values& v) {
  return b.type(v[0]).dtype == DType::kBool ? identity(b, v) : b.unary("abs", v[0]);
}

ValueId sign(GraphBuilder& b, const Values& v) {
  const DType t = b.type(v[0]).dtype;
  if (is_complex(t)) throw Unsupported("sign of complex numbers");
  const ValueId s = b.unary("sign", v[0]);
  return is_floating(t) ? b.where(b.unary("isnan", v[0]), v[0], s) : s;
}

/// heaviside; torch has 0 at NaN.
ValueId unit_step(GraphBuilder& b, const Values& v) {
  const ValueId s = b.binary("heaviside", v[0], v[1]);
  return is_floating(b.type(v[0]).dtype) ? b.where(b.unary("isnan", v[0]), v[0], s) : s;
}

ValueId conjugate(GraphBuilder& b, const Values& v) {
  return is_complex(b.type(v[0]).dtype) ? b.unary("conj_complex", v[0]) : identity(b, v);
}

/// Integers are whole already.
ValueId rounding(GraphBuilder& b, const Values& v, const char* op) {
  if (is_complex(b.type(v[0]).dtype)) throw Unsupported("rounding of complex numbers");
  return is_floating(b.type(v[0]).dtype) ? b.op(op, {TensorArg{v[0]}}) : identity(b, v);
}

ValueId rint(GraphBuilder& b, const Values& v) { return rounding(b, v, "round"); }
ValueId floor(GraphBuilder& b, const Values& v) { return rounding(b, v, "floor"); }
ValueId ceil(GraphBuilder& b, const Values& v) { return rounding(b, v, "ceil"); }
ValueId trunc(GraphBuilder& b, const Values& v) { return rounding(b, v, "trunc"); }

/// isnan and its kin, of either part of complex numbers.
ValueId either_part(GraphBuilder& b, ValueId x, const char* test) {
  if (!is_complex(b.type(x).dtype)) return b.op(test, {TensorArg{x}});
  return b.binary("logical_or", b.unary(test, b.unary("real_part", x)), b.unary(test, b.unary("imag_part", x)));
}

ValueId is_nan(GraphBuilder& b, const Values& v) { return either_part(b, v[0], "isnan"); }
ValueId is_infinite(GraphBuilder& b, const Values& v) { return either_part(b, v[0], "isinf"); }
ValueId is_finite(GraphBuilder& b, const Values& v) {
  if (!is_complex(b.type(v[0]).dtype)) return b.unary("isfinite", v[0]);
  return b.binary("logical_and", b.unary("isfinite", b.unary("real_part", v[0])),
                  b.unary("isfinite", b.unary("imag_part", v[0])));
}
ValueId logical_not(GraphBuilder& b, const Values& v) {
  return is_complex(b.type(v[0]).dtype) ? b.binary("eq", v[0], Scalar(0.0)) : b.unary("logical_not", v[0]);
}

ValueId clip(GraphBuilder& b, const Values& v) { return b.binary("minimum", b.binary("maximum", v[0], v[1]), v[2]); }

// Ufuncs that differ from the registry's operators even when operands have the loop's types. The others are Python names of
// operators ("numpy.add").
constexpr std::pair<std::string_view, Body> kBodies[] = {
    {"positive", identity},   {"absolute", absolute},
    {"sign", sign},           {"heaviside", unit_step},
    {"conjugate", conjugate}, {"rint", rint},
    {"floor", floor},         {"ceil", ceil},
    {"trunc", trunc},         {"clip", clip},
    {"isnan", is_nan},        {"isinf", is_infinite},
    {"isfinite", is_finite},  {"logical_not", logical_not},
};

/// What a ufunc means: an operator or a body; neither: nothing that is known.
struct Ufunc {
  const OpDef* op = nullptr;
  Body body = nullptr;
  explicit operator bool() const { return op != nullptr || body != nullptr; }
};

Ufunc find_ufunc(const std::string& name) {
  for (const auto& [each, body] : kBodies) {
    if (each == name) return {nullptr, body};
  }
  const auto* candidates = OpRegistry::global().find_python("numpy." + name);
  return {candidates == nullptr ? nullptr : candidates->front().op, nullptr};
}

bool takes_number(const OpDef& op) {
  return op.schema.args.size() > 1 && op.schema.args[1].type == ArgType::kTensorOrScalar;
}

}  // namespace

std::vector<DType> NumpyRules::loop_types(PyObject* ufunc, const std::vector<PyObject*>& operands,
                                          size_t outputs) const {
  const Ref types = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(operands.size() + outputs)));
  for (size_t i = 0; i < operands.size() + outputs; ++i) {
    PyObject* type = Py_None;
    Ref held;
    if (i < operands.size()) {
      PyObject* o = operands[i];
      if (const int s = slot_of(o); s >= 0) {
        type = g.slot(s).dtype.get();
      } else if (g.np_.is_scalar(o)) {
        held = attr(o, "dtype");
      } else if (PyBool_Check(o)) {
        held = Ref::steal(PyObject_CallMethod(g.np_.numpy.get(), "dtype", "s", "bool"));
      } else {
        type = reinterpret_cast<PyObject*>(Py_TYPE(o));
      }
      if (held) type = held.get();
    }
    PyTuple_SET_ITEM(types.get(), static_cast<Py_ssize_t>(i), Py_NewRef(type));
  }
  // dtype=: that of the result.
  Ref kwargs;
  if (given_type != nullptr) {
    const Ref signature = Ref::steal(PyTuple_New(PyTuple_GET_SIZE(types.get())));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(types.get()); ++i) {
      PyObject* each = i < static_cast<Py_ssize_t>(operands.size()) ? Py_None : given_type;
      PyTuple_SET_ITEM(signature.get(), i, Py_NewRef(each));
    }
    kwargs = Ref::steal(Py_BuildValue("{s:O,s:s}", "signature", signature.get(), "casting", "unsafe"));
  }
  const Ref resolve = attr(ufunc, "resolve_dtypes"), given = Ref::steal(PyTuple_Pack(1, types.get()));
  const Ref resolved = Ref::steal(PyObject_Call(resolve.get(), given.get(), kwargs.get()));
  if (!resolved) {
    forget_error();
    throw Unsupported("the loop of a ufunc");
  }
  std::vector<DType> result;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(resolved.get()); ++i) {
    result.push_back(dtype_of(PyTuple_GET_ITEM(resolved.get(), i)));
  }
  return result;
}

ValueId NumpyRules::apply_ufunc(const std::string& name, const std::vector<PyObject*>& operands) {
  const Ufunc meaning = find_ufunc(name);
  if (!meaning) throw Unsupported("no operator for numpy's " + name);
  const Ref ufunc = name == "clip" ? attr(attr(attr(g.np_.numpy.get(), "_core").get(), "umath").get(), "clip")
                                   : attr(g.np_.numpy.get(), name.c_str());
  const std::vector<DType> types = loop_types(ufunc.get(), operands, 1);
  for (size_t i = 1; i < operands.size(); ++i) {
    if (types[i] != types[0]) throw Unsupported(name + " of two types");
  }
  Values values, floats;
  double constant = 0;
  std::optional<Scalar> second;
  std::vector<Arg> args;
  for (size_t i = 0; i < operands.size(); ++i) {
    const NumpyGraph::Operand o = g.operand(operands[i]);
    // A number stays one where the operator takes numbers: kernels know constants.
    const bool number = o.ref < 0 && i == 1 && meaning.op != nullptr && takes_number(*meaning.op);
    if (number) {
      args.emplace_back(g.number_as(o.number, types[i]));
      const auto& value = std::get<Scalar>(args.back());
      second = value;
      if (const auto* real = std::get_if<double>(&value)) constant = *real;
      if (const auto* complex = std::get_if<std::complex<double>>(&value)) constant = complex->real();
    } else {
      values.push_back(g.as_dtype(o, types[i]));
      args.emplace_back(TensorArg{values.back()});
      floats.push_back(values.back());
    }
  }
  const ValueId result =
      meaning.op != nullptr ? g.builder_.op(meaning.op->name, std::move(args)) : meaning.body(g.builder_, values);
  const DType made = g.builder_.type(result).dtype;
  // Others than squares have faults on their way to finite results.
  if (is_complex(made) && name.ends_with("power") && constant != 2) throw Unsupported("powers of complex numbers");
  if ((is_floating(made) || is_complex(made)) && is_integral(types.back())) throw Unsupported(name + " of integers");
  const ValueId cast = g.builder_.cast(result, types.back());
  const bool scalar = is_integral(types.back()) && types.back() != DType::kBool && g.builder_.type(cast).dim() == 0;
  if (!scalar || meaning.op == nullptr) return g.tested(name, cast, floats, constant);
  return g.tested_scalar(name, meaning.op->name, cast, floats, second);
}

void rule_of_ufunc(NumpyGraph& g, const TapeNode& node) {
  NumpyRules rules{g};
  const size_t inputs = rules.arity(node.name);
  const auto count = static_cast<size_t>(PyTuple_GET_SIZE(node.args.get()));
  std::vector<PyObject*> operands;
  for (size_t i = 0; i < inputs && i < count; ++i) {
    operands.push_back(PyTuple_GET_ITEM(node.args.get(), static_cast<Py_ssize_t>(i)));
  }
  PyObject* out = count > inputs ? PyTuple_GET_ITEM(node.args.get(), static_cast<Py_ssize_t>(inputs)) : nullptr;
  if (operands.size() != inputs || count > inputs + 1) throw Unsupported("the number of operands of " + node.name);
  PyObject* mask = nullptr;
  if (node.kwargs) {
    PyObject *key = nullptr, *value = nullptr;
    Py_ssize_t at = 0;
    while (PyDict_Next(node.kwargs.get(), &at, &key, &value) != 0) {
      if (value == Py_None || value == no_value(rules.np())) continue;
      const std::string name = text_of(key);
      const bool checked =
          name == "casting" || (name == "subok" && value == Py_True) || (name == "where" && value == Py_True);
      if (checked) continue;  // NumPy has looked at it in the first call
      if (name == "where" && slot_of(value) >= 0) {
        mask = value;
        continue;
      }
      if (name == "dtype") {
        rules.given_type = value;
        continue;
      }
      if (name != "out") throw Unsupported("argument " + name + " of " + node.name);
      out = PyTuple_Check(value) && PyTuple_GET_SIZE(value) == 1 ? PyTuple_GET_ITEM(value, 0) : value;
    }
  }
  const bool inplace = node.mutates && out == nullptr;
  ValueId value = rules.apply_ufunc(node.name, operands);
  if (inplace) out = operands[0];
  if (mask != nullptr) {
    // What the mask leaves out stays as it was.
    if (out == nullptr || out == Py_None || rules.slot_dtype(out) != rules.b().type(value).dtype) {
      throw Unsupported("argument where of " + node.name);
    }
    value = rules.b().where(rules.as_dtype(mask, DType::kBool), value, rules.read(out));
  }
  if (out == nullptr || out == Py_None || out == Py_Ellipsis) return rules.set_value(node, 0, value);
  g_write(g, out, value);
}

void g_write(NumpyGraph& g, PyObject* target, ValueId value) { NumpyRules{g}.write(target, value); }

size_t NumpyRules::arity(const std::string& name) const {
  if (name == "clip") return 3;
  const Ref ufunc = attr(g.np_.numpy.get(), name.c_str());
  return static_cast<size_t>(PyLong_AsLong(attr(ufunc.get(), "nin").get()));
}

namespace {

/// Whether the call is NumPy's own: other libraries have ufuncs of the same names.
bool is_numpys_own(const TapeNode& node, const NumpyApi& np) {
  if (!np.is_ufunc(node.func.get())) return true;
  const Ref own = attr_or_null(np.numpy.get(), node.name.c_str());
  if (own.get() == node.func.get()) return true;
  return node.name == "clip";
}

/// A ufunc that the functions of numpy.linalg and numpy.fft call.
bool is_of_numpys_libraries(const TapeNode& node, const NumpyApi& np) {
  if (!np.is_ufunc(node.func.get())) return false;
  for (const char* name : {"numpy.linalg._umath_linalg", "numpy.fft._pocketfft_umath"}) {
    PyObject* module = PyDict_GetItemString(PyImport_GetModuleDict(), name);
    const Ref own = module == nullptr ? Ref() : attr_or_null(module, node.name.c_str());
    if (own.get() == node.func.get()) return true;
  }
  return false;
}

}  // namespace

bool is_numpy_ufunc(const TapeNode& node, const NumpyApi& np) {
  return np.is_ufunc(node.func.get()) && is_numpys_own(node, np);
}

bool find_numpy_ufunc(const std::string& name) { return static_cast<bool>(find_ufunc(name)); }

NumpyRule find_numpy_rule(const TapeNode& node, const NumpyApi& np, bool for_tensors) {
  if (is_of_numpys_libraries(node, np)) return for_tensors ? nullptr : rule_of_loop;
  if (!is_numpys_own(node, np)) return nullptr;
  static const NumpyRuleTable joins = [] {
    NumpyRuleTable made;
    add_numpy_join_rules(made);
    return made;
  }();
  static const NumpyRuleTable arrays = [] {  // beside which tensors have a meaning of their own
    NumpyRuleTable made;
    add_numpy_product_rules(made);
    add_numpy_element_rules(made);
    add_numpy_placing_rules(made);
    add_numpy_short_row_rules(made);
    add_numpy_loop_rules(made);
    add_numpy_assign_rules(made);
    return made;
  }();
  if (const auto found = arrays.find(node.name); found != arrays.end() && !for_tensors) return found->second;
  if (const auto found = joins.find(node.name); found != joins.end()) return for_tensors ? nullptr : found->second;
  static const NumpyRuleTable table = [] {
    NumpyRuleTable made;
    add_numpy_shape_rules(made);
    add_numpy_flip_rules(made);
    add_numpy_indexing_rules(made);
    add_numpy_reduction_rules(made);
    return made;
  }();
  if (const auto found = table.find(node.name); found != table.end()) {
    // np.clip, the function, and the ufunc behind it differ in their arguments.
    if (!(np.is_ufunc(node.func.get()) && node.name == "clip")) return found->second;
  }
  if (find_ufunc(node.name)) return rule_of_ufunc;
  return np.is_ufunc(node.func.get()) && !for_tensors ? rule_of_loop : nullptr;
}

}  // namespace tatara::capture
