"""Optional packages, and how to install them.

The base install needs nothing. Each engine needs its framework, and says so where that
is missing, before an import of it fails without a word about Retape.
"""

from importlib.util import find_spec
from pathlib import Path

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
            f"{names} cannot be imported: Retape alone installs no framework, and "
            f"this part of it needs one. Run `{install_line(extra)}`.",
            name=missing[0],
        )


def install_line(extra: str) -> str:
    """The command that installs an extra, before and after there is a release.

    In a checkout that is `pip install ".[jax]"` in its folder; elsewhere the name.

    Examples:
        >>> install_line("jax").startswith("pip install")
        True
    """
    checkout = Path(__file__).parents[2]
    if (checkout / "pyproject.toml").is_file() and (checkout / "src").is_dir():
        return f'pip install -e "{checkout}[{extra}]"'
    return f'pip install "retape[{extra}]"'
