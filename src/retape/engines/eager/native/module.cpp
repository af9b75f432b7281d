// The Python module: recording sessions, the hook that packs, and replays.
#include "pack.h"
#include "recorder.h"
#include "replay.h"
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

// open(trace, run, kind_of) -> session
PyObject* open(PyObject*, PyObject* const* args, Py_ssize_t) {
  HANDLE_TH_ERRORS
  return capsule(new Session(args[0], args[1], args[2]), SESSION).release();
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
  hold_computed(Ref::borrowed(args[0]), Ref::borrowed(args[1]), args[2], args[3]);
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

// needed_steps(steps, producer, storages, wanted) -> list
PyObject* call_needed_steps(PyObject*, PyObject* const* args, Py_ssize_t) {
  HANDLE_TH_ERRORS
  return needed_steps(args[0], args[1], args[2], args[3]).release();
  END_HANDLE_TH_ERRORS
}

// run_steps(steps, geometries, needed, wanted, random, replay, roots, own, slowly)
PyObject* call_run_steps(PyObject*, PyObject* const* args, Py_ssize_t) {
  HANDLE_TH_ERRORS
  const Rerun rerun{args[0], args[1], args[4], args[5], args[6], args[7], args[8]};
  Replayer(rerun, args[2], args[3]).run();
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
    RETAPE_FAST("needed_steps", call_needed_steps),
    RETAPE_FAST("run_steps", call_run_steps),
    {nullptr, nullptr, 0, nullptr}};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "_retape_native", nullptr, -1, methods};

}  // namespace
}  // namespace retape

extern "C" __attribute__((visibility("default"))) PyObject* PyInit__retape_native() {
  return PyModule_Create(&retape::module);
}
