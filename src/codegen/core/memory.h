// Loads and stores of single elements and of vectors. A complex element is (re, im) in memory and two registers.
#pragma once

#include <span>
#include <string>

#include "codegen/core/scalars.h"

namespace tatara::codegen {

class Memory {
 public:
  Memory(EmitContext& context, Scalars& scalars)
      : ir_(context.ir), scope_(context.scope), context_(context), scalars_(scalars) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  virtual ~Memory() = default;

  /// The address of the element at `index` (i64).
  std::string address(int buffer, const std::string& index);
  Reg load(DType dtype, const std::string& at, const std::string& flags = {});
  void store(DType dtype, const std::string& at, const Reg& value);
  /// Lanes outside of the mask (a vector of i1; "" for all lanes) read nothing and get 0.
  Reg load_vector(int buffer, Expr where, const std::string& mask);
  void store_vector(int buffer, Expr where, const Reg& value, const std::string& mask);
  /// The new value of an element after a store of this mode. 16-bit and 8-bit floats are combined in float32.
  Reg updated(loops::StoreMode mode, DType dtype, const Reg& old, const Reg& value, bool vec);
  void update(const loops::Store& store, const std::string& at, const Reg& value);

  /// The value of a buffer of kind kValue, whose one element is a kernel parameter.
  virtual Reg passed_value(int buffer);
  /// The metadata suffix of loads from a buffer, or "".
  virtual std::string load_flags(int buffer) const = 0;

 protected:
  /// Consecutive elements in memory.
  struct Run {
    std::string element;  // type
    int lanes;
    std::string at;
    std::string align;
    std::string type() const { return vector_of(lanes, element); }
    std::string bits() const { return vector_of(lanes, "i1"); }
  };
  /// A vector of elements of memory_type().
  virtual Reg load_parts(int buffer, Expr where, const std::string& mask);
  /// To a place for each lane.
  virtual void store_scattered(int buffer, Expr where, const Reg& value, const std::string& mask);
  virtual std::string load_masked(const Run& run, const std::string& mask, const std::string& flags) = 0;
  /// Called after a store to consecutive addresses.
  virtual void after_store(int /*buffer*/, int /*bytes*/, const Run& /*run*/) {}
  /// The stride of an access for which one wide load and a shuffle beat a gather; 0 if a gather is better.
  virtual int step_worth_reading(Expr where, DType dtype) const = 0;
  /// The alignment of a vector of consecutive elements, as "align N".
  virtual std::string vector_align(DType dtype, Expr where) const = 0;
  /// The scope and ordering of atomicrmw instructions.
  virtual std::string atomic_ordering() const = 0;
  std::string mangled(int lanes, const std::string& element) const;

  IrWriter& ir_;
  Scope& scope_;
  EmitContext& context_;
  Scalars& scalars_;

 private:
  std::string from_memory(DType dtype, const std::string& text, bool vec);
  std::string to_memory(DType dtype, const std::string& text, bool vec);
  void exchange(loops::StoreMode mode, DType dtype, const std::string& at, const Reg& value);
  /// Of a cmpxchg that succeeds and of one that does not.
  std::string exchange_ordering() const { return atomic_ordering() + " monotonic"; }
  std::string addresses(int buffer, Expr where);
  Reg load_run(int buffer, Expr where, const std::string& mask, bool reversed);
  Reg load_between(int buffer, Expr where, const std::string& mask, int step);
  Reg load_gathered(int buffer, Expr where, const std::string& mask);
  void store_run(int buffer, Expr where, Reg value, const std::string& mask, bool reversed);
  std::string load_run_of(const Run& run, const std::string& mask, const std::string& flags = {});
  void store_run_of(const Run& run, int bytes, const std::string& value, const std::string& mask);
  std::string gather(const std::string& element, const std::string& pointers, const std::string& align,
                     const std::string& mask);
  void scatter(const std::string& element, const std::string& value, const std::string& pointers,
               const std::string& align, const std::string& mask);
  std::string backwards(const std::string& element, const std::string& value);
  std::string spread_mask(const std::string& mask, int n, int used);
  Reg split_pairs(const std::string& element, const std::string& pairs);
  std::string join_pairs(const std::string& element, const Reg& value);
  std::string second_part(const std::string& pointers, DType dtype);
};

}  // namespace tatara::codegen
