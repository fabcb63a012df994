#include "capture/entries/entry_cache.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>

#include "capture/entries/capture_log.h"
#include "capture/entries/held_object.h"
#include "capture/host/inference_mode.h"
#include "capture/host/torch_native.h"
#include "capture/tape/opaque_operators.h"
#include "capture/tape/transaction.h"

namespace tatara::capture {

namespace {

/// What a weak reference to a watched object calls: lets go of the entry in its capsule.
PyObject* watched_ended(PyObject* capsule, PyObject*) {
  const auto* held = static_cast<std::weak_ptr<Entry>*>(PyCapsule_GetPointer(capsule, nullptr));
  const std::shared_ptr<Entry> entry = held != nullptr ? held->lock() : nullptr;
  // Others than the cache look at it, or run it: then the cache drops it later.
  if (entry != nullptr) entry->let_go(entry.use_count() > 2);
  Py_RETURN_NONE;
}

/// Weak references that tell the entry when an object that it watches ends.
void anchor(const std::shared_ptr<Entry>& entry) {
  static PyMethodDef method = {kOwnCallback, watched_ended, METH_O, nullptr};
  if (entry->guards.objects.ending().empty()) return;
  const Ref capsule = Ref::steal(PyCapsule_New(new std::weak_ptr<Entry>(entry), nullptr, [](PyObject* object) {
    delete static_cast<std::weak_ptr<Entry>*>(PyCapsule_GetPointer(object, nullptr));
  }));
  const Ref callback = Ref::steal(capsule ? PyCFunction_New(&method, capsule.get()) : nullptr);
  for (const Ref& reference : entry->guards.objects.ending()) {
    PyObject* const object = weak_object(reference.get());
    if (!callback || object == Py_None) continue;
    if (Ref anchored = Ref::steal(PyWeakref_NewRef(object, callback.get())))
      entry->anchors.push_back(std::move(anchored));
  }
  forget_error();
}

/// Torch modules in an object, itself among them.
void add_modules(PyObject* object, std::set<PyObject*>& modules, int depth = 0) {
  constexpr int kMaxDepth = 24;
  if (object == nullptr || depth > kMaxDepth) return;
  if (PyList_Check(object) || PyTuple_Check(object)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i)
      add_modules(PySequence_Fast_GET_ITEM(object, i), modules, depth + 1);
    return;
  }
  Ref dict = PyDict_Check(object) ? Ref::borrow(object) : Ref();
  if (TorchApi::get()->is_module(object) && modules.insert(object).second)
    dict = Ref::steal(PyObject_GenericGetDict(object, nullptr));
  if (!dict) forget_error();
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  while (dict && PyDict_Next(dict.get(), &at, &key, &value) != 0) add_modules(value, modules, depth + 1);
}

}  // namespace

void Entry::let_go(bool in_use) {
  ended_ = true;
  guards.objects.add_ended(ended_places);
  if (in_use) return;
  const ObjectGuards gone = std::move(guards.objects);
  const Reconstruction made = std::move(reconstruction);
  guards.objects = ObjectGuards();
  reconstruction = Reconstruction();
}

void EntryCache::dynamic_dims(PyObject* code, int offset, PyObject* const* roots, size_t count, TorchApi& api,
                              DynamicDims& dims) const {
  if (dims.mode == DynamicMode::kNever) return;
  if (const auto ended = ended_.find({code, offset}); ended != ended_.end()) dims.watched = ended->second.places;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const std::shared_ptr<Entry> entry = entries_[i];  // held, as in find
    if (entry->code != code || entry->offset != offset) continue;
    entry->guards.arguments.compare(roots, count, api, dims);
    entry->guards.objects.compare(api, dims.watched);
  }
  decide_modules(dims);
  for (auto& [place, items] : dims.watched) decide_modules(items);
  std::erase_if(dims.watched, [](const auto& each) { return each.second.stays(); });
}

bool EntryCache::held_alone(PyObject* module) const {
  struct Count {
    PyObject* module;
    Py_ssize_t references = 0;
  } count{module};
  const auto add = [](PyObject* object, void* all) {
    auto* const c = static_cast<Count*>(all);
    c->references += object == c->module ? 1 : 0;
    return 0;
  };
  traverse({add, &count});
  return count.references >= Py_REFCNT(module);
}

void EntryCache::decide_modules(VaryingItems& items) const {
  std::map<size_t, std::set<PyObject*>> before;
  for (const ReplacedModule& each : items.replaced) before[each.key].insert(each.before);
  for (const ReplacedModule& each : items.replaced) {
    if (before[each.key].size() < kMostModules && each.before != Py_None && !held_alone(each.before)) continue;
    items.modules.insert(each.key);
    std::set<PyObject*> older, newer;
    add_modules(each.before, older);
    add_modules(each.now, newer);
    std::set_intersection(older.begin(), older.end(), newer.begin(), newer.end(),
                          std::inserter(items.staying, items.staying.end()));
  }
}

Entry* callees_alone() {
  static Entry* const entry = [] {
    auto made = std::make_unique<Entry>();
    made->end = Entry::End::kEager;
    made->callees = true;
    return made.release();
  }();
  return entry;
}

bool Entry::holds(GuardedCall& call, bool with_runner) {
  if (ended_) return call.fail("an object that was watched has ended");
  return guards.hold(call, {tape.get(), with_runner ? runner.get() : nullptr, code, offset});
}

std::shared_ptr<Entry> EntryCache::find(PyObject* code, int offset, PyObject* const* roots, size_t count, TorchApi& api,
                                        std::vector<PyObject*>& objects, std::string* failed) {
  std::vector<int64_t> symbols;
  const auto drops = drop_ended();
  for (const std::shared_ptr<Entry>& entry : drops) {
    if (failed != nullptr && failed->empty() && entry->code == code && entry->offset == offset)
      *failed = "an object that was watched has ended";
  }
  for (size_t i = 0; i < entries_.size(); ++i) {
    // Held: a check may run Python code, and with it another thread that changes the list.
    std::shared_ptr<Entry> entry = entries_[i];
    if (entry->code != code || entry->offset != offset) continue;
    // The reason is wanted from the most recently used one only.
    std::string* why = failed != nullptr && failed->empty() ? failed : nullptr;
    GuardedCall call{roots, count, api, objects, symbols, why};
    if (!entry->holds(call)) continue;
    if (++entry->hits == 1) log_first_hit(*entry);
    if (i < entries_.size() && entries_[i] == entry) {
      if (i != 0)
        std::rotate(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(i),
                    entries_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      return entry;
    }
    const auto at = std::find(entries_.begin(), entries_.end(), entry);
    if (at == entries_.end()) return nullptr;  // reset meanwhile
    std::rotate(entries_.begin(), at, at + 1);
    return entry;
  }
  return nullptr;
}

Entry* EntryCache::add(std::unique_ptr<Entry> entry) {
  entries_.insert(entries_.begin(), std::shared_ptr<Entry>(std::move(entry)));
  anchor(entries_.front());
  return entries_.front().get();
}

std::vector<std::shared_ptr<Entry>> EntryCache::drop_ended() {
  const auto ended = [](const std::shared_ptr<Entry>& entry) { return entry->ended(); };
  if (std::none_of(entries_.begin(), entries_.end(), ended)) return {};
  const auto first = std::stable_partition(entries_.begin(), entries_.end(), std::not_fn(ended));
  std::vector<std::shared_ptr<Entry>> dropped(std::make_move_iterator(first), std::make_move_iterator(entries_.end()));
  entries_.erase(first, entries_.end());
  for (const std::shared_ptr<Entry>& entry : dropped) {
    Ended& here = ended_[{entry->code, entry->offset}];
    ++here.count;
    here.places.merge(entry->ended_places);
  }
  return dropped;
}

size_t EntryCache::count(PyObject* code, int offset) const {
  const auto ended = ended_.find({code, offset});
  size_t n = ended == ended_.end() ? 0 : ended->second.count;
  for (const auto& entry : entries_) n += entry->code == code && entry->offset == offset ? 1 : 0;
  return n;
}

std::optional<IdleStretch> EntryCache::idle_from(PyObject* code, int offset) const {
  size_t idle = 0;
  IdleStretch way{offset, offset, {}};
  int last = -1;
  for (const auto& entry : entries_) {
    if (entry->code != code || entry->offset != offset) continue;
    if (entry->end == Entry::End::kEager || entry->tape == nullptr) return {};
    const std::vector<TapeNode>& nodes = entry->tape->nodes();
    const bool numbers = std::all_of(nodes.begin(), nodes.end(), [](const TapeNode& n) { return number_operation(n); });
    const bool nothing = numbers && entry->end == Entry::End::kBreak && entry->effects.objects() == 0;
    if (!nothing && !entry->way.slight) return {};
    idle += nothing || entry->hits == 0 ? 1 : 0;
    way.to = std::max(way.to, entry->way.furthest);
    if (entry->end == Entry::End::kReturn) continue;
    // A way back to an earlier turn of a loop.
    if (entry->break_offset < offset) way.ends.push_back(entry->break_offset);
    way.from = std::min(way.from, entry->break_offset);
    last = std::max(last, entry->break_offset);
  }
  if (idle < kMostIdle) return {};
  if (last >= offset) way.ends.push_back(last);
  return way;
}

void EntryCache::note_refused(PyObject* code, int offset) {
  if (++refused_[{code, offset}] < kMostRefused) return;
  const auto here = [&](const std::shared_ptr<Entry>& e) { return e->code == code && e->offset == offset; };
  if (std::any_of(entries_.begin(), entries_.end(), [&](const auto& e) { return here(e) && e->hits > 0; })) return;
  given_up_.insert_or_assign({code, offset}, Ref::borrow(code));
  const auto first = std::stable_partition(entries_.begin(), entries_.end(), std::not_fn(here));
  const std::vector<std::shared_ptr<Entry>> dropped(std::make_move_iterator(first),
                                                    std::make_move_iterator(entries_.end()));
  entries_.erase(first, entries_.end());
}

bool EntryCache::callees_pay(PyObject* code) const {
  return std::any_of(entries_.begin(), entries_.end(), [code](const std::shared_ptr<Entry>& entry) {
    return entry->code != code && entry->tape != nullptr && entry->tape->nodes().size() >= kFewCalls;
  });
}

size_t EntryCache::count_for(PyObject* code, int offset, PyObject* const* roots, size_t count) const {
  size_t n = this->count(code, offset);
  for (const auto& entry : entries_) {
    if (entry->code == code && entry->offset == offset && !entry->guards.arguments.same_modules(roots, count)) --n;
  }
  return n;
}

bool EntryCache::iterators_vary(PyObject* code, int offset, PyObject* const* roots, size_t count, TorchApi& api) {
  if (varying_.contains({code, offset})) return true;
  size_t n = 0;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const std::shared_ptr<Entry> entry = entries_[i];  // held, as in find
    if (entry->code != code || entry->offset != offset || !entry->guards.arguments.watches_iterators()) continue;
    n += entry->guards.arguments.check_roots(roots, count, api) ? 1 : 0;
  }
  if (n >= kMostPlaces) varying_.emplace(code, offset);
  return n >= kMostPlaces;
}

bool Entry::clear_gradients(const std::vector<Ref>& env) const {
  static PyObject* const name = PyUnicode_InternFromString("grad");
  for (const int slot : cleared_first) {
    const Ref& tensor = env[static_cast<size_t>(slot)];
    if (!tensor) continue;
    if (Transaction* const transaction = Transaction::current()) transaction->keep_cleared_gradient(tensor.get());
    if (PyObject_GenericSetAttr(tensor.get(), name, Py_None) != 0) return false;
  }
  return true;
}

Entry::Ran Entry::run(std::vector<Ref>& env, TorchApi& api) const {
  const auto surprises = [this] { return tape->decisions() != nullptr ? tape->decisions()->surprises : size_t{0}; };
  const size_t before = distrusted(), decisions = surprises();
  const Ran ran = run_once(env, api);
  // The next call compiles without what broke its word, and ends the graph at the decision that varies.
  if (distrusted() != before || surprises() != decisions) ended_ = true;
  return ran;
}

/// Tensors of inference mode among the inputs: torch saves none for gradients, but eager may save a copy, or refuse it itself.
bool Entry::holds_inference(const std::vector<Ref>& env, const TorchApi& api) const {
  const ErrorAside aside;
  for (size_t i = 0; i < tape->slots().size(); ++i) {
    if (!tape->slots()[i].input || !env[i] || !api.is_torch_tensor(env[i].get())) continue;
    if (Ref::steal(PyObject_CallMethod(env[i].get(), "is_inference", nullptr)).get() == Py_True) return true;
  }
  return false;
}

Entry::Ran Entry::run_once(std::vector<Ref>& env, TorchApi& api) const {
  using Outcome = GraphRunner::Outcome;
  Transaction transaction(Transaction::kMostInCall);
  const Transaction::Scope scope(transaction);
  std::optional<AutocastOff> off;
  if (guards.state.autocast.any) off.emplace(api);
  const InferenceMode mode(api, in_inference);
  const Ref random = tape->draws_before_made() ? generator_states(api) : Ref();
  take_late_failure();
  const bool by_tape = refused_.inference && holds_inference(env, api);
  Outcome outcome = by_tape ? Outcome::kRefused : Outcome::kFailed;
  if (!by_tape && clear_gradients(env)) outcome = runner->run(*tape, env, api);
  if (outcome == Outcome::kFailed && PyErr_Occurred() != nullptr && PyErr_ExceptionMatches(PyExc_RuntimeError) != 0 &&
      holds_inference(env, api)) {
    refused_.inference = true;
    outcome = Outcome::kTape;
  }
  if (outcome == Outcome::kDone) {
    refused_.runs = 0;
    return tape->set_classes(env, api) ? Ran::kDone : Ran::kFailed;
  }
  // Call by call costs more than the program itself.
  if (outcome == Outcome::kRefused && ++refused_.runs > kMostRefusals && PyErr_Occurred() == nullptr &&
      transaction.undo()) {
    return Ran::kAgain;
  }
  if (outcome == Outcome::kFailed && take_late_failure()) {
    // What was kept need not be put back but for random numbers: it is the run's own memory.
    forget_error();
    if (!transaction.undo() && random) set_generator_states(random.get());
    forget_error();
    return Ran::kAgain;
  }
  if ((outcome == Outcome::kTape || outcome == Outcome::kRefused) && transaction.undo()) {
    forget_error();
    const auto& made = tape->made_symbols();
    if (std::any_of(made.begin(), made.end(), [](const Tape::MadeSymbol& symbol) { return symbol.condition; }))
      transaction.copy_all();
    if (clear_gradients(env) && tape->run(env, api) && tape->set_classes(env, api)) return Ran::kDone;
  }
  if (PyErr_Occurred() == nullptr) {
    if (transaction.undo()) return Ran::kAgain;
    const std::string reason = runner->problem();
    set_host_error("tatara: the run of a graph failed, and cannot be taken back: " +
                   (reason.empty() ? "no reason is known" : reason));
    return Ran::kFailed;
  }
  // Not when somebody ends the program.
  if (PyErr_ExceptionMatches(PyExc_Exception) == 0 || !transaction.undo()) return Ran::kFailed;
  forget_error();
  return Ran::kAgain;
}

int Entry::traverse(const Visitor& visit) const {
  if (const int result = visit(guards, reconstruction, report.details); result != 0) return result;
  // A tape that a graph of a report holds as well is not ours alone: the collector must see each reference once.
  if (tape != nullptr && tape.use_count() == 1) {
    if (const int result = visit(*tape); result != 0) return result;
  }
  return runner != nullptr ? runner->traverse(visit) : 0;
}

int EntryCache::traverse(const Visitor& visit) const {
  for (const auto& entry : entries_) {
    if (entry.use_count() != 1) continue;  // it is running
    if (const int result = visit(*entry); result != 0) return result;
  }
  return 0;
}

std::shared_ptr<Entry> EntryCache::share(const Entry* entry) const {
  for (const auto& each : entries_) {
    if (each.get() == entry) return each;
  }
  return nullptr;
}

}  // namespace tatara::capture
