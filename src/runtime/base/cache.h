// Finished code on disk, by key.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "support/fork.h"

namespace tatara {

struct CacheStats {
  uint64_t hits = 0;
  uint64_t misses = 0;
  uint64_t damaged = 0;  // entries that failed their check and were removed
  uint64_t writes = 0;
  uint64_t failed_writes = 0;  // read-only directory, full disk, ...
  uint64_t evicted = 0;
};

/// A directory of entries. Several processes and threads may use one directory at once: an entry appears whole (written
/// under another name, then renamed), carries a checksum over key and content, and may vanish at any time.
/// No method throws and no failure is worse than a miss: a cache that cannot be read or written is no cache.
class DiskCache {
 public:
  /// Above `limit_bytes` the entries unused for longest are removed.
  DiskCache(std::string directory, uint64_t limit_bytes);
  DiskCache(const DiskCache&) = delete;
  DiskCache& operator=(const DiskCache&) = delete;

  std::optional<std::string> get(std::string_view key) noexcept;
  /// True when the entry is on disk now.
  bool put(std::string_view key, std::string_view bytes) noexcept;
  /// Removes all entries.
  void clear() noexcept;
  /// Removes the entries unused for longest until at most `limit_bytes` are left, and what crashed writers left behind.
  /// put() calls it now and then.
  void trim(uint64_t limit_bytes) noexcept;

  struct Size {
    uint64_t entries = 0;
    uint64_t bytes = 0;
  };
  Size size() const noexcept;
  CacheStats stats() const;
  const std::string& directory() const { return directory_; }

 private:
  std::string path_of(std::string_view key) const;
  bool write_entry(const std::string& path, std::string_view header, std::string_view bytes);
  void trim_when_due(uint64_t written);

  const std::string directory_;  // "": there is none, everything misses
  const uint64_t limit_bytes_;
  ForkSafeMutex trim_mutex_;
  uint64_t written_since_trim_ = 0;
  bool looked_at_stamp_ = false;
  // After a failure that will repeat (read-only, disk full) the directory is left alone for a while.
  std::atomic<int64_t> writes_again_at_{0};
  std::atomic<uint64_t> hits_{0};
  std::atomic<uint64_t> misses_{0};
  std::atomic<uint64_t> damaged_{0};
  std::atomic<uint64_t> writes_{0};
  std::atomic<uint64_t> failed_writes_{0};
  std::atomic<uint64_t> evicted_{0};
};

/// The cache of the present options (cache_dir, cache_size_mb). Lives as long as the process.
DiskCache& disk_cache();
/// Where it is when option cache_dir is empty: $XDG_CACHE_HOME/tatara, else ~/.cache/tatara; "" without a home.
std::string default_cache_dir();

}  // namespace tatara
