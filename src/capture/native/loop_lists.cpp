// Rows of an array by a list of ints: `a[[i, j]] = a[[j, i]]`.
#include <utility>

#include "capture/native/loop_operations.h"
#include "support/error.h"

namespace tatara::capture::native {

namespace {

const Sequence* list_in(const Value& value) {
  const auto* sequence = std::get_if<std::shared_ptr<Sequence>>(&value);
  return sequence != nullptr && (*sequence)->is_list ? sequence->get() : nullptr;
}

}  // namespace

/// The keys of the rows, where the first index is a list and slices come behind it; nothing: it is none.
std::vector<Value> LoopOperations::keys_of_rows(const Value& key) {
  const auto* tuple = std::get_if<std::shared_ptr<Sequence>>(&key);
  if (tuple == nullptr || (*tuple)->items.empty()) return {};
  const Sequence* const list = (*tuple)->is_list ? tuple->get() : list_in((*tuple)->items[0]);
  if (list == nullptr) return {};
  std::vector<Value> keys;
  for (const Value& each : list->items) {
    auto row = std::make_shared<Sequence>();
    row->items.push_back(each);
    for (size_t n = 1; !(*tuple)->is_list && n < (*tuple)->items.size(); ++n) {
      if (!std::holds_alternative<std::shared_ptr<Slice>>((*tuple)->items[n])) throw Unsupported("an index by a list");
      row->items.push_back((*tuple)->items[n]);
    }
    keys.emplace_back(std::move(row));
  }
  if (keys.empty()) throw Unsupported("an index by an empty list");
  return keys;
}

Value LoopOperations::whole_of(size_t n) {
  const auto place = static_cast<int64_t>(n);
  return Whole{builder_->constant(place), {place, place}};
}

/// A new array.
GridRef LoopOperations::get_rows(const GridRef& source, const std::vector<Value>& keys) {
  std::vector<View> views;
  for (const Value& key : keys) views.push_back(index_view(*source->view, key));
  std::vector<Expr> extents = views[0].extents;
  extents.insert(extents.begin(), builder_->constant(static_cast<int64_t>(keys.size())));
  const GridRef made = temporary(source->dtype, extents);
  for (size_t n = 0; n < views.size(); ++n) assign(index_view(*made->view, whole_of(n)), view_grid(views[n]));
  return made;
}

/// Row after row, as NumPy: the last one of equal keys stays.
void LoopOperations::set_rows(const GridRef& array, const std::vector<Value>& keys, const Value& value) {
  if (!std::holds_alternative<Number>(value) && !std::holds_alternative<Whole>(value) &&
      !std::holds_alternative<GridRef>(value))
    throw Unsupported("an object that is stored into rows");
  GridRef elements = as_grid(value, array->dtype);
  check_stored(array->dtype, elements->dtype);
  std::vector<View> targets;
  for (const Value& key : keys) targets.push_back(index_view(*array->view, key));
  const bool stays = elements->view && apart(*elements->view, *array->view);
  if (!elements->extents.empty() && !stays) elements = materialise(elements);
  const bool by_row = elements->extents.size() == targets[0].extents.size() + 1;
  if (by_row && !elements->extents[0].is_const(static_cast<int64_t>(keys.size())))
    throw Unsupported("a store of other rows than there are");
  for (size_t n = 0; n < targets.size(); ++n)
    assign(targets[n], by_row ? view_grid(index_view(*elements->view, whole_of(n))) : elements);
}

}  // namespace tatara::capture::native
