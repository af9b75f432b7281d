// The interpreter's table of functions, with one of them replaced.
#pragma once

#include "recorder.h"

namespace retape {

namespace {
using c10::DeviceType;
using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::TensorImpl;
using c10::impl::PyObjectSlot;
}  // namespace

// A method that does as usual.
#define RETAPE_PASSED_ON(result, name, parameters, arguments) \
  result name parameters const override { return original->name arguments; }

struct RecordingTable final : c10::impl::PyInterpreterVTable {
  void dispatch(const c10::OperatorHandle& op, torch::jit::Stack* stack) const override {
    retape::dispatch(op, stack);
  }
  RETAPE_PASSED_ON(std::string, name, (), ())
  RETAPE_PASSED_ON(void, incref, (PyObject* object), (object))
  RETAPE_PASSED_ON(void, decref, (PyObject* object), (object))
  RETAPE_PASSED_ON(bool, try_incref, (const PyObjectSlot& slot), (slot))
  RETAPE_PASSED_ON(size_t, refcnt, (PyObject* object), (object))
  RETAPE_PASSED_ON(c10::intrusive_ptr<TensorImpl>, detach, (const TensorImpl* self), (self))
  RETAPE_PASSED_ON(void, reportErrorCallback, (PyObject* callback, DispatchKey key),
      (callback, key))
  RETAPE_PASSED_ON(void, python_op_registration_trampoline,
      (const c10::OperatorHandle& op, DispatchKey key, DispatchKeySet keys, torch::jit::Stack* stack, bool with_keyset, bool with_op),
      (op, key, keys, stack, with_keyset, with_op))
  RETAPE_PASSED_ON(void, throw_abstract_impl_not_imported_error,
      (std::string name, const char* pymodule, const char* context),
      (std::move(name), pymodule, context))
  RETAPE_PASSED_ON(void, python_dispatcher,
      (const c10::OperatorHandle& op, DispatchKeySet keys, torch::jit::Stack* stack),
      (op, keys, stack))
  RETAPE_PASSED_ON(bool, is_contiguous, (const TensorImpl* self, at::MemoryFormat format),
      (self, format))
  RETAPE_PASSED_ON(c10::SymBool, sym_is_contiguous, (const TensorImpl* self, at::MemoryFormat format),
      (self, format))
  RETAPE_PASSED_ON(bool, is_strides_like, (const TensorImpl* self, at::MemoryFormat format),
      (self, format))
  RETAPE_PASSED_ON(bool, is_non_overlapping_and_dense, (const TensorImpl* self), (self))
  RETAPE_PASSED_ON(c10::Device, device, (const TensorImpl* self), (self))
  RETAPE_PASSED_ON(int64_t, dim, (const TensorImpl* self), (self))
  RETAPE_PASSED_ON(c10::IntArrayRef, strides, (const TensorImpl* self), (self))
  RETAPE_PASSED_ON(c10::IntArrayRef, sizes, (const TensorImpl* self), (self))
  RETAPE_PASSED_ON(c10::SymIntArrayRef, sym_sizes, (const TensorImpl* self), (self))
  RETAPE_PASSED_ON(c10::Layout, layout, (const TensorImpl* self), (self))
  RETAPE_PASSED_ON(int64_t, numel, (const TensorImpl* self), (self))
  RETAPE_PASSED_ON(c10::SymInt, sym_numel, (const TensorImpl* self), (self))
  RETAPE_PASSED_ON(c10::SymIntArrayRef, sym_strides, (const TensorImpl* self), (self))
  RETAPE_PASSED_ON(c10::SymInt, sym_storage_offset, (const TensorImpl* self), (self))
  RETAPE_PASSED_ON(void, trace_gpu_event_creation, (DeviceType type, uintptr_t event),
      (type, event))
  RETAPE_PASSED_ON(void, trace_gpu_event_deletion, (DeviceType type, uintptr_t event),
      (type, event))
  RETAPE_PASSED_ON(void, trace_gpu_event_record,
      (DeviceType type, uintptr_t event, uintptr_t stream),
      (type, event, stream))
  RETAPE_PASSED_ON(void, trace_gpu_event_wait,
      (DeviceType type, uintptr_t event, uintptr_t stream),
      (type, event, stream))
  RETAPE_PASSED_ON(void, trace_gpu_memory_allocation, (DeviceType type, uintptr_t address),
      (type, address))
  RETAPE_PASSED_ON(void, trace_gpu_memory_deallocation, (DeviceType type, uintptr_t address),
      (type, address))
  RETAPE_PASSED_ON(void, trace_gpu_stream_creation, (DeviceType type, uintptr_t stream),
      (type, stream))
  RETAPE_PASSED_ON(void, trace_gpu_device_synchronization, (DeviceType type), (type))
  RETAPE_PASSED_ON(void, trace_gpu_stream_synchronization, (DeviceType type, uintptr_t stream),
      (type, stream))
  RETAPE_PASSED_ON(void, trace_gpu_event_synchronization, (DeviceType type, uintptr_t event),
      (type, event))
  RETAPE_PASSED_ON(void, reset_backward_hooks, (const TensorImpl* self), (self))
};
#undef RETAPE_PASSED_ON

// How many threads record now; guarded by the interpreter's lock.
inline int recordings = 0;

inline void install_table() {
  static const RecordingTable table;
  if (recordings++ != 0) return;
  original = getPyInterpreter()->vtable_;
  getPyInterpreter()->vtable_ = &table;
}

inline void remove_table() {
  if (--recordings == 0) getPyInterpreter()->vtable_ = original;
}

}  // namespace retape
