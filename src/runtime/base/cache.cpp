#include "runtime/base/cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "runtime/base/cache_uses.h"
#include "support/log.h"
#include "support/made_once.h"
#include "support/options.h"
#include "support/sha256.h"

namespace tatara {
namespace {

// Changes with the format of an entry; entries of another format are never found, and go as the oldest.
constexpr std::string_view kMagic = "tatara entry 2\n";
constexpr std::string_view kSuffix = ".tatara";
constexpr std::string_view kTemporary = ".tmp";
constexpr size_t kSealBytes = sizeof(Digest);
constexpr size_t kHeaderBytes = kMagic.size() + kSealBytes;
constexpr std::chrono::seconds kRetryWrites{60};
constexpr size_t kMaxEntryBytes = size_t{1} << 30;
constexpr int64_t kMostMegabytes = int64_t{1} << 30;
/// A read entry is marked as used when more than this share of the entries was written since: a warm start should not write.
constexpr uint64_t kRenewShare = 16;

std::string_view text_of(const Digest& digest) { return {reinterpret_cast<const char*>(digest.data()), digest.size()}; }

/// A number as text of a known length, so that what follows it cannot be taken for a part of it.
std::string framed(std::string_view key) {
  const uint64_t size = key.size();
  std::string text(reinterpret_cast<const char*>(&size), sizeof(size));
  return text += key;
}

/// Over all that tells one entry from another, and the content.
Digest seal_of(std::string_view secret, std::string_view key, std::string_view bytes) {
  return hmac_sha256(secret, {"entry ", kMagic, framed(key), bytes});
}

/// Keys may hold any bytes. The names of another user's key are others: entries do not meet.
std::string name_of(std::string_view secret, std::string_view key) {
  static constexpr char kDigits[] = "0123456789abcdef";
  const Digest digest = hmac_sha256(secret, {"name ", kMagic, framed(key)});
  std::string name;
  for (size_t i = 0; i < 16; ++i) {
    name += kDigits[digest[i] >> 4];
    name += kDigits[digest[i] & 15];
  }
  return name += kSuffix;
}

std::chrono::steady_clock::rep now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

struct FileInfo {
  std::string name;
  uint64_t bytes = 0;
  int64_t seconds = 0;  // its modification time
};

/// Files of the directory whose name ends with the suffix.
std::vector<FileInfo> list(int directory, std::string_view suffix) {
  std::vector<FileInfo> files;
  const int copy = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* dir = copy >= 0 ? fdopendir(copy) : nullptr;
  if (dir == nullptr) {
    if (copy >= 0) close(copy);
    return files;
  }
  while (const dirent* entry = readdir(dir)) {
    const std::string_view name = entry->d_name;
    struct stat info{};
    if (!name.ends_with(suffix) || fstatat(directory, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!S_ISDIR(info.st_mode)) {
      files.push_back({std::string(name), static_cast<uint64_t>(info.st_size), int64_t{info.st_mtim.tv_sec}});
    }
  }
  closedir(dir);
  return files;
}

struct Warnings {
  ForkSafeMutex mutex;
  std::vector<std::string> texts;
};

}  // namespace

DiskCache::DiskCache(std::string directory, uint64_t limit_bytes)
    : directory_(std::move(directory)), limit_bytes_(limit_bytes) {}

void DiskCache::warn(const std::string& text) {
  if (warned_.exchange(true)) return;
  TATARA_LOG(kCache, text);
  Warnings& warnings = made_once<Warnings>();
  const std::lock_guard lock(warnings.mutex);
  warnings.texts.push_back(text);
}

DiskCache::Session DiskCache::open(bool create) {
  Session session;
  if (directory_.empty()) return session;
  session.directory = open_own_directory(directory_, create);
  session.why_not = session.directory.why_not;
  if (session.directory.ok()) {
    const std::lock_guard lock(mutex_);
    const auto user = static_cast<int64_t>(geteuid());
    if (secret_.key.empty() || user_ != user) secret_ = find_cache_secret(session.directory.fd.get(), directory_);
    user_ = user;
    session.secret = secret_;
    session.why_not = secret_.why_not;
  }
  if (!session.why_not.empty()) {
    warn(str_cat("tatara: the disk cache ", directory_, " is not used: ", session.why_not,
                 "; or name another directory by TATARA_CACHE_DIR (tatara.config.cache_dir)"));
  }
  return session;
}

std::optional<std::string> DiskCache::read_entry(const Session& session, const std::string& name,
                                                 std::string_view key) {
  const int directory = session.directory.fd.get();
  const Opened file = open_own_file(directory, name, O_RDONLY);
  if (file.error != 0) return std::nullopt;
  const bool own = file.ok() && file.info.st_nlink <= 1;  // 0: replaced meanwhile
  if (own) {
    const auto size = static_cast<size_t>(file.info.st_size);
    const std::optional<std::string> all =
        size >= kHeaderBytes && size <= kMaxEntryBytes ? read_all(file.fd.get(), size) : std::nullopt;
    if (all && all->starts_with(kMagic)) {
      const std::string_view bytes = std::string_view(*all).substr(kHeaderBytes);
      Digest seal;
      std::memcpy(seal.data(), all->data() + kMagic.size(), seal.size());
      if (equal_digests(seal, seal_of(session.secret.key, key, bytes))) {
        if (const std::optional<CacheUses> uses = read_uses(directory)) {
          const int64_t write = uses->write_of(file.info.st_mtim.tv_sec);
          if (static_cast<uint64_t>(uses->writes - write) > uses->entries / kRenewShare) {
            set_write(file.fd.get(), uses->writes);
          }
        }
        return std::string(bytes);
      }
    }
  } else {
    ++foreign_;
    warn(str_cat("tatara: a file of the disk cache ", directory_,
                 " is not used: ", file.why_not.empty() ? name + " has another name (a hard link)" : file.why_not,
                 "; `tatara cache --clear` removes all of them"));
  }
  TATARA_LOG(kCache, own ? "damaged" : "foreign", " entry removed: ", directory_, "/", name);
  unlinkat(directory, name.c_str(), 0);
  ++damaged_;
  return std::nullopt;
}

std::optional<std::string> DiskCache::get(std::string_view key) noexcept {
  try {
    if (const Session session = open(false); session.ok()) {
      std::optional<std::string> bytes = read_entry(session, name_of(session.secret.key, key), key);
      if (bytes) {
        ++hits_;
        return bytes;
      }
    }
  } catch (...) {
    // Out of memory while reading: as good as a miss.
  }
  ++misses_;
  return std::nullopt;
}

bool DiskCache::write_entry(const Session& session, const std::string& name, std::string_view seal,
                            std::string_view bytes, int64_t write) {
  static std::atomic<uint64_t> serial{0};
  const int directory = session.directory.fd.get();
  const std::string temporary = str_cat(name, ".", getpid(), ".", serial.fetch_add(1), ".", now(), kTemporary);
  Descriptor file(openat(directory, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.ok()) return false;
  flock(file.get(), LOCK_EX | LOCK_NB);  // tells others that its writer is alive
  // No fsync: an entry that a crash of the machine cut short fails its check.
  bool good = write_all(file.get(), kMagic) && write_all(file.get(), seal) && write_all(file.get(), bytes);
  set_write(file.get(), write);
  good = good && renameat(directory, temporary.c_str(), directory, name.c_str()) == 0;
  good = file.close_now() && good;
  if (!good) {
    const int reason = errno;
    unlinkat(directory, temporary.c_str(), 0);
    errno = reason;
  }
  return good;
}

/// The number of the write, and whether entries must go after it.
int64_t DiskCache::count_entry(int directory, uint64_t bytes, bool& is_full) const {
  int64_t write = 0;
  change_uses(directory, [&](std::optional<CacheUses> before) {
    CacheUses uses = before.value_or(CacheUses{});
    ++uses.writes;
    ++uses.entries;
    uses.bytes += bytes;
    write = uses.writes;
    is_full = uses.bytes > limit_bytes_;
    return uses;
  });
  return write;
}

bool DiskCache::put(std::string_view key, std::string_view bytes) noexcept {
  try {
    const uint64_t total = kHeaderBytes + bytes.size();
    // An entry that alone is over the limit would only push out the others.
    if (directory_.empty() || total > limit_bytes_ || total > kMaxEntryBytes) return false;
    if (const auto again = writes_again_at_.load(std::memory_order_relaxed); again != 0 && now() < again) {
      ++failed_writes_;
      return false;
    }
    const Session session = open(true);
    if (session.ok()) {
      const int directory = session.directory.fd.get();
      if (!read_uses(directory)) trim_directory(directory, limit_bytes_);
      bool is_full = false;
      const int64_t write = count_entry(directory, total, is_full);
      const Digest seal = seal_of(session.secret.key, key, bytes);
      if (write_entry(session, name_of(session.secret.key, key), text_of(seal), bytes, write)) {
        ++writes_;
        if (is_full) trim_directory(directory, limit_bytes_);
        return true;
      }
      TATARA_LOG(kCache, "cannot write to ", directory_, ": ", std::strerror(errno));
    }
    // ENOENT: another process took the unfinished file for one that nobody writes any more.
    if (!session.ok() || errno != ENOENT) {
      const auto wait = std::chrono::duration_cast<std::chrono::steady_clock::duration>(kRetryWrites);
      writes_again_at_.store(now() + wait.count(), std::memory_order_relaxed);
    }
  } catch (...) {
    // Out of memory: as if it could not be written.
  }
  ++failed_writes_;
  return false;
}

void DiskCache::remove(std::string_view key) noexcept {
  try {
    const Session session = open(false);
    if (!session.ok()) return;
    const std::string name = name_of(session.secret.key, key);
    if (unlinkat(session.directory.fd.get(), name.c_str(), 0) == 0) ++damaged_;
  } catch (...) {
    // Out of memory: it stays, and is found senseless again.
  }
}

void DiskCache::trim_directory(int directory, uint64_t limit_bytes) {
  for (const FileInfo& file : list(directory, kTemporary)) {
    const Opened opened = open_own_file(directory, file.name, O_RDWR);
    // Its writer has the lock for as long as it lives.
    if (opened.ok() && flock(opened.fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) continue;
    unlinkat(directory, file.name.c_str(), 0);
  }
  std::vector<FileInfo> files = list(directory, kSuffix);
  CacheUses left;
  for (const FileInfo& file : files) {
    left.bytes += file.bytes;
    // Should the counts be lost: what is no date is the number of a write.
    if (file.seconds < CacheUses::kMostWrites) left.writes = std::max(left.writes, file.seconds);
  }
  left.entries = files.size();
  left.writes = std::max(left.writes, static_cast<int64_t>(left.entries));
  const CacheUses uses = read_uses(directory).value_or(left);
  if (left.bytes > limit_bytes) {
    for (FileInfo& file : files) file.seconds = uses.write_of(file.seconds);
    std::sort(files.begin(), files.end(), [](const FileInfo& a, const FileInfo& b) {
      return a.seconds != b.seconds ? a.seconds < b.seconds : a.name < b.name;
    });
    // A little more than needed, so that the next entry does not start the search again.
    const uint64_t target = limit_bytes - limit_bytes / 8;
    for (const FileInfo& file : files) {
      if (left.bytes <= target) break;
      if (unlinkat(directory, file.name.c_str(), 0) == 0) ++evicted_;
      left.bytes -= file.bytes;
      --left.entries;
    }
  }
  change_uses(directory, [&](std::optional<CacheUses> now) {
    left.writes = std::max(now ? now->writes : uses.writes, static_cast<int64_t>(left.entries));
    return left;
  });
}

void DiskCache::trim(uint64_t limit_bytes) noexcept {
  try {
    if (const Session session = open(false); session.ok()) trim_directory(session.directory.fd.get(), limit_bytes);
  } catch (...) {
    // Out of memory: the next call tries again.
  }
}

void DiskCache::clear() noexcept {
  try {
    const Session session = open(false);
    if (!session.ok()) return;
    const int directory = session.directory.fd.get();
    for (const std::string_view suffix : {kSuffix, kTemporary}) {
      for (const FileInfo& file : list(directory, suffix)) unlinkat(directory, file.name.c_str(), 0);
    }
    remove_uses(directory);
  } catch (...) {
    // Out of memory: what is left stays valid.
  }
}

DiskCache::Size DiskCache::size() const noexcept {
  Size size;
  try {
    if (directory_.empty()) return size;
    const Opened directory = open_own_directory(directory_, false);
    if (!directory.ok()) return size;
    for (const FileInfo& file : list(directory.fd.get(), kSuffix)) {
      ++size.entries;
      size.bytes += file.bytes;
    }
  } catch (...) {
    // Out of memory: what was counted so far.
  }
  return size;
}

std::string DiskCache::why_not() noexcept {
  try {
    if (directory_.empty()) return "there is no directory for it";
    const Session session = open(false);
    // One that is not there yet is made at the first use.
    if (!session.why_not.empty() || session.ok() || session.directory.error == ENOENT) return session.why_not;
    return session.directory.ok() ? str_cat("no key can be made in ", directory_)
                                  : str_cat(directory_, ": ", std::strerror(session.directory.error));
  } catch (...) {
    return "out of memory";
  }
}

std::string DiskCache::key_path() noexcept {
  try {
    const Session session = open(false);
    return session.ok() ? session.secret.path : std::string();
  } catch (...) {
    return {};
  }
}

CacheStats DiskCache::stats() const {
  return {hits_.load(),   misses_.load(),        damaged_.load(), foreign_.load(),
          writes_.load(), failed_writes_.load(), evicted_.load()};
}

std::vector<std::string> take_cache_warnings() {
  Warnings& warnings = made_once<Warnings>();
  const std::lock_guard lock(warnings.mutex);
  return std::exchange(warnings.texts, {});
}

std::string default_cache_dir() {
  if (const char* base = std::getenv("XDG_CACHE_HOME"); base != nullptr && base[0] == '/')
    return str_cat(base, "/tatara");
  if (const char* home = std::getenv("HOME"); home != nullptr && home[0] == '/') return str_cat(home, "/.cache/tatara");
  return {};
}

namespace {

/// Relative paths begin in the present directory. Empty when that is gone.
std::string absolute(const std::string& path) {
  if (path.front() == '/') return path;
  char here[PATH_MAX];
  return getcwd(here, sizeof(here)) != nullptr && here[0] == '/' ? str_cat(here, "/", path) : std::string();
}

}  // namespace

DiskCache& disk_cache() { return disk_cache(option_bool(Option::kCache)); }

DiskCache& disk_cache(bool keeps) {
  struct Known {
    ForkSafeMutex mutex;
    std::map<std::pair<std::string, int64_t>, std::unique_ptr<DiskCache>> caches;
  };
  Known& known = made_once<Known>();
  std::string directory = option_text(Option::kCacheDir);
  if (directory.empty()) directory = default_cache_dir();
  if (!keeps) directory.clear();
  if (!directory.empty()) directory = absolute(directory);
  const int64_t megabytes = std::clamp<int64_t>(option_int(Option::kCacheSizeMb), 0, kMostMegabytes);
  const std::lock_guard lock(known.mutex);
  std::unique_ptr<DiskCache>& cache = known.caches[{directory, megabytes}];
  if (!cache) cache = std::make_unique<DiskCache>(directory, static_cast<uint64_t>(megabytes) << 20);
  return *cache;
}

}  // namespace tatara
