#include "schedule/arena_places.h"

#include <algorithm>
#include <bit>
#include <iterator>

namespace tatara::sched {

ArenaPlaces::ArenaPlaces(int steps) : leaves_(std::bit_ceil(static_cast<uint32_t>(std::max(steps, 1)))) {}

void ArenaPlaces::find_stretches(int first, int last) {
  stretches_asked_.clear();
  const auto descend = [&](auto&& self, uint32_t number, uint32_t begin, uint32_t length) -> void {
    ++looked_at_;
    const auto from = static_cast<uint32_t>(first), to = static_cast<uint32_t>(last);
    const bool whole = from <= begin && begin + length - 1 <= to;
    stretches_asked_.push_back({&stretches_[number], whole});
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

void ArenaPlaces::Cursor::seek(int64_t offset) {
  auto part = parts->upper_bound(offset);
  if (part != parts->begin() && std::prev(part)->second > offset) --part;
  begin = part == parts->end() ? INT64_MAX : part->first;
  end = part == parts->end() ? INT64_MAX : part->second;
}

int64_t ArenaPlaces::lowest_free(int64_t bytes) {
  cursors_.clear();
  for (const Asked& asked : stretches_asked_) {
    const Parts& parts = asked.whole ? asked.stretch->sometime : asked.stretch->throughout;
    if (!parts.empty()) cursors_.push_back({&parts, parts.begin()->first, parts.begin()->second});
  }
  for (int64_t offset = 0;;) {
    bool is_free = true;
    int64_t until = INT64_MAX;
    for (Cursor& cursor : cursors_) {
      if (cursor.end <= offset) {
        ++looked_at_;
        cursor.seek(offset);
      }
      if (cursor.begin <= offset) {
        offset = cursor.end;
        is_free = false;
      } else {
        until = std::min(until, cursor.begin);
      }
    }
    if (!is_free) continue;
    if (until - offset >= bytes) return offset;
    offset = until;
  }
}

int64_t ArenaPlaces::place(int first, int last, int64_t bytes) {
  if (bytes == 0) return 0;
  find_stretches(first, last);
  const int64_t offset = lowest_free(bytes);
  for (const auto& [stretch, whole] : stretches_asked_) {
    if (whole) take(stretch->throughout, offset, offset + bytes);
    take(stretch->sometime, offset, offset + bytes);
  }
  end_ = std::max(end_, offset + bytes);
  return offset;
}

}  // namespace tatara::sched
