"""A cache of compiled objects that trusts only what this user wrote, and wrote whole.

An entry is a file: the digest of an object, then the object. It is used if it belongs
to the user (or root), if nobody else may write it, and if the digest is right; anything
else is as if it were not there, and is made again. So a folder that others can write,
such as `/tmp`, is as safe as one that they cannot, and a truncated entry does no harm.
"""

import hashlib
import os
import shutil
import stat
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from retape._errors import UnsupportedError
from retape._native_code._toolchain import Toolchain
from retape._user_cache import user_cache

_DIGEST_BYTES = hashlib.sha256().digest_size
SCRATCH_BYTES = 32 * 2**20
"""Less free room than this may be too little for the compiler's files."""


@dataclass(frozen=True, slots=True)
class ObjectCache:
    """The objects of one toolchain.

    Attributes:
        tools: The toolchain.
    """

    tools: Toolchain

    @property
    def folder(self) -> Path:
        """`$RETAPE_CACHE`, or a folder in the user's cache."""
        given = os.environ.get("RETAPE_CACHE")
        if given:
            return Path(given).expanduser()
        return user_cache() / self.tools.cache

    def find(self, key: str) -> bytes | None:
        """The object kept under a key; `None` if there is none to be trusted."""
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        try:
            descriptor = os.open(self._entry(key), flags)
        except OSError:
            return None
        with open(descriptor, "rb") as file:
            if not _is_ours(os.fstat(descriptor)):
                return None
            try:
                content = file.read()
            except OSError:
                return None
        digest, image = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        return image if hashlib.sha256(image).digest() == digest else None

    def keep(self, key: str, image: bytes) -> None:
        """Keep an object; where that cannot be, say so once, and go on without."""
        target = self._entry(key)
        try:
            with tempfile.NamedTemporaryFile(
                dir=_made(target.parent), delete=False
            ) as file:
                try:
                    file.write(hashlib.sha256(image).digest() + image)
                    file.close()
                    os.replace(file.name, target)
                except OSError:
                    os.unlink(file.name)
                    raise
        except OSError as error:
            warnings.warn(
                f"the compiled object cannot be kept in `{target.parent}` "
                f"({error.strerror or error}), so the next process compiles it again; "
                "set `$RETAPE_CACHE` to a folder that can be written",
                RuntimeWarning,
                stacklevel=2,
            )

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A private folder for the compiler's files, removed afterwards.

        In the cache's folder if that can be written, has room, and is no folder in
        which others could put files of theirs in the place of ours; else where
        temporary files go.

        Raises:
            UnsupportedError: If no such folder can be made anywhere.
        """
        folder = None
        for base in (self.folder, None):
            try:
                if base is not None and not _may_hold_scratch(_made(base)):
                    continue
                folder = tempfile.TemporaryDirectory(dir=base)
                break
            except OSError:
                continue
        if folder is None:
            raise UnsupportedError(
                f"{self.tools.user} needs a folder for the compiler's files, and "
                f"neither `{self.folder}` nor a temporary folder can be written; set "
                f"`$RETAPE_CACHE` to one that can, or {self.tools.instead}."
            )
        with folder as name:
            yield Path(name)

    def _entry(self, key: str) -> Path:
        return self.folder / f"{key}.object"


def _made(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _may_hold_scratch(folder: Path) -> bool:
    """Tell whether a folder has room, and only this user or root may rename in it.

    Who may write a folder may put another one in the place of one that is in it, but
    for a folder like `/tmp`, where each may move only what is theirs.
    """
    if shutil.disk_usage(folder).free < SCRATCH_BYTES:
        return False
    if not hasattr(os, "geteuid"):
        return True
    status = folder.stat()
    shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    guarded = not shared or status.st_mode & stat.S_ISVTX
    return bool(guarded) and status.st_uid in (0, os.geteuid())


def _is_ours(status: os.stat_result) -> bool:
    """Tell whether nobody but this user or root can have written a file."""
    if not stat.S_ISREG(status.st_mode):
        return False
    if not hasattr(os, "geteuid"):
        return True
    shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return not shared and status.st_uid in (0, os.geteuid())
