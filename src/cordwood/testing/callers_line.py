"""Errors that a failing test shows at the test's own line."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from cordwood.model.errors import CordwoodError

P = ParamSpec("P")
R = TypeVar("R")


def shows_callers_line(function: Callable[P, R]) -> Callable[P, R]:
    """Raises an expected error as if the caller had raised it.

    pytest leaves out frames with `__tracebackhide__`; the error keeps no frames of what the
    function calls. Errors that are not expected, which are those of no class of ours, keep all.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        __tracebackhide__ = True
        try:
            return function(*args, **kwargs)
        except CordwoodError as error:
            raise error.with_traceback(None) from None

    return call
