#include "capture/host/autocast.h"

#include <map>
#include <unordered_map>

#include "capture/host/package.h"
#include "capture/host/torch_api.h"

namespace tatara::capture {
namespace {

Ref text(const char* value) { return Ref::steal(PyUnicode_InternFromString(value)); }

bool any_on(const TorchApi& api) {
  if (!api.present()) return false;
  const Ref answer = Ref::steal(PyObject_CallNoArgs(api.autocast.is_any.get()));
  if (!answer) forget_error();
  return answer.get() == Py_True;
}

void switch_device(const TorchApi& api, const char* device, bool on) {
  const Ref done = Ref::steal(
      PyObject_CallFunctionObjArgs(api.autocast.set.get(), text(device).get(), on ? Py_True : Py_False, nullptr));
  if (!done) forget_error();
}

using Table = std::unordered_map<std::string, CastPolicy>;

Table read_table(const std::string& device_type) {
  static const std::unordered_map<std::string, CastPolicy> words = {{"lower", CastPolicy::kLower},
                                                                    {"float32", CastPolicy::kFloat32},
                                                                    {"promote", CastPolicy::kPromote},
                                                                    {"unknown", CastPolicy::kUnknown}};
  Table table;
  const Ref device = text(device_type.c_str());
  const Ref found = call_package<PackageFunction::kAutocastPolicies>(device.get());
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  while (found && PyDict_Next(found.get(), &at, &key, &value) != 0) table[text_of(key)] = words.at(text_of(value));
  forget_error();
  return table;
}

}  // namespace

AutocastState AutocastState::read(const TorchApi& api) {
  AutocastState state;
  state.any = any_on(api);
  for (size_t i = 0; state.any && i < kDevices.size(); ++i) {
    const Ref name = text(kDevices[i]);
    const Ref on = Ref::steal(PyObject_CallOneArg(api.autocast.get.get(), name.get()));
    state.devices[i].on = on.get() == Py_True;
    if (state.devices[i].on) {
      state.devices[i].dtype = Ref::steal(PyObject_CallOneArg(api.autocast.get_dtype.get(), name.get()));
    }
    forget_error();
  }
  return state;
}

bool AutocastState::operator==(const AutocastState& other) const {
  if (any != other.any) return false;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (devices[i].on != other.devices[i].on || devices[i].dtype.get() != other.devices[i].dtype.get()) return false;
  }
  return true;
}

void AutocastState::apply(const TorchApi& api) const {
  if (!any && !any_on(api)) return;
  const ErrorAside aside;
  for (size_t i = 0; i < kDevices.size(); ++i) {
    switch_device(api, kDevices[i], devices[i].on);
    if (!devices[i].dtype) continue;
    const Ref done = Ref::steal(PyObject_CallFunctionObjArgs(api.autocast.set_dtype.get(), text(kDevices[i]).get(),
                                                             devices[i].dtype.get(), nullptr));
    if (!done) forget_error();
  }
}

Ref AutocastState::as_tuple() const {
  const Ref list = Ref::steal(PyList_New(0));
  for (size_t i = 0; i < devices.size(); ++i) {
    if (!devices[i].on) continue;
    const Ref each = Ref::steal(PyTuple_Pack(3, text(kDevices[i]).get(), Py_True, devices[i].dtype.get()));
    if (!each || PyList_Append(list.get(), each.get()) != 0) forget_error();
  }
  return Ref::steal(PyList_AsTuple(list.get()));
}

AutocastOff::AutocastOff(const TorchApi& api) : api_(api), before_(AutocastState::read(api)) {
  for (size_t i = 0; i < before_.devices.size(); ++i) {
    if (before_.devices[i].on) switch_device(api_, AutocastState::kDevices[i], false);
  }
}

AutocastOff::~AutocastOff() {
  if (!before_.any) return;
  const ErrorAside aside;
  for (size_t i = 0; i < before_.devices.size(); ++i) {
    if (before_.devices[i].on) switch_device(api_, AutocastState::kDevices[i], true);
  }
}

CastPolicy cast_policy(const std::string& name, const std::string& device_type) {
  static std::map<std::string, Table>* const tables = new std::map<std::string, Table>;  // under the GIL
  auto found = tables->find(device_type);
  // Making one runs Python code, which may let another thread make it first.
  if (found == tables->end()) found = tables->emplace(device_type, read_table(device_type)).first;
  const auto policy = found->second.find(name);
  return policy == found->second.end() ? CastPolicy::kNone : policy->second;
}

}  // namespace tatara::capture
