#include "runtime/jit/jit_loader.h"

#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <type_traits>
#include <vector>

#include "support/error.h"

namespace tatara {
namespace {

[[noreturn]] void malformed(std::string_view what) { throw CompilationError(str_cat("malformed object code: ", what)); }

/// Reads of the file, every one within its bounds.
class File {
 public:
  explicit File(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  T read(uint64_t offset) const {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, range(offset, sizeof(T)).data(), sizeof(T));
    return value;
  }

  std::string_view range(uint64_t offset, uint64_t size) const {
    if (offset > bytes_.size() || size > bytes_.size() - offset) malformed("a range is outside of the file");
    return bytes_.substr(offset, size);
  }

  /// The zero-terminated string at `offset` of the table.
  static std::string_view string(std::string_view table, uint64_t offset) {
    if (offset >= table.size()) malformed("a name is outside of its table");
    const size_t end = table.find('\0', offset);
    if (end == std::string_view::npos) malformed("a name has no end");
    return table.substr(offset, end - offset);
  }

 private:
  std::string_view bytes_;
};

/// Which protection a section gets. The three groups lie one after the other in one mapping.
enum class Group : uint8_t { kCode, kConstants, kData };
constexpr int kNumGroups = 3;

struct Section {
  Elf64_Shdr header{};
  std::string_view name;
  bool loaded = false;
  Group group = Group::kConstants;
  uint64_t offset = 0;  // in the mapping
};

struct Symbol {
  std::string_view name;
  bool defined = false;
  bool global = false;
  uint64_t address = 0;
  // Entries in our tables, made when a relocation asks for them.
  int64_t stub = -1;
  int64_t slot = -1;
};

class Mapping final : public LoadedObject {
 public:
  explicit Mapping(size_t bytes) : size_(bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw CompilationError(str_cat("no memory for code: ", std::strerror(errno)));
    base_ = static_cast<std::byte*>(memory);
  }
  ~Mapping() override { munmap(base_, size_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  void* find(std::string_view symbol) const override {
    const auto found = symbols_.find(symbol);
    return found == symbols_.end() ? nullptr : found->second;
  }
  size_t size() const override { return size_; }
  const std::byte* data() const override { return base_; }

  std::byte* base() const { return base_; }
  void define(std::string_view name, void* address) { symbols_.emplace(name, address); }

  void protect(uint64_t offset, uint64_t bytes, int protection) {
    if (bytes == 0) return;
    if (mprotect(base_ + offset, bytes, protection) != 0) {
      throw CompilationError(str_cat("memory cannot be made executable: ", std::strerror(errno)));
    }
  }

 private:
  std::byte* base_ = nullptr;
  size_t size_ = 0;
  std::map<std::string, void*, std::less<>> symbols_;
};

constexpr uint64_t kMaxObjectBytes = uint64_t{1} << 30;
constexpr uint64_t kStubBytes = 16;
constexpr uint64_t kSlotBytes = 8;

uint64_t align_up(uint64_t value, uint64_t align) { return (value + align - 1) / align * align; }

#if defined(__x86_64__)
constexpr uint16_t kHostMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kHostMachine = EM_AARCH64;
#else
constexpr uint16_t kHostMachine = EM_NONE;
#endif

/// One link of one object.
class Linker {
 public:
  Linker(std::string_view elf, const SymbolResolver& resolver) : file_(elf), resolver_(resolver) {}

  std::shared_ptr<LoadedObject> run(bool foreign) {
    read_header(foreign);
    read_sections();
    read_symbol_names();
    count_table_entries();
    layout();
    copy_sections();
    resolve_symbols();
    relocate();
    for (const Symbol& symbol : symbols_) {
      if (symbol.defined && symbol.global) map_->define(symbol.name, pointer(symbol.address));
    }
    if (!foreign) {
      __builtin___clear_cache(reinterpret_cast<char*>(map_->base()),
                              reinterpret_cast<char*>(map_->base() + group_start_[1]));
      map_->protect(group_start_[0], group_start_[1] - group_start_[0], PROT_READ | PROT_EXEC);
      map_->protect(group_start_[1], group_start_[2] - group_start_[1], PROT_READ);
    }
    return map_;
  }

 private:
  void read_header(bool foreign) {
    header_ = file_.read<Elf64_Ehdr>(0);
    if (std::memcmp(header_.e_ident, ELFMAG, SELFMAG) != 0) malformed("not an ELF file");
    if (header_.e_ident[EI_CLASS] != ELFCLASS64 || header_.e_ident[EI_DATA] != ELFDATA2LSB) {
      malformed("not 64-bit little-endian");
    }
    if (header_.e_type != ET_REL) malformed("not a relocatable object");
    if (header_.e_machine != EM_X86_64 && header_.e_machine != EM_AARCH64) malformed("unknown machine");
    if (!foreign && header_.e_machine != kHostMachine) malformed("made for another machine");
    if (header_.e_shentsize != sizeof(Elf64_Shdr)) malformed("section headers of another size");
    if (header_.e_shnum == 0 || header_.e_shstrndx >= header_.e_shnum) malformed("no section names");
  }

  void read_sections() {
    sections_.resize(header_.e_shnum);
    for (size_t i = 0; i < sections_.size(); ++i) {
      // e_shoff near 2^64 must not wrap around.
      if (header_.e_shoff > kMaxObjectBytes) malformed("section headers are outside of the file");
      sections_[i].header = file_.read<Elf64_Shdr>(header_.e_shoff + i * sizeof(Elf64_Shdr));
    }
    const std::string_view names = contents(sections_[header_.e_shstrndx]);
    for (Section& section : sections_) {
      const Elf64_Shdr& header = section.header;
      section.name = File::string(names, header.sh_name);
      if (header.sh_type == SHT_NULL || (header.sh_flags & SHF_ALLOC) == 0) continue;
      // Kernels throw nothing, so nobody unwinds through them.
      if (section.name == ".eh_frame") continue;
      if ((header.sh_flags & SHF_TLS) != 0) malformed("thread-local data is not supported");
      if (header.sh_size > kMaxObjectBytes) malformed("a section is too large");
      if (header.sh_addralign > 4096 || (header.sh_addralign != 0 && !std::has_single_bit(header.sh_addralign))) {
        malformed("strange alignment of a section");
      }
      section.loaded = true;
      section.group = (header.sh_flags & SHF_EXECINSTR) != 0 ? Group::kCode
                      : (header.sh_flags & SHF_WRITE) != 0   ? Group::kData
                                                             : Group::kConstants;
    }
  }

  std::string_view contents(const Section& section) const {
    if (section.header.sh_type == SHT_NOBITS) return {};
    return file_.range(section.header.sh_offset, section.header.sh_size);
  }

  const Section& section(uint64_t index) const {
    if (index >= sections_.size()) malformed("a section number is too large");
    return sections_[index];
  }

  void read_symbol_names() {
    for (const Section& table : sections_) {
      if (table.header.sh_type != SHT_SYMTAB) continue;
      if (!symbols_.empty()) malformed("two symbol tables");
      if (table.header.sh_entsize != sizeof(Elf64_Sym)) malformed("symbols of another size");
      const std::string_view bytes = contents(table);
      const std::string_view names = contents(section(table.header.sh_link));
      for (size_t offset = 0; offset + sizeof(Elf64_Sym) <= bytes.size(); offset += sizeof(Elf64_Sym)) {
        Elf64_Sym raw;
        std::memcpy(&raw, bytes.data() + offset, sizeof(raw));
        raw_symbols_.push_back(raw);
        Symbol symbol;
        symbol.name = File::string(names, raw.st_name);
        symbol.global = ELF64_ST_BIND(raw.st_info) != STB_LOCAL;
        symbols_.push_back(symbol);
      }
    }
  }

  /// fn(relocation, the section it changes, its symbol) for all relocations of loaded sections.
  template <typename Fn>
  void for_each_relocation(Fn&& fn) {
    for (const Section& table : sections_) {
      if (table.header.sh_type == SHT_REL && section(table.header.sh_info).loaded) malformed("REL relocations");
      if (table.header.sh_type != SHT_RELA) continue;
      const Section& target = section(table.header.sh_info);
      if (!target.loaded) continue;
      if (table.header.sh_entsize != sizeof(Elf64_Rela)) malformed("relocations of another size");
      const std::string_view bytes = contents(table);
      for (size_t offset = 0; offset + sizeof(Elf64_Rela) <= bytes.size(); offset += sizeof(Elf64_Rela)) {
        Elf64_Rela relocation;
        std::memcpy(&relocation, bytes.data() + offset, sizeof(relocation));
        const uint64_t index = ELF64_R_SYM(relocation.r_info);
        if (index >= symbols_.size()) malformed("a relocation names no symbol");
        fn(relocation, target, symbols_[index]);
      }
    }
  }

  static bool needs_stub(uint16_t machine, uint32_t type) {
    if (machine == EM_X86_64) return type == R_X86_64_PLT32;
    return type == R_AARCH64_CALL26 || type == R_AARCH64_JUMP26;
  }

  static bool needs_slot(uint16_t machine, uint32_t type) {
    if (machine == EM_X86_64) {
      return type == R_X86_64_GOTPCREL || type == R_X86_64_GOTPCRELX || type == R_X86_64_REX_GOTPCRELX;
    }
    return type == R_AARCH64_ADR_GOT_PAGE || type == R_AARCH64_LD64_GOT_LO12_NC;
  }

  void count_table_entries() {
    for_each_relocation([&](const Elf64_Rela& relocation, const Section&, Symbol& symbol) {
      const auto type = static_cast<uint32_t>(ELF64_R_TYPE(relocation.r_info));
      const size_t index = static_cast<size_t>(&symbol - symbols_.data());
      const bool undefined = raw_symbols_[index].st_shndx == SHN_UNDEF;
      if (undefined && needs_stub(header_.e_machine, type) && symbol.stub < 0) symbol.stub = stubs_++;
      if (needs_slot(header_.e_machine, type) && symbol.slot < 0) symbol.slot = slots_++;
    });
  }

  /// Places the sections, the stubs (after the code) and the address table (after the constants).
  void layout() {
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    uint64_t at = 0;
    for (int g = 0; g < kNumGroups; ++g) {
      group_start_[g] = at;
      for (Section& section : sections_) {
        if (!section.loaded || static_cast<int>(section.group) != g) continue;
        at = align_up(at, std::max<uint64_t>(section.header.sh_addralign, 1));
        section.offset = at;
        at += section.header.sh_size;
        if (at > kMaxObjectBytes) malformed("it is too large");
      }
      if (static_cast<Group>(g) == Group::kCode) {
        stub_start_ = align_up(at, kStubBytes);
        at = stub_start_ + static_cast<uint64_t>(stubs_) * kStubBytes;
      } else if (static_cast<Group>(g) == Group::kConstants) {
        slot_start_ = align_up(at, kSlotBytes);
        at = slot_start_ + static_cast<uint64_t>(slots_) * kSlotBytes;
      }
      at = align_up(at, page);
    }
    map_ = std::make_shared<Mapping>(std::max(at, page));
  }

  void copy_sections() {
    for (const Section& section : sections_) {
      if (!section.loaded) continue;
      const std::string_view bytes = contents(section);
      if (!bytes.empty()) std::memcpy(map_->base() + section.offset, bytes.data(), bytes.size());
    }
  }

  uint64_t base() const { return reinterpret_cast<uint64_t>(map_->base()); }
  void* pointer(uint64_t address) const { return map_->base() + (address - base()); }

  void resolve_symbols() {
    for (size_t i = 0; i < symbols_.size(); ++i) {
      const Elf64_Sym& raw = raw_symbols_[i];
      Symbol& symbol = symbols_[i];
      if (raw.st_shndx == SHN_UNDEF) continue;  // at its first use
      if (raw.st_shndx == SHN_ABS) {
        if (ELF64_ST_TYPE(raw.st_info) != STT_FILE && symbol.global) malformed("absolute symbols are not supported");
        continue;
      }
      if (raw.st_shndx >= SHN_LORESERVE) malformed("common symbols are not supported");
      const Section& home = section(raw.st_shndx);
      if (!home.loaded) continue;
      if (raw.st_value > home.header.sh_size) malformed("a symbol is outside of its section");
      symbol.defined = true;
      symbol.address = base() + home.offset + raw.st_value;
    }
  }

  uint64_t address_of(Symbol& symbol) {
    if (symbol.defined || symbol.address != 0) return symbol.address;
    if (symbol.name.empty()) malformed("a relocation refers to something that is not loaded");
    void* found = resolver_(symbol.name);
    if (found == nullptr) throw CompilationError(str_cat("generated code needs the unknown function ", symbol.name));
    symbol.address = reinterpret_cast<uint64_t>(found);
    return symbol.address;
  }

  void put_bytes(uint64_t offset, const void* bytes, size_t size) { std::memcpy(map_->base() + offset, bytes, size); }

  /// Address of a jump to the symbol that is near the code.
  uint64_t stub_of(Symbol& symbol) {
    const uint64_t offset = stub_start_ + static_cast<uint64_t>(symbol.stub) * kStubBytes;
    const uint64_t target = address_of(symbol);
    if (header_.e_machine == EM_X86_64) {
      static constexpr unsigned char kJump[8] = {0xff, 0x25, 2, 0, 0, 0, 0x0f, 0x0b};  // jmp *2(%rip); ud2; address
      put_bytes(offset, kJump, sizeof(kJump));
    } else {
      static constexpr uint32_t kJump[2] = {0x58000050, 0xd61f0200};  // ldr x16, .+8; br x16; address
      put_bytes(offset, kJump, sizeof(kJump));
    }
    put_bytes(offset + 8, &target, sizeof(target));
    return base() + offset;
  }

  /// Address of a table entry that holds the symbol's address.
  uint64_t slot_of(Symbol& symbol) {
    const uint64_t offset = slot_start_ + static_cast<uint64_t>(symbol.slot) * kSlotBytes;
    const uint64_t target = address_of(symbol);
    put_bytes(offset, &target, sizeof(target));
    return base() + offset;
  }

  void relocate() {
    for_each_relocation([&](const Elf64_Rela& relocation, const Section& target, Symbol& symbol) {
      Place place{*this, relocation, target};
      const auto type = static_cast<uint32_t>(ELF64_R_TYPE(relocation.r_info));
      if (header_.e_machine == EM_X86_64) {
        relocate_x86_64(type, place, symbol);
      } else {
        relocate_aarch64(type, place, symbol);
      }
    });
  }

  /// The bytes that one relocation changes.
  struct Place {
    Place(Linker& linker, const Elf64_Rela& relocation, const Section& target)
        : linker_(linker), section_(target), offset_(relocation.r_offset), addend(relocation.r_addend) {}

    uint64_t address() const { return linker_.base() + section_.offset + offset_; }

    template <typename T>
    std::byte* bytes() const {
      const uint64_t size = section_.header.sh_size;
      if (offset_ > size || sizeof(T) > size - offset_) malformed("a relocation is outside of its section");
      return linker_.map_->base() + section_.offset + offset_;
    }
    template <typename T>
    void write(T value) const {
      std::memcpy(bytes<T>(), &value, sizeof(T));
    }
    uint32_t instruction() const {
      uint32_t word;
      std::memcpy(&word, bytes<uint32_t>(), sizeof(word));
      return word;
    }
    /// S + A - P as a signed 32-bit field.
    void write_relative32(uint64_t target) const {
      const auto distance = static_cast<int64_t>(target + static_cast<uint64_t>(addend) - address());
      if (distance != static_cast<int32_t>(distance)) malformed("a relative address is too far");
      write(static_cast<int32_t>(distance));
    }

   private:
    Linker& linker_;
    const Section& section_;
    uint64_t offset_;

   public:
    int64_t addend;
  };

  void relocate_x86_64(uint32_t type, const Place& place, Symbol& symbol) {
    const auto absolute = [&] { return address_of(symbol) + static_cast<uint64_t>(place.addend); };
    switch (type) {
      case R_X86_64_NONE: return;
      case R_X86_64_64: return place.write(absolute());
      case R_X86_64_PC64: return place.write(absolute() - place.address());
      case R_X86_64_32: {
        const uint64_t value = absolute();
        if (value != static_cast<uint32_t>(value)) malformed("a 32-bit address is too large");
        return place.write(static_cast<uint32_t>(value));
      }
      case R_X86_64_32S: {
        const auto value = static_cast<int64_t>(absolute());
        if (value != static_cast<int32_t>(value)) malformed("a 32-bit address is too large");
        return place.write(static_cast<int32_t>(value));
      }
      case R_X86_64_PC32: return place.write_relative32(address_of(symbol));
      case R_X86_64_PLT32: return place.write_relative32(symbol.stub >= 0 ? stub_of(symbol) : address_of(symbol));
      case R_X86_64_GOTPCREL:
      case R_X86_64_GOTPCRELX:
      case R_X86_64_REX_GOTPCRELX: return place.write_relative32(slot_of(symbol));
      default: malformed(str_cat("x86-64 relocation ", type, " is not supported"));
    }
  }

  void relocate_aarch64(uint32_t type, const Place& place, Symbol& symbol) {
    const auto absolute = [&] { return address_of(symbol) + static_cast<uint64_t>(place.addend); };
    switch (type) {
      case R_AARCH64_NONE: return;
      case R_AARCH64_ABS64: return place.write(absolute());
      case R_AARCH64_PREL64: return place.write(absolute() - place.address());
      case R_AARCH64_PREL32: return place.write_relative32(address_of(symbol));
      case R_AARCH64_CALL26:
      case R_AARCH64_JUMP26: {
        const uint64_t to =
            (symbol.stub >= 0 ? stub_of(symbol) : address_of(symbol)) + static_cast<uint64_t>(place.addend);
        const auto distance = static_cast<int64_t>(to - place.address());
        if ((distance & 3) != 0 || distance >= (int64_t{1} << 27) || distance < -(int64_t{1} << 27)) {
          malformed("a branch is too far");
        }
        return place.write((place.instruction() & 0xfc000000u) | (static_cast<uint32_t>(distance >> 2) & 0x03ffffffu));
      }
      case R_AARCH64_ADR_PREL_PG_HI21: return write_page(place, absolute());
      case R_AARCH64_ADR_GOT_PAGE: return write_page(place, slot_of(symbol) + static_cast<uint64_t>(place.addend));
      case R_AARCH64_ADD_ABS_LO12_NC:
      case R_AARCH64_LDST8_ABS_LO12_NC: return write_low12(place, absolute(), 0);
      case R_AARCH64_LDST16_ABS_LO12_NC: return write_low12(place, absolute(), 1);
      case R_AARCH64_LDST32_ABS_LO12_NC: return write_low12(place, absolute(), 2);
      case R_AARCH64_LDST64_ABS_LO12_NC: return write_low12(place, absolute(), 3);
      case R_AARCH64_LDST128_ABS_LO12_NC: return write_low12(place, absolute(), 4);
      case R_AARCH64_LD64_GOT_LO12_NC:
        return write_low12(place, slot_of(symbol) + static_cast<uint64_t>(place.addend), 3);
      default: malformed(str_cat("AArch64 relocation ", type, " is not supported"));
    }
  }

  /// The page distance of adrp: 21 bits, two of them in the instruction's upper part.
  static void write_page(const Place& place, uint64_t target) {
    const auto pages = static_cast<int64_t>((target & ~uint64_t{0xfff}) - (place.address() & ~uint64_t{0xfff})) >> 12;
    if (pages >= (int64_t{1} << 20) || pages < -(int64_t{1} << 20)) malformed("a page is too far");
    const auto bits = static_cast<uint32_t>(pages);
    place.write((place.instruction() & 0x9f00001fu) | ((bits & 3u) << 29) | (((bits >> 2) & 0x7ffffu) << 5));
  }

  /// The offset in a page, in units of the access's size.
  static void write_low12(const Place& place, uint64_t target, int shift) {
    const auto low = static_cast<uint32_t>(target & 0xfff);
    if ((low & ((1u << shift) - 1)) != 0) malformed("an address is not aligned");
    place.write((place.instruction() & ~(0xfffu << 10)) | ((low >> shift) << 10));
  }

  const File file_;
  const SymbolResolver& resolver_;
  Elf64_Ehdr header_{};
  std::vector<Section> sections_;
  std::vector<Elf64_Sym> raw_symbols_;
  std::vector<Symbol> symbols_;
  std::shared_ptr<Mapping> map_;
  uint64_t group_start_[kNumGroups] = {};
  int64_t stubs_ = 0;
  int64_t slots_ = 0;
  uint64_t stub_start_ = 0;
  uint64_t slot_start_ = 0;
};

}  // namespace

std::shared_ptr<LoadedObject> load_object(std::string_view elf, const SymbolResolver& resolver) {
  return Linker(elf, resolver).run(false);
}

std::shared_ptr<LoadedObject> link_foreign_object(std::string_view elf, const SymbolResolver& resolver) {
  return Linker(elf, resolver).run(true);
}

}  // namespace tatara
