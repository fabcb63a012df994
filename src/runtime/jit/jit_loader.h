// Loads relocatable ELF objects into executable memory, without LLVM: what a warm start from the disk cache runs on.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace tatara {

/// Code in memory. Pages are never writable and executable at once. Freed with the object.
class LoadedObject {
 public:
  virtual ~LoadedObject() = default;
  /// Address of a defined global symbol, or null.
  virtual void* find(std::string_view symbol) const = 0;
  /// Bytes of memory taken.
  virtual size_t size() const = 0;
  /// For tests: the bytes of the mapping.
  virtual const std::byte* data() const = 0;
};

/// Address of an undefined symbol, or null.
using SymbolResolver = std::function<void*(std::string_view name)>;

/// memcpy and its kin, the C library's mathematical functions, the compiler's helper functions, and what
/// register_runtime_symbol added; null for any other name.
void* runtime_symbol(std::string_view name);
/// Makes a function of the runtime callable from kernels. Thread-safe.
void register_runtime_symbol(std::string name, void* address);

/// Maps the object's sections, resolves its symbols and applies its relocations. x86-64 and AArch64, little-endian.
/// CompilationError for anything malformed, unknown or unresolved: no byte of the file is trusted.
std::shared_ptr<LoadedObject> load_object(std::string_view elf, const SymbolResolver& resolver = runtime_symbol);

/// The same for an object of another machine, for tests: linked in memory, never to be run.
std::shared_ptr<LoadedObject> link_foreign_object(std::string_view elf, const SymbolResolver& resolver);

}  // namespace tatara
