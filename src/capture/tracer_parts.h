// What a tracer is made of.
#pragma once

#include "capture/numpy_tracing.h"
#include "capture/trace_context.h"

namespace tatara::capture {

struct TracerParts {
  TracerParts(TraceOwner& owner, TorchApi& api) : context(owner, api) { context.features.numpy = &numpy; }

  TraceContext context;
  NumpyTracing numpy{context};
};

}  // namespace tatara::capture
