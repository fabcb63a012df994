#include "schedule/plan_io.h"

#include <cstring>
#include <string>
#include <type_traits>

#include "schedule/plan_fields.h"
#include "support/error.h"
#include "support/utf8.h"

namespace tatara {
namespace {

/// Kinds of stored expressions.
enum class Stored : uint8_t { kNone, kConstant };

// A switch without a default: an enumerator that is added must be added here.
bool is_one(BufferHome home) {
  switch (home) {
    case BufferHome::kInput:
    case BufferHome::kOutput:
    case BufferHome::kArena:
    case BufferHome::kConstant:
    case BufferHome::kHost: return true;
  }
  return false;
}

bool is_one(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kCpu:
    case DeviceKind::kCuda:
    case DeviceKind::kMeta: return true;
  }
  return false;
}

bool is_one(OutputAlias::Kind kind) {
  switch (kind) {
    case OutputAlias::Kind::kFresh:
    case OutputAlias::Kind::kInput:
    case OutputAlias::Kind::kOutput: return true;
  }
  return false;
}

bool is_one(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kUInt16:
    case DType::kInt16:
    case DType::kUInt32:
    case DType::kInt32:
    case DType::kUInt64:
    case DType::kInt64:
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kFloat32:
    case DType::kFloat64:
    case DType::kComplex32:
    case DType::kComplex64:
    case DType::kComplex128:
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E5M2: return true;
  }
  return false;
}

class Writer {
 public:
  static constexpr bool kReading = false;

  template <typename T>
    requires std::is_arithmetic_v<T>
  void number(const T& value) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
    out_.insert(out_.end(), bytes, bytes + sizeof(T));
  }
  template <typename E>
    requires std::is_enum_v<E>
  void choice(const E& value) {
    number(static_cast<std::underlying_type_t<E>>(value));
  }
  void flag(const bool& value) { number(static_cast<uint8_t>(value ? 1 : 0)); }
  void index(const int& value, plan_fields::Of, bool) { number(value); }
  void text(const std::string& value) {
    number(static_cast<uint64_t>(value.size()));
    out_.insert(out_.end(), value.begin(), value.end());
  }
  void expr(const Expr& value) {
    choice(value.valid() ? Stored::kConstant : Stored::kNone);
    if (!value.valid()) return;
    TATARA_CHECK(value.is_const(), "a plan with symbolic sizes is not kept");
    number(value.const_value());
  }
  uint64_t count(uint64_t n) {
    number(n);
    return n;
  }
  void enter(const HostCall&) {}
  std::vector<uint8_t> take() { return std::move(out_); }

 private:
  std::vector<uint8_t> out_;
};

class Reader {
 public:
  static constexpr bool kReading = true;
  Reader(std::span<const uint8_t> bytes, ExprContext& ctx) : bytes_(bytes), ctx_(ctx) {}

  template <typename T>
    requires std::is_arithmetic_v<T>
  void number(T& value) {
    need(sizeof(T));
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
  }
  template <typename E>
    requires std::is_enum_v<E>
  void choice(E& value) {
    std::underlying_type_t<E> read{};
    number(read);
    value = static_cast<E>(read);
    if (!is_one(value)) throw CompilationError("a cached plan has an unknown enumerator");
  }
  void flag(bool& value) {
    uint8_t read = 0;
    number(read);
    if (read > 1) throw CompilationError("a cached plan has a flag that is neither true nor false");
    value = read == 1;
  }
  void index(int& value, plan_fields::Of, bool) { number(value); }
  void text(std::string& value) {
    const uint64_t size = count(0);
    value.assign(reinterpret_cast<const char*>(bytes_.data() + at_), size);
    at_ += size;
    if (!is_utf8(value)) throw CompilationError("a cached plan has a text that is none");
  }
  void expr(Expr& value) {
    uint8_t kind = 0;
    number(kind);
    if (kind > static_cast<uint8_t>(Stored::kConstant)) throw CompilationError("a cached plan has an unknown size");
    value = Expr();
    if (kind == static_cast<uint8_t>(Stored::kNone)) return;
    int64_t constant = 0;
    number(constant);
    value = ctx_.constant(constant);
  }
  uint64_t count(uint64_t) {
    uint64_t n = 0;
    number(n);
    // Every element takes at least one byte.
    need(n);
    return n;
  }
  void enter(const HostCall&) {}
  bool at_end() const { return at_ == bytes_.size(); }

 private:
  void need(uint64_t size) const {
    if (size > bytes_.size() - at_) throw CompilationError("a cached plan is truncated");
  }
  std::span<const uint8_t> bytes_;
  ExprContext& ctx_;
  size_t at_ = 0;
};

}  // namespace

std::vector<uint8_t> encode_plan(const Plan& plan) {
  Writer writer;
  Plan copy = plan;  // the shared description takes mutable references
  plan_fields::fields(writer, copy);
  return writer.take();
}

Plan decode_plan(std::span<const uint8_t> bytes) {
  Plan plan;
  plan.ctx = std::make_shared<ExprContext>();
  Reader reader(bytes, *plan.ctx);
  plan_fields::fields(reader, plan);
  if (!reader.at_end()) throw CompilationError("a cached plan has trailing bytes");
  return plan;
}

}  // namespace tatara
