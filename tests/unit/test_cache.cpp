#include "runtime/base/cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>
#include <vector>

#include "support/options.h"
#include "support/str_cat.h"
#include "testing.h"

namespace tatara {
namespace {

constexpr uint64_t kPlenty = uint64_t{1} << 30;
constexpr uid_t kNobody = 65534;

class Cache : public testing::Test {
 public:
  void SetUp() override {
    char name[] = "/tmp/tatara-cache-test-XXXXXX";
    ASSERT_TRUE(mkdtemp(name) != nullptr);
    home_ = name;
    root_ = home_ + "/cache";
    ASSERT_EQ(mkdir(root_.c_str(), 0700), 0);
    setenv("XDG_STATE_HOME", (home_ + "/state").c_str(), 1);
  }
  void TearDown() override {
    unsetenv("XDG_STATE_HOME");
    take_cache_warnings();
    const std::string command = str_cat("chmod -R u+rwx ", home_, "; rm -rf ", home_);
    EXPECT_EQ(std::system(command.c_str()), 0);
  }

  /// Paths of the files below the directory whose name ends so.
  static std::vector<std::string> files(const std::string& directory, std::string_view suffix = ".tatara") {
    std::vector<std::string> found;
    DIR* dir = opendir(directory.c_str());
    if (dir == nullptr) return found;
    while (const dirent* entry = readdir(dir)) {
      if (std::string_view(entry->d_name).ends_with(suffix)) found.push_back(directory + "/" + entry->d_name);
    }
    closedir(dir);
    return found;
  }

  static std::string slurp(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    std::stringstream out;
    out << in.rdbuf();
    return out.str();
  }
  static void spill(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }
  static void set_age(const std::string& path, int64_t seconds) {
    const timespec times[2] = {{time(nullptr) - seconds, 0}, {time(nullptr) - seconds, 0}};
    utimensat(AT_FDCWD, path.c_str(), times, 0);
  }

  /// Exit status of fn in a child process (unprivileged when we are root, so that file rights count).
  static int in_child(bool unprivileged, const std::function<int()>& fn) {
    const pid_t child = fork();
    if (child == 0) {
      if (unprivileged && geteuid() == 0 && setuid(kNobody) != 0) _exit(99);
      _exit(fn());
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::string home_, root_;
};

TEST_F(Cache, KeepsBytesOfAnyKind) {
  DiskCache cache(root_ + "/new/deep", kPlenty);
  EXPECT_FALSE(cache.get("key").has_value());
  std::string bytes("\0\1\n\xff", 4);
  EXPECT_TRUE(cache.put("key", bytes));
  EXPECT_TRUE(cache.put(std::string_view("a/../b\0c", 8), std::string(100000, 'x')));
  EXPECT_TRUE(cache.put("empty", ""));
  EXPECT_EQ(cache.get("key").value_or("?"), bytes);
  EXPECT_EQ(cache.get(std::string_view("a/../b\0c", 8)).value_or("?"), std::string(100000, 'x'));
  EXPECT_EQ(cache.get("empty").value_or("?"), "");
  EXPECT_TRUE(cache.put("key", "second"));
  // Another object over the same directory, as another process would have.
  DiskCache other(root_ + "/new/deep", kPlenty);
  EXPECT_EQ(other.get("key").value_or("?"), "second");
  EXPECT_EQ(other.size().entries, 3u);
  EXPECT_EQ(cache.stats().writes, 4u);
  EXPECT_EQ(cache.stats().hits, 3u);
  EXPECT_EQ(cache.stats().misses, 1u);
  cache.clear();
  EXPECT_EQ(other.size().entries, 0u);
  EXPECT_FALSE(cache.get("key").has_value());
}

TEST_F(Cache, DamagedEntriesAreMissesAndVanish) {
  DiskCache cache(root_, kPlenty);
  const std::string bytes(1000, 'b');
  ASSERT_TRUE(cache.put("key", bytes));
  const std::string path = files(root_).at(0);
  const std::string good = slurp(path);
  for (size_t at = 0; at < good.size(); at += 13) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x20);
    spill(path, bad);
    EXPECT_FALSE(cache.get("key").has_value()) << "byte " << at;
    EXPECT_NE(access(path.c_str(), F_OK), 0);
  }
  for (size_t size = 0; size < good.size(); size += 29) {
    spill(path, good.substr(0, size));
    EXPECT_FALSE(cache.get("key").has_value()) << "first " << size << " bytes";
  }
  spill(path, good + "x");
  EXPECT_FALSE(cache.get("key").has_value());
  EXPECT_GT(cache.stats().damaged, 50u);
  // An entry under the name of another key.
  ASSERT_TRUE(cache.put("key", bytes));
  ASSERT_TRUE(cache.put("other", bytes));
  spill(files(root_).at(0), slurp(files(root_).at(1)));
  EXPECT_EQ(cache.get("key").has_value() + cache.get("other").has_value(), 1);
  // And it can be written again.
  EXPECT_TRUE(cache.put("key", bytes));
  EXPECT_EQ(cache.get("key").value_or("?"), bytes);
}

TEST_F(Cache, StrangeThingsInTheWayAreMisses) {
  DiskCache cache(root_, kPlenty);
  ASSERT_TRUE(cache.put("key", "bytes"));
  const std::string path = files(root_).at(0);
  ASSERT_EQ(unlink(path.c_str()), 0);
  ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
  EXPECT_FALSE(cache.get("key").has_value());
  EXPECT_FALSE(cache.put("key", "bytes"));
  EXPECT_TRUE(files(root_, ".tmp").empty());
  DiskCache fifo(root_ + "/fifo", kPlenty);
  ASSERT_TRUE(fifo.put("key", "bytes"));
  const std::string fifo_path = files(root_ + "/fifo").at(0);
  ASSERT_EQ(unlink(fifo_path.c_str()), 0);
  ASSERT_EQ(mkfifo(fifo_path.c_str(), 0600), 0);
  EXPECT_FALSE(fifo.get("key").has_value());  // must not wait for a writer
}

TEST_F(Cache, ReadOnlyDirectoryIsReadAndNeverWritten) {
  if (geteuid() == 0) {
    ASSERT_EQ(chown(home_.c_str(), kNobody, kNobody), 0);
    ASSERT_EQ(chown(root_.c_str(), kNobody, kNobody), 0);
  }
  const int status = in_child(true, [&] {
    if (!DiskCache(root_, kPlenty).put("key", "bytes")) return 5;
    chmod(files(root_).at(0).c_str(), 0444);
    chmod(root_.c_str(), 0555);
    DiskCache cache(root_, kPlenty);
    if (cache.get("key").value_or("?") != "bytes") return 1;
    if (cache.put("other", "bytes")) return 2;
    if (cache.stats().failed_writes != 1) return 3;
    if (cache.get("key").value_or("?") != "bytes") return 4;
    return 0;
  });
  chmod(root_.c_str(), 0700);
  EXPECT_EQ(status, 0);
}

TEST_F(Cache, ImpossibleDirectoriesAreNoCache) {
  spill(root_ + "/file", "not a directory");
  for (const std::string& directory : {root_ + "/file/cache", std::string("/proc/nowhere/cache"), std::string()}) {
    DiskCache cache(directory, kPlenty);
    EXPECT_FALSE(cache.put("key", "bytes")) << directory;
    EXPECT_FALSE(cache.get("key").has_value()) << directory;
    cache.trim(0);
    cache.clear();
    EXPECT_EQ(cache.size().entries, 0u);
  }
}

// A limit of file size stands in for a full disk: write(2) fails in the middle of an entry.
TEST_F(Cache, FullDiskLeavesNothingBehind) {
  const int status = in_child(false, [&] {
    DiskCache cache(root_, kPlenty);
    if (!cache.put("small", "bytes")) return 1;
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
    if (cache.put("large", std::string(100000, 'x'))) return 3;
    if (cache.get("large").has_value()) return 4;
    if (cache.get("small").value_or("?") != "bytes") return 5;
    if (cache.stats().failed_writes != 1) return 6;
    return 0;
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(files(root_).size(), 1u);
  EXPECT_TRUE(files(root_, ".tmp").empty());
}

TEST_F(Cache, EntriesUnusedForLongestGoFirst) {
  DiskCache cache(root_, kPlenty);
  const std::string bytes(1000, 'x');
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(cache.put(str_cat("key", i), bytes));
  EXPECT_TRUE(cache.get("key0").has_value());  // used now: no longer the oldest
  cache.trim(5300);
  EXPECT_TRUE(cache.get("key0").has_value());
  EXPECT_FALSE(cache.get("key1").has_value());
  EXPECT_FALSE(cache.get("key5").has_value());
  EXPECT_TRUE(cache.get("key9").has_value());
  EXPECT_LE(cache.size().bytes, 5300u);
  EXPECT_GT(cache.stats().evicted, 3u);
}

// Nothing is read off a clock: times that others gave an entry make it the oldest, and never keep it.
TEST_F(Cache, ClocksDecideNothing) {
  DiskCache cache(root_, kPlenty);
  const std::string bytes(1000, 'x');
  std::vector<std::string> paths;
  for (int i = 0; i < 10; ++i) {
    const std::vector<std::string> before = files(root_);
    ASSERT_TRUE(cache.put(str_cat("key", i), bytes));
    for (const std::string& path : files(root_)) {
      if (std::find(before.begin(), before.end(), path) == before.end()) paths.push_back(path);
    }
  }
  ASSERT_EQ(paths.size(), 10u);
  set_age(paths[9], -1000000000);  // in decades
  set_age(paths[8], 0);            // as after a copy
  set_age(paths[7], 1000000000);
  set_age(paths[6], 20000000000);  // before 1970
  cache.trim(6 * 1100);
  for (int i = 6; i < 10; ++i) EXPECT_FALSE(cache.get(str_cat("key", i)).has_value()) << i;
  for (int i = 1; i < 6; ++i) EXPECT_TRUE(cache.get(str_cat("key", i)).has_value()) << i;
  // The same where the counts are lost, or nonsense: they are made again, and the order of the entries stays.
  for (int i = 1; i < 6; ++i) ASSERT_TRUE(cache.put(str_cat("key", i), bytes));
  for (const char* nonsense :
       {"", "x", "tatara uses 1 00000000999999999999 00000000000000000000 00000000000000000000\n"}) {
    spill(root_ + "/.uses", nonsense);
    ASSERT_TRUE(cache.put("new", bytes));
    cache.trim(5 * 1100);
    EXPECT_TRUE(cache.get("new").has_value());
    EXPECT_TRUE(cache.get("key5").has_value());
  }
  EXPECT_FALSE(cache.get("key1").has_value());
}

TEST_F(Cache, TheLimitHoldsWhateverTheTimesOfEntriesAre) {
  for (const int64_t age : {int64_t{-5000000000}, int64_t{-100}, int64_t{0}, int64_t{5000000000}}) {
    DiskCache cache(str_cat(root_, "/", age < 0 ? "later" : "", age), 20000);
    for (int i = 0; i < 100; ++i) {
      EXPECT_TRUE(cache.put(str_cat("key", i), std::string(1000, 'x')));
      for (const std::string& path : files(cache.directory())) set_age(path, age);
      EXPECT_LE(cache.size().bytes, 20000u);
    }
  }
}

TEST_F(Cache, PutKeepsToTheLimitByItself) {
  DiskCache cache(root_, 20000);
  for (int i = 0; i < 200; ++i) {
    EXPECT_TRUE(cache.put(str_cat("key", i), std::string(1000, 'x')));
    EXPECT_LE(cache.size().bytes, 20000u);
  }
  EXPECT_GT(cache.size().entries, 10u);
  EXPECT_FALSE(cache.put("huge", std::string(30000, 'x')));
  EXPECT_TRUE(cache.get("key199").has_value());
}

TEST_F(Cache, LeftoversOfCrashedWritersAreRemoved) {
  DiskCache cache(root_, kPlenty);
  spill(root_ + "/dead.tmp", "half");
  spill(root_ + "/alive.tmp", "half");
  set_age(root_ + "/alive.tmp", 1000000000);
  const int writer = open((root_ + "/alive.tmp").c_str(), O_WRONLY);
  ASSERT_EQ(flock(writer, LOCK_EX), 0);
  cache.trim(kPlenty);
  EXPECT_NE(access((root_ + "/dead.tmp").c_str(), F_OK), 0);
  EXPECT_EQ(access((root_ + "/alive.tmp").c_str(), F_OK), 0);
  close(writer);
  cache.trim(kPlenty);
  EXPECT_NE(access((root_ + "/alive.tmp").c_str(), F_OK), 0);
}

TEST_F(Cache, ThreadsAndProcessesShareADirectory) {
  const auto hammer = [&](int seed) {
    DiskCache cache(root_, 100000);
    for (int round = 0; round < 200; ++round) {
      const int key = (seed * 7 + round) % 20;
      const std::string bytes(static_cast<size_t>(500 + 100 * key), static_cast<char>('a' + key));
      const auto found = cache.get(str_cat("key", key));
      if (found && *found != bytes) return 1;
      cache.put(str_cat("key", key), bytes);
      if (round % 50 == 0) cache.trim(10000);
    }
    return static_cast<int>(cache.stats().damaged);
  };
  std::vector<pid_t> children;
  for (int child = 0; child < 3; ++child) {
    const pid_t pid = fork();
    if (pid == 0) _exit(hammer(child));
    children.push_back(pid);
  }
  std::vector<int> results(3, -1);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < results.size(); ++t) {
    threads.emplace_back([&, t] { results[t] = hammer(static_cast<int>(t) + 3); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(results, std::vector<int>(3, 0));
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
  }
  EXPECT_TRUE(files(root_, ".tmp").empty());
}

TEST_F(Cache, FollowsTheOptions) {
  set_option(Option::kCacheDir, root_ + "/one");
  EXPECT_EQ(disk_cache().directory(), root_ + "/one");
  DiskCache& one = disk_cache();
  set_option(Option::kCacheDir, root_ + "/two");
  EXPECT_EQ(disk_cache().directory(), root_ + "/two");
  set_option(Option::kCacheDir, root_ + "/one");
  EXPECT_EQ(&disk_cache(), &one);
  set_option(Option::kCache, false);
  EXPECT_FALSE(disk_cache().put("key", "bytes"));
  reset_option(Option::kCache);
  reset_option(Option::kCacheDir);
}

TEST_F(Cache, OddValuesOfTheOptions) {
  const std::string here = std::filesystem::current_path();
  ASSERT_EQ(chdir(root_.c_str()), 0);
  for (const auto& [value, meant] : std::vector<std::pair<std::string, std::string>>{
           {"one", root_ + "/one"}, {"two/../three", root_ + "/two/../three"}, {".", root_ + "/."}}) {
    set_option(Option::kCacheDir, value);
    EXPECT_EQ(disk_cache().directory(), meant);
  }
  // A directory that is named by way of one that is not there.
  set_option(Option::kCacheDir, std::string("two/../three"));
  EXPECT_TRUE(disk_cache().put("key", "bytes"));
  EXPECT_EQ(disk_cache().get("key").value_or("?"), "bytes");
  EXPECT_EQ(files(root_ + "/three").size(), 1u);
  reset_option(Option::kCacheDir);
  const auto save = [](const char* name) { return std::string(std::getenv(name) != nullptr ? std::getenv(name) : ""); };
  const std::string home = save("HOME"), base = save("XDG_CACHE_HOME");
  unsetenv("XDG_CACHE_HOME");
  setenv("HOME", "relative", 1);
  EXPECT_EQ(disk_cache().directory(), "");
  unsetenv("HOME");
  EXPECT_EQ(disk_cache().directory(), "");
  EXPECT_FALSE(disk_cache().put("key", "bytes"));
  if (!home.empty()) setenv("HOME", home.c_str(), 1);
  if (!base.empty()) setenv("XDG_CACHE_HOME", base.c_str(), 1);
  for (const int64_t megabytes : {int64_t{0}, int64_t{1}, int64_t{1} << 30}) {
    set_option(Option::kCacheDir, root_ + "/four");
    set_option(Option::kCacheSizeMb, megabytes);
    EXPECT_EQ(disk_cache().put("key", "bytes"), megabytes > 0);
    EXPECT_EQ(disk_cache().get("key").has_value(), megabytes > 0);
  }
  reset_option(Option::kCacheSizeMb);
  reset_option(Option::kCacheDir);
  ASSERT_EQ(chdir(here.c_str()), 0);
}

}  // namespace
}  // namespace tatara
