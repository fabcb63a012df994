// The loop IR: one kernel is a structured loop nest over typed scalars.
//
// A kernel has buffer arguments and symbolic integer arguments. Its body is a tree: a Block is a list of statements;
// a For carries values through its iterations (reductions, scans, Welford, online softmax are For loops with carried
// values). Index expressions are symbolic Exprs over loop variables, size symbols and index values
// (kIndexValue statements turn a scalar into an index symbol). Scalars of complex type are single values here; the emitter
// splits them into pairs.
//
// The schedule decides the nest: which loops are parallel, which one is the vector loop, tiling. The emitter follows.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ir/dtype.h"
#include "symbolic/expr.h"

namespace tatara::loops {

using ScalarId = int32_t;
inline constexpr ScalarId kNoScalar = -1;

// Scalar operators. Integer arithmetic wraps; division and modulo say how they round; comparisons give kBool.
// Arithmetic on f16/bf16/f8 values does not exist: lowering casts to f32 first and casts (rounds) on store or where
// eager rounds. Transcendentals accept f32, f64 (and complex where noted).
enum class ScalarOp : uint8_t {
  // leaves
  kConst,  // attr constant
  kIndex,  // attr index expression as an i64 (or other integer/float dtype) value
  // arithmetic (any numeric dtype; complex too for add..div, neg)
  kAdd,
  kSub,
  kMul,
  kDiv,  // true division, floating or complex
  kFloorDiv,
  kTruncDiv,  // integers and floating (Python floor; C truncation). Integer division by zero: result
              // unspecified but no trap (eager raises; lowering leaves such cases to the host)
  kMod,       // Python's sign rule (torch.remainder)
  kFmod,      // C's sign rule
  kNeg,
  kAbs,  // abs of complex gives its real dtype
  kMin,
  kMax,  // NaN propagates (torch.minimum/maximum)
  kFmin,
  kFmax,  // NaN is ignored
  kFma,   // a*b+c, one rounding
  // bit operators: integers and bool
  kAnd,
  kOr,
  kXor,
  kNot,
  kShl,
  kShr,  // arithmetic for signed, logical for unsigned
  // comparisons and selection
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kSelect,  // cond ? a : b, no evaluation short cut
  kIsNan,
  kIsInf,
  kSignbit,
  // conversions: attr dtype is the result type. Floating to integer truncates, out of range is unspecified (as in C);
  // to bool is != 0; real to complex has zero imaginary part; complex to real takes the real part.
  kCast,
  kBitcast,  // same size
  // rounding
  kFloor,
  kCeil,
  kTrunc,
  kRound,  // half to even
  // roots and transcendentals
  kSqrt,
  kRsqrt,
  kReciprocal,
  kExp,
  kExpTerm,  // exp(x), x <= 0, as a term of sums that are at least 1: it may be wrong by 2^-22 whatever its size
  kExp2,
  kExpm1,
  kLog,
  kLog2,
  kLog10,
  kLog1p,
  kSin,
  kCos,
  kTan,
  kAsin,
  kAcos,
  kAtan,
  kAtan2,
  kSinh,
  kCosh,
  kTanh,
  kAsinh,
  kAcosh,
  kAtanh,
  kErf,
  kErfc,
  kErfinv,
  kLgamma,
  kDigamma,
  kPow,
  kHypot,
  kCopysign,
  kNextafter,
  kLdexp,
  kFrexpMantissa,
  kFrexpExponent,
  kSigmoid,
  kI0,
  kI0e,
  kI1,
  kI1e,
  kNdtri,
  kLogNdtr,
  // complex
  kComplex,  // (re, im)
  kReal,
  kImag,
  kConj,
  kAngle,
  // random: Philox 4x32-10 (Salmon et al., SC'11): (seed lo/hi as i64, offset i64) -> u32 lane given by attr
  kPhilox,
};

/// exp, sin, pow and the like: a dozen instructions or more each.
constexpr bool is_elementary_function(ScalarOp op) {
  return (op >= ScalarOp::kExp && op <= ScalarOp::kHypot) || (op >= ScalarOp::kSigmoid && op <= ScalarOp::kLogNdtr) ||
         op == ScalarOp::kPhilox;
}

struct Scalar {
  ScalarOp op;
  DType dtype;
  std::vector<ScalarId> operands;
  // attributes (which one counts depends on op)
  double const_re = 0;  // kConst of floating/complex dtype
  double const_im = 0;
  int64_t const_int = 0;  // kConst of integer/bool dtype
  Expr index;             // kIndex
  int lane = 0;           // kPhilox
};

/// kScratch: memory of the thread itself (of the block's threads on a GPU; numel is constant), no argument of the launch.
/// kValue: one element that the launch passes by value, for a GPU, which does not see the host's memory.
enum class ArgKind : uint8_t { kInput, kOutput, kInOut, kScratch, kValue };

struct BufferArg {
  std::string name;
  DType dtype = DType::kFloat32;
  ArgKind kind = ArgKind::kInput;
  Expr numel;  // addressable elements from the base pointer on
};

struct Block;

/// dst = scalar operation on earlier scalars.
struct Let {
  ScalarId dst;
  Scalar scalar;
};

/// dst = buffer[index], or `other` where mask is false (the address is not touched then).
struct Load {
  ScalarId dst;
  int buffer;
  Expr index;
  ScalarId mask = kNoScalar;
  ScalarId other = kNoScalar;
};

enum class StoreMode : uint8_t {
  kSet,
  kAdd,
  kMul,
  kMin,
  kMax,  // read-modify-write; atomic when `atomic` (several iterations may hit one element)
};

struct Store {
  int buffer;
  Expr index;
  ScalarId value;
  ScalarId mask = kNoScalar;
  StoreMode mode = StoreMode::kSet;
  bool atomic = false;
};

/// Makes integer scalar `value` usable in index expressions as `symbol`. With `wrap`, negative values have `size` added.
/// With `check`, a value outside [0, size) raises the host's IndexError (the kernel returns a non-zero code and
/// records the value; see codegen/abi.h); masked-off lanes are not checked.
struct IndexValue {
  ScalarId value;
  Expr symbol;
  Expr size;
  bool wrap = false;
  bool check = false;
  ScalarId mask = kNoScalar;
};

enum class LoopKind : uint8_t {
  kSerial,
  kParallel,  // iterations are independent; outermost only; the runtime splits the collapsed parallel space
  kVector,    // iterations are independent, or combine by `combine` below; the emitter runs W lanes at a time with a
              // masked tail. At most one vector loop on any path; inner loops of it carry vectors.
  kUnroll,    // constant small extent
};

/// How lanes and chunks of a carried value may be combined. kNone: strictly sequential (a scan or recurrence).
enum class Combine : uint8_t { kNone, kAdd, kMul, kMin, kMax, kAnd, kOr, kXor, kCustom };

/// One or several values carried through a loop. Inside the body `arg` is the value at the start of an iteration and
/// `next` the value at its end; after the loop `result` is the final value.
struct Carried {
  DType dtype;
  ScalarId init;  // defined outside of the loop
  ScalarId arg;
  ScalarId next;
  ScalarId result;
  Combine combine = Combine::kNone;
};

/// For kCustom: a block that combines two partial tuples (of all carried values of the loop, in order), needed to merge
/// lanes and chunks: Welford, online softmax, argmax, user-defined.
struct CombineFn {
  std::vector<ScalarId> left;
  std::vector<ScalarId> right;
  std::vector<ScalarId> result;
  std::unique_ptr<Block> body;
};

struct For {
  Expr var;     // a symbol of the kernel's context with range [0, extent)
  Expr extent;  // iterations
  LoopKind kind = LoopKind::kSerial;
  /// A vector loop whose statements use the carried values of every iteration: the lanes get running totals. Each `next`
  /// is one Let of the combine operator on `arg` and an element; nothing else uses `arg`.
  bool scan = false;
  /// Of a serial loop that carries nothing: an iteration at whose end this scalar of the body is true is the last one.
  ScalarId until = kNoScalar;
  std::vector<Carried> carried;
  std::unique_ptr<CombineFn> combine_fn;
  std::unique_ptr<Block> body;
};

/// Runs `body` when the scalar is true (not inside a vector loop with a varying condition: use masks there).
struct If {
  ScalarId condition;
  std::unique_ptr<Block> body;
};

/// to[to_index + c * to_stride + r] = from[from_index + r * from_stride + c] for r < rows, c < columns: a tile of memory whose
/// rows become columns, on its way between a tensor and local memory. Not inside a vector loop; both buffers of one dtype.
struct Transpose {
  int from;
  Expr from_index;
  Expr from_stride;
  int to;
  Expr to_index;
  Expr to_stride;
  Expr rows;
  Expr columns;
};

/// The `count` first of the elements from[from_index + i * from_stride], i < extent, in order, to `values` and the i of each to
/// `places`. NaN is the largest; equal elements keep their order. Only in kernels for GPUs, where the threads of a row do it together;
/// never inside of a vector loop.
struct Sort {
  struct Row {
    int buffer = -1;  // of results: -1 for none
    Expr index, stride;
  };
  Row from, values;
  Row places;  // int64
  int64_t extent = 0;
  int64_t count = 0;
  bool descending = false;

  static constexpr int64_t kMostExtent = 4096;  // of a row that is sorted whole
  static constexpr int64_t kMostKept = 16;      // by each thread, where threads keep the first of their share
  /// Whether threads keep the `count` first of their share of the row, instead of sorting all of it.
  bool selects() const { return count <= kMostKept && 2 * count <= extent; }
  /// Elements that a thread holds in registers.
  static int64_t kept_by_thread(DType dtype) { return dtype_size(dtype) <= 2 ? 32 : 16; }
};

/// A tile of a matrix product: value(row, column) = the sum over k of left(row, k) * right(column, k), as float32. `each` is a vector
/// loop over columns: it runs for each row of the tile, and once more for each `value` in it. Only in kernels for GPUs with the
/// instructions of compute capability 9.0 (wgmma), directly in the parallel loops; all threads of a block do it together.
///
/// Operands of float32 lie in blocks, of as many rows as the tile has and kStep elements of k, one behind the other along k. In a block
/// come groups of 8 rows, in a group runs of 8 elements of k, and the 8 rows of a run lie beside each other. With three parts an element
/// is the sum of three bfloat16, each in a buffer of its own: of the nine products of parts those that float32 can tell count.
/// Operands of half types are matrices as they lie in memory.
struct Product {
  /// Matrices [rows, inner], `batches` of them. Strides and offset in elements; one of a matrix's strides is 1, all else are multiples of
  /// aligned(). Of elements of one byte k goes along memory.
  struct Matrices {
    int64_t rows = 0, inner = 0, batches = 1;
    int64_t row_stride = 0, inner_stride = 0, batch_stride = 0, offset = 0;
    Expr number;               // which of them
    bool interleaved = false;  // see TensorMap
    int64_t bytes = 2;         // of an element

    static constexpr int64_t kAlignedBytes = 16;
    static constexpr int64_t kAligned = kAlignedBytes / 2;  // elements of two bytes
    int64_t aligned() const { return kAlignedBytes / bytes; }
    /// Whether k goes along memory.
    bool along() const { return inner_stride == 1; }
  };
  struct Side {
    std::vector<int> parts;            // buffers
    Expr index;                        // of the tile's first element in them; not of matrices
    Expr first;                        // row (column) of the tile
    int64_t extent = 0;                // rows (columns) of a tile
    std::optional<Matrices> matrices;  // then there is one part
  };
  /// Which elements of k a tile multiplies. Where that does not begin with the first one, what lies behind the end is another's: it
  /// is left out, and warpgroups don't take turns.
  struct Span {
    Expr first, end;
    bool is_cut() const { return !first.is_const(0); }
  };
  /// Numbers (float32) that what a block adds is multiplied with: one of each row, and one of all columns of a tile. Index of the
  /// tile's first one, and elements from row to row and from block to block.
  struct Scales {
    int left = 0, right = 0;  // buffers
    Expr left_index, right_index;
    int64_t left_row = 0, left_block = 0, right_block = 0;
  };
  Side left, right;
  Expr blocks;               // of an operand, along k; with a span at most
  std::optional<Span> span;  // of matrices
  bool by_blocks = false;  // what a block adds is summed apart: tensor cores keep few bits of sums of one-byte elements
  std::optional<Scales> scales;  // by blocks
  Expr row, rows;                // symbol and range of rows; tiles may go past it
  ScalarId value;
  std::unique_ptr<For> each;

  static constexpr int64_t kStep = 32;
  static constexpr int64_t kParts = 3;  // of a float32
};

/// Some rows of an attention: result(row, d) = the sum over keys of p(row, key) * values(key, d), where p is the softmax over keys of
/// score(row, key), the `share` that the body of `each`, a vector loop over keys, computes from `product`, the product of a row of queries
/// and a key, as float32. Then `done`, a vector loop over d, runs for each row and d, with `result`. No score lies in memory: keys come in blocks,
/// and what is summed so far is scaled where the largest score grows (Milakov and Gimelshein, "Online normalizer calculation for
/// softmax", 2018; Dao et al., "FlashAttention", 2022). Where, and how, as Product's.
///
/// With kSum p is `share` itself, which may be computed from a second product, too, and there may be two sums: the gradients of an
/// attention. "Queries" are then what rows are of, keys or queries.
struct Attention {
  /// Matrices of half types in memory. Elements of a row lie beside each other; all else is a multiple of Product::Matrices::kAligned.
  struct Side {
    friend bool operator==(const Side&, const Side&) = default;
    int buffer = -1;
    int64_t rows = 0, width = 0, row_stride = 0, offset = 0;
    std::array<int64_t, 2> batches = {1, 1}, batch_strides = {0, 0};
    std::array<Expr, 2> number;  // which of them
  };
  /// A product of a row and a key, and what it is of.
  struct Score {
    Side queries, keys;
    ScalarId product = kNoScalar;
  };
  /// Of shares of values, and what becomes of its elements.
  struct Sum {
    Side values;
    ScalarId share = kNoScalar, result = kNoScalar;
    std::unique_ptr<For> done;
  };
  enum class Form : uint8_t {
    kSoftmax,
    kSoftmaxOrZero,  // a row whose scores are all -infinity gives zeros, not what is no number
    kSum
  };
  Form form = Form::kSoftmax;
  std::vector<Score> scores;  // one or two
  std::vector<Sum> sums;      // likewise
  Expr first;                 // row of the tile
  int64_t extent = 0;         // rows of the tile
  int64_t block = 0;          // keys of a block
  Expr row, rows;             // symbol and range of rows; tiles may go past it
  ScalarId hidden;            // -infinity where neither keys nor values are needed
  std::unique_ptr<For> each;
  /// A buffer of bools that says which blocks of keys are needed, at an index by the number of the block. -1: there is none.
  int table = -1;
  Expr table_index, table_block;
  /// A buffer for the logarithm of each row's sum of exponentials, at an index by the row (+infinity where a row gives zeros). -1: none.
  int norms = -1;
  Expr norm_index;

  int64_t keys() const { return scores[0].keys.rows; }
  bool is_sum() const { return form == Form::kSum; }
  /// Which product's keys are these values, too, which are then loaded once; -1: none's.
  int keys_of(const Sum& sum) const {
    for (size_t i = 0; i < scores.size(); ++i) {
      if (sum.values == scores[i].keys) return static_cast<int>(i);
    }
    return -1;
  }
  template <typename Self, typename Fn>
  static void each_side(Self& self, Fn&& fn) {
    for (auto& score : self.scores) {
      fn(score.queries);
      fn(score.keys);
    }
    for (auto& sum : self.sums) fn(sum.values);
  }
};

/// A tile of a product whose left matrix is computed, each element where it is multiplied: value(row, result) = the sum over k of
/// matrix(row, k) * weight(result, k), as float32. The body of `weigh`, a vector loop over what the weight is unpacked from, computes
/// `weights`, float32, which are rounded to the matrix's half type: word w has one k for each of them, k = w / run * run * parts + part * run + w % run. Then `each`, a
/// vector loop over results, runs for each row and result, with `value`. Only in kernels for GPUs with tensor cores for half types
/// (mma), directly in the parallel loops; all threads of a block do it together (WeighedLayout).
struct WeighedProduct {
  int matrix = -1;  // a buffer: rows of half types, whose elements lie beside each other
  int64_t row_stride = 0, offset = 0;
  Expr first_row, first_result;   // of the tile
  int64_t rows = 0, extent = 0;   // likewise; it may go past the ends
  int64_t bands = 1, slices = 1;  // warps beside each other along results, and along what is summed
  int64_t words = 0, run = 1;     // that a thread has beside each other
  int64_t steps = 1;              // of so many words that it has at once
  Expr result, results;           // symbol and range, in `weigh`
  std::vector<ScalarId> weights;
  std::unique_ptr<For> weigh;
  Expr row, count;  // symbol and range of rows, in `each`
  ScalarId value = kNoScalar;
  std::unique_ptr<For> each;

  static constexpr int64_t kLanes = 4;      // threads of a warp that share a result
  static constexpr int64_t kBand = 16;      // results that a warp's multiplication has
  static constexpr int64_t kMostRows = 64;  // of a tile
  int64_t parts() const { return static_cast<int64_t>(weights.size()); }
};

using Stmt = std::variant<Let, Load, Store, IndexValue, For, If, Transpose, Sort, Product, Attention, WeighedProduct>;

struct Block {
  std::vector<Stmt> stmts;
};

/// How the iterations of a kernel for a GPU are shared among threads. The scheduler chooses it, the emitter follows.
///
/// With row 0 there is one thread for each iteration of the parallel space and `passes` groups of `lanes` neighbouring iterations
/// of the vector loop, the groups as far apart as possible. Else `row` threads share one iteration of the parallel space: they run all of it together, each a share
/// of every vector loop, `lanes` neighbours at a time, and what vector loops carry is combined over them. `row` is a power of
/// two, at most 32 or all threads of the block.
///
/// With `column` above 1 (and row 0) so many threads share what one thread would have to itself: each runs a share of the serial loops
/// that stand directly in the vector loop, and what these carry is combined over them. A power of two that divides `threads`;
/// neighbouring threads have neighbouring iterations of the vector loop.
///
/// With `tiles` a block has one iteration: all its threads copy the tiles (Transpose), then each `row` of them run other iterations
/// of the serial loop that follows. Nothing is combined over threads.
///
/// With `items` a launch runs the kernel for up to so many lists of arguments, each with blocks of its own.
///
/// `shared`: bytes of a block's shared memory that the launch asks for, beside what the code says. `resident` above 0: a launch has at
/// most so many blocks for each multiprocessor, which are there at once, and each goes through many iterations of the parallel space.
struct GpuMapping {
  int threads = 0;  // of a block; 0: a kernel for CPUs
  int row = 0;
  int lanes = 1;
  int passes = 1;
  int items = 0;
  int column = 1;
  bool tiles = false;
  int64_t shared = 0;
  int resident = 0;
};

struct Kernel {
  std::string name;  // says what it fuses: "mul_tanh_add"; the symbol name of the code is made from it and a hash
  std::shared_ptr<ExprContext> ctx;
  std::vector<BufferArg> buffers;
  std::vector<Expr> sizes;         // size symbols passed as i64 arguments, in order
  std::vector<DType> scalar_args;  // run-time scalars (f64/i64/bool), passed by value array
  std::vector<ScalarId> scalar_arg_ids;
  Block body;                       // parallel loops outermost
  std::vector<DType> scalar_types;  // dtype of every ScalarId
  GpuMapping gpu;
  bool strict_float = true;  // no contraction/reassociation but in sums that Combine says

  ScalarId new_scalar(DType dtype) {
    scalar_types.push_back(dtype);
    return static_cast<ScalarId>(scalar_types.size()) - 1;
  }
};

/// Whether the kernel has loops whose iterations are independent: else its parallel space is one iteration.
inline bool has_parallel_loops(const Kernel& kernel) {
  for (const Stmt& stmt : kernel.body.stmts) {
    const auto* loop = std::get_if<For>(&stmt);
    if (loop != nullptr && loop->kind == LoopKind::kParallel) return true;
  }
  return false;
}

std::string_view scalar_op_name(ScalarOp op);
/// Readable, deterministic, parses back with parse_kernel (loops/parser.h).
std::string print_kernel(const Kernel& kernel);
/// Throws InternalError when a rule of this header is broken (undefined scalars, dtypes, loop placement).
void verify_kernel(const Kernel& kernel);

}  // namespace tatara::loops
