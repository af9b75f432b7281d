"""Compilers, the cache of objects, and loading: where machines differ.

Each test runs with the toolchain of VLAD's compiler and with that of PyTorch.
"""

import ctypes
import os
import stat
import sys
import tempfile
from dataclasses import replace

import pytest

from retape import UnsupportedError
from retape import _native_code as native_code
from retape._native_code import _build, _object_cache
from retape.engines.eager.native import _accelerate
from retape.engines.vlad.compiler.load import _c_compiler

TEXT = """
static int answer(void) { return 42; }
#ifdef __cplusplus
extern "C"
#endif
__attribute__((visibility("default"))) int get(void) { return answer(); }
"""
FLAGS = ("-fPIC", "-shared", "-fvisibility=hidden")


@pytest.fixture(params=[_c_compiler.TOOLS, _accelerate.TOOLS], ids=["vlad", "torch"])
def tools(request, monkeypatch):
    monkeypatch.delenv(request.param.variable, raising=False)
    return request.param


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("RETAPE_CACHE", str(folder))
    return folder


@pytest.fixture
def no_cache(tmp_path, monkeypatch):
    """A cache that cannot be a folder."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RETAPE_CACHE", str(tmp_path / "file" / "cache"))


@pytest.fixture
def no_compiler(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


@pytest.fixture
def compiler(tools, tmp_path, monkeypatch):
    """Has a script of Python stand for the compiler that a user names."""

    def named(script):
        (tmp_path / "cc.py").write_text(script)
        command = f"{sys.executable} {tmp_path / 'cc.py'}"
        monkeypatch.setenv(tools.variable, command)

    return named


@pytest.fixture
def compilations(monkeypatch):
    """The compilers that were run."""
    made = []
    before = _build._compile

    def noted(objects, compiler, program):
        made.append(compiler[0])
        return before(objects, compiler, program)

    monkeypatch.setattr(_build, "_compile", noted)
    return made


def suffix(tools):
    return ".c" if tools.language == "C" else ".cpp"


def built(tools):
    program = native_code.Program(TEXT, suffix(tools), FLAGS)
    return native_code.build(tools, program)


def value(tools, image):
    return native_code.load(tools, image, ctypes.CDLL).get()


def _entry(cache):
    (entry,) = cache.glob("*.object")
    return entry


def _linked_elsewhere(entry):
    other = entry.with_name("elsewhere")
    entry.rename(other)
    entry.symlink_to(other)


def _changed(entry):
    whole = entry.read_bytes()
    entry.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))


DAMAGES = {
    "truncated": lambda entry: entry.write_bytes(entry.read_bytes()[:-1000]),
    "empty": lambda entry: entry.write_bytes(b""),
    "changed": _changed,
    "link": _linked_elsewhere,
    "others write": lambda entry: entry.chmod(0o602),
    "the group writes": lambda entry: entry.chmod(0o620),
    "all write": lambda entry: entry.chmod(0o666),
}


def test_an_object_is_made_once_and_only_its_owner_may_write_it(
    cache, tools, compilations
):
    first = built(tools)
    assert built(tools) == first
    assert len(compilations) == 1
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert stat.S_IMODE(_entry(cache).stat().st_mode) == 0o600
    assert value(tools, first) == 42


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_entry_that_is_not_whole_or_safe_is_made_again(
    damage, cache, tools, compilations
):
    first = built(tools)
    entry = _entry(cache)
    whole = entry.read_bytes()
    DAMAGES[damage](entry)
    assert built(tools) == first
    assert len(compilations) == 2
    assert entry.read_bytes() == whole
    assert stat.S_IMODE(entry.lstat().st_mode) == 0o600


def test_an_entry_of_another_user_is_made_again(
    cache, tools, monkeypatch, compilations
):
    built(tools)
    status = _entry(cache).stat()
    assert _object_cache._is_ours(status)
    monkeypatch.setattr(os, "geteuid", lambda: status.st_uid + 1)
    if status.st_uid == 0:  # root's own files are trusted by everybody
        foreign = os.stat_result((*status[:4], 12345, *status[5:10]))
        assert not _object_cache._is_ours(foreign)
    else:
        built(tools)
        assert len(compilations) == 2


def test_a_cache_that_cannot_be_written_is_told_once_and_done_without(no_cache, tools):
    told = "cannot be kept in .*file/cache.*set `\\$RET"
    with pytest.warns(RuntimeWarning, match=told):
        image = built(tools)
    assert value(tools, image) == 42


def test_without_any_folder_one_sentence_says_so(no_cache, tools, monkeypatch):
    def refuse(**_):
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(_object_cache.tempfile, "TemporaryDirectory", refuse)
    with pytest.raises(UnsupportedError, match="a folder for the compiler's files"):
        built(tools)


def test_where_no_file_may_be_executed_a_sentence_says_so(cache, tools):
    def refuse(path: str) -> None:
        tried.append(os.path.dirname(os.path.dirname(path)))
        raise OSError("failed to map segment from shared object")

    tried: list[str] = []
    with pytest.raises(UnsupportedError, match="loaded .failed to map segment.*CACHE"):
        native_code.load(tools, built(tools), refuse)
    assert tried == [str(cache), tempfile.gettempdir()]


@pytest.mark.parametrize("command", ["no-such-compiler -x", "false", "'unclosed"])
def test_a_compiler_that_fails_is_told_and_another_one_used(
    command, tools, monkeypatch
):
    monkeypatch.setenv(tools.variable, command)
    told = f"was used instead; set `\\${tools.variable}` to a compiler that works"
    with pytest.warns(RuntimeWarning, match=told):
        image = built(tools)
    assert value(tools, image) == 42


def test_a_compiler_that_makes_something_else_is_told(tools, compiler):
    compiler("import sys; open(sys.argv[sys.argv.index('-o') + 1], 'w').write('junk')")
    with pytest.warns(RuntimeWarning, match="says that it made an object, but did not"):
        image = built(tools)
    assert value(tools, image) == 42


def test_a_compiler_reads_no_input(tools, compiler, no_compiler):
    compiler("import sys; sys.exit(len(sys.stdin.read()) or 1)")
    with pytest.raises(UnsupportedError, match=r"failed \(status 1\)"):
        built(tools)


def test_a_compiler_that_speaks_another_encoding_is_understood(
    tools, compiler, no_compiler
):
    said = r"b'Erreur \xe9\xff fatale'"
    compiler(f"import sys; sys.stderr.buffer.write({said}); sys.exit(1)")
    with pytest.raises(UnsupportedError, match=r"failed \(Erreur .* fatale\)\. Set"):
        built(tools)


@pytest.mark.parametrize("reason", ["others may write it", "it is full"])
def test_a_cache_that_serves_badly_is_not_compiled_in(
    reason, cache, tools, tmp_path, monkeypatch
):
    cache.mkdir()
    monkeypatch.setattr(_object_cache.tempfile, "tempdir", str(tmp_path))
    if reason == "it is full":
        monkeypatch.setattr(_object_cache, "SCRATCH_BYTES", 2**70)
    else:
        cache.chmod(0o777)
    with native_code.ObjectCache(tools).scratch() as folder:
        assert folder.parent == tmp_path
    if reason != "it is full":
        cache.chmod(0o1777)
        with native_code.ObjectCache(tools).scratch() as folder:
            assert folder.parent == cache
    assert value(tools, built(tools)) == 42


def test_a_home_in_the_name_of_the_cache_is_found(tools, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RETAPE_CACHE", "~/kept")
    assert native_code.ObjectCache(tools).folder == tmp_path / "kept"


def test_without_a_compiler_the_message_says_what_to_do(tools, no_compiler):
    with pytest.raises(UnsupportedError) as caught:
        list(tools.compilers())
    texts = {
        "C": "the compiled engine needs a C compiler and none was found as `$CC`, "
        "`gcc`, `clang` or `cc`. Install one, or `pip install retape[vlad]`, or use "
        '`engine="interpreter"`.',
        "C++": "`accelerate()` needs a C++ compiler and none was found as `$CXX`, "
        "`g++`, `clang++` or `c++`. Install one, or do without: the Python recorder "
        "gives the same results.",
    }
    assert str(caught.value) == texts[tools.language]


def test_compilers_are_tried_in_order(tools, monkeypatch):
    monkeypatch.setenv(tools.variable, "ccache gcc")
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert (
        list(tools.compilers())
        == {
            "C": [
                ("ccache", "gcc"),
                ("/bin/gcc",),
                ("/bin/clang",),
                ("/bin/cc",),
                (sys.executable, "-m", "ziglang", "cc"),
            ],
            "C++": [("ccache", "gcc"), ("/bin/g++",), ("/bin/clang++",), ("/bin/c++",)],
        }[tools.language]
    )


def test_the_accelerator_is_kept_as_any_object_is(cache, monkeypatch):
    made: list[object] = []

    def compile_(*arguments: object) -> bytes:
        made.append(arguments)
        return b"an object"

    monkeypatch.setattr(_build, "_compile", compile_)
    assert [_accelerate.build() for _ in range(2)] == [b"an object"] * 2
    assert len(made) == 1
    _entry(cache).chmod(0o666)
    assert _accelerate.build() == b"an object"
    _entry(cache).write_bytes(_entry(cache).read_bytes()[:-1])
    assert _accelerate.build() == b"an object"
    assert len(made) == 3


def test_headers_and_versions_are_part_of_what_an_object_is_kept_by(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    for folder, text in ((one, "1"), (two, "2")):
        folder.mkdir()
        (folder / "a.h").write_text(text)
    programs = [
        native_code.Program("text", ".c", FLAGS, headers=(one,)),
        native_code.Program("text", ".c", FLAGS, headers=(two,)),
        native_code.Program("text", ".c", FLAGS, headers=(one,), made_for=("2.13",)),
    ]
    assert len({_build._key(("cc",), each) for each in programs}) == 3


def test_an_object_is_kept_by_what_it_is_linked_to_and_not_by_where_that_is(
    monkeypatch,
):
    def key(folder: str, version: str = "2.13", compiler: tuple[str, ...] = ("cc",)):
        found = native_code.Program(
            "text", ".c", FLAGS, made_for=(version,), folders=(f"-I{folder}",)
        )
        return _build._key(compiler, found)

    zig = ("-m", "ziglang", "cc")
    monkeypatch.setattr(_build.metadata, "version", lambda name: "0.13")
    assert key("/a") == key("/b") != key("/a", "2.14")
    here = key("/a", compiler=(sys.executable, *zig))
    monkeypatch.setattr(_build.sys, "executable", "/elsewhere/python")
    assert here == key("/a", compiler=("/elsewhere/python", *zig))
    assert key("/a", compiler=("/usr/bin/cc",)) != key("/a", compiler=("/opt/cc",))
    monkeypatch.setattr(_build, "_machine", lambda: ("another", "glibc", "2.99"))
    assert key("/a", compiler=("/elsewhere/python", *zig)) != here


APART = """
int answer(void);
#ifdef __cplusplus
extern "C"
#endif
__attribute__((visibility("default"))) int get(void) { return answer(); }
"""


def _linked(tools, text):
    flags = ("-fPIC", "-fvisibility=hidden")
    library = native_code.Program(
        "int base(void) { return 40; }", suffix(tools), (*flags, "-c")
    )
    answer = "int base(void); int answer(void) { return base() + MORE; }"
    beside = ((answer, ("-DMORE=2",)),)
    flags = (*flags, "-shared")
    return native_code.Program(
        text, suffix(tools), flags, beside=beside, linked=library
    )


def test_what_is_linked_is_compiled_once_for_several_programs(
    cache, tools, compilations
):
    first = native_code.build(tools, _linked(tools, APART))
    assert value(tools, first) == 42
    assert len(compilations) == 2
    other = _linked(tools, APART.replace("answer();", "answer() + 1;"))
    assert value(tools, native_code.build(tools, other)) == 43
    assert len(compilations) == 3
    assert native_code.build(tools, _linked(tools, APART)) == first
    assert len(compilations) == 3


def test_a_fault_in_a_file_beside_is_told(cache, tools):
    wrong = ("int answer(void) { wrong }", ())
    program = replace(_linked(tools, APART), beside=(wrong,))
    with pytest.raises(UnsupportedError, match=r"failed \((.|\n)*wrong"):
        native_code.build(tools, program)
