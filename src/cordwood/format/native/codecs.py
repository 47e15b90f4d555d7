"""Addresses of LZ4's and zstd's functions, which kernels call without Python.

The functions are those in the shared objects of the `lz4` and `zstandard` packages. If a build of
these packages hides its symbols, the addresses are zero and callers use
`cordwood.format.compression` instead.
"""

from __future__ import annotations

import ctypes
import importlib.util

import numpy as np

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4

# Results of a call; other values are sizes.
BAD = -1
NO_ROOM = -2
NOT_HERE = -3  # this data, or this codec, is for the plain way


def _library(module: str) -> ctypes.CDLL:
    """A package's shared object, found but not imported.

    Raises:
        ImportError, OSError: it is not there, or cannot be loaded.
    """
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ImportError(module)
    return ctypes.CDLL(spec.origin)


def _symbols(module: str, *names: str) -> list[int]:
    """Addresses of C functions in a package's shared object; zeros where they are hidden."""
    try:
        library = _library(module)
        return [ctypes.cast(getattr(library, n), ctypes.c_void_p).value or 0 for n in names]
    except (ImportError, OSError, AttributeError):
        return [0] * len(names)


def _state(module: str, maker: str) -> int:
    """A codec's working state, created once per process."""
    try:
        make = getattr(_library(module), maker)
    except (ImportError, OSError, AttributeError):
        return 0
    make.restype = ctypes.c_void_p
    return make() or 0


class Codecs:
    """The addresses that compiled code calls. `table` is int64[6], for the functions below.

    An object must be used by one thread at a time: zstd keeps its working state in it.
    """

    def __init__(self) -> None:
        lz4 = _symbols("lz4._version", "LZ4_decompress_safe", "LZ4_compress_default")
        zstd = _symbols("zstandard._cffi", "ZSTD_decompressDCtx", "ZSTD_compressCCtx")
        states = [
            _state("zstandard._cffi", "ZSTD_createDCtx"),
            _state("zstandard._cffi", "ZSTD_createCCtx"),
        ]
        if not all(states):
            zstd = [0, 0]
        self.table = np.array([*lz4, *zstd, *states], dtype=np.int64)

    @property
    def native(self) -> frozenset[int]:
        """The codecs that compiled code supports."""
        known = {LZ4} if self.table[0] and self.table[1] else set()
        return frozenset(known | ({ZSTD} if self.table[2] and self.table[3] else set()))
