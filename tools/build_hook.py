"""Hatchling's hook: compiled code that is part of a wheel, where it can be made.

- The kernels, by numba, in a wheel and in an editable installation. Where they cannot be made,
  numba compiles each when it is called.
- The modules of the request path, by mypyc, in a wheel. Where they cannot be made, they run as
  Python. In an editable installation they would hide changes of their sources.

They cannot be made without a C compiler. With `CORDWOOD_PLAIN=1` in the environment, the request
path is left as it is.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COMPILED = "build/compiled"


class CompiledCodeHook(BuildHookInterface):  # type: ignore[type-arg,misc]  # hatchling has no types
    """See the module."""

    PLUGIN_NAME = "compiled-code"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles; what is made here is part of the wheel."""
        is_editable = version == "editable"
        if self._runs("numba", "build_kernels.py", *["--or-fill-cache"] * is_editable):
            build_data["artifacts"].append("src/cordwood/format/native/_compiled*.so")
            self._is_for_one_platform(build_data)
        if is_editable or os.environ.get("CORDWOOD_PLAIN", "0") != "0":
            return
        if self._runs("mypyc", "build_modules.py", COMPILED):
            directory = Path(self.root, COMPILED)
            for path in directory.rglob("*.so"):
                if not path.name.startswith("_compiled"):
                    name = path.relative_to(directory).as_posix()
                    build_data["force_include"][str(path)] = name
            self._is_for_one_platform(build_data)

    def _runs(self, library: str, tool: str, *arguments: str) -> bool:
        """Whether a program of `tools` has compiled something; else the reason is shown."""
        if find_spec(library) is None:
            self.app.display_warning(f"{library} is not installed: {tool} compiles nothing")
            return False
        command = [sys.executable, str(Path(self.root, "tools", tool)), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.root)
        if done.returncode:
            self.app.display_warning(done.stdout + done.stderr)
        return done.returncode == 0

    @staticmethod
    def _is_for_one_platform(build_data: dict[str, Any]) -> None:
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
