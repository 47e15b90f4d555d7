"""The records that `cordwood console-consumer` shows, one by one.

Source: org.apache.kafka.tools.consumer.ConsoleConsumer (4.4.0).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from cordwood.client.admin import Admin, TopicFacts
from cordwood.client.cluster_client import ClusterClient
from cordwood.client.consumer import ConsumedRecord, Consumer
from cordwood.client.errors import ClientError, RefusedError
from cordwood.client.offsets import EARLIEST, LATEST
from cordwood.model.clock import pause
from cordwood.model.error_codes import ErrorCode
from cordwood.model.topic_partition import TopicPartition
from cordwood.surfaces.cli.tools.options import Options
from cordwood.surfaces.cli.tools.tool import Terminal, ToolError

_POLL_MS_MAX = 500
_TOPIC_RETRY_S = 0.2
RESETS = {"earliest": EARLIEST, "latest": LATEST, "none": None}


class ConsolePlan(NamedTuple):
    """The topics and partitions to read, and the start positions."""

    options: Options
    properties: Mapping[str, str]
    group: str | None
    start: int
    timeout_ms: int

    @property
    def reset(self) -> int | None:
        """The start of partitions without a committed offset; None to refuse these."""
        name = self.properties["auto.offset.reset"]
        if name not in RESETS:
            raise ToolError(
                f"Invalid value {name} for configuration auto.offset.reset: Invalid value `{name}` "
                "for configuration auto.offset.reset. The value must be either 'earliest', "
                "'latest', 'none' or of the format 'by_duration:<PnDTnHnMn.nS.>'."
            )
        return RESETS[name]


class InvalidTopicsError(ClientError):
    """A topic name is invalid."""

    java_class = "org.apache.kafka.common.errors.InvalidTopicException"


class NothingCameError(ClientError):
    """No record arrived in time."""

    java_class = "org.apache.kafka.common.errors.TimeoutException"

    @property
    def described(self) -> str:
        """The name of the class only: Kafka's exception has no message."""
        return self.java_class


class ConsoleRecords:
    """The records to show, one by one; the records of one poll are buffered."""

    def __init__(
        self, cluster: ClusterClient, plan: ConsolePlan, isolation: int, terminal: Terminal
    ) -> None:
        self._plan = plan
        self._cluster = cluster
        self._terminal = terminal
        self._kept: list[ConsumedRecord] = []
        self._consumer = Consumer(
            cluster=cluster,
            isolation=isolation,
            reset=plan.reset,
            check_crcs=plan.properties.get("check.crcs", "true").lower() != "false",
        )
        self._poll: Callable[[int], Sequence[ConsumedRecord]] = self._poll_assigned
        self._close: Callable[[], None] = lambda: None
        self._is_assigned = False
        self._was_warned = False
        if plan.group is not None:
            self._join(plan.group)

    @property
    def has_more(self) -> bool:
        """True if records of the last poll are not shown yet."""
        return bool(self._kept)

    def receive(self) -> ConsumedRecord:
        """The next record.

        Raises:
            ClientError: none came in time, or none can come.
        """
        if not self._kept:
            self._kept = list(reversed(self._wait()))
        return self._kept.pop()

    def close(self) -> None:
        """Commits the offsets of the shown records, and leaves the group."""
        self._close()

    def _wait(self) -> Sequence[ConsumedRecord]:
        clock = self._terminal.clock
        begun = clock.monotonic_s()
        while True:
            left_ms = self._plan.timeout_ms - int((clock.monotonic_s() - begun) * 1000)
            records = self._poll(max(0, min(left_ms, _POLL_MS_MAX)))
            if records:
                return records
            if (clock.monotonic_s() - begun) * 1000 > self._plan.timeout_ms:
                raise NothingCameError("")

    def _poll_assigned(self, wait_ms: int) -> Sequence[ConsumedRecord]:
        if not self._is_assigned and not self._assign():
            pause(min(_TOPIC_RETRY_S, wait_ms / 1000))
            return ()
        return self._consumer.poll(wait_ms)

    def _assign(self) -> bool:
        """Assigns all selected partitions, once there are any."""
        number = self._plan.options.number("partition")
        wanted = [
            TopicPartition(topic.name, partition.partition)
            for topic in self._topics()
            for partition in topic.partitions
            if number is None or partition.partition == number
        ]
        if not wanted:
            return False
        start = self._plan.start
        if number is None:
            start = LATEST if self._plan.reset is None else self._plan.reset
        self._consumer.assign(dict.fromkeys(wanted, start))
        self._is_assigned = True
        return True

    def _topics(self) -> Sequence[TopicFacts]:
        return topics_meant(
            self._cluster,
            self._plan.options.value("topic"),
            self._plan.options.value("include"),
            self._warn,
        )

    def _warn(self, text: str) -> None:
        if not self._was_warned:
            self._terminal.warn(f"[{self._cluster.settings.name}] {text}")
        self._was_warned = True

    def _join(self, group: str) -> None:
        from cordwood.client.group import GroupConsumer  # noqa: PLC0415  # when needed

        member = GroupConsumer(
            cluster=self._cluster,
            consumer=self._consumer,
            group_id=group,
            topics=lambda: [topic.name for topic in self._topics()],
            warn=self._terminal.warn,
            clock=self._terminal.clock,
            auto_commit=self._plan.properties.get("enable.auto.commit", "true") != "false",
        )
        self._poll = member.poll
        self._close = lambda: member.close(self._unread())

    def _unread(self) -> dict[TopicPartition, int]:
        """The next offsets of partitions whose records were not all shown."""
        return {kept.partition: kept.record.offset for kept in self._kept}


def topics_meant(
    cluster: ClusterClient, topic: str | None, include: str | None, warn: Callable[[str], None]
) -> Sequence[TopicFacts]:
    """The topic, or the topics that match; none if there is none yet, which is reported.

    Raises:
        ClientError: the topic name is invalid.
    """
    admin = Admin(cluster)
    if include is not None:
        pattern = re.compile(include)
        return [one for one in admin.topics() if pattern.search(one.name) and not one.is_internal]
    assert topic is not None, "one of both was checked to be there"
    try:
        return admin.topics([topic], create=True)
    except RefusedError as error:
        if error.code == ErrorCode.INVALID_TOPIC_EXCEPTION:
            raise InvalidTopicsError(f"Invalid topics: [{topic}]") from error
        warn(
            "The metadata response from the cluster reported a recoverable issue with correlation "
            f"id 2 : {{{topic}={error.code_name}}}"
        )
        return ()
