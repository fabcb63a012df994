// What generated code may call besides itself: see runtime_symbol.
#include <dlfcn.h>

#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "runtime/jit_loader.h"

namespace tatara {
namespace {

struct Table {
  std::mutex mutex;
  std::map<std::string, void*, std::less<>> symbols;
};

template <typename Fn>
void* address(Fn* function) {
  return reinterpret_cast<void*>(function);
}

Table& table() {
  static Table* table = [] {
    auto* made = new Table;
    made->symbols = {
        {"memcpy", address<void*(void*, const void*, size_t)>(std::memcpy)},
        {"memmove", address<void*(void*, const void*, size_t)>(std::memmove)},
        {"memset", address<void*(void*, int, size_t)>(std::memset)},
        {"memcmp", address<int(const void*, const void*, size_t)>(std::memcmp)},
    };
    return made;
  }();
  return *table;
}

/// libm and the compiler's support library: the only libraries that generated code reaches by name.
void* library_symbol(const char* name) {
  static void* const libraries[] = {dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL),
                                    dlopen("libgcc_s.so.1", RTLD_NOW | RTLD_LOCAL)};
  for (void* library : libraries) {
    if (library == nullptr) continue;
    if (void* found = dlsym(library, name)) return found;
  }
  return nullptr;
}

}  // namespace

void* runtime_symbol(std::string_view name) {
  Table& t = table();
  const std::lock_guard lock(t.mutex);
  const auto found = t.symbols.find(name);
  if (found != t.symbols.end()) return found->second;
  void* symbol = library_symbol(std::string(name).c_str());
  if (symbol != nullptr) t.symbols.emplace(name, symbol);
  return symbol;
}

void register_runtime_symbol(std::string name, void* symbol) {
  Table& t = table();
  const std::lock_guard lock(t.mutex);
  t.symbols[std::move(name)] = symbol;
}

}  // namespace tatara
