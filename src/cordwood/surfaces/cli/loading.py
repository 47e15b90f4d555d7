"""The loading of a command's modules."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """A block that imports modules, in which the garbage collector does not run.

    It does not examine them later, either: they stay until the process ends.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
