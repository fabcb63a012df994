// What comes before a graph: arithmetic on Python numbers, and requires_grad_() of its inputs.
#include "capture/run/compiled_runner.h"
#include "capture/tape/tape.h"
#include "capture/tape/transaction.h"

namespace tatara::capture {
namespace {

/// Still an int of 64 bits, or a float.
bool is_as_traced(const TapeSlot& slot, PyObject* value) {
  if (!slot.whole) return PyFloat_CheckExact(value) != 0;
  int overflow = 0;
  if (PyLong_CheckExact(value) != 0) PyLong_AsLongLongAndOverflow(value, &overflow);
  return PyLong_CheckExact(value) != 0 && overflow == 0;
}

}  // namespace

bool run_numbers(const Tape& tape, const std::vector<size_t>& nodes, std::vector<Ref>& env, TorchApi& api) {
  std::vector<int64_t> symbols;
  if (!nodes.empty() && !tape.symbol_values(env, api, symbols)) return false;
  for (const size_t n : nodes) {
    const TapeNode& node = tape.nodes()[n];
    if (Transaction* const transaction = Transaction::current(); transaction != nullptr && is_leaf_mark(node))
      transaction->keep_operands(node, env, api);
    Ref value = Tape::call_object(node, env, symbols);
    if (!value) return false;
    if (!is_leaf_mark(node) && !is_as_traced(tape.slots()[static_cast<size_t>(node.outputs[0])], value.get())) {
      PyErr_SetString(PyExc_ArithmeticError, "a number of another kind than before");
      return false;
    }
    env[static_cast<size_t>(node.outputs[0])] = std::move(value);
  }
  return true;
}

}  // namespace tatara::capture
