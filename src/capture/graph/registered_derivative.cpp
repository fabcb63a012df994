// Which operators of libraries have a derivative that their library has registered.
#include "capture/graph/tape_converter.h"
#include "capture/host/package.h"

namespace tatara::capture {
namespace {

int64_t hint_of(Expr e) { return e.context().evaluate_hint(e).value_or(0); }

}  // namespace

/// Where a library's operator has a derivative of its library's, by which the results get their gradients as in eager: of each
/// operand, and of the results, whether the gradients may depend on it. Empty: it has none.
std::vector<bool> TapeConverter::registered_derivative(const TapeNode& node) {
  if (!node.grad || !is_dispatcher_operator(node.func.get())) return {};
  const auto stand_in = [this](PyObject* o) -> Ref {
    const int slot = slot_of(o);
    if (slot < 0) return is_size_ref(o) ? Ref::steal(PyLong_FromLongLong(hint_of(size_ref_expr(o)))) : Ref::borrow(o);
    const TapeSlot& info = c_.tape->slots()[static_cast<size_t>(slot)];
    const SlotLayout& layout = c_.layout(slot);
    if (!layout.sizes || !layout.strides) return Ref::borrow(Py_None);
    return c_.api.empty_meta(layout.sizes.get(), layout.strides.get(), info.dtype.get());
  };
  const Ref results = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(node.outputs.size())));
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    Ref result = node.outputs[i] < 0 ? Ref::borrow(Py_None) : stand_in(make_slot_ref(node.outputs[i]).get());
    PyTuple_SET_ITEM(results.get(), static_cast<Py_ssize_t>(i), result ? result.release() : Py_NewRef(Py_None));
  }
  const Ref args = map_structure(node.args.get(), stand_in);
  const Ref kwargs = node.kwargs ? map_structure(node.kwargs.get(), stand_in) : Ref::steal(PyDict_New());
  Ref answer;
  if (args && kwargs) {
    answer = call_package<PackageFunction::kHostTransformsRegistered>(node.func.get(), args.get(), kwargs.get(),
                                                                      results.get());
  }
  forget_error();
  std::vector<bool> kept;
  if (answer && PyList_Check(answer.get())) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(answer.get()); ++i) {
      kept.push_back(PyList_GET_ITEM(answer.get(), i) == Py_True);
    }
  }
  return kept;
}

}  // namespace tatara::capture
