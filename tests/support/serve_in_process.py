"""`cordwood` whose broker compacts in its own process, without Spark; run as a module.

With `KILL_BEFORE`, which is `METHOD PATTERN`, it is killed before a change of a file: before the
first call of that method of the file system of which the paths, joined by a space, match the
regular expression.
"""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

from cordwood.node import node
from cordwood.storage.filesystem import OsFileSystem
from cordwood.surfaces.cli.entry import main
from support.in_process_engine import CompiledEngine


def kill_before(method: str, pattern: str) -> None:
    """Has the first such call end the process."""
    # What is made of other calls is of the base class, which that of mounts has, too.
    kind = next(each for each in OsFileSystem.__mro__ if method in vars(each))
    original = getattr(kind, method)

    def called(*args: Any, **options: Any) -> Any:
        paths = " ".join(str(each) for each in args if isinstance(each, Path))
        if re.search(pattern, paths):
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **options)

    setattr(kind, method, called)


if __name__ == "__main__":
    node.spark_engine = CompiledEngine
    if "KILL_BEFORE" in os.environ:
        kill_before(*os.environ["KILL_BEFORE"].split(" ", 1))
    main()
