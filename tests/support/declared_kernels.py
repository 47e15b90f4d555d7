"""A pytest plugin: kernels are called with the types that they declare.

Compiled ahead of time, a kernel takes an array of another layout or type for what it has declared.
Numba's form compiles a kernel for the types of each call, so these show what callers give.

Use: `CORDWOOD_KERNELS=numba pytest -p support.declared_kernels`.
"""

from __future__ import annotations

from typing import Any, get_type_hints

import numba as nb
import pytest

from cordwood.format.native import kernels


def undeclared_calls() -> list[str]:
    """The calls of kernels, in this process until now, with types that are not declared."""
    assert kernels.FORM == "numba", "only this form knows with which types it was called"
    return [
        f"{name}: {argument} is declared as {hint}, and was {given}"
        for name in kernels.__all__
        if name != "FORM"
        for argument, hint, given in _pairs(getattr(kernels, name))
        if not _fits(hint, given)
    ]


def called_kernels() -> list[str]:
    """The kernels that were called in this process."""
    return [n for n in kernels.__all__ if n != "FORM" and getattr(kernels, n).signatures]


def _pairs(dispatcher: Any) -> list[tuple[str, Any, Any]]:
    hints = get_type_hints(dispatcher.py_func, include_extras=True)
    hints.pop("return")
    return [
        (argument, hint, given)
        for types in dispatcher.signatures
        for (argument, hint), given in zip(hints.items(), types, strict=True)
    ]


def _fits(hint: Any, given: Any) -> bool:
    declared = getattr(hint, "__metadata__", (None,))[0]
    if declared is None:
        literal = getattr(given, "literal_type", given)
        if hint is bool:
            return isinstance(literal, nb.types.Boolean)
        return isinstance(literal, nb.types.Integer | nb.types.IntEnumMember)
    if not isinstance(given, nb.types.Array):
        return False
    same = (given.dtype, given.ndim, given.layout) == (
        declared.dtype,
        declared.ndim,
        declared.layout,
    )
    return same and (given.mutable or not declared.mutable)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails the run that has called a kernel with other types."""
    if undeclared_calls():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Names the kernels that were called, and what was wrong."""
    for line in undeclared_calls():
        terminalreporter.write_line(line, red=True)
    terminalreporter.write_line(f"kernels called: {' '.join(called_kernels())}")
