// The frame view given to observers.
#include "capture/vm/vm_internal.h"  // first: it decides how Python.h declares things

#include "capture/vm/opcodes.h"

namespace tatara::capture {

PyCodeObject* Frame::code() const { return vm::frame_code(raw); }
PyObject* Frame::function() const { return reinterpret_cast<PyObject*>(vm::frame_function(raw)); }
PyObject* Frame::globals() const { return raw->f_globals; }
PyObject* Frame::builtins() const { return raw->f_builtins; }
PyObject* Frame::locals_dict() const { return raw->f_locals; }
PyObject* Frame::object() const { return reinterpret_cast<PyObject*>(raw->frame_obj); }

bool Frame::is_held() const {
  auto* object = reinterpret_cast<PyObject*>(raw->frame_obj);
  return object != nullptr && Py_REFCNT(object) > 1;
}
bool Frame::is_generator() const { return raw->owner == FRAME_OWNED_BY_GENERATOR; }

PyObject* Frame::generator() const {
  if (!is_generator()) return nullptr;
  return reinterpret_cast<PyObject*>(reinterpret_cast<char*>(raw) - offsetof(PyGenObject, gi_iframe));
}

int Frame::local_count() const { return vm::frame_code(raw)->co_nlocalsplus; }
PyObject** Frame::locals() const { return raw->localsplus; }
PyObject** Frame::stack() const { return vm::frame_stack_base(raw); }

void Frame::set_local(int i, PyObject* value) {
  PyObject* old = raw->localsplus[i];
  raw->localsplus[i] = Py_XNewRef(value);
  Py_XDECREF(old);
}

int Frame::line() const {
  const int found = PyCode_Addr2Line(code(), current * 2);
  return found > 0 ? found : 0;
}

bool Frame::drops_result() const {
  const uint16_t* words = vm::plain_code(code());
  if (words == nullptr) {
    forget_error();
    return false;
  }
  const auto opcode = [words](int index) { return static_cast<uint8_t>(words[index] & 0xff); };
  return opcode(current + 1 + vm::kCacheSizes[opcode(current)]) == POP_TOP;
}

void Frame::set_state(int offset, int depth) {
  start = offset / 2;
  current = start;
  sp = stack() + depth;
}

void Frame::replace_stack(PyObject* const* values, int count) {
  for (int i = 0; i < count; i++) Py_XINCREF(values[i]);
  PyObject** const base = stack();
  while (sp > base) {
    PyObject* old = *--sp;
    Py_XDECREF(old);
  }
  for (int i = 0; i < count; i++) *sp++ = values[i];
}

}  // namespace tatara::capture
