#include "capture/tape/tape_print.h"

#include <iterator>

#include "capture/host/object_kinds.h"
#include "support/cancel.h"
#include "support/str_cat.h"

namespace tatara::capture {
namespace {

template <typename T, typename Fn>
std::string listed(const std::vector<T>& items, Fn&& text) {
  std::string out;
  for (const T& item : items) out += str_cat(out.empty() ? "" : ", ", text(item));
  return out;
}

std::string items_text(PyObject* sequence) {
  std::string out;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence); ++i) {
    out += str_cat(i == 0 ? "" : ", ", value_text(PySequence_Fast_GET_ITEM(sequence, i)));
  }
  return out;
}

std::string dict_text(PyObject* dict, const char* between) {
  std::string out;
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(dict, &at, &key, &value) != 0) {
    // Names of keyword arguments stand without quotes.
    const bool keyword = *between == '=';
    out += str_cat(out.empty() ? "" : ", ", keyword ? text_of(key) : value_text(key), between, value_text(value));
  }
  return out;
}

/// "prog.helper", by the object's own module and name.
std::string qualified_name(PyObject* object) {
  const std::string module = name_of(object, "__module__");
  // What C code calls a qualified name may name its own types.
  std::string name = PyCFunction_Check(object) && !module.empty() ? std::string() : name_of(object, "__qualname__");
  if (name.empty()) name = name_of(object);
  return module.empty() || module == "builtins" ? name : str_cat(module, ".", name);
}

/// "@cuda:0"; nothing for the CPU.
std::string device_text(PyObject* device) {
  const std::string type = device != nullptr ? text_of(attr_or_null(device, "type").get()) : std::string();
  if (type.empty() || type == "cpu") return {};
  const Ref index = attr_or_null(device, "index");
  return str_cat("@", type, index && PyLong_Check(index.get()) ? str_cat(":", PyLong_AsLong(index.get())) : "");
}

std::string number_type(const TapeSlot& slot) {
  if (slot.generator) return "generator";
  if (!slot.derived && !slot.symbolic_sizes.empty()) return "int " + slot.symbolic_sizes[0].str();
  return slot.derived ? (slot.whole ? "int" : "float") : "float that varies";
}

std::string slot_type(const TapeSlot& slot) {
  if (slot.number) return number_type(slot);
  std::string dtype = slot.dtype ? name_of(slot.dtype.get(), "name") : "?";  // as NumPy's have it
  if (dtype.empty()) dtype = value_text(slot.dtype.get());
  if (dtype.starts_with("torch.")) dtype.erase(0, 6);
  std::string text = dtype;
  if (!slot.symbolic_sizes.empty()) {
    text += sizes_text(slot.symbolic_sizes);
  } else if (slot.sizes && PyTuple_Check(slot.sizes.get())) {
    text += str_cat("[", items_text(slot.sizes.get()), "]");
  }
  text += device_text(slot.device.get());
  if (slot.scalar) text += " scalar";
  if (slot.requires_grad) text += " requires grad";
  return text;
}

const char* step_name(const TransformStep& step) {
  switch (step.step) {
    case FuncStep::kNone: return "";
    case FuncStep::kEnter: return "enter level";
    case FuncStep::kExit: return "exit level";
    case FuncStep::kWrap: return "wrap";
    case FuncStep::kUnwrap: return "unwrap";
    case FuncStep::kVariable: return "variable";
    case FuncStep::kBatchIn: return "batch in";
    case FuncStep::kBatchOut: return "batch out";
    case FuncStep::kMakeDual:
      return step.tangent == TangentIs::kGiven    ? "make dual, tangent as given"
             : step.tangent == TangentIs::kCopied ? "make dual, tangent copied"
                                                  : "make dual";
    case FuncStep::kUnpackDual: return "unpack dual";
  }
  return "";
}

/// What is special about a call.
std::string marks_of(const TapeNode& node) {
  std::vector<std::string> marks;
  if (node.mutates) marks.emplace_back("writes");
  if (node.statistics) marks.emplace_back("writes statistics");
  if (const GradientPass* pass = gradient_pass(node)) {
    marks.emplace_back(pass->of_level ? "gradients" : "backward pass");
    if (pass->keeps_history) marks.emplace_back("keeps history");
    if (pass->accumulates) marks.emplace_back("to .grad");
    if (pass->creates_graph) marks.emplace_back("creates graph");
    if (pass->hooks) marks.emplace_back("with hooks");
  }
  if (const TransformStep* step = transform_step(node)) {
    marks.emplace_back(step_name(*step));
    if (step->step == FuncStep::kBatchIn || step->step == FuncStep::kBatchOut)
      marks.push_back(str_cat("dim ", step->dim));
  }
  if (node.level != 0) marks.push_back(str_cat("level ", node.level));
  if (is_leaf_mark(node)) marks.emplace_back("makes a leaf");
  if (const NumberOperation* call = number_operation(node); call != nullptr && call->guarded) {
    marks.push_back("guard: is " + value_text(call->guarded.get()));
  }
  if (const RegionMark* mark = region_mark(node)) {
    marks.emplace_back(mark->begins ? "checkpoint begins" : "checkpoint ends");
    if (mark->reentrant) marks.emplace_back("reentrant");
    if (mark->redraws) marks.emplace_back("draws again");
  }
  if (is_numpy_operation(node)) marks.emplace_back("done");
  std::string text = listed(marks, [](const std::string& mark) { return mark; });
  return text.empty() ? text : str_cat(" {", text, "}");
}

std::string slots_text(const std::vector<int>& slots) {
  return listed(slots, [](int slot) { return slot >= 0 ? str_cat("%", slot) : std::string("_"); });
}

/// The backward of the user's function, as it was traced.
std::string custom_text(const Tape& tape, const CustomBackward& custom) {
  std::string text =
      str_cat("\n  backward(", slots_text(custom.cotangents), ") of (", slots_text(custom.operands), ") {");
  for (const TapeNode& node : custom.nodes) text += "\n    " + node_text(tape, node);
  return text + str_cat("\n    return (", slots_text(custom.gradients), ")\n  }");
}

}  // namespace

std::string dtype_text(uint8_t code, uint8_t bits) {
  // DLDataTypeCode.
  static constexpr const char* kNames[] = {"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
  const std::string name = code < std::size(kNames) ? kNames[code] : str_cat("dlpack", static_cast<int>(code), "_");
  return name == "bool" ? name : str_cat(name, static_cast<int>(bits));
}

std::string sizes_text(const std::vector<Expr>& sizes) {
  return str_cat("[", listed(sizes, [](Expr e) { return e.str(); }), "]");
}

std::string sizes_text(const std::vector<int64_t>& sizes) {
  return str_cat("[", listed(sizes, [](int64_t n) { return str_cat(n); }), "]");
}

std::string value_text(PyObject* object) {
  const ErrorAside aside;
  if (object == nullptr) return "nothing";
  if (const int slot = slot_of(object); slot >= 0) return str_cat("%", slot);
  if (is_size_ref(object)) return size_ref_expr(object).str();
  if (PyTuple_CheckExact(object)) {
    return str_cat("(", items_text(object), PyTuple_GET_SIZE(object) == 1 ? ",)" : ")");
  }
  if (PyList_CheckExact(object)) return str_cat("[", items_text(object), "]");
  if (PyDict_CheckExact(object)) return str_cat("{", dict_text(object, ": "), "}");
  if (PySlice_Check(object)) {
    const auto* slice = reinterpret_cast<PySliceObject*>(object);
    std::string text = str_cat("slice(", value_text(slice->start), ", ", value_text(slice->stop));
    return slice->step == Py_None ? text + ")" : str_cat(text, ", ", value_text(slice->step), ")");
  }
  if (PyModule_Check(object)) return "module " + name_of(object);
  if (PyType_Check(object)) return "class " + qualified_name(object);
  if (PyFunction_Check(object)) return "function " + qualified_name(object);
  if (PyCFunction_Check(object)) return "function " + qualified_name(object);
  if (PyMethod_Check(object)) return str_cat("method ", qualified_name(PyMethod_GET_FUNCTION(object)));
  if (const TorchApi* api = TorchApi::get(); api != nullptr && api->is_torch_tensor(object)) {
    TensorMeta meta;
    if (!api->is_plain_tensor(object) || !api->read_meta(object, meta)) return "a tensor";
    return str_cat("tensor ", dtype_text(meta.code, meta.bits), sizes_text(meta.sizes));
  }
  return short_repr(object);
}

std::string input_text(const Tape& tape, int slot) {
  const TapeSlot& info = tape.slots()[static_cast<size_t>(slot)];
  const std::string from = info.guard_index >= 0 ? str_cat("input ", info.guard_index) : std::string("constant");
  return str_cat("%", slot, " = ", from, ": ", slot_type(info));
}

std::string node_text(const Tape& tape, const TapeNode& node) {
  std::string text = slots_text(node.outputs);
  if (!text.empty()) text += " = ";
  text += node.name + "(";
  if (gradient_pass(node) != nullptr) {
    const PassOperands operands = pass_operands(node);
    text += str_cat("roots=", value_text(operands.roots), ", cotangents=", value_text(operands.cotangents),
                    ", variables=", value_text(operands.variables));
  } else if (function_end(node) != nullptr) {
    const FunctionOperands operands = function_operands(node);
    text += str_cat("operands=", value_text(operands.operands), ", results=", value_text(operands.results));
  } else if (node.args && PyTuple_Check(node.args.get())) {
    text += items_text(node.args.get());
  }
  if (node.kwargs && PyDict_GET_SIZE(node.kwargs.get()) > 0) {
    if (text.back() != '(') text += ", ";
    text += dict_text(node.kwargs.get(), "=");
  }
  text += ")";
  const std::string types = listed(node.outputs, [&tape](int slot) {
    return slot >= 0 ? slot_type(tape.slots()[static_cast<size_t>(slot)]) : std::string("_");
  });
  if (!types.empty()) text += ": " + types;
  text += marks_of(node);
  if (node.location.line > 0)
    text += str_cat("   # ", node.location.file.substr(node.location.file.rfind('/') + 1), ":", node.location.line);
  if (const FunctionEnd* end = function_end(node)) text += custom_text(tape, *end->backward);
  return text;
}

std::string tape_text(const Tape& tape) {
  std::string text = "tape {\n";
  for (size_t slot = 0; slot < tape.slots().size(); ++slot) {
    if (tape.slots()[slot].input) text += str_cat("  ", input_text(tape, static_cast<int>(slot)), "\n");
  }
  for (const TapeNode& node : tape.nodes()) {
    check_cancelled();
    text += str_cat("  ", node_text(tape, node), "\n");
  }
  return text + str_cat("  return (", slots_text(tape.outputs()), ")\n}\n");
}

std::string Tape::str() const { return tape_text(*this); }

}  // namespace tatara::capture
