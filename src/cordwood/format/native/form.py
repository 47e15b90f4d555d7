"""The form of the kernels that is used here: compiled ahead of time, or by numba.

Both are made from the same source. The compiled form needs neither numba nor time to start. It is
part of a wheel for Linux on x86-64, and an installation from source makes it there if there is a C
compiler; it is for processors with AVX2, BMI2 and FMA (x86-64-v3). Without it, on other processors,
or if the source has changed since, numba compiles each kernel at its first use, and keeps the
result in a cache.
"""

from __future__ import annotations

import hashlib
import importlib
import os
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Final

#: Set to `numba`, this environment variable has numba compile the kernels in any case.
VARIABLE: Final = "CORDWOOD_KERNELS"
COMPILED: Final = "compiled"
NUMBA: Final = "numba"
#: The module with the compiled form, in this package.
MODULE: Final = "_compiled"

_INSTRUCTIONS: Final = {"avx2", "bmi2", "fma"}
_FIRST_PROCESSOR_BYTES: Final = 8192


def form_here() -> str:
    """The form of the kernels that a process here uses, or "none": numpy or numba is missing."""
    return _named(is_compiled=compiled_kernels() is not None)


def form_without_loading() -> str:
    """The result of `form_here`; the compiled form is looked at, not loaded."""
    return _named(is_compiled=_may_be_compiled() and _has_current_file())


def _named(*, is_compiled: bool) -> str:
    if is_compiled:
        return COMPILED
    return NUMBA if find_spec("numpy") and find_spec("numba") else "none"


def _may_be_compiled() -> bool:
    """Whether the compiled form is wanted, and can run on this processor."""
    if os.environ.get(VARIABLE) == NUMBA or find_spec("numpy") is None:
        return False
    return _processor_flags() >= _INSTRUCTIONS


def _has_current_file() -> bool:
    """Whether there is a compiled form whose code has the digest of this source as a constant."""
    compiled = find_spec(f"{__package__}.{MODULE}")
    if compiled is None or compiled.origin is None:
        return False
    return source_digest().to_bytes(8, "little") in Path(compiled.origin).read_bytes()


def source_digest() -> int:
    """A digest of the source of the kernels, of 63 bits; the compiled form returns its own."""
    digest = hashlib.sha256()
    package = Path(__file__).parent
    for path in sorted([*package.glob("*.py"), *(package / "source").glob("*.py")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return int.from_bytes(digest.digest()[:8], "big") >> 1


def compiled_kernels() -> ModuleType | None:
    """The compiled form, if it is there, is for this source and processor, and is wanted."""
    if not _may_be_compiled():
        return None
    try:
        compiled = importlib.import_module(f"{__package__}.{MODULE}")
    except ImportError:
        return None
    return compiled if compiled.digest() == source_digest() else None


def _processor_flags() -> set[str]:
    try:
        with open("/proc/cpuinfo", "rb") as file:
            first = file.read(_FIRST_PROCESSOR_BYTES).decode("ascii", "replace")
    except OSError:
        return set()
    line = next((line for line in first.splitlines() if line.startswith("flags")), "")
    return set(line.partition(":")[2].split())
