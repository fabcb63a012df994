// What data decide in a trace of NumPy's calls: NumPy's bools, and sizes of results. The trace takes them as they fall in its own call,
// and each run looks whether they fall so again (Tape::falls_as_recorded). Bodies of NumPy's functions that cannot be captured are calls.
#include <algorithm>

#include "capture/entries/owner.h"
#include "capture/host/known_calls.h"
#include "capture/host/numpy_api.h"
#include "capture/numbers/symbolic_int.h"
#include "capture/tape/view_origins.h"
#include "capture/trace/numpy_tracing.h"
#include "capture/trace/origin_tracing.h"
#include "capture/trace/tracer_internal.h"
#include "support/log.h"
#include "support/str_cat.h"

namespace tatara::capture {

/// Whether the frame that runs is one of NumPy's own modules'.
bool NumpyTracing::in_numpys_code() const {
  return !context_.frames.empty() &&
         text_of(context_.frames.back()->code()->co_filename).starts_with(api_.numpy->folder);
}

/// Whether it holds arrays or scalars that are not the same in each call.
bool NumpyTracing::varies_inside(PyObject* o) const {
  if (numpy_value(o)) return !constant(trace_->tape.find(o));
  if (!PyTuple_CheckExact(o) && !PyList_CheckExact(o)) return numpy_inside(o);
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); ++i) {
    if (varies_inside(PySequence_Fast_GET_ITEM(o, i))) return true;
  }
  return false;
}

/// The items of an array along its first dimension, each a call; what is no array stays. Null: the trace is over, or an error is set.
Ref NumpyTracing::rows_of(PyObject* source) {
  if (!api_.numpy->is_array(source) || NumpyApi::ndim(source) == 0) return Ref::borrow(source);
  Ref rows = Ref::steal(PyList_New(0));
  const int64_t count = NumpyApi::dim(source, 0);
  for (int64_t i = 0; i < count; ++i) {
    const Ref index = Ref::steal(PyLong_FromLongLong(i));
    const Ref row = Ref::steal(numpy_operator("getitem", "getitem", {source, index.get()}));
    if (!row || row.get() == not_handled() || PyList_Append(rows.get(), row.get()) != 0) return {};
  }
  return rows;
}

/// The key with Python's ints as bounds of its slices, which data decide. Null: they may not.
Ref NumpyTracing::with_whole_slices(PyObject* key) {
  if (PyTuple_Check(key)) {
    Ref made = Ref::steal(PyTuple_New(PyTuple_GET_SIZE(key)));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i) {
      Ref item = with_whole_slices(PyTuple_GET_ITEM(key, i));
      if (!item) return {};
      PyTuple_SET_ITEM(made.get(), i, item.release());
    }
    return made;
  }
  if (!PySlice_Check(key)) return Ref::borrow(key);
  std::vector<Ref> bounds;
  for (const char* name : {"start", "stop", "step"}) {
    Ref bound = attr(key, name);
    std::string place;
    if (numpy_value(bound.get())) {
      if (!tracing() || is_mixed() || api_.numpy->is_array(bound.get()) || !may_decide(place)) return {};
      const Ref index = Ref::steal(PyImport_ImportModule("operator"));
      const Ref operands = Ref::steal(PyTuple_Pack(1, bound.get()));
      bound = Ref::steal(numpy_record({attr(index.get(), "index"), operands, {}, "int", false}));
      if (!bound || !PyLong_CheckExact(bound.get())) return {};
    }
    bounds.push_back(std::move(bound));
  }
  return Ref::steal(PySlice_New(bounds[0].get(), bounds[1].get(), bounds[2].get()));
}

/// Where the program stands, by the lines of NumPy's own code down to the first of the program's.
std::string NumpyTracing::place_of_decision(bool& own) const {
  std::string place;
  own = false;
  for (auto it = context_.frames.rbegin(); it != context_.frames.rend(); ++it) {
    const std::string file = text_of((*it)->code()->co_filename);
    const bool numpys = file.starts_with(api_.numpy->folder);
    place += str_cat(place.empty() ? "" : " < ", file, ":", (*it)->line());
    if (!numpys) break;
    own = true;
  }
  return place;
}

/// Whether the program may go on with what data decide here, and where that is. In a loop of the program's it is decided turn by turn:
/// from the second on the graph breaks.
bool NumpyTracing::may_decide(std::string& place) const {
  constexpr std::ptrdiff_t kMostInNumpy = 32;
  Trace& t = *trace_;
  const std::shared_ptr<DataDecisions>& decisions = t.symbols.decisions();
  if (decisions == nullptr || decisions->found >= DataDecisions::kMost || owner_.backend || context_.dry_run ||
      context_.ahead != nullptr || (!t.tape.nodes().empty() && !is_numpy_tape(t.tape))) {
    return false;
  }
  bool own = false;
  place = place_of_decision(own);
  if (place.empty() || decisions->varies(place)) return false;
  const std::vector<TapeNode>& nodes = t.tape.nodes();
  for (size_t n = 0; n < nodes.size(); ++n) {
    if (changes_older(t.tape, n, 0) || draws_by_numpy(nodes[n])) return false;
  }
  const auto before = std::count_if(nodes.begin(), nodes.end(), [&](const TapeNode& node) {
    const auto* call = std::get_if<NumpyOperation>(&node.kind);
    return call != nullptr && call->decides == place;
  });
  if (before < (own ? kMostInNumpy : 1)) return true;
  decisions->set_varies(place);
  return false;
}

/// The slot of the array that the trace has made and whose memory the call writes to; -1: there is none, or it is not known.
int NumpyTracing::young_target(const NumpyCall& call) const {
  const auto root = [this](PyObject* o) {
    const NumpyApi& np = *api_.numpy;
    PyObject* at = o;
    while (at != nullptr && np.is_array(at) && !NumpyApi::owns_memory(at)) at = NumpyApi::base(at);
    const int slot = at == nullptr ? -1 : trace_->tape.find(at);
    return slot >= 0 && trace_->tape.makes(slot) && trace_->tape.slots()[static_cast<size_t>(slot)].owns ? slot : -1;
  };
  PyObject* const args = call.args.get();
  PyObject* out = call.kwargs ? PyDict_GetItemString(call.kwargs.get(), "out") : nullptr;
  if (out == Py_None) out = nullptr;
  if (out == nullptr && api_.numpy->is_ufunc(call.func.get()) && call.name != kWritesToOperand) {
    const Py_ssize_t inputs = PyLong_AsSsize_t(attr(call.func.get(), "nin").get());
    if (PyTuple_GET_SIZE(args) != inputs + 1) return -1;
    out = PyTuple_GET_ITEM(args, inputs);
  }
  if (out != nullptr && PyTuple_Check(out)) out = PyTuple_GET_SIZE(out) == 1 ? PyTuple_GET_ITEM(out, 0) : nullptr;
  if (out != nullptr) return root(out);
  return PyTuple_GET_SIZE(args) > 0 ? root(PyTuple_GET_ITEM(args, 0)) : -1;
}

/// The body of a function of NumPy's is traced. Where it breaks the graph the trace is made once more, with a call of `callable` in its
/// place; null: it is no such function.
PyObject* NumpyTracing::enter_body(PyObject* callable, PyObject* body, PyObject* args, PyObject* kwargs) {
  origins().find(body);                                               // it comes with the function
  if (callable == nullptr) return PyObject_Call(body, args, kwargs);  // its frame comes to the VM
  const size_t depth = bodies_.size();
  bodies_.push_back(callable);
  PyObject* const result = PyObject_Call(body, args, kwargs);
  bodies_.resize(std::min(depth, bodies_.size()));  // another trace may have begun meanwhile
  return result;
}

bool NumpyTracing::leave_body(const std::string& reason) {
  if (bodies_.empty() || owner_.whole_numpy.contains(bodies_.front())) return false;
  PyObject* const function = bodies_.front();
  if (!ends().retry()) return false;
  TATARA_LOG(kCapture, "the body of ", name_of(function), " is a call: ", reason);
  owner_.whole_numpy.insert(function);
  return true;
}

/// The graph breaks, and the call runs for real.
PyObject* NumpyTracing::run_behind(const std::string& reason, const NumpyCall& call) {
  if (!graph_break(reason)) return nullptr;
  return PyObject_Call(call.func.get(), call.args.get(), call.kwargs.get());
}

/// Each item would be an operand of the graph, with a guard of its own, and their number would be one more.
bool NumpyTracing::takes_many_scalars(const NumpyCall& call) const {
  constexpr Py_ssize_t kMany = 64;
  PyObject* const list = PyTuple_GET_SIZE(call.args.get()) > 0 ? PyTuple_GET_ITEM(call.args.get(), 0) : nullptr;
  if (list == nullptr || !PyList_CheckExact(list) || PyList_GET_SIZE(list) <= kMany) return false;
  if (owner_.fullgraph || !context_.whole.empty()) return false;
  for (Py_ssize_t n = 0; n < kMany; ++n) {
    PyObject* const item = PyList_GET_ITEM(list, n);
    if (!api_.numpy->is_scalar(item) || trace_->tape.find(item) >= 0) return false;
  }
  return true;
}

}  // namespace tatara::capture
