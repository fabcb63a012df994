#include "capture/run/report_details.h"

#include <string_view>
#include <utility>

#include "capture/run/runner.h"
#include "capture/tape/transaction.h"
#include "ops/core/op_def.h"
#include "runtime/plan/loop_plan.h"
#include "support/cancel.h"
#include "support/str_cat.h"

namespace tatara::capture {
namespace {

thread_local Explaining t_explaining = Explaining::kOff;

/// Builds lists and dicts. A failure (no memory) leaves the Python error set; the end checks it once.
Ref text(std::string_view s) {
  return Ref::steal(PyUnicode_DecodeUTF8(s.data(), static_cast<Py_ssize_t>(s.size()), "replace"));
}
Ref number(int64_t n) { return Ref::steal(PyLong_FromLongLong(n)); }

class Dict {
 public:
  Dict& put(const char* key, const Ref& value) {
    if (value) PyDict_SetItemString(dict_.get(), key, value.get());
    return *this;
  }
  Dict& put(const char* key, std::string_view value) { return put(key, text(value)); }
  Dict& put(const char* key, int64_t value) { return put(key, number(value)); }
  Ref take() { return std::move(dict_); }

 private:
  Ref dict_ = Ref::steal(PyDict_New());
};

template <typename T, typename Fn>
Ref list_of(const std::vector<T>& items, Fn&& fn) {
  Ref list = Ref::steal(PyList_New(0));
  for (const T& item : items) {
    check_cancelled();
    const Ref object = fn(item);
    if (object) PyList_Append(list.get(), object.get());
  }
  return list;
}

Ref numbers(const std::vector<int>& items) {
  return list_of(items, [](int n) { return number(n); });
}

/// The expression under the sizes that the program was captured with; -1 when unknown.
int64_t hint(const Plan& plan, Expr e) {
  if (!e.valid()) return 0;
  return plan.ctx->evaluate_hint(e).value_or(-1);
}

void put_location(Dict& dict, const SourceLocation& location) {
  dict.put("file", location.file ? *location.file : std::string());
  dict.put("function", location.function ? *location.function : std::string());
  dict.put("line", int64_t{location.line});
}

/// Bytes of a dense tensor of the type, under the hints; -1 when unknown.
int64_t bytes_of(const Graph& graph, ValueId v) {
  const TensorType& type = graph.type(v);
  const std::optional<int64_t> elements = graph.ctx().evaluate_hint(type.numel(graph.ctx()));
  return elements ? *elements * dtype_size(type.dtype) : -1;
}

/// One node of the lowered graph, with the line that print_graph gives it.
Ref node_dict(const Graph& graph, NodeId id, std::string_view line) {
  const Node& node = graph.node(id);
  Dict dict;
  dict.put("id", int64_t{id}).put("op", node.op->name).put("text", line);
  dict.put("view", int64_t{node.op->kind == OpKind::kView});
  std::vector<int> operands;
  for_each_operand(node, [&](ValueId v) { operands.push_back(v); });
  dict.put("inputs", numbers(operands)).put("outputs", numbers(node.outputs));
  dict.put("bytes", list_of(node.outputs, [&](ValueId v) { return number(bytes_of(graph, v)); }));
  dict.put("type", node.outputs.empty() ? std::string() : graph.type(node.outputs[0]).str());
  put_location(dict, node.location);
  return dict.take();
}

/// The lowered graph: nodes, and the values that come in and go out.
void put_graph(Dict& details, const Graph& graph) {
  // print_graph writes one line per node after the first.
  const std::string printed = print_graph(graph);
  std::vector<std::string_view> lines;
  for (size_t at = 0; at < printed.size();) {
    check_cancelled();
    const size_t end = std::min(printed.find('\n', at), printed.size());
    lines.push_back(std::string_view(printed).substr(at, end - at));
    at = end + 1;
  }
  std::vector<NodeId> ids;
  for (size_t i = 0; i < graph.num_nodes(); ++i) ids.push_back(static_cast<NodeId>(i));
  details.put("nodes", list_of(ids, [&](NodeId id) {
                const auto line = static_cast<size_t>(id) + 1;
                return node_dict(graph, id, trim(line < lines.size() ? lines[line] : std::string_view()));
              }));
  details.put("inputs", list_of(graph.inputs(), [&](ValueId v) {
                Dict dict;
                dict.put("value", int64_t{v}).put("name", graph.name(v)).put("type", graph.type(v).str());
                dict.put("bytes", bytes_of(graph, v));
                return dict.take();
              }));
  details.put("outputs", list_of(graph.outputs(), [](const GraphOutput& output) { return number(output.value); }));
}

Ref kernel_dict(const PlanKernel& kernel) {
  Dict dict;
  dict.put("name", kernel.name).put("loops", kernel.loop_text).put("llvm", kernel.llvm_text);
  dict.put("ops", list_of(kernel.fused_ops, [](const std::string& op) { return text(op); }));
  dict.put("nodes", numbers(kernel.nodes));
  dict.put("bytes_read", kernel.bytes_read).put("bytes_written", kernel.bytes_written);
  return dict.take();
}

/// Why an operator is not in a kernel.
std::string_view host_reason(const HostCall& call, const Graph* graph) {
  constexpr std::string_view kNoLowering = "no lowering is written for it: it runs by its host kernel";
  if (is_loop_call(call)) return "a loop, whose turns are runs of a plan of its own";
  if (is_table_call(call)) return "the numbers of a loop's turns";
  if (graph == nullptr || call.node < 0) return "runs by its host kernel";
  const OpDef& op = *graph->node(call.node).op;
  switch (op.kind) {
    case OpKind::kHost:
      return "an operator that the host's own kernels run (matrix products, convolutions, sorting, ...)";
    case OpKind::kRandom: return "random numbers come from the host's generator, so that they are eager's";
    case OpKind::kPointwise:
    case OpKind::kView:
    case OpKind::kReduction:
    case OpKind::kScan:
    case OpKind::kCreation:
    case OpKind::kIndexing:
    case OpKind::kComposite: break;
  }
  return op.lower ? "its lowering declined these arguments: it runs by its host kernel" : kNoLowering;
}

Ref step_dict(const Plan& plan, const PlanStep& step, const Graph* graph) {
  Dict dict;
  if (const auto* launch = std::get_if<KernelLaunch>(&step)) {
    dict.put("kind", "launch").put("kernel", int64_t{launch->kernel});
    dict.put("buffers", numbers(launch->buffers));
    dict.put("iterations", hint(plan, launch->parallel_iterations));
    dict.put("items", static_cast<int64_t>(launch->item_blocks.size()));
    return dict.take();
  }
  const auto& call = std::get<HostCall>(step);
  std::vector<int> buffers;
  for (const BufferRef& ref : call.tensors) buffers.push_back(ref.buffer);
  dict.put("kind", "host").put("op", call.op).put("overload", call.overload).put("node", int64_t{call.node});
  dict.put("buffers", numbers(buffers)).put("results", numbers(call.results));
  dict.put("reason", host_reason(call, graph));
  put_location(dict, call.location);
  return dict.take();
}

Ref buffer_dict(const Plan& plan, const PlanBuffer& buffer) {
  std::string type = str_cat(dtype_name(buffer.dtype), "[");
  for (size_t i = 0; i < buffer.sizes.size(); ++i) type += (i == 0 ? "" : ", ") + buffer.sizes[i].str();
  Dict dict;
  dict.put("home", home_name(buffer.home)).put("index", int64_t{buffer.index}).put("type", type + "]");
  dict.put("bytes", hint(plan, buffer.nbytes));
  dict.put("offset", buffer.home == BufferHome::kArena ? hint(plan, buffer.offset) : int64_t{-1});
  return dict.take();
}

}  // namespace

Explaining explaining() { return t_explaining; }
Explaining set_explaining(Explaining level) { return std::exchange(t_explaining, level); }

Ref details_of(const CompileResult& compiled) {
  const Plan& plan = compiled.executable->plan();
  const Graph* graph = compiled.lowered.get();
  Dict dict;
  dict.put("id", compiled.executable->id());
  dict.put("kernels", list_of(plan.kernels, kernel_dict));
  dict.put("steps", list_of(plan.steps, [&](const PlanStep& step) { return step_dict(plan, step, graph); }));
  dict.put("buffers", list_of(plan.buffers, [&](const PlanBuffer& buffer) { return buffer_dict(plan, buffer); }));
  dict.put("arena_bytes", hint(plan, plan.arena_bytes));
  dict.put("times", list_of(compiled.times, [](const StageTime& time) {
             return Ref::steal(Py_BuildValue("(sd)", time.stage.c_str(), time.seconds));
           }));
  dict.put("notes", list_of(compiled.notes, [](const ScheduleNote& note) {
             return Ref::steal(Py_BuildValue("(ss)", note.subject.c_str(), note.text.c_str()));
           }));
  if (graph != nullptr) put_graph(dict, *graph);
  return PyErr_Occurred() != nullptr ? Ref() : dict.take();
}

Ref step_between(const TapeNode& node, const std::string& why) {
  const Ref none = Ref::steal(PyList_New(0));
  return Ref::steal(Py_BuildValue("{s:s,s:s,s:s,s:i,s:O,s:O,s:s,s:s,s:s,s:i}", "kind", "host", "op", node.name.c_str(),
                                  "overload", "", "node", -1, "buffers", none.get(), "results", none.get(), "reason",
                                  why.c_str(), "file", node.location.file.c_str(), "function",
                                  node.location.function.c_str(), "line", node.location.line));
}

void measure_entry(const Entry& entry, const std::vector<PyObject*>& objects, TorchApi& api) {
  if (!api.present() || entry.runner == nullptr || !entry.runner->compiled()) return;
  const std::shared_ptr<DataDecisions> decisions = entry.tape->decisions();
  const DataDecisions before = decisions != nullptr ? *decisions : DataDecisions();
  std::vector<Ref> env(entry.tape->slots().size());
  const auto fill = [&] {
    for (size_t i = 0; i < env.size(); ++i) {
      const TapeSlot& slot = entry.tape->slots()[i];
      if (!slot.input) continue;
      env[i] = slot.guard_index >= 0 ? Ref::borrow(objects[static_cast<size_t>(slot.guard_index)]) : slot.object;
      if (slot.conjugate) env[i] = api.beneath(env[i].get());
    }
    for (const int slot : entry.runner->written_slots()) {
      if (slot < 0) return false;
      if (entry.tape->slots()[static_cast<size_t>(slot)].guard_index < 0) continue;
      Ref& input = env[static_cast<size_t>(slot)];
      input = Ref::steal(PyObject_CallMethod(input.get(), "clone", nullptr));
      if (!input) return false;
    }
    return true;
  };
  // All begins as the call has left it, and ends so: a counter may decide.
  const auto run = [&] {
    Transaction transaction(Transaction::kMostInTrace);
    const Transaction::Scope scope(transaction);
    if (!fill()) return false;
    transaction.keep_generators(*entry.tape, env, api);
    // Runners use the tensors that the graph holds, whatever they are given.
    for (const int slot : entry.runner->written_slots()) {
      const TapeSlot* written = slot >= 0 ? &entry.tape->slots()[static_cast<size_t>(slot)] : nullptr;
      if (written != nullptr && written->guard_index < 0 && !transaction.keep_copy(written->object.get())) return false;
    }
    const bool done = fill() && entry.run(env, api) == Entry::Ran::kDone;
    transaction.undo_in_part();  // all else was written to copies
    return done;
  };
  // Several: the first run also takes the arena from the system, and the report shows the quickest.
  int runs = 0;
  while (runs < 4 && run()) ++runs;
  forget_error();                                 // the program's own run has its result already
  if (decisions != nullptr) *decisions = before;  // what falls otherwise in such a run is nothing that the program did
}

}  // namespace tatara::capture
