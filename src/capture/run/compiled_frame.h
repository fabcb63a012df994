// What one run of a compiled graph needs.
#pragma once

#include <vector>

#include "capture/host/kept_outputs.h"
#include "capture/run/compiled_runner.h"

namespace tatara::capture {

/// Scratch of one run, and what depends on the sizes only. Used again by later runs.
struct CompiledRunner::Frame {
  bool resolved = false;
  std::vector<int64_t> symbols;  // what the layouts are for
  std::vector<int64_t> wanted;   // of this run
  EdgeLayouts layouts;
  std::vector<size_t> buffer_bytes;
  std::vector<int> whole;  // per output: the output buffer that it is, or -1
  std::vector<InputRef> inputs;
  std::vector<int64_t> numbers;  // per input, of those that are Python numbers: an int, or the bits of a float
  std::vector<void*> input_data, buffer_data;
  std::vector<uint8_t> zero;  // per buffer: its memory is
  std::vector<Ref> buffers;
  std::vector<KeptOutputs> kept;  // per buffer
  std::vector<HostTensor> host_outputs;
  std::vector<bool> host_layout;  // eager's own, other than the plan's
  WrittenInputs written;          // to be kept while the plan runs
  bool wrote = false;             // the last run has begun to write to inputs
};

}  // namespace tatara::capture
