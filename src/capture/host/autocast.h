// Autocast while a trace is made and while graphs run. The casts that eager's autocast makes below Python become operators
// of the tape, so that graphs and tapes run with autocast off.
#pragma once

#include <array>

#include "capture/python/py.h"

namespace tatara::capture {

struct TorchApi;

/// Autocast as it is for one thread: on which devices, to which dtype.
struct AutocastState {
  static constexpr std::array<const char*, 2> kDevices = {"cpu", "cuda"};
  struct Device {
    bool on = false;
    Ref dtype;
  };
  bool any = false;  // on any device; else nothing below is read
  std::array<Device, kDevices.size()> devices;

  static AutocastState read(const TorchApi& api);
  bool operator==(const AutocastState& other) const;
  /// Makes it the thread's state; dtypes only where it is on.
  void apply(const TorchApi& api) const;
  /// Of the devices where it is on: (name, True, dtype).
  Ref as_tuple() const;
};

/// While it lives, autocast is off in this thread.
class AutocastOff {
 public:
  explicit AutocastOff(const TorchApi& api);
  ~AutocastOff();
  AutocastOff(const AutocastOff&) = delete;
  AutocastOff& operator=(const AutocastOff&) = delete;

 private:
  const TorchApi& api_;
  AutocastState before_;
};

enum class CastPolicy : uint8_t {
  kNone,
  kLower,    ///< to autocast's dtype
  kFloat32,  ///< to float32
  kPromote,  ///< to the widest of the operands
  kUnknown,  ///< only eager knows
};
/// What autocast on a device of this type does with the operands of an operator.
CastPolicy cast_policy(const std::string& name, const std::string& device_type);

}  // namespace tatara::capture
