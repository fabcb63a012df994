#include "capture/entries/tensor_dims.h"

#include <algorithm>
#include <numeric>

#include "capture/entries/number_ranges.h"
#include "capture/host/numpy_api.h"
#include "ir/graph.h"
#include "support/str_cat.h"

namespace tatara::capture {
namespace {

/// Strides as products of the tensor's own sizes where they have such values; constants otherwise.
std::vector<Expr> derive_strides(ExprContext& ctx, const TensorMeta& meta, const std::vector<Expr>& sizes) {
  const size_t rank = meta.sizes.size();
  std::vector<Expr> strides = contiguous_strides(ctx, sizes);
  bool contiguous = true;
  for (size_t d = 0; d < rank; ++d) contiguous = contiguous && ctx.evaluate_hint(strides[d]) == meta.strides[d];
  if (contiguous) return strides;
  std::vector<size_t> order(rank);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return meta.strides[a] < meta.strides[b]; });
  for (size_t k = 0; k < rank; ++k) {
    const size_t d = order[k];
    strides[d] = ctx.constant(meta.strides[d]);
    if (meta.strides[d] <= 1) continue;
    for (size_t j = k; j-- > 0;) {
      const size_t inner = order[j];
      if (meta.strides[inner] == 0 || meta.sizes[inner] <= 1) continue;
      if (meta.strides[inner] * meta.sizes[inner] != meta.strides[d]) continue;
      strides[d] = ctx.mul(strides[inner], sizes[inner]);
      break;
    }
  }
  return strides;
}

int symbol_number(const TraceSymbols& symbols, Expr e) {
  const auto found = std::find(symbols.symbols().begin(), symbols.symbols().end(), e);
  return found == symbols.symbols().end() ? -1 : static_cast<int>(found - symbols.symbols().begin());
}

std::string dims_text(const std::vector<int64_t>& sizes) {
  std::string text = "[";
  for (size_t i = 0; i < sizes.size(); ++i) text += str_cat(i == 0 ? "" : ", ", sizes[i]);
  return text + "]";
}

}  // namespace

TensorDims::TensorDims(const TensorMeta& meta, DimBits varying, bool all, int object, Shared& shared,
                       TraceSymbols& symbols) {
  const size_t rank = meta.sizes.size();
  if (meta.device_type == kNumpyDevice || rank == 0 || rank > 64 || meta.strides.size() != rank) return;
  uint64_t wanted = all ? ~uint64_t{0} : varying.sizes;
  // Tensors of integers are ids, positions and masks: all their sizes come from data, and vary sooner or later.
  constexpr uint8_t kFloat = 2, kBfloat = 4, kComplex = 5;  // of DLPack
  const bool floating = meta.code == kFloat || meta.code == kBfloat || meta.code == kComplex || meta.code > 6;
  if (wanted != 0 && !floating) wanted = ~uint64_t{0};
  for (size_t d = 0; d < rank; ++d) {
    if (meta.sizes[d] < 2) wanted &= ~(uint64_t{1} << d);
  }
  const uint64_t inside = rank == 64 ? ~uint64_t{0} : (uint64_t{1} << rank) - 1;
  if (((wanted | varying.strides) & inside) == 0) return;
  ctx_ = symbols.ctx_ptr();
  for (size_t d = 0; d < rank; ++d) {
    Expr size = ctx_->constant(meta.sizes[d]);
    if ((wanted >> d & 1) != 0) {
      Expr& known = shared[meta.sizes[d]];
      if (!known.valid())
        known = symbols.add(meta.sizes[d], {object, static_cast<int>(d), false}, size_range(meta.sizes[d]));
      size = known;
    }
    layout_.sizes.push_back(size);
  }
  layout_.strides = derive_strides(*ctx_, meta, layout_.sizes);
  for (size_t d = 0; d < rank; ++d) {
    if ((varying.strides >> d & 1) == 0 || !layout_.strides[d].is_const() || meta.strides[d] < 2) continue;
    layout_.strides[d] = symbols.add(meta.strides[d], {object, static_cast<int>(d), true}, size_range(meta.strides[d]));
  }
  for (size_t d = 0; d < rank; ++d) {
    size_symbols_.push_back(symbol_number(symbols, layout_.sizes[d]));
    const Expr stride = layout_.strides[d];
    // A stride that is a size's symbol was bound by that size: compare it as a program.
    const int own = symbol_number(symbols, stride);
    const bool free = own >= 0 && symbols.sources()[static_cast<size_t>(own)].stride;
    stride_symbols_.push_back(free ? own : -1);
    if (!free && !stride.is_const()) strides_.emplace_back(static_cast<int>(d), symbols.program(stride));
  }
}

std::optional<DimBits> TensorDims::differing(const TensorMeta& before, const TensorMeta& now) const {
  if (now.sizes.size() != before.sizes.size() || now.sizes.size() > 64) return std::nullopt;
  DimBits bits;
  bool sizes_differ = false;
  for (size_t d = 0; d < now.sizes.size(); ++d) {
    const bool differs = now.sizes[d] != before.sizes[d];
    sizes_differ = sizes_differ || differs;
    if (differs || (symbolic() && size_symbols_[d] >= 0)) bits.sizes |= uint64_t{1} << d;
  }
  for (size_t d = 0; d < now.strides.size() && d < before.strides.size(); ++d) {
    // Strides follow from sizes most often: their own symbols only where no size explains the difference.
    const bool differs = !sizes_differ && now.strides[d] != before.strides[d];
    if (differs || (symbolic() && stride_symbols_[d] >= 0)) bits.strides |= uint64_t{1} << d;
  }
  return bits;
}

bool TensorDims::same_kind(const TensorMeta& expected, const TensorMeta& now) {
  const size_t rank = expected.sizes.size();
  return now.code == expected.code && now.bits == expected.bits && now.device_type == expected.device_type &&
         now.device_id == expected.device_id && now.sizes.size() == rank && now.strides.size() == rank;
}

bool TensorDims::tell(PyObject* tensor, const TensorMeta& expected, const TorchApi& api, std::string* why) {
  if (why == nullptr) return false;
  TensorMeta now;
  if (!api.read_meta(tensor, now)) {
    *why = "an input became " + api.why_not(tensor);
  } else if (now.sizes != expected.sizes) {
    *why = "tensor sizes " + dims_text(expected.sizes) + " became " + dims_text(now.sizes);
  } else {
    *why =
        now.strides != expected.strides ? "the strides of a tensor changed" : "the dtype or device of a tensor changed";
  }
  return false;
}

bool TensorDims::tell_kind(std::string* why) {
  if (why != nullptr) *why = "the dtype, device or number of dimensions of a tensor changed";
  return false;
}

bool TensorDims::tell_dim(const char* what, size_t d, int64_t before, int64_t now, std::string* why) {
  if (why != nullptr) *why = str_cat(what, d, " of a tensor: ", before, " became ", now);
  return false;
}

bool TensorDims::derived_hold(const TensorMeta& now, const std::vector<int64_t>& symbols, std::string* why) const {
  for (const auto& [d, program] : strides_) {
    const auto dim = static_cast<size_t>(d);
    if (program.try_evaluate(symbols) == now.strides[dim]) continue;
    if (why != nullptr) *why = str_cat("stride ", d, " of a tensor is no longer ", layout_.strides[dim].str());
    return false;
  }
  return true;
}

uint64_t marked_dimensions(PyObject* tensor, size_t rank) {
  const Ref dims = attr_or_null(tensor, "_tatara_dynamic");
  uint64_t mask = 0;
  if (!dims || !PyTuple_Check(dims.get())) return mask;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(dims.get()); ++i) {
    long long d = PyLong_AsLongLong(PyTuple_GET_ITEM(dims.get(), i));
    if (d < 0) d += static_cast<long long>(rank);
    if (d >= 0 && d < 64) mask |= uint64_t{1} << d;
  }
  forget_error();
  return mask;
}

}  // namespace tatara::capture
