// The extension module tatara._core.
#include <Python.h>

#include "bindings/environment.h"
#include "bindings/history.h"
#include "capture/compiled_function.h"
#include "capture/entries/identities.h"
#include "capture/entries/owner.h"
#include "capture/host/errors.h"
#include "capture/host/known_calls.h"
#include "capture/host/torch_hooks.h"
#include "capture/python/py_errors.h"
#include "capture/run/backward_node.h"
#include "capture/run/forward_node.h"
#include "capture/run/runner.h"
#include "capture/trace/tracer.h"
#include "capture/vm/vm.h"
#include "runtime/jit/cpu_options.h"
#include "runtime/jit/llvm_provider.h"
#include "support/error.h"
#include "support/options.h"

// nanobind supplies the build; the module itself is small enough for the C API, whose vectorcall type lives in capture.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

namespace nb = nanobind;

namespace {

nb::object option_value(const tatara::OptionValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return nb::bool_(*flag);
  if (const auto* number = std::get_if<int64_t>(&value)) return nb::int_(*number);
  const auto& text = std::get<std::string>(value);
  // As Python reads the environment: a path may hold any bytes.
  return nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogateescape"));
}

const tatara::OptionInfo& find_option(const std::string& name) {
  const tatara::OptionInfo* info = tatara::find_option(name);
  if (info == nullptr) throw nb::attribute_error(("no option named " + name).c_str());
  return *info;
}

/// Of an object of the option's own type; InvalidArgument for numbers and texts that C++ cannot hold.
tatara::OptionValue value_from(const tatara::OptionInfo& info, nb::handle value) {
  const auto fail = [&] {
    tatara::capture::forget_error();
    return tatara::InvalidArgument(tatara::str_cat("option ", info.name, " takes ", tatara::option_takes(info),
                                                   ", not ", nb::repr(value).c_str()));
  };
  if (std::holds_alternative<bool>(info.fallback)) return nb::cast<bool>(value);
  if (std::holds_alternative<int64_t>(info.fallback)) {
    const long long number = PyLong_AsLongLong(value.ptr());
    if (number == -1 && PyErr_Occurred() != nullptr) throw fail();
    return static_cast<int64_t>(number);
  }
  const nb::object text = nb::steal(PyUnicode_AsEncodedString(value.ptr(), "utf-8", "surrogateescape"));
  if (!text.is_valid()) throw fail();
  return std::string(PyBytes_AS_STRING(text.ptr()), static_cast<size_t>(PyBytes_GET_SIZE(text.ptr())));
}

void check_option(const std::string& name, nb::handle value) {
  const tatara::OptionInfo& info = find_option(name);
  tatara::check_option(info, value_from(info, value));
}

void set_option(const std::string& name, nb::handle value) {
  const tatara::OptionInfo& info = find_option(name);
  tatara::set_option(info.option, value_from(info, value));
}

PyObject* is_compiling(PyObject*, PyObject*) { return PyBool_FromLong(tatara::capture::is_tracing() ? 1 : 0); }

PyObject* call_alone(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  if (nargs < 1) {
    PyErr_SetString(PyExc_TypeError, "call_alone takes a callable, then its arguments");
    return nullptr;
  }
  return tatara::capture::Tracer::call_alone(args[0], args + 1, static_cast<size_t>(nargs - 1));
}

PyObject* call_apart(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  if (nargs < 2) {
    PyErr_SetString(PyExc_TypeError, "call_apart takes a reason, a callable, then its arguments");
    return nullptr;
  }
  return tatara::capture::Tracer::call_apart(args, static_cast<size_t>(nargs));
}

PyObject* apart_in_memory(PyObject*, PyObject* tensors) {
  if (PyList_Check(tensors) == 0) {
    PyErr_SetString(PyExc_TypeError, "apart_in_memory takes a list of tensors");
    return nullptr;
  }
  PyObject* const* items = PySequence_Fast_ITEMS(tensors);
  const auto count = static_cast<size_t>(PyList_GET_SIZE(tensors));
  return PyBool_FromLong(tatara::capture::apart_in_memory({items, count}) ? 1 : 0);
}

/// Plain C functions, which the tracer knows by their names, not nanobind's callables.
void add_plain_functions(nb::module_& m) {
  static PyMethodDef methods[] = {
      {"is_compiling", is_compiling, METH_NOARGS,
       "is_compiling()\n--\n\nWhether Tatara is tracing right now; False in eager."},
      {"call_alone", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(call_alone)), METH_FASTCALL,
       "Calls a function of arrays past the trace that is open. Compiled code calls it again, and compares what it "
       "gives."},
      {"call_apart", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(call_apart)), METH_FASTCALL,
       "Calls a function as if no trace were open. A graph breaks there for the reason given."},
      {"apart_in_memory", apart_in_memory, METH_O,
       "Whether no two tensors of a list share memory; False, too, where one's memory is not known."}};
  const nb::object name = nb::str("tatara._core");
  for (PyMethodDef& method : methods) {
    m.attr(method.ml_name) = nb::steal(PyCFunction_NewEx(&method, nullptr, name.ptr()));
  }
}

/// tatara.InvalidArgument and its kin for what the core throws.
void translate_error(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const tatara::Error& error) {
    tatara::capture::raise_error(error);
  }
}

}  // namespace

NB_MODULE(_core, m) {
  nb::register_exception_translator(translate_error);
  // Threads that trace nothing stay in CPython's own evaluator while another one traces.
  tatara::capture::vm_run_unobserved(false);
  tatara::install_torch_hooks();
  tatara::install_cpu_option_checks();
  tatara::bind_history(m);
  tatara::bind_environment(m);
#ifdef NDEBUG
  // A program that ends with a history in a global is no leak to tell its user about.
  nb::set_leak_warnings(false);
#endif
  m.attr("CompiledFunction") = nb::steal(tatara::capture::compiled_function_type());
  m.def(
      "stats", [] { return nb::steal(tatara::capture::stats_dict()); }, nb::sig("def stats() -> dict[str, int]"),
      "Counters since the last reset.");
  m.def(
      "install_node",
      [](nb::handle node, nb::handle apply) {
        tatara::capture::install_compiled_node(node.ptr(), apply.ptr());
        node.attr("forward") = nb::steal(tatara::capture::compiled_node_forward());
        node.attr("_backward_cls").attr("apply") = nb::steal(tatara::capture::compiled_node_apply());
      },
      nb::arg("node"), nb::arg("apply"), "Gives the class of nodes the core's methods; `apply` is torch's own.");
  m.def(
      "call_stage",
      [](nb::handle stage, nb::handle inputs, nb::handle given) {
        tatara::capture::Ref outputs = tatara::capture::call_stage(stage.ptr(), inputs.ptr(), given.ptr());
        if (!outputs) throw nb::python_error();
        return nb::steal(outputs.release());
      },
      nb::arg("stage"), nb::arg("inputs"), nb::arg("given").none(),
      nb::sig("def call_stage(stage: object, inputs: list[object], given: object) -> list[object] | None"),
      "Outputs as eager gives them, or None for inputs that do not fit.");
  m.def(
      "known_calls",
      [] {
        nb::list rows;
        const auto text = [](std::string_view view) { return nb::str(view.data(), view.size()); };
        for (const tatara::capture::CallRow& row : tatara::capture::call_rows()) {
          rows.append(nb::make_tuple(text(row.kind), text(row.place), text(row.name), text(row.versions), row.loaded,
                                     row.found));
        }
        return rows;
      },
      nb::sig("def known_calls() -> list[tuple[str, str, str, str, bool, bool]]"),
      "Rows of known_calls.def, and whether each is loaded and found.");
  m.def(
      "call_counts",
      [] {
        const tatara::capture::CallCounts counts = tatara::capture::call_counts();
        return nb::make_tuple(counts.calls, counts.look_ups);
      },
      nb::sig("def call_counts() -> tuple[int, int]"), "Traced calls so far, and how often a callable was looked up.");
  m.def("reset", &tatara::capture::reset_all, "Forgets every captured graph.");
  m.def("disable", &tatara::capture::disable, nb::arg("change"), "Nests: 1 to disable in this thread, -1 to end that.");
  m.def(
      "set_llvm_path", [](const std::string& path) { tatara::set_llvm_path(path); }, nb::arg("path"),
      "Where libllvmlite.so is.");
  add_plain_functions(m);
  m.def(
      "set_explaining",
      [](int level) {
        if (level < 0 || level > 2) throw nb::value_error("the level is 0, 1 or 2");
        using tatara::capture::Explaining;
        return static_cast<int>(tatara::capture::set_explaining(static_cast<Explaining>(level)));
      },
      nb::arg("level"), "0 off, 1 keep texts, 2 also measure; returns the old level.");
  m.def(
      "set_unsupported_type", [](nb::handle type) { tatara::capture::set_unsupported_type(type.ptr()); },
      nb::arg("type"), nb::sig("def set_unsupported_type(type: type[BaseException]) -> None"),
      "The exception of graph breaks under fullgraph.");
  m.def(
      "option", [](const std::string& name) { return option_value(tatara::option(find_option(name).option)); },
      nb::arg("name"), nb::sig("def option(name: str) -> bool | int | str"), "The present value.");
  m.def("set_option", &set_option, nb::arg("name"), nb::arg("value"),
        nb::sig("def set_option(name: str, value: bool | int | str) -> None"), "For the whole process.");
  m.def("check_option", &check_option, nb::arg("name"), nb::arg("value"),
        nb::sig("def check_option(name: str, value: bool | int | str) -> None"), "Raises what set_option would.");
  m.def("check_environment", &tatara::check_environment, "Reads all variables of the environment.");
  m.def(
      "option_takes", [](const std::string& name) { return tatara::option_takes(find_option(name)); }, nb::arg("name"),
      "What the option takes, in words.");
  m.def(
      "reset_option", [](const std::string& name) { tatara::reset_option(find_option(name).option); }, nb::arg("name"),
      "Back to the environment or the default.");
  m.def(
      "option_names",
      [] {
        nb::list names;
        for (const tatara::OptionInfo& info : tatara::option_table()) {
          names.append(nb::make_tuple(nb::str(std::string(info.name).c_str()), nb::str(std::string(info.doc).c_str()),
                                      info.per_function ? "compilation" : "process"));
        }
        return names;
      },
      nb::sig("def option_names() -> list[tuple[str, str, str]]"),
      "Name, text and scope (\"compilation\" or \"process\") of every option.");
}
