// What `unpack` and `Run.dropped` do, one level below Python.
#pragma once

#include "pack.h"
#include "recorder.h"

#include <c10/core/TensorOptions.h>
#include <torch/csrc/Dtype.h>

namespace retape {

inline constexpr const char* SIGHT = "retape.sight";

struct Window {
  std::vector<int64_t> size, stride;
  int64_t offset;
  c10::ScalarType dtype;
  bool conj, neg;
};

inline std::vector<int64_t> integers(const Ref& tuple) {
  std::vector<int64_t> made;
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(tuple.get()); ++k)
    made.push_back(as_int(PyTuple_GET_ITEM(tuple.get(), k)));
  return made;
}

// A `Geometry` as numbers, kept on it.
inline const Window& window_of(PyObject* geometry) {
  Ref kept = attribute(geometry, names->native);
  if (kept.get() == Py_None) {
    const Ref seen = Ref::borrowed(geometry);
    const Ref dtype = member(seen, "dtype");
    auto* made = new Window{
        integers(member(seen, "size")), integers(member(seen, "stride")),
        as_int(member(seen, "offset").get()),
        reinterpret_cast<THPDtype*>(dtype.get())->scalar_type,
        member(seen, "conj").get() == Py_True, member(seen, "neg").get() == Py_True};
    kept = Ref::checked(PyCapsule_New(made, SIGHT, [](PyObject* self) {
      delete static_cast<Window*>(PyCapsule_GetPointer(self, SIGHT));
    }));
    check(PyObject_SetAttr(geometry, names->native, kept.get()));
  }
  return *static_cast<Window*>(PyCapsule_GetPointer(kept.get(), SIGHT));
}

inline at::Tensor tensor_on(PyObject* storage, const Window& window) {
  c10::Storage memory = THPStorage_Unpack(storage);
  const c10::DispatchKeySet keys(c10::computeDispatchKey(
      window.dtype, c10::kStrided, memory.device()));
  auto impl = c10::make_intrusive<c10::TensorImpl>(
      std::move(memory), keys, c10::scalarTypeToTypeMeta(window.dtype));
  impl->set_storage_offset(window.offset);
  impl->set_sizes_and_strides(
      c10::IntArrayRef(window.size), c10::IntArrayRef(window.stride));
  at::Tensor made{std::move(impl)};
  if (window.conj) made._set_conj(true);
  if (window.neg) made._set_neg(true);
  return made;
}

// The tensor of a handle whose value is held; else null.
inline Ref unpack(PyObject* saved) {
  if (current != nullptr || reinterpret_cast<PyObject*>(Py_TYPE(saved)) != layout->handle_type)
    return Ref();
  const Ref trace = attribute(layout->handle_run(saved), names->trace);
  PyObject* slot = layout->handle_slot(saved);
  const Ref moved = attribute(trace.get(), names->moved);
  if (PyObject* actual = lookup(moved.get(), slot)) slot = actual;
  const Ref tail = attribute(trace.get(), names->tail);
  const Ref partial = attribute(tail.get(), names->partial);
  PyObject* storage = lookup(partial.get(), slot);
  if (storage == nullptr) {
    const Ref held = attribute(trace.get(), names->held);
    const Ref storages = attribute(held.get(), names->storages);
    storage = lookup(storages.get(), slot);
    if (storage == nullptr) return Ref();
  }
  return Ref::checked(
      THPVariable_Wrap(tensor_on(storage, window_of(layout->handle_geometry(saved)))));
}

inline void decrement_stages(PyObject* run, PyObject* trace, int64_t which, PyObject* slot) {
  const Ref stages = attribute(run, names->stages);
  for (Py_ssize_t k = 0; k < PyList_GET_SIZE(stages.get()); ++k) {
    PyObject* stage = PyList_GET_ITEM(stages.get(), k);
    if (which < int_attribute(stage, names->low) || which >= int_attribute(stage, names->high))
      continue;
    const Ref left = attribute(stage, names->left);
    PyObject* count = lookup(left.get(), slot);
    if (count == nullptr) continue;
    const int64_t fewer = as_int(count) - 1;
    if (fewer != 0) {
      check(PyDict_SetItem(left.get(), slot, number(fewer).get()));
    } else {
      check(PyDict_DelItem(left.get(), slot));
      const Ref held = attribute(trace, names->held);
      Ref::checked(PyObject_CallMethodOneArg(held.get(), names->release, slot));
    }
  }
}

inline void forget_slot(PyObject* run, PyObject* trace, PyObject* slot, PyObject* actual) {
  const Ref handles = attribute(run, names->slot_handles);
  const int64_t fewer = as_int(lookup(handles.get(), slot)) - 1;
  if (fewer != 0) return check(PyDict_SetItem(handles.get(), slot, number(fewer).get()));
  check(PyDict_DelItem(handles.get(), slot));
  const Ref tail = attribute(trace, names->tail);
  const Ref steps = attribute(tail.get(), names->steps);
  for (PyObject* each : {slot, actual})
    if (has(steps.get(), each))
      Ref::checked(PyObject_CallMethodOneArg(trace, names->drop_from_tail, each));
}

// A handle has died with its graph. The caller holds the run's lock.
inline void dropped(PyObject* run, PyObject* handle) {
  const Ref trace = attribute(run, names->trace);
  const Ref slot = Ref::borrowed(layout->handle_slot(handle));
  const int64_t which = as_int(layout->handle_number(handle));
  const Ref moved = attribute(trace.get(), names->moved);
  PyObject* elsewhere = lookup(moved.get(), slot.get());
  const Ref actual = Ref::borrowed(elsewhere == nullptr ? slot.get() : elsewhere);
  const Ref alive = attribute(run, names->alive);
  PyByteArray_AS_STRING(alive.get())[which] = 0;
  add_to_attribute(run, names->living, -1);
  decrement_stages(run, trace.get(), which, actual.get());
  forget_slot(run, trace.get(), slot.get(), actual.get());
}

}  // namespace retape
