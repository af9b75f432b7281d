"""A model of a directory on a disk whose power may fail between any two calls.

What survives is what POSIX promises: a file's contents once it was flushed, and a name,
made, replaced or removed, once its directory was. Of the rest chance decides: a name is
the old or the new one, and contents are cut off anywhere.
"""

import os
import stat
from pathlib import Path


class PowerLost(BaseException):
    """Nothing that runs after it can matter: not even an `except Exception`."""


class Power:
    """Patches the calls that change files; the power fails at the `fails`-th moment."""

    def __init__(self, path, source, monkeypatch, flushing=True):
        self.path, self.source, self.flushing = Path(path), source, flushing
        self.fails = self.moments = 0
        self.contents = {}  # flushed, by inode
        self.names = {}  # name -> contents or None, when the directory was last flushed
        for owner, name in [(Path, "replace"), (Path, "unlink"), (Path, "open")]:
            monkeypatch.setattr(owner, name, self._around(getattr(owner, name)))
        monkeypatch.setattr(os, "fsync", self._around(self._flush))

    def on(self, fails):
        """From now on the power fails at this moment; 0 for never."""
        self.fails, self.moments = fails, 0

    def off(self):
        """Leave in the directory what survived."""
        self.fails = 0
        now = {file.name: self._survives(file) for file in self._files()}
        for file in self._files():
            os.remove(file)
        for name in {*now, *self.names}:
            chosen = self.source.choice([now, self.names])
            if chosen.get(name) is not None:
                (self.path / name).write_bytes(chosen[name])
        self.names = {file.name: file.read_bytes() for file in self._files()}
        self.contents = {
            file.stat().st_ino: file.read_bytes() for file in self._files()
        }

    def _around(self, call):
        def moment():
            self.moments += 1
            if self.moments == self.fails:
                raise PowerLost

        def patched(*args, **kwargs):
            if not self.fails:
                return call(*args, **kwargs)
            moment()
            result = call(*args, **kwargs)
            if result is not None:
                return result  # A file just opened, or a name that has been replaced.
            moment()
            return None

        return patched

    def _flush(self, handle):
        found = os.fstat(handle)
        if not self.flushing:
            return
        if stat.S_ISDIR(found.st_mode):
            self.names = {file.name: self._flushed(file) for file in self._files()}
        else:
            (file,) = [f for f in self._files() if f.stat().st_ino == found.st_ino]
            self.contents[found.st_ino] = _read(file)

    def _files(self):
        return [f for f in self.path.iterdir() if f.name != "lock"]

    def _flushed(self, file):
        data = _read(file)
        return data if self.contents.get(file.stat().st_ino) == data else None

    def _survives(self, file):
        data = self._flushed(file)
        if data is None:
            data = _read(file)
            data = data[: self.source.randint(0, len(data))]
        return data


def _read(file):
    """Not by `Path.open`, which is patched."""
    with open(file, "rb") as source:
        return source.read()
