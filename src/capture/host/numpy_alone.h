// Calls of functions of arrays alone, in the midst of whatever else the thread does.
#pragma once

namespace tatara::capture {

/// While one lives, torch's state (modes, transforms, gradients) is no part of what compiled functions of this thread ask about,
/// tatara.disable() is off, and arrays that are there already may not be written to: those given stand for tensors.
class NumpyAlone {
 public:
  NumpyAlone();
  ~NumpyAlone();
  NumpyAlone(const NumpyAlone&) = delete;
  NumpyAlone& operator=(const NumpyAlone&) = delete;
};

bool numpy_alone();

}  // namespace tatara::capture
