"""What the controller is to know of log directories: where partitions lie, and which have failed.

It may not be told in the middle of its own work, nor while the metadata log's disk is full: reports
wait, and are made when they can be.

Source: org.apache.kafka.server.AssignmentsManager, kafka.server.BrokerLifecycleManager; KIP-858.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from uuid import UUID

from cordwood.broker.controller.controller import Controller
from cordwood.model.kafka_errors import KafkaError

_log = logging.getLogger(__name__)

_RETRY_MS = 500


class DirectoryReports:
    """Reports that wait; they are made between other changes of the metadata."""

    def __init__(
        self,
        controller: Controller,
        *,
        change: Callable[[Callable[[], None]], None],
        call_later_ms: Callable[[float, Callable[[], None]], object],
        failure_timeout_ms: int,
    ) -> None:
        """Nothing is to report yet.

        Args:
            controller: gets the reports.
            change: runs a change of the cluster's metadata, between others.
            call_later_ms: runs something after a delay of real time, in ms.
            failure_timeout_ms: log.dir.failure.timeout.ms, of real time.
        """
        self._controller = controller
        self._change = change
        self._call_later_ms = call_later_ms
        self._failure_timeout_ms = failure_timeout_ms
        self._assigned: dict[tuple[UUID, int], UUID] = {}
        self._failed: set[UUID] = set()
        self._is_due = False

    def assign(self, topic_id: UUID, partition: int, directory: UUID) -> None:
        """A partition lies in another directory than the controller knows."""
        self._assigned[topic_id, partition] = directory
        self._soon()

    def failed(self, directory: UUID, give_up: Callable[[], None]) -> None:
        """A directory has failed; `give_up` is called if that cannot be said in time."""
        self._failed.add(directory)

        def too_late() -> None:
            if directory in self._failed and self._controller.is_open:
                give_up()

        self._call_later_ms(self._failure_timeout_ms, too_late)
        self._soon()

    def _soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._change(self._report)

    def _report(self) -> None:
        self._is_due = False
        controller = self._controller
        if not controller.is_open:
            return
        try:
            # In this order: of a partition in a failed directory that must be known.
            assigned = dict(self._assigned)
            controller.assign_directories((*key, each) for key, each in assigned.items())
            self._assigned = {
                key: each for key, each in self._assigned.items() if assigned.get(key) != each
            }
            if self._failed:
                failed = set(self._failed)
                controller.directories_failed(failed)
                self._failed -= failed
        except KafkaError as error:
            _log.warning("The controller cannot be told of log directories: %s", error)
            self._is_due = True
            self._call_later_ms(_RETRY_MS, lambda: self._change(self._report))
