// The guards of an entry as text, one line each, in the order in which each of them checks.
#include "capture/entries/guards.h"
#include "capture/tape/tape_print.h"

#include "capture/host/numpy_api.h"
#include "support/str_cat.h"

namespace tatara::capture {
namespace {

std::string class_text(PyObject* type) {
  const std::string text = value_text(type);
  return text.starts_with("class ") ? text.substr(6) : text;
}

/// An object that a guard holds by its identity, or a value. What a container holds is no part of it.
std::string object_text(PyObject* object) {
  if (object != nullptr && (PyList_Check(object) || PyDict_Check(object) || PyAnySet_Check(object))) {
    return str_cat("this ", type_name(object));
  }
  constexpr size_t kLongest = 120;
  std::string text = value_text(object);
  if (text.size() <= kLongest) return text;
  size_t end = kLongest;
  while ((static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80U) --end;  // not within a character
  return text.substr(0, end) + "...";
}

bool is_contiguous(const TensorMeta& meta) {
  int64_t expected = 1;
  for (size_t d = meta.sizes.size(); d-- > 0;) {
    if (meta.sizes[d] != 1 && meta.strides[d] != expected) return false;
    expected *= meta.sizes[d];
  }
  return true;
}

/// "float32[s0, 4]": `sizes` and `strides` where some are symbols.
std::string layout_text(const TensorMeta& meta, const std::vector<Expr>& sizes, const std::vector<Expr>& strides) {
  std::string text = dtype_text(meta.code, meta.bits);
  text += sizes.empty() ? sizes_text(meta.sizes) : sizes_text(sizes);
  if (!is_contiguous(meta)) text += " strides " + (strides.empty() ? sizes_text(meta.strides) : sizes_text(strides));
  constexpr int32_t kCuda = 2;
  if (meta.device_type == kCuda) text += str_cat("@cuda:", meta.device_id);
  return text;
}

/// Names of what a frame or a call holds, by the code object.
std::vector<std::string> names_of(PyObject* code, const char* attribute) {
  std::vector<std::string> names;
  const Ref tuple = attr_or_null(code, attribute);
  for (Py_ssize_t i = 0; tuple && PyTuple_Check(tuple.get()) && i < PyTuple_GET_SIZE(tuple.get()); ++i) {
    names.push_back(text_of(PyTuple_GET_ITEM(tuple.get(), i)));
  }
  return names;
}

/// Roots of a call: arguments, then names of keywords, defaults, and defaults of keyword arguments.
std::vector<std::string> names_in_call(PyObject* code, size_t count, const std::vector<std::string>& keywords) {
  const std::vector<std::string> variables = names_of(code, "co_varnames");
  const auto positional = static_cast<size_t>(reinterpret_cast<PyCodeObject*>(code)->co_argcount);
  std::vector<std::string> names;
  const size_t given = count < 3 ? 0 : count - 3;
  for (size_t i = 0; i < given; ++i) {
    if (i + keywords.size() >= given) {
      names.push_back(keywords[i + keywords.size() - given]);
    } else if (i < positional && i < variables.size()) {
      names.push_back(variables[i]);
    } else {
      names.push_back(str_cat("*args[", i - positional, "]"));
    }
  }
  for (const char* name : {"names of keywords", "defaults", "keyword defaults"}) names.emplace_back(name);
  return names;
}

/// Roots of a frame: locals, then its stack; at its beginning, cells of its function.
std::vector<std::string> names_in_frame(PyObject* code, size_t count, int offset) {
  std::vector<std::string> names = names_of(code, "co_varnames");
  for (const char* more : {"co_cellvars", "co_freevars"}) {
    for (std::string& name : names_of(code, more)) {
      // A cell variable may be an argument, which has a place already.
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
    }
  }
  const std::vector<std::string> cells = names_of(code, "co_freevars");
  const size_t locals = names.size();
  for (size_t i = locals; i < count; ++i) {
    const size_t place = i - locals;
    const bool cell = offset == 0 && place < cells.size();
    names.push_back(cell ? "cell of " + cells[place] : str_cat("stack[", place, "]"));
  }
  return names;
}

/// Whose dict it is, as far as the dict itself tells.
std::string dict_name(PyObject* dict) {
  PyObject* name = PyDict_GetItemString(dict, "__name__");
  const bool module = PyDict_GetItemString(dict, "__spec__") != nullptr;
  if (name == nullptr || !module || !PyUnicode_Check(name)) return "a dict";
  return text_of(name) == "builtins" ? "builtins" : "globals of " + text_of(name);
}

}  // namespace

struct ValueGuard::Printer {
  const ValueGuard& guard;
  std::vector<std::string> lines;
  size_t at = 0;
  int objects = 0;  // that check() has put among the objects

  const Item& next() { return guard.items_[at++]; }
  void line(const std::string& name, const std::string& text) { lines.push_back(name + text); }

  void children(const std::string& name, const Item& item, bool attributes) {
    for (const Ref& key : item.keys) {
      print(attributes ? str_cat(name, ".", text_of(key.get())) : str_cat(name, "[", value_text(key.get()), "]"));
    }
  }

  void unread(const std::string& name, const Item& item) {
    line(name, str_cat(": ", class_text(item.type.get()), " of any contents"));
    at += item.unread_items;
    objects += 1 + static_cast<int>(item.unread_objects);
  }

  void tensor(const std::string& name, const Item& item) {
    const auto index = static_cast<size_t>(item.same);
    const TensorMeta& meta = guard.metas_[index];
    const SymbolicLayout& layout = guard.dims_[index].layout();
    std::string text = str_cat(": ", class_text(item.type.get()), " ", layout_text(meta, layout.sizes, layout.strides));
    if (meta.conjugate) text += ", a conjugate view";
    if (guard.check_grad) text += guard.needs_grad_[index] ? ", requires grad" : "";
    if (guard.check_leaf && guard.needs_grad_[index]) text += guard.leaves_[index] ? ", a leaf" : ", no leaf";
    line(name, str_cat(text, "   # input ", objects));
  }

  /// The item and those inside of it.
  void print(const std::string& name) {
    const Item& item = next();
    const auto kind_of = [&item] { return class_text(item.type.get()); };
    const auto counted = [&](size_t count) { line(name, str_cat(": ", kind_of(), " of ", count)); };
    switch (item.kind) {
      case Kind::kNull: return line(name, " is unbound");
      case Kind::kConst: {
        PyObject* value = item.value.get();
        const bool same = value == Py_None || PyBool_Check(value);
        return line(name, str_cat(same ? " is " : " == ", object_text(value)));
      }
      case Kind::kInt: line(name, str_cat(": int s", item.same, "   # input ", objects)); break;
      case Kind::kFloat: line(name, str_cat(": float of any value   # input ", objects)); break;
      case Kind::kIdentity: line(name, " is " + object_text(item.object.get())); break;
      case Kind::kForeign:
        line(name, str_cat(": ", kind_of(), " ", text_of(Ref::steal(PyObject_Str(item.keys[0].get())).get()), " of ",
                           object_text(item.keys[3].get()), "   # input ", objects));
        break;
      case Kind::kGenerator: line(name, str_cat(": a generator on ", text_of(item.value.get()))); break;
      case Kind::kNotANumber: line(name, " is a NaN"); break;
      case Kind::kPassive: line(name, str_cat(": ", kind_of())); break;
      case Kind::kEmptySet: line(name, " is an empty set"); break;
      case Kind::kTensor: tensor(name, item); break;
      case Kind::kSame: return line(name, str_cat(" is input ", item.same));
      case Kind::kTuple:
      case Kind::kList: {
        if (item.unread) return unread(name, item);
        counted(static_cast<size_t>(item.count));
        ++objects;
        for (int i = 0; i < item.count; ++i) print(str_cat(name, "[", i, "]"));
        if (item.has_dict) children(name, next(), true);
        return;
      }
      case Kind::kDict:
        if (item.unread) return unread(name, item);
        counted(item.keys.size());
        ++objects;
        if (item.has_maker) print(name + ".default_factory");
        if (item.value) line(name, ".default_factory is " + value_text(item.value.get()));
        children(name, item, false);
        if (item.has_dict) children(name, next(), true);
        return;
      case Kind::kInstance:
        line(name, str_cat(": ", kind_of(), " with ", item.keys.size(), " attributes"));
        ++objects;
        return children(name, item, true);
      case Kind::kCell: ++objects; return print(name + " (a cell)");
      case Kind::kMethod:
        line(name, ": method");
        ++objects;
        print(name + ".__self__");
        return print(name + ".__func__");
      case Kind::kFunction:
        line(name, ": function of " + object_text(item.keys[0].get()));
        ++objects;
        print(name + ".__defaults__");
        print(name + ".__kwdefaults__");
        return print(name + ".__closure__");
    }
    ++objects;
  }
};

std::vector<std::string> ValueGuard::describe(PyObject* code, int offset) const {
  std::vector<size_t> starts;  // of the roots
  Printer walk{*this, {}};
  while (starts.size() < root_count_) {
    starts.push_back(walk.at);
    walk.print({});
  }
  const size_t beside = of_call ? std::min<size_t>(3, starts.size()) : 0;
  std::vector<std::string> keywords;
  if (beside > 0 && items_[starts[starts.size() - 3]].kind == Kind::kTuple) {
    for (size_t i = starts[starts.size() - 3] + 1; i < starts[starts.size() - 2]; ++i) {
      keywords.push_back(text_of(items_[i].value.get()));
    }
  }
  const std::vector<std::string> names =
      of_call ? names_in_call(code, starts.size(), keywords) : names_in_frame(code, starts.size(), offset);
  Printer printer{*this, {}};
  for (size_t root = 0; root < starts.size() && root < names.size(); ++root) {
    const bool missing = root + beside >= starts.size() && items_[printer.at].kind == Kind::kNull;
    if (missing) {
      ++printer.at;
    } else {
      printer.print(names[root]);
    }
  }
  for (const State& state : states_) {
    const std::string name = state.object >= 0 ? str_cat("input ", state.object) : object_text(state.iterator.get());
    printer.line(name, state.parts > 0 ? str_cat(" is at ", state.position) : std::string(" is at its end"));
    for (size_t i = 0; i < state.parts; ++i) printer.print("what it goes over");
  }
  for (size_t i = 0; i < ranges_.size(); ++i) {
    if (ranges_[i].hi < INT64_MAX) {
      printer.lines.push_back(str_cat(ranges_[i].lo, " <= s", i, " <= ", ranges_[i].hi));
    } else if (ranges_[i].lo > INT64_MIN) {
      printer.lines.push_back(str_cat(ranges_[i].lo, " <= s", i));
    }
  }
  return std::move(printer.lines);
}

std::vector<std::string> ValueGuard::describe(const std::string& name) const {
  Printer printer{*this, {}};
  printer.objects = static_cast<int>(first_object_);
  printer.print(name);
  return std::move(printer.lines);
}

namespace {

template <typename... Parts>
void add_line(std::vector<std::string>& lines, const Parts&... parts) {
  lines.push_back(str_cat(parts...));
}

std::string found_text(const ObjectRead& read, const std::vector<SourceTensor>& sources) {
  if (!read.value) return "absent";
  if (read.source < 0) return object_text(read.found());
  return str_cat("a tensor ", layout_text(sources[static_cast<size_t>(read.source)].meta, {}, {}));
}

}  // namespace

void NumberGuards::describe(std::vector<std::string>& lines) const {
  for (const Watch& watch : watches_) {
    const std::string place = watch.key ? value_text(watch.key.get()) : str_cat("[", watch.index, "]");
    if (watch.value) {
      for (std::string& line : watch.value->describe(place)) lines.push_back(std::move(line));
    } else if (watch.tuple) {
      add_line(lines, place, " is a tuple of ", watch.varying.size(), ", unchanged but for its numbers");
    } else {
      add_line(lines, place, " is a ", class_text(watch.type.get()), " of any value");
    }
  }
}

void WeakGuards::describe(std::vector<std::string>& lines) const {
  for (const Watch& watch : watches_) add_line(lines, "a weak reference is ", watch.alive ? "alive" : "dead");
}

void DictGuards::describe(std::vector<std::string>& lines, const std::vector<SourceTensor>& sources) const {
  for (const Watch& watch : watches_) {
    const std::string name = dict_name(watch.dict.get());
    for (const ObjectRead& read : watch.reads)
      add_line(lines, name, ": ", value_text(read.key.get()), " is ", found_text(read, sources));
    if (watch.size >= 0 && !watch.all) add_line(lines, name, " has ", watch.size, " items");
    if (watch.all) add_line(lines, name, ": its ", watch.items.size(), " items are unchanged");
    if (!watch.order.empty()) add_line(lines, name, ": its items have the same order");
  }
}

void ClassGuards::describe(std::vector<std::string>& lines) const {
  for (const ClassWatch& watch : watches_) {
    add_line(lines, value_text(reinterpret_cast<PyObject*>(watch.type())), " is unchanged, as far as it was read");
  }
}

void ContainerGuards::describe(std::vector<std::string>& lines, const std::vector<SourceTensor>& sources) const {
  for (const ListWatch& watch : lists_) {
    add_line(lines, "a list has ", watch.size, " items");
    for (const auto& [index, read] : watch.items)
      add_line(lines, "a list: [", index, "] is ", found_text(read, sources));
  }
  for (const SetWatch& watch : sets_)
    add_line(lines, "a set of ", PyList_GET_SIZE(watch.before.get()), " items is unchanged");
  for (const DequeWatch& watch : deques_)
    add_line(lines, "a deque of ", PyList_GET_SIZE(watch.before.get()), " is unchanged");
  for (const CellWatch& watch : cells_) add_line(lines, "a closure variable is ", found_text(watch.read, sources));
}

void AttributeGuards::describe(std::vector<std::string>& lines, const std::vector<SourceTensor>& sources) const {
  for (const AttrWatch& watch : attrs_) {
    add_line(lines, "attribute ", value_text(watch.read.key.get()), " of ", object_text(watch.object()), " is ",
             found_text(watch.read, sources));
  }
  for (const TensorAttrWatch& watch : tensor_attrs_) {
    add_line(lines, "attribute ", value_text(watch.read.key.get()), " of input ", watch.object, " is ",
             found_text(watch.read, sources));
  }
  for (const InstanceWatch& watch : instances_) {
    add_line(lines, "an object is of class ", class_text(watch.type.get()),
             watch.dict ? ", with the same __dict__" : "");
  }
  for (const FunctionWatch& watch : functions_) {
    add_line(lines, "code and defaults of ", object_text(watch.function.get()), " are unchanged");
  }
}

void GradientGuards::describe(std::vector<std::string>& lines) const {
  if (passes_) add_line(lines, "tensors are different objects, as they were");
  for (const Need& need : needs_) {
    add_line(lines, object_text(need.tensor.get()), need.needs ? " requires grad" : " does not require grad");
  }
  for (const Ref& leaf : leaves_) add_line(lines, object_text(leaf.get()), " has no history");
  for (const Watch& watch : gradients_) {
    add_line(lines, "gradient of ",
             watch.object >= 0 ? str_cat("input ", watch.object) : object_text(watch.tensor.get()), " is ",
             watch.none ? std::string("None") : layout_text(watch.meta, {}, {}));
  }
}

void CallGuards::describe(std::vector<std::string>& lines) const {
  for (const CachedWatch& watch : cached_) {
    add_line(lines, "a cached result is ", object_text(watch.result.get()), ", still in its cache");
  }
  if (nothing_handled_) add_line(lines, "no exception is being handled");
  for (const SubclassWatch& watch : subclasses_) {
    add_line(lines, "issubclass(", object_text(watch.type.get()), ", ", object_text(watch.abstract.get()), ") gives ",
             object_text(watch.answer.get()));
  }
  for (const CallWatch& watch : calls_) {
    std::string args;
    for (const Ref& arg : watch.args) args += str_cat(args.empty() ? "" : ", ", object_text(arg.get()));
    add_line(lines, object_text(watch.callable.get()), "(", args, ") gives ", object_text(watch.result.get()));
  }
}

std::vector<std::string> ObjectGuards::describe_numbers() const {
  std::vector<std::string> lines;
  numbers_.describe(lines);
  return lines;
}

std::vector<std::string> ObjectGuards::describe() const {
  std::vector<std::string> lines;
  weak_.describe(lines);
  dicts_.describe(lines, sources_);
  classes_.describe(lines);
  containers_.describe(lines, sources_);
  attributes_.describe(lines, sources_);
  gradients_.describe(lines);
  calls_.describe(lines);
  return lines;
}

std::string GlobalState::describe() const {
  std::string text = str_cat("gradients are ", grad ? "on" : "off");
  const auto add = [&text](bool present, const std::string& what) {
    if (present) text += ", " + what;
  };
  add(inference, "inference mode");
  for (size_t i = 0; autocast.any && i < autocast.devices.size(); ++i) {
    const AutocastState::Device& device = autocast.devices[i];
    add(device.on, str_cat("autocast of ", AutocastState::kDevices[i], " to ", value_text(device.dtype.get())));
  }
  add(deterministic, "deterministic algorithms");
  add(transformed, "inside a transform of torch.func");
  add(dual, "inside a level of forward-mode derivatives");
  add(recorded, "torch.jit.trace at work");
  add(saves_tensors, saved_hooks ? "hooks on saved tensors" : "no hooks on saved tensors");
  if (default_device) add(true, str_cat("default device ", value_text(default_device.get())));
  add(modes != 0, str_cat(modes, " torch-function modes"));
  add(dispatch_modes != 0, str_cat(dispatch_modes, " torch-dispatch modes"));
  add(no_autograd, "the dispatcher's autograd left out");
  add(!overrides, "__torch_function__ off");
  if (default_dtype) add(true, "default dtype " + value_text(default_dtype.get()));
  add(static_cast<bool>(errstate), "np.errstate as it was");
  return text;
}

std::vector<std::string> Identities::describe() const {
  std::vector<std::string> lines;
  const auto add = [&lines](const std::vector<Identities::Pair>& pairs, const char* relation) {
    for (const Identities::Pair& pair : pairs) {
      lines.push_back(str_cat("input ", pair.object, relation,
                              pair.other >= 0 ? str_cat("input ", pair.other) : object_text(pair.value.get())));
    }
  };
  add(same, " is ");
  add(apart, " is not ");
  add(alike, " lies in its storage like ");
  add(unlike, " does not lie in its storage like ");
  for (const Group& group : separate) {
    std::string text;
    for (const int place : group.objects) text += str_cat(text.empty() ? "" : ", ", place);
    lines.push_back(str_cat("inputs ", text, group.values.empty() ? "" : " and constants", " share no memory"));
  }
  for (const int place : whole) lines.push_back(str_cat("input ", place, " fills its storage"));
  for (const int place : partial) lines.push_back(str_cat("input ", place, " is a part of its storage"));
  return lines;
}

}  // namespace tatara::capture
