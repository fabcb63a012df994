// Runs a compiled graph on the host's tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "capture/entries/entry_cache.h"
#include "capture/graph/graph_from_tape.h"
#include "capture/tape/view_origins.h"
#include "runtime/plan/executable.h"

namespace tatara::capture {

/// Arithmetic on Python floats that comes before a graph. False with a Python error set.
bool run_numbers(const Tape& tape, const std::vector<size_t>& nodes, std::vector<Ref>& env, TorchApi& api);

class CompiledRunner final : public GraphRunner {
 public:
  /// `keep_outputs_mb`: memory of dropped outputs that later calls may have.
  CompiledRunner(std::shared_ptr<Executable> executable, TapeGraph made, const Tape& tape, int64_t keep_outputs_mb);
  /// A plan without a tape: run_plan's `env` has the inputs first, then `outputs` results.
  CompiledRunner(std::shared_ptr<Executable> executable, size_t inputs, size_t outputs, int64_t keep_outputs_mb);
  ~CompiledRunner() override;

  enum class Tried : uint8_t {
    kDone,
    kRefused,  ///< operands other than compiled for, see problem(); nothing happened
    kBroken,   ///< an operator gave something else than compiled for, or failed: the tape tells; a Python error is set
    kFailed,   ///< with the program's own error, as a Python error
  };
  /// Runs the plan alone.
  Tried try_run(std::vector<Ref>& env, TorchApi& api);
  /// From now on try_run() lets go of operands in `env` as soon as the plan does not need them.
  void consume_operands() { consumes_ = true; }
  /// Runs stand between others whose results are in memory: of a forward or a backward pass.
  void spare_memory() { lean_ = true; }
  /// Of these results of a training stage no other one that takes a gradient has part of the memory. Those that are not the whole
  /// of it are then no views to torch, which would refuse in-place writes to views that were made inside of a node.
  void alone_in_memory(const std::vector<int>& outputs) {
    for (const int i : outputs) outputs_[static_cast<size_t>(i)].alone = true;
  }
  /// Whether the plan writes to memory of this operand: a copy would miss that.
  bool writes_beside(const std::vector<Ref>& env, PyObject* operand) const;
  Outcome run(const Tape& tape, std::vector<Ref>& env, TorchApi& api) override;
  bool pinned_unchanged(TorchApi& api) override;
  std::vector<std::string> describe_pinned() const override;
  std::string problem() const override { return problem_; }
  std::string launches() const override { return executable_->launches(); }
  bool compiled() const override { return true; }
  int traverse(const Visitor& visit) const override { return visit(constants_); }
  std::vector<int> written_slots() const override;

 private:
  struct Input {
    int slot = -1;               // tape slot, or -1 - k: constants_[k]
    PyObject* pinned = nullptr;  // borrowed from the tape or constants_; null: comes with the call
    uint8_t code = 0, bits = 0;
    int32_t device_type = 0, device_id = 0;
  };
  struct Frame;

  void add_input(Input input, const TensorType& type);
  void read_plan();
  PyObject* input(const std::vector<Ref>& env, size_t i) const;
  bool import_input(size_t i, PyObject* tensor, const TorchApi& api, InputRef& out) const;
  bool import_number(size_t i, const std::vector<Ref>& env, Frame& frame) const;
  bool writes_with_gaps(size_t i, const Frame& frame) const;
  std::string misfit(size_t i, const Frame& frame) const;
  bool import_all(const std::vector<Ref>& env, const TorchApi& api, Frame& frame);
  void resolve(Frame& frame) const;
  bool allocate(Frame& frame) const;
  /// Gradients come into being while saved values go.
  bool makes_late() const { return consumes_ && gpu_outputs_; }
  bool allocate_on_gpu(Frame& frame, size_t i) const;
  bool run_plan(const std::vector<Ref>& env_in, std::vector<Ref>& env, Frame& frame);
  void keep_written(const std::vector<Ref>& env, const Frame& frame) const;
  void note_writes(const std::vector<Ref>& env, const Frame& frame) const;
  Tried after_error(const Error& error);
  bool count_writes(const std::vector<Ref>& env) const;
  Ref output(size_t i, const std::vector<Ref>& env, Frame& frame) const;
  Ref without_base(size_t i, Ref view) const;
  std::unique_ptr<Frame> take_frame();
  void fetch_pinned(size_t n) const;
  bool pinned_as_marked() const;
  void mark_pinned(const TorchApi& api);

  struct Output {
    int slot;
    ViewOrigin origin;
    bool of_stage = false;   // gets its history later
    bool alone = false;      // see alone_in_memory()
    bool in_levels = false;  // the tape has levels of transforms
  };
  bool consumes_ = false;
  bool lean_ = false;
  bool gpu_outputs_ = false;
  std::shared_ptr<Executable> executable_;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
  std::vector<Ref> constants_;
  std::vector<size_t> host_nodes_;              // see TapeGraph
  std::vector<int32_t> buffer_types_;           // the host's dtype numbers
  std::vector<std::unique_ptr<Frame>> frames_;  // not in use; guarded by the GIL
  std::vector<size_t> pinned_inputs_;           // those of inputs_
  std::vector<int64_t> pinned_layouts_;         // of each of them sizes and strides, side by side
  std::vector<int32_t> pinned_ranks_;
  bool pinned_fit_ = false;             // pinned_unchanged() has compared their layouts
  std::vector<uint64_t> pinned_marks_;  // TorchNative's, of all of them; none when they are not known
  std::vector<InputRef> marked_;        // what was read when they were made
  int marked_times_ = 0;
  std::vector<InputRef> pinned_;  // as pinned_unchanged() saw them; empty: not seen since the last run
  bool mutates_ = false;
  bool let_go_ = false;  // the last run let go of operands
  bool proven_ = false;  // a run has shown that the host's operators give what was inferred
  int64_t keep_bytes_;   // of dropped outputs, for later calls
  std::string problem_;
  uint64_t kernels_ = 0, host_calls_ = 0;
};

}  // namespace tatara::capture
