"""Hatchling's hook: a wheel and an editable installation get the compiled form of the kernels.

Where it cannot be made (no numba in the environment of the build, no C compiler), the wheel is one
for each platform, and numba compiles the kernels when they are called.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelsHook(BuildHookInterface):  # type: ignore[type-arg,misc]  # hatchling has no types here
    """See the module."""

    PLUGIN_NAME = "kernels"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles; what is made here is part of the wheel."""
        if find_spec("numba") is None:
            self.app.display_warning("numba is not installed: the kernels are not compiled")
            return
        root = Path(self.root)
        command = [sys.executable, str(root / "tools" / "build_kernels.py")]
        if version == "editable":
            command.append("--or-fill-cache")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            self.app.display_warning(done.stdout + done.stderr)
            return
        build_data["artifacts"].append("src/cordwood/format/native/_compiled*.so")
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
