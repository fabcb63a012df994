// Our torch-function modes on torch's stack (torch_mode.cpp, function_modes.cpp), and what else is switched while a trace is
// open.
#pragma once

#include <cstddef>
#include <vector>

#include "capture/trace/trace_context.h"

namespace tatara::capture {

class ModeStack final : public TraceFeature {
 public:
  using TraceFeature::TraceFeature;

  void set_mode(bool on);
  bool push_mode();
  /// Takes our modes off torch's stack that nobody needs, as far as torch itself has not set them aside.
  void drop_modes(size_t left = 0);
  /// A question about torch-function modes, asked while ours is off the stack.
  PyObject* ask_modes(PyObject* callable, PyObject* const* args, size_t nargsf, PyObject* kwnames);

  /// Torch-function modes that the program enters in the trace, where all their code is torch's: they lie here and not on torch's
  /// stack. Each call asks the innermost one before it is recorded. A break makes the trace once more, and breaks where the first one was
  /// entered.
  bool takes(PyObject* mode) const;
  bool has_programs() const { return !programs_.empty() || asked_ > 0 || !devices_.empty(); }
  /// Whether one of them handles a call.
  bool asks_programs() const { return asked_ > 0; }
  /// Whether the innermost one is here to be taken off.
  bool pops_programs() const { return !programs_.empty(); }
  void push_programs(PyObject* mode) { programs_.push_back(Ref::borrow(mode)); }
  Ref pop_programs();
  /// What the innermost one gives for the call; not_handled(): there is none.
  PyObject* ask_programs(PyObject* func, PyObject* args, PyObject* kwargs);
  /// Devices that the program enters in the trace (`with torch.device(...)`), likewise.
  bool takes_devices() const;
  /// Whether what makes tensors is told a device here. Not in functions of torch's in Python that a mode is asked about: while it
  /// handles one it is off.
  bool gives_device() const;
  void push_device(PyObject* device) { devices_.push_back(Ref::borrow(device)); }
  /// False: there is none.
  bool pop_device();
  /// The named arguments of the call with the device that one of these, or torch.set_default_device, gives it; null: as they are. Torch's mode
  /// stays on its stack meanwhile, for what runs for real.
  Ref with_default_device(PyObject* func, PyObject* kwargs);
  /// What the __torch_function__ of the operands' classes gives for the call, asked in torch's order; their code is traced as any
  /// other. not_handled(): code that is torch's, or not Python's, among them.
  PyObject* ask_operands(PyObject* types, PyObject* func, PyObject* args, PyObject* kwargs);
  /// Onto torch's stack: the program goes on for real. Whether there are any.
  bool give_programs();
  void drop_programs() {
    programs_.clear();
    devices_.clear();
    asked_ = 0;
  }

  bool on() const { return mode_on_; }
  size_t count() const { return modes_.size(); }
  void handler_begins() { ++handlers_; }
  void handler_ends() { --handlers_; }

 private:
  bool push_real(PyObject* mode) const;

  std::vector<Ref> programs_;
  std::vector<Ref> devices_;
  Ref makers_;     // torch's functions that a default device is for; null until one is
  int asked_ = 0;  // of these handle a call
  bool mode_on_ = false;
  /// Our modes on torch's stack: for each, how many handlers were running when it came there. While a handler runs, torch
  /// has set the innermost mode aside, and puts it back itself.
  std::vector<int> modes_;
  int handlers_ = 0;
  bool collected_ = false;  // the garbage collector was on when the mode was switched on
};

}  // namespace tatara::capture
