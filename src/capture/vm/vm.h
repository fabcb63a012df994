// The bytecode virtual machine: executes real CPython frames (3.11 to 3.13) and lets an observer see or replace
// each operation. Used as a PEP 523 frame evaluator; see docs/architecture.md, "Capture".
#pragma once

#include <Python.h>

#include <cstdint>
#include <optional>

struct _PyInterpreterFrame;

namespace tatara::capture {

class VmObserver;

/// "The observer did not do it": the VM performs the operation concretely.
inline PyObject* not_handled() { return reinterpret_cast<PyObject*>(std::uintptr_t{1}); }
inline constexpr int kNotHandled = -2;  ///< the same, for hooks that return int

/// What the observer wants done with a frame at an instruction boundary.
enum class FrameAction {
  kRun,       ///< go on in the VM
  kHandBack,  ///< give the frame, as it stands, to CPython's own evaluator for good
  kReload,    ///< the observer changed offset, stack or locals (Frame::set_state): read them again and go on
  kReturn,    ///< leave the frame with Frame::result (a new reference), as RETURN_VALUE would (not in a handler, where
              ///< POP_EXCEPT is still to come)
  kRaise,     ///< a Python error is set: unwind the frame from the current instruction
  kAbandon,   ///< only from on_exception: leave the frame with the error that is set, past its handlers
};

/// How a frame left the VM.
enum class FrameExit { kReturn, kYield, kError, kHandBack };

enum class UnaryOp { kPositive, kNegative, kInvert, kNot };
enum class NameScope { kGlobal, kName };
/// How a frame comes to a value that no instruction of its own has made.
enum class Obtained {
  kAttribute,  ///< of `owner`, by the name `key`
  kItem,       ///< of `owner`: by the subscript `key`, or one of an iteration, an unpacking or a match (`key` is null)
  kResult,     ///< of a call or an operator
  kModule,     ///< by an import
  kException,  ///< that a handler is given
};
enum class BuildKind { kTuple, kList, kSet, kDict, kSlice, kString, kFunction, kCell, kGenerator, kFilled };

/// A view of one running interpreter frame. Valid only inside hooks and between on_frame_enter and on_frame_exit.
/// Objects returned by accessors are borrowed. Operands of the instruction being executed stay on the value stack
/// until it finishes, so at every hook stack()[0, stack_depth()) is the stack as it was before the instruction.
class Frame {
 public:
  PyCodeObject* code() const;
  PyObject* function() const;  ///< the function object, or nullptr
  PyObject* globals() const;
  PyObject* builtins() const;
  PyObject* locals_dict() const;  ///< mapping of class and module bodies; nullptr in functions
  PyObject* object() const;       ///< the frame object, nullptr as long as nobody has asked for it
  bool is_held() const;           ///< somebody holds the frame object
  bool is_generator() const;      ///< generator, coroutine or async generator
  PyObject* generator() const;    ///< its object, or nullptr

  int local_count() const;    ///< size of localsplus: locals, cells, free variables
  PyObject** locals() const;  ///< localsplus itself; owned references, nullptr when unbound
  PyObject* local(int i) const { return locals()[i]; }
  void set_local(int i, PyObject* value);  ///< takes its own reference; nullptr unbinds

  PyObject** stack() const;  ///< the bottom of the value stack (entries may be nullptr: PUSH_NULL)
  int stack_depth() const { return static_cast<int>(sp - stack()); }
  PyObject* peek(int n) const { return sp[-n]; }  ///< 1 is the top

  /// Byte offset of the instruction about to run or running: where to start it again. That is its first EXTENDED_ARG,
  /// and for a CALL with keyword names in 3.11 and 3.12 the KW_NAMES before it: the two count as one instruction, and
  /// before_instruction is called at KW_NAMES only.
  int offset() const { return start * 2; }
  /// Byte offset of the opcode itself (after EXTENDED_ARG), as f_lasti shows it.
  int opcode_offset() const { return current * 2; }
  /// What the instruction that is running calls (borrowed); nullptr when it is no call.
  PyObject* called() const { return called_at == current ? callable : nullptr; }
  int line() const;  ///< source line of opcode_offset(), 0 when unknown
  /// Whether the next instruction drops what the call that is running returns.
  bool drops_result() const;

  /// Puts the frame at `offset` with `depth` stack entries. The caller has filled the entries (owned references) and
  /// disposed of those above; follow with FrameAction::kReload.
  void set_state(int offset, int depth);
  /// Replaces the whole stack: drops what is there, takes new references to `values`.
  void replace_stack(PyObject* const* values, int count);

  PyThreadState* tstate = nullptr;
  _PyInterpreterFrame* raw = nullptr;
  VmObserver* observer = nullptr;  ///< whom this frame's operations are shown; may be reset by the observer
  bool root = false;               ///< before_instruction is called for this frame; set by on_frame_enter
  bool ends_trace = false;         ///< its next instruction is the last that before_instruction sees
  bool resumed = false;            ///< entered again after a yield, or in the middle
  bool throwing = false;           ///< entered with an exception thrown in (gen.throw)
  void* user = nullptr;            ///< the observer's own data for this frame
  PyObject* result = nullptr;      ///< for FrameAction::kReturn

  // The VM's own registers: index in code units of the instruction and of its first prefix, and the stack pointer.
  int start = 0;
  int current = 0;
  PyObject** sp = nullptr;
  PyObject* callable = nullptr;  // of the last call, and its instruction
  int called_at = -1;
};

/// Sees and may replace what the VM does in observed frames. Every method has a neutral default. No method may throw.
///
/// Hooks returning PyObject*: a new reference when done, nullptr with a Python error set, or not_handled().
/// Hooks returning int: 0 (or the answer) when done, -1 with a Python error set, or kNotHandled.
/// All object arguments are borrowed.
class VmObserver {
 public:
  virtual ~VmObserver() = default;

  // Frames -----------------------------------------------------------------------------------------------------
  /// A frame is about to run (f.root and f.observer may be set here; f.observer is this observer on entry and may
  /// be cleared to run the frame in the VM without hooks).
  virtual FrameAction on_frame_enter(Frame&) { return FrameAction::kRun; }
  /// `result` is the value returned or yielded (borrowed), nullptr for errors and hand-backs. After kError the Python
  /// error is set and must be left so; one that is set after kHandBack is raised at the frame's present instruction.
  virtual void on_frame_exit(Frame&, FrameExit, PyObject* /*result*/) {}
  /// Only for frames with root set: before each instruction. f.offset() is the instruction, the stack complete.
  virtual FrameAction before_instruction(Frame&, int /*opcode*/, int /*oparg*/) { return FrameAction::kRun; }
  /// An exception (set as the Python error) starts to unwind this frame at the current instruction; `handled`: the frame has
  /// a handler for it. kRun: as usual; kReload: the error is gone, the frame goes on where it was put; kAbandon.
  virtual FrameAction on_exception(Frame&, bool /*handled*/) { return FrameAction::kRun; }
  /// A signal, an exception from another thread or a postponed error (interrupts.h) may be waiting, where CPython would look
  /// for it: between two instructions, f.current being the one before. -1 with a Python error set.
  virtual int on_interrupt(Frame&) { return 0; }

  // Reads ------------------------------------------------------------------------------------------------------
  /// LOAD_GLOBAL, LOAD_NAME, LOAD_BUILD_CLASS, ...: `value` was found in `dict` (globals, builtins or locals mapping).
  virtual PyObject* read_name(Frame&, PyObject* /*name*/, PyObject* /*dict*/, PyObject* /*value*/) {
    return not_handled();
  }
  /// LOAD_DEREF, LOAD_CLASSDEREF: `value` is in the cell at localsplus[index].
  virtual PyObject* read_cell(Frame&, int /*index*/, PyObject* /*cell*/, PyObject* /*value*/) { return not_handled(); }
  /// LOAD_ATTR, LOAD_METHOD. With `method` the value will be called next; a handled result is called as it is.
  virtual PyObject* read_attr(Frame&, PyObject* /*owner*/, PyObject* /*name*/, bool /*method*/) {
    return not_handled();
  }
  virtual PyObject* read_super_attr(Frame&, PyObject* /*super*/, PyObject* /*cls*/, PyObject* /*self*/,
                                    PyObject* /*name*/, bool /*method*/) {
    return not_handled();
  }
  /// BINARY_SUBSCR and BINARY_SLICE (then `key` is the slice object).
  virtual PyObject* read_subscr(Frame&, PyObject* /*container*/, PyObject* /*key*/) { return not_handled(); }
  virtual PyObject* get_iter(Frame&, PyObject* /*iterable*/) { return not_handled(); }
  /// FOR_ITER: nullptr without an error set means exhausted.
  virtual PyObject* for_iter(Frame&, PyObject* /*iterator*/) { return not_handled(); }
  /// SEND (yield from, await): PYGEN_RETURN, PYGEN_ERROR (-1) or PYGEN_NEXT as PyIter_Send, or kNotHandled.
  virtual int send(Frame&, PyObject* /*receiver*/, PyObject* /*value*/, PyObject** /*result*/) { return kNotHandled; }
  /// UNPACK_SEQUENCE (after = -1) and UNPACK_EX: fills out[0, before + (after >= 0 ? 1 + after : 0)) with new references.
  virtual int unpack(Frame&, PyObject* /*sequence*/, int /*before*/, int /*after*/, PyObject** /*out*/) {
    return kNotHandled;
  }
  virtual PyObject* contains(Frame&, PyObject* /*container*/, PyObject* /*item*/, bool /*invert*/) {
    return not_handled();
  }
  /// `op` is Py_LT ... Py_GE.
  virtual PyObject* compare(Frame&, int /*op*/, PyObject* /*left*/, PyObject* /*right*/) { return not_handled(); }
  virtual PyObject* is_op(Frame&, PyObject* /*left*/, PyObject* /*right*/, bool /*invert*/) { return not_handled(); }
  /// Conditional jumps and TO_BOOL: 0 or 1. Not called for True, False and None.
  virtual int truth(Frame&, PyObject* /*value*/) { return kNotHandled; }
  /// `raise`. Null: alone, so that whatever is being handled will be raised.
  virtual int raising(Frame&, PyObject* /*exception*/) { return kNotHandled; }
  virtual PyObject* import_name(Frame&, PyObject* /*name*/, PyObject* /*fromlist*/, PyObject* /*level*/) {
    return not_handled();
  }
  virtual PyObject* import_from(Frame&, PyObject* /*module*/, PyObject* /*name*/) { return not_handled(); }
  /// MATCH_MAPPING, MATCH_SEQUENCE: 0 or 1.
  virtual int match_kind(Frame&, PyObject* /*subject*/, bool /*mapping*/) { return kNotHandled; }
  /// MATCH_KEYS, MATCH_CLASS: a tuple, or None when there is no match.
  virtual PyObject* match_keys(Frame&, PyObject* /*subject*/, PyObject* /*keys*/) { return not_handled(); }
  virtual PyObject* match_class(Frame&, PyObject* /*subject*/, PyObject* /*type*/, Py_ssize_t /*positional*/,
                                PyObject* /*names*/) {
    return not_handled();
  }
  virtual PyObject* get_len(Frame&, PyObject* /*object*/) { return not_handled(); }

  /// What the frame gets from an operation, whoever did it, before the value is on the stack.
  virtual int obtained(Frame&, Obtained, PyObject* /*owner*/, PyObject* /*key*/, PyObject* /*value*/) { return 0; }

  // Calls ------------------------------------------------------------------------------------------------------
  /// Every CALL-like opcode, `with` entry and exit. Vectorcall convention; args[-1] may be overwritten while calling
  /// only when nargsf has PY_VECTORCALL_ARGUMENTS_OFFSET.
  virtual PyObject* call(Frame&, PyObject* /*callable*/, PyObject* const* /*args*/, size_t /*nargsf*/,
                         PyObject* /*kwnames*/) {
    return not_handled();
  }
  /// CALL_FUNCTION_EX: `args` any iterable as the program wrote it, `kwargs` a dict or nullptr.
  virtual PyObject* call_ex(Frame&, PyObject* /*callable*/, PyObject* /*args*/, PyObject* /*kwargs*/) {
    return not_handled();
  }

  // Operators --------------------------------------------------------------------------------------------------
  virtual PyObject* unary_op(Frame&, UnaryOp, PyObject* /*value*/) { return not_handled(); }
  /// `op` is NB_ADD ... NB_INPLACE_XOR (opcode.h).
  virtual PyObject* binary_op(Frame&, int /*op*/, PyObject* /*left*/, PyObject* /*right*/) { return not_handled(); }
  /// `conversion` is 0, 's', 'r' or 'a'; `spec` may be nullptr.
  virtual PyObject* format_value(Frame&, PyObject* /*value*/, int /*conversion*/, PyObject* /*spec*/) {
    return not_handled();
  }
  /// CONVERT_VALUE of 3.13 (`!s`, `!r`, `!a` alone; formatting follows as its own instruction).
  virtual PyObject* convert_value(Frame&, PyObject* /*value*/, int /*conversion*/) { return not_handled(); }
  virtual PyObject* build_string(Frame&, PyObject* const* /*pieces*/, Py_ssize_t /*count*/) { return not_handled(); }
  /// An object was made by a BUILD_*, MAKE_FUNCTION, MAKE_CELL or RETURN_GENERATOR instruction, or filled from something else
  /// (kFilled: LIST_EXTEND and the like).
  virtual void on_build(Frame&, BuildKind, PyObject* /*object*/) {}

  // Writes -----------------------------------------------------------------------------------------------------
  // A null `value` deletes.
  virtual int write_attr(Frame&, PyObject* /*owner*/, PyObject* /*name*/, PyObject* /*value*/) { return kNotHandled; }
  virtual int write_subscr(Frame&, PyObject* /*container*/, PyObject* /*key*/, PyObject* /*value*/) {
    return kNotHandled;
  }
  virtual int write_name(Frame&, NameScope, PyObject* /*name*/, PyObject* /*value*/) { return kNotHandled; }
  virtual int write_cell(Frame&, int /*index*/, PyObject* /*cell*/, PyObject* /*value*/) { return kNotHandled; }
  virtual int list_append(Frame&, PyObject* /*list*/, PyObject* /*value*/) { return kNotHandled; }
  virtual int set_add(Frame&, PyObject* /*set*/, PyObject* /*value*/) { return kNotHandled; }
  virtual int map_add(Frame&, PyObject* /*dict*/, PyObject* /*key*/, PyObject* /*value*/) { return kNotHandled; }
  virtual int list_extend(Frame&, PyObject* /*list*/, PyObject* /*iterable*/) { return kNotHandled; }
  virtual int set_update(Frame&, PyObject* /*set*/, PyObject* /*iterable*/) { return kNotHandled; }
  virtual int dict_update(Frame&, PyObject* /*dict*/, PyObject* /*mapping*/) { return kNotHandled; }
  /// DICT_MERGE: keyword arguments `**mapping` for a call of `callable`; repeated keys are an error.
  virtual int dict_merge(Frame&, PyObject* /*dict*/, PyObject* /*mapping*/, PyObject* /*callable*/) {
    return kNotHandled;
  }
};

/// One per thread. With a null observer the VM runs purely concretely.
struct VmContext {
  VmObserver* observer = nullptr;
  std::uint64_t frames = 0;                        ///< frames executed by the VM
  std::uint64_t instructions = 0;                  ///< instructions executed by the VM
  const char* stack_limit = nullptr;               ///< the VM's own: lowest C stack address at which it enters a frame
  const _PyInterpreterFrame* delegated = nullptr;  ///< the VM's own: a frame that another evaluator has in hand
};
VmContext& vm_context();

/// The frame evaluator: runs `frame` from its present state (a new frame, a resumed generator, or a frame put in the
/// middle with Frame::set_state) to its end, in the VM, or in CPython's evaluator when tracing, profiling or monitoring
/// is on or the observer says so.
PyObject* vm_eval_frame(PyThreadState* tstate, _PyInterpreterFrame* frame, int throwflag);

/// What decides which code runs when a generator is closed. All borrowed.
struct VmClosing {
  PyCodeObject* code;
  PyObject *globals, *builtins;
};
/// Whether code of the program runs when a generator that waits at the instruction of this index is closed; without an index:
/// wherever it may wait. Handlers that only let the error by are no such code.
bool vm_runs_code(const VmClosing& of, std::optional<int> index = {});

/// Installs or removes vm_eval_frame as the interpreter's frame evaluator. Nested installs are counted.
void vm_install();
void vm_uninstall();
bool vm_installed();
/// For a thread that has an observer. False if another compiler has put its evaluator in place of ours, or has taken both
/// away (torch.compile does, where its last call in another thread ends): the observer may not have been shown all frames
/// since then. Ours is in place again afterwards.
bool vm_sees_frames();

/// Whether frames of threads without an observer run in the VM (the default, for tests) or go straight to CPython's
/// evaluator, which is faster.
void vm_run_unobserved(bool run);

/// How often the filters of Python's warnings have changed, as the interpreter counts it.
long vm_filters_version();

/// An object that nobody was to see goes without its finalizer (`__del__`, or what a generator does when it is closed).
void vm_drop_finalizer(PyObject* object);

/// Leaves the VM for this frame: writes its registers back and runs the rest in _PyEval_EvalFrameDefault. The frame
/// must not be used by the VM afterwards. Used by the VM for FrameAction::kHandBack.
PyObject* vm_hand_back(Frame& frame);

}  // namespace tatara::capture
