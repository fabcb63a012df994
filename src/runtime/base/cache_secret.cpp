#include "runtime/base/cache_secret.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "runtime/base/own_files.h"
#include "support/log.h"
#include "support/str_cat.h"

namespace tatara {
namespace {

constexpr const char* kKeyName = "cache-key";
constexpr size_t kKeyBytes = 32;
constexpr mode_t kOthers = S_IRWXG | S_IRWXO;
constexpr int kTries = 3;  // another process may make the file, or remove it, meanwhile

/// $XDG_STATE_HOME/tatara, else ~/.local/state/tatara: not in the cache, so that a whole directory that came from elsewhere (an
/// archive, a copied disk) does not bring a key that fits it.
std::string state_directory() {
  if (const char* base = std::getenv("XDG_STATE_HOME"); base != nullptr && base[0] == '/')
    return str_cat(base, "/tatara");
  if (const char* home = std::getenv("HOME"); home != nullptr && home[0] == '/')
    return str_cat(home, "/.local/state/tatara");
  return {};
}

/// A file appears whole or not at all, and only the first of several processes makes it.
bool make_key(int directory) {
  const std::string key = random_bytes(kKeyBytes), unique = random_bytes(8);
  if (key.empty() || unique.empty()) return false;
  uint64_t number = 0;
  std::memcpy(&number, unique.data(), sizeof(number));
  const std::string temporary = str_cat(kKeyName, ".", number, ".tmp");
  Descriptor file(openat(directory, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.ok()) return false;
  bool good = write_all(file.get(), key) && fsync(file.get()) == 0;
  good = file.close_now() && good;
  if (good) {
    good = renameat2(directory, temporary.c_str(), directory, kKeyName, RENAME_NOREPLACE) == 0 || errno == EEXIST;
    // Some file systems know no such renaming.
    if (!good) good = linkat(directory, temporary.c_str(), directory, kKeyName, 0) == 0 || errno == EEXIST;
  }
  unlinkat(directory, temporary.c_str(), 0);
  return good;
}

/// What is wrong with the key's file, which is this user's and nobody else's to write.
std::string objection(const Opened& file, const std::string& key) {
  if ((file.info.st_mode & kOthers) != 0) return "can be read by others";
  // A file of zeros is what some file systems leave of one after a crash.
  if (key.size() != kKeyBytes || key.find_first_not_of(key[0]) == std::string::npos) return "is damaged";
  return {};
}

CacheSecret read_or_make(int directory, const std::string& path) {
  CacheSecret secret;
  secret.path = str_cat(path, "/", kKeyName);
  for (int i = 0; i < kTries; ++i) {
    const Opened file = open_own_file(directory, kKeyName, O_RDONLY);
    std::string why_not = file.why_not.empty() ? std::string() : str_cat(path, "/", file.why_not);
    if (file.ok()) {
      const bool right_size = file.info.st_size == static_cast<off_t>(kKeyBytes);
      const std::string key = right_size ? read_all(file.fd.get(), kKeyBytes).value_or("") : std::string();
      why_not = objection(file, key);
      if (why_not.empty()) {
        secret.key = key;
        return secret;
      }
      why_not = str_cat(secret.path, " ", why_not);
    }
    if (!why_not.empty()) {
      secret.why_not = str_cat("its key ", why_not, "; remove that file, and a new key is made");
      return secret;
    }
    if (file.error != ENOENT || !make_key(directory)) break;
  }
  TATARA_LOG(kCache, "no key can be made in ", path, ": ", std::strerror(errno));
  return secret;
}

}  // namespace

CacheSecret find_cache_secret(int cache_directory, const std::string& cache_path) {
  const std::string state = state_directory();
  if (const Opened directory = open_own_directory(state, true); directory.ok()) {
    CacheSecret secret = read_or_make(directory.fd.get(), state);
    if (!secret.key.empty() || !secret.why_not.empty()) return secret;
  }
  return read_or_make(cache_directory, cache_path);
}

}  // namespace tatara
