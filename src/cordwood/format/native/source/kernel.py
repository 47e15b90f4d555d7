"""Compiles the functions of this package, and declares the types of their arguments.

Arrays are contiguous, in C order. The types of a kernel are the annotations of its arguments; `int`
is int64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import numba as nb
import numpy as np
import numpy.typing as npt

Bytes = Annotated[npt.NDArray[np.uint8], nb.uint8[::1]]
ReadOnlyBytes = Annotated[npt.NDArray[np.uint8], nb.types.Array(nb.uint8, 1, "C", readonly=True)]
Flags = Annotated[npt.NDArray[np.bool_], nb.boolean[::1]]
Actions = Annotated[npt.NDArray[np.int8], nb.int8[::1]]
Ints = Annotated[npt.NDArray[np.int64], nb.int64[::1]]
#: int64 of two dimensions.
Rows = Annotated[npt.NDArray[np.int64], nb.int64[:, ::1]]
Words = Annotated[npt.NDArray[np.uint64], nb.uint64[::1]]
#: uint64 of two dimensions.
Entries = Annotated[npt.NDArray[np.uint64], nb.uint64[:, ::1]]
ReadOnlyEntries = Annotated[
    npt.NDArray[np.uint64], nb.types.Array(nb.uint64, 2, "C", readonly=True)
]

_F = TypeVar("_F", bound=Callable[..., Any])


def kernel(function: _F) -> _F:
    """Makes a kernel: numba compiles it at its first call, and keeps the result in a cache."""
    compiled: _F = nb.njit(cache=True, nogil=True)(function)
    return compiled


def inlined(function: _F) -> _F:
    """Makes a part of kernels, which is compiled into each that calls it; it makes no arrays.

    So it counts no references to arrays either: numba's counts are atomic, and in the loop over
    records they would take as long as all else.
    """
    compiled: _F = nb.njit(cache=True, nogil=True, forceinline=True, _nrt=False)(function)
    return compiled
