"""Command lines that Kafka's tools and Cordwood's must answer alike: one row each, easy to add to.

Role: the table behind `tests/compat/test_tools_kafka.py`. A row is run by Kafka's tool, then by
Cordwood's, against the same broker. `%` at the start of a name stands for a prefix that is each
side's own, so that both may create the same topics; what is printed is compared after the prefix
is taken out again, with times, ids and stack traces. Rows of a group are run in their order; those
of another group find none of their topics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Case(NamedTuple):
    """A command line: words divided by blanks, with `'…'` around those that hold some.

    `stdin` is what the tool reads. `ordered` is False where Kafka's own order is that of a hash
    of names that differ between the sides: lines are then sorted. Files are those of `FILES`, by
    name, as `@name`.
    """

    line: str
    stdin: bytes = b""
    ordered: bool = True
    bootstrap: bool = True


FILES: Mapping[str, str] = {}

TOPICS: Sequence[Case] = (
    Case("topics", bootstrap=False),
    Case("topics --list", bootstrap=False),
    Case("topics --list --describe"),
    Case("topics --foo"),
    Case("topics --list --topic"),
    Case("topics --create"),
    Case("topics --list --topic % --topic x"),
    Case("topics --create --topic %a --partitions 3"),
    Case("topics --create --topic %a --partitions 3"),
    Case("topics --create --topic %a --if-not-exists"),
    Case("topics --create --topic %b.c_d --config cleanup.policy=compact --config segment.ms=9000"),
    Case("topics --create --topic %e --replica-assignment 1,1"),
    Case("topics --create --topic %e2 --replica-assignment 1:1"),
    Case("topics --create --topic %e3 --replica-assignment 1,7"),
    Case("topics --create --topic %e4 --replica-assignment 1,x"),
    Case("topics --create --topic %e5 --replica-assignment 1,1:2"),
    Case("topics --create --topic %e6 --replica-assignment 1 --partitions 2"),
    Case("topics --create --topic %f --partitions 0"),
    Case("topics --create --topic %f --partitions x"),
    Case("topics --create --topic %f --replication-factor 3"),
    Case("topics --create --topic %f --replication-factor 0"),
    Case("topics --create --topic %f --config foo=1"),
    Case("topics --create --topic %f --config retention.ms=x"),
    Case("topics --create --topic %f --config retention.ms"),
    Case("topics --create --topic %f --config cleanup.policy=shred"),
    Case("topics --create --topic %f/g"),
    Case("topics --create --topic ''"),
    Case("topics --create --topic .."),
    Case("topics --create --topic %f --if-exists"),
    Case("topics --list --topic %.*"),
    Case("topics --list --topic %a,%e --exclude-internal"),
    Case("topics --list --topic %none"),
    Case("topics --list --topic '['"),
    Case("topics --describe --topic %a"),
    Case("topics --describe --topic %b.c_d"),
    Case("topics --describe --topic %.*", ordered=False),
    Case("topics --describe --topic %.* --topics-with-overrides", ordered=False),
    Case("topics --describe --topic %.* --under-replicated-partitions"),
    Case("topics --describe --topic %a --at-min-isr-partitions"),
    Case("topics --describe --topic %.* --unavailable-partitions"),
    Case("topics --describe --topic %.* --under-min-isr-partitions"),
    Case("topics --describe --topic %a --under-min-isr-partitions --topics-with-overrides"),
    Case("topics --describe --topic %a --partition-size-limit-per-response 1"),
    Case("topics --describe --topic %none"),
    Case("topics --describe --topic %none --if-exists"),
    Case("topics --describe --if-exists"),
    Case("topics --describe --topic-id AAAAAAAAAAAAAAAAAAAAAQ"),
    Case("topics --describe --topic-id AAAAAAAAAAAAAAAAAAAAAQ --if-exists"),
    Case("topics --describe --topic-id x"),
    Case("topics --alter --topic %a --partitions 5"),
    Case("topics --alter --topic %a --partitions 5"),
    Case("topics --alter --topic %a --partitions 2"),
    Case("topics --alter --topic %a"),
    Case("topics --alter --topic %none --partitions 5"),
    Case("topics --alter --topic %none --partitions 5 --if-exists"),
    Case("topics --alter --topic %e --partitions 3 --replica-assignment 1,1,1"),
    Case("topics --alter --topic %e --partitions 4 --replica-assignment 1,1"),
    Case("topics --describe --topic %[ae]", ordered=False),
    Case("topics --delete --topic %none"),
    Case("topics --delete --topic %none --if-exists"),
    Case("topics --delete --topic %a --delete-config x"),
    Case("topics --delete --topic %.*"),
    Case("topics --list --topic %.*"),
)

GROUPS: Mapping[str, Sequence[Case]] = {
    "topics": TOPICS,
}
