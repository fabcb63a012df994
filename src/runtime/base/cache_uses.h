// What a cache directory keeps about itself, so that neither the age nor the number of entries is read off a clock.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

namespace tatara {

/// Time in a cache directory goes on with each entry that is written: an entry's modification time is the number of the write
/// that made it, or that was the last before it was read. Clocks and files from elsewhere give other times, which count as
/// the oldest.
struct CacheUses {
  int64_t writes = 0;
  uint64_t bytes = 0;  // of all entries, at least: what others removed is counted until the next time somebody looks
  uint64_t entries = 0;

  static constexpr int64_t kMostWrites = int64_t{1} << 30;  // any real date of today is later
  /// The write that a modification time stands for, 0 for none.
  int64_t write_of(int64_t seconds) const { return seconds > 0 && seconds <= writes ? seconds : 0; }
};

/// Nothing when the directory has no such file, or one that makes no sense.
std::optional<CacheUses> read_uses(int directory);
/// Puts what `change` makes of it in its place. Other processes wait meanwhile, though not for long: should the counts come
/// out of two hands, they are a little wrong until the next time somebody looks. False when it cannot be written.
bool change_uses(int directory, const std::function<CacheUses(std::optional<CacheUses>)>& change);
void remove_uses(int directory);

/// Marks the open file as used by that write.
void set_write(int file, int64_t write);

}  // namespace tatara
