// Parts of a graph in which the same nodes come again and again, as a loop of the program leaves them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "ops/rules/loop_node.h"

namespace tatara {

/// A value that a node of each turn makes: output `output` of the node at `place` of the turn.
struct TurnValue {
  size_t place = 0;
  int output = 0;
  auto operator<=>(const TurnValue&) const = default;
};

/// One element or a few neighbours of a dimension of a tensor.
struct PartRead {
  ValueId source = kNoValue;
  int64_t dim = 0, start = 0, width = -1;
};
/// What a value is a part of; nullopt: it is no such part, or of a size that is not known.
std::optional<PartRead> part_of(const Graph& graph, ValueId v);
/// The same of a node that makes it.
std::optional<PartRead> part_read(const Graph& graph, const Node& node);
/// Which argument of the node is a number that may be another one in each turn, on floats of its type; -1: none is.
int turn_number(const Graph& graph, const Node& node);

/// A run of turns, and what the operands of a turn's nodes are.
struct LoopStretch {
  size_t first = 0, period = 0, turns = 0;  // nodes

  /// A value of an earlier turn. `inits`: what stands in for it in the first turns; as many as turns lie between.
  struct Carry {
    TurnValue value;
    std::vector<ValueId> inits;
    auto operator<=>(const Carry&) const = default;
  };
  struct Scan {
    ValueId source = kNoValue;  // none: `numbers`, one per turn, as tensors of one element
    LoopScan scan;
    const TensorType* type = nullptr;
    std::vector<double> numbers;
    DType dtype = DType::kFloat32;
  };
  struct Operand {
    enum class Kind : uint8_t { kTurn, kCarry, kScan, kStays } kind = Kind::kTurn;
    TurnValue value;   // kTurn
    size_t index = 0;  // of the others
  };
  std::vector<Carry> carries;
  std::vector<Scan> scans;
  std::vector<ValueId> stays;
  std::vector<std::vector<Operand>> operands;  // per place, in the order of for_each_operand
  std::vector<int> part;                       // per place: the scan that the node reads; -1: it is none
  std::vector<int> number;  // per place: the scan that the node's number is; -1: it is the same in all turns

  size_t end() const { return first + period * turns; }
  bool holds(const Graph& graph, ValueId v) const {
    const NodeId made = graph.value(v).producer;
    return made >= static_cast<NodeId>(first) && made < static_cast<NodeId>(end());
  }
  size_t turn_of(const Graph& graph, ValueId v) const {
    return (static_cast<size_t>(graph.value(v).producer) - first) / period;
  }
  TurnValue place_of(const Graph& graph, ValueId v) const {
    return {(static_cast<size_t>(graph.value(v).producer) - first) % period, graph.value(v).output_index};
  }
  /// The number of the carried value; -1: there is none.
  int find_carry(const Carry& carry) const;
};

/// Of nodes: from the first one to before the second.
using NodeRange = std::pair<size_t, size_t>;
/// The longest run of at least so many turns outside of `closed`. Nullopt: there is none. What looks like one and isn't is added to
/// `closed`, and `why_not` says what was in the way.
std::optional<LoopStretch> find_stretch(const Graph& graph, size_t fewest, std::vector<NodeRange>& closed,
                                        std::string& why_not);
/// Describes the operands of the run's turns anew, after its ends were moved; false: turns differ.
bool describe_turns(const Graph& graph, LoopStretch& stretch);

}  // namespace tatara
