"""Reports of log directories to the controller: replicas' directories, failed and cordoned ones.

Reports that the controller cannot record, for example on a full disk, are repeated until they
succeed.

Source: org.apache.kafka.server.AssignmentsManager, kafka.server.BrokerLifecycleManager; KIP-858.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple
from uuid import UUID

from cordwood.metadata.controller_channel import ControllerChannel
from cordwood.metadata.controller_requests import DirectoryAssignment
from cordwood.model.errors import CordwoodError

_log = logging.getLogger(__name__)

_RETRY_MS = 500


class _Assignment(NamedTuple):
    """A replica's directory, to be reported if `is_wanted` says so."""

    directory: UUID
    is_wanted: Callable[[], bool]


class DirectoryReports:
    """Reports that are not recorded yet; one request to the controller at a time."""

    def __init__(
        self,
        controller: ControllerChannel,
        *,
        call_soon: Callable[[Callable[[], None]], None],
        call_later_ms: Callable[[float, Callable[[], None]], object],
        failure_timeout_ms: int,
    ) -> None:
        """Creates the reporter, with nothing to report.

        Args:
            controller: gets the reports.
            call_soon: from any thread, runs something on the event loop's.
            call_later_ms: runs something there after a delay of real time.
            failure_timeout_ms: log.dir.failure.timeout.ms, of real time.
        """
        self._controller = controller
        self._call_soon = call_soon
        self._call_later_ms = call_later_ms
        self._failure_timeout_ms = failure_timeout_ms
        self._assigned: dict[tuple[UUID, int], _Assignment] = {}
        self._failed: set[UUID] = set()
        self._cordoned: frozenset[UUID] | None = None
        self._is_due = False
        self._is_closed = False
        self._reporting: asyncio.Task[None] | None = None

    def assign(
        self,
        topic_id: UUID,
        partition: int,
        directory: UUID,
        *,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        """Reports that a replica is in another directory than in the image.

        Nothing is reported if `is_wanted` says so when it would be sent.
        """
        self._assigned[topic_id, partition] = _Assignment(directory, is_wanted)
        self._soon()

    def failed(self, directory: UUID, on_timeout: Callable[[], None]) -> None:
        """Reports that a directory has failed; `on_timeout` is called if that is not in time."""
        self._failed.add(directory)

        def too_late() -> None:
            if directory in self._failed and not self._is_closed:
                on_timeout()

        self._call_later_ms(self._failure_timeout_ms, too_late)
        self._soon()

    def cordoned(self, directories: Iterable[UUID]) -> None:
        """Reports the directories that get no new partitions from now on (KIP-1066)."""
        self._cordoned = frozenset(directories)
        self._soon()

    def close(self) -> None:
        """Reports nothing from now on."""
        self._is_closed = True

    def _soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._call_soon(self._begin)

    def _begin(self) -> None:
        if self._reporting is None and not self._is_closed:
            self._reporting = asyncio.get_running_loop().create_task(self._report())
            self._reporting.add_done_callback(self._ended)

    def _ended(self, done: asyncio.Task[None]) -> None:
        self._reporting = None
        error = None if done.cancelled() else done.exception()
        if self._is_closed:
            return
        if error is not None:
            if not isinstance(error, CordwoodError):
                _log.error("Error while reporting log directories", exc_info=error)
            else:
                _log.warning("The controller cannot record log directories: %s", error)
            self._is_due = True
            self._call_later_ms(_RETRY_MS, self._begin)
        elif self._is_due:  # while the last reports were under way
            self._begin()

    async def _report(self) -> None:
        self._is_due = False
        # In this order: the directories of replicas must be known before a failure is reported.
        # It is reported nevertheless where they cannot be recorded.
        try:
            await self._report_assigned()
        finally:
            await self._report_failed()
        await self._report_cordoned()

    async def _report_assigned(self) -> None:
        assigned = {key: each for key, each in self._assigned.items() if each.is_wanted()}
        self._assigned = dict(assigned)
        if assigned:
            await self._controller.assign_directories(
                [DirectoryAssignment(*key, each.directory) for key, each in assigned.items()]
            )
        self._assigned = {
            key: each for key, each in self._assigned.items() if assigned.get(key) is not each
        }

    async def _report_failed(self) -> None:
        failed = set(self._failed)
        if failed:
            await self._controller.directories_failed(failed)
            self._failed -= failed

    async def _report_cordoned(self) -> None:
        cordoned = self._cordoned
        if cordoned is not None:
            await self._controller.directories_cordoned(cordoned)
            if self._cordoned is cordoned:
                self._cordoned = None
