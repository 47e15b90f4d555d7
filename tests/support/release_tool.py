"""`tools/release.py` as a module, for tests."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Final

_FILE: Final = Path(__file__).resolve().parents[2] / "tools" / "release.py"


def release_tool() -> ModuleType:
    """The program's functions: `pythons`, `interpreter`, `faults`, `notes`."""
    spec = importlib.util.spec_from_file_location("release", _FILE)
    assert spec is not None, "the file has the suffix of a module"
    assert spec.loader is not None, "the file has the suffix of a module"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
