// What belongs to one compiled function beside its code.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "capture/entries/entry_cache.h"
#include "support/options.h"

namespace tatara::capture {

struct CompiledFunction;
namespace native {
class NativeLoops;
}

/// Calls of which a trace has learned why they are not what they seem: those that the compiler has refused, where later traces
/// break the graph.
class RefusedCalls {
 public:
  bool empty() const { return reasons_.empty(); }
  /// False: it is known.
  bool add(const std::string& name, const std::string& file, int line, std::string reason) {
    return reasons_.emplace(std::tuple(name, file, line), std::move(reason)).second;
  }
  /// Why the compiler refused it; null for other calls.
  const std::string* reason(const std::string& name, const std::string& file, int line) const {
    const auto found = reasons_.find({name, file, line});
    return found == reasons_.end() ? nullptr : &found->second;
  }

 private:
  std::map<std::tuple<std::string, std::string, int>, std::string> reasons_;
};

/// What earlier traces of a function have found of single calls.
struct LearnedCalls {
  /// Calls that give a copy where the host's meta kernels would have them give their operand.
  RefusedCalls copies;
  /// Calls of torch.cond whose functions are no parts of a graph: one of them is called as the predicate falls.
  RefusedCalls unchosen;
  /// Classes of tensors that no trace takes for an input. To be compared alone.
  std::set<PyTypeObject*> unfit_classes;
  int unfit_calls = 0;  // with such inputs
  /// Calls of which the host's meta kernels tell another type or layout than its kernels give.
  RefusedCalls told_wrong;
};

/// A compiled function as the tracer and the runners need it.
struct TraceOwner {
  EntryCache cache;
  Ref backend;  // callable of the user, or null
  bool eager_backend = false;
  bool fullgraph = false;
  DynamicMode dynamic = DynamicMode::kAuto;
  OptionOverrides options;  // of this function's compilations
  std::vector<std::string> recompiles;
  std::vector<BreakInfo> breaks;
  std::chrono::duration<double> patience{0};  // how long signals wait for the end of a trace, or of a compilation
  std::set<std::pair<PyObject*, int>> full;   // code and offset where the limit of entries was met

  /// Told that it is being compiled, the program raised what it does not raise otherwise: it is told so no more.
  bool tells_eager = false;
  /// Why the graph broke under torch-function modes of the program: it breaks where they are entered from then on.
  std::string modes_apart;
  /// Graphs ended in inference mode that their trace had entered, or under a quiet guard: they break where it is entered from then on.
  bool inference_apart = false;
  /// Code whose generators were alive where a graph broke: it makes them outside of graphs. To be compared alone.
  std::set<PyObject*> generators_apart;
  /// Code whose graphs broke while it had put ints that vary into older dicts as keys: they go by value. To be compared alone.
  std::set<PyObject*> keys_by_value;
  RefusedCalls refused;
  std::shared_ptr<native::NativeLoops> loops;  // that run as native code; null: none was met
  /// Compiled functions with fullgraph that the function calls, and that break the graph: they say so themselves.
  std::set<const CompiledFunction*> apart;
  /// Code and offset where exceptions were raised that have left it while it was traced, and how often. To be compared alone.
  std::map<std::pair<PyObject*, int>, int> raised;
  std::shared_ptr<DataDecisions> decisions = std::make_shared<DataDecisions>();
  /// Functions by their code, each with the module that it was a method's of, in which a graph broke. To be compared alone.
  std::set<std::pair<PyObject*, PyObject*>> broken_calls;
  LearnedCalls learned;
  /// Functions of NumPy's, whose bodies in Python break the graph: they are calls. To be compared alone.
  std::set<PyObject*> whole_numpy;
  std::set<std::tuple<PyObject*, int, std::string>> unfit;  // what the report says of points that cannot be traced

  /// The report says once why nothing of the function is compiled.
  void note_generator(const PyCodeObject& code);
  void note_unfit(PyCodeObject* code, int offset, const std::string& reason);
  /// The classes of tensors among the roots that are not plain, as a trace has just found.
  void note_unfit_classes(const std::vector<PyObject*>& roots, const TorchApi& api);
  /// Whether a trace of these roots at the point would find again that it cannot begin, which costs more than many a call.
  bool is_unfit(const PyCodeObject* code, int offset, const std::vector<PyObject*>& roots) const;
  /// Whether a call of such roots is best left alone: functions below have found nothing to compile either.
  bool leaves_alone(PyObject* code, const std::vector<PyObject*>& roots);
  /// Whether one more entry may be made where `code` stands at `offset`; `failed`: the guard that failed last. At the limit
  /// (the option recompile_limit) that is told once: in the report and by a warning; 0 then, and -1 with a Python error
  /// set when there is one. Modules of one class share their code: each set of modules among the roots has a limit of its own.
  int may_trace(PyCodeObject* code, int offset, PyObject* const* roots, size_t count, const std::string& failed);
};

/// tatara.disable: +1 and -1 nest; in between, compiled functions that this thread calls run in eager.
void disable(int change);
bool disabled_here();

}  // namespace tatara::capture
