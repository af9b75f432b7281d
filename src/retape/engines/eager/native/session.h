// One recording: the lists of its trace, and the signatures that it has met.
#pragma once

#include "objects.h"
#include "signature.h"

namespace retape {

struct OpInfo {
  bool view, reshapes, plain, own, random, uninitialised;  // `own`: PyTorch's own operator
  size_t chance;  // argument: where that is zero, nothing is drawn
  std::vector<int> writes;
};

struct Known {
  Ref signature;  // null: its results are views, and no step is recorded
  bool single;
  int64_t nbytes;
  Ref root;
  std::vector<int64_t> outputs;
};

class Session {
 public:
  // Strong, but for the recorder, which owns the session.
  Ref trace, run, owner, counter, geometries, held, notes, tail, steps, producer, nbytes, last_read, roots, handle_steps,
      handle_slots, alive, slot_handles, kind_of;
  PyObject *recorder = nullptr, *keeper = nullptr;
  Slot paused;  // of the recorder
  std::unordered_map<const void*, OpInfo> operators;
  std::unordered_map<Key, Known> known;
  std::unordered_map<Key, Ref> geometry_table;
  Key scratch;  // for the key of the present call

  // A slot or a step as one object, in however many lists it is noted: a new one of 32
  // bytes for each was half of what the record of a small operator took.
  Ref index(int64_t value) {
    if (value < 0) return number(value);
    if (static_cast<size_t>(value) >= indices_.size()) indices_.resize(value + 1);
    Ref& found = indices_[value];
    if (!found) found = number(value);
    return found;
  }

  // The same for sizes, of which there are few.
  const Ref& size(int64_t bytes) {
    Ref& found = sizes_[bytes];
    if (!found) found = number(bytes);
    return found;
  }

  Session(PyObject* trace_, PyObject* run_, PyObject* kind_of_)
      : trace(Ref::borrowed(trace_)),
        run(Ref::borrowed(run_)),
        owner(member(trace, "owner")),
        counter(member(trace, "counter")),
        geometries(member(trace, "geometries")),
        held(member(trace, "held")),
        notes(member(trace, "notes")),
        tail(member(trace, "tail")),
        steps(member(trace, "steps")),
        producer(member(trace, "producer")),
        nbytes(member(trace, "nbytes")),
        last_read(member(trace, "last_read")),
        roots(member(trace, "roots")),
        handle_steps(member(run, "handle_steps")),
        handle_slots(member(run, "handle_slots")),
        alive(member(run, "alive")),
        slot_handles(member(run, "slot_handles")),
        kind_of(Ref::borrowed(kind_of_)) {}

  const OpInfo& info(const c10::OperatorHandle& op) {
    const void* which = &op.schema();
    const auto found = operators.find(which);
    if (found != operators.end()) return found->second;
    const auto func = torch::detail::getTorchApiFunction(op);
    const Ref kind = Ref::checked(PyObject_CallOneArg(kind_of.get(), func.ptr()));
    const auto flag = [&](const char* name) {
      return PyObject_IsTrue(member(kind, name).get()) == 1;
    };
    const bool own = op.schema().name().rfind("aten::", 0) == 0;
    const Ref chance = member(kind, "chance");
    const bool reshapes = own && flag("aside") && op.schema().returns().size() == 1;
    OpInfo made{flag("view") || reshapes, reshapes, flag("plain"), own, flag("random"),
                flag("uninitialised"), SIZE_MAX, {}};
    if (chance.get() != Py_None) made.chance = as_int(chance.get());
    const Ref writes = member(kind, "writes");
    for (Py_ssize_t k = 0; made.plain && k < PyTuple_GET_SIZE(writes.get()); ++k)
      made.writes.push_back(static_cast<int>(as_int(PyTuple_GET_ITEM(writes.get(), k))));
    return operators.emplace(which, std::move(made)).first->second;
  }

  PyObject* geometry_of(const at::Tensor& tensor) {
    key_.clear();
    add_geometry(key_, tensor);
    const auto found = geometry_table.find(key_);
    if (found != geometry_table.end()) return found->second.get();
    const Ref wrapped = Ref::checked(THPVariable_Wrap(tensor));
    Ref made = Ref::checked(
        PyObject_CallMethodOneArg(geometries.get(), names->of, wrapped.get()));
    if (layout->Geometry_native(made.get()) == Py_None)
      layout->Geometry_native.set(made.get(), capsule(new Sight(tensor), SIGHT));
    return geometry_table.emplace(key_, made).first->second.get();
  }

  // The buffer that this trace hung on a storage, borrowed from it; or null.
  PyObject* buffer_on(PyObject* storage) const {
    PyObject* buffer = any_buffer_on(storage);
    if (buffer == nullptr) return nullptr;
    return layout->Buffer_owner(buffer) == owner.get() ? buffer : nullptr;
  }

  // Whether somebody wrote into a storage without an operator that is recorded.
  bool written_unseen(PyObject* buffer, const at::Tensor& tensor) const {
    return writes_of(tensor) > as_int(layout->Buffer_version(buffer));
  }

  // Whether a slot was made before the section that is recorded now.
  bool of_earlier_section(int64_t slot) const {
    const int64_t made = item(producer.get(), slot);
    return -1 < made && made < layout->Trace_section.as_number(trace.get());
  }

  // Whether an operator writes memory that nobody has written, nor seen.
  bool fills(const OpInfo& info, int32_t argument, PyObject* buffer) const {
    return std::count(info.writes.begin(), info.writes.end(), argument) != 0 &&
        PySet_GET_SIZE(layout->Trace_shared(trace.get())) == 0 &&
        !has(notes.get(), layout->Buffer_slot(buffer));
  }

  PyObject* adopt(const at::Tensor& tensor, PyObject* storage) const {
    const Ref wrapped = Ref::checked(THPVariable_Wrap(tensor));
    const Ref buffer = Ref::checked(PyObject_CallMethodObjArgs(
        trace.get(), names->adopt, wrapped.get(), storage, nullptr));
    return buffer.get();  // the storage holds it
  }

  int64_t new_slot(int64_t step, int64_t bytes, PyObject* root) {
    const int64_t slot = PyList_GET_SIZE(producer.get());
    append(producer.get(), index(step));
    append(nbytes.get(), size(bytes));
    append(last_read.get(), -1);
    check(PyList_Append(roots.get(), root));
    return slot;
  }

  // Give the storage of a result a slot, unless it has one.
  bool make(
      const at::Tensor& tensor, const Known& call, const OpInfo& info, int64_t step) {
    const auto* impl = tensor.storage().unsafeGetStorageImpl();
    const bool wrapped = impl->pyobj_slot()->load_pyobj() != nullptr;
    const Ref storage = Ref::checked(THPStorage_Wrap(tensor.storage()));
    if (wrapped && buffer_on(storage.get()) != nullptr) return false;
    if (tensor.is_meta()) return false;
    const auto bytes = static_cast<int64_t>(impl->nbytes());
    PyObject* root = call.single && call.nbytes == bytes && call.root.get() != Py_None
        ? call.root.get() : geometry_of(tensor);
    const int64_t slot = new_slot(step, bytes, root);
    hang_buffer(
        tensor, storage.get(), owner, counter, index(slot), size(bytes), info.uninitialised);
    return true;
  }

 private:
  std::vector<Ref> indices_;
  std::unordered_map<int64_t, Ref> sizes_;
  Key key_;
};

}  // namespace retape
