#include "capture/host/known_calls.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <initializer_list>
#include <unordered_map>

#include "capture/host/object_kinds.h"
#include "support/log.h"
#include "support/str_cat.h"

namespace tatara::capture {
namespace {

enum class RowKind : uint8_t { kFunction, kTorchName, kPython, kMethod, kType };

struct Row {
  RowKind kind;
  std::string_view where;  // the module or file that a callable says it is of
  std::string_view name;   // that it says it has
  std::string_view place;  // where the test finds it; empty: `where`
  std::string_view versions;
  KnownCall known;
  const char* label;
};

KnownCall with(CallHandler handler, uint64_t traits) {
  KnownCall known;
  known.handler = handler;
  known.traits = traits;
  return known;
}

KnownCall with(SpecialCall special, TransformCall transform, KnownCode code) {
  KnownCall known;
  known.special = special;
  known.transform = transform;
  known.code = code;
  return known;
}

KnownCall with_stand_in(PackageFunction function) {
  KnownCall known;
  known.special = SpecialCall::kStandIn;
  known.stand_in = function;
  return known;
}

KnownCall changes_first(const char* method) {
  KnownCall known = with(CallHandler::kChangesFirst, 0);
  if (*method != '\0') known.method = method;
  return known;
}

KnownCall of_engine(SpecialCall special, uint64_t traits) {
  KnownCall known = with(CallHandler::kNone, traits);
  known.special = special;
  return known;
}

/// All rows, in the table's order.
const std::vector<Row>& rows() {
  static const std::vector<Row> all = [] {
    using enum CallHandler;
    using Names = std::initializer_list<std::string_view>;
    std::vector<Row> made;
    const auto add = [&made](const char* label, RowKind kind, std::string_view where, std::string_view place,
                             std::string_view versions, const KnownCall& known, Names names) {
      for (const std::string_view name : names) made.push_back({kind, where, name, place, versions, known, label});
    };
#define KNOWN_FUNCTION(MODULE, HANDLER, TRAITS, VERSIONS, ...) \
  add("function", RowKind::kFunction, MODULE, "", VERSIONS, with(CallHandler::HANDLER, TRAITS), {__VA_ARGS__});
#define KNOWN_TRANSFORM(MODULE, NAME, CALL, VERSIONS)       \
  add("function", RowKind::kFunction, MODULE, "", VERSIONS, \
      with(SpecialCall::kTransform, TransformCall::CALL, KnownCode::kNone), {NAME});
#define KNOWN_STAND_IN(NAME, FUNCTION, VERSIONS) \
  add("function", RowKind::kFunction, "torch", "", VERSIONS, with_stand_in(PackageFunction::k##FUNCTION), {NAME});
#define KNOWN_PYTHON_STAND_IN(FILE, NAME, FUNCTION) \
  add("python", RowKind::kPython, FILE, "", "", with_stand_in(PackageFunction::k##FUNCTION), {NAME});
#define KNOWN_TORCH_NAME(NAME, HANDLER) \
  add("torch name", RowKind::kTorchName, "torch*", "", "", with(CallHandler::HANDLER, 0), {NAME});
#define KNOWN_PYTHON(FILE, NAME, SPECIAL, CALL, CODE, VERSIONS) \
  add("python", RowKind::kPython, FILE, "", VERSIONS,           \
      with(SpecialCall::SPECIAL, TransformCall::CALL, KnownCode::CODE), {NAME});
#define KNOWN_WRAPPER(PLACE, FILE, NAME, SPECIAL, CALL, CODE)                                                         \
  add("wrapper", RowKind::kPython, FILE, PLACE, "", with(SpecialCall::SPECIAL, TransformCall::CALL, KnownCode::CODE), \
      {NAME});
#define KNOWN_ARRAY_CODE(FILE, NAME, TRAITS) add("python", RowKind::kPython, FILE, "", "", with(kNone, TRAITS), {NAME});
#define KNOWN_PACKAGE(FUNCTION, CALL)                                                                       \
  add("python", RowKind::kPython, package_file(package_entry(PackageFunction::k##FUNCTION).module), "", "", \
      with(SpecialCall::kTransform, TransformCall::CALL, KnownCode::kNone),                                 \
      {package_entry(PackageFunction::k##FUNCTION).name});
#define KNOWN_CHANGES(MODULE, NAME, METHOD) \
  add("function", RowKind::kFunction, MODULE, "", "", changes_first(METHOD), {NAME});
#define KNOWN_METHOD(WHERE, TRAITS, VERSIONS, ...) \
  add("method", RowKind::kMethod, "", WHERE, VERSIONS, with(kNone, TRAITS), {__VA_ARGS__});
#define KNOWN_ENGINE(NAME, WHERE, SPECIAL, TRAITS) \
  add("method", RowKind::kMethod, "", WHERE, "", of_engine(SpecialCall::SPECIAL, TRAITS), {NAME});
#define KNOWN_TYPE(NAME, PLACE, TRAITS, VERSIONS) \
  add("type", RowKind::kType, "", PLACE, VERSIONS, with(kNone, TRAITS), {NAME});
#include "capture/host/known_calls.def"
    return made;
  }();
  return all;
}

bool is_pattern(std::string_view name) { return name.front() == '*' || name.back() == '*'; }

/// A pattern may begin and end with *.
bool fits(std::string_view pattern, std::string_view text) {
  const bool open = pattern.ends_with('*');
  if (open) pattern.remove_suffix(1);
  if (pattern.starts_with('*')) {
    pattern.remove_prefix(1);
    return open ? text.find(pattern) != std::string_view::npos : text.ends_with(pattern);
  }
  return open ? text.starts_with(pattern) : text == pattern;
}

std::string_view last_part(std::string_view name) {
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

/// Places of the rows that may fit a name, in order.
struct Index {
  std::unordered_map<std::string_view, std::vector<size_t>> exact;
  std::vector<size_t> patterns;
};

const Index& index() {
  static const Index made = [] {
    Index result;
    for (size_t i = 0; i < rows().size(); ++i) {
      const Row& row = rows()[i];
      if (is_pattern(row.name)) {
        result.patterns.push_back(i);
      } else {
        result.exact[row.kind == RowKind::kPython ? last_part(row.name) : row.name].push_back(i);
      }
    }
    return result;
  }();
  return made;
}

/// What a callable says of itself.
struct Said {
  RowKind kind = RowKind::kMethod;
  std::string_view where, name, qualified;
};

bool row_fits(const Row& row, const Said& said) {
  switch (row.kind) {
    case RowKind::kFunction:
      return said.kind == RowKind::kFunction && fits(row.where, said.where) && fits(row.name, said.name);
    case RowKind::kTorchName:
      return (said.kind == RowKind::kFunction || said.kind == RowKind::kMethod) && fits(row.where, said.where) &&
             fits(row.name, said.name);
    case RowKind::kMethod:
      return (said.kind == RowKind::kFunction || said.kind == RowKind::kMethod) && row.name == said.name;
    case RowKind::kPython: {
      if (said.kind != RowKind::kPython || !said.where.ends_with(row.where)) return false;
      return row.name == (row.name.find('.') != std::string_view::npos ? said.qualified : said.name);
    }
    case RowKind::kType: return said.kind == RowKind::kType && row.name == said.name;
  }
  return false;
}

/// All that the rows say: the first that has a handler, a place of its own or a piece of code decides on it.
KnownCall find(const Said& said) {
  std::vector<size_t> places;
  if (const auto found = index().exact.find(said.name); found != index().exact.end()) places = found->second;
  if (said.kind == RowKind::kFunction || said.kind == RowKind::kMethod) {
    places.insert(places.end(), index().patterns.begin(), index().patterns.end());
    std::sort(places.begin(), places.end());
  }
  KnownCall result;
  for (const size_t place : places) {
    const Row& row = rows()[place];
    if (!row_fits(row, said)) continue;
    const KnownCall& known = row.known;
    result.traits |= known.traits;
    if (result.handler == CallHandler::kNone) {
      result.handler = known.handler;
      result.method = known.method;
    }
    if (result.special == SpecialCall::kNone) {
      result.special = known.special;
      result.transform = known.transform;
      result.stand_in = known.stand_in;
    }
    if (result.code == KnownCode::kNone) result.code = known.code;
  }
  return result;
}

/// What is known by identity. Where the callable may go while its address is used again, the texts tell that it has.
struct Entry {
  std::string name, where;  // of functions in C and types
  Ref held[3];              // of code: its names and its file
  KnownCall known;
};

std::unordered_map<const void*, Entry>& entries() {
  static auto* const all = new std::unordered_map<const void*, Entry>;  // lives as long as the process
  return *all;
}

CallCounts counts;

Entry* look_up(const void* identity) {
  const auto found = entries().find(identity);
  return found != entries().end() ? &found->second : nullptr;
}

KnownCall remember(const void* identity, Entry entry) {
  // Programs that make types and code without end use the addresses again; this is for those that keep all.
  constexpr size_t kMost = 1U << 16U;
  if (entries().size() >= kMost) entries().clear();
  return (entries()[identity] = std::move(entry)).known;
}

/// UTF-8 text of a str that lives on; "" for anything else.
std::string_view view_of(PyObject* text) {
  if (text == nullptr || !PyUnicode_Check(text)) return {};
  const char* chars = PyUnicode_AsUTF8(text);
  if (chars == nullptr) forget_error();
  return chars != nullptr ? chars : "";
}

std::string_view module_name(PyObject* module) {
  const char* name = PyModule_GetName(module);
  if (name == nullptr) forget_error();
  return name != nullptr ? name : "";
}

KnownCall known_in_c(const void* identity, RowKind kind, std::string_view where, std::string_view name) {
  if (const Entry* entry = look_up(identity); entry != nullptr && entry->name == name && entry->where == where) {
    return entry->known;
  }
  Entry entry;
  entry.name = name;
  entry.where = where;
  entry.known = find({kind, where, name, {}});
  return remember(identity, std::move(entry));
}

bool of_torch(const PyTypeObject* type) { return std::strncmp(type->tp_name, "torch", 5) == 0; }

KnownCall known_function(PyObject* callable) {
  const auto* function = reinterpret_cast<PyCFunctionObject*>(callable);
  PyObject* self = function->m_self;
  std::string_view where = view_of(function->m_module);
  RowKind kind = where.empty() ? RowKind::kMethod : RowKind::kFunction;
  if (where.empty() && self != nullptr) {
    if (PyModule_Check(self)) {
      where = module_name(self);
      kind = RowKind::kFunction;
    } else {
      // Only of torch's own types and classes it matters whose method it is.
      const PyTypeObject* type = PyType_Check(self) ? reinterpret_cast<PyTypeObject*>(self) : Py_TYPE(self);
      if (of_torch(type)) where = "torch";
    }
  }
  return known_in_c(function->m_ml, kind, where, function->m_ml->ml_name);
}

KnownCall known_descriptor(const void* identity, const PyDescrObject* descriptor) {
  return known_in_c(identity, RowKind::kMethod, of_torch(descriptor->d_type) ? "torch" : "",
                    view_of(descriptor->d_name));
}

struct MethodWrapper {
  PyObject_HEAD PyWrapperDescrObject* descriptor;
  PyObject* self;
};

/// Functions of NumPy's that look for __array_function__, which live as long as NumPy does.
KnownCall known_dispatcher(PyObject* callable) {
  if (const Entry* entry = look_up(callable); entry != nullptr && entry->held[0].get() == callable) return entry->known;
  const std::string module = text_of(attr_or_null(callable, "__module__").get()), name = name_of(callable);
  Entry entry;
  entry.held[0] = Ref::borrow(callable);
  entry.known = find({RowKind::kFunction, module, name, {}});
  return remember(callable, std::move(entry));
}

}  // namespace

KnownCall known_code(PyCodeObject* code) {
  PyObject* const said[] = {code->co_name, code->co_filename, code->co_qualname};
  if (const Entry* entry = look_up(code); entry != nullptr) {
    const auto same = [](const Ref& held, const PyObject* now) { return held.get() == now; };
    if (std::equal(std::begin(said), std::end(said), std::begin(entry->held),
                   [&](const PyObject* now, const Ref& held) { return same(held, now); })) {
      return entry->known;
    }
  }
  Entry entry;
  for (size_t i = 0; i < std::size(said); ++i) entry.held[i] = Ref::borrow(said[i]);
  entry.known =
      find({RowKind::kPython, view_of(code->co_filename), view_of(code->co_name), view_of(code->co_qualname)});
  return remember(code, std::move(entry));
}

KnownCall known_type(const PyTypeObject* type) { return known_in_c(type, RowKind::kType, "", type->tp_name); }

KnownCall known_call(PyObject* callable) {
  ++counts.look_ups;
  while (PyMethod_Check(callable)) callable = PyMethod_GET_FUNCTION(callable);
  if (PyFunction_Check(callable)) {
    return known_code(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(callable)));
  }
  if (PyCFunction_Check(callable)) return known_function(callable);
  if (PyType_Check(callable)) return known_type(reinterpret_cast<PyTypeObject*>(callable));
  const PyTypeObject* type = Py_TYPE(callable);
  const auto* descriptor = reinterpret_cast<PyDescrObject*>(callable);
  if (type == &PyMethodDescr_Type || type == &PyClassMethodDescr_Type) {
    return known_descriptor(reinterpret_cast<PyMethodDescrObject*>(callable)->d_method, descriptor);
  }
  // Slots of all types have one entry a name, and no function of their own.
  if (type == &PyWrapperDescr_Type) {
    return known_descriptor(reinterpret_cast<PyWrapperDescrObject*>(callable)->d_base, descriptor);
  }
  if (std::strcmp(type->tp_name, "method-wrapper") == 0) {  // 3.13 does not declare the type
    PyWrapperDescrObject* slot = reinterpret_cast<MethodWrapper*>(callable)->descriptor;
    return known_descriptor(slot->d_base, reinterpret_cast<PyDescrObject*>(slot));
  }
  if (is_partial(callable)) {
    // Of torch.utils.checkpoint.checkpoint it is known, too.
    const Ref function = attr_or_null(callable, "func");
    const KnownCall known = function ? known_call(function.get()) : KnownCall();
    --counts.look_ups;  // one of two
    return known.transform == TransformCall::kCheckpoint ? known : KnownCall();
  }
  if (std::strcmp(type->tp_name, "CondOp") == 0) {  // torch.ops.higher_order.cond: an object that is called
    const Ref function = attr_or_null(reinterpret_cast<PyObject*>(Py_TYPE(callable)), "__call__");
    const bool python = function && PyFunction_Check(function.get());
    return python ? known_code(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function.get()))) : KnownCall();
  }
  // By its name: a look-up must not be what loads NumPy's interface.
  return std::strcmp(type->tp_name, "numpy._ArrayFunctionDispatcher") == 0 ? known_dispatcher(callable) : KnownCall();
}

uint64_t name_traits(std::string_view name) { return find({RowKind::kMethod, {}, name, {}}).traits; }

CallCounts call_counts() { return counts; }
void count_call() { ++counts.calls; }

// ---- Names of torch and NumPy ------------------------------------------------------------------------------------------

namespace {

struct TorchRow {
  std::string_view where, name, versions;
  KnownTorch known;
};

const std::vector<TorchRow>& torch_rows() {
  static const std::vector<TorchRow> all = [] {
    std::vector<TorchRow> made;
    const auto add = [&made](std::string_view where, KnownTorch known, std::string_view versions,
                             std::initializer_list<std::string_view> names) {
      for (const std::string_view name : names) made.push_back({where, name, versions, known});
    };
#define KNOWN_TORCH(WHERE, KIND, TRAITS, VERSIONS, ...) add(WHERE, {TorchKind::KIND, TRAITS}, VERSIONS, {__VA_ARGS__});
#include "capture/host/known_calls.def"
    return made;
  }();
  return all;
}

constexpr std::pair<std::string_view, const char*> kUfuncs[] = {
#define KNOWN_UFUNC(METHOD, UFUNC) {METHOD, UFUNC},
#include "capture/host/known_calls.def"
};

}  // namespace

KnownTorch known_torch(std::string_view name) {
  static const auto by_name = [] {
    std::unordered_map<std::string_view, KnownTorch> made;
    for (const TorchRow& row : torch_rows()) {
      KnownTorch& known = made[row.name];
      if (known.kind == TorchKind::kRecord) known.kind = row.known.kind;
      known.traits |= row.known.traits;
    }
    return made;
  }();
  const auto found = by_name.find(name);
  return found != by_name.end() ? found->second : KnownTorch();
}

const char* ufunc_of_method(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kUfuncs), std::end(kUfuncs), [&](const auto& u) { return u.first == name; });
  return found != std::end(kUfuncs) ? found->second : nullptr;
}

// ---- The rows of this process ------------------------------------------------------------------------------------------

namespace {

/// The object at a dotted path, without an import; `loaded`: its module is there.
Ref object_at(const std::string& path, bool& loaded) {
  PyObject* const modules = PyImport_GetModuleDict();
  size_t end = path.size();
  Ref at;
  for (; end != std::string::npos; end = end == 0 ? std::string::npos : path.rfind('.', end - 1)) {
    PyObject* module = PyDict_GetItemString(modules, path.substr(0, end).c_str());
    if (module == nullptr) continue;
    at = Ref::borrow(module);
    break;
  }
  loaded = static_cast<bool>(at);
  while (at && end < path.size()) {
    const size_t next = std::min(path.find('.', end + 1), path.size());
    std::string part = path.substr(end + 1, next - end - 1);
    const bool called = part.ends_with("()");
    if (called) part.resize(part.size() - 2);
    at = attr_or_null(at.get(), part.c_str());
    if (at && called) {
      const Ref given = Ref::steal(PyObject_CallOneArg(at.get(), Py_None));
      if (!given) forget_error();
      at = given;
    }
    end = next;
  }
  return at;
}

/// The module of a file below a folder of modules: /torch/amp/grad_scaler.py.
std::string module_of_file(std::string_view file) {
  std::string name(file.substr(1, file.size() - 4));
  if (constexpr std::string_view kPackage = "/__init__"; name.ends_with(kPackage))
    name.resize(name.size() - kPackage.size());
  std::replace(name.begin(), name.end(), '/', '.');
  return name;
}

/// Whether a dict has a callable whose name fits.
bool has_fitting(PyObject* dict, std::string_view pattern) {
  PyObject *name = nullptr, *value = nullptr;
  for (Py_ssize_t i = 0; PyDict_Next(dict, &i, &name, &value) != 0;) {
    if (Py_TYPE(value)->tp_call != nullptr && fits(pattern, view_of(name))) return true;
  }
  return false;
}

/// What a type defines itself; null: nothing is known. The interpreter's own types keep it elsewhere from 3.12 on.
Ref dict_of_type(PyTypeObject* type) {
#if PY_VERSION_HEX >= 0x030c0000
  return Ref::steal(PyType_GetDict(type));
#else
  return Ref::borrow(type->tp_dict);
#endif
}

/// Whether a loaded module whose name fits, or a type in it, has a callable whose name fits.
bool finds_pattern(const Row& row, bool& loaded) {
  PyObject *key = nullptr, *module = nullptr;
  for (Py_ssize_t at = 0; PyDict_Next(PyImport_GetModuleDict(), &at, &key, &module) != 0;) {
    if (!PyModule_Check(module) || !fits(row.where, view_of(key))) continue;
    loaded = true;
    PyObject* const dict = PyModule_GetDict(module);
    if (has_fitting(dict, row.name)) return true;
    PyObject *name = nullptr, *value = nullptr;
    for (Py_ssize_t i = 0; row.kind == RowKind::kTorchName && PyDict_Next(dict, &i, &name, &value) != 0;) {
      if (!PyType_Check(value)) continue;
      const Ref names = dict_of_type(reinterpret_cast<PyTypeObject*>(value));
      if (names && has_fitting(names.get(), row.name)) return true;
    }
  }
  return false;
}

bool holds_all_of(const KnownCall& known, const KnownCall& row) {
  return (known.traits & row.traits) == row.traits &&
         (row.handler == CallHandler::kNone || known.handler == row.handler) &&
         (row.special == SpecialCall::kNone || (known.special == row.special && known.transform == row.transform)) &&
         (row.code == KnownCode::kNone || known.code == row.code);
}

/// Whether the callable says of itself what the row says.
bool is_known_as(PyObject* object, const Row& row) {
  while (PyMethod_Check(object)) object = PyMethod_GET_FUNCTION(object);
  if (row.kind == RowKind::kType) {
    const auto* type = PyType_Check(object) ? reinterpret_cast<PyTypeObject*>(object) : Py_TYPE(object);
    return type->tp_name == row.name && holds_all_of(known_type(type), row.known);
  }
  if (holds_all_of(known_call(object), row.known)) return row.kind != RowKind::kPython || PyFunction_Check(object);
  // Decorators may stand before it.
  const Ref inner = attr_or_null(object, "__wrapped__");
  return inner && is_known_as(inner.get(), row);
}

CallRow state_of(const Row& row) {
  CallRow state{row.label, row.place.empty() ? row.where : row.place, row.name, row.versions};
  if (is_pattern(row.name) || is_pattern(row.where)) {
    state.found = finds_pattern(row, state.loaded);
    return state;
  }
  std::string path(state.place);
  if (row.kind == RowKind::kPython && row.place.empty()) path = module_of_file(row.where);
  const bool whole = row.kind == RowKind::kType || (row.kind == RowKind::kPython && !row.place.empty());
  if (!whole) path += str_cat(".", row.name);
  const bool whole_module = row.kind == RowKind::kPython && row.place.empty();
  if (whole_module && PyDict_GetItemString(PyImport_GetModuleDict(), module_of_file(row.where).c_str()) == nullptr) {
    return state;
  }
  const Ref object = object_at(path, state.loaded);
  state.found = object && is_known_as(object.get(), row);
  return state;
}

}  // namespace

std::vector<CallRow> call_rows() {
  const ErrorAside aside;
  std::vector<CallRow> result;
  for (const Row& row : rows()) result.push_back(state_of(row));
  for (const TorchRow& row : torch_rows()) {
    CallRow state{"torch", row.where, row.name, row.versions};
    state.found = static_cast<bool>(object_at(str_cat(row.where, ".", row.name), state.loaded));
    result.push_back(state);
  }
  for (const auto& [method, ufunc] : kUfuncs) {
    CallRow state{"ufunc", "numpy", ufunc, ""};
    state.found =
        object_at(str_cat("numpy.", ufunc), state.loaded) && object_at(str_cat("numpy.ndarray.", method), state.loaded);
    result.push_back(state);
  }
  return result;
}

void log_unknown_rows() {
  static bool done = false;
  if (done || !log_enabled(LogChannel::kCapture)) return;
  done = true;
  for (const CallRow& row : call_rows()) {
    if (!row.loaded || row.found || !row.versions.empty()) continue;
    TATARA_LOG(kCapture, "known_calls.def: ", row.kind, " ", row.name, " of ", row.place, " is not there");
  }
}

}  // namespace tatara::capture
