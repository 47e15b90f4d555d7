"""Legal holds on running logs: what is under way when one is added is stopped, or waited for."""

from __future__ import annotations

from cordwood.cleanup.schedule.cleaner_manager import CleanerManager
from cordwood.model.errors import ConfigError
from cordwood.model.hold import Hold


def add_hold(manager: CleanerManager, hold: Hold) -> None:
    """Adds a hold; when it returns nothing of what it covers is removed any more.

    It also covers partitions that come later. Waits for the disk; not for the event loop's thread.

    Raises:
        ConfigError: there is nothing here that it covers, or another hold has its id.
        CordwoodError: the holds of a directory cannot be read.
        OSError, NoSpaceError: it could not be written everywhere.
    """
    logs = [log for log in manager.logs.logs() if hold.covers(log.topic_partition)]
    if not logs:
        raise ConfigError(f"--topic {hold.target}: this broker has no such log")
    manager.logs.context.holds.add(hold)
    # A thread that looked at a log before has not seen the hold.
    for partition in {log.topic_partition for log in logs}:
        manager.states.abort_cleaning(partition)
    for log in logs:
        with log.lock:
            pass
