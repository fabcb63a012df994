// Writes of a loop into a tensor that was made before it, row by row: what the rows are in the end is one stack of them, and a row
// that is read again is what was written there. So no turn hands the whole tensor to the next one.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "ops/core/builder.h"
#include "ops/core/op_def.h"
#include "support/made_once.h"
#include "support/str_cat.h"
#include "transforms/loop_stretch.h"
#include "transforms/pass.h"
#include "transforms/passes.h"

namespace tatara {
namespace {

constexpr size_t kFewestWrites = 24;
constexpr size_t kFewestInRun = 4;  // rows at equal distances, to be written by one operator
constexpr int kMostRounds = 4;

/// A node that gives `base` with one part of it replaced.
struct RowWrite {
  ValueId base = kNoValue, source = kNoValue;
  int64_t dim = 0, start = 0, width = -1;  // -1: one element, and the source has no such dimension
};

bool same_marks(const Node& a, const Node& b) {
  return a.no_grad == b.no_grad && a.derived == b.derived && a.closed == b.closed && a.region == b.region &&
         a.again == b.again && a.rule == b.rule;
}

/// Writes one after the other, each to what the last one gave.
struct WriteChain {
  ValueId base = kNoValue;
  const Node* first = nullptr;
  int64_t dim = 0, width = -1;
  std::vector<ValueId> versions;
  std::map<int64_t, std::vector<std::pair<size_t, ValueId>>>
      rows;  // by their start: the version that has it, what was written

  bool fits(const Node& node, const RowWrite& write) const {
    return node.op == first->op && write.dim == dim && write.width == width && same_marks(node, *first);
  }
  /// Whether the part is one that writes have, or meets none of them.
  bool aligned(int64_t start) const {
    const int64_t size = width < 0 ? 1 : width;
    const auto behind = rows.lower_bound(start);
    if (behind != rows.end() && behind->first == start) return true;
    if (behind != rows.end() && behind->first < start + size) return false;
    return behind == rows.begin() || std::prev(behind)->first + size <= start;
  }
  /// What is in the part in a version; kNoValue: what was there before.
  ValueId at(int64_t start, size_t version) const {
    const auto found = rows.find(start);
    ValueId source = kNoValue;
    if (found == rows.end()) return source;
    for (const auto& [since, written] : found->second) {
      if (since <= version) source = written;
    }
    return source;
  }
};

class WriteJoiner {
 public:
  explicit WriteJoiner(const Graph& graph)
      : graph_(graph), select_(&op("select_scatter")), slice_(&op("slice_scatter")), copy_(&op("copy")) {}

  /// False: there is nothing to join.
  bool find() {
    const auto is_write = [this](const Node& node) { return node.op == select_ || node.op == slice_; };
    if (std::count_if(graph_.nodes().begin(), graph_.nodes().end(), is_write) < std::ptrdiff_t{kFewestWrites}) {
      return false;
    }
    count_uses();
    for (int round = 0; round < kMostRounds; ++round) {
      const size_t before = escaped_.size();
      find_chains();
      find_reads();
      if (escaped_.size() == before) return !place_.empty();
    }
    return false;
  }

  Graph join() {
    GraphCopy copy(graph_);
    const std::vector<bool> needed = needed_when_joined();
    for (size_t n = 0; n < graph_.num_nodes(); ++n) {
      if (!needed[n]) continue;
      const Node& node = graph_.node(static_cast<NodeId>(n));
      const ValueId v = node.outputs.size() == 1 ? node.outputs[0] : kNoValue;
      const auto place = v == kNoValue ? place_.end() : place_.find(v);
      if (place != place_.end()) {
        const WriteChain& chain = chains_[place->second.first];
        if (v == chain.versions.back()) copy.set(v, whole(chain, node, copy));
        continue;
      }
      const auto read = v == kNoValue ? reads_.end() : reads_.find(v);
      if (read == reads_.end()) {
        copy.copy(node);
      } else if (read->second.second) {
        std::vector<Arg> args = copy.args(node);  // whose first one is none
        args[0] = TensorArg{copy[read->second.first]};
        add(node, std::move(args), copy);
      } else {
        copy.set(v, copy[read->second.first]);
      }
    }
    return copy.finish();
  }

 private:
  /// Per node: whether something needs it once writes are joined.
  std::vector<bool> needed_when_joined() const {
    std::vector<bool> needed(graph_.num_nodes(), false), read(graph_.num_values(), false);
    const auto mark = [&](ValueId v) { read[static_cast<size_t>(v)] = true; };
    for (const GraphOutput& output : graph_.outputs()) {
      if (output.value != kNoValue) mark(output.value);
    }
    for (const InputWrite& write : graph_.input_writes()) mark(write.value);
    for (size_t n = graph_.num_nodes(); n-- > 0;) {
      const Node& node = graph_.node(static_cast<NodeId>(n));
      const bool any = std::any_of(node.outputs.begin(), node.outputs.end(),
                                   [&](ValueId v) { return read[static_cast<size_t>(v)]; });
      if (!any && !node.op->nondeterministic) continue;
      needed[n] = true;
      const ValueId v = node.outputs.size() == 1 ? node.outputs[0] : kNoValue;
      const auto place = place_.find(v);
      const auto part = reads_.find(v);
      if (place != place_.end()) {
        const WriteChain& chain = chains_[place->second.first];
        mark(chain.base);
        for (const auto& [start, written] : chain.rows) mark(copied_source(written.back().second, node));
      } else if (part != reads_.end()) {
        mark(part->second.first);
      } else {
        for_each_operand(node, mark);
      }
    }
    return needed;
  }

  static const OpDef& op(const char* name) { return OpRegistry::global().get(name); }

  static std::optional<int64_t> whole_number(const Arg& arg) {
    const auto* scalar = std::get_if<Scalar>(&arg);
    if (scalar == nullptr) return std::nullopt;
    if (const auto* n = std::get_if<int64_t>(scalar)) return *n;
    const auto* e = std::get_if<Expr>(scalar);
    return e != nullptr && e->is_const() ? std::optional(e->const_value()) : std::nullopt;
  }

  std::optional<RowWrite> write_of(const Node& node) const {
    if (node.op != select_ && node.op != slice_) return std::nullopt;
    RowWrite write{std::get<TensorArg>(node.args[0]).value, std::get<TensorArg>(node.args[1]).value};
    const TensorType& type = graph_.type(write.base);
    const std::optional<int64_t> dim = whole_number(node.args[2]);
    std::optional<int64_t> start = whole_number(node.args[3]);
    if (node.op == slice_ && std::holds_alternative<NoneArg>(node.args[3])) start = 0;
    if (!dim || !start || write.base == write.source || type.device.kind != DeviceKind::kCpu) return std::nullopt;
    write.dim = *dim < 0 ? *dim + type.dim() : *dim;
    const Expr size = type.sizes[static_cast<size_t>(write.dim)];
    if (!size.is_const()) return std::nullopt;
    write.start = *start < 0 ? *start + size.const_value() : *start;
    if (node.op == slice_) {
      const Expr width = graph_.type(write.source).sizes[static_cast<size_t>(write.dim)];
      if (whole_number(node.args[5]) != 1 || !width.is_const() || width.const_value() <= 0) return std::nullopt;
      write.width = width.const_value();
    }
    const int64_t end = write.start + std::max<int64_t>(write.width, 1);
    const bool fits = write.start >= 0 && end <= size.const_value() && graph_.type(node.outputs[0]) == type &&
                      graph_.type(write.source).dtype == type.dtype;
    return fits ? std::optional(write) : std::nullopt;
  }

  /// What is used by anything but one write to it and reads of parts is needed as a whole.
  void count_uses() {
    std::set<ValueId> written;
    for (const Node& node : graph_.nodes()) {
      const std::optional<RowWrite> write = write_of(node);
      const bool read = !write && part_read(graph_, node).has_value();
      size_t slot = 0;
      for_each_operand(node, [&](ValueId v) {
        const bool first = slot++ == 0;
        if (v == kNoValue || (first && read)) return;
        if (!first || !write || !written.insert(v).second) escaped_.insert(v);
      });
    }
    for (const GraphOutput& output : graph_.outputs()) escaped_.insert(output.value);
    for (const InputWrite& write : graph_.input_writes()) escaped_.insert(write.value);
  }

  void find_chains() {
    chains_.clear();
    place_.clear();
    for (const Node& node : graph_.nodes()) {
      const std::optional<RowWrite> write = write_of(node);
      if (!write) continue;
      const auto before = place_.find(write->base);
      size_t number = chains_.size();
      const bool goes_on = before != place_.end() && !escaped_.contains(write->base) &&
                           chains_[before->second.first].fits(node, *write) &&
                           chains_[before->second.first].aligned(write->start);
      if (goes_on) {
        number = before->second.first;
      } else {
        chains_.push_back({write->base, &node, write->dim, write->width, {}, {}});
      }
      WriteChain& chain = chains_[number];
      place_[node.outputs[0]] = {number, chain.versions.size()};
      chain.rows[write->start].emplace_back(chain.versions.size(), write->source);
      chain.versions.push_back(node.outputs[0]);
    }
    std::erase_if(place_,
                  [this](const auto& entry) { return chains_[entry.second.first].versions.size() < kFewestWrites; });
  }

  /// What reads of versions give. A version that is read in another way escapes.
  void find_reads() {
    reads_.clear();
    for (const Node& node : graph_.nodes()) {
      const std::optional<PartRead> part = node.outputs.size() == 1 ? part_read(graph_, node) : std::nullopt;
      const auto place = part ? place_.find(part->source) : place_.end();
      if (place == place_.end()) continue;
      const WriteChain& chain = chains_[place->second.first];
      if (part->source == chain.versions.back()) continue;  // is there as a whole
      const ValueId v = node.outputs[0];
      const bool fits = part->dim == chain.dim && part->width == chain.width && chain.aligned(part->start) &&
                        same_marks(node, *chain.first);
      ValueId written = fits ? chain.at(part->start, place->second.second) : kNoValue;
      if (written != kNoValue && graph_.type(copied_source(written, *chain.first)) == graph_.type(v)) {
        written = copied_source(written, *chain.first);
      }
      if (!fits || (written != kNoValue && !(graph_.type(written) == graph_.type(v)) && !replaced_alone(v))) {
        escaped_.insert(part->source);
        continue;
      }
      reads_[v] = written == kNoValue ? std::pair{chain.base, true} : std::pair{written, false};
    }
  }

  /// Whether the value is read as what copy() writes to alone, which asks for its shape.
  bool replaced_alone(ValueId v) {
    if (uses_.empty()) {
      for (const Node& node : graph_.nodes()) {
        size_t slot = 0;
        for_each_operand(node, [&](ValueId used) {
          const bool shape_alone = slot++ == 0 && node.op == copy_;
          if (used != kNoValue && !shape_alone) uses_.insert(used);
        });
      }
      for (const GraphOutput& output : graph_.outputs()) uses_.insert(output.value);
    }
    return !uses_.contains(v);
  }

  /// What a copy to the part of the tensor copies.
  ValueId copied_source(ValueId v, const Node& write) const {
    const Node* node = graph_.producer(v);
    if (node == nullptr || node->op != copy_ || !same_marks(*node, write)) return v;
    const ValueId source = std::get<TensorArg>(node->args[1]).value;
    const TensorType &in = graph_.type(source), &out = graph_.type(v);
    return in.dtype == out.dtype && in.sizes == out.sizes && in.device == out.device && !in.is_wrapped_number ? source
                                                                                                              : v;
  }

  /// A tensor that depends on no other one's elements.
  bool is_new(ValueId v) const {
    const Node* node = graph_.producer(v);
    const auto& creating = made_once([] {
      std::set<const OpDef*> ops;
      for (const char* name : {"full", "zeros", "ones", "empty"}) {
        ops.insert(&op(name));
        ops.insert(&op(str_cat(name, "_like").c_str()));
        ops.insert(&op(str_cat("new_", name).c_str()));
      }
      return ops;
    });
    return node != nullptr && creating.contains(node->op);
  }

  static ValueId add(const Node& node, std::vector<Arg> args, GraphCopy& copy) {
    const NodeId id = copy.to().add_node(node.op, std::move(args), {copy.from().type(node.outputs[0])}, node.location);
    copy.to().node(id).take_marks(node);
    copy.set(node.outputs[0], copy.to().node(id).outputs[0]);
    return copy.to().node(id).outputs[0];
  }

  /// The tensor after the last write.
  ValueId whole(const WriteChain& chain, const Node& last, GraphCopy& copy) const {
    GraphBuilder b(copy.to());
    b.set_location(last.location);
    const size_t first_new = copy.to().num_nodes();
    const TensorType& type = graph_.type(last.outputs[0]);
    const int64_t size = chain.width < 0 ? 1 : chain.width;
    const int64_t length = type.sizes[static_cast<size_t>(chain.dim)].const_value();
    std::vector<std::pair<int64_t, ValueId>> rows;
    for (const auto& [start, written] : chain.rows) {
      rows.emplace_back(start, copy[copied_source(written.back().second, last)]);
    }
    const bool covers = static_cast<int64_t>(rows.size()) * size == length;
    ValueId result = kNoValue;
    if (covers && is_new(chain.base)) {
      result = joined(b, rows, chain);  // nothing is left of what was there
    } else {
      result = copy[chain.base];
      for (size_t i = 0; i < rows.size();) {
        size_t count = 1;
        const int64_t step = i + 1 < rows.size() ? rows[i + 1].first - rows[i].first : 1;
        while (i + count < rows.size() && rows[i + count].first - rows[i + count - 1].first == step) ++count;
        if (count < kFewestInRun || (chain.width >= 0 && step != size)) count = 1;
        result = with_run(
            b, result,
            {rows.begin() + static_cast<std::ptrdiff_t>(i), rows.begin() + static_cast<std::ptrdiff_t>(i + count)},
            step, chain);
        i += count;
      }
    }
    if (b.type(result).strides != type.strides) {
      result = b.op("relayout", {TensorArg{result}, SymInts{type.strides}});
    }
    for (size_t n = first_new; n < copy.to().num_nodes(); ++n) copy.to().node(static_cast<NodeId>(n)).take_marks(last);
    return result;
  }

  using Rows = std::vector<std::pair<int64_t, ValueId>>;

  static ValueId joined(GraphBuilder& b, const Rows& rows, const WriteChain& chain) {
    TensorList list;
    for (const auto& [start, value] : rows) list.values.push_back(value);
    return b.op(chain.width < 0 ? "stack" : "cat", {std::move(list), Scalar(chain.dim)});
  }

  static ValueId with_run(GraphBuilder& b, ValueId base, const Rows& rows, int64_t step, const WriteChain& chain) {
    const int64_t start = rows.front().first;
    if (rows.size() == 1 && chain.width < 0) {
      return b.op("select_scatter", {TensorArg{base}, TensorArg{rows[0].second}, Scalar(chain.dim), Scalar(start)});
    }
    const int64_t size = chain.width < 0 ? 1 : chain.width;
    const ValueId part = rows.size() == 1 ? rows[0].second : joined(b, rows, chain);
    return b.op("slice_scatter", {TensorArg{base}, TensorArg{part}, Scalar(chain.dim), Scalar(start),
                                  Scalar(rows.back().first + size), Scalar(chain.width < 0 ? step : int64_t{1})});
  }

  const Graph& graph_;
  const OpDef *select_, *slice_, *copy_;
  std::set<ValueId> escaped_, uses_;
  std::vector<WriteChain> chains_;
  std::map<ValueId, std::pair<size_t, size_t>> place_;  // of versions: the chain, and which of its versions
  std::map<ValueId, std::pair<ValueId, bool>> reads_;   // what reads give; true: that part of it
};

}  // namespace

Graph join_writes(const Graph& graph, const PassOptions& options) {
  return run_pass("join_writes", graph, options, [&](const Graph& g) {
    WriteJoiner joiner(g);
    return joiner.find() ? joiner.join() : g;
  });
}

}  // namespace tatara
