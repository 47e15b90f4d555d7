"""Counts how often requests return into a package that they have left.

Usage: `PYTHONPATH=tests python tools/ways.py`.

A request is followed through the functions of the package in the order of their calls, in all
threads of a broker in this process, once it has been served several times before. Each call into
another package is a step; a return is a step into a package that an earlier step has left. The
fewer there are, the easier a way is read: docs/architecture.md has the counts of today. They are
given for all packages, and without those of values (clock, formats, settings), which any other may
call.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from cordwood.testing.broker import RunningBroker
from support.wire_client import WireClient, batch_of

PACKAGE = str(Path(sys.modules[RunningBroker.__module__].__file__ or "").parents[1])

#: Packages without state of a node.
VALUES = ("model/", "format/", "configs/", "protocol/")

_QUIET_S = 0.3
_WARM_UP = 20


class Calls:
    """The files of the package whose functions are called, in order, while `is_on`."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.is_on = False

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        name = frame.f_code.co_filename
        if self.is_on and event == "call" and name.startswith(PACKAGE):
            self.files.append(name[len(PACKAGE) + 1 :])

    def of(self, work: Callable[[], object]) -> list[str]:
        """The calls of some work and of what follows from it, as far as packages serve requests."""
        time.sleep(_QUIET_S)
        self.files, self.is_on = [], True
        work()
        self.is_on = False
        return [file for file in self.files if not file.startswith(("testing/", "client/"))]


def returns(files: list[str]) -> int:
    """The number of steps into a package that was left before."""
    packages = [file.partition("/")[0] for file in files]
    steps = [each for at, each in enumerate(packages) if not at or packages[at - 1] != each]
    return sum(each in steps[:at] for at, each in enumerate(steps))


def main() -> None:
    """Prints a row for each way."""
    calls = Calls()
    threading.setprofile(calls)
    with RunningBroker() as broker, WireClient(broker.port) as wire:
        wire.create("t")
        records = batch_of(b"v")
        values = iter(range(1_000_000, 2_000_000))

        def change() -> dict[str, object]:
            config = {"name": "retention.ms", "config_operation": 0, "value": str(next(values))}
            resource = {"resource_type": 2, "resource_name": "t", "configs": [config]}
            return {"resources": [resource], "validate_only": False}

        ways: dict[str, Callable[[], object]] = {
            "a produced record": lambda: wire.produce("t", records),
            "a fetch": lambda: wire.fetch("t"),
            "a topic setting": lambda: wire.ask("incremental_alter_configs", 1, change()),
        }
        print(f"{'way':20}  calls  files  returns  without values")
        for name, work in ways.items():
            for _ in range(_WARM_UP):
                work()
            found = min((calls.of(work) for _ in range(5)), key=len)
            parts = [file for file in found if not file.startswith(VALUES)]
            counts = f"{len(found):5}  {len(set(found)):5}  {returns(found):7}"
            print(f"{name:20}  {counts}  {returns(parts):14}")


if __name__ == "__main__":
    main()
