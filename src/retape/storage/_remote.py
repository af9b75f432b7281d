"""A store on S3 and other services, by way of fsspec."""

from dataclasses import dataclass
from typing import TypeVar

from retape.storage._disk import DiskStore
from retape.storage._remote_folder import RemoteFolder

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
        >>> from retape.storage import RemoteStore
        >>> store = RemoteStore("memory://an-example/run", every=30)
        >>> _ = store.open("an example")
        >>> store.put(7, 0, "disk", (1, 2.5), 16)
        >>> store.get(7, 0, "disk")
        (1, 2.5)
    """

    def _folder(self) -> RemoteFolder:
        return RemoteFolder(str(self.path))
