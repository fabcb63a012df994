// Directories and files that nobody but this user (or root, above a directory) can have written.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace tatara {

/// A file descriptor that closes itself.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }
  /// Closes it now; whether that went well (a full disk may show only here).
  bool close_now();

 private:
  int fd_ = -1;
};

/// A directory or a file that was asked for.
struct Opened {
  Descriptor fd;        // when it is there and may be used
  struct stat info{};   // of `fd`
  std::string why_not;  // what is wrong with it and what to do; empty: nothing is
  int error = 0;        // errno where it is not there, or cannot be made or read
  bool ok() const { return fd.ok(); }
};

/// Opens the directory at the absolute path: it belongs to this user and nobody else may write to it, it is no symbolic link,
/// and every directory above belongs to this user or to root, and others may write to it at most as to /tmp (the sticky bit).
/// Links above it are followed only where root made them, for somebody else, in directories that only root can change.
/// With `create`, directories that are missing are made, for this user alone.
Opened open_own_directory(const std::string& path, bool create);

/// Opens the file of a directory that open_own_directory() opened: a regular file of this user that nobody else may write
/// to. `flags`: O_RDONLY or O_RDWR.
Opened open_own_file(int directory, const std::string& name, int flags);

bool write_all(int fd, std::string_view bytes);
/// `size` bytes from the beginning; nothing when there are fewer.
std::optional<std::string> read_all(int fd, size_t size);
/// `count` bytes that nobody can guess. Empty when the system has none.
std::string random_bytes(size_t count);

}  // namespace tatara
