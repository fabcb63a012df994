// Memory for what is needed from one step to another.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "support/inline_vec.h"

namespace tatara::sched {

/// Places go, one after the other, to the lowest free part of the memory. Takes about as long for the thousandth as for the first,
/// however many are needed at the same time: what is taken is known for stretches of steps whose lengths are powers of two.
class ArenaPlaces {
 public:
  /// Steps are numbered below `steps`.
  explicit ArenaPlaces(int steps);

  /// Where `bytes` bytes are free from step `first` to step `last`; they are taken from now on.
  int64_t place(int first, int last, int64_t bytes);
  /// The end of all that was ever taken.
  int64_t bytes() const { return end_; }
  /// How many stretches were looked at: how much work this was.
  int64_t looked_at() const { return looked_at_; }

 private:
  struct Part {
    int64_t begin;
    int64_t end;
  };
  /// Parts of the memory that do not meet, in order. Most stretches have one or two: what is taken lies close together.
  using Parts = InlineVec<Part, 1>;
  struct Stretch {
    Parts throughout;                          // taken for all of its steps
    Parts sometime;                            // taken for some of its steps
    std::array<int32_t, 2> halves = {-1, -1};  // numbers of its halves; -1: nothing was ever taken there
  };

  /// A stretch that holds some of the steps that are asked for.
  struct Asked {
    Stretch* stretch;
    bool whole;  // all of its steps are asked for
  };
  /// The first of the parts that ends behind an offset; INT64_MAX: there is none.
  struct Cursor {
    const Parts* parts;
    size_t next;
    int64_t begin;
    int64_t end;
    void seek(int64_t offset);
  };

  /// Fills `stretches_asked_`: the largest whole stretches of these steps, and all that hold them.
  void find_stretches(int first, int last);
  static void take(Parts& parts, int64_t begin, int64_t end);
  int64_t lowest_free(int64_t bytes);

  uint32_t leaves_ = 1;
  std::deque<Stretch> stretches_;  // by number; the first one is the whole
  int64_t end_ = 0;
  int64_t looked_at_ = 0;
  std::vector<Asked> stretches_asked_;  // of the placement under way, as the cursors
  std::vector<Cursor> cursors_;
};

}  // namespace tatara::sched
