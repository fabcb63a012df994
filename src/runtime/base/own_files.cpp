#include "runtime/base/own_files.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <vector>

#include "support/str_cat.h"

namespace tatara {
namespace {

constexpr int kMostLinks = 40;
constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;

std::string octal(mode_t mode) {
  char text[16];
  std::snprintf(text, sizeof(text), "%04o", static_cast<unsigned>(mode & 07777));
  return text;
}

/// What is wrong with the owner or the mode; empty: nothing is.
std::string foreign(const struct stat& info, const std::string& path) {
  const uid_t self = geteuid();
  if (info.st_uid != self) {
    return str_cat(path, " belongs to user ", info.st_uid, ", not to user ", self, ", who runs this");
  }
  if ((info.st_mode & kOthersWrite) != 0) {
    return str_cat(path, " can be written by others (mode ", octal(info.st_mode), "): chmod go-w ", path);
  }
  return {};
}

/// The same for a directory above: what others can do there must not reach ours.
std::string foreign_above(const struct stat& info, const std::string& path) {
  // Whoever has the root directory has everything.
  if (path == "/") return {};
  const uid_t self = geteuid();
  if (info.st_uid != self && info.st_uid != 0) {
    return str_cat(path, ", which it is in, belongs to user ", info.st_uid, ", not to user ", self, " or to root");
  }
  if ((info.st_mode & kOthersWrite) != 0 && (info.st_mode & S_ISVTX) == 0) {
    return str_cat(path, ", which it is in, can be written by others (mode ", octal(info.st_mode), "): chmod go-w ",
                   path);
  }
  return {};
}

/// Names of a path, the last one first.
std::vector<std::string> names_of(std::string_view path) {
  std::vector<std::string> names;
  while (!path.empty()) {
    const size_t slash = path.rfind('/');
    const std::string_view name = slash == std::string_view::npos ? path : path.substr(slash + 1);
    if (!name.empty() && name != ".") names.emplace_back(name);
    path = slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
  }
  return names;
}

/// Goes down a path, one name at a time.
class Walk {
 public:
  Walk(const std::string& path, bool create) : path_(path), names_(names_of(path)), create_(create) {}

  Opened run() {
    Opened result;
    start();
    while (here_.ok() && why_not_.empty() && !names_.empty()) step();
    if (here_.ok() && why_not_.empty()) finish(result);
    result.why_not = std::move(why_not_);
    if (!result.ok() && result.why_not.empty()) result.error = error_;
    return result;
  }

 private:
  void start() {
    at_ = "/";
    here_ = Descriptor(open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!here_.ok() || fstat(here_.get(), &info_) != 0) fail();
  }

  void fail() {
    error_ = errno;
    here_ = Descriptor();
  }

  std::string place_of(const std::string& name) const { return at_ == "/" ? "/" + name : at_ + "/" + name; }

  /// Into the next directory of the path.
  void step() {
    if (why_not_ = foreign_above(info_, at_); !why_not_.empty()) return;
    const std::string name = std::move(names_.back());
    names_.pop_back();
    Descriptor next(open_at(name));
    if (!next.ok() && errno == ENOENT && create_ && name != ".." &&
        (mkdirat(here_.get(), name.c_str(), 0700) == 0 || errno == EEXIST)) {
      next = Descriptor(open_at(name));
    }
    struct stat info{};
    if (!next.ok() || fstat(next.get(), &info) != 0) return fail();
    if (S_ISLNK(info.st_mode)) return follow(next, info, place_of(name));
    if (!S_ISDIR(info.st_mode)) {
      errno = ENOTDIR;
      return fail();
    }
    at_ = place_of(name);
    here_ = std::move(next);
    info_ = info;
  }

  int open_at(const std::string& name) const {
    return openat(here_.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC);
  }

  /// Systems have links of their own (/home to /usr/home): root made them, where nobody else could.
  void follow(const Descriptor& link, const struct stat& info, const std::string& place) {
    const bool of_system =
        geteuid() != 0 && info.st_uid == 0 && info_.st_uid == 0 && (info_.st_mode & kOthersWrite) == 0;
    if (!of_system || names_.empty() || ++links_ > kMostLinks) {
      why_not_ = str_cat(place, " is a symbolic link, which is not followed");
      return;
    }
    std::string target(PATH_MAX, '\0');
    const ssize_t size = readlinkat(link.get(), "", target.data(), target.size());
    if (size <= 0 || size == PATH_MAX) return fail();
    target.resize(static_cast<size_t>(size));
    for (std::string& name : names_of(target)) names_.push_back(std::move(name));
    if (target.front() == '/') start();
  }

  /// The directory itself.
  void finish(Opened& result) {
    if (why_not_ = foreign(info_, at_); !why_not_.empty()) return;
    result.fd = Descriptor(openat(here_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!result.fd.ok()) return fail();
    result.info = info_;
  }

  const std::string& path_;
  std::vector<std::string> names_;  // still to go, the last one first
  const bool create_;
  std::string at_;
  Descriptor here_;
  struct stat info_{};  // of `here_`
  std::string why_not_;
  int error_ = 0;
  int links_ = 0;
};

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    close_now();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

Descriptor::~Descriptor() { close_now(); }

bool Descriptor::close_now() { return fd_ < 0 || close(std::exchange(fd_, -1)) == 0; }

Opened open_own_directory(const std::string& path, bool create) {
  if (path.empty() || path.front() != '/') {
    Opened none;
    none.error = ENOENT;
    return none;
  }
  return Walk(path, create).run();
}

Opened open_own_file(int directory, const std::string& name, int flags) {
  Opened result;
  const auto check = [&] {
    result.why_not = S_ISREG(result.info.st_mode) ? foreign(result.info, name) : name + " is no regular file";
    return result.why_not.empty();
  };
  // Looked at before it is opened: opening a device may do something.
  if (fstatat(directory, name.c_str(), &result.info, AT_SYMLINK_NOFOLLOW) != 0) {
    result.error = errno;
    return result;
  }
  if (!check()) return result;
  Descriptor fd(openat(directory, name.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd.ok() || fstat(fd.get(), &result.info) != 0) {
    result.error = errno;
    return result;
  }
  if (check()) result.fd = std::move(fd);
  return result;
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

std::optional<std::string> read_all(int fd, size_t size) {
  std::string bytes(size, '\0');
  size_t have = 0;
  while (have < size) {
    const ssize_t done = pread(fd, bytes.data() + have, size - have, static_cast<off_t>(have));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return std::nullopt;
    have += static_cast<size_t>(done);
  }
  return bytes;
}

std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  size_t have = 0;
  while (have < count) {
    const ssize_t done = getrandom(bytes.data() + have, count - have, 0);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return {};
    have += static_cast<size_t>(done);
  }
  return bytes;
}

}  // namespace tatara
