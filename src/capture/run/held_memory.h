// What the host would keep for gradients of what the program can write to: inputs and results of a stage.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "capture/graph/graph_from_tape.h"
#include "transforms/result_groups.h"
#include "transforms/stages.h"

namespace tatara::capture {

/// Asks the host about the calls of a tape, each at most once, where they have to do with such memory.
class HeldByHost {
 public:
  HeldByHost(const TapeGraph& made, const Tape& tape);
  /// For each group of results of the part.
  std::vector<HeldMemory> of(const GraphStage& part, const ResultGroups& groups);

 private:
  struct Answer {
    std::vector<bool> operands, results;  // whether it is held: tensors among the arguments, and outputs
    bool alias = false;                   // the first result has the first tensor's memory
  };
  /// Of a slot: the one that is the whole of its memory, and whether `.data` is on the way from there.
  struct Root {
    int slot = -1;
    bool uncounted = false;
  };
  const std::optional<Answer>& ask(size_t node);
  std::optional<Answer> ask_host(const TapeNode& node) const;
  Root root(int slot);
  Root next_root(int slot);
  /// Of the part's inputs or outputs: the slot, where the program has the memory; -1 else.
  int visible_slot(int number, bool output);
  HeldMemory of_group(const GraphStage& part, const std::vector<ValueId>& results, const std::vector<bool>& needs,
                      const std::vector<int>& inputs, const std::vector<int>& outputs);
  /// Adds the slots of the memory that the host keeps for the call. False where it cannot be asked.
  bool add_kept(size_t call, const std::vector<bool>& interesting, std::vector<bool>& kept);

  /// Whether it keeps an operand or a result of the call, as far as is known.
  bool keeps(size_t call);

  const TapeGraph& made_;
  const Tape& tape_;
  std::vector<bool> needs_;  // per slot: whether it may have a history
  std::deque<std::optional<Answer>> answers_;
  std::vector<int> answer_of_;  // by node: its answer; -1: not asked yet
  std::map<std::pair<int, std::vector<bool>>, int>
      alike_;  // answers by TapeNode::alike and which operands need gradients
  struct KnownRoot {
    Root root;
    bool known = false;
  };
  std::vector<KnownRoot> roots_;  // by slot
};

}  // namespace tatara::capture
