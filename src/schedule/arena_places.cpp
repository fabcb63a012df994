#include "schedule/arena_places.h"

#include <algorithm>
#include <bit>

namespace tatara::sched {

ArenaPlaces::ArenaPlaces(int steps) : leaves_(std::bit_ceil(static_cast<uint32_t>(std::max(steps, 1)))) {}

void ArenaPlaces::find_stretches(int first, int last) {
  stretches_asked_.clear();
  if (stretches_.empty()) stretches_.emplace_back();
  const auto from = static_cast<uint32_t>(first), to = static_cast<uint32_t>(last);
  const auto descend = [&](auto&& self, Stretch& stretch, uint32_t begin, uint32_t length) -> void {
    ++looked_at_;
    const bool whole = from <= begin && begin + length - 1 <= to;
    stretches_asked_.push_back({&stretch, whole});
    if (whole) return;
    const uint32_t middle = begin + length / 2;
    const auto half = [&](int32_t& number) -> Stretch& {
      if (number < 0) {
        number = static_cast<int32_t>(stretches_.size());
        stretches_.emplace_back();  // the others stay where they are
      }
      return stretches_[static_cast<size_t>(number)];
    };
    if (from < middle) self(self, half(stretch.halves[0]), begin, length / 2);
    if (to >= middle) self(self, half(stretch.halves[1]), middle, length / 2);
  };
  descend(descend, stretches_.front(), 0, leaves_);
}

void ArenaPlaces::take(Parts& parts, int64_t begin, int64_t end) {
  Part* const first =
      std::lower_bound(parts.begin(), parts.end(), begin, [](const Part& part, int64_t at) { return part.end < at; });
  const auto place = static_cast<size_t>(first - parts.begin());
  if (first == parts.end() || first->begin > end) return parts.insert(place, {begin, end});
  Part* last = first;  // of those that meet it
  while (last + 1 != parts.end() && (last + 1)->begin <= end) ++last;
  *first = {std::min(first->begin, begin), std::max(last->end, end)};
  parts.erase(place + 1, static_cast<size_t>(last - first));
}

void ArenaPlaces::Cursor::seek(int64_t offset) {
  const Part* const part = std::upper_bound(parts->begin() + next, parts->end(), offset,
                                            [](int64_t at, const Part& each) { return at < each.end; });
  next = static_cast<size_t>(part - parts->begin());
  begin = part == parts->end() ? INT64_MAX : part->begin;
  end = part == parts->end() ? INT64_MAX : part->end;
}

int64_t ArenaPlaces::lowest_free(int64_t bytes) {
  cursors_.clear();
  for (const Asked& asked : stretches_asked_) {
    const Parts& parts = asked.whole ? asked.stretch->sometime : asked.stretch->throughout;
    if (!parts.empty()) cursors_.push_back({&parts, 0, parts[0].begin, parts[0].end});
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
