// What `Run.pack` does, one level below Python.
#pragma once

#include "session.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace retape {

// Whether what is enqueued now goes on the stream that PyTorch begins with.
inline bool on_default_stream(c10::Device device) {
  return !device.is_cuda() ||
      c10::impl::VirtualGuardImpl(device.type()).getStream(device).id() == 0;
}

inline void add_to_tail(
    Session& session, PyObject* slot, PyObject* storage, PyObject* window) {
  PyObject* tail = session.tail.get();
  PyObject* all_windows = layout->Tail_windows(tail);
  PyObject* windows = lookup(all_windows, slot);
  if (windows != nullptr) return check(PyList_Append(windows, window));
  const Ref step = session.index(PyList_GET_SIZE(session.steps.get()));
  const int64_t bytes = item(session.nbytes.get(), as_int(slot));
  check(PyObject_SetItem(layout->Tail_steps(tail), slot, step.get()));
  const Ref list = Ref::checked(PyList_New(1));
  PyList_SET_ITEM(list.get(), 0, Py_NewRef(window));
  untrack(list);
  check(PyDict_SetItem(all_windows, slot, list.get()));
  layout->Tail_nbytes.add(tail, bytes);
  layout->Trace_saved.add(session.trace.get(), bytes);
  hold(session.held.get(), slot, storage);
}

inline void count_handle(Session& session, PyObject* slot) {
  append(session.handle_steps.get(), session.index(PyList_GET_SIZE(session.steps.get())));
  check(PyList_Append(session.handle_slots.get(), slot));
  const Py_ssize_t length = PyByteArray_GET_SIZE(session.alive.get());
  check(PyByteArray_Resize(session.alive.get(), length + 1));
  PyByteArray_AS_STRING(session.alive.get())[length] = 1;
  layout->Run_living.add(session.run.get(), 1);
  count_up(session.slot_handles.get(), slot);
}

inline Ref pack(Session& session, PyObject* wrapped) {
  const auto slowly = [&] {
    return Ref::checked(
        PyObject_CallMethodOneArg(session.run.get(), names->pack, wrapped));
  };
  const at::Tensor& tensor = THPVariable_Unpack(wrapped);
  if (!plain_tensor(tensor) || tensor._is_zerotensor()) return slowly();
  if (!on_default_stream(tensor.device())) return slowly();
  if (c10::impl::TorchDispatchModeTLS::get_mode(c10::impl::TorchDispatchModeKey::PROXY)) return slowly();
  const Ref storage = Ref::checked(THPStorage_Wrap(tensor.storage()));
  PyObject* buffer = session.buffer_on(storage.get());
  if (buffer == nullptr) buffer = session.adopt(tensor, storage.get());
  if (layout->Buffer_uninitialised(buffer) != Py_False) return slowly();
  const Ref slot = Ref::borrowed(layout->Buffer_slot(buffer));
  if (session.written_unseen(buffer, tensor)) return slowly();
  if (session.of_earlier_section(as_int(slot.get()))) return slowly();
  if (item(session.producer.get(), as_int(slot.get())) < 0) {
    PyObject* note = lookup(session.notes.get(), slot.get());
    PyObject* known = note == nullptr ? Py_None : layout->Note_input(note);
    if (known == Py_None) return slowly();
    if (PyTuple_GET_ITEM(known, 0) == wrapped) return Ref::borrowed(known);
    PyObject* root = PyList_GET_ITEM(session.roots.get(), as_int(slot.get()));
    return Ref::checked(PyObject_CallFunctionObjArgs(
        layout->view_type, known, root, session.geometry_of(tensor), nullptr));
  }
  const Ref window = Ref::borrowed(session.geometry_of(tensor));
  const int64_t number_of_it = PyList_GET_SIZE(session.handle_steps.get());
  count_handle(session, slot.get());
  put(session.last_read.get(), as_int(slot.get()),
      session.index(PyList_GET_SIZE(session.steps.get())));
  add_to_tail(session, slot.get(), storage.get(), window.get());
  Ref handle(new_instance(layout->handle_type));
  layout->Handle_run.set(handle.get(), session.run);
  layout->Handle_slot.set(handle.get(), slot);
  layout->Handle_geometry.set(handle.get(), window);
  layout->Handle_number.set(handle.get(), session.index(number_of_it));
  return handle;
}

}  // namespace retape
