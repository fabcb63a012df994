// What code of the program a generator runs when it is closed.
#include <opcode.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "capture/vm/vm_internal.h"
// After the interpreter's own headers.
#include "capture/python/py.h"

namespace tatara::capture {
namespace {

using vm::find_handler;
using vm::Handler;

/// The way of a GeneratorExit through the handlers of a generator's code: handlers that only ask whether the error is of
/// another class and go on with it run nothing that the program notices.
class ClosingWalk {
 public:
  explicit ClosingWalk(const VmClosing& of) : of_(of), bytes_(Ref::steal(PyCode_GetCode(of.code))) {
    if (!bytes_) forget_error();
  }

  /// Whether code runs where the error comes from the instruction of this index.
  bool runs_code_from(int index) {
    constexpr int kMostHandlers = 20;
    for (int handlers = 0; bytes_ && handlers < kMostHandlers; ++handlers) {
      Handler handler;
      if (!find_handler(of_.code, index, &handler)) return false;
      const std::optional<int> again = raised_again(handler.target);
      if (!again) return true;
      index = *again;
    }
    return true;
  }

  /// Whether that may be so anywhere in the code.
  bool may_run_code() {
    for (int index = 0; bytes_ && index < size(); ++index) {
      if (opcode(index) == YIELD_VALUE && runs_code_from(index)) return true;
    }
    return !bytes_;
  }

 private:
  int size() const { return static_cast<int>(PyBytes_GET_SIZE(bytes_.get()) / 2); }
  int opcode(int index) const { return static_cast<unsigned char>(PyBytes_AS_STRING(bytes_.get())[2 * index]); }
  int argument(int index) const { return static_cast<unsigned char>(PyBytes_AS_STRING(bytes_.get())[2 * index + 1]); }

  /// The instruction that raises the error again, if nothing else happens in the handler.
  std::optional<int> raised_again(int index) {
    std::vector<PyObject*> classes;
    for (int arg = 0; index < size(); ++index) {
      arg = arg << 8 | argument(index);
      switch (opcode(index)) {
        case RERAISE:
#ifdef CLEANUP_THROW
        case CLEANUP_THROW:
#endif
          return index;
        case EXTENDED_ARG: continue;
        case CACHE:
        case NOP:
        case PUSH_EXC_INFO:
        case COPY:
        case POP_EXCEPT:
        case BUILD_TUPLE: break;
#ifdef CALL_INTRINSIC_1
        case CALL_INTRINSIC_1: {
          constexpr int kStopIterationError = 3;  // all of a generator stands in a handler that changes a StopIteration
          if (arg != kStopIterationError) return {};
          break;
        }
#endif
        case LOAD_GLOBAL: classes.push_back(global(PyTuple_GET_ITEM(of_.code->co_names, arg >> 1))); break;
        case CHECK_EXC_MATCH:
          if (!std::all_of(classes.begin(), classes.end(), passes)) return {};
          classes.clear();
          break;
#ifdef POP_JUMP_FORWARD_IF_FALSE
        case POP_JUMP_FORWARD_IF_FALSE: index += arg; break;
#else
        case POP_JUMP_IF_FALSE:
          while (index + 1 < size() && opcode(index + 1) == CACHE) ++index;
          index += arg;
          break;
#endif
        default: return {};
      }
      arg = 0;
    }
    return {};
  }

  PyObject* global(PyObject* name) const {
    PyObject* found = PyDict_GetItemWithError(of_.globals, name);
    if (found == nullptr && PyErr_Occurred() == nullptr) found = PyDict_GetItemWithError(of_.builtins, name);
    if (found == nullptr) forget_error();
    return found;
  }

  static bool passes(PyObject* type) {
    return type != nullptr && PyExceptionClass_Check(type) &&
           PyErr_GivenExceptionMatches(PyExc_GeneratorExit, type) == 0;
  }

  VmClosing of_;
  Ref bytes_;
};

}  // namespace

bool vm_runs_code(const VmClosing& of, std::optional<int> index) {
  ClosingWalk walk(of);
  return index ? walk.runs_code_from(*index) : walk.may_run_code();
}

}  // namespace tatara::capture
