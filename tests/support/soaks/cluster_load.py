"""Clients of a cluster that work while something happens to it, and what they find in the end.

Producers with idempotence, with keys and with transactions write, groups of both protocols read and
commit, and a Java client may copy in transactions. No acknowledged record is lost, written twice or
out of its order, every transaction is whole, no commit goes back.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Final

from confluent_kafka.admin import AdminClient

from support.kafka import poll_until
from support.mixed_cluster import WAIT_S, MixedCluster
from support.soaks.cluster_transactions import Outcome, TransactionalWriter, Transactions
from support.soaks.copier import Copier, complaints_of_copies
from support.soaks.groups import Group
from support.soaks.ledger import Cleanup, Ledger, Place
from support.soaks.reading import committed_offsets, complaints_of, ends_of, read_messages
from support.soaks.writers import Writer
from support.stock_clients.program import java_client
from support.wire_client import WireClient

PARTITIONS: Final = 3
NUMBERS, TRANSACTIONS, LATEST, COPIES = "numbers", "transactions", "latest", "copies"
GROUPS: Final = ("classic", "consumer")
"""A group of each protocol, with its name."""
COPIER: Final = "copier"
"""The group, and the transactional id, of the client that copies."""
STEPS: Final = {
    "acknowledged": 100,
    "updated": 100,
    "transactions": 5,
    **{f"committed by {group}": 1 for group in GROUPS},
}
"""How much is done between two events, at least."""
_COPIED: Final = 50
_COMPACTED: Final = {
    "cleanup.policy": "compact",
    "max.compaction.lag.ms": "2000",
    "min.cleanable.dirty.ratio": "0.01",
}


def properties_of_load(brokers: int) -> dict[str, str]:
    """Of every broker: internal topics with a replica on each, of which one may be down."""
    return {
        "offsets.topic.replication.factor": str(brokers),
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.replication.factor": str(brokers),
        "transaction.state.log.num.partitions": "3",
        "transaction.state.log.min.isr": str(brokers - 1),
        "replica.lag.time.max.ms": "3000",
        "replica.fetch.backoff.ms": "200",
        "log.cleaner.backoff.ms": "500",
        "log.cleaner.dedupe.buffer.size": "8388608",
        "log.initial.task.delay.ms": "1000",
    }


class ClusterLoad:
    """The clients: each partition has a replica on every broker, of which one may be down."""

    def __init__(
        self,
        cluster: MixedCluster,
        *,
        members: int = 2,
        records_per_second: int = 100,
        copier_version: str | None = None,
    ) -> None:
        """Nothing works yet.

        Args:
            cluster: it need not run yet.
            members: of each group.
            records_per_second: to each topic of the producer with idempotence.
            copier_version: of the Java client that copies; None for none.
        """
        self.ledger = Ledger()
        self.transactions = Transactions(PARTITIONS)
        self._cluster = cluster
        self._members = members
        self._rate = records_per_second
        self._copier_version = copier_version
        self._copier: Copier | None = None
        self._groups: list[Group] = []
        self._steps = STEPS | ({} if copier_version is None else {"copied": _COPIED})

    def make_topics(self) -> None:
        """Makes the topics in the cluster, which runs."""
        cluster = self._cluster
        min_isr = {"min.insync.replicas": str(len(cluster.brokers) - 1)}
        for name in (NUMBERS, TRANSACTIONS):
            cluster.create_topic(name, cluster.spread(PARTITIONS), min_isr)
        cluster.create_topic(LATEST, cluster.spread(PARTITIONS), min_isr | _COMPACTED)
        if self._copier_version is not None:
            cluster.create_topic(COPIES, cluster.spread(1), min_isr)

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Has clients work meanwhile, and then until what is written has been read."""
        servers = self._cluster.bootstrap_servers
        with contextlib.ExitStack() as readers:
            for name in GROUPS:
                group = Group(
                    name, servers, [NUMBERS], members=self._members, contiguous=True, protocol=name
                )
                readers.callback(group.stop)
                self._groups.append(group)
            with contextlib.ExitStack() as writers:
                topics = {NUMBERS: False, LATEST: True}
                writer = Writer(
                    0, servers, self.ledger, topics=topics, records_per_second=self._rate
                )
                writers.callback(writer.stop)
                client = self._cluster.client()
                writers.callback(TransactionalWriter(client, TRANSACTIONS, self.transactions).stop)
                if self._copier_version is not None:
                    self._copier = self._new_copier(self._copier_version)
                    readers.callback(self._copier.stop)
                yield
            self._settle()

    def _new_copier(self, version: str) -> Copier:
        return Copier(
            java_client(self._cluster.bootstrap_servers, version=version),
            source=NUMBERS,
            target=COPIES,
            group=COPIER,
            written=lambda: self.ledger.count_of(NUMBERS),
            committed=lambda: committed_offsets(AdminClient(self._cluster.client()), COPIER),
        )

    def _settle(self) -> None:
        """Waits until all that was written is there, and has been read."""
        self._cluster.wait_until_in_sync()
        # One that has not seen brokers go: librdkafka's may wait for a coordinator that was.
        admin = AdminClient(self._cluster.client())
        self._wait_for_groups(admin)
        for topic in [TRANSACTIONS] if self._copier is None else [TRANSACTIONS, COPIES]:
            poll_until(
                lambda: self._is_stable(topic),  # noqa: B023  # called at once
                timeout_s=WAIT_S,
                what="no transaction is open",
            )

    # ---- meanwhile

    def done(self) -> Counter[str]:
        """Counts of work done, by the names of `STEPS`."""
        copied = {} if self._copier is None else {"copied": self._copier.copied}
        return Counter(
            {
                "acknowledged": self.ledger.count_of(NUMBERS),
                "updated": self.ledger.count_of(LATEST),
                "transactions": self.transactions.count(Outcome.COMMITTED),
                **{f"committed by {group.name}": group.commits for group in self._groups},
                **copied,
            }
        )

    def wait_for_work(self) -> None:
        """Returns when every client has done something since."""
        before = self.done()
        wanted = {name: before[name] + count for name, count in self._steps.items()}
        poll_until(
            lambda: all(self.done()[name] >= count for name, count in wanted.items()),
            timeout_s=WAIT_S,
            what="every client does something",
        )

    def failures(self) -> list[str]:
        """Errors that clients could not pass over: nobody was killed, and none is expected."""
        lost = [f"a record of {topic} was not acknowledged" for topic, _ in self.ledger.failed]
        copier = [] if self._copier is None else self._copier.failures
        transactions = [f"a transaction failed: {name}" for name in self.transactions.failures]
        return [*lost, *self.ledger.fatal_errors, *transactions, *copier]

    # ---- what is read in the end

    def complaints(self) -> list[str]:
        """Faults that the clients have seen, and of what is there after they have worked."""
        servers = self._cluster.bootstrap_servers
        admin = AdminClient(self._cluster.client())
        ends = ends_of(servers, NUMBERS, PARTITIONS)
        found = [
            complaint
            for group in self._groups
            for complaint in group.complaints(ends, committed_offsets(admin, group.name) or {})
        ]
        for number in range(PARTITIONS):
            found += complaints_of(servers, Place(NUMBERS, number), self.ledger)
            found += complaints_of(servers, Place(LATEST, number), self.ledger, Cleanup.COMPACT)
        found += self.transactions.complaints(self._values_of(TRANSACTIONS))
        if self._copier is not None:
            (copies,) = self._values_of(COPIES, 1).values()
            found += complaints_of_copies(self._values_of(NUMBERS), copies)
        return found

    def _values_of(self, topic: str, partitions: int = PARTITIONS) -> dict[int, list[bytes]]:
        """The values of the committed records of each partition."""
        servers = self._cluster.bootstrap_servers
        read = (read_messages(servers, Place(topic, number)) for number in range(partitions))
        return {
            number: [each.value() or b"" for each in messages]
            for number, (messages, _) in enumerate(read)
        }

    def _wait_for_groups(self, admin: AdminClient) -> None:
        """Returns when each group has committed the end of each partition.

        A busy machine may need long for what has been written, but commits more all the time.
        """
        ends = ends_of(self._cluster.bootstrap_servers, NUMBERS, PARTITIONS)
        names = [*GROUPS] if self._copier is None else [*GROUPS, COPIER]

        def committed() -> list[dict[Place, int]]:
            return [committed_offsets(admin, name) or {} for name in names]

        def have_all() -> bool:
            return all(group.has_read(ends) for group in self._groups) and all(
                found == ends for found in committed()
            )

        def count() -> int:
            return sum(offset for found in committed() for offset in found.values())

        known = 0
        while not have_all():
            poll_until(
                lambda: have_all() or count() > known,  # noqa: B023  # called at once
                timeout_s=WAIT_S,
                what="the groups have read all, or more than before",
            )
            known = max(known, count())

    def _is_stable(self, topic: str) -> bool:
        """Whether each transaction has its markers: they are written behind the answer."""
        leaders = self._cluster.leaders(topic)
        for partition, leader in leaders.items():
            with WireClient(self._cluster.brokers[leader].port) as wire:
                told = wire.fetch(topic, partition)
            ends = told["last_stable_offset"], told["high_watermark"]
            if told["error_code"] != "none" or ends[0] != ends[1]:
                return False
        return bool(leaders)
