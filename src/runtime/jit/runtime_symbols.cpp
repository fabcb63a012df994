// What generated code may call besides itself: see runtime_symbol.
#include <dlfcn.h>

#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "runtime/jit/jit_loader.h"
#include "support/fork.h"
#include "support/made_once.h"

namespace tatara {
namespace {

struct Table {
  ForkSafeMutex mutex;
  std::map<std::string, void*, std::less<>> symbols;
};

template <typename Fn>
void* address(Fn* function) {
  return reinterpret_cast<void*>(function);
}

Table& table() {
  return made_once([] {
    return Table{
        {},
        {
            {"memcpy", address<void*(void*, const void*, size_t)>(std::memcpy)},
            {"memmove", address<void*(void*, const void*, size_t)>(std::memmove)},
            {"memset", address<void*(void*, int, size_t)>(std::memset)},
            {"memcmp", address<int(const void*, const void*, size_t)>(std::memcmp)},
        },
    };
  });
}

/// libm and the compiler's support library: the only libraries that generated code reaches by name.
void* library_symbol(const char* name) {
  const auto& libraries = made_once([] {
    return std::array{dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL), dlopen("libgcc_s.so.1", RTLD_NOW | RTLD_LOCAL)};
  });
  for (void* library : libraries) {
    if (library == nullptr) continue;
    if (void* found = dlsym(library, name)) return found;
  }
  return nullptr;
}

}  // namespace

void* runtime_symbol(std::string_view name) {
  Table& t = table();
  {
    const std::lock_guard lock(t.mutex);
    const auto found = t.symbols.find(name);
    if (found != t.symbols.end()) return found->second;
  }
  // Outside of the lock: the dynamic linker has locks of its own.
  void* symbol = library_symbol(std::string(name).c_str());
  if (symbol == nullptr) return nullptr;
  const std::lock_guard lock(t.mutex);
  return t.symbols.emplace(name, symbol).first->second;
}

void register_runtime_symbol(std::string name, void* symbol) {
  Table& t = table();
  const std::lock_guard lock(t.mutex);
  t.symbols[std::move(name)] = symbol;
}

}  // namespace tatara
