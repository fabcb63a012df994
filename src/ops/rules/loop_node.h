// A loop as one node: a body that runs turn after turn, on carried values, on parts of tensors and on values that stay.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ops/core/builder.h"

namespace tatara {

/// What a turn reads of a tensor: of dimension `dim` the elements from start + step * turn on, `width` of them. -1: one, and the
/// dimension is left out.
struct LoopScan {
  int64_t dim = 0, start = 0, step = 1, width = -1;
};

/// Inputs of the body: carried values, parts of scanned tensors, values that stay. Its outputs: the carried values of the next turn,
/// then what is stacked. The node's operands are the first carried values, the whole scanned tensors, and what stays. Its results:
/// the last carried values, the histories that are wanted, and stacks; all contiguous.
struct LoopForm {
  std::shared_ptr<const Graph> body;
  int64_t turns = 0;
  /// Rows of stacks and histories are written from the last to the first.
  bool reverse = false;
  /// Per carried value: whether all of its values are a result, in rows: the first operand, then those that turns give.
  std::vector<bool> history;
  std::vector<LoopScan> scans;
  /// The body of the loop that gives gradients, as text; empty: there is none yet. `links` says what it is given (LoopLinks).
  std::string backward;
  std::vector<int64_t> links;

  size_t carries() const { return history.size(); }
  size_t stacks() const { return body->outputs().size() - carries(); }
  size_t histories() const;
  /// Among the node's results.
  size_t history_result(size_t carry) const;
  size_t stack_result(size_t stack) const { return carries() + histories() + stack; }
  /// Row of a history that a turn's carried value is read from, of `turns` + 1.
  int64_t history_row(int64_t turn) const { return reverse ? turns - turn : turn; }
  int64_t stack_row(int64_t turn) const { return reverse ? turns - 1 - turn : turn; }
};

/// How the loop of gradients is bound: `needs` says which operands have one.
struct LoopLinks {
  enum class Kind : uint8_t {
    kCarry,         // the cotangent of the last carried value `index`
    kSum,           // the gradient of operand `index`, which stays: a sum over turns
    kScan,          // the parts of scanned tensor `index`
    kStack,         // stack `index`
    kHistory,       // carried values `index` that turns read
    kNext,          // and that they gave
    kStackGiven,    // the cotangent of stack `index`
    kHistoryGiven,  // of history `index`, without the first row
    kStays,         // operand `index`
  };
  struct Link {
    Kind kind;
    int64_t index;
  };
  std::vector<bool> needs;
  std::vector<Link> carries, scans, stays;
  std::vector<int64_t> stacked;  // scanned tensor that each stack of gradients belongs to
  /// Per gradient (of `carries`, then `stacked`): the results that give it something, as bits: last values, histories of all carried
  /// values, stacks. What no result with a cotangent reaches has none.
  std::vector<std::vector<bool>> reached_by;

  std::vector<int64_t> encode() const;
  static LoopLinks decode(std::span<const int64_t> numbers);
};

bool is_loop(const OpDef& op);
/// The body is parsed anew, in the given context.
LoopForm read_loop(std::span<const Arg> args, const std::shared_ptr<ExprContext>& ctx);
const std::vector<ValueId>& loop_operands(const Node& node);
/// A tensor of these numbers, which turns read one of each.
ValueId add_number_table(GraphBuilder& builder, const std::vector<double>& numbers, DType dtype);
std::vector<ValueId> add_loop(GraphBuilder& builder, const LoopForm& form, std::vector<ValueId> operands);
/// A loop of turns that draw random numbers and read nothing; it gives stacks alone.
std::vector<ValueId> add_draw_loop(GraphBuilder& builder, const LoopForm& form);
/// A graph's text without what strings of graphs may not have; and back.
std::string loop_text(const Graph& body);
Graph parse_loop_text(std::string_view text, const std::shared_ptr<ExprContext>& ctx);

/// The host's name of the operator.
inline constexpr std::string_view kLoopCall = "tatara::loop";
inline constexpr std::string_view kDrawsCall = "tatara::draws";
inline constexpr std::string_view kTableCall = "tatara::table";

}  // namespace tatara
