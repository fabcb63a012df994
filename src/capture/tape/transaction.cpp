#include "capture/tape/transaction.h"

#include <algorithm>
#include <cstring>

#include "capture/host/numpy_api.h"
#include "capture/host/torch_api.h"
#include "support/log.h"

namespace tatara::capture {
namespace {

thread_local Transaction* t_current = nullptr;

/// Memory of copies that are over, for later ones: a call that keeps running statistics asks for no pages.
std::vector<std::vector<std::byte>>& spare_bytes() {
  thread_local std::vector<std::vector<std::byte>> spare;
  return spare;
}

std::vector<std::byte> take_bytes(size_t count) {
  std::vector<std::byte> bytes;
  if (!spare_bytes().empty()) {
    bytes = std::move(spare_bytes().back());
    spare_bytes().pop_back();
  }
  bytes.resize(count);
  return bytes;
}

void give_bytes(std::vector<std::byte> bytes) {
  constexpr size_t kMostSpare = 16;
  if (bytes.capacity() == 0 || bytes.capacity() > Transaction::kMostInCall || spare_bytes().size() >= kMostSpare)
    return;
  spare_bytes().push_back(std::move(bytes));
}

PyObject* grad_name() {
  static PyObject* const name = PyUnicode_InternFromString("grad");
  return name;
}

/// What lies between the first and the last element, in bytes before and after the element (0, ..., 0).
std::pair<int64_t, int64_t> span_of(const int64_t* sizes, const int64_t* strides, int32_t rank, int64_t element) {
  int64_t first = 0, last = element;
  for (int32_t d = 0; d < rank; ++d) {
    if (sizes[d] == 0) return {0, 0};
    const int64_t reach = (sizes[d] - 1) * strides[d] * element;
    (reach < 0 ? first : last) += reach;
  }
  return {first, last};
}

/// With gradients on, a write to a tensor that requires grad becomes part of its history; one to a leaf, or to a view of one,
/// is refused before it happens.
bool gets_new_history(PyObject* tensor) {
  if (!attribute_is_true(tensor, "requires_grad") || attribute_is_true(tensor, "is_leaf")) return false;
  const Ref base = attr_or_null(tensor, "_base");
  return !base || !attribute_is_true(base.get(), "requires_grad") || !attribute_is_true(base.get(), "is_leaf");
}

Ref call_method(PyObject* object, const char* name) {
  Ref result = Ref::steal(object != nullptr ? PyObject_CallMethod(object, name, nullptr) : nullptr);
  if (!result) forget_error();
  return result;
}

/// What writes in place may change of a tensor beside its contents: (storage, its address, offset, sizes, strides, whether
/// gradients are asked, version). Null without an error: not known.
Ref metadata_of(PyObject* tensor) {
  const Ref storage = call_method(tensor, "untyped_storage");
  const Ref address = call_method(storage.get(), "data_ptr"), offset = call_method(tensor, "storage_offset");
  const Ref sizes = attr_or_null(tensor, "shape"), strides = call_method(tensor, "stride");
  if (!address || !offset || !sizes || !strides) return {};
  const Ref version = attr_or_null(tensor, "_version");  // tensors of inference mode have none
  return Ref::steal(PyTuple_Pack(7, storage.get(), address.get(), offset.get(), sizes.get(), strides.get(),
                                 attribute_is_true(tensor, "requires_grad") ? Py_True : Py_False,
                                 version ? version.get() : Py_None));
}

bool same_item(PyObject* a, PyObject* b, Py_ssize_t i) {
  return PyObject_RichCompareBool(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i), Py_EQ) == 1;
}

bool set_version(PyObject* tensor, PyObject* version) {
  const Ref autograd = Ref::steal(PyImport_ImportModule("torch._C._autograd"));
  const Ref set = autograd ? attr_or_null(autograd.get(), "_unsafe_set_version_counter") : Ref();
  if (!set) return true;
  const Ref tensors = Ref::steal(PyTuple_Pack(1, tensor)), versions = Ref::steal(PyTuple_Pack(1, version));
  return static_cast<bool>(Ref::steal(PyObject_CallFunctionObjArgs(set.get(), tensors.get(), versions.get(), nullptr)));
}

/// False where the tensor has other memory by now.
bool may_restore(PyObject* tensor, PyObject* before) {
  constexpr Py_ssize_t kAddress = 1;
  const Ref now = metadata_of(tensor);
  return now && same_item(now.get(), before, kAddress);
}

/// Gives a tensor, whose contents are as they were, its metadata back.
bool restore_metadata(PyObject* tensor, PyObject* before) {
  constexpr Py_ssize_t kOffset = 2, kStrides = 4, kGrad = 5, kVersion = 6;
  const Ref now = metadata_of(tensor);
  if (!now) return false;
  bool done = true;
  if (PyTuple_GET_ITEM(before, kGrad) == Py_False && PyTuple_GET_ITEM(now.get(), kGrad) == Py_True) {
    done = static_cast<bool>(Ref::steal(PyObject_CallMethod(tensor, "detach_", nullptr)));
  }
  bool same = true;
  for (Py_ssize_t i = kOffset; i <= kStrides; ++i) same = same && same_item(now.get(), before, i);
  if (!same) {
    const auto item = [before](Py_ssize_t i) { return PyTuple_GET_ITEM(before, i); };
    TorchApi& api = *TorchApi::get();
    const bool grad = api.grad_enabled();
    api.set_grad(false);
    done = Ref::steal(PyObject_CallMethod(tensor, "set_", "OOOO", item(0), item(kOffset), item(3), item(kStrides))) &&
           done;
    api.set_grad(grad);
  }
  PyObject* const version = PyTuple_GET_ITEM(before, kVersion);
  return (version == Py_None || set_version(tensor, version)) && done;
}

}  // namespace

std::vector<PyObject*> written_arguments(const TapeNode& node) {
  PyObject* args = node.args.get();
  const Py_ssize_t count = PyTuple_GET_SIZE(args);
  std::vector<PyObject*> written;
  PyObject* out = node.kwargs ? PyDict_GetItemString(node.kwargs.get(), "out") : nullptr;
  if (out != nullptr && out != Py_None) return {out};
  const bool norm = node.statistics && count > 0;
  const bool plain = !norm && count > 0 && slot_of(PyTuple_GET_ITEM(args, 0)) >= 0 &&
                     (node.name.back() == '_' || node.name.rfind("__", 0) == 0);
  if (plain) return {PyTuple_GET_ITEM(args, 0)};
  // A norm reads its first operand, which may be big.
  for (Py_ssize_t i = norm ? 1 : 0; i < count; ++i) written.push_back(PyTuple_GET_ITEM(args, i));
  if (node.kwargs) written.push_back(node.kwargs.get());
  return written;
}

Transaction* Transaction::current() { return t_current; }

Transaction::Scope::Scope(Transaction& transaction) : before_(t_current) {
  if (before_ != &transaction) transaction.around_ = before_;
  t_current = &transaction;
}

Transaction::Scope::~Scope() { t_current = before_; }

Transaction::~Transaction() {
  if (around_ != nullptr) {
    for (Change& change : changes_) around_->changes_.push_back(std::move(change));
    if (lost_ != nullptr) around_->lose(lost_);
    return;
  }
  for (Change& change : changes_) give_bytes(std::move(change.bytes));
}

// ---- What changes ----------------------------------------------------------------------------------------------------

void Transaction::keep_generators(const Tape& tape, const std::vector<Ref>& env, const TorchApi& api) {
  if (!api.present()) return;
  const ErrorAside aside;
  keep_generator(attr_or_null(api.torch.get(), "default_generator").get());
  for (const Ref& generator : gpu_generators(api)) keep_generator(generator.get());
  for (const TapeNode& node : tape.nodes()) {
    if (node.generator != nullptr) keep_generator(node.generator);
    if (node.generator_slot >= 0) keep_generator(env[static_cast<size_t>(node.generator_slot)].get());
  }
}

void Transaction::keep_generator(PyObject* generator) {
  if (generator == nullptr) return;
  Ref state = Ref::steal(PyObject_CallMethod(generator, "get_state", nullptr));
  if (!state) {
    forget_error();
    return lose("a generator of random numbers whose state cannot be read");
  }
  Change change;
  change.kind = Change::Kind::kGenerator;
  change.object = Ref::borrow(generator);
  change.value = std::move(state);
  changes_.push_back(std::move(change));
}

/// getstate() and setstate() go by 625 objects. In C it is plain data behind the head, and one attribute has what gauss() keeps.
void Transaction::keep_python_generator(PyObject* generator) {
  PyTypeObject* const base = Py_TYPE(generator)->tp_base;
  const auto head = static_cast<Py_ssize_t>(sizeof(PyObject));
  constexpr Py_ssize_t kState = 625 * 4;
  Ref kept = attr_or_null(generator, "gauss_next");
  forget_error();
  if (base == nullptr || base->tp_itemsize != 0 || base->tp_basicsize < head + kState ||
      base->tp_basicsize >= head + kState + static_cast<Py_ssize_t>(sizeof(void*)) || !kept) {
    return lose("a generator of random numbers whose state cannot be read");
  }
  on_undo([held = Ref::borrow(generator), kept] {
    return PyObject_SetAttrString(held.get(), "gauss_next", kept.get()) == 0;
  });
  keep_bytes(generator, {}, reinterpret_cast<char*>(generator) + head, static_cast<size_t>(kState));
}

void Transaction::keep_numpy_generator(PyObject* generator) {
  if (!can_undo()) return;
  if (is_random_generator(generator)) return keep_generator(generator);
  const ErrorAside aside;
  if (is_python_random_class(reinterpret_cast<PyObject*>(Py_TYPE(generator)))) return keep_python_generator(generator);
  // A Generator has no state beside its bit generator's, a RandomState has.
  const Ref bits = attr_or_null(generator, "bit_generator");
  Ref state;
  if (bits) {
    state = attr_or_null(bits.get(), "state");
  } else if (const Ref method = attr_or_null(generator, "get_state")) {
    state = Ref::steal(PyObject_CallFunctionObjArgs(method.get(), Py_False, nullptr));
  }
  forget_error();
  if (!state) return lose("a generator of random numbers whose state cannot be read");
  on_undo([held = Ref::borrow(generator), bits, state] {
    if (bits) return PyObject_SetAttrString(bits.get(), "state", state.get()) == 0;
    return static_cast<bool>(Ref::steal(PyObject_CallMethod(held.get(), "set_state", "O", state.get())));
  });
}

bool Transaction::keep_bytes(PyObject* owner, Ref metadata, void* data, size_t bytes) {
  // What lay there at first is what comes back, however often it is written to.
  const bool known = std::any_of(changes_.begin() + static_cast<std::ptrdiff_t>(marked_), changes_.end(),
                                 [data, bytes](const Change& change) { return change.covers(data, bytes); });
  if (known) {
    if (!metadata) return true;
    bytes = 0;
  }
  kept_bytes_ += bytes;
  if (kept_bytes_ > most_bytes_ && !copies_) {
    lose("it writes to big tensors from outside of it");
    return false;
  }
  Change change;
  change.kind = Change::Kind::kMemory;
  change.object = Ref::borrow(owner);
  change.value = std::move(metadata);
  change.data = data;
  change.bytes = take_bytes(bytes);
  if (bytes != 0) std::memcpy(change.bytes.data(), data, bytes);
  changes_.push_back(std::move(change));
  return true;
}

void Transaction::keep_memory(PyObject* tensor, void* data, size_t bytes) {
  if (can_undo()) static_cast<void>(keep_bytes(tensor, {}, data, bytes));
}

bool Transaction::keep_copy(PyObject* tensor) {
  Ref data = attr(tensor, "data");
  Ref copy = data ? Ref::steal(PyObject_CallMethod(data.get(), "clone", nullptr)) : Ref();
  Ref metadata = copy ? metadata_of(tensor) : Ref();
  if (!metadata) return false;
  // `data` has the tensor's memory, and counts writes by itself.
  on_undo([own = Ref::borrow(tensor), data = std::move(data), copy = std::move(copy), metadata = std::move(metadata)] {
    return Ref::steal(PyObject_CallMethod(data.get(), "copy_", "O", copy.get())) &&
           restore_metadata(own.get(), metadata.get());
  });
  return true;
}

void Transaction::keep_tensor(PyObject* tensor, const TorchApi& api) {
  TensorRef ref;
  constexpr int32_t kCpu = 1;
  if (!api.view(tensor, ref)) return lose("it writes to a tensor of a kind of its own");
  if (ref.device_type != kCpu && !copies_) return lose("it writes to a tensor on a GPU");
  const auto [first, last] = span_of(ref.sizes, ref.strides, ref.rank, ref.bits / 8);
  char* const begin = static_cast<char*>(ref.data) + first;
  const char* const end = static_cast<char*>(ref.data) + last;
  const bool shared = std::any_of(older_.begin(), older_.end(),
                                  [&](const Range& range) { return begin < range.end && range.begin < end; });
  if (!shared) return;
  if (api.grad_enabled() && gets_new_history(tensor)) return lose("it writes to a tensor with a history");
  if (ref.device_type != kCpu) {
    const bool known = std::any_of(copied_.begin(), copied_.end(),
                                   [&](const Range& range) { return range.begin == begin && range.end == end; });
    copied_.push_back({begin, end});
    if (!known && !keep_copy(tensor)) {
      forget_error();
      lose("it writes to a tensor on a GPU that cannot be copied");
    }
    return;
  }
  Ref metadata = metadata_of(tensor);
  if (!metadata) return lose("it writes to a tensor of a kind of its own");
  static_cast<void>(keep_bytes(tensor, std::move(metadata), begin, static_cast<size_t>(end - begin)));
}

void Transaction::keep_array(PyObject* array, const TorchApi& api) {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> sizes, strides;
  if (!api.numpy->describe(array, dtype, sizes, strides)) return lose("it writes to an array of a kind of its own");
  const auto [first, last] =
      span_of(sizes.data(), strides.data(), static_cast<int32_t>(sizes.size()), dtype_size(dtype));
  char* const data = static_cast<char*>(NumpyApi::data(array));
  static_cast<void>(keep_bytes(array, {}, data + first, static_cast<size_t>(last - first)));
}

void Transaction::begin_tape(const Tape& tape, const std::vector<Ref>& env, const TorchApi& api) {
  keep_generators(tape, env, api);
  const auto writes = [](const TapeNode& node) { return node.mutates || node.statistics; };
  if (!api.present() || std::none_of(tape.nodes().begin(), tape.nodes().end(), writes)) return;
  for (size_t i = 0; i < tape.slots().size(); ++i) {
    TensorRef ref;
    PyObject* const input = env[i].get();
    if (!tape.slots()[i].input || tape.slots()[i].number || input == nullptr || !api.is_tensor(input)) continue;
    if (!api.view(input, ref)) continue;
    const auto [first, last] = span_of(ref.sizes, ref.strides, ref.rank, ref.bits / 8);
    const char* const data = static_cast<const char*>(ref.data);
    older_.push_back({data + first, data + last});
  }
}

void Transaction::keep_operands(const TapeNode& node, const std::vector<Ref>& env, const TorchApi& api) {
  if (is_leaf_mark(node)) keep_leaf(env[static_cast<size_t>(node.outputs[0])].get());
  if (!can_undo() || (!node.mutates && !node.statistics)) return;
  const ErrorAside aside;
  const bool history = api.present() && api.grad_enabled();
  bool any_grad = false;  // what is written may get a history; running statistics have none
  const auto look = [&](int slot) { any_grad = any_grad || api.requires_grad(env[static_cast<size_t>(slot)].get()); };
  if (history && !node.statistics) {
    for_each_slot(node.args.get(), look);
    for_each_slot(node.kwargs.get(), look);
  }
  for (PyObject* argument : written_arguments(node)) {
    for_each_slot(argument, [&](int slot) {
      PyObject* const value = env[static_cast<size_t>(slot)].get();
      if (value == nullptr || !can_undo()) return;
      if (api.numpy != nullptr && api.numpy->is_array(value)) return keep_array(value, api);
      if (!api.is_tensor(value) || (node.statistics && api.requires_grad(value))) return;
      const size_t before = count();
      keep_tensor(value, api);
      if (any_grad && can_undo() && count() != before && attr_or_null(value, "_base").get() != Py_None) {
        lose("a view of a tensor from outside gets a history");
      }
    });
  }
  forget_error();
}

void Transaction::keep_gradient(PyObject* tensor) {
  Change change;
  change.kind = Change::Kind::kGradient;
  change.object = Ref::borrow(tensor);
  change.value = attr_or_null(tensor, "grad");
  changes_.push_back(std::move(change));
}

void Transaction::keep_cleared_gradient(PyObject* tensor) {
  const Ref gradient = attr_or_null(tensor, "grad");
  if (!gradient || gradient.get() == Py_None) return;
  on_undo([held = Ref::borrow(tensor), weak = Ref::steal(PyWeakref_NewRef(gradient.get(), nullptr))] {
    Ref back = weak ? Ref::borrow(weak_object(weak.get())) : Ref();
    if (!back || back.get() == Py_None) {
      const Ref data = attr(held.get(), "data");
      back = data ? Ref::steal(PyObject_CallMethod(data.get(), "clone", nullptr)) : Ref();
      if (!back || !Ref::steal(PyObject_CallMethod(back.get(), "zero_", nullptr))) return false;
    }
    return PyObject_GenericSetAttr(held.get(), grad_name(), back.get()) == 0;
  });
}

void Transaction::keep_leaf(PyObject* tensor) {
  if (tensor == nullptr || attribute_is_true(tensor, "requires_grad")) return;
  on_undo([held = Ref::borrow(tensor)] {
    return static_cast<bool>(Ref::steal(PyObject_CallMethod(held.get(), "requires_grad_", "O", Py_False)));
  });
}

void Transaction::on_undo(std::function<bool()> take_back) {
  Change change;
  change.take_back = std::move(take_back);
  changes_.push_back(std::move(change));
}

void Transaction::lose(const char* why) {
  if (lost_ != nullptr) return;
  lost_ = why;
  TATARA_LOG(kCapture, "what has happened is not taken back if it fails: ", lost_);
}

// ---- Back ------------------------------------------------------------------------------------------------------------

bool Transaction::take_back(const Change& change) {
  switch (change.kind) {
    case Change::Kind::kGenerator:
      return static_cast<bool>(
          Ref::steal(PyObject_CallMethod(change.object.get(), "set_state", "O", change.value.get())));
    case Change::Kind::kMemory:
      if (change.value && !may_restore(change.object.get(), change.value.get())) return false;
      if (!change.bytes.empty()) std::memcpy(change.data, change.bytes.data(), change.bytes.size());
      return !change.value || restore_metadata(change.object.get(), change.value.get());
    case Change::Kind::kGradient:
      return PyObject_GenericSetAttr(change.object.get(), grad_name(), change.value ? change.value.get() : Py_None) ==
             0;
    case Change::Kind::kOther: return change.take_back();
  }
  return false;
}

bool Transaction::undo() { return undo_since(0); }

void Transaction::undo_in_part() {
  lost_ = nullptr;
  undo();
}

bool Transaction::undo_since(size_t mark) { return can_undo() && undo_noted_since(mark); }

bool Transaction::undo_noted_since(size_t mark) {
  const ErrorAside aside;
  bool all = true;
  while (changes_.size() > mark) {
    Change change = std::move(changes_.back());
    changes_.pop_back();
    kept_bytes_ -= change.kind == Change::Kind::kMemory ? change.bytes.size() : 0;
    if (!take_back(change)) {
      forget_error();
      TATARA_LOG(kCapture, "a change is not taken back");
      all = false;
    }
    give_bytes(std::move(change.bytes));
  }
  marked_ = std::min(marked_, changes_.size());
  return all;
}

}  // namespace tatara::capture
