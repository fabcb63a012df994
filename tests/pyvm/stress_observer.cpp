#include "stress_observer.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace tatara::capture {

StressCounts& stress_counts() {
  static StressCounts counts;
  return counts;
}

namespace {

/// Checks what every hook may rely on, and counts.
class CountingObserver : public VmObserver {
 public:
  FrameAction on_frame_enter(Frame& f) override {
    stress_counts().entered++;
    if (f.stack_depth() < 0 || f.stack_depth() > f.code()->co_stacksize) fail("stack depth on entry");
    return FrameAction::kRun;
  }
  void on_frame_exit(Frame&, FrameExit, PyObject*) override { stress_counts().left++; }
  PyObject* read_name(Frame& f, PyObject*, PyObject* dict, PyObject* value) override {
    if (dict == nullptr || value == nullptr) fail("read_name");
    return seen(f);
  }
  PyObject* read_cell(Frame& f, int index, PyObject* cell, PyObject*) override {
    if (f.local(index) != cell) fail("read_cell");
    return seen(f);
  }
  PyObject* read_attr(Frame& f, PyObject* owner, PyObject*, bool) override {
    if (f.peek(1) != owner) fail("read_attr");
    return seen(f);
  }
  PyObject* call(Frame& f, PyObject*, PyObject* const*, size_t, PyObject*) override { return seen(f); }
  PyObject* binary_op(Frame& f, int, PyObject* left, PyObject* right) override {
    if (f.peek(2) != left || f.peek(1) != right) fail("binary_op");
    return seen(f);
  }

 protected:
  static PyObject* seen(Frame& f) {
    stress_counts().hooks++;
    if (f.stack_depth() < 0 || f.stack_depth() > f.code()->co_stacksize) fail("stack depth");
    return not_handled();
  }
  [[noreturn]] static void fail(const char* what) {
    std::fprintf(stderr, "stress observer: %s\n", what);
    std::abort();
  }
};

PyObject* from_bool(int truth) { return truth < 0 ? nullptr : PyBool_FromLong(truth); }

class PerformingObserver final : public CountingObserver {
 public:
  PyObject* read_name(Frame&, PyObject*, PyObject*, PyObject* value) override { return count(Py_NewRef(value)); }
  PyObject* read_cell(Frame&, int, PyObject*, PyObject* value) override { return count(Py_NewRef(value)); }
  PyObject* read_attr(Frame&, PyObject* owner, PyObject* name, bool) override {
    return count(PyObject_GetAttr(owner, name));
  }
  PyObject* read_super_attr(Frame&, PyObject* super, PyObject* cls, PyObject* self, PyObject* name, bool) override {
    if (super != reinterpret_cast<PyObject*>(&PySuper_Type)) return not_handled();
    PyObject* proxy = PyObject_CallFunctionObjArgs(super, cls, self, nullptr);
    PyObject* result = proxy == nullptr ? nullptr : PyObject_GetAttr(proxy, name);
    Py_XDECREF(proxy);
    return count(result);
  }
  PyObject* read_subscr(Frame&, PyObject* container, PyObject* key) override {
    return count(PyObject_GetItem(container, key));
  }
  PyObject* get_iter(Frame&, PyObject* iterable) override { return count(PyObject_GetIter(iterable)); }
  PyObject* for_iter(Frame&, PyObject* iterator) override { return count(PyIter_Next(iterator)); }
  int send(Frame&, PyObject* receiver, PyObject* value, PyObject** result) override {
    return count(static_cast<int>(PyIter_Send(receiver, value, result)));
  }
  int unpack(Frame&, PyObject* sequence, int before, int after, PyObject** out) override {
    if (after >= 0 || !PyTuple_CheckExact(sequence) || PyTuple_GET_SIZE(sequence) != before) return kNotHandled;
    for (int i = 0; i < before; i++) out[i] = Py_NewRef(PyTuple_GET_ITEM(sequence, i));
    return count(0);
  }
  PyObject* contains(Frame&, PyObject* container, PyObject* item, bool invert) override {
    const int found = PySequence_Contains(container, item);
    return count(from_bool(found < 0 || !invert ? found : found == 0));
  }
  PyObject* compare(Frame&, int op, PyObject* left, PyObject* right) override {
    return count(PyObject_RichCompare(left, right, op));
  }
  PyObject* is_op(Frame&, PyObject* left, PyObject* right, bool invert) override {
    return count(PyBool_FromLong((left == right) != invert));
  }
  int truth(Frame&, PyObject* value) override { return count(PyObject_IsTrue(value)); }
  int match_kind(Frame&, PyObject* subject, bool mapping) override {
    return count((Py_TYPE(subject)->tp_flags & (mapping ? Py_TPFLAGS_MAPPING : Py_TPFLAGS_SEQUENCE)) != 0 ? 1 : 0);
  }
  PyObject* get_len(Frame&, PyObject* object) override {
    const Py_ssize_t length = PyObject_Length(object);
    return count(length < 0 ? nullptr : PyLong_FromSsize_t(length));
  }
  PyObject* call(Frame&, PyObject* callable, PyObject* const* args, size_t nargsf, PyObject* kwnames) override {
    return count(PyObject_Vectorcall(callable, args, nargsf, kwnames));
  }
  PyObject* call_ex(Frame&, PyObject* callable, PyObject* args, PyObject* kwargs) override {
    if (!PyTuple_CheckExact(args) || (kwargs != nullptr && !PyDict_CheckExact(kwargs))) return not_handled();
    return count(PyObject_Call(callable, args, kwargs));
  }
  PyObject* unary_op(Frame&, UnaryOp op, PyObject* value) override {
    switch (op) {
      case UnaryOp::kPositive:
        return count(PyNumber_Positive(value));
      case UnaryOp::kNegative:
        return count(PyNumber_Negative(value));
      case UnaryOp::kInvert:
        return count(PyNumber_Invert(value));
      case UnaryOp::kNot:
        return count(from_bool(PyObject_Not(value)));
    }
    return not_handled();
  }
  PyObject* binary_op(Frame&, int op, PyObject* left, PyObject* right) override {
    return op == 0 ? count(PyNumber_Add(left, right)) : not_handled();
  }
  PyObject* format_value(Frame&, PyObject* value, int conversion, PyObject* spec) override {
    return conversion != 0 ? not_handled() : count(PyObject_Format(value, spec));
  }
  int write_attr(Frame&, PyObject* owner, PyObject* name, PyObject* value) override {
    return count(PyObject_SetAttr(owner, name, value));
  }
  int write_subscr(Frame&, PyObject* container, PyObject* key, PyObject* value) override {
    return count(value != nullptr ? PyObject_SetItem(container, key, value) : PyObject_DelItem(container, key));
  }
  int write_cell(Frame&, int, PyObject* cell, PyObject* value) override { return count(PyCell_Set(cell, value)); }
  int list_append(Frame&, PyObject* list, PyObject* value) override { return count(PyList_Append(list, value)); }
  int set_add(Frame&, PyObject* set, PyObject* value) override { return count(PySet_Add(set, value)); }
  int map_add(Frame&, PyObject* dict, PyObject* key, PyObject* value) override {
    return count(PyDict_SetItem(dict, key, value));
  }

 private:
  template <typename T>
  static T count(T result) {
    stress_counts().hooks++;
    return result;
  }
};

/// Acts at pseudo-random instructions of every frame.
class InterruptingObserver final : public CountingObserver {
 public:
  explicit InterruptingObserver(bool reload) : reload_(reload) {}
  FrameAction on_frame_enter(Frame& f) override {
    f.root = true;
    return CountingObserver::on_frame_enter(f);
  }
  FrameAction before_instruction(Frame& f, int, int) override {
    stress_counts().hooks++;
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    if ((state_ >> 33) % (reload_ ? 3 : 40) != 0) return FrameAction::kRun;
    stress_counts().actions++;
    if (!reload_) return FrameAction::kHandBack;
    const std::vector<PyObject*> values(f.stack(), f.sp);
    f.replace_stack(values.data(), static_cast<int>(values.size()));
    f.set_state(f.offset(), static_cast<int>(values.size()));
    return FrameAction::kReload;
  }

 private:
  bool reload_;
  std::uint64_t state_ = 1;
};

/// Acts on functions whose names say what to do.
class ScriptedObserver final : public CountingObserver {
 public:
  FrameAction on_frame_enter(Frame& f) override {
    stress_counts().entered++;
    f.root = is(f, "return_inside") || is(f, "raise_inside") || is(f, "run_again");
    if (is(f, "return_at_entry")) {
      f.result = PyLong_FromLong(42);
      return FrameAction::kReturn;
    }
    if (is(f, "raise_at_entry")) {
      PyErr_SetString(PyExc_ValueError, "from the observer");
      return FrameAction::kRaise;
    }
    if (is(f, "start_in_the_middle")) {
      const int line = f.code()->co_firstlineno + 2;
      int offset = 0;
      while (PyCode_Addr2Line(f.code(), offset) != line) offset += 2;
      PyObject* list = PyList_New(0);
      f.set_local(1, list);
      Py_DECREF(list);
      f.set_state(offset, 0);
      return FrameAction::kReload;
    }
    if (is(f, "hand_back_at_entry")) return FrameAction::kHandBack;
    return FrameAction::kRun;
  }
  FrameAction before_instruction(Frame& f, int, int) override {
    // The functions mark the place with two objects on the stack: f(mark, <here>).
    if (f.user != nullptr || f.line() != f.code()->co_firstlineno + 2) return FrameAction::kRun;
    f.user = this;
    if (is(f, "return_inside")) {
      f.result = PyLong_FromLong(43);
      return FrameAction::kReturn;
    }
    if (is(f, "raise_inside")) {
      PyErr_SetString(PyExc_ValueError, "from the observer");
      return FrameAction::kRaise;
    }
    // run_again(n): back to the first line with n changed.
    PyObject* replaced = PyLong_FromLong(1000);
    f.set_local(0, replaced);
    Py_DECREF(replaced);
    f.replace_stack(nullptr, 0);
    f.set_state(0, 0);
    return FrameAction::kReload;
  }

 private:
  static bool is(const Frame& f, const char* name) {
    return std::strcmp(PyUnicode_AsUTF8(f.code()->co_name), name) == 0;
  }
};

}  // namespace

std::unique_ptr<VmObserver> make_observer(const std::string& mode) {
  if (mode == "count") return std::make_unique<CountingObserver>();
  if (mode == "perform") return std::make_unique<PerformingObserver>();
  if (mode == "handback") return std::make_unique<InterruptingObserver>(false);
  if (mode == "reload") return std::make_unique<InterruptingObserver>(true);
  if (mode == "scripted") return std::make_unique<ScriptedObserver>();
  return nullptr;
}

}  // namespace tatara::capture
