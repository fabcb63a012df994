// Function transforms while a trace is open: torch.func and forward-mode derivatives (tracer_transforms.cpp,
// tracer_linearize.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/host/known_calls.h"
#include "capture/trace/trace_context.h"

namespace tatara::capture {

/// The call that a callable is which is known as `known`: what only looks like it is none.
TransformCall transform_call_of(PyObject* callable, TransformCall known);
/// The C function behind a function of torch's in Python, which only looks for other modes.
Ref host_call(PyObject* callable);

/// A level of torch.func's transforms or of forward-mode derivatives.
struct Level {
  enum class Kind : uint8_t { kNone, kGrad, kJvp, kVmap, kDual } kind = Kind::kNone;
  int number = 0;                          // as torch counts them
  bool outer_grad = true;                  // gradients were on where it was entered
  bool random = false;                     // vmap: random operators are allowed
  Expr size;                               // vmap
  std::vector<std::pair<int, int>> duals;  // slots of dual tensors and of their tangents
};

class TransformTracing final : public TraceFeature {
 public:
  using TraceFeature::TraceFeature;

  PyObject* transform_call(TransformCall kind, PyObject* callable, PyObject* const* raw, Py_ssize_t nargs,
                           PyObject* kwnames);
  /// Which gradients are on, and the level.
  void note_modes(TapeNode& node) const { note_modes(node, api_.grad_enabled()); }
  void note_modes(TapeNode& node, bool mode) const;
  bool make_variable(PyObject* args, PyObject* kwargs);
  /// Why eager refuses this call inside the levels at work, or does another thing than the graph; empty: it does not.
  std::string level_problem(const std::string& name, PyObject* args, PyObject* kwargs) const;
  /// Whether the tensor differs from example to example of a level of vmap.
  bool is_batched(int slot, int level) const;

  /// Levels that are open, the innermost last: places among all that there were.
  const std::vector<int>& open_levels() const { return own_.open_levels; }
  /// Whether all are of vmap.
  bool only_batches() const {
    return std::all_of(own_.open_levels.begin(), own_.open_levels.end(), [this](int level) {
      return own_.levels[static_cast<size_t>(level)].kind == Level::Kind::kVmap;
    });
  }
  /// How many there are, those of forward_ad included.
  size_t open() const { return own_.open_levels.size() + static_cast<size_t>(own_.duals); }

  /// Whether the tensors of a list are known to share no memory; of inputs, a guard sees to it.
  bool are_apart(PyObject* list);
  /// Which tensors must lie in their storages alike, and which must not, for duals to be what they were.
  void note_places(Identities& identities);

  /// Nothing is left of the last trace.
  void reset() { own_ = {}; }

 private:
  /// The place of the innermost open level; 0: none.
  int innermost() const { return own_.open_levels.empty() ? 0 : own_.open_levels.back(); }

  PyObject* transform_break(const std::string& reason);
  int transform_operand(PyObject* tensor, std::string& problem);
  int placeholder_like(int slot, int level);
  void record_step(TransformStep step, const char* name, Ref func, Ref args, std::vector<int> outputs);
  void keep_switch(PyObject* callable, const char* reader);
  PyObject* enter_level(Ref callable, Level level, Ref args, const char* name);
  PyObject* exit_level(Ref callable, Ref args);
  int open_level(int number) const;
  PyObject* wrap_tensor(PyObject* callable, PyObject* tensor, int number);
  PyObject* unwrap_tensor(PyObject* callable, PyObject* tensor, int number);
  PyObject* level_gradients(PyObject* outputs, PyObject* inputs, PyObject* given, bool keep, bool create);
  PyObject* enter_dual(PyObject* callable);
  PyObject* exit_dual(PyObject* callable);
  PyObject* make_dual(PyObject* callable, PyObject* tensor, PyObject* tangent, int level);
  PyObject* unpack_dual(PyObject* callable, PyObject* tensor, int level);
  std::optional<GradientLayout> like_primal(int slot) const;
  PyObject* batch_in(PyObject* callable, PyObject* tensor, int dim, int number);
  PyObject* repeated(PyObject* tensor, PyObject* size, int rank);
  PyObject* batch_out(PyObject* callable, PyObject* tensor, int number, PyObject* size, int dim);
  /// The tensor whose examples along `dim` the slot stands for; -1 when it is anything else.
  int whole_batch(int slot, int dim) const;
  /// What the same step gave for this slot right before, among results of the level: eager gives the same object again. -1: nothing.
  int given_before(FuncStep step, int slot, int dim = 0) const;
  /// The tangent that the slot, a dual tensor, was made with and still has; -1 when it is anything else.
  int tangent_of(int dual);
  /// What the host makes the tangent of a dual tensor: where the two lie otherwise in memory, a copy in the primal's form.
  TangentIs tangent_is(int primal, int tangent);
  bool same_strides(int one, int other);
  bool fills_its_storage(int slot);
  int unwrapped(int slot) const;
  bool is_made_from(int slot, int source) const;
  std::string statistics_problem(const std::string& name, PyObject* args, PyObject* kwargs) const;
  std::string level_write_problem(const std::string& name, PyObject* args, PyObject* kwargs) const;
  PyObject* linearize(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
  PyObject* record_calls(PyObject* function, PyObject* tensors);
  PyObject* replay_calls(PyObject* recorded, PyObject* values, PyObject* arguments);
  struct Attempt;
  Attempt attempt(PyObject* function, PyObject* tensors, int first_level);
  std::string write_problem(const Attempt& attempt) const;
  std::string draw_problem(const Attempt& attempt) const;
  /// What a function of torch.cond would do (tracer_cond.cpp).
  struct Branch {
    std::string problem;     // why it is no part of a graph
    Ref recording;           // for replay_calls()
    Ref structure;           // what it returns, with the places of tensors among its results in their stead
    std::vector<int> reads;  // slots of what it reads beside its operands
    Ref types;               // of its results
    Ref uses;                // whether it uses each operand
  };
  Branch record_branch(PyObject* function, PyObject* tensors);
  PyObject* choose_calls(PyObject* const* args);
  std::string recording_problem(const std::vector<TapeNode>& nodes, size_t slots, const std::vector<int>& arguments,
                                std::vector<int>& reads) const;

  /// Of one trace.
  struct Own {
    std::vector<Level> levels{Level()};  // all that there were; a slot's `level` is a place here
    std::vector<int> open_levels;
    int duals = 0;                       // levels of forward_ad that are open
    bool variables_allowed = false;      // requires_grad_() makes a variable of the level's
    std::unordered_map<int, int> wraps;  // slots of wrapped tensors: what they wrap
    struct Places {
      int one, other;  // slots of inputs
      bool alike;
    };
    std::vector<Places> places;
    std::vector<std::pair<int, bool>> whole;  // slots of inputs: fills_storage()
    std::vector<std::vector<int>> separate;   // slots of inputs: apart_in_memory()
  };
  Own own_;
};

}  // namespace tatara::capture
