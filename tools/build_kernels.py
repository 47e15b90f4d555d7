"""Compiles the kernels ahead of time, next to their source: `cordwood/format/native/_compiled*.so`.

The build of a wheel and an installation from source run it; it needs numba, a C compiler and
Python's headers. Without them, and on processors other than x86-64, it fills numba's cache with
`--or-fill-cache`, and ends with 1.

usage: build_kernels.py [--or-fill-cache]
"""

from __future__ import annotations

import importlib
import os
import platform
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

_TARGET = "x86-64-v3"
_IS_TARGET = platform.machine() == "x86_64" and sys.platform == "linux"
if _IS_TARGET:  # numba reads these when it is imported
    os.environ["NUMBA_CPU_NAME"] = _TARGET
    os.environ["NUMBA_CPU_FEATURES"] = ""
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

import numba as nb  # noqa: E402
import numpy as np  # noqa: E402
from numba.pycc import compiler  # noqa: E402

from cordwood.format.native import form  # noqa: E402

_SCALARS = {
    int: nb.int64,
    bool: nb.boolean,
    np.uint64: nb.uint64,
    type(None): nb.void,
}


def _type(hint: Any) -> Any:
    """Numba's type for an annotation."""
    if get_origin(hint) is Annotated:
        return get_args(hint)[1]
    if get_origin(hint) is tuple:
        return nb.types.Tuple([_type(each) for each in get_args(hint)])
    return _SCALARS[hint]


def _signature(function: Any) -> Any:
    hints = get_type_hints(function, include_extras=True)
    result = _type(hints.pop("return"))
    return result(*[_type(hint) for hint in hints.values()])


class _Flags(compiler.Flags):  # type: ignore[misc]  # numba has no types
    """Other threads run while a kernel does, as in the form that numba compiles when called."""

    def __init__(self, *others: Any) -> None:
        super().__init__(*others)
        if not others:  # not a copy
            self.release_gil = True


def declared_kernels() -> dict[str, Any]:
    """The kernels by name, as numba's functions."""
    os.environ[form.VARIABLE] = form.NUMBA
    kernels = importlib.import_module("cordwood.format.native.kernels")
    return {name: getattr(kernels, name) for name in kernels.__all__ if name != "FORM"}


def build() -> Path:
    """Compiles; returns the path of the module.

    Raises:
        Exception: there is no C compiler, or it has failed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from numba.pycc import CC  # noqa: PLC0415  # it warns, wherever it is imported

        compilation = CC(form.MODULE)
    for name, kernel in declared_kernels().items():
        compilation.export(name, _signature(kernel.py_func))(kernel.py_func)
    value = form.source_digest()
    compilation.export("digest", nb.int64())(lambda: value)
    compilation.target_cpu = _TARGET
    compiler.Flags = _Flags
    package = Path(form.__file__).parent
    with tempfile.TemporaryDirectory(dir=package) as directory:
        compilation.output_dir = directory
        compilation.compile()
        built = Path(directory) / str(compilation.output_file)
        return built.rename(package / built.name)


def current() -> Path | None:
    """The module, if it was compiled from this source by this program."""
    os.environ.pop(form.VARIABLE, None)
    compiled = form.compiled_kernels()
    if compiled is None or compiled.__file__ is None:
        return None
    path = Path(compiled.__file__)
    return path if path.stat().st_mtime > Path(__file__).stat().st_mtime else None


def fill_cache() -> None:
    """Has numba compile each kernel and keep the result."""
    for kernel in declared_kernels().values():
        kernel.compile(_signature(kernel.py_func).args)


def main(fills_cache: bool) -> int:
    if not _IS_TARGET:
        print("the kernels are compiled ahead of time for Linux on x86-64 alone")
    else:
        try:
            print(f"compiled {(current() or build()).name}")
        except Exception as error:  # of the compiler, of its Python interface, of the disk
            print(f"the kernels are not compiled ahead of time: {type(error).__name__}: {error}")
        else:
            return 0
    if fills_cache:
        fill_cache()
    return 1


if __name__ == "__main__":
    sys.exit(main("--or-fill-cache" in sys.argv[1:]))
