// The Python module: recording sessions, the hook that packs, and replays.
#include "loop.h"
#include "pack.h"
#include "recorder.h"
#include "replay.h"
#include "room.h"
#include "span.h"
#include "table.h"
#include "unpack.h"

namespace retape {
namespace {

constexpr const char* SESSION = "retape.session";

Session& session_in(PyObject* object) {
  auto* session = static_cast<Session*>(PyCapsule_GetPointer(object, SESSION));
  if (session == nullptr) fail();
  return *session;
}

// setup({name: class})
PyObject* setup(PyObject*, PyObject* types) {
  HANDLE_TH_ERRORS
  names = new Names();
  layout = new Layout(types);
  PyObject* buffer = PyDict_GetItemString(types, "Buffer");
  layout->buffer_type = compiled_kind(buffer, "retape.Buffer", destroy_buffer);
  layout->handle_type =
      compiled_kind(layout->python_handle_type, "retape.Handle", destroy_handle);
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

// open(trace, run, kind_of, watched) -> session
PyObject* open(PyObject*, PyObject* const* args, Py_ssize_t) {
  HANDLE_TH_ERRORS
  auto* session = new Session(args[0], args[1], args[2], args[3] == Py_True);
  return PyCapsule_New(session, SESSION, [](PyObject* self) {
    delete static_cast<Session*>(PyCapsule_GetPointer(self, SESSION));
  });
  END_HANDLE_TH_ERRORS
}

// enter(session, recorder, keeper): both outlive the stay
PyObject* enter(PyObject*, PyObject* const* args, Py_ssize_t) {
  HANDLE_TH_ERRORS
  Session& session = session_in(args[0]);
  session.recorder = args[1];
  session.keeper = args[2];
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(args[1]));
  session.paused = Slot(type, "paused");
  session.opaque = Slot(type, "opaque");
  current = &session;
  install_table();
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyObject* leave(PyObject*, PyObject*) {
  current = nullptr;
  remove_table();
  Py_RETURN_NONE;
}

PyObject* call_pack(PyObject* self, PyObject* tensor) {
  HANDLE_TH_ERRORS
  return pack(session_in(self), tensor).release();
  END_HANDLE_TH_ERRORS
}

PyMethodDef pack_definition = {"pack", call_pack, METH_O, nullptr};

// packer(session) -> the hook
PyObject* packer(PyObject*, PyObject* session) {
  return PyCFunction_New(&pack_definition, session);
}

// The hook that unpacks: `self` is the Python function for what is left to it.
PyObject* call_unpack(PyObject* self, PyObject* saved) {
  HANDLE_TH_ERRORS
  Ref found = unpack(saved);
  return found ? found.release() : PyObject_CallOneArg(self, saved);
  END_HANDLE_TH_ERRORS
}

PyMethodDef unpack_definition = {"unpack", call_unpack, METH_O, nullptr};

// unpacker(slowly) -> the hook
PyObject* unpacker(PyObject*, PyObject* slowly) {
  return PyCFunction_New(&unpack_definition, slowly);
}

// hold(owner, counter, holdings, computed)
PyObject* call_hold(PyObject*, PyObject* const* args, Py_ssize_t) {
  HANDLE_TH_ERRORS
  Holder{Ref::borrowed(args[0]), Ref::borrowed(args[1]), args[2]}.hold(args[3]);
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

// dropped(run, handle)
PyObject* call_dropped(PyObject*, PyObject* const* args, Py_ssize_t) {
  HANDLE_TH_ERRORS
  dropped(args[0], args[1]);
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

// needed_steps(steps, producer, storages, wanted, floor) -> list
PyObject* call_needed_steps(PyObject*, PyObject* const* args, Py_ssize_t) {
  HANDLE_TH_ERRORS
  const Record record{args[0], args[1], args[2]};
  return needed_steps(record, args[3], as_int(args[4])).release();
  END_HANDLE_TH_ERRORS
}

// replay_bytes(steps, producer, nbytes, needed, wanted) -> int
PyObject* call_replay_bytes(PyObject*, PyObject* const* args, Py_ssize_t) {
  HANDLE_TH_ERRORS
  const Record record{args[0], args[1], nullptr};
  return number(Room(record, args[2], args[3], args[4]).most()).release();
  END_HANDLE_TH_ERRORS
}

// span_sums(steps, producer, nbytes, last_read, apart, needed, wanted, start, end,
//     waiting) -> (widths, transient, reverse)
PyObject* call_span_sums(PyObject*, PyObject* const* args, Py_ssize_t) {
  HANDLE_TH_ERRORS
  const SpanSums sums = sums_of(
      {{args[0], args[1], nullptr}, args[2], args[3], args[4], args[5], args[6],
       as_int(args[7]), as_int(args[8]), args[9]});
  const Ref widths = Ref::checked(PyList_New(0));
  for (const int64_t width : sums.widths) append(widths.get(), width);
  return Py_BuildValue(
      "OLL", widths.get(), static_cast<long long>(sums.transient),
      static_cast<long long>(sums.reverse));
  END_HANDLE_TH_ERRORS
}

// waiting_bytes(steps, producer, last_read, nbytes) -> bytes of an array of "q"
PyObject* call_waiting_bytes(PyObject*, PyObject* const* args, Py_ssize_t) {
  HANDLE_TH_ERRORS
  const auto waiting = waiting_bytes(args[0], args[1], args[2], args[3]);
  return PyBytes_FromStringAndSize(
      reinterpret_cast<const char*>(waiting.data()),
      static_cast<Py_ssize_t>(8 * waiting.size()));
  END_HANDLE_TH_ERRORS
}

// run_steps(steps, geometries, needed, wanted, random, replay, roots, own, slowly)
PyObject* call_run_steps(PyObject*, PyObject* const* args, Py_ssize_t) {
  HANDLE_TH_ERRORS
  const Rerun rerun{{args[0], nullptr, nullptr}, args[1], args[4], args[5], args[6],
                    args[7], args[8]};
  Replayer(rerun, args[2], args[3]).run();
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

constexpr const char* LOOP = "retape.loop";
Slot recorder_native;

// `__torch_function__` of a recorder of a loop; what it works with hangs on the recorder.
PyObject* call_loop(PyObject* recorder, PyObject* const* args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  auto* loop = static_cast<Loop*>(PyCapsule_GetPointer(recorder_native(recorder), LOOP));
  return loop->call(recorder, args, count).release();
  END_HANDLE_TH_ERRORS
}

PyMethodDef loop_definition = {
    "__torch_function__",
    reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call_loop)), METH_FASTCALL,
    nullptr};

// loop(recorder, calls, kinds, Kind.CALL, slowly, noted) -> `__torch_function__`
PyObject* make_loop(PyObject*, PyObject* const* args, Py_ssize_t) {
  HANDLE_TH_ERRORS
  auto* loop = new Loop(args[1], args[2], args[3], args[4], args[5]);
  Ref self = Ref::checked(PyCapsule_New(loop, LOOP, [](PyObject* capsule) {
    delete static_cast<Loop*>(PyCapsule_GetPointer(capsule, LOOP));
  }));
  recorder_native = Slot(reinterpret_cast<PyObject*>(Py_TYPE(args[0])), "native");
  recorder_native.set(args[0], std::move(self));
  return PyCFunction_New(&loop_definition, args[0]);
  END_HANDLE_TH_ERRORS
}

constexpr const char* SAVED = "retape.saved";

// The hook that packs where bytes are counted: the tensor itself.
PyObject* call_count(PyObject* self, PyObject* tensor) {
  HANDLE_TH_ERRORS
  static_cast<Saved*>(PyCapsule_GetPointer(self, SAVED))->add(THPVariable_Unpack(tensor));
  return Py_NewRef(tensor);
  END_HANDLE_TH_ERRORS
}

PyObject* call_same(PyObject*, PyObject* tensor) { return Py_NewRef(tensor); }

PyMethodDef count_definition = {"count", call_count, METH_O, nullptr};
PyMethodDef same_definition = {"same", call_same, METH_O, nullptr};

// counter(addresses not to count) -> (pack, unpack, handle)
PyObject* counter(PyObject*, PyObject* brought) {
  HANDLE_TH_ERRORS
  auto* saved = new Saved();
  const Ref handle = Ref::checked(PyCapsule_New(saved, SAVED, [](PyObject* self) {
    delete static_cast<Saved*>(PyCapsule_GetPointer(self, SAVED));
  }));
  const Ref addresses = Ref::checked(PySequence_List(brought));
  for (Py_ssize_t k = 0; k < PyList_GET_SIZE(addresses.get()); ++k)
    saved->seen.insert(PyLong_AsVoidPtr(PyList_GET_ITEM(addresses.get(), k)));
  const Ref pack = Ref::checked(PyCFunction_New(&count_definition, handle.get()));
  const Ref unpack = Ref::checked(PyCFunction_New(&same_definition, nullptr));
  return PyTuple_Pack(3, pack.get(), unpack.get(), handle.get());
  END_HANDLE_TH_ERRORS
}

// counted(handle) -> bytes
PyObject* counted(PyObject*, PyObject* handle) {
  HANDLE_TH_ERRORS
  return number(static_cast<Saved*>(PyCapsule_GetPointer(handle, SAVED))->bytes).release();
  END_HANDLE_TH_ERRORS
}

// run_calls(calls, first, last, values, kept, taped, aliases, alias, draw)
PyObject* call_run_calls(PyObject*, PyObject* const* args, Py_ssize_t) {
  HANDLE_TH_ERRORS
  const LoopReplay replay{args[0], args[3], args[4], args[6], args[7], args[8],
                          args[5] == Py_True};
  replay.run(as_int(args[1]), as_int(args[2]));
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

#define RETAPE_FAST(name, function)                                                 \
  {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function)),     \
   METH_FASTCALL, nullptr}
PyMethodDef methods[] = {
    {"setup", setup, METH_O, nullptr},
    RETAPE_FAST("open", open),
    RETAPE_FAST("enter", enter),
    {"leave", leave, METH_NOARGS, nullptr},
    {"packer", packer, METH_O, nullptr},
    {"unpacker", unpacker, METH_O, nullptr},
    RETAPE_FAST("hold", call_hold),
    RETAPE_FAST("dropped", call_dropped),
    RETAPE_FAST("needed_steps", call_needed_steps),
    RETAPE_FAST("replay_bytes", call_replay_bytes),
    RETAPE_FAST("span_sums", call_span_sums),
    RETAPE_FAST("waiting_bytes", call_waiting_bytes),
    RETAPE_FAST("loop", make_loop),
    {"counter", counter, METH_O, nullptr},
    {"counted", counted, METH_O, nullptr},
    RETAPE_FAST("run_calls", call_run_calls),
    RETAPE_FAST("run_steps", call_run_steps),
    {nullptr, nullptr, 0, nullptr}};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "_retape_native", nullptr, -1, methods};

}  // namespace
}  // namespace retape

extern "C" __attribute__((visibility("default"))) PyObject* PyInit__retape_native() {
  return PyModule_Create(&retape::module);
}
