// The key that entries of the disk cache are sealed with.
#pragma once

#include <string>

namespace tatara {

struct CacheSecret {
  std::string key;      // "" when there is none
  std::string path;     // of its file
  std::string why_not;  // what is wrong with the file and what to do; empty: nothing is
};

/// Reads the user's key, which is made at the first use: in the user's own directory for such things, else (no home, or none that
/// is the user's and can be written to) in the cache's directory, which open_own_directory() opened.
CacheSecret find_cache_secret(int cache_directory, const std::string& cache_path);

}  // namespace tatara
