// Compiles a tape and runs the executable on the host's tensors.
#include <dlfcn.h>

#include <chrono>
#include <memory>

#include "capture/graph_from_tape.h"
#include "capture/graph_object.h"
#include "capture/tracer.h"
#include "compiler/compiler.h"
#include "runtime/torch_abi.h"
#include "support/error.h"

namespace tatara::capture {
namespace {

/// Sets the Python exception that stands for `error`.
void set_python_error(const Error& error) {
  PyErr_SetString(error.kind() == "IndexError" ? PyExc_IndexError : PyExc_RuntimeError, error.what());
}

Ref int_tuple(const std::vector<int64_t>& values) {
  Ref tuple = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(values.size())));
  for (size_t i = 0; i < values.size(); ++i) {
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(values[i]));
  }
  return tuple;
}

class CompiledRunner final : public GraphRunner {
 public:
  CompiledRunner(std::shared_ptr<Executable> executable, TapeGraph made, TorchApi& api)
      : executable_(std::move(executable)),
        inputs_(std::move(made.inputs)),
        outputs_(std::move(made.outputs)),
        constants_(std::move(made.constants)) {
    const Plan& plan = executable_->plan();
    for (const OutputBuffer& buffer : executable_->output_buffers()) {
      const Ref dtype = attr(api.torch.get(), torch_dtype_name(buffer.dtype));
      Ref kwargs = Ref::steal(PyDict_New());
      PyDict_SetItemString(kwargs.get(), "dtype", dtype.get());
      allocations_.push_back({{}, std::move(kwargs)});
    }
    views_.resize(inputs_.size());
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const TensorType& type = plan.inputs[i].type;
      views_[i].dtype = type.dtype;
      views_[i].device = type.device;
    }
    mutates_ = !plan.input_writes.empty();
    for (const PlanStep& step : plan.steps) ++(std::holds_alternative<KernelLaunch>(step) ? kernels_ : host_calls_);
  }

  bool run(const Tape& tape, std::vector<Ref>& env, TorchApi& api) override {
    std::vector<TensorView> views = views_;
    TensorMeta meta;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!api.read_meta(input(env, i), meta)) {
        PyErr_SetString(PyExc_RuntimeError, "an input tensor cannot be imported");
        return false;
      }
      views[i].data = meta.data;
      views[i].sizes = meta.sizes;
      views[i].strides = meta.strides;
    }
    if (mutates_ && overlapping(views)) return tape.run(env, api);
    try {
      return run_plan(env, api, views);
    } catch (const Error& error) {
      // Eager's own error, or its result: nothing outside was touched.
      if (!mutates_ && PyErr_Occurred() == nullptr) return tape.run(env, api);
      if (PyErr_Occurred() == nullptr) set_python_error(error);
      return false;
    }
  }

 private:
  PyObject* input(const std::vector<Ref>& env, size_t i) const {
    const int slot = inputs_[i];
    return slot >= 0 ? env[static_cast<size_t>(slot)].get() : constants_[static_cast<size_t>(-1 - slot)].get();
  }

  static bool overlapping(const std::vector<TensorView>& views) {
    std::vector<std::pair<const char*, const char*>> ranges;
    for (const TensorView& view : views) {
      int64_t last = 0;
      bool empty = false;
      for (size_t d = 0; d < view.sizes.size(); ++d) {
        empty = empty || view.sizes[d] == 0;
        last += (view.sizes[d] - 1) * view.strides[d];
      }
      if (empty) continue;
      const auto* begin = static_cast<const char*>(view.data);
      ranges.emplace_back(begin, begin + (last + 1) * dtype_size(view.dtype));
    }
    for (size_t i = 0; i < ranges.size(); ++i) {
      for (size_t j = i + 1; j < ranges.size(); ++j) {
        if (ranges[i].first < ranges[j].second && ranges[j].first < ranges[i].second) return true;
      }
    }
    return false;
  }

  Ref as_strided(PyObject* base, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
                 int64_t offset) {
    const Ref size = int_tuple(sizes), stride = int_tuple(strides);
    return Ref::steal(
        PyObject_CallMethod(base, "as_strided", "OOL", size.get(), stride.get(), static_cast<long long>(offset)));
  }

  /// A Python tensor for a host call's result.
  Ref adopt(const HostTensor& tensor, TorchApi& api) {
    const torch_abi::Api* abi = torch_abi::api();
    torch_abi::TensorHandle handle = nullptr;
    if (abi->aoti_torch_new_tensor_handle(static_cast<torch_abi::TensorHandle>(tensor.get()), &handle) != 0) return {};
    if (!adopt_) {
      const Ref aoti = attr(api.core.get(), "_aoti");
      adopt_ = attr(aoti.get(), "alloc_tensor_by_stealing_from_void_ptr");
    }
    const Ref capsule = Ref::steal(PyCapsule_New(handle, nullptr, nullptr));
    return Ref::steal(PyObject_CallOneArg(adopt_.get(), capsule.get()));
  }

  bool run_plan(std::vector<Ref>& env, TorchApi& api, const std::vector<TensorView>& views) {
    const Plan& plan = executable_->plan();
    std::vector<int64_t> symbols;
    if (!executable_->bind_symbols(views, symbols)) {
      throw InternalError("an input contradicts the plan's types");
    }
    std::vector<Ref> buffers;
    std::vector<void*> pointers;
    std::vector<std::vector<int64_t>> buffer_sizes, buffer_strides;
    TensorMeta meta;
    for (size_t i = 0; i < allocations_.size(); ++i) {
      std::vector<int64_t> sizes, strides;
      executable_->output_buffer_layout(i, symbols, sizes, strides);
      const Ref args = Ref::steal(PyTuple_Pack(2, int_tuple(sizes).get(), int_tuple(strides).get()));
      Ref tensor = Ref::steal(PyObject_Call(api.empty_strided.get(), args.get(), allocations_[i].kwargs.get()));
      if (!tensor) return false;
      if (!api.read_meta(tensor.get(), meta)) throw InternalError("an output cannot be imported");
      buffers.push_back(std::move(tensor));
      pointers.push_back(meta.data);
      buffer_sizes.push_back(std::move(sizes));
      buffer_strides.push_back(std::move(strides));
    }
    RunIo io{views, pointers, {}};
    {
      struct Unlocked {
        PyThreadState* state = PyEval_SaveThread();
        ~Unlocked() { PyEval_RestoreThread(state); }
      } const unlocked;
      executable_->run(io, symbols);
    }
    stats().kernels_launched += kernels_;
    stats().host_calls += host_calls_;
    std::vector<Ref> results(plan.outputs.size());
    std::vector<bool> used(buffers.size());
    std::vector<int64_t> sizes, strides;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const PlanBuffer& buffer = plan.buffers[static_cast<size_t>(plan.outputs[i].ref.buffer)];
      int64_t offset = 0;
      executable_->output_layout(i, symbols, sizes, strides, offset);
      Ref result;
      switch (buffer.home) {
        case BufferHome::kOutput: {
          const auto b = static_cast<size_t>(buffer.index);
          const bool whole = offset == 0 && sizes == buffer_sizes[b] && strides == buffer_strides[b] && !used[b];
          result = whole ? buffers[b] : as_strided(buffers[b].get(), sizes, strides, offset);
          used[b] = used[b] || whole;
          break;
        }
        case BufferHome::kInput: {
          PyObject* base = input(env, static_cast<size_t>(buffer.index));
          const Ref start = Ref::steal(PyObject_CallMethod(base, "storage_offset", nullptr));
          result = as_strided(base, sizes, strides, offset + PyLong_AsLongLong(start.get()));
          break;
        }
        case BufferHome::kHost: {
          result = adopt(io.host_outputs[i], api);
          if (!result) return false;
          if (!api.read_meta(result.get(), meta)) throw InternalError("a host result cannot be imported");
          if (meta.sizes != sizes || meta.strides != strides || offset != 0) {
            result = as_strided(result.get(), sizes, strides, offset);
          }
          break;
        }
        case BufferHome::kArena:
        case BufferHome::kConstant: throw InternalError("an output in the plan's own memory");
      }
      if (!result) return false;
      env[static_cast<size_t>(outputs_[i])] = std::move(result);
    }
    return true;
  }

  struct Allocation {
    std::vector<int64_t> unused;
    Ref kwargs;
  };
  std::shared_ptr<Executable> executable_;
  std::vector<int> inputs_, outputs_;
  std::vector<Ref> constants_;
  std::vector<Allocation> allocations_;
  std::vector<TensorView> views_;
  Ref adopt_;
  bool mutates_ = false;
  uint64_t kernels_ = 0, host_calls_ = 0;
};

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
    entry.runner = std::make_unique<CompiledRunner>(std::move(compiled.executable), std::move(made), api);
  } catch (const std::exception& error) {
    if (PyErr_Occurred() != nullptr) PyErr_Clear();
    entry.fallback_reason = error.what();
    ++stats().fallbacks;
  }
  entry.compile_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return entry.runner != nullptr;
}

}  // namespace tatara::capture
