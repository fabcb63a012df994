#include "capture/graph/eager_cost.h"

#include "capture/graph/tape_arguments.h"

namespace tatara::capture {

double seconds_in_eager(const Tape& tape, const TapeNode& node) {
  constexpr double kCall = 4e-6, kBytesPerSecond = 5e9;
  double seconds = kCall;
  for (const int slot : node.outputs) {
    if (slot < 0 || !tape.slots()[static_cast<size_t>(slot)].sizes) continue;
    PyObject* sizes = tape.slots()[static_cast<size_t>(slot)].sizes.get();
    double elements = 1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(sizes); ++i) {
      elements *= static_cast<double>(int_value(PyTuple_GET_ITEM(sizes, i)));
    }
    seconds += elements * sizeof(float) / kBytesPerSecond;
  }
  return seconds;
}

}  // namespace tatara::capture
