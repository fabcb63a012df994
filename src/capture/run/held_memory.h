// What the host would keep for gradients of what the program can write to: inputs and results of a stage.
#pragma once

#include <map>
#include <optional>
#include <unordered_map>
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
  Root root(int slot);
  Root next_root(int slot);
  /// Of the part's inputs or outputs: the slot, where the program has the memory; -1 else.
  int visible_slot(int number, bool output);
  HeldMemory of_group(const GraphStage& part, const std::vector<ValueId>& results, const std::vector<bool>& needs,
                      const std::vector<int>& inputs, const std::vector<int>& outputs);
  /// Adds the slots of the memory that the host keeps for the call. False where it cannot be asked.
  bool add_kept(size_t call, const std::vector<int>& interesting, std::vector<int>& kept);

  /// Whether it keeps an operand or a result of the call, as far as is known.
  bool keeps(size_t call);

  const TapeGraph& made_;
  const Tape& tape_;
  std::vector<bool> needs_;  // per slot: whether it may have a history
  std::unordered_map<size_t, std::optional<Answer>> answers_;
  std::map<std::pair<int, std::vector<bool>>, size_t>
      alike_;  // calls that were asked, by TapeNode::alike and which operands need gradients
  std::unordered_map<int, Root> roots_;
};

}  // namespace tatara::capture
