"""Compilers, the cache of objects, and loading: where machines differ."""

import gc
import math
import os
import stat
import struct
import sys
import threading
from pathlib import Path

import pytest

from retape import logarithmic, vlad
from retape._errors import UnsupportedError
from retape.engines.vlad.compiler.load import _c_compiler, _object_cache, _shared_object
from retape.engines.vlad.language._program import deep_recursion

TEXT = """
int answer(void) { return 42; }
__attribute__((visibility("default"))) int get(void) { return answer(); }
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("RETAPE_CACHE", str(folder))
    monkeypatch.delenv("CC", raising=False)
    return folder


def _entry(cache: Path) -> Path:
    (entry,) = cache.glob("*.object")
    return entry


def _compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note each run of a compiler."""
    made: list[str] = []
    before = _c_compiler._compile

    def noted(command: list[str], text: str) -> bytes:
        made.append(command[0])
        return before(command, text)

    monkeypatch.setattr(_c_compiler, "_compile", noted)
    return made


def test_an_object_is_made_once_and_only_its_owner_may_write_it(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = _compilations(monkeypatch)
    first = _c_compiler.build(TEXT)
    assert _c_compiler.build(TEXT) == first
    assert len(made) == 1
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert stat.S_IMODE(_entry(cache).stat().st_mode) == 0o600
    assert _shared_object.SharedObject(first).dll.get() == 42


@pytest.mark.parametrize("damage", ["truncated", "empty", "changed", "link"])
def test_an_entry_that_is_not_whole_is_made_again(
    damage: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = _compilations(monkeypatch)
    first = _c_compiler.build(TEXT)
    entry = _entry(cache)
    whole = entry.read_bytes()
    if damage == "truncated":
        entry.write_bytes(whole[:-1000])
    elif damage == "empty":
        entry.write_bytes(b"")
    elif damage == "changed":
        entry.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    else:
        other = cache / "elsewhere"
        entry.rename(other)
        entry.symlink_to(other)
    assert _c_compiler.build(TEXT) == first
    assert len(made) == 2
    assert entry.read_bytes() == whole


@pytest.mark.parametrize("mode", [0o602, 0o620, 0o666])
def test_an_entry_that_others_may_write_is_made_again(
    mode: int, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = _compilations(monkeypatch)
    _c_compiler.build(TEXT)
    _entry(cache).chmod(mode)
    _c_compiler.build(TEXT)
    assert len(made) == 2
    assert stat.S_IMODE(_entry(cache).stat().st_mode) == 0o600


def test_an_entry_of_another_user_is_made_again(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = _compilations(monkeypatch)
    _c_compiler.build(TEXT)
    status = _entry(cache).stat()
    assert _object_cache._is_ours(status)
    monkeypatch.setattr(os, "geteuid", lambda: status.st_uid + 1)
    if status.st_uid == 0:  # root's own files are trusted by everybody
        foreign = os.stat_result((*status[:4], 12345, *status[5:10]))
        assert not _object_cache._is_ours(foreign)
    else:
        _c_compiler.build(TEXT)
        assert len(made) == 2


def test_a_cache_that_cannot_be_written_is_told_once_and_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RETAPE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.warns(
        RuntimeWarning, match="cannot be kept in .*file/cache.*set `\\$RET"
    ):
        image = _c_compiler.build(TEXT)
    assert _shared_object.SharedObject(image).dll.get() == 42


def test_without_any_folder_one_sentence_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise FileNotFoundError("No usable temporary directory found")

    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RETAPE_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr(_object_cache.tempfile, "TemporaryDirectory", refuse)
    with pytest.raises(
        UnsupportedError, match="needs a folder for the compiler's files"
    ):
        _c_compiler.build(TEXT)


def test_where_no_file_may_be_executed_memory_is_loaded_from(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("failed to map segment from shared object")

    image = _c_compiler.build(TEXT)
    monkeypatch.setattr(_shared_object, "_from_folder", refuse)
    two = [_shared_object.SharedObject(image) for _ in range(2)]
    assert [each.dll.get() for each in two] == [42, 42]
    assert two[0].dll._handle != two[1].dll._handle
    monkeypatch.delattr(os, "memfd_create")
    with pytest.raises(
        UnsupportedError, match="cannot be loaded .failed to map segment"
    ):
        _shared_object.SharedObject(image)


@pytest.mark.parametrize("command", ["no-such-compiler -x", "false", "'unclosed"])
def test_a_compiler_that_fails_is_told_and_another_one_used(
    command: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", command)
    with pytest.warns(RuntimeWarning, match="was used instead; set `\\$CC` to a comp"):
        image = _c_compiler.build(TEXT)
    assert _shared_object.SharedObject(image).dll.get() == 42


def test_a_compiler_that_speaks_another_encoding_is_understood(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "cc.py"
    script.write_text(
        "import sys; sys.stderr.buffer.write(b'Erreur \\xe9\\xff fatale'); sys.exit(1)"
    )
    monkeypatch.setenv("CC", f"{sys.executable} {script}")
    monkeypatch.setattr(_c_compiler.shutil, "which", lambda name: None)
    monkeypatch.setattr(_c_compiler.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match=r"failed \(Erreur .* fatale\)\. Set"):
        _c_compiler.build(TEXT)


def test_without_a_compiler_the_message_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(_c_compiler.shutil, "which", lambda name: None)
    monkeypatch.setattr(_c_compiler.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match="needs a C compiler and none was found"):
        list(_c_compiler.find_compilers())


def test_compilers_are_tried_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "ccache gcc")
    monkeypatch.setattr(_c_compiler.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(_c_compiler.importlib.util, "find_spec", lambda name: object())
    assert list(_c_compiler.find_compilers()) == [
        ("ccache", "gcc"),
        ("/bin/gcc",),
        ("/bin/clang",),
        ("/bin/cc",),
        (sys.executable, "-m", "ziglang", "cc"),
    ]


def _mapped() -> int:
    return Path("/proc/self/maps").read_text().count("program.so")


def test_a_module_that_is_dropped_is_unloaded_at_once() -> None:
    before = _mapped()
    gc.disable()
    try:
        module = vlad.compile("(define (f x) (* x (sin x)))", plan=logarithmic(stage=3))
        value = module["f"].checkpointed_grad(0.5)
        assert _mapped() > before
        del module
        assert _mapped() == before
    finally:
        gc.enable()
    assert value == pytest.approx(math.sin(0.5) + 0.5 * math.cos(0.5))


@pytest.mark.parametrize("engine", ["interpreter", "hybrid", "compiled"])
def test_threads_that_share_a_module_take_turns(engine: str) -> None:
    text = """
    (define (f x) (let loop ((i 0) (l '()) (s x))
      (if (= i 150) s (loop (+ i 1) (cons s l) (* 0.99 (+ s (sin s)))))))
    """
    module = vlad.compile(text, engine=engine, plan=logarithmic(stage=400))
    points = [0.1 * k for k in range(1, 5)]
    expected = [(module["f"](x), module["f"].grad(x)) for x in points]
    found: list[bool] = []

    def work(x: float, right: tuple[float, float]) -> None:
        for _ in range(3 if engine != "compiled" else 40):
            f = module["f"]
            found.append((f(x), f.grad(x)) == right)
            found.append(f.checkpointed_grad(x) == pytest.approx(right[1], rel=1e-12))

    threads = [
        threading.Thread(target=work, args=each)
        for each in zip(points, expected, strict=True)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found and all(found)


def test_the_recursion_limit_is_restored_by_the_last_thread() -> None:
    before = sys.getrecursionlimit()
    inside, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with deep_recursion():
            inside.set()
            leave.wait()

    thread = threading.Thread(target=stay)
    with deep_recursion():
        thread.start()
        inside.wait()
    assert sys.getrecursionlimit() == 100_000
    leave.set()
    thread.join()
    assert sys.getrecursionlimit() == before


@pytest.mark.parametrize("engine", ["interpreter", "hybrid", "compiled"])
def test_a_nan_of_any_payload_is_read_as_a_number(engine: str) -> None:
    odd = [
        0xFFFB000000001000,
        0xFFFA123456789ABC,
        0x7FF8000000000001,
        0xFFF9000000000002,
    ]
    reals = [struct.unpack("<d", struct.pack("<Q", bits))[0] for bits in odd]
    text = "(+ 1 (read-real)) " * 4
    values = vlad.run(text, engine=engine, stdin=reals).values
    assert all(value != value for value in values)


def test_the_prompt_keeps_its_definitions_whatever_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no room left")

    told: list[str] = []
    repl = vlad.Repl(lambda prompt: "", told.append)
    repl.evaluate("(define (f x) (* 2 x))")
    with monkeypatch.context() as patch:
        patch.setattr("retape.engines.vlad.session._repl.make_engine", fail)
        repl.evaluate("(define (g x) (f (f x))) (g 3)")
    repl.evaluate("(g 3)")
    assert told == ["OSError: no room left", "12"]
