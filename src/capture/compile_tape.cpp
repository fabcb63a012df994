// From a tape to a compiled graph.
#include "capture/graph_object.h"

namespace tatara::capture {

bool attach_compiled(Entry& entry, TorchApi&) {
  entry.fallback_reason = "the compiler is not attached";
  return false;
}

}  // namespace tatara::capture
