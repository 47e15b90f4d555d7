"""The garbage collector while a command is loaded."""

from __future__ import annotations

import gc


def stop_collector() -> None:
    """Stops the garbage collector of a command's process while its modules are imported."""
    gc.disable()


def start_collector() -> None:
    """Starts a collector that was stopped, once the command is loaded.

    It does not examine what is there now, which stays until the process ends.
    """
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
