#include "runtime/base/cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "support/hash.h"
#include "support/log.h"
#include "support/made_once.h"
#include "support/options.h"

namespace tatara {
namespace {

// Changes with the format of an entry; entries of another format are removed as damaged.
constexpr std::string_view kMagic = "tatara entry 1\n";
constexpr std::string_view kSuffix = ".tatara";
constexpr std::string_view kTemporary = ".tmp";
constexpr std::string_view kStamp = ".last-trim";
constexpr int64_t kTrimEverySeconds = 600;
constexpr int64_t kStaleTemporarySeconds = 3600;
constexpr int64_t kRetryWritesSeconds = 60;
// Reading an entry renews its time only when that is older than this: a warm start should not write.
constexpr int64_t kRenewSeconds = 300;
constexpr size_t kMaxEntryBytes = size_t{1} << 30;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }

 private:
  int fd_;
};

/// What stands before the content: magic, then the hash of key and content.
std::string header_of(std::string_view key, std::string_view bytes) {
  return str_cat(kMagic, KeyBuilder().add(key).add(bytes).finish().str(), "\n");
}

bool make_directories(const std::string& path) {
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) return false;
    if (slash == std::string::npos) return true;
  }
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t done = write(fd, bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(done));
  }
  return true;
}

/// The whole file, or nothing.
std::optional<std::string> read_all(int fd, size_t size) {
  std::string bytes(size, '\0');
  size_t have = 0;
  while (have < size) {
    const ssize_t done = read(fd, bytes.data() + have, size - have);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return std::nullopt;
    have += static_cast<size_t>(done);
  }
  return bytes;
}

struct FileInfo {
  std::string name;
  uint64_t bytes = 0;
  timespec time{};
};

bool older(const timespec& a, const timespec& b) {
  return a.tv_sec != b.tv_sec ? a.tv_sec < b.tv_sec : a.tv_nsec < b.tv_nsec;
}

/// Files of the directory whose name ends with the suffix.
std::vector<FileInfo> list(const std::string& directory, std::string_view suffix) {
  std::vector<FileInfo> files;
  DIR* dir = opendir(directory.c_str());
  if (dir == nullptr) return files;
  while (const dirent* entry = readdir(dir)) {
    const std::string_view name = entry->d_name;
    struct stat info{};
    if (!name.ends_with(suffix) || fstatat(dirfd(dir), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (S_ISREG(info.st_mode)) files.push_back({std::string(name), static_cast<uint64_t>(info.st_size), info.st_mtim});
  }
  closedir(dir);
  return files;
}

}  // namespace

DiskCache::DiskCache(std::string directory, uint64_t limit_bytes)
    : directory_(std::move(directory)), limit_bytes_(limit_bytes) {}

std::string DiskCache::path_of(std::string_view key) const {
  // Keys may hold any bytes; file names are hashes of them.
  return str_cat(directory_, "/", hash128(key).str(), kSuffix);
}

std::optional<std::string> DiskCache::get(std::string_view key) noexcept {
  try {
    const std::string path = directory_.empty() ? std::string() : path_of(key);
    const Descriptor file(path.empty() ? -1 : open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat info{};
    if (!file.ok() || fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
      ++misses_;
      return std::nullopt;
    }
    const auto size = static_cast<size_t>(info.st_size);
    const std::optional<std::string> all = size <= kMaxEntryBytes ? read_all(file.get(), size) : std::nullopt;
    const size_t header_size = kMagic.size() + 33;
    if (all && all->size() >= header_size) {
      const std::string_view bytes = std::string_view(*all).substr(header_size);
      if (all->compare(0, header_size, header_of(key, bytes)) == 0) {
        if (info.st_mtim.tv_sec + kRenewSeconds < time(nullptr)) futimens(file.get(), nullptr);
        ++hits_;
        return std::string(bytes);
      }
    }
    TATARA_LOG(kCache, "damaged entry removed: ", path);
    unlink(path.c_str());
    ++damaged_;
  } catch (...) {
    // Out of memory while reading: as good as a miss.
  }
  ++misses_;
  return std::nullopt;
}

bool DiskCache::write_entry(const std::string& path, std::string_view header, std::string_view bytes) {
  static std::atomic<uint64_t> serial{0};
  const std::string temporary = str_cat(path, ".", getpid(), ".", serial.fetch_add(1), kTemporary);
  const auto create = [&] { return open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600); };
  int fd = create();
  if (fd < 0 && errno == ENOENT && make_directories(directory_)) fd = create();
  if (fd < 0) return false;
  // No fsync: an entry that a crash of the machine cut short fails its checksum.
  bool good = write_all(fd, header) && write_all(fd, bytes);
  good = close(fd) == 0 && good;
  good = good && rename(temporary.c_str(), path.c_str()) == 0;
  if (!good) {
    const int reason = errno;
    unlink(temporary.c_str());
    errno = reason;
  }
  return good;
}

bool DiskCache::put(std::string_view key, std::string_view bytes) noexcept {
  try {
    const std::string header = header_of(key, bytes);
    const uint64_t total = header.size() + bytes.size();
    // An entry that alone is over the limit would only push out the others.
    if (directory_.empty() || total > limit_bytes_ || total > kMaxEntryBytes) return false;
    if (time(nullptr) < writes_again_at_.load(std::memory_order_relaxed)) {
      ++failed_writes_;
      return false;
    }
    if (!write_entry(path_of(key), header, bytes)) {
      TATARA_LOG(kCache, "cannot write to ", directory_, ": ", std::strerror(errno));
      writes_again_at_.store(time(nullptr) + kRetryWritesSeconds, std::memory_order_relaxed);
      ++failed_writes_;
      return false;
    }
    ++writes_;
    trim_when_due(total);
    return true;
  } catch (...) {
    ++failed_writes_;
    return false;
  }
}

void DiskCache::trim_when_due(uint64_t written) {
  {
    const std::unique_lock lock(trim_mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return;  // another thread looks after it
    written_since_trim_ += written;
    bool due = written_since_trim_ > limit_bytes_ / 16;
    if (!looked_at_stamp_) {
      // The stamp tells when any process trimmed last, so that many short ones do not all read the directory.
      looked_at_stamp_ = true;
      struct stat info{};
      const std::string stamp = str_cat(directory_, "/", kStamp);
      due = due || stat(stamp.c_str(), &info) != 0 || info.st_mtim.tv_sec + kTrimEverySeconds < time(nullptr);
    }
    if (!due) return;
    written_since_trim_ = 0;
    const std::string stamp = str_cat(directory_, "/", kStamp);
    const Descriptor file(open(stamp.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    if (file.ok()) futimens(file.get(), nullptr);
  }
  trim(limit_bytes_);
}

void DiskCache::trim(uint64_t limit_bytes) noexcept {
  try {
    if (directory_.empty()) return;
    for (const FileInfo& file : list(directory_, kTemporary)) {
      if (file.time.tv_sec + kStaleTemporarySeconds < time(nullptr))
        unlink(str_cat(directory_, "/", file.name).c_str());
    }
    std::vector<FileInfo> files = list(directory_, kSuffix);
    uint64_t total = 0;
    for (const FileInfo& file : files) total += file.bytes;
    if (total <= limit_bytes) return;
    std::sort(files.begin(), files.end(), [](const FileInfo& a, const FileInfo& b) { return older(a.time, b.time); });
    // A little more than needed, so that the next entry does not start the search again.
    const uint64_t target = limit_bytes - limit_bytes / 8;
    for (const FileInfo& file : files) {
      if (total <= target) break;
      if (unlink(str_cat(directory_, "/", file.name).c_str()) == 0) ++evicted_;
      total -= file.bytes;
    }
  } catch (...) {
    // Out of memory: the next call tries again.
  }
}

void DiskCache::clear() noexcept {
  try {
    if (directory_.empty()) return;
    for (const std::string_view suffix : {kSuffix, kTemporary, kStamp}) {
      for (const FileInfo& file : list(directory_, suffix)) unlink(str_cat(directory_, "/", file.name).c_str());
    }
  } catch (...) {
    // Out of memory: what is left stays valid.
  }
}

DiskCache::Size DiskCache::size() const noexcept {
  Size size;
  try {
    if (directory_.empty()) return size;
    for (const FileInfo& file : list(directory_, kSuffix)) {
      ++size.entries;
      size.bytes += file.bytes;
    }
  } catch (...) {
    // Out of memory: what was counted so far.
  }
  return size;
}

CacheStats DiskCache::stats() const {
  return {hits_.load(), misses_.load(), damaged_.load(), writes_.load(), failed_writes_.load(), evicted_.load()};
}

std::string default_cache_dir() {
  if (const char* base = std::getenv("XDG_CACHE_HOME"); base != nullptr && base[0] == '/')
    return str_cat(base, "/tatara");
  if (const char* home = std::getenv("HOME"); home != nullptr && home[0] == '/') return str_cat(home, "/.cache/tatara");
  return {};
}

DiskCache& disk_cache() {
  struct Known {
    ForkSafeMutex mutex;
    std::map<std::pair<std::string, int64_t>, std::unique_ptr<DiskCache>> caches;
  };
  Known& known = made_once<Known>();
  std::string directory = option_text(Option::kCacheDir);
  if (directory.empty()) directory = default_cache_dir();
  if (!option_bool(Option::kCache)) directory.clear();
  const int64_t megabytes = std::max<int64_t>(option_int(Option::kCacheSizeMb), 0);
  const std::lock_guard lock(known.mutex);
  std::unique_ptr<DiskCache>& cache = known.caches[{directory, megabytes}];
  if (!cache) cache = std::make_unique<DiskCache>(directory, static_cast<uint64_t>(megabytes) << 20);
  return *cache;
}

}  // namespace tatara
