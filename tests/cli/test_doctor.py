"""`retape doctor`."""

import json

import pytest

from retape.cli import _doctor, main


def findings(capsys) -> dict[str, tuple[str, str]]:
    return {
        each["name"]: (each["state"], each["text"])
        for each in json.loads(capsys.readouterr().out)["findings"]
    }


def only(monkeypatch, *names: str) -> None:
    looks = {name: _doctor.LOOKS[name] for name in names}
    monkeypatch.setattr(_doctor, "LOOKS", looks)


@pytest.mark.slow
def test_everything_that_the_tests_need_is_found_to_work(capsys):
    assert main(["doctor", "--json"]) == 0
    found = findings(capsys)
    assert found.keys() == _doctor.LOOKS.keys()
    for name in ("adjoint", "jax", "torch", "vlad", "native"):
        state, text = found[name]
        assert state == "ok" and text.endswith("a trial is right"), name


def test_what_is_not_installed_is_no_fault(monkeypatch, capsys):
    only(monkeypatch, "jax", "torch", "plot", "compilers", "native", "processes")
    monkeypatch.setattr(_doctor, "find_spec", lambda name: None)
    monkeypatch.setattr(_doctor.shutil, "which", lambda name: None)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delattr(_doctor.os, "fork", raising=False)
    assert main(["doctor"]) == 0
    *lines, empty, last = capsys.readouterr().out.splitlines()
    assert (empty, last.partition(":")[0]) == (
        "",
        f"0 of {len(lines)} work. Not installed",
    )
    assert all(line.startswith("absent ") for line in lines)
    assert "`jax` is not there: pip install" in lines[0] and "[jax]" in lines[0]
    assert lines[3].startswith("absent  compilers     none: `retape.native` and")


def test_what_fails_is_named_and_the_rest_is_looked_at(monkeypatch, capsys):
    def broken():
        raise ImportError("libcuda.so.1: no such file\nand more")

    monkeypatch.setattr(
        _doctor, "LOOKS", {"jax": broken, "python": _doctor.LOOKS["python"]}
    )
    assert main(["doctor"]) == 1
    first, second, *_, last = capsys.readouterr().out.splitlines()
    assert first == "fault   jax           ImportError: libcuda.so.1: no such file"
    assert second.startswith("ok      python")
    assert last == "1 of 2 work. Not working: jax."


def test_a_wrong_gradient_is_a_fault():
    found = _doctor._tried("jax", False, "0.10.2")
    assert found.state == "fault" and "a wrong result: report it" in found.text


def test_a_cache_that_cannot_be_written_is_a_fault(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("RETAPE_CACHE", str(tmp_path / "file" / "cache"))
    found = _doctor.LOOKS["cache"]()
    assert found.state == "fault" and "set $RETAPE_CACHE to a folder" in found.text
    monkeypatch.setenv("RETAPE_CACHE", str(tmp_path / "new" / "cache"))
    assert _doctor.LOOKS["cache"]().state == "ok"
