#include "schedule/arena_places.h"

#include <algorithm>
#include <bit>
#include <iterator>

namespace tatara::sched {

ArenaPlaces::ArenaPlaces(int steps) : leaves_(std::bit_ceil(static_cast<uint32_t>(std::max(steps, 1)))) {}

template <typename Fn>
void ArenaPlaces::for_each(int first, int last, Fn&& fn) {
  const auto descend = [&](auto&& self, uint32_t number, uint32_t begin, uint32_t length) -> void {
    ++looked_at_;
    const auto from = static_cast<uint32_t>(first), to = static_cast<uint32_t>(last);
    const bool whole = from <= begin && begin + length - 1 <= to;
    fn(number, whole);
    if (whole) return;
    const uint32_t half = length / 2;
    if (from < begin + half) self(self, 2 * number, begin, half);
    if (to >= begin + half) self(self, 2 * number + 1, begin + half, half);
  };
  descend(descend, 1, 0, leaves_);
}

void ArenaPlaces::take(Parts& parts, int64_t begin, int64_t end) {
  auto next = parts.upper_bound(begin);
  if (next != parts.begin() && std::prev(next)->second >= begin) {
    --next;
    begin = next->first;
  }
  while (next != parts.end() && next->first <= end) {
    end = std::max(end, next->second);
    next = parts.erase(next);
  }
  parts.emplace_hint(next, begin, end);
}

int64_t ArenaPlaces::lowest_free(const std::vector<const Parts*>& taken, int64_t bytes) {
  for (int64_t offset = 0;;) {
    bool is_free = true;
    int64_t until = INT64_MAX;
    for (const Parts* parts : taken) {
      ++looked_at_;
      const auto next = parts->upper_bound(offset);
      if (next != parts->begin() && std::prev(next)->second > offset) {
        offset = std::prev(next)->second;
        is_free = false;
      } else if (next != parts->end()) {
        until = std::min(until, next->first);
      }
    }
    if (!is_free) continue;
    if (until - offset >= bytes) return offset;
    offset = until;
  }
}

int64_t ArenaPlaces::place(int first, int last, int64_t bytes) {
  if (bytes == 0) return 0;
  std::vector<const Parts*> taken;
  for_each(first, last, [&](uint32_t number, bool whole) {
    const auto found = stretches_.find(number);
    if (found != stretches_.end()) taken.push_back(whole ? &found->second.sometime : &found->second.throughout);
  });
  const int64_t offset = lowest_free(taken, bytes);
  for_each(first, last, [&](uint32_t number, bool whole) {
    Stretch& stretch = stretches_[number];
    if (whole) take(stretch.throughout, offset, offset + bytes);
    take(stretch.sometime, offset, offset + bytes);
  });
  end_ = std::max(end_, offset + bytes);
  return offset;
}

}  // namespace tatara::sched
