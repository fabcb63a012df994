// Where the objects that a trace meets come from, and which of them decide something by their identity (tracer_origins.cpp).
#pragma once

#include <cstddef>
#include <set>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "capture/trace/trace_context.h"

namespace tatara::capture {

class OriginTracing final : public TraceFeature {
 public:
  using TraceFeature::TraceFeature;

  void note_result(PyObject* object);
  Origin origin(PyObject* object);
  bool contents_guarded(PyObject* object) const;
  /// The same, also of the __dict__ of an object that comes with the call: its items are guarded as attributes.
  bool contents_watched(PyObject* object);
  /// The guard need not speak of what is in lists and dicts that nothing has looked into. `tape`: the entry's, or null.
  void forget_unread(const Tape* tape);
  /// Its index among the guard's objects, for something that a later call takes from there.
  int source_of(PyObject* object);
  bool is_same_in_each_call(PyObject* object);
  void find(PyObject* object);
  void find_parts(PyObject* holder);
  void find_surroundings(const Frame& f, bool root);
  /// The object decides something by its identity (a key, a search).
  void pin(PyObject* object);
  void note_identities(Identities& identities);
  void adopt(PyObject* made);
  void adopt_part(PyObject* part) {
    if (Py_REFCNT(part) == 1 && !born(part)) adopt(part);
  }
  void adopt_parts(PyObject* container);
  void adopt_added(PyObject* container, std::string_view method);
  void outlives(PyObject* object);
  bool find_weak(PyObject* reference);
  bool find_mro(PyObject* tuple);
  bool find_member(PyObject* member);
  bool find_by_name(PyObject* object);
  bool is_of_the_call(PyObject* object) const;
  /// The __dict__ of an object made in the trace was made with it.
  void adopt_dict(PyObject* owner);
  /// The guarded object whose __dict__ this is, or null.
  PyObject* instance_of(PyObject* dict);
  /// A later run finds this older object again.
  bool reachable(PyObject* object);
  void pin_keys(PyObject* table);

  /// Those of `trace`, which begins, come with each call.
  void guards_objects(const Trace& trace) {
    own_.guarded = trace.objects.size();
    for (const size_t i : trace.guard.by_identity) own_.by_identity.insert(trace.objects[i]);
  }
  /// Nothing came to the trace's objects beside the guard's: it may speak of more.
  bool has_guarded_objects_alone(const Trace& trace) const { return trace.objects.size() == own_.guarded; }
  /// The guard of `trace` speaks of more: these are all of its objects now.
  void guards_more(Trace& trace, std::vector<PyObject*> objects);
  /// These are all of its objects now: what was found in a place where another object was before, and what is in it, as `guard`
  /// has them.
  void found_in_place(Trace& trace, std::vector<PyObject*> objects, const ValueGuard& guard);
  /// Objects in a callee's cells, which are guarded as the objects that they are.
  void found_in_cell(PyObject* object) { own_.in_cells.insert(object); }
  bool is_in_cell(PyObject* object) const { return own_.in_cells.contains(object); }
  /// The identities of different objects are compared; false: they were before.
  bool note_compared(PyObject* left, PyObject* right) { return own_.compared.emplace(left, right).second; }

  /// Something depends on which object it is.
  void note_identity(PyObject* object) {
    if (own_.by_identity.contains(object)) own_.asked.insert(object);
  }

  /// Nothing is left of the last trace.
  void reset() { own_ = {}; }

 private:
  bool tape_names(PyObject* object) const;
  std::set<PyObject*> changed_objects(const std::vector<PyObject*>& guarded);

  /// Of one trace.
  struct Own {
    std::unordered_set<PyObject*> by_identity;           // guarded objects that are the same in each call
    size_t guarded = 0;                                  // how many of the objects the guard on the roots gives
    std::set<PyObject*> pinned;                          // of these: whose identity decided something
    std::unordered_set<PyObject*> asked;                 // of these: note_identity()
    std::unordered_set<PyObject*> read;                  // of these: lists and dicts whose contents mattered
    std::unordered_set<PyObject*> met;                   // of these: the program got them, or a later call takes them
    std::set<std::pair<PyObject*, PyObject*>> compared;  // different objects whose identities were compared
    std::set<PyObject*> in_cells;
    std::set<PyObject*> in_places;                            // see found_in_place()
    std::unordered_map<PyObject*, PyObject*> instance_dicts;  // of guarded objects; empty: not looked for
  };
  Own own_;
};

}  // namespace tatara::capture
