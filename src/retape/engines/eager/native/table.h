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

struct RecordingTable final : c10::impl::PyInterpreterVTable {
  std::string name() const override { return original->name(); }
  void dispatch(const c10::OperatorHandle& op, torch::jit::Stack* stack) const override {
    retape::dispatch(op, stack);
  }
  void incref(PyObject* object) const override {
    original->incref(object);
  }
  void decref(PyObject* object) const override {
    original->decref(object);
  }
  bool try_incref(const PyObjectSlot& slot) const override {
    return original->try_incref(slot);
  }
  size_t refcnt(PyObject* object) const override {
    return original->refcnt(object);
  }
  c10::intrusive_ptr<TensorImpl> detach(const TensorImpl* self) const override {
    return original->detach(self);
  }
  void reportErrorCallback(PyObject* callback, DispatchKey key) const override {
    original->reportErrorCallback(callback, key);
  }
  void python_op_registration_trampoline(const c10::OperatorHandle& op, DispatchKey key, DispatchKeySet keys, torch::jit::Stack* stack, bool with_keyset, bool with_op) const override {
    original->python_op_registration_trampoline(op, key, keys, stack, with_keyset, with_op);
  }
  void throw_abstract_impl_not_imported_error(std::string name, const char* pymodule, const char* context) const override {
    original->throw_abstract_impl_not_imported_error(std::move(name), pymodule, context);
  }
  void python_dispatcher(const c10::OperatorHandle& op, DispatchKeySet keys, torch::jit::Stack* stack) const override {
    original->python_dispatcher(op, keys, stack);
  }
  bool is_contiguous(const TensorImpl* self, at::MemoryFormat format) const override {
    return original->is_contiguous(self, format);
  }
  c10::SymBool sym_is_contiguous(const TensorImpl* self, at::MemoryFormat format) const override {
    return original->sym_is_contiguous(self, format);
  }
  bool is_strides_like(const TensorImpl* self, at::MemoryFormat format) const override {
    return original->is_strides_like(self, format);
  }
  bool is_non_overlapping_and_dense(const TensorImpl* self) const override {
    return original->is_non_overlapping_and_dense(self);
  }
  c10::Device device(const TensorImpl* self) const override {
    return original->device(self);
  }
  int64_t dim(const TensorImpl* self) const override {
    return original->dim(self);
  }
  c10::IntArrayRef strides(const TensorImpl* self) const override {
    return original->strides(self);
  }
  c10::IntArrayRef sizes(const TensorImpl* self) const override {
    return original->sizes(self);
  }
  c10::SymIntArrayRef sym_sizes(const TensorImpl* self) const override {
    return original->sym_sizes(self);
  }
  c10::Layout layout(const TensorImpl* self) const override {
    return original->layout(self);
  }
  int64_t numel(const TensorImpl* self) const override {
    return original->numel(self);
  }
  c10::SymInt sym_numel(const TensorImpl* self) const override {
    return original->sym_numel(self);
  }
  c10::SymIntArrayRef sym_strides(const TensorImpl* self) const override {
    return original->sym_strides(self);
  }
  c10::SymInt sym_storage_offset(const TensorImpl* self) const override {
    return original->sym_storage_offset(self);
  }
  void trace_gpu_event_creation(DeviceType type, uintptr_t event) const override {
    original->trace_gpu_event_creation(type, event);
  }
  void trace_gpu_event_deletion(DeviceType type, uintptr_t event) const override {
    original->trace_gpu_event_deletion(type, event);
  }
  void trace_gpu_event_record(DeviceType type, uintptr_t event, uintptr_t stream) const override {
    original->trace_gpu_event_record(type, event, stream);
  }
  void trace_gpu_event_wait(DeviceType type, uintptr_t event, uintptr_t stream) const override {
    original->trace_gpu_event_wait(type, event, stream);
  }
  void trace_gpu_memory_allocation(DeviceType type, uintptr_t address) const override {
    original->trace_gpu_memory_allocation(type, address);
  }
  void trace_gpu_memory_deallocation(DeviceType type, uintptr_t address) const override {
    original->trace_gpu_memory_deallocation(type, address);
  }
  void trace_gpu_stream_creation(DeviceType type, uintptr_t stream) const override {
    original->trace_gpu_stream_creation(type, stream);
  }
  void trace_gpu_device_synchronization(DeviceType type) const override {
    original->trace_gpu_device_synchronization(type);
  }
  void trace_gpu_stream_synchronization(DeviceType type, uintptr_t stream) const override {
    original->trace_gpu_stream_synchronization(type, stream);
  }
  void trace_gpu_event_synchronization(DeviceType type, uintptr_t event) const override {
    original->trace_gpu_event_synchronization(type, event);
  }
  void reset_backward_hooks(const TensorImpl* self) const override {
    original->reset_backward_hooks(self);
  }
};

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
