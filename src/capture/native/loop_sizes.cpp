#include "capture/native/loop_sizes.h"

#include <algorithm>
#include <cstdlib>

#include "capture/native/loop_program.h"
#include "support/error.h"

namespace tatara::capture::native {

namespace {

constexpr int64_t kNear = 8;  // by so much sizes may differ that change together
constexpr size_t kMostSizes = 8;

bool may_vary(int64_t value) { return value >= kVaryingSize.lo && value <= kVaryingSize.hi; }

/// The elements lie row by row, without gaps.
bool is_dense(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  int64_t dense = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    if (strides[d] != dense) return false;
    dense *= sizes[d];
  }
  return true;
}

int64_t numel_of(const LoopProgram::Buffer& buffer, std::span<const int64_t> sizes) {
  return buffer.varying ? buffer.varying->evaluate(sizes) : buffer.numel;
}

}  // namespace

SizeTerm SizeSymbols::term(int64_t before, int64_t now, const SizePlace& place) {
  if (before == now) return {-1, now};
  for (size_t n = 0; n < changes_.size(); ++n) {
    const int64_t distance = now - changes_[n].now;
    if (before - changes_[n].before == distance && std::abs(distance) <= kNear) return {static_cast<int>(n), distance};
  }
  if (!may_vary(before) || !may_vary(now) || changes_.size() == kMostSizes)
    throw Unsupported("a size that varies and is small");
  changes_.push_back({before, now});
  places_.push_back(place);
  return {static_cast<int>(changes_.size()) - 1, 0};
}

Expr SizeSymbols::expr(const SizeTerm& term, LoopBuilder& builder) const {
  const Expr offset = builder.constant(term.offset);
  return term.symbol < 0 ? offset : builder.ctx().add(builder.size(term.symbol), offset);
}

std::optional<std::vector<int64_t>> LoopProgram::read_sizes(const LoopPlace& place, const LoopRange& now,
                                                            const NumpyApi& np) const {
  std::vector<int64_t> values;
  values.reserve(sizes.size());
  for (const SizePlace& at : sizes) {
    int64_t value = 0;
    PyObject* object = nullptr;
    Ref seen;
    switch (at.kind) {
      case SizePlace::Kind::kFirst: value = now.first; break;
      case SizePlace::Kind::kTurns: value = now.turns; break;
      case SizePlace::Kind::kDimension:
        object = place.object(at.local);
        if (object == nullptr || !np.is_array(object) || NumpyApi::ndim(object) <= at.dim) return std::nullopt;
        value = NumpyApi::dim(object, at.dim);
        break;
      case SizePlace::Kind::kInt:
        object = place.object(at.local);
        seen = object != nullptr ? seen_value(object) : Ref();
        if (!seen || !PyLong_CheckExact(seen.get())) return std::nullopt;
        value = PyLong_AsLongLong(seen.get());
        if (PyErr_Occurred() != nullptr) {
          forget_error();
          return std::nullopt;
        }
        break;
    }
    value -= at.offset;
    if (!may_vary(value)) return std::nullopt;
    values.push_back(value);
  }
  return values;
}

bool LoopProgram::fits_range(const LoopRange& now, std::span<const int64_t> values) const {
  if (range.kind != LoopRange::Kind::kRange) return range.goes_as(now);
  return now.kind == range.kind && range.step == now.step && first.value(values) == now.first &&
         turns.value(values) == now.turns;
}

bool LocalFact::has_layout(const std::vector<int64_t>& now, const std::vector<int64_t>& now_strides,
                           std::span<const int64_t> values) const {
  if (terms.empty()) return sizes == now && strides == now_strides;
  if (now.size() != terms.size() || !is_dense(now, now_strides)) return false;
  for (size_t d = 0; d < terms.size(); ++d) {
    if (terms[d].value(values) != now[d]) return false;
  }
  return true;
}

LoopSpan LoopProgram::span_of(const Buffer& buffer, PyObject* array, std::span<const int64_t> values) const {
  const int64_t element = dtype_size(buffer.dtype);
  const char* begin = static_cast<const char*>(NumpyApi::data(array)) - buffer.low * element;
  return {begin, begin + numel_of(buffer, values) * element};
}

size_t LoopProgram::bytes_of(const Buffer& buffer, std::span<const int64_t> values) const {
  return static_cast<size_t>(numel_of(buffer, values)) * static_cast<size_t>(dtype_size(buffer.dtype));
}

bool describes_dense(const LocalFact& fact) { return is_dense(fact.sizes, fact.strides); }

}  // namespace tatara::capture::native
