#include "bindings/history.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "runtime/base/history.h"

namespace nb = nanobind;

namespace tatara {
namespace {

const char* kind_name(HistoryEvent::Kind kind) {
  switch (kind) {
    case HistoryEvent::Kind::kCompile: return "compile";
    case HistoryEvent::Kind::kLaunch: return "launch";
    case HistoryEvent::Kind::kHostCall: return "host_call";
    case HistoryEvent::Kind::kGraph: return "graph";
  }
  return "?";
}

nb::dict event_dict(const HistoryEvent& event) {
  nb::dict dict;
  dict["kind"] = kind_name(event.kind);
  dict["name"] = event.name;
  dict["graph"] = event.graph;
  dict["run"] = event.run;
  dict["step"] = event.step;
  dict["kernel"] = event.kernel;
  dict["operators"] = event.operators;
  dict["loops"] = event.loops;
  dict["cache"] = event.origin;
  dict["sizes"] = event.sizes;
  dict["iterations"] = event.iterations;
  dict["grain"] = event.grain;
  dict["items"] = event.items;
  dict["bytes"] = event.bytes;
  dict["start"] = event.start;
  dict["microseconds"] = event.seconds * 1e6;
  dict["thread"] = event.thread;
  return dict;
}

}  // namespace

void bind_history(nb::module_& m) {
  nb::class_<HistoryRecorder>(m, "HistoryRecorder", "Receives an event for every compilation and launch.")
      .def(nb::init<>())
      .def("start", &HistoryRecorder::start, "Listens from now on.")
      .def("stop", &HistoryRecorder::stop, "Listens no longer; the events stay.")
      .def("size", &HistoryRecorder::size, "Number of events so far.")
      .def(
          "events",
          [](const HistoryRecorder& recorder, size_t first) {
            nb::list list;
            for (const HistoryEvent& event : recorder.events(first)) list.append(event_dict(event));
            return list;
          },
          nb::arg("first") = 0, nb::sig("def events(self, first: int = 0) -> list[dict[str, typing.Any]]"),
          "The events from number `first` on, as dicts.");
}

}  // namespace tatara
