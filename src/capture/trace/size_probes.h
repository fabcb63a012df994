// Sizes that only the host knows, as expressions: its meta kernel is asked for several values of the symbols.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "capture/host/torch_api.h"
#include "capture/numbers/symbolic_int.h"
#include "capture/tape/tape.h"
#include "symbolic/expr.h"

namespace tatara::capture {

/// What the host says of one result of a call; without a dtype: None.
struct ProbedResult {
  std::string dtype;
  std::vector<int64_t> sizes, strides;
};

struct ProbedLayout {
  std::vector<Expr> sizes, strides;
};

/// Values of all symbols to ask for: those of this call, ones where a single symbol differs, ones where all do, and small and
/// large ones. A size is affine in the symbols or the smaller of two dimensions (as of a matrix's factors), and must be so in
/// all answers. Whoever runs the call looks at each result's sizes besides: a kernel may do otherwise for values that nobody
/// asked for.
class SizeProbes {
 public:
  /// `dims`: the sizes of operands. None are chosen where the facts of the trace leave no room for others.
  SizeProbes(const TraceSymbols& all, std::vector<Expr> dims);

  size_t size() const { return probes_.size(); }
  std::span<const int64_t> values(size_t probe) const { return probes_[probe].values; }
  /// Whether the host may refuse these values: they are far from this call's.
  bool may_fail(size_t probe) const { return probes_[probe].far; }

  /// `answers`: of each probe, none where the host refused it. Nothing where no expressions fit all.
  std::optional<std::vector<ProbedLayout>> fit(
      const std::vector<std::optional<std::vector<ProbedResult>>>& answers) const;

 private:
  struct Probe {
    std::vector<int64_t> values;  // of all symbols
    bool far = false;
  };
  /// What each probe says of one size or stride; none where the host refused it.
  using Seen = std::vector<std::optional<int64_t>>;

  bool possible(const std::vector<int64_t>& values) const;
  bool choose_near(const std::vector<int64_t>& hints);
  void choose_far(const std::vector<int64_t>& hints);
  bool holds(Expr e, const Seen& seen) const;
  Expr affine(const Seen& seen) const;
  Expr smaller_dim(const Seen& seen) const;
  bool fit_strides(ProbedLayout& layout, const std::vector<Seen>& strides) const;

  const TraceSymbols& all_;
  std::vector<Expr> dims_, symbols_;
  std::vector<size_t> places_;      // of symbols_ among all
  std::vector<ExprProgram> facts_;  // of the trace, over the values of all symbols
  std::vector<Probe> probes_;
};

/// Sizes, strides and integers among recorded arguments, each once; none where a number is among them whose value is to be known.
std::vector<Expr> operand_dims(const Tape& tape, PyObject* args, PyObject* kwargs);
/// A tensor without memory for an operand, under these values. Null with a Python error set.
Ref probe_operand(const TorchApi& api, const TraceSymbols& symbols, const Tape& tape, int slot,
                  std::span<const int64_t> values);
/// The layouts of a call's results, None among them as without dimensions. `result` is what the host gives in this call, `ask`
/// gives it for other values of the symbols, or null with a Python error set. Empty: they cannot be told, or a result is an operand.
std::vector<ProbedLayout> probed_layouts(const SizeProbes& probes, const Tape& tape, PyObject* result,
                                         const std::function<Ref(std::span<const int64_t>)>& ask);

}  // namespace tatara::capture
