"""The form of the request path that runs here: compiled, or Python.

`tools/build_modules.py` compiles its modules with mypyc; in a wheel the compiled form of each is
beside its source, and Python imports that. Elsewhere the sources run as they are. Both do the same.
"""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from typing import Final

COMPILED: Final = "compiled"
PLAIN: Final = "Python"


def request_path_form() -> str:
    """`COMPILED` or `PLAIN`; all modules of the request path have the same."""
    spec = find_spec("cordwood.serving.dispatch")
    origin = (spec and spec.origin) or ""
    return COMPILED if origin.endswith(tuple(EXTENSION_SUFFIXES)) else PLAIN
