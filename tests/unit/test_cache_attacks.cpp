// What somebody else may have done to the disk cache: nothing of theirs is ever returned.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/base/cache.h"
#include "support/hash.h"
#include "support/sha256.h"
#include "support/str_cat.h"
#include "testing.h"

namespace tatara {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kPlenty = uint64_t{1} << 30;
constexpr uid_t kStranger = 65534;
const std::string kGood(500, 'g');
const std::string kForeign(500, 'f');

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

void spill(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
}

/// Only root can.
bool give_away(const std::string& path, uid_t user = kStranger) {
  return geteuid() == 0 && lchown(path.c_str(), user, user) == 0;
}

/// A home with a cache that has one entry, "key". The user is whoever runs the tests; where that is root, files can be given to others.
class Attacks : public testing::Test {
 public:
  void SetUp() override {
    char name[] = "/tmp/tatara-attack-test-XXXXXX";
    ASSERT_TRUE(mkdtemp(name) != nullptr);
    home_ = name;
    dir_ = home_ + "/above/cache";
    key_ = home_ + "/state/tatara/cache-key";
    setenv("XDG_STATE_HOME", (home_ + "/state").c_str(), 1);
    take_cache_warnings();
    fresh();
  }
  void TearDown() override {
    unsetenv("XDG_STATE_HOME");
    take_cache_warnings();
    fs::remove_all(home_);
  }

  /// Everything as it should be again.
  void fresh() {
    for (const std::string& name : {home_ + "/above", home_ + "/state", home_ + "/elsewhere"}) fs::remove_all(name);
    DiskCache cache(dir_, kPlenty);
    ASSERT_TRUE(cache.put("key", kGood));
    ASSERT_EQ(cache.get("key").value_or("?"), kGood);
    entry_ = entries().at(0);
  }

  std::vector<std::string> entries() const {
    std::vector<std::string> found;
    for (const auto& file : fs::directory_iterator(dir_)) {
      if (file.path().extension() == ".tatara") found.push_back(file.path());
    }
    return found;
  }

  /// The cache that somebody else made under another key, with this content for the same key.
  std::string foreign_entry() const {
    const std::string state = home_ + "/elsewhere/state", directory = home_ + "/elsewhere/cache";
    setenv("XDG_STATE_HOME", state.c_str(), 1);
    EXPECT_TRUE(DiskCache(directory, kPlenty).put("key", kForeign));
    setenv("XDG_STATE_HOME", (home_ + "/state").c_str(), 1);
    for (const auto& file : fs::directory_iterator(directory)) {
      if (file.path().extension() == ".tatara") return file.path();
    }
    return {};
  }

  std::string home_, dir_, key_, entry_;
};

struct Attack {
  std::string name;
  std::function<bool()> attack;  // false: it cannot be done here
  /// What the warning says; empty: there is none.
  std::string warning;
};

// Every row: the cache as it should be, then the attack, then a look.
TEST_F(Attacks, NothingForeignIsReturned) {
  const auto mode = [&](const std::string& path, mode_t bits) { return chmod(path.c_str(), bits) == 0; };
  const auto link_instead = [&](const std::string& path) {
    const std::string away = home_ + "/elsewhere";
    fs::rename(path, away);
    fs::create_symlink(away, path);
    return true;
  };
  const auto node = [&](mode_t kind, dev_t device) {
    fs::remove(entry_);
    return mknod(entry_.c_str(), kind | 0600, device) == 0;
  };
  const std::vector<Attack> table{
      {"directory 0777", [&] { return mode(dir_, 0777); }, "chmod go-w " + dir_},
      {"directory 0770", [&] { return mode(dir_, 0770); }, "chmod go-w " + dir_},
      {"directory 0707", [&] { return mode(dir_, 0707); }, "chmod go-w " + dir_},
      {"directory with the sticky bit", [&] { return mode(dir_, 01777); }, "chmod go-w " + dir_},
      {"directory above 0777", [&] { return mode(home_ + "/above", 0777); }, "chmod go-w " + home_ + "/above"},
      {"directory above 0770", [&] { return mode(home_ + "/above", 0770); }, "chmod go-w " + home_ + "/above"},
      {"directory of another user", [&] { return give_away(dir_); }, "belongs to user 65534"},
      {"directory above of another user", [&] { return give_away(home_ + "/above"); }, "belongs to user 65534"},
      {"directory is a link", [&] { return link_instead(dir_); }, dir_ + " is a symbolic link"},
      {"directory above is a link", [&] { return link_instead(home_ + "/above"); }, "above is a symbolic link"},
      {"directory of another user behind a link",
       [&] { return link_instead(dir_) && give_away(home_ + "/elsewhere") && give_away(dir_); }, "is a symbolic link"},
      {"entry 0666", [&] { return mode(entry_, 0666); }, "chmod go-w"},
      {"entry 0620", [&] { return mode(entry_, 0620); }, "chmod go-w"},
      {"entry of another user", [&] { return give_away(entry_); }, "belongs to user 65534"},
      {"entry is a link", [&] { return link_instead(entry_); }, "is no regular file"},
      {"entry is a dead link",
       [&] {
         fs::remove(entry_);
         fs::create_symlink("/nowhere", entry_);
         return true;
       },
       "is no regular file"},
      {"entry has another name",
       [&] {
         fs::create_hard_link(entry_, home_ + "/elsewhere");
         return true;
       },
       "hard link"},
      {"entry is a FIFO", [&] { return node(S_IFIFO, 0); }, "is no regular file"},
      {"entry is a device", [&] { return node(S_IFCHR, makedev(1, 5)); }, "is no regular file"},
      {"entry is a socket", [&] { return node(S_IFSOCK, 0); }, "is no regular file"},
      {"entry is a directory",
       [&] {
         fs::remove(entry_);
         return fs::create_directory(entry_);
       },
       "is no regular file"},
      {"entry with another user's seal",
       [&] {
         spill(entry_, slurp(foreign_entry()));
         return true;
       },
       ""},
      {"entry with a plain hash",
       [&] {
         const Digest hash = Sha256().add(kForeign).finish();
         spill(entry_, str_cat("tatara entry 2\n", std::string(hash.begin(), hash.end()), kForeign));
         return true;
       },
       ""},
      {"entry of the old format",
       [&] {
         const std::string hash = KeyBuilder().add("key").add(kForeign).finish().str();
         spill(entry_, str_cat("tatara entry 1\n", hash, "\n", kForeign));
         spill(dir_ + "/" + hash128("key").str() + ".tatara", str_cat("tatara entry 1\n", hash, "\n", kForeign));
         return true;
       },
       ""},
      {"entry of another key",
       [&] {
         EXPECT_TRUE(DiskCache(dir_, kPlenty).put("other", kForeign));
         for (const std::string& path : entries()) {
           if (path != entry_) fs::rename(path, entry_);
         }
         return true;
       },
       ""},
      {"the whole directory of another user, its key in it",
       [&] {
         fs::copy(foreign_entry(), entry_, fs::copy_options::overwrite_existing);
         fs::copy(home_ + "/elsewhere/state/tatara/cache-key", dir_ + "/cache-key");
         return true;
       },
       ""},
      {"no key",
       [&] {
         fs::remove(key_);
         return true;
       },
       ""},
      {"no key, and another user's in the cache",
       [&] {
         const std::string name = foreign_entry();
         fs::copy(name, dir_ + "/" + fs::path(name).filename().string());
         fs::copy(home_ + "/elsewhere/state/tatara/cache-key", dir_ + "/cache-key");
         fs::remove(key_);
         return true;
       },
       ""},
      {"key that others read", [&] { return mode(key_, 0644); }, "can be read by others; remove that file"},
      {"key that others write", [&] { return mode(key_, 0620); }, "remove that file"},
      {"key of another user", [&] { return give_away(key_); }, "belongs to user 65534"},
      {"key is a link", [&] { return link_instead(key_); }, "is no regular file"},
      {"key is empty",
       [&] {
         spill(key_, "");
         return true;
       },
       "is damaged; remove that file"},
      {"key is short",
       [&] {
         spill(key_, slurp(key_).substr(0, 31));
         return true;
       },
       "is damaged"},
      {"key is long",
       [&] {
         spill(key_, slurp(key_) + "x");
         return true;
       },
       "is damaged"},
      {"key is zeros",
       [&] {
         spill(key_, std::string(32, '\0'));
         return true;
       },
       "is damaged"},
      {"key is another",
       [&] {
         spill(key_, std::string(16, 'a') + std::string(16, 'b'));
         return true;
       },
       ""},
  };
  for (const Attack& row : table) {
    fresh();
    take_cache_warnings();
    if (!row.attack()) {
      EXPECT_NE(geteuid(), 0u) << row.name;
      continue;
    }
    DiskCache cache(dir_, kPlenty);
    EXPECT_FALSE(cache.get("key").has_value()) << row.name;
    cache.get("key");
    cache.put("key", kGood);
    EXPECT_NE(cache.get("key").value_or(kGood), kForeign) << row.name;
    const std::vector<std::string> warnings = take_cache_warnings();
    ASSERT_EQ(warnings.size(), row.warning.empty() ? 0u : 1u) << row.name << (warnings.empty() ? "" : warnings[0]);
    if (!row.warning.empty()) {
      EXPECT_NE(warnings[0].find(row.warning), std::string::npos) << row.name << ": " << warnings[0];
    }
    for (const std::string& text : warnings) EXPECT_NE(text.find(dir_), std::string::npos) << row.name << ": " << text;
    cache.trim(0);
    cache.clear();
  }
}

// Of a directory that cannot be trusted nothing is removed, and nothing is written into it.
TEST_F(Attacks, AForeignDirectoryIsLeftAlone) {
  ASSERT_EQ(chmod(dir_.c_str(), 0777), 0);
  DiskCache cache(dir_, kPlenty);
  EXPECT_FALSE(cache.put("other", kGood));
  cache.remove("key");
  cache.trim(0);
  cache.clear();
  EXPECT_EQ(entries().size(), 1u);
  EXPECT_EQ(cache.size().entries, 0u);
  EXPECT_NE(cache.why_not().find("chmod go-w"), std::string::npos);
  // As soon as it is mended it is used again.
  ASSERT_EQ(chmod(dir_.c_str(), 0755), 0);
  EXPECT_EQ(cache.why_not(), "");
  EXPECT_EQ(cache.get("key").value_or("?"), kGood);
}

// Replaced while a process uses it.
TEST_F(Attacks, EachUseLooksAgain) {
  DiskCache cache(dir_, kPlenty);
  EXPECT_EQ(cache.get("key").value_or("?"), kGood);
  fs::rename(dir_, home_ + "/elsewhere");
  fs::create_directory_symlink(home_ + "/elsewhere", dir_);
  EXPECT_FALSE(cache.get("key").has_value());
  fs::remove(dir_);
  fs::rename(home_ + "/elsewhere", dir_);
  EXPECT_EQ(cache.get("key").value_or("?"), kGood);
  ASSERT_EQ(chmod(entry_.c_str(), 0606), 0);
  EXPECT_FALSE(cache.get("key").has_value());
  EXPECT_EQ(cache.stats().foreign, 1u);
}

TEST_F(Attacks, OneWarningForEachCache) {
  ASSERT_EQ(chmod(dir_.c_str(), 0777), 0);
  DiskCache cache(dir_, kPlenty);
  for (int i = 0; i < 10; ++i) {
    cache.get(str_cat("key", i));
    cache.put(str_cat("key", i), kGood);
  }
  EXPECT_EQ(take_cache_warnings().size(), 1u);
  cache.get("key");
  EXPECT_TRUE(take_cache_warnings().empty());
}

// Other programs do nothing in /tmp that this user could mistake for his own.
TEST_F(Attacks, StickyDirectoriesAboveAreGood) {
  const std::string shared = home_ + "/shared";
  fs::create_directory(shared);
  ASSERT_EQ(chmod(shared.c_str(), 01777), 0);
  DiskCache cache(shared + "/mine", kPlenty);
  EXPECT_TRUE(cache.put("key", kGood));
  EXPECT_EQ(cache.get("key").value_or("?"), kGood);
  if (!give_away(shared + "/mine")) return;
  EXPECT_FALSE(cache.get("key").has_value());
  fs::create_directory(shared + "/theirs");
  ASSERT_TRUE(give_away(shared + "/theirs"));
  DiskCache inside(shared + "/theirs/mine", kPlenty);
  EXPECT_FALSE(inside.put("key", kGood));
  EXPECT_NE(inside.why_not().find("theirs, which it is in, belongs to user"), std::string::npos);
}

int exit_status(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Root's own links are a part of the system for everybody but root.
TEST_F(Attacks, LinksOfTheSystemAreFollowed) {
  if (geteuid() != 0) return;
  ASSERT_EQ(chmod(home_.c_str(), 0755), 0);
  fs::create_directories(home_ + "/real/user");
  ASSERT_TRUE(give_away(home_ + "/real/user"));
  fs::create_directory_symlink("real", home_ + "/relative");
  fs::create_directory_symlink(home_ + "/real", home_ + "/absolute");
  fs::create_directory_symlink("real", home_ + "/theirs");
  ASSERT_TRUE(give_away(home_ + "/theirs", 12345));
  fs::create_directory_symlink("circle", home_ + "/circle");
  const pid_t child = fork();
  if (child == 0) {
    if (setuid(kStranger) != 0) _exit(99);
    setenv("XDG_STATE_HOME", (home_ + "/real/user/state").c_str(), 1);
    const auto works = [&](const std::string& above) {
      return DiskCache(home_ + above + "/user/cache", kPlenty).put("key", kGood);
    };
    _exit((works("/relative") ? 1 : 0) + (works("/absolute") ? 2 : 0) + (works("/theirs") ? 4 : 0) +
          (works("/circle") ? 8 : 0));
  }
  EXPECT_EQ(exit_status(child), 3);
}

TEST_F(Attacks, ManyFirstUsesMakeOneKey) {
  for (int round = 0; round < 20; ++round) {
    fs::remove_all(home_ + "/state");
    std::vector<pid_t> children;
    for (int i = 0; i < 8; ++i) {
      const pid_t child = fork();
      if (child == 0) _exit(DiskCache(dir_, kPlenty).put(str_cat("key", i), kGood) ? 0 : 1);
      children.push_back(child);
    }
    for (const pid_t child : children) EXPECT_EQ(exit_status(child), 0);
    DiskCache cache(dir_, kPlenty);
    for (int i = 0; i < 8; ++i) EXPECT_EQ(cache.get(str_cat("key", i)).value_or("?"), kGood);
    int files = 0;
    for (const auto& file : fs::directory_iterator(home_ + "/state/tatara")) files += file.is_regular_file() ? 1 : 0;
    EXPECT_EQ(files, 1);
    struct stat info{};
    ASSERT_EQ(stat(key_.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0600u);
  }
}

// Without a home of the user's the key lies in the cache.
TEST_F(Attacks, WithoutAHome) {
  for (const char* state : {"", "/proc/nowhere", "relative"}) {
    fs::remove_all(dir_);
    setenv("XDG_STATE_HOME", state, 1);
    const char* home = std::getenv("HOME");
    const std::string kept = home != nullptr ? home : "";
    unsetenv("HOME");
    EXPECT_TRUE(DiskCache(dir_, kPlenty).put("key", kGood));
    EXPECT_EQ(DiskCache(dir_, kPlenty).get("key").value_or("?"), kGood);
    EXPECT_EQ(DiskCache(dir_, kPlenty).key_path(), dir_ + "/cache-key");
    if (home != nullptr) setenv("HOME", kept.c_str(), 1);
  }
}

// What no seal fits: bytes changed, added, taken away, swapped between entries. (make fuzz-cache does it a million times.)
TEST_F(Attacks, ChangedEntriesAreNeverReturned) {
  DiskCache cache(dir_, kPlenty);
  const std::string good = slurp(entry_);
  uint64_t state = 1;
  const auto random = [&](size_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<size_t>(state >> 33) % below;
  };
  for (int i = 0; i < 3000; ++i) {
    std::string bad = good;
    switch (random(4)) {
      case 0: bad[random(bad.size())] ^= static_cast<char>(1u << random(8)); break;
      case 1: bad.resize(random(bad.size())); break;
      case 2: bad.insert(random(bad.size()), 1 + random(50), static_cast<char>(random(256))); break;
      default: {
        const size_t from = random(bad.size()), to = random(bad.size());
        bad.replace(to, 16, good.substr(from, 16));
      }
    }
    if (bad == good) continue;
    spill(entry_, bad);
    ASSERT_FALSE(cache.get("key").has_value()) << "change " << i;
    ASSERT_FALSE(fs::exists(entry_));
  }
}

}  // namespace
}  // namespace tatara
