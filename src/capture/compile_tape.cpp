// Compiles a tape.
#include <chrono>
#include <memory>

#include "capture/compiled_runner.h"
#include "capture/graph_from_tape.h"
#include "capture/graph_object.h"
#include "capture/tracer.h"
#include "compiler/compiler.h"
#include "support/error.h"

namespace tatara::capture {
namespace {

void add_text(PyObject* dict, const char* key, const std::string& value) {
  const Ref text = Ref::steal(PyUnicode_FromStringAndSize(value.data(), static_cast<Py_ssize_t>(value.size())));
  PyDict_SetItemString(dict, key, text.get());
}

/// What explain() shows of the compilation.
Ref details_of(const CompileResult& compiled) {
  const Plan& plan = compiled.executable->plan();
  Ref kernels = Ref::steal(PyList_New(0)), hosts = Ref::steal(PyList_New(0)), times = Ref::steal(PyList_New(0)),
      notes = Ref::steal(PyList_New(0));
  for (const PlanKernel& kernel : plan.kernels) {
    const Ref d = Ref::steal(PyDict_New());
    add_text(d.get(), "name", kernel.name);
    add_text(d.get(), "loops", kernel.loop_text);
    add_text(d.get(), "llvm", kernel.llvm_text);
    const Ref ops = Ref::steal(PyList_New(0));
    for (const std::string& op : kernel.fused_ops) {
      const Ref text = Ref::steal(PyUnicode_FromString(op.c_str()));
      PyList_Append(ops.get(), text.get());
    }
    PyDict_SetItemString(d.get(), "ops", ops.get());
    const Ref bytes = Ref::steal(PyLong_FromLongLong(kernel.bytes_read + kernel.bytes_written));
    PyDict_SetItemString(d.get(), "bytes", bytes.get());
    PyList_Append(kernels.get(), d.get());
  }
  for (const PlanStep& step : plan.steps) {
    const auto* call = std::get_if<HostCall>(&step);
    if (call == nullptr) continue;
    const Ref d = Ref::steal(PyDict_New());
    add_text(d.get(), "op", call->op);
    add_text(d.get(), "reason", "runs by its host kernel at " + call->location.str());
    PyList_Append(hosts.get(), d.get());
  }
  for (const StageTime& time : compiled.times) {
    const Ref item = Ref::steal(Py_BuildValue("(sd)", time.stage.c_str(), time.seconds));
    PyList_Append(times.get(), item.get());
  }
  for (const ScheduleNote& note : compiled.notes) {
    const Ref item = Ref::steal(PyUnicode_FromString((note.subject + ": " + note.text).c_str()));
    PyList_Append(notes.get(), item.get());
  }
  return Ref::steal(Py_BuildValue("{s:O,s:O,s:O,s:O}", "kernels", kernels.get(), "host_calls", hosts.get(), "times",
                                  times.get(), "notes", notes.get()));
}

}  // namespace

bool attach_compiled(Entry& entry, TorchApi& api) {
  const auto start = std::chrono::steady_clock::now();
  try {
    TapeGraph made = build_graph(*entry.tape, api);
    entry.graph_text = print_graph(made.graph, true);
    CompileResult compiled = compile_graph(made.graph, CompileOptions{});
    entry.lowered_text = compiled.lowered_text;
    entry.details = details_of(compiled);
    stats().kernels_compiled += static_cast<uint64_t>(compiled.kernels_compiled);
    stats().cache_hits += static_cast<uint64_t>(compiled.cache_hits);
    entry.runner = std::make_unique<CompiledRunner>(std::move(compiled.executable), std::move(made), *entry.tape);
  } catch (const std::exception& error) {
    if (PyErr_Occurred() != nullptr) PyErr_Clear();
    entry.fallback_reason = error.what();
    ++stats().fallbacks;
  }
  entry.compile_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return entry.runner != nullptr;
}

}  // namespace tatara::capture
