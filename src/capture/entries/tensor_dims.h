// Sizes and strides of a guarded tensor, of which some may be symbols.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "capture/entries/read_place.h"
#include "capture/host/torch_api.h"
#include "capture/numbers/symbolic_int.h"
#include "symbolic/expr.h"

namespace tatara::capture {

/// A symbol without a value so far.
constexpr int64_t kUnbound = INT64_MIN;

/// Layout of a guarded tensor in the symbols of the trace.
struct SymbolicLayout {
  std::vector<Expr> sizes, strides;
};

/// Which dimensions of a tensor are symbols. A check binds them at their first place and compares at the others.
class TensorDims {
 public:
  /// Symbols of sizes by their values in this call: equal sizes share one.
  using Shared = std::unordered_map<int64_t, Expr>;

  TensorDims() = default;
  /// `varying`: what earlier calls tell. `all`: each size may vary. `object`: the tensor's index among the guarded objects.
  TensorDims(const TensorMeta& meta, DimBits varying, bool all, int object, Shared& shared, TraceSymbols& symbols);

  bool symbolic() const { return !layout_.sizes.empty(); }
  const SymbolicLayout& layout() const { return layout_; }
  /// What is not the same in `now`, and what is a symbol; none where the numbers of dimensions differ.
  std::optional<DimBits> differing(const TensorMeta& before, const TensorMeta& now) const;
  /// Whether `tensor` has the layout of `expected` but for the symbols. bind(symbol, value) tells whether that may be its value.
  template <typename Bind>
  bool hold(PyObject* tensor, const TensorMeta& expected, const TorchApi& api, const std::vector<int64_t>& symbols,
            std::string* why, Bind&& bind) const {
    Ref plain;
    if (expected.conjugate) {
      plain = api.beneath(tensor);
      if (!plain) return tell_kind(why);
      tensor = plain.get();
    }
    if (!symbolic()) return api.matches(tensor, expected) || tell(tensor, expected, api, why);
    TensorMeta now;
    if (!api.read_meta(tensor, now)) return tell(tensor, expected, api, why);
    if (!same_kind(expected, now)) return tell_kind(why);
    for (size_t d = 0; d < now.sizes.size(); ++d) {
      if (size_symbols_[d] >= 0) {
        if (!bind(size_symbols_[d], now.sizes[d])) return false;
      } else if (now.sizes[d] != expected.sizes[d]) {
        return tell_dim("size ", d, expected.sizes[d], now.sizes[d], why);
      }
    }
    for (size_t d = 0; d < now.sizes.size(); ++d) {
      if (stride_symbols_[d] >= 0) {
        if (!bind(stride_symbols_[d], now.strides[d])) return false;
      } else if (layout_.strides[d].is_const() && now.strides[d] != expected.strides[d]) {
        return tell_dim("stride ", d, expected.strides[d], now.strides[d], why);
      }
    }
    return derived_hold(now, symbols, why);
  }

 private:
  static bool same_kind(const TensorMeta& expected, const TensorMeta& now);
  [[gnu::cold]] static bool tell(PyObject* tensor, const TensorMeta& expected, const TorchApi& api, std::string* why);
  [[gnu::cold]] static bool tell_kind(std::string* why);
  [[gnu::cold]] static bool tell_dim(const char* what, size_t d, int64_t before, int64_t now, std::string* why);
  bool derived_hold(const TensorMeta& now, const std::vector<int64_t>& symbols, std::string* why) const;

  SymbolicLayout layout_;                           // empty: all constant
  std::vector<int> size_symbols_, stride_symbols_;  // -1: a constant or a program
  std::vector<std::pair<int, ExprProgram>> strides_;
  std::shared_ptr<ExprContext> ctx_;
};

/// The dimensions that the caller marked with tatara.mark_dynamic.
uint64_t marked_dimensions(PyObject* tensor, size_t rank);

}  // namespace tatara::capture
