"""A store on S3 and other services, by way of fsspec.

Objects appear whole or not at all, and listing, reading and removing are all that is
asked of them; what is torn on a file system without that promise its digest shows.
There is no lock that ends with its process. So the last one that comes has the run: it
leaves its name, and who finds another name there than its own writes nothing more.
"""

# fsspec has no types.
# pyright: standard

from __future__ import annotations

import json
import os
import posixpath
import socket
import uuid
from dataclasses import dataclass
from typing import Any, TypeVar

from retape._errors import SnapshotError, StoreError
from retape._extras import require
from retape.storage._disk import DiskStore
from retape.storage._run_directory import Folder

_OWNER = "owner.json"


class RemoteFolder(Folder):
    """What `RunDirectory` is, on an fsspec file system.

    Attributes:
        path: The folder, without the protocol.
    """

    def __init__(self, url: str) -> None:
        super().__init__()
        require("remote", "fsspec")
        from fsspec.core import url_to_fs

        try:
            self.fs, path = url_to_fs(url)
        except (ValueError, ImportError) as error:
            raise StoreError(
                f"`path={url!r}` cannot be opened: {error}. Pass a URL such as "
                '"s3://bucket/run".'
            ) from error
        self.path = str(path).rstrip("/")
        self._token = ""

    def __str__(self) -> str:
        protocol = self.fs.protocol
        name = protocol if isinstance(protocol, str) else protocol[0]
        return f"{name}://{self.path.lstrip('/')}"

    def _take(self) -> None:
        """Take the run over; who had it is refused at its next write."""
        self._token = uuid.uuid4().hex
        owner = {"token": self._token, "host": socket.gethostname(), "pid": os.getpid()}
        self._do("used", lambda: self.fs.makedirs(self.path, exist_ok=True))
        self._do("used", lambda: self._pipe(_OWNER, json.dumps(owner).encode()))

    def _give_up(self) -> None:
        self._token = ""

    def exists(self, name: str) -> bool:
        def looked_up() -> bool:
            self.fs.invalidate_cache(self.path)
            return self.fs.exists(self._at(name))

        return self._do("read", looked_up)

    def names(self) -> set[str]:
        def listed() -> set[str]:
            self.fs.invalidate_cache(self.path)
            if not self.fs.exists(self.path):
                return set()
            found = self.fs.ls(self.path, detail=False)
            return {posixpath.basename(str(name)) for name in found}

        return self._do("read", listed)

    def contents(self, name: str) -> bytes:
        self._refuse_forked_child()
        return self._cat(name)

    def write(self, name: str, data: bytes) -> None:
        self._refuse_if_taken()
        self._do("written", lambda: self._pipe(name, data))

    def unlink(self, name: str) -> None:
        def removed() -> None:
            try:
                self.fs.rm_file(self._at(name))
            except FileNotFoundError:
                return

        self._do("written", removed)

    def rename(self, name: str, to: str) -> None:
        # Copied: were it moved, none would be there for a moment.
        self._refuse_if_taken()
        self._do("written", lambda: self.fs.cp_file(self._at(name), self._at(to)))

    def _at(self, name: str) -> str:
        return posixpath.join(self.path, name)

    def _pipe(self, name: str, data: bytes) -> None:
        self.fs.pipe_file(self._at(name), data)

    def _cat(self, name: str) -> bytes:
        try:
            return self.fs.cat_file(self._at(name))
        except FileNotFoundError as error:
            raise SnapshotError(
                f"`{self}/{name}` is not there. Its state is recomputed from an "
                "earlier one."
            ) from error
        except Exception as error:
            raise self._failed("read", error) from error

    def _refuse_if_taken(self) -> None:
        """Stop when another process has taken the run over."""
        self._refuse_forked_child()
        owner: dict[str, Any] = {}
        try:
            owner = json.loads(self._cat(_OWNER))
        except (SnapshotError, ValueError):
            pass  # Removed: nobody else has it.
        if self._token and owner.get("token", self._token) != self._token:
            raise StoreError(
                f"`{self}` was taken over by process {owner.get('pid')} on "
                f"{owner.get('host')}, which goes on with the run. End this one."
            )

    def _do(self, what: str, call: Any) -> Any:
        """A call of the file system, whose errors are of any class."""
        try:
            return call()
        except StoreError:
            raise
        except Exception as error:
            raise self._failed(what, error) from error

    def _failed(self, what: str, error: Exception) -> StoreError:
        return StoreError(
            f"`{self}` cannot be {what} ({type(error).__name__}: {error}). Mend what "
            "is wrong, and call again: the run goes on where it was."
        )


C = TypeVar("C")


@dataclass(slots=True)
class RemoteStore(DiskStore[C]):
    """A `DiskStore` on a file system of fsspec: S3, GCS, Azure, SFTP, HDFS and others.

    The files are the same, and so are capacities, packing and the promises for a run
    that is killed. There is no lock: a process that opens the store takes the run over,
    and one that had it is refused at its next write. Put an `AsyncStore` around it.

    Args:
        path: A URL such as "s3://bucket/run"; what it does not say, such as keys or an
            endpoint, fsspec's configuration does.

    Raises:
        MissingPackageError: If `fsspec` is not installed (extra `remote`).
        StoreError: If fsspec knows no such URL, or a package for it is missing.

    Examples:
        >>> from retape.storage import Place, RemoteStore
        >>> store = RemoteStore("memory://an-example/run", every=30)
        >>> _ = store.open("an example")
        >>> store.put(Place(7, 0, "disk"), (1, 2.5), 16)
        >>> store.get(Place(7, 0, "disk"))
        (1, 2.5)
    """

    def _folder(self) -> RemoteFolder:
        return RemoteFolder(str(self.path))
