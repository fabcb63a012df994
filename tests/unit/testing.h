// A small subset of GoogleTest's interface: TEST, TEST_F, EXPECT_*, ASSERT_*, GTEST_SKIP. GoogleTest is not on PyPI and
// the project sets itself up from PyPI alone (docs/dependencies.md), so these few macros stand in for it.
//   tatara_unit_tests [--filter=text] [--list]     runs the tests whose "Suite.Name" contains the text ('*' may be used)
#pragma once

#include <cmath>
#include <concepts>
#include <cstring>
#include <exception>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace testing {

class Test {
 public:
  virtual ~Test() = default;
  virtual void SetUp() {}
  virtual void TearDown() {}
  virtual void TestBody() = 0;
};

using Factory = Test* (*)();
/// Called by static initialisers of the TEST macros. Returns a dummy.
bool add_test(const char* suite, const char* name, Factory make);
void record_failure(const char* file, int line, const std::string& message);
void record_skip(const std::string& message);
bool current_test_failed();

/// Collects the message of a failure, then records it. `return AssertHelper = Message()` works in void functions.
class Message {
 public:
  template <typename T>
  Message& operator<<(const T& value) {
    stream_ << value;
    return *this;
  }
  std::string str() const { return stream_.str(); }

 private:
  std::ostringstream stream_;
};

class Failure {
 public:
  Failure(const char* file, int line, std::string text) : file_(file), line_(line), text_(std::move(text)) {}
  void operator=(const Message& message) const {
    const std::string extra = message.str();
    record_failure(file_, line_, extra.empty() ? text_ : text_ + "\n    " + extra);
  }

 private:
  const char* file_;
  int line_;
  std::string text_;
};

struct Skip {
  void operator=(const Message& message) const { record_skip(message.str()); }
};

template <typename T>
std::string show(const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_same_v<T, std::nullptr_t>) {
    return "nullptr";
  } else if constexpr (std::is_same_v<T, char> || std::is_same_v<T, signed char> || std::is_same_v<T, unsigned char>) {
    return std::to_string(static_cast<int>(value));
  } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    return "\"" + std::string(std::string_view(value)) + "\"";
  } else if constexpr (std::is_enum_v<T>) {
    return std::to_string(static_cast<long long>(value));
  } else if constexpr (std::is_floating_point_v<T>) {
    std::ostringstream out;
    out.precision(17);
    out << value;
    return out.str();
  } else if constexpr (requires(std::ostringstream& out) { out << value; }) {
    std::ostringstream out;
    out << value;
    return out.str();
  } else if constexpr (requires { std::string(value.str()); }) {
    return value.str();
  } else if constexpr (requires { std::begin(value) != std::end(value); }) {
    std::string out = "{";
    const char* separator = "";
    for (const auto& item : value) {
      out += separator + show(item);
      separator = ", ";
    }
    return out + "}";
  } else if constexpr (requires {
                         value.has_value();
                         *value;
                       }) {
    return value.has_value() ? show(*value) : "nullopt";
  } else {
    return "(" + std::to_string(sizeof(T)) + "-byte object)";
  }
}

/// Nothing when the comparison holds, else the message. Signed and unsigned compare by value.
template <typename Op, typename A, typename B>
std::optional<std::string> compare(Op op, const char* symbol, const A& a, const B& b, const char* text_a,
                                   const char* text_b) {
  if (op(a, b)) return std::nullopt;
  return "expected " + std::string(text_a) + " " + symbol + " " + text_b + "\n    left:  " + show(a) +
         "\n    right: " + show(b);
}

template <typename T>
concept PlainInteger = std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, char>;

#define TATARA_TESTING_OP(name, op, cmp)                  \
  struct name {                                           \
    template <typename A, typename B>                     \
    bool operator()(const A& a, const B& b) const {       \
      if constexpr (PlainInteger<A> && PlainInteger<B>) { \
        return std::cmp(a, b);                            \
      } else {                                            \
        return static_cast<bool>(a op b);                 \
      }                                                   \
    }                                                     \
  };
TATARA_TESTING_OP(Eq, ==, cmp_equal)
TATARA_TESTING_OP(Ne, !=, cmp_not_equal)
TATARA_TESTING_OP(Lt, <, cmp_less)
TATARA_TESTING_OP(Le, <=, cmp_less_equal)
TATARA_TESTING_OP(Gt, >, cmp_greater)
TATARA_TESTING_OP(Ge, >=, cmp_greater_equal)
#undef TATARA_TESTING_OP

inline std::optional<std::string> check_bool(bool value, bool wanted, const char* text) {
  if (value == wanted) return std::nullopt;
  return "expected " + std::string(text) + " to be " + (wanted ? "true" : "false");
}

inline std::optional<std::string> check_near(double a, double b, double tolerance, const char* text_a,
                                             const char* text_b) {
  if (std::abs(a - b) <= tolerance) return std::nullopt;
  return "expected " + std::string(text_a) + " near " + text_b + "\n    left:  " + show(a) + "\n    right: " + show(b) +
         "\n    tolerance: " + show(tolerance);
}

/// Equal up to `ulps` units in the last place.
template <typename T>
std::optional<std::string> check_ulps(T a, T b, const char* text_a, const char* text_b) {
  T next = b;
  T previous = b;
  for (int i = 0; i < 4; ++i) {
    next = std::nextafter(next, static_cast<T>(INFINITY));
    previous = std::nextafter(previous, static_cast<T>(-INFINITY));
  }
  if (a == b || (a >= previous && a <= next)) return std::nullopt;
  return "expected " + std::string(text_a) + " within 4 ulp of " + text_b + "\n    left:  " + show(a) +
         "\n    right: " + show(b);
}

/// Runs fn and says how it ended when it did not throw an E.
template <typename E, typename Fn>
std::optional<std::string> check_throw(Fn&& fn, const char* text, const char* type) {
  try {
    fn();
  } catch (const E&) {
    return std::nullopt;
  } catch (const std::exception& other) {
    return std::string(text) + " threw another exception than " + type + ": " + other.what();
  } catch (...) {
    return std::string(text) + " threw something that is no std::exception";
  }
  return std::string(text) + " did not throw " + type;
}

template <typename Fn>
std::optional<std::string> check_no_throw(Fn&& fn, const char* text) {
  try {
    fn();
  } catch (const std::exception& error) {
    return std::string(text) + " threw: " + error.what();
  } catch (...) {
    return std::string(text) + " threw";
  }
  return std::nullopt;
}

}  // namespace testing

#define TATARA_TEST_(suite, name, parent)                                \
  class suite##_##name##_Test : public parent {                          \
   public:                                                               \
    void TestBody() override;                                            \
    static ::testing::Test* make() { return new suite##_##name##_Test; } \
  };                                                                     \
  [[maybe_unused]] static const bool suite##_##name##_added =            \
      ::testing::add_test(#suite, #name, &suite##_##name##_Test::make);  \
  void suite##_##name##_Test::TestBody()

#define TEST(suite, name) TATARA_TEST_(suite, name, ::testing::Test)
#define TEST_F(suite, name) TATARA_TEST_(suite, name, suite)

#define TATARA_EXPECT_(check)                                   \
  if (const auto tatara_problem_ = (check); !tatara_problem_) { \
  } else                                                        \
    ::testing::Failure(__FILE__, __LINE__, *tatara_problem_) = ::testing::Message()
#define TATARA_ASSERT_(check)                                   \
  if (const auto tatara_problem_ = (check); !tatara_problem_) { \
  } else                                                        \
    return ::testing::Failure(__FILE__, __LINE__, *tatara_problem_) = ::testing::Message()

#define TATARA_COMPARE_(op, symbol, a, b) ::testing::compare(::testing::op{}, symbol, a, b, #a, #b)
#define EXPECT_EQ(a, b) TATARA_EXPECT_(TATARA_COMPARE_(Eq, "==", a, b))
#define EXPECT_NE(a, b) TATARA_EXPECT_(TATARA_COMPARE_(Ne, "!=", a, b))
#define EXPECT_LT(a, b) TATARA_EXPECT_(TATARA_COMPARE_(Lt, "<", a, b))
#define EXPECT_LE(a, b) TATARA_EXPECT_(TATARA_COMPARE_(Le, "<=", a, b))
#define EXPECT_GT(a, b) TATARA_EXPECT_(TATARA_COMPARE_(Gt, ">", a, b))
#define EXPECT_GE(a, b) TATARA_EXPECT_(TATARA_COMPARE_(Ge, ">=", a, b))
#define ASSERT_EQ(a, b) TATARA_ASSERT_(TATARA_COMPARE_(Eq, "==", a, b))
#define ASSERT_NE(a, b) TATARA_ASSERT_(TATARA_COMPARE_(Ne, "!=", a, b))
#define ASSERT_LT(a, b) TATARA_ASSERT_(TATARA_COMPARE_(Lt, "<", a, b))
#define ASSERT_LE(a, b) TATARA_ASSERT_(TATARA_COMPARE_(Le, "<=", a, b))
#define ASSERT_GT(a, b) TATARA_ASSERT_(TATARA_COMPARE_(Gt, ">", a, b))
#define ASSERT_GE(a, b) TATARA_ASSERT_(TATARA_COMPARE_(Ge, ">=", a, b))

#define EXPECT_TRUE(a) TATARA_EXPECT_(::testing::check_bool(static_cast<bool>(a), true, #a))
#define EXPECT_FALSE(a) TATARA_EXPECT_(::testing::check_bool(static_cast<bool>(a), false, #a))
#define ASSERT_TRUE(a) TATARA_ASSERT_(::testing::check_bool(static_cast<bool>(a), true, #a))
#define ASSERT_FALSE(a) TATARA_ASSERT_(::testing::check_bool(static_cast<bool>(a), false, #a))

#define EXPECT_STREQ(a, b) EXPECT_EQ(std::string_view(a), std::string_view(b))
#define EXPECT_NEAR(a, b, tolerance) TATARA_EXPECT_(::testing::check_near(a, b, tolerance, #a, #b))
#define ASSERT_NEAR(a, b, tolerance) TATARA_ASSERT_(::testing::check_near(a, b, tolerance, #a, #b))
#define EXPECT_FLOAT_EQ(a, b) TATARA_EXPECT_(::testing::check_ulps<float>(a, b, #a, #b))
#define EXPECT_DOUBLE_EQ(a, b) TATARA_EXPECT_(::testing::check_ulps<double>(a, b, #a, #b))

#define EXPECT_THROW(statement, type) \
  TATARA_EXPECT_((::testing::check_throw<type>([&] { statement; }, #statement, #type)))
#define ASSERT_THROW(statement, type) \
  TATARA_ASSERT_((::testing::check_throw<type>([&] { statement; }, #statement, #type)))
#define EXPECT_NO_THROW(statement) TATARA_EXPECT_(::testing::check_no_throw([&] { statement; }, #statement))
#define ASSERT_NO_THROW(statement) TATARA_ASSERT_(::testing::check_no_throw([&] { statement; }, #statement))

#define ADD_FAILURE() ::testing::Failure(__FILE__, __LINE__, "failure") = ::testing::Message()
#define FAIL() return ::testing::Failure(__FILE__, __LINE__, "failure") = ::testing::Message()
#define SUCCEED() static_cast<void>(0)
#define GTEST_SKIP() return ::testing::Skip{} = ::testing::Message()
