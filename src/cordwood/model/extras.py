"""Optional packages: which extra of the `cordwood` distribution installs them, and for what.

The base installation serves, runs the tools, applies retention, explains and advises.
`cordwood[native]` adds compiled code for the validation of large batches, for recovery, `verify`,
`erase` and questions about records; `cordwood[spark]` adds compaction, and includes `native`;
`cordwood[sign]` adds signatures of reports; `cordwood[lake]` object storage, and values in Avro;
`cordwood[tables]` tables of Delta Lake.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from cordwood.model.errors import MissingExtraError

NATIVE: Final = "native"
SPARK: Final = "spark"
SIGN: Final = "sign"
LAKE: Final = "lake"
TABLES: Final = "tables"

_NATIVE_PACKAGES: Final = ("numba", "numpy", "zstandard")

#: The packages that are imported of each extra.
PACKAGES: Final[Mapping[str, tuple[str, ...]]] = {
    NATIVE: _NATIVE_PACKAGES,
    SPARK: (*_NATIVE_PACKAGES, "pandas", "pyarrow", "pyspark"),
    SIGN: ("cryptography",),
    LAKE: ("fastavro", "obstore"),
    TABLES: (*_NATIVE_PACKAGES, "deltalake", "pyarrow"),
}


def missing_packages(extra: str) -> list[str]:
    """The packages of an extra that are not installed; none of them is imported."""
    return [name for name in PACKAGES[extra] if not _is_installed(name)]


def require_extra(extra: str, *, what: str, otherwise: str = "") -> None:
    """Checks that the packages of an extra are installed.

    Args:
        extra: `NATIVE`, `SPARK`, `SIGN`, `LAKE` or `TABLES`.
        what: the feature that needs it, as the subject of the error's sentence.
        otherwise: a sentence on what can be done without.

    Raises:
        MissingExtraError: a package is missing; the text says what to install.
    """
    missing = missing_packages(extra)
    if missing:
        raise MissingExtraError(extra, what=what, missing=missing, otherwise=otherwise)


def extra_of(error: ImportError, *, what: str) -> MissingExtraError | None:
    """The error of the extra that has the package that cannot be imported; None if none has it.

    Args:
        error: of an import.
        what: as of `require_extra`.
    """
    package = (error.name or "").partition(".")[0]
    for extra, packages in PACKAGES.items():
        if package in packages:
            missing = missing_packages(extra) or [package]
            return MissingExtraError(extra, what=what, missing=missing)
    return None


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ValueError:  # already imported, by something that gave it no spec
        return True
