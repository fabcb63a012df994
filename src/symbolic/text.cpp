// Text of expressions: Python's syntax and precedence, so that the text also is valid Python.
#include <charconv>

#include "symbolic/impl.h"

namespace tatara {
namespace {

// Binding strengths, as in Python.
enum Strength { kOrLevel, kAndLevel, kNotLevel, kCompareLevel, kSumLevel, kProductLevel, kUnaryLevel, kAtomLevel };

class Printer {
 public:
  std::string out;

  void print(NodePtr e, int needed) {
    const int own = strength(e);
    const bool parens = own < needed;
    if (parens) out += '(';
    print_bare(e);
    if (parens) out += ')';
  }

 private:
  static int strength(NodePtr e) {
    switch (e->kind) {
      case ExprKind::kConst: return e->value < 0 ? kUnaryLevel : kAtomLevel;
      case ExprKind::kSymbol:
      case ExprKind::kMin:
      case ExprKind::kMax: return kAtomLevel;
      case ExprKind::kAdd: return kSumLevel;
      case ExprKind::kMul: return e->value == -1 && Atoms(e->base).size() == 1 ? kUnaryLevel : kProductLevel;
      case ExprKind::kFloorDiv:
      case ExprKind::kMod: return kProductLevel;
      case ExprKind::kEq:
      case ExprKind::kNe:
      case ExprKind::kLt:
      case ExprKind::kLe: return kCompareLevel;
      case ExprKind::kAnd: return kAndLevel;
      case ExprKind::kOr: return kOrLevel;
      case ExprKind::kNot: return kNotLevel;
    }
    TATARA_UNREACHABLE("ExprKind ", e->kind);
  }

  void binary(NodePtr e, const char* op, int left, int right) {
    print(e->operand(0), left);
    out += op;
    print(e->operand(1), right);
  }

  void list(NodePtr e, const char* separator, int needed) {
    for (size_t i = 0; i < e->num_operands; ++i) {
      if (i > 0) out += separator;
      print(e->operand(i), needed);
    }
  }

  /// coef * base without the sign of coef.
  void product(uint64_t magnitude, NodePtr base) {
    const Atoms atoms(base);
    if (magnitude != 1) {
      str_append(out, magnitude);
      out += '*';
    }
    const bool alone = magnitude == 1 && atoms.size() == 1;
    for (size_t i = 0; i < atoms.size(); ++i) {
      if (i > 0) out += '*';
      print(atoms[i], alone ? kProductLevel : kAtomLevel);
    }
  }

  static uint64_t magnitude(int64_t value) {
    return value < 0 ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
  }

  void print_bare(NodePtr e) {
    switch (e->kind) {
      case ExprKind::kConst: str_append(out, e->value); return;
      case ExprKind::kSymbol: out += e->ctx->symbol_name(Expr(e)); return;
      case ExprKind::kAdd:
        for (size_t i = 0; i < e->num_operands; ++i) {
          const Term term = term_of(e->operand(i));
          if (i == 0) {
            print(e->operand(0), kSumLevel);
            continue;
          }
          out += term.coef < 0 ? " - " : " + ";
          if (term.base == nullptr) {
            str_append(out, magnitude(term.coef));
          } else {
            product(magnitude(term.coef), term.base);
          }
        }
        return;
      case ExprKind::kMul:
        if (e->value < 0) out += '-';
        if (e->value == -1 && Atoms(e->base).size() == 1) {
          print(e->base, kAtomLevel);  // -(x // 4), as -x // 4 would be (-x) // 4
        } else {
          product(magnitude(e->value), e->base);
        }
        return;
      case ExprKind::kFloorDiv: binary(e, " // ", kProductLevel, kAtomLevel); return;
      case ExprKind::kMod: binary(e, " % ", kProductLevel, kAtomLevel); return;
      case ExprKind::kMin:
      case ExprKind::kMax:
        out += e->kind == ExprKind::kMin ? "min(" : "max(";
        list(e, ", ", kOrLevel);
        out += ')';
        return;
      case ExprKind::kEq: binary(e, " == ", kSumLevel, kSumLevel); return;
      case ExprKind::kNe: binary(e, " != ", kSumLevel, kSumLevel); return;
      case ExprKind::kLt: binary(e, " < ", kSumLevel, kSumLevel); return;
      case ExprKind::kLe: binary(e, " <= ", kSumLevel, kSumLevel); return;
      case ExprKind::kAnd: list(e, " and ", kNotLevel); return;
      case ExprKind::kOr: list(e, " or ", kAndLevel); return;
      case ExprKind::kNot:
        out += "not ";
        print(e->operand(0), kNotLevel);
        return;
    }
    TATARA_UNREACHABLE("ExprKind ", e->kind);
  }
};

class Parser {
 public:
  Parser(ExprContext& ctx, std::string_view text) : ctx_(ctx), text_(text) {}

  Expr run() {
    const Expr e = disjunction();
    skip();
    if (at_ != text_.size()) fail("unexpected text");
    return e;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw InvalidArgument(str_cat("expression \"", text_, "\": ", what, " at position ", at_));
  }

  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }

  static bool is_name_char(char c) { return kNotInNames.find(c) == std::string_view::npos; }

  bool take(std::string_view symbol) {
    skip();
    if (!text_.substr(at_).starts_with(symbol)) return false;
    at_ += symbol.size();
    return true;
  }

  bool take_word(std::string_view word) {
    skip();
    if (!text_.substr(at_).starts_with(word)) return false;
    const size_t end = at_ + word.size();
    if (end < text_.size() && is_name_char(text_[end])) return false;
    at_ = end;
    return true;
  }

  Expr disjunction() {
    if (++depth_ > 1000) fail("nested too deeply");
    Expr e = conjunction();
    while (take_word("or")) e = ctx_.logical_or(e, conjunction());
    --depth_;
    return e;
  }
  Expr conjunction() {
    Expr e = negation();
    while (take_word("and")) e = ctx_.logical_and(e, negation());
    return e;
  }
  Expr negation() {
    if (!take_word("not")) return comparison();
    if (++depth_ > 1000) fail("nested too deeply");
    const Expr e = ctx_.logical_not(negation());
    --depth_;
    return e;
  }
  Expr comparison() {
    const Expr a = additive();
    if (take("<=")) return ctx_.le(a, additive());
    if (take(">=")) return ctx_.le(additive(), a);
    if (take("==")) return ctx_.eq(a, additive());
    if (take("!=")) return ctx_.ne(a, additive());
    if (take("<")) return ctx_.lt(a, additive());
    if (take(">")) return ctx_.lt(additive(), a);
    return a;
  }
  Expr additive() {
    Expr e = multiplicative();
    while (true) {
      if (take("+")) {
        e = ctx_.add(e, multiplicative());
      } else if (take("-")) {
        e = ctx_.sub(e, multiplicative());
      } else {
        return e;
      }
    }
  }
  Expr multiplicative() {
    Expr e = unary();
    while (true) {
      if (take("//")) {
        e = ctx_.floordiv(e, unary());
      } else if (take("*")) {
        e = ctx_.mul(e, unary());
      } else if (take("%")) {
        e = ctx_.mod(e, unary());
      } else {
        return e;
      }
    }
  }
  Expr unary() {
    skip();
    if (at_ < text_.size() && text_[at_] == '-') {
      ++at_;
      skip();
      if (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') return number(true);
      if (++depth_ > 1000) fail("nested too deeply");
      const Expr e = ctx_.neg(unary());
      --depth_;
      return e;
    }
    return primary();
  }
  Expr number(bool negative) {
    const size_t start = at_;
    std::string digits(negative ? "-" : "");
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') digits += text_[at_++];
    int64_t value = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (result.ec != std::errc() || (at_ < text_.size() && is_name_char(text_[at_]))) {
      at_ = start;
      fail("not a 64-bit integer");
    }
    return ctx_.constant(value);
  }
  Expr primary() {
    skip();
    if (at_ == text_.size()) fail("an operand is missing");
    const char c = text_[at_];
    if (c >= '0' && c <= '9') return number(false);
    if (take("(")) {
      const Expr e = disjunction();
      if (!take(")")) fail("\")\" is missing");
      return e;
    }
    const size_t start = at_;
    while (at_ < text_.size() && is_name_char(text_[at_])) ++at_;
    const std::string_view name = text_.substr(start, at_ - start);
    if (name.empty()) fail("an operand is missing");
    if (name == "True" || name == "False") return ctx_.constant(name == "True" ? 1 : 0);
    if ((name == "min" || name == "max") && take("(")) {
      Expr e = disjunction();
      while (take(",")) e = name == "min" ? ctx_.min(e, disjunction()) : ctx_.max(e, disjunction());
      if (!take(")")) fail("\")\" is missing");
      return e;
    }
    if (name == "and" || name == "or" || name == "not" || name == "min" || name == "max") {
      at_ = start;
      fail("an operand is missing");
    }
    return ctx_.symbol(name);
  }

  ExprContext& ctx_;
  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

const char* operator_text(ExprKind op) {
  switch (op) {
    case ExprKind::kFloorDiv: return " // ";
    case ExprKind::kMod: return " % ";
    case ExprKind::kAdd: return " + ";
    case ExprKind::kEq: return " == ";
    case ExprKind::kLe: return " <= ";
    case ExprKind::kConst:
    case ExprKind::kSymbol:
    case ExprKind::kMul:
    case ExprKind::kMin:
    case ExprKind::kMax:
    case ExprKind::kNe:
    case ExprKind::kLt:
    case ExprKind::kAnd:
    case ExprKind::kOr:
    case ExprKind::kNot: break;
  }
  TATARA_UNREACHABLE("not an operator of a rule: ", op);
}

}  // namespace

std::string Expr::str() const {
  if (!valid()) return "<invalid>";
  Printer printer;
  printer.print(node_, kOrLevel);
  return std::move(printer.out);
}

Expr ExprContext::parse(std::string_view text) { return Parser(*this, text).run(); }

void ExprContext::Impl::report(Rule rule, ExprKind op, NodePtr a, NodePtr b, NodePtr after) {
  ExprRewrite rewrite;
  rewrite.rule = rule_name(rule);
  const std::string left = Expr(a).str();
  if (op == ExprKind::kMin || op == ExprKind::kMax) {
    rewrite.before = str_cat(op == ExprKind::kMin ? "min(" : "max(", left, ", ", Expr(b).str(), ")");
  } else if (op == ExprKind::kLe && b == nullptr) {  // a rule on d <= 0
    rewrite.before = str_cat("(", left, ") <= 0");
    rewrite.after = str_cat("(", Expr(after).str(), ") <= 0");
  } else if (b == nullptr) {
    rewrite.before = left;
  } else {
    rewrite.before = str_cat("(", left, ")", operator_text(op), "(", Expr(b).str(), ")");
  }
  if (rewrite.after.empty()) rewrite.after = Expr(after).str();
  observer(rewrite);
}

}  // namespace tatara
