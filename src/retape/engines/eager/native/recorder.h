// What `Recorder.__torch_dispatch__` and `Trace.record` do, one level below Python.
//
// PyTorch calls a dispatch mode through the table of functions of its interpreter. While
// something is recorded, that table is replaced by one that looks first whether the call
// is a common one, and else passes it on.
#pragma once

#include "session.h"

namespace retape {

inline thread_local Session* current = nullptr;
inline const c10::impl::PyInterpreterVTable* original = nullptr;

// An operator on so few numbers is over sooner than the interpreter's lock is passed on.
inline constexpr int64_t SMALL = 2048;

// What a call reads, found before it runs.
struct Call {
  Key& key;
  const OpInfo& info;
  bool small = true;
  const Known* known = nullptr;
  c10::SmallVector<int64_t, 8> reads = {};
  c10::SmallVector<Ref, 8> storages = {};  // of what it reads
  c10::SmallVector<std::pair<Ref, at::Tensor>, 2> written = {};
};

inline bool on_top(const Session& session) {
  using c10::impl::TorchDispatchModeTLS;
  const auto depth = TorchDispatchModeTLS::stack_len();
  if (depth == 0) return false;
  const auto& mode = TorchDispatchModeTLS::get_stack_at(depth - 1);
  return mode->ptr(getPyInterpreter()) == session.recorder;
}

inline c10::ArrayRef<c10::IValue> arguments_on(
    const torch::jit::Stack& stack, const c10::OperatorHandle& op) {
  const size_t count = op.schema().arguments().size();
  return c10::ArrayRef<c10::IValue>(stack.data() + stack.size() - count, count);
}

// The slots that a call reads; false if one of them is out of the ordinary.
inline bool find_reads(
    Session& session, Call& call, c10::ArrayRef<c10::IValue> arguments) {
  return scan(call.key, arguments, [&](const at::Tensor& tensor, Place place) {
    if (!plain_tensor(tensor)) return false;
    add_geometry(call.key, tensor);
    Ref storage = Ref::checked(THPStorage_Wrap(tensor.storage()));
    PyObject* buffer = session.buffer_on(storage.get());
    if (buffer == nullptr) buffer = session.adopt(tensor, storage.get());
    if (layout->Buffer_uninitialised(buffer) != Py_False &&
        !session.fills(call.info, place.argument, buffer))
      return false;
    const int64_t slot = as_int(layout->Buffer_slot(buffer));
    if (session.of_earlier_section(slot) || session.written_unseen(buffer, tensor))
      return false;
    call.reads.push_back(slot);
    call.storages.push_back(std::move(storage));
    call.small = call.small && tensor.is_cpu() && tensor.numel() <= SMALL;
    for (const int where : call.info.writes)
      if (where == place.argument) {
        if (item(session.producer.get(), slot) < 0) return false;
        call.written.emplace_back(Ref::borrowed(buffer), tensor);
      }
    return true;
  });
}

inline void mark_reads(Session& session, Call& call, int64_t step) {
  PyObject* opened = layout->Trace_opened(session.trace.get());
  const int64_t position = layout->Snapshot_position.as_number(opened);
  for (size_t k = 0; k < call.reads.size(); ++k) {
    const int64_t slot = call.reads[k], made = item(session.producer.get(), slot);
    put(session.last_read.get(), slot, session.index(step));
    if (-1 < made && made < position)
      Ref::checked(PyObject_CallMethodObjArgs(
          session.trace.get(), names->needed_by_snapshot, session.index(slot).get(),
          call.storages[k].get(), nullptr));
  }
  call.storages.clear();  // what is let go from now on is not held by this call
}

// Have the state noted of the generator from which an operator is about to draw.
inline void before_draw(
    const Session& session, const Call& call, int64_t step,
    c10::ArrayRef<c10::IValue> arguments) {
  const size_t chance = call.info.chance;
  if (chance < arguments.size() && arguments[chance].toDouble() == 0) return;
  Ref::checked(PyObject_CallMethodObjArgs(
      session.recorder, names->about_to_draw, number(step).get(),
      call.storages.front().get(), nullptr));
}

inline void before_writes(Session& session, const Call& call) {
  for (const auto& [buffer, tensor] : call.written) {
    PyObject* slot = layout->Buffer_slot(buffer.get());
    if (has(layout->Tail_steps(session.tail.get()), slot) ||
        has(layout->Holdings_storages(session.held.get()), slot) ||
        PyObject_Size(layout->Buffer_older(buffer.get())) != 0) {
      const Ref wrapped = Ref::checked(THPVariable_Wrap(tensor));
      Ref::checked(PyObject_CallMethodObjArgs(
          session.trace.get(), names->before_write, buffer.get(), wrapped.get(),
          nullptr));
    }
  }
}

inline Ref after_writes(Session& session, const Call& call, int64_t step) {
  if (call.written.empty()) return layout->empty_tuple;
  Ref writes = Ref::checked(PyTuple_New(static_cast<Py_ssize_t>(call.written.size())));
  Py_ssize_t k = 0;
  for (const auto& [buffer, tensor] : call.written) {
    const int64_t old = as_int(layout->Buffer_slot(buffer.get()));
    const int64_t bytes = item(session.nbytes.get(), old);
    TORCH_CHECK(
        static_cast<int64_t>(tensor.storage().nbytes()) == bytes,
        "an in-place operator that is no resizer has resized its argument");
    layout->Buffer_uninitialised.set(buffer.get(), Ref::borrowed(Py_False));
    const int64_t made =
        session.new_slot(step, bytes, PyList_GET_ITEM(session.roots.get(), old));
    const Ref first = session.index(old), second = session.index(made);
    layout->Buffer_slot.set(buffer.get(), second);
    count_writes(buffer.get(), tensor, at::GradMode::is_enabled() ? 1 : 2);
    PyTuple_SET_ITEM(writes.get(), k++, PyTuple_Pack(2, first.get(), second.get()));
  }
  return writes;
}

// Slots for the results, which lie on top of the stack.
inline void make_results(
    Session& session, const Call& call, const c10::OperatorHandle& op,
    const torch::jit::Stack& stack, int64_t step) {
  const Known& known = *call.known;
  const auto results = results_on(stack, op.schema().returns().size());
  c10::SmallVector<int64_t, 4> made;
  for (size_t k = 0; k < results.size(); ++k)
    if (results[k].isTensor() && results[k].toTensor().defined() &&
        session.make(results[k].toTensor(), known, call.info, step))
      made.push_back(static_cast<int64_t>(k));
  TORCH_CHECK(
      std::equal(made.begin(), made.end(), known.outputs.begin(), known.outputs.end()),
      op.schema().name(), ": which results are new storages differs between two calls");
}

inline void add_step(Session& session, const Call& call, int64_t first, Ref writes) {
  Ref reads = Ref::checked(PyTuple_New(static_cast<Py_ssize_t>(call.reads.size())));
  for (size_t k = 0; k < call.reads.size(); ++k)
    PyTuple_SET_ITEM(reads.get(), k, session.index(call.reads[k]).release());
  untrack(reads);
  const Ref step(new_instance(layout->step_type, 4));
  PyTuple_SET_ITEM(step.get(), 0, Ref(call.known->signature).release());
  PyTuple_SET_ITEM(step.get(), 1, reads.release());
  PyTuple_SET_ITEM(step.get(), 2, session.index(first).release());
  PyTuple_SET_ITEM(step.get(), 3, writes.release());
  untrack(step);
  check(PyList_Append(session.steps.get(), step.get()));
}

inline void relieve_if_full(Session& session) {
  PyObject* limit = layout->Trace_limit(session.trace.get());
  PyObject* next_cut = layout->Trace_next_cut(session.trace.get());
  const double steps = static_cast<double>(PyList_GET_SIZE(session.steps.get()));
  PyObject* counter = session.counter.get();
  const int64_t live = layout->Counter_live.as_number(counter);
  if (live > layout->Counter_peak.as_number(counter))
    layout->Counter_peak.set(counter, number(live));
  if (static_cast<double>(live) > PyFloat_AsDouble(limit) ||
      steps >= PyFloat_AsDouble(next_cut))
    Ref::checked(PyObject_CallMethodNoArgs(session.keeper, names->relieve));
}

// The mode is off the stack meanwhile: what the trace does for itself is no step.
inline void record(
    Session& session, Call& call, const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const int64_t step = PyList_GET_SIZE(session.steps.get());
  if (call.info.random) before_draw(session, call, step, arguments_on(*stack, op));
  mark_reads(session, call, step);
  before_writes(session, call);
  if (call.small && call.info.own) {
    op.callBoxed(stack);
  } else {
    const pybind11::gil_scoped_release nogil;
    op.callBoxed(stack);
  }
  const int64_t first = PyList_GET_SIZE(session.producer.get());
  make_results(session, call, op, *stack, step);
  Ref writes = after_writes(session, call, step);
  if (PyList_GET_SIZE(session.producer.get()) > first)
    add_step(session, call, first, std::move(writes));
  relieve_if_full(session);
}

// The first call of a signature goes through Python, which makes the signature.
inline void record_slowly(
    Session& session, Call& call, bool keyed, const c10::OperatorHandle& op,
    torch::jit::Stack* stack) {
  if (!keyed) return original->dispatch(op, stack);
  const Key key = call.key;  // other calls may come in between
  Template made = make_template(op, arguments_on(*stack, op));
  layout->Trace_latest.set(session.trace.get(), Ref::borrowed(Py_None));
  original->dispatch(op, stack);
  const Ref signature = Ref::borrowed(layout->Trace_latest(session.trace.get()));
  if (signature.get() == Py_None) return;
  made.outputs = outputs_of(signature);
  Known known{signature, member(signature, "single").get() == Py_True,
              as_int(member(signature, "nbytes").get()), member(signature, "root"),
              made.outputs};
  layout->Signature_native.set(signature.get(), capsule(new Template(std::move(made)), TEMPLATE));
  session.known.insert_or_assign(key, std::move(known));
}

// A tensor was given another geometry in place, which PyTorch counts as a write.
inline void note_reshaped(const Session& session, const at::Tensor& tensor) {
  if (!plain_tensor(tensor)) return;
  const Ref storage = Ref::checked(THPStorage_Wrap(tensor.storage()));
  PyObject* buffer = session.buffer_on(storage.get());
  if (buffer != nullptr) count_writes(buffer, tensor, 1);
}

// Whether a tensor of a call is a wrapper, whose class has a say in what happens.
inline bool wraps(c10::ArrayRef<c10::IValue> arguments) {
  const auto python = [](const at::Tensor& tensor) {
    return tensor.defined() && tensor.key_set().has(c10::DispatchKey::Python);
  };
  return std::any_of(arguments.begin(), arguments.end(), [&](const c10::IValue& value) {
    if (!value.isTensorList()) return value.isTensor() && python(value.toTensor());
    const auto list = value.toTensorVector();
    return std::any_of(list.begin(), list.end(), python);
  });
}

inline void dispatch(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Session* session = current;
  if (session == nullptr || !on_top(*session)) return original->dispatch(op, stack);
  const pybind11::gil_scoped_acquire gil;
  const auto arguments = arguments_on(*stack, op);
  if (wraps(arguments)) return original->dispatch(op, stack);
  const OpInfo& info = session->info(op);
  if (info.view) {
    {
      const torch::torch_dispatch_mode::StashTorchDispatchModeGuard guard;
      const pybind11::gil_scoped_release nogil;
      op.callBoxed(stack);
    }
    if (info.reshapes) note_reshaped(*session, stack->back().toTensor());
    return;
  }
  const bool backward = torch::autograd::get_current_graph_task_id() != -1 &&
      !c10::GradMode::is_enabled();
  if (!info.plain || backward || session->paused(session->recorder) == Py_True ||
      layout->Trace_opaque(session->trace.get()) == Py_True)
    return original->dispatch(op, stack);
  session->scratch.clear();
  Call call{session->scratch, info};
  const void* which = &op.schema();
  add(call.key, which);
  add(call.key, c10::GradMode::is_enabled());
  add(call.key, c10::get_default_dtype_as_scalartype());
  bool ordinary;
  {
    const torch::torch_dispatch_mode::StashTorchDispatchModeGuard guard;
    ordinary = find_reads(*session, call, arguments);
    const auto found = session->known.find(call.key);
    if (ordinary && found != session->known.end()) call.known = &found->second;
    const bool draws_unseen = info.random && call.reads.empty();  // on which device?
    if (call.known != nullptr && !draws_unseen) return record(*session, call, op, stack);
  }
  record_slowly(*session, call, ordinary && call.known == nullptr, op, stack);
}

}  // namespace retape
