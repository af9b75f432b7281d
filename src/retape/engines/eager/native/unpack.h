// What `unpack` and `Run.dropped` do, one level below Python.
#pragma once

#include "pack.h"
#include "recorder.h"

#include <c10/core/TensorOptions.h>
#include <c10/util/ScopeExit.h>

namespace retape {

// A tensor that looks at memory through a `Geometry`; null where Python has to make it.
inline Ref window(const c10::Storage& memory, PyObject* geometry) {
  PyObject* sight = layout->Geometry_native(geometry);
  if (sight == Py_None || !on_default_stream(memory.device())) return Ref();
  const Sight& seen = *static_cast<const Sight*>(PyCapsule_GetPointer(sight, SIGHT));
  const c10::DispatchKeySet keys(
      c10::computeDispatchKey(seen.dtype, c10::kStrided, memory.device()));
  return Ref::checked(THPVariable_Wrap(tensor_on(memory, keys, seen)));
}

// The tensor of a `Input`, if nobody has overwritten it; else null, and Python says so.
inline Ref unchanged(PyObject* known) {
  PyObject* wrapped = PyTuple_GET_ITEM(known, 0);
  const int64_t version = as_int(PyTuple_GET_ITEM(known, 1));
  const at::Tensor& tensor = THPVariable_Unpack(wrapped);
  const at::Storage& had = THPStorage_Unpack(PyTuple_GET_ITEM(known, 3));
  if (had.unsafeGetStorageImpl() != tensor.storage().unsafeGetStorageImpl())
    return Ref();
  const auto bytes = static_cast<int64_t>(tensor.storage().nbytes());
  const int64_t expected = as_int(PyTuple_GET_ITEM(known, 2));
  if (version >= 0 && (tensor._version() != version || bytes != expected)) return Ref();
  return Ref::borrowed(wrapped);
}

// `Trace.actual`, borrowed.
inline PyObject* actual_slot(PyObject* trace, PyObject* slot) {
  PyObject* note = lookup(layout->Trace_notes(trace), slot);
  PyObject* filled = note == nullptr ? Py_None : layout->Note_filled_as(note);
  return filled == Py_None ? slot : filled;
}

// The tensor of a saved object if it is foreign, or a handle whose value is held.
inline Ref unpack(PyObject* saved) {
  auto* kind = reinterpret_cast<PyObject*>(Py_TYPE(saved));
  if (kind == layout->foreign_type) return unchanged(saved);
  if (kind == layout->view_type) {
    const Ref tensor = unchanged(layout->ForeignView_known(saved));
    if (!tensor) return Ref();
    return window(THPVariable_Unpack(tensor.get()).storage(), layout->ForeignView_geometry(saved));
  }
  const bool is_handle = kind == layout->handle_type || kind == layout->python_handle_type;
  if (current != nullptr || !is_handle) return Ref();
  PyObject* trace = layout->Run_trace(layout->Handle_run(saved));
  PyObject* slot = actual_slot(trace, layout->Handle_slot(saved));
  PyObject* storage = lookup(layout->Tail_partial(layout->Trace_tail(trace)), slot);
  if (storage == nullptr) {
    PyObject* storages = layout->Holdings_storages(layout->Trace_held(trace));
    if (PyDict_CheckExact(storages)) storage = lookup(storages, slot);
    if (storage == nullptr) return Ref();
  }
  return window(THPStorage_Unpack(storage), layout->Handle_geometry(saved));
}

inline void decrement_stages(PyObject* run, PyObject* trace, int64_t which, PyObject* slot) {
  PyObject* stages = layout->Run_stages(run);
  for (Py_ssize_t k = 0; k < PyList_GET_SIZE(stages); ++k) {
    PyObject* stage = PyList_GET_ITEM(stages, k);
    if (which < layout->RecomputedValues_low.as_number(stage) ||
        which >= layout->RecomputedValues_high.as_number(stage))
      continue;
    PyObject* left = layout->RecomputedValues_left(stage);
    if (has(left, slot) && count_down(left, slot))
      release(layout->Trace_held(trace), slot);
  }
}

inline void forget_slot(PyObject* run, PyObject* trace, PyObject* slot, PyObject* actual) {
  if (!count_down(layout->Run_slot_handles(run), slot)) return;
  PyObject* steps = layout->Tail_steps(layout->Trace_tail(trace));
  for (PyObject* each : {slot, actual})
    if (has(steps, each))
      Ref::checked(PyObject_CallMethodOneArg(trace, names->drop_from_tail, each));
}

// A handle has died with its graph. The caller holds the run's lock.
inline void dropped(PyObject* run, PyObject* handle) {
  PyObject* trace = layout->Run_trace(run);
  const Ref slot = Ref::borrowed(layout->Handle_slot(handle));
  const int64_t which = layout->Handle_number.as_number(handle);
  const Ref actual = Ref::borrowed(actual_slot(trace, slot.get()));
  PyByteArray_AS_STRING(layout->Run_alive(run))[which] = 0;
  layout->Run_living.add(run, -1);
  decrement_stages(run, trace, which, actual.get());
  forget_slot(run, trace, slot.get(), actual.get());
}

// What `Run.dropped` does, the lock included.
inline void drop_handle(PyObject* handle) {
  const Ref run = Ref::borrowed(layout->Handle_run(handle));
  if (!run) return;
  PyObject* lock = layout->Run_lock(run.get());
  Ref::checked(PyObject_CallMethodNoArgs(lock, names->acquire));
  const auto unlock = c10::make_scope_exit(
      [&] { Ref(PyObject_CallMethodNoArgs(lock, names->release)); });
  dropped(run.get(), handle);
  if (layout->Run_living.as_number(run.get()) == 0 &&
      layout->Run_recording(run.get()) == Py_False)
    Ref::checked(PyObject_CallMethodNoArgs(run.get(), names->let_go));
}

inline void destroy_handle(PyObject* self) {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);  // an error may be on its way
  try {
    drop_handle(self);
  } catch (python_error& error) {
    error.restore();
    PyErr_WriteUnraisable(nullptr);
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    PyErr_WriteUnraisable(nullptr);
  }
  PyErr_Restore(type, value, trace);
  free_instance(self);
}

}  // namespace retape
