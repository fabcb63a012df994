// Tuples of numbers that a loop gives to locals of the frame: `where = (i, j)`.
#include "capture/native/loop_reader.h"
#include "support/error.h"

namespace tatara::capture::native {

namespace {

constexpr size_t kMostItems = 8;

/// A name of the memory of an item.
int item_local(int local, size_t n) {
  constexpr int kItems = 1 << 27;
  return kItems + local * static_cast<int>(kMostItems) + static_cast<int>(n);
}

}  // namespace

/// The items lie in memory, as numbers that are locals do.
void LoopReader::store_tuple(int local, const std::shared_ptr<Sequence>& tuple) {
  const std::vector<Value>& items = tuple->items;
  if (tuple->is_list || items.empty() || items.size() > kMostItems)
    throw Unsupported("an object that a local is given");
  if (types_.of.contains(local) || types_.stored.contains(local) || types_.rebound.contains(local) ||
      memory_.tuples.try_emplace(local, items.size()).first->second != items.size())
    throw Unsupported("a local that is a tuple and something else");
  for (size_t n = 0; n < items.size(); ++n) {
    const int item = item_local(local, n);
    if (!number_type(items[n])) throw Unsupported("a tuple of other items than numbers");
    const bool whole = std::holds_alternative<Whole>(items[n]);
    if (whole && types_.of.try_emplace(item, NumberType{DType::kInt64, Strength::kWeak}).second) throw NewType{};
    store_local(item, items[n]);
  }
  stored_.insert(local);
  locals_[local] = {Local::State::kKnown, tuple};
}

LocalResult LoopReader::result_of(int local, int slot, bool number) const {
  if (number) return {local, true, slot};
  const auto type = types_.of.find(local);
  const NumberType result = type != types_.of.end() ? type->second : NumberType{DType::kInt64, Strength::kWeak};
  const bool either = result.strength == Strength::kEither;
  if (either && result.dtype == DType::kBool) throw Unsupported("a bool of Python's or NumPy's, as it comes");
  return {local, false, slot, result.dtype, result.strength == Strength::kStrong, either};
}

void LoopReader::note_results() {
  for (const auto& [local, slot] : memory_.number_slots) {
    if (assigned_.contains(local)) program_->results.push_back(result_of(local, slot, true));
  }
  for (const auto& [local, slot] : memory_.whole_slots) {
    if (assigned_.contains(local) && !types_.rebound.contains(local))
      program_->results.push_back(result_of(local, slot, false));
  }
  for (const auto& [local, count] : memory_.tuples) {
    TupleResult tuple{local, {}};
    for (size_t n = 0; n < count; ++n) {
      const int item = item_local(local, n);
      const auto number = memory_.number_slots.find(item);
      tuple.items.push_back(number != memory_.number_slots.end()
                                ? result_of(item, number->second, true)
                                : result_of(item, memory_.whole_slots.at(item), false));
    }
    program_->tuples.push_back(std::move(tuple));
  }
}

}  // namespace tatara::capture::native
