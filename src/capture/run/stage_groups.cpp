#include "capture/run/stage_groups.h"

#include "capture/host/package.h"
#include "capture/tape/used_history.h"

namespace tatara::capture {
namespace {

Ref places_tuple(const std::vector<int>& places) {
  Ref tuple = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(places.size())));
  for (size_t i = 0; i < places.size(); ++i)
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), PyLong_FromLong(places[i]));
  return tuple;
}

}  // namespace

ResultGroups groups_of_results(const GraphStage& part, const Tape& tape, HeldByHost& host) {
  UsedHistory history(tape, std::vector<bool>(tape.slots().size(), true));
  ResultGroups groups = group_results(part.graph, part.needs, [&](const Node& node) {
    const int call = node.location.call;
    return call >= 0 && static_cast<size_t>(call) < tape.nodes().size() && history.saves(static_cast<size_t>(call));
  });
  groups.held = host.of(part, groups);
  return groups;
}

Ref described_groups(const TrainingStage& stage) {
  const size_t results = stage.differentiable.size(), saved = stage.saved.size() + stage.carriers.size();
  Ref groups = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(stage.groups.size())));
  for (size_t i = 0; i < stage.groups.size(); ++i) {
    const StageGroup& group = stage.groups[i];
    const Ref own = places_tuple(group.results), kept = places_tuple(group.saved),
              second = places_tuple(group.second_inputs), unreached = places_tuple(group.unreached),
              inputs = places_tuple(group.checked_inputs), outputs = places_tuple(group.checked_outputs);
    const Ref all_results = Ref::steal(PyLong_FromSize_t(results)), all_saved = Ref::steal(PyLong_FromSize_t(saved));
    Ref described = call_package<PackageFunction::kStageGroup>(
        own.get(), all_results.get(), kept.get(), all_saved.get(), group.used_up ? Py_True : Py_False, second.get(),
        unreached.get(), inputs.get(), outputs.get());
    if (!described) return {};
    PyTuple_SET_ITEM(groups.get(), static_cast<Py_ssize_t>(i), described.release());
  }
  return groups;
}

Ref spread_list(PyObject* items, PyObject* places, Py_ssize_t size) {
  Ref list = Ref::steal(PyList_New(size));
  for (Py_ssize_t i = 0; list && i < size; ++i) PyList_SET_ITEM(list.get(), i, Py_NewRef(Py_None));
  for (Py_ssize_t i = 0; list && i < PyTuple_GET_SIZE(places); ++i) {
    const Py_ssize_t place = place_of(places, i);
    if (PyList_SetItem(list.get(), place, Py_NewRef(PyTuple_GET_ITEM(items, i))) != 0) return {};
  }
  return list;
}

}  // namespace tatara::capture
