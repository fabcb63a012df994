// The state of torch, NumPy and the interpreter that changes what operations mean.
#pragma once

#include <string>

#include "capture/host/autocast.h"
#include "capture/host/torch_api.h"
#include "capture/host/torch_native.h"
#include "capture/python/py.h"

namespace tatara::capture {

/// Whether a transform of torch.func or a level of forward-mode derivatives is open.
bool in_a_level(const TorchApi& api);
/// Whether a torch-dispatch mode is on in this thread.
bool in_a_dispatch_mode(const TorchApi& api);

/// Whether the torch-function mode is one that gives functions which make tensors a device, and does no more.
bool is_device_mode(PyObject* mode);

/// Interpreter-wide state of torch that changes what operations mean.
struct GlobalState {
  bool grad = false, inference = false, deterministic = false;
  AutocastState autocast;
  bool transformed = false;    // inside vmap, grad or another of torch.func's transforms
  bool dual = false;           // a level of forward-mode derivatives is open
  bool recorded = false;       // torch.jit.trace records the operators of eager
  bool saved_hooks = false;    // hooks on saved tensors (offloading, checkpoints) are on
  bool saves_tensors = false;  // of an entry: so that they count
  long modes = 0;              // torch-function modes of the program, beside those that say a device
  bool no_autograd = false;    // its dispatch keys are left out, though inference mode is off
  bool overrides = true;       // __torch_function__ of classes and modes is called
  long dispatch_modes = 0;     // torch-dispatch modes: they see every operator of eager
  Ref default_dtype;
  Ref default_device;       // that torch's functions make tensors on (torch.set_default_device); null: none is set
  Ref errstate;             // of NumPy; null before its import
  TorchThreadState native;  // the whole of it, to compare in one go
  static GlobalState read(TorchApi& api);
  /// Why nothing is traced or run compiled in this state; empty: it may be. `dry_run`: a transform's or dual tensors are
  /// none of the code's.
  std::string waits_for(bool dry_run) const;
  bool check(TorchApi& api, std::string* why) const;
  std::string describe() const;  // guards_print.cpp
};

}  // namespace tatara::capture
