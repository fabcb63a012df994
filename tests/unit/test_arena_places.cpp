// Places in the arena: the lowest that is free, against a search through all that was placed, and the work this takes.
#include <algorithm>
#include <random>
#include <vector>

#include "schedule/arena_places.h"
#include "testing.h"

namespace tatara::sched {
namespace {

struct Placed {
  int first, last;
  int64_t begin, end;
};

int64_t lowest_by_search(const std::vector<Placed>& all, int first, int last, int64_t bytes) {
  std::vector<Placed> meeting;
  std::copy_if(all.begin(), all.end(), std::back_inserter(meeting),
               [&](const Placed& p) { return p.first <= last && first <= p.last; });
  std::sort(meeting.begin(), meeting.end(), [](const Placed& a, const Placed& b) { return a.begin < b.begin; });
  int64_t offset = 0;
  for (const Placed& p : meeting) {
    if (p.begin - offset >= bytes) break;
    offset = std::max(offset, p.end);
  }
  return offset;
}

TEST(ArenaPlaces, TakesTheLowestFreePlace) {
  std::mt19937 random(7);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); };
  for (const int steps : {1, 2, 7, 64, 100}) {
    for (int round = 0; round < 20; ++round) {
      ArenaPlaces places(steps);
      std::vector<Placed> all;
      int64_t end = 0;
      for (int i = 0; i < 100; ++i) {
        const int first = below(steps);
        const int last = std::min(steps - 1, first + below(below(4) == 0 ? steps : 3));
        const int64_t bytes = below(6) * 64;
        const int64_t expected = bytes == 0 ? 0 : lowest_by_search(all, first, last, bytes);
        EXPECT_EQ(places.place(first, last, bytes), expected);
        if (bytes > 0) all.push_back({first, last, expected, expected + bytes});
        end = std::max(end, expected + bytes);
        EXPECT_EQ(places.bytes(), end);
      }
    }
  }
}

TEST(ArenaPlaces, WorkGrowsWithTheDepthOfTheTreeAlone) {
  const auto work_of_one = [](int steps) {
    std::mt19937 random(7);
    ArenaPlaces places(steps);
    for (int step = 0; step + 70 < steps; ++step) {
      places.place(step, step + 1 + static_cast<int>(random() % 64), 64 * (1 + static_cast<int64_t>(random() % 4)));
    }
    return static_cast<double>(places.looked_at()) / steps;
  };
  EXPECT_TRUE(work_of_one(32'000) < 2 * work_of_one(1'000));
}

}  // namespace
}  // namespace tatara::sched
