"""Hatchling's hook: a wheel's manual pages, and its compiled code if that is asked for.

The manual pages are what `--help` of the commands shows, which are imported for that: a build needs
what an installation needs.

Without `CORDWOOD_COMPILE=1` in the environment a wheel is plain: `py3-none-any`, made in seconds
without a C compiler, and the same for every Python. With it, the wheel is for one Python and one
platform, and has beside the sources

- the kernels, compiled by numba, on x86-64 alone: elsewhere numba compiles each when it is called;
- the modules of the request path, compiled by mypyc.

What is asked for and cannot be made ends the build. An editable installation has the kernels where
they can be made, and never the request path: it would hide changes of the sources.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VARIABLE = "CORDWOOD_COMPILE"
COMPILED = "build/compiled"
MANUAL = "build/man"
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
# Both compilers call the C compiler with setuptools. The kernels use the interface of numpy 2.
COMPILERS = [
    "mypy>=1.18",
    "numba>=0.65; platform_machine == 'x86_64'",
    "numpy>=2.2; platform_machine == 'x86_64'",
    "setuptools>=65",
]


class CompiledCodeHook(BuildHookInterface):  # type: ignore[type-arg,misc]  # hatchling has no types
    """See the module."""

    PLUGIN_NAME = "compiled-code"

    def dependencies(self) -> list[str]:
        """The dependencies of the environment of a build."""
        if self.target_name != "wheel":
            return []
        return [*self.metadata.core.dependencies, *(COMPILERS if is_asked_for() else [])]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles; what is made here is part of the wheel.

        Raises:
            SystemExit: something that was asked for is not compiled.
        """
        if version == "editable":
            if find_spec("numba") is None or self._fails("build_kernels.py", "--or-fill-cache"):
                self.app.display_warning("the kernels are not compiled ahead of time")
            return
        self._write_manual_pages(build_data)
        if not is_asked_for():
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        if find_spec("numba") is not None:
            self._require("build_kernels.py")
            build_data["artifacts"].append(f"src/cordwood/format/native/_compiled{SUFFIX}")
        self._require("build_modules.py", COMPILED)
        directory = Path(self.root, COMPILED)
        for path in sorted(directory.rglob("*.so")):
            if not path.name.startswith("_compiled"):
                build_data["force_include"][str(path)] = path.relative_to(directory).as_posix()

    def _write_manual_pages(self, build_data: dict[str, Any]) -> None:
        """Has the wheel install them where `man` looks: beside the directory of the command.

        A build without isolation may lack what they need; the wheel is then one without them.
        """
        if self._fails("man_pages.py", MANUAL):
            self.app.display_warning("the wheel has no manual pages: the commands have no --help")
            return
        build_data["shared_data"][str(Path(self.root, MANUAL, "man1"))] = "share/man/man1"

    def _require(self, tool: str, *arguments: str) -> None:
        if self._fails(tool, *arguments):
            sys.exit(
                f"{VARIABLE}=1 asks for compiled code, and tools/{tool} has failed: it needs a C "
                "compiler and Python's headers. Without the variable the wheel is plain Python"
            )

    def _fails(self, tool: str, *arguments: str) -> bool:
        """Runs a program of `tools`; what it prints is shown if it fails."""
        command = [sys.executable, str(Path(self.root, "tools", tool)), *arguments]
        done = subprocess.run(
            command,
            env=os.environ
            | {
                "PYTHONHASHSEED": "0",  # the order of sets in what mypyc writes
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONPATH": str(Path(self.root, "src")),
            },
            capture_output=True,
            text=True,
            check=False,
            cwd=self.root,
        )
        if done.returncode:
            self.app.display_warning(done.stdout + done.stderr)
        return done.returncode != 0


def is_asked_for() -> bool:
    """Whether the environment asks for compiled code."""
    return os.environ.get(VARIABLE, "0") not in {"", "0"}
