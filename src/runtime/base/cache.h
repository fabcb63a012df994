// Finished code on disk, by key.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/cache_secret.h"
#include "runtime/base/own_files.h"
#include "support/fork.h"

namespace tatara {

struct CacheStats {
  uint64_t hits = 0;
  uint64_t misses = 0;
  uint64_t damaged = 0;  // entries that failed their check and were removed
  uint64_t foreign = 0;  // of these: files that somebody else may have written
  uint64_t writes = 0;
  uint64_t failed_writes = 0;  // read-only directory, full disk, ...
  uint64_t evicted = 0;
};

/// A directory of entries. Several processes and threads may use one directory at once: an entry appears whole (written
/// under another name, then renamed), and may vanish at any time. No method throws and no failure is worse than a miss: a
/// cache that cannot be read or written is no cache.
///
/// It trusts nobody. The directory and each file must belong to the user and be writable by no other (runtime/own_files.h), which
/// is looked at again with each use; an entry carries an HMAC, under a key that only the user can read, over its format, its
/// key and its content. What somebody else may have written is as good as not there, and said once (take_cache_warnings).
class DiskCache {
 public:
  /// Above `limit_bytes` the entries unused for longest are removed.
  DiskCache(std::string directory, uint64_t limit_bytes);
  DiskCache(const DiskCache&) = delete;
  DiskCache& operator=(const DiskCache&) = delete;

  std::optional<std::string> get(std::string_view key) noexcept;
  /// True when the entry is on disk now.
  bool put(std::string_view key, std::string_view bytes) noexcept;
  /// For an entry that is sealed as it should be and makes no sense nevertheless.
  void remove(std::string_view key) noexcept;
  /// Removes all entries.
  void clear() noexcept;
  /// Removes the entries unused for longest until at most `limit_bytes` are left, and what crashed writers left behind.
  /// put() calls it where that is due.
  void trim(uint64_t limit_bytes) noexcept;

  struct Size {
    uint64_t entries = 0;
    uint64_t bytes = 0;
  };
  Size size() const noexcept;
  CacheStats stats() const;
  const std::string& directory() const { return directory_; }
  /// Why the cache is not used, and what to do; "" when it is.
  std::string why_not() noexcept;
  /// Where the key of the entries' seals lies; "" when there is none.
  std::string key_path() noexcept;

 private:
  /// The directory and the user's key, found trustworthy.
  struct Session {
    Opened directory;
    CacheSecret secret;
    std::string why_not;
    bool ok() const { return directory.ok() && !secret.key.empty(); }
  };
  Session open(bool create);
  std::optional<std::string> read_entry(const Session& session, const std::string& name, std::string_view key);
  bool write_entry(const Session& session, const std::string& name, std::string_view seal, std::string_view bytes,
                   int64_t write);
  int64_t count_entry(int directory, uint64_t bytes, bool& is_full) const;
  void trim_directory(int directory, uint64_t limit_bytes);
  void warn(const std::string& text);

  const std::string directory_;  // "": there is none, everything misses
  const uint64_t limit_bytes_;
  ForkSafeMutex mutex_;
  CacheSecret secret_;  // as it was found, for `user_`
  int64_t user_ = -1;
  std::atomic<bool> warned_{false};
  // After a failure that will repeat (read-only, disk full) the directory is left alone for a while.
  std::atomic<std::chrono::steady_clock::rep> writes_again_at_{0};
  std::atomic<uint64_t> hits_{0};
  std::atomic<uint64_t> misses_{0};
  std::atomic<uint64_t> damaged_{0};
  std::atomic<uint64_t> foreign_{0};
  std::atomic<uint64_t> writes_{0};
  std::atomic<uint64_t> failed_writes_{0};
  std::atomic<uint64_t> evicted_{0};
};

/// The cache of the present options (cache_dir, cache_size_mb). Lives as long as the process.
DiskCache& disk_cache();
/// The same, or one that keeps nothing, whatever the option `cache` of the process says.
DiskCache& disk_cache(bool keeps);
/// Where it is when option cache_dir is empty: $XDG_CACHE_HOME/tatara, else ~/.cache/tatara; "" without a home.
std::string default_cache_dir();
/// What users have to be told, since the last call: one text for each cache at most.
std::vector<std::string> take_cache_warnings();

}  // namespace tatara
