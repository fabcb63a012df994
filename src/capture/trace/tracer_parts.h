// What a tracer is made of.
#pragma once

#include "capture/trace/call_tracing.h"
#include "capture/trace/checkpoint_tracing.h"
#include "capture/trace/function_tracing.h"
#include "capture/trace/gradient_tracing.h"
#include "capture/trace/history_tracing.h"
#include "capture/trace/iterator_tracing.h"
#include "capture/trace/lifetime_tracing.h"
#include "capture/trace/loop_tracing.h"
#include "capture/trace/number_tracing.h"
#include "capture/trace/numpy_tracing.h"
#include "capture/trace/origin_tracing.h"
#include "capture/trace/read_tracing.h"
#include "capture/trace/torch_tracing.h"
#include "capture/trace/trace_context.h"
#include "capture/trace/trace_ends.h"
#include "capture/trace/tracer_modes.h"
#include "capture/trace/transform_tracing.h"
#include "capture/trace/turn_tracing.h"
#include "capture/trace/value_tracing.h"
#include "capture/trace/write_tracing.h"

namespace tatara::capture {

struct TracerParts {
  TracerParts(TraceOwner& owner, TorchApi& api) : context(owner, api) {
    TraceFeatures& all = context.features;
    all.parts = this;
    all.numpy = &numpy;
    all.checkpoints = &checkpoints;
    all.functions = &functions;
    all.transforms = &transforms;
    all.turns = &turns;
    all.numbers = &numbers;
    all.gradients = &gradients;
    all.histories = &histories;
    all.iterators = &iterators;
    all.origins = &origins;
    all.reads = &reads;
    all.writes = &writes;
    all.lifetimes = &lifetimes;
    all.loops = &loops;
    all.torch = &torch;
    all.values = &values;
    all.calls = &calls;
    all.modes = &modes;
    all.ends = &ends;
  }
  /// Nothing is left of the last trace.
  void reset() {
    checkpoints.reset();
    transforms.reset();
    turns.reset();
    numbers.reset();
    gradients.reset();
    histories.reset();
    iterators.reset();
    origins.reset();
    writes.reset();
    lifetimes.reset();
    calls.reset();
    values.reset();
  }

  TraceContext context;
  NumpyTracing numpy{context};
  CheckpointTracing checkpoints{context};
  FunctionTracing functions{context};
  TransformTracing transforms{context};
  TurnTracing turns{context};
  NumberTracing numbers{context};
  GradientTracing gradients{context};
  HistoryTracing histories{context};
  IteratorTracing iterators{context};
  OriginTracing origins{context};
  ReadTracing reads{context};
  WriteTracing writes{context};
  LifetimeTracing lifetimes{context};
  LoopTracing loops{context};
  TorchTracing torch{context};
  ValueTracing values{context};
  CallTracing calls{context};
  ModeStack modes{context};
  TraceEnds ends{context};
};

}  // namespace tatara::capture
