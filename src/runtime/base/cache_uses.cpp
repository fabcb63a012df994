#include "runtime/base/cache_uses.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <string>

#include "runtime/base/own_files.h"

namespace tatara {
namespace {

constexpr const char* kUsesName = ".uses";
constexpr const char* kFormat = "tatara uses 1 %020" PRId64 " %020" PRIu64 " %020" PRIu64 "\n";
constexpr const char* kScanFormat = "tatara uses 1 %20" SCNd64 " %20" SCNu64 " %20" SCNu64;
constexpr size_t kSize = 14 + 3 * 21;
constexpr uint64_t kMostBytes = uint64_t{1} << 60;
constexpr int kLockTries = 50;
constexpr useconds_t kLockWait = 200;

std::optional<CacheUses> read_open(const Opened& file) {
  if (!file.ok() || file.info.st_nlink > 1 || file.info.st_size != static_cast<off_t>(kSize)) return std::nullopt;
  const std::optional<std::string> text = read_all(file.fd.get(), kSize);
  CacheUses uses;
  if (!text || std::sscanf(text->c_str(), kScanFormat, &uses.writes, &uses.bytes, &uses.entries) != 3) {
    return std::nullopt;
  }
  if (uses.writes < 0 || uses.writes >= CacheUses::kMostWrites || uses.bytes > kMostBytes ||
      uses.entries > static_cast<uint64_t>(uses.writes)) {
    return std::nullopt;
  }
  return uses;
}

Opened open_or_make(int directory) {
  Opened file = open_own_file(directory, kUsesName, O_RDWR);
  if (file.ok() && file.info.st_nlink <= 1) return file;
  // Whatever is there instead: it is not ours to write to.
  unlinkat(directory, kUsesName, 0);
  const Descriptor made(openat(directory, kUsesName, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  return open_own_file(directory, kUsesName, O_RDWR);
}

}  // namespace

std::optional<CacheUses> read_uses(int directory) { return read_open(open_own_file(directory, kUsesName, O_RDONLY)); }

bool change_uses(int directory, const std::function<CacheUses(std::optional<CacheUses>)>& change) {
  Opened file = open_or_make(directory);
  if (!file.ok()) return false;
  // The lock goes with the descriptor. Without it (a process that was stopped has it) the counts may be wrong, no more.
  for (int i = 0; i < kLockTries && flock(file.fd.get(), LOCK_EX | LOCK_NB) != 0; ++i) usleep(kLockWait);
  if (fstat(file.fd.get(), &file.info) != 0) return false;
  const CacheUses uses = change(read_open(file));
  char text[kSize + 1];
  std::snprintf(text, sizeof(text), kFormat, uses.writes, uses.bytes, uses.entries);
  return pwrite(file.fd.get(), text, kSize, 0) == static_cast<ssize_t>(kSize);
}

void remove_uses(int directory) { unlinkat(directory, kUsesName, 0); }

void set_write(int file, int64_t write) {
  const timespec times[2] = {{0, UTIME_OMIT}, {static_cast<time_t>(write), 0}};
  futimens(file, times);
}

}  // namespace tatara
