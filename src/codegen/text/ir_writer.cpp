#include "codegen/text/ir_writer.h"

#include <algorithm>
#include <vector>

namespace tatara::codegen {

namespace {

std::string number(int n) { return std::to_string(n); }

const char* comma(size_t i) { return i > 0 ? ", " : ""; }

}  // namespace

std::string text_of(const Declarations& declarations) {
  std::vector<std::string> sorted(declarations.begin(), declarations.end());
  std::sort(sorted.begin(), sorted.end());
  std::string text;
  for (const std::string& declaration : sorted) text += declaration + "\n";
  return text;
}

std::string IrWriter::assign(const std::string& instruction) {
  std::string r = fresh();
  line(r + " = " + instruction);
  return r;
}

void IrWriter::start_block(const std::string& name) {
  text_ += name + ":\n";
  block_ = name;
}

std::string IrWriter::apart(const std::function<void()>& write) {
  std::string outer;
  outer.swap(text_);
  write();
  outer.swap(text_);
  return outer;
}

std::string IrWriter::take() {
  std::string all;
  all.swap(text_);
  block_ = "entry";
  return all;
}

std::string IrWriter::splat(const std::string& scalar_type, const std::string& text) {
  const std::string type = vec_type(scalar_type);
  const std::string one = assign("insertelement " + type + " poison, " + scalar_type + " " + text + ", i64 0");
  return assign("shufflevector " + type + " " + one + ", " + type + " poison, " + vec_type("i32") + " zeroinitializer");
}

std::string IrWriter::shuffle(const std::string& element, int lanes, const std::string& a, const std::string& b,
                              std::span<const int> indices) {
  const std::string type = vector_of(lanes, element);
  std::string list;
  for (const int i : indices) list += (list.empty() ? "i32 " : ", i32 ") + number(i);
  return assign("shufflevector " + type + " " + a + ", " + type + " " + b + ", " +
                vector_of(static_cast<int>(indices.size()), "i32") + " <" + list + ">");
}

std::string IrWriter::binary(const char* op, const std::string& type, const std::string& a, const std::string& b) {
  return assign(std::string(op) + " " + type + " " + a + ", " + b);
}

std::string IrWriter::call(const std::string& function, const std::string& result, const std::string& arguments) {
  return assign("call " + result + " " + function + "(" + arguments + ")");
}

std::string IrWriter::select(const std::string& condition, const std::string& type, const std::string& a,
                             const std::string& b, bool vec) {
  return assign("select " + type_of("i1", vec) + " " + condition + ", " + type + " " + a + ", " + type + " " + b);
}

std::string IrWriter::intrinsic(const char* name, DType dtype, bool vec, std::span<const std::string> arguments) {
  const std::string type = type_of(llvm_type(dtype), vec);
  std::string suffix = dtype == DType::kFloat32 ? "f32" : dtype == DType::kFloat64 ? "f64" : llvm_type(dtype);
  if (vec) suffix = "v" + number(lanes_) + suffix;
  const std::string full = std::string("@llvm.") + name + "." + suffix;
  std::string types;
  std::string values;
  for (size_t i = 0; i < arguments.size(); ++i) {
    types += comma(i) + type;
    values += comma(i) + type + " " + arguments[i];
  }
  declare("declare " + type + " " + full + "(" + types + ")");
  return call(full, type, values);
}

std::string IrWriter::per_lane(const std::string& function, DType dtype, std::span<const Reg> operands, bool vec) {
  const std::string type = llvm_type(dtype);
  std::string types;
  for (size_t i = 0; i < operands.size(); ++i) types += comma(i) + type;
  declare("declare " + type + " @" + function + "(" + types + ")");
  if (!vec) {
    std::string arguments;
    for (size_t i = 0; i < operands.size(); ++i) arguments += comma(i) + type + " " + operands[i].text;
    return call("@" + function, type, arguments);
  }
  std::string result = "poison";
  std::vector<std::string> vectors;
  for (const Reg& operand : operands) vectors.push_back(as_vec(type, operand));
  for (int lane = 0; lane < lanes_; ++lane) {
    const std::string at = ", i64 " + number(lane);
    std::string arguments;
    for (size_t i = 0; i < operands.size(); ++i) {
      arguments += comma(i) + type + " " + assign("extractelement " + vec_type(type) + " " + vectors[i] + at);
    }
    const std::string one = call("@" + function, type, arguments);
    result = assign("insertelement " + vec_type(type) + " " + result + ", " + type + " " + one + at);
  }
  return result;
}

void IrWriter::when(const std::string& condition, const std::function<void()>& body) {
  const std::string then = label();
  const std::string done = label();
  branch(condition, then, done);
  start_block(then);
  body();
  jump(done);
  start_block(done);
}

}  // namespace tatara::codegen
