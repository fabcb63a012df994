#include "capture/entries/owner.h"

#include <algorithm>

#include "capture/entries/capture_log.h"
#include "capture/entries/stats.h"
#include "support/str_cat.h"

namespace tatara::capture {
namespace {

thread_local int t_disabled = 0;

}  // namespace

int TraceOwner::may_trace(PyCodeObject* code, int offset, PyObject* const* roots, size_t root_count,
                          const std::string& failed) {
  auto* key = reinterpret_cast<PyObject*>(code);
  if (cache.gave_up(key, offset)) return 0;
  const auto all = static_cast<int64_t>(cache.count(key, offset));
  if (all == 0) return 1;
  const int64_t limit = option_int(Option::kRecompileLimit, options);
  if (all < limit) return 1;
  const auto count = static_cast<int64_t>(cache.count_for(key, offset, roots, root_count));
  if (count < limit && all < limit * static_cast<int64_t>(EntryCache::kMostModules)) return 1;
  BreakInfo why = place_of(code, offset);
  why.reason = str_cat("compiled ", std::max(count, limit), " times already (recompile_limit); the rest runs in eager");
  if (!failed.empty()) why.reason += str_cat("; last failed: ", failed);
  if (fullgraph) {
    raise_unsupported(why);
    return -1;
  }
  cache.note_refused(key, offset);
  if (!full.emplace(key, offset).second) return 0;
  ++stats().breaks;
  breaks.push_back(why);
  log_break(why);
  const std::string text = "tatara: " + why.reason;
  return PyErr_WarnExplicit(PyExc_RuntimeWarning, text.c_str(), why.file.c_str(), why.line, nullptr, nullptr) < 0 ? -1
                                                                                                                  : 0;
}

void TraceOwner::note_generator(const PyCodeObject& code) {
  if (!breaks.empty()) return;
  BreakInfo info;
  info.reason = "generator functions, coroutines and async generators run in eager: their frames outlive the call";
  info.file = text_of(code.co_filename);
  info.function = text_of(code.co_name);
  info.line = code.co_firstlineno;
  log_break(info);
  breaks.push_back(std::move(info));
  ++stats().breaks;
}

void TraceOwner::note_unfit(PyCodeObject* code, int offset, const std::string& reason) {
  const bool known = !unfit.emplace(reinterpret_cast<PyObject*>(code), offset, reason).second;
  if (known && !fullgraph) return;
  BreakInfo why = place_of(code, offset);
  why.reason = reason;
  if (fullgraph) raise_unsupported(why);
  if (known) return;
  ++stats().breaks;
  log_break(why);
  breaks.push_back(std::move(why));
}

namespace {

/// Each root, and what is in those that are tuples, until one is as asked for.
template <typename Is>
bool any_root(const std::vector<PyObject*>& roots, Is&& is) {
  return std::ranges::any_of(roots, [&](PyObject* root) {
    if (root == nullptr || is(root)) return root != nullptr;
    for (Py_ssize_t i = 0; PyTuple_Check(root) && i < PyTuple_GET_SIZE(root); ++i) {
      if (is(PyTuple_GET_ITEM(root, i))) return true;
    }
    return false;
  });
}

}  // namespace

void TraceOwner::note_unfit_classes(const std::vector<PyObject*>& roots, const TorchApi& api) {
  any_root(roots, [&](PyObject* o) {
    const bool other = api.is_tensor(o) && !api.is_plain_tensor(o) && !api.is_foreign(o);
    if (other) learned.unfit_classes.insert(Py_TYPE(o));
    return false;
  });
}

bool TraceOwner::is_unfit(const PyCodeObject* code, int offset, const std::vector<PyObject*>& roots) const {
  if (learned.unfit_classes.empty() || fullgraph) return false;
  PyObject* const place = reinterpret_cast<PyObject*>(const_cast<PyCodeObject*>(code));
  const auto known = unfit.lower_bound({place, offset, std::string()});
  if (known == unfit.end() || std::get<0>(*known) != place || std::get<1>(*known) != offset) return false;
  return any_root(roots, [this](PyObject* o) { return learned.unfit_classes.contains(Py_TYPE(o)); });
}

bool TraceOwner::leaves_alone(PyObject* code, const std::vector<PyObject*>& roots) {
  constexpr int kMost = 8;  // calls in which functions below may have found something
  return is_unfit(reinterpret_cast<PyCodeObject*>(code), 0, roots) && ++learned.unfit_calls > kMost &&
         !cache.callees_pay(code);
}

void disable(int change) { t_disabled += change; }
bool disabled_here() { return t_disabled > 0; }

}  // namespace tatara::capture
