#include "capture/trace/size_probes.h"

#include <algorithm>

#include "ir/graph.h"
#include "support/error.h"

namespace tatara::capture {
namespace {

/// More symbols are not worth their calls.
constexpr size_t kMostSymbols = 6;
/// How far from this call's value to look, the first that the facts allow.
constexpr int64_t kNearSteps[] = {1, 2, 3, 4, 6, 8, 12, 16, 32, 64, -1, -2, -4, -8};

}  // namespace

SizeProbes::SizeProbes(const TraceSymbols& all, std::vector<Expr> dims) : all_(all), dims_(std::move(dims)) {
  for (const Expr dim : dims_) collect_symbols(dim, symbols_);
  if (symbols_.empty() || symbols_.size() > kMostSymbols) return;
  for (const Expr symbol : symbols_) {
    const auto place = std::find(all.symbols().begin(), all.symbols().end(), symbol);
    if (place == all.symbols().end()) return;
    places_.push_back(static_cast<size_t>(place - all.symbols().begin()));
  }
  for (const Expr fact : all.ctx().facts()) facts_.push_back(all.program(fact));
  probes_.push_back({all.hints()});
  const std::vector<int64_t> hints = all.hints();
  if (!choose_near(hints)) {
    probes_.clear();
    return;
  }
  choose_far(hints);
}

bool SizeProbes::possible(const std::vector<int64_t>& values) const {
  for (size_t i = 0; i < symbols_.size(); ++i) {
    const IntRange range = all_.ctx().range(symbols_[i]);
    const int64_t value = values[places_[i]];
    if (value < range.lo || value > range.hi) return false;
  }
  return std::all_of(facts_.begin(), facts_.end(),
                     [&](const ExprProgram& fact) { return fact.try_evaluate(values).value_or(0) != 0; });
}

/// One symbol at a time, then all at once by other steps. False where the facts tie them.
bool SizeProbes::choose_near(const std::vector<int64_t>& hints) {
  std::vector<int64_t> together = hints;
  for (const size_t place : places_) {
    size_t found = 0;
    for (const int64_t step : kNearSteps) {
      std::vector<int64_t> values = hints;
      values[place] += step;
      if (!possible(values)) continue;
      if (++found == 1) {
        probes_.push_back({std::move(values)});
      } else if (together[place] = hints[place] + step; possible(together)) {
        break;
      }
    }
    if (found < 2 || together[place] == hints[place]) return false;
  }
  if (!possible(together)) return false;
  probes_.push_back({std::move(together)});
  return true;
}

void SizeProbes::choose_far(const std::vector<int64_t>& hints) {
  std::vector<int64_t> small = hints, large = hints;
  for (size_t i = 0; i < places_.size(); ++i) {
    const int64_t first = std::max<int64_t>(all_.ctx().range(symbols_[i]).lo, 2);
    small[places_[i]] = first + static_cast<int64_t>(i);
    large[places_[i]] = 3 * hints[places_[i]] + 7 + static_cast<int64_t>(i);
  }
  for (std::vector<int64_t>& values : {std::ref(small), std::ref(large)}) {
    if (possible(values)) probes_.push_back({std::move(values), true});
  }
}

bool SizeProbes::holds(Expr e, const Seen& seen) const {
  const ExprProgram program = all_.program(e);
  for (size_t p = 0; p < seen.size(); ++p) {
    if (seen[p] && program.try_evaluate(probes_[p].values) != seen[p]) return false;
  }
  return true;
}

/// Invalid where none fits.
Expr SizeProbes::affine(const Seen& seen) const {
  ExprContext& ctx = all_.ctx();
  Expr sum = ctx.constant(0);
  int64_t rest = *seen[0];
  for (size_t i = 0; i < symbols_.size(); ++i) {
    const int64_t before = probes_[0].values[places_[i]];
    const int64_t step = probes_[i + 1].values[places_[i]] - before;
    const int64_t change = *seen[i + 1] - *seen[0];
    if (change % step != 0) return {};
    const int64_t slope = change / step;
    rest -= slope * before;
    sum = ctx.add(sum, ctx.mul(ctx.constant(slope), symbols_[i]));
  }
  const Expr e = ctx.add(sum, ctx.constant(rest));
  return holds(e, seen) ? e : Expr();
}

/// Invalid where it is none of two.
Expr SizeProbes::smaller_dim(const Seen& seen) const {
  for (size_t i = 0; i < dims_.size(); ++i) {
    if (all_.program(dims_[i]).try_evaluate(probes_[0].values) != seen[0]) continue;
    for (const Expr other : dims_) {
      const Expr e = all_.ctx().min(dims_[i], other);
      if (other != dims_[i] && holds(e, seen)) return e;
    }
  }
  return {};
}

/// Each is affine or the product of the sizes that lie closer in this call.
bool SizeProbes::fit_strides(ProbedLayout& layout, const std::vector<Seen>& strides) const {
  ExprContext& ctx = all_.ctx();
  const std::vector<Expr> contiguous = contiguous_strides(ctx, layout.sizes);
  for (size_t d = 0; d < strides.size(); ++d) {
    Expr stride = holds(contiguous[d], strides[d]) ? contiguous[d] : affine(strides[d]);
    if (!stride.valid()) {
      stride = ctx.constant(1);
      for (size_t other = 0; other < strides.size(); ++other) {
        if (*strides[other][0] < *strides[d][0]) stride = ctx.mul(stride, layout.sizes[other]);
      }
      if (!holds(stride, strides[d])) return false;
    }
    layout.strides.push_back(stride);
  }
  return true;
}

std::optional<std::vector<ProbedLayout>> SizeProbes::fit(
    const std::vector<std::optional<std::vector<ProbedResult>>>& answers) const {
  const std::vector<ProbedResult>& first = *answers.front();
  for (const auto& answer : answers) {
    if (!answer) continue;
    const auto alike = [](const ProbedResult& a, const ProbedResult& b) {
      return a.dtype == b.dtype && a.sizes.size() == b.sizes.size();
    };
    if (!std::equal(first.begin(), first.end(), answer->begin(), answer->end(), alike)) return std::nullopt;
  }
  const auto seen = [&](size_t result, size_t dim, std::vector<int64_t> ProbedResult::* what) {
    Seen values;
    for (const auto& answer : answers) {
      values.push_back(answer ? std::optional(((*answer)[result].*what)[dim]) : std::nullopt);
    }
    return values;
  };
  std::vector<ProbedLayout> layouts;
  for (size_t r = 0; r < first.size(); ++r) {
    ProbedLayout& layout = layouts.emplace_back();
    std::vector<Seen> strides;
    for (size_t d = 0; d < first[r].sizes.size(); ++d) {
      const Seen values = seen(r, d, &ProbedResult::sizes);
      Expr size = affine(values);
      if (!size.valid()) size = smaller_dim(values);
      if (!size.valid()) return std::nullopt;
      layout.sizes.push_back(size);
      strides.push_back(seen(r, d, &ProbedResult::strides));
    }
    if (!fit_strides(layout, strides)) return std::nullopt;
  }
  return layouts;
}

std::vector<Expr> operand_dims(const Tape& tape, PyObject* args, PyObject* kwargs) {
  std::vector<Expr> dims;
  bool number = false;
  const auto add = [&](const std::vector<Expr>& exprs) {
    for (const Expr e : exprs) {
      if (std::find(dims.begin(), dims.end(), e) == dims.end()) dims.push_back(e);
    }
  };
  const auto each = [&](PyObject* o) -> Ref {
    if (const int slot = slot_of(o); slot >= 0) {
      const TapeSlot& info = tape.slots()[static_cast<size_t>(slot)];
      number = number || (info.number && !info.generator);
      const SlotLayout& layout = tape.layout(slot);
      add(layout.symbolic_sizes);
      add(layout.symbolic_strides);
    } else if (is_size_ref(o)) {
      add({size_ref_expr(o)});
    }
    return Ref::borrow(o);
  };
  map_structure(args, each);
  if (kwargs != nullptr) map_structure(kwargs, each);
  if (number) dims.clear();
  return dims;
}

Ref probe_operand(const TorchApi& api, const TraceSymbols& symbols, const Tape& tape, int slot,
                  std::span<const int64_t> values) {
  const TapeSlot& operand = tape.slots()[static_cast<size_t>(slot)];
  const SlotLayout& layout = tape.layout(slot);
  if (layout.symbolic_sizes.empty()) return operand.meta;
  const auto under = [&](const std::vector<Expr>& exprs) {
    std::vector<int64_t> numbers;
    for (const Expr e : exprs) numbers.push_back(symbols.program(e).evaluate(values));
    return int_tuple(numbers);
  };
  return api.empty_meta(under(layout.symbolic_sizes).get(), under(layout.symbolic_strides).get(), operand.dtype.get());
}

namespace {

/// Nothing where the results are not plain tensors and None.
std::optional<std::vector<ProbedResult>> described(PyObject* result) {
  std::vector<PyObject*> items;
  flatten_result(result, items);
  std::vector<ProbedResult> found;
  for (PyObject* item : items) {
    ProbedResult& each = found.emplace_back();
    if (item == Py_None) continue;
    const Ref sizes = attr_or_null(item, "shape"), dtype = attr_or_null(item, "dtype");
    const Ref strides = sizes ? Ref::steal(PyObject_CallMethod(item, "stride", nullptr)) : Ref();
    if (!strides || !dtype) return std::nullopt;
    each.dtype = text_of(Ref::steal(PyObject_Str(dtype.get())).get());
    for (Py_ssize_t d = 0; d < PyTuple_GET_SIZE(sizes.get()); ++d) {
      each.sizes.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(sizes.get(), d)));
      each.strides.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(strides.get(), d)));
    }
  }
  return found;
}

}  // namespace

std::vector<ProbedLayout> probed_layouts(const SizeProbes& probes, const Tape& tape, PyObject* result,
                                         const std::function<Ref(std::span<const int64_t>)>& ask) {
  if (probes.size() == 0) return {};
  std::vector<PyObject*> items;
  flatten_result(result, items);
  if (std::any_of(items.begin(), items.end(), [&](PyObject* o) { return tape.find_meta(o) >= 0; })) return {};
  std::vector<std::optional<std::vector<ProbedResult>>> answers;
  for (size_t p = 0; p < probes.size(); ++p) {
    const Ref other = p == 0 ? Ref::borrow(result) : ask(probes.values(p));
    answers.push_back(other ? described(other.get()) : std::nullopt);
    forget_error();
    if (!answers.back() && !probes.may_fail(p)) return {};
  }
  try {
    return probes.fit(answers).value_or(std::vector<ProbedLayout>());
  } catch (const Error&) {
    return {};  // beyond 64 bits
  }
}

}  // namespace tatara::capture
