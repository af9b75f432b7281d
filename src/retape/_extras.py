"""What `pip install retape` leaves out, and how to get it.

The base install needs nothing. Each engine needs its framework, and says so where that
is missing, before an import of it fails without a word about Retape.
"""

from importlib.util import find_spec

from retape._errors import MissingPackageError


def require(extra: str, *packages: str) -> None:
    """Refuse to go on without the packages of an extra.

    Args:
        extra: The extra that installs them.
        *packages: The names under which they are imported.

    Raises:
        MissingPackageError: If one of them is not installed.
    """
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        names = ", ".join(f"`{name}`" for name in missing)
        raise MissingPackageError(
            f"{names} cannot be imported: `pip install retape` installs no framework, "
            f'and this part of it needs one. Run `pip install "retape[{extra}]"`.',
            name=missing[0],
        )
