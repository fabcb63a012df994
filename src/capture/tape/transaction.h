// What a run changes, so that it can be taken back and the program do the same again in eager.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "capture/tape/tape.h"

namespace tatara::capture {

/// The recorded arguments that a call writes to; more than these where its name does not say it.
std::vector<PyObject*> written_arguments(const TapeNode& node);

/// Whatever may be given up and done again in eager happens under a transaction: a trace, and the run of an entry's graph or
/// tape. What is about to change something tells it to the innermost one beforehand. undo() then takes the changes back, the
/// last one first: generators of random numbers, memory of tensors, gradients, objects, switches. A change that cannot be
/// taken back (lose()) ends that: the run's own error is then the program's, and nothing is done twice.
class Transaction {
 public:
  /// Bytes of older tensors that a transaction copies before they are written to: in each call (running statistics and
  /// counters are less; copies of more take their time), and in a trace, where copies cost little beside the compilation.
  static constexpr size_t kMostInCall = size_t{1} << 20;
  static constexpr size_t kMostInTrace = size_t{1} << 26;

  explicit Transaction(size_t most_bytes) : most_bytes_(most_bytes) {}
  /// A transaction around this one takes over what happened.
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  /// The innermost one of this thread; null: what happens now is never repeated.
  static Transaction* current();
  /// While it lives, the transaction is the innermost one.
  class Scope {
   public:
    explicit Scope(Transaction& transaction);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Transaction* before_;
  };

  /// Before numbers are drawn: the default generators, and those that the tape's calls are given.
  void keep_generators(const Tape& tape, const std::vector<Ref>& env, const TorchApi& api);
  void keep_generator(PyObject* generator);
  /// The same of one of np.random's.
  void keep_numpy_generator(PyObject* generator);
  void keep_python_generator(PyObject* generator);
  /// Before a tape runs: the same, and where its inputs lie (`env`: of all slots).
  void begin_tape(const Tape& tape, const std::vector<Ref>& env, const TorchApi& api);
  /// From now on what is written to is copied however big it is, on a GPU as well: a run that looks which of the conditions falls
  /// otherwise ends there, behind writes of the program.
  void copy_all() { copies_ = true; }
  /// Before a plan writes to `bytes` of a CPU tensor (or array), from its first element on.
  void keep_memory(PyObject* tensor, void* data, size_t bytes);
  /// Before anything else writes to a tensor: a copy, however big it is. False with a Python error set.
  bool keep_copy(PyObject* tensor);
  /// Before a call of the tape that writes: what lies in the memory of the tape's inputs.
  void keep_operands(const TapeNode& node, const std::vector<Ref>& env, const TorchApi& api);
  /// Before a tensor's `.grad` is replaced.
  void keep_gradient(PyObject* tensor);
  /// The same where the program does not look at the gradient's numbers: one that nobody else holds ends, and comes back as zeros.
  /// So a run does not hold two sets of gradients.
  void keep_cleared_gradient(PyObject* tensor);
  /// Before any other change. The function is called without a Python error set; false: the change stays.
  void on_undo(std::function<bool()> take_back);
  /// Something happens that cannot be taken back.
  void lose(const char* why);

  bool can_undo() const { return lost_ == nullptr; }
  /// Takes all back. False where that is not possible; nothing is done if that was known. Leaves a Python error as it is.
  bool undo();
  /// The same, as far as it goes.
  void undo_in_part();
  /// The same for what happened since mark() was called, which gave `mark`.
  size_t mark() { return marked_ = count(); }
  bool undo_since(size_t mark);
  /// The same where what happened before can't be taken back any more: all since `mark` was noted by on_undo().
  bool undo_noted_since(size_t mark);

 private:
  size_t count() const { return changes_.size(); }
  struct Change {
    enum class Kind : uint8_t { kGenerator, kMemory, kGradient, kOther };
    Kind kind = Kind::kOther;
    Ref object,
        value;  // the generator and its state; the tensor and what its metadata were (null: they stay), or its gradient
    void* data = nullptr;
    std::vector<std::byte> bytes;
    std::function<bool()> take_back;
    bool covers(const void* begin, size_t size) const {
      const auto* const first = static_cast<const std::byte*>(data);
      const auto* const from = static_cast<const std::byte*>(begin);
      return kind == Kind::kMemory && first <= from && from + size <= first + bytes.size();
    }
  };
  struct Range {
    const char *begin, *end;
  };
  void keep_leaf(PyObject* tensor);
  void keep_tensor(PyObject* tensor, const TorchApi& api);
  void keep_array(PyObject* array, const TorchApi& api);
  bool keep_bytes(PyObject* owner, Ref metadata, void* data, size_t bytes);
  static bool take_back(const Change& change);

  size_t most_bytes_, kept_bytes_ = 0;
  size_t marked_ = 0;  // changes from here on may be taken back by themselves
  std::vector<Change> changes_;
  std::vector<Range> older_;  // memory of tapes' inputs
  bool copies_ = false;
  std::vector<Range> copied_;  // on GPUs
  Transaction* around_ = nullptr;
  const char* lost_ = nullptr;  // why what happened cannot be taken back
};

}  // namespace tatara::capture
