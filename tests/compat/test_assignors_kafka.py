"""Assignments of random groups against those of Kafka's own assignors.

A `RandomGroup` changes as groups do: members join, leave, are replaced and subscribe to something
else, topics are created, grow and are deleted, and the assignment that was computed last is the
present one of the next computation. Some groups are in states that a broker would not bring about:
partitions that no topic has, that two members have, or that only a departed member has.
"""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

import pytest

from cordwood.coordinator.group.assignors.registry import ASSIGNORS
from cordwood.coordinator.group.assignors.spec import (
    GroupSpec,
    MemberSpec,
    PartitionAssignorError,
    stored_assignment,
)
from cordwood.format.java_map import JavaHashMap, JavaHashSet
from cordwood.model.uuids import parse_uuid, uuid_text
from support.kafka_programs import kafka_jars, tools_resource

TopicPartitions = tuple[tuple[UUID, tuple[int, ...]], ...]
"""Topics and partitions, both in order."""

Result = str | dict[str, TopicPartitions]
"""The text of an error, or the assignment of each member."""

#: From this version of Java on, a copied HashSet of certain sizes has fewer buckets, and so
#: another order. An assignor keeps the first partitions of a set: the assignment may differ too.
JAVA_OF_ANOTHER_ORDER: Final = 19
_SIZES_OF_ANOTHER_ORDER: Final = frozenset(12 << n for n in range(20))

_HIDDEN: Final = -1
_LETTERS: Final = ("a", "b", "Aa", "BB", "é", "\uffee", "\U0001f600", "-", "consumer", "zz")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseMember:
    """A member: the topics that it names, and its present assignment as a record has it."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    names: tuple[str, ...]
    target: TopicPartitions = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One computation. `topics` has the id and the partition count of each topic by name."""

    assignor: str
    is_homogeneous: bool
    topics: Mapping[str, tuple[UUID, int]]
    members: tuple[CaseMember, ...]
    taken: TopicPartitions

    @property
    def depends_on_java(self) -> bool:
        """Whether the assignment may differ between versions of Java."""
        sizes = {len(member.names) for member in self.members}
        sizes |= {len(each) for member in self.members for _, each in member.target}
        return not sizes.isdisjoint(_SIZES_OF_ANOTHER_ORDER)

    def lines(self) -> Iterator[str]:
        """The group as `tools/realkafka/Assignors.java` reads it."""
        for name, (topic_id, count) in self.topics.items():
            yield f"topic\t{name}\t{uuid_text(topic_id)}\t{count}"
        for member in self.members:
            instance, rack = member.instance_id or "-", member.rack_id or "-"
            names = ",".join(member.names)
            yield f"member\t{member.member_id}\t{instance}\t{rack}\t{names}"
            for topic_id, partitions in member.target:
                numbers = ",".join(map(str, partitions))
                yield f"target\t{member.member_id}\t{uuid_text(topic_id)}\t{numbers}"
        for topic_id, partitions in self.taken:
            yield f"taken\t{uuid_text(topic_id)}\t{','.join(map(str, partitions))}"
        kind = "HOMOGENEOUS" if self.is_homogeneous else "HETEROGENEOUS"
        yield f"assign\t{self.assignor}\t{kind}"

    def spec(self) -> GroupSpec:
        """The group as Cordwood's assignors take it."""
        members: JavaHashMap[str, MemberSpec] = JavaHashMap()
        for member in self.members:
            names = JavaHashSet.of(member.names, len(member.names))
            members.put(
                member.member_id,
                MemberSpec(
                    subscribed_topic_ids=tuple(
                        self.topics[name][0] for name in names if name in self.topics
                    ),
                    subscribed_name_count=len(names),
                    instance_id=member.instance_id,
                    rack_id=member.rack_id,
                    assignment=stored_assignment(member.target),
                ),
            )
        taken = {topic_id: frozenset(partitions) for topic_id, partitions in self.taken}
        return GroupSpec(
            members=dict(members.items()), is_homogeneous=self.is_homogeneous, assigned=taken
        )

    def result(self) -> Result:
        """The assignment that Cordwood's assignor computes."""
        counts = dict(self.topics.values())
        try:
            found = ASSIGNORS[self.assignor](self.spec(), counts.get)
        except PartitionAssignorError as error:
            return str(error)
        return {member_id: _in_order(found[member_id]) for member_id in found}


def _in_order(assignment: Mapping[UUID, Collection[int]]) -> TopicPartitions:
    return tuple((topic_id, tuple(partitions)) for topic_id, partitions in assignment.items())


def results_of_kafka(cases: Sequence[Case]) -> tuple[int, list[Result]]:
    """Java's version, and what Kafka's assignors compute."""
    program = str(tools_resource("Assignors.java"))
    done = subprocess.run(
        ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka_jars()}/*", program],
        input="".join(f"{line}\n" for case in cases for line in case.lines()),
        check=True,
        capture_output=True,
        encoding="utf-8",
    )
    version, *lines = done.stdout.split("\n")
    found: list[Result] = []
    current: Result = {}
    for line in lines[:-1]:
        word, *rest = line.split("\t")
        if word == "end":
            found.append(current)
            current = {}
        elif word == "error":
            current = rest[0]
        else:
            assert isinstance(current, dict), line
            current[rest[0]] = tuple(
                (parse_uuid(text), tuple(int(each) for each in numbers.split(",")))
                for text, numbers in zip(rest[1::2], rest[2::2], strict=True)
            )
    return int(version), found


class RandomGroup:
    """A group that changes at random."""

    def __init__(self, rng: random.Random, *, members_max: int, topics_max: int, count_max: int):
        """A group of new members: 1 to so many; topics have 0 to so many partitions."""
        self._rng = rng
        self._count_max = count_max
        self._names = tuple(f"{rng.choice(_LETTERS)}.{n}" for n in range(topics_max))
        self._topics: dict[str, tuple[UUID, int]] = {}
        self._members: dict[str, CaseMember] = {}
        self._departed: list[TopicPartitions] = []
        self._is_alike = rng.random() < 0.6
        self._subscription: tuple[str, ...] = ()
        for _ in range(rng.randint(0, topics_max)):
            self._create_topic()
        self._subscribe()
        for _ in range(rng.randint(1, members_max)):
            self._join()

    def case(self, assignor: str) -> Case:
        """The group as it is."""
        members = list(self._members.values())
        self._rng.shuffle(members)
        alike = len({frozenset(member.names) for member in members}) <= 1
        taken: dict[UUID, set[int]] = {}
        for target in [*(member.target for member in members), *self._departed]:
            for topic_id, partitions in target:
                taken.setdefault(topic_id, set()).update(partitions)
        return Case(
            assignor=assignor,
            is_homogeneous=alike != (self._rng.random() < 0.04),
            topics=dict(self._topics),
            members=tuple(members),
            taken=tuple((topic_id, tuple(sorted(each))) for topic_id, each in taken.items()),
        )

    def store(self, result: Mapping[str, TopicPartitions]) -> None:
        """Makes a result the present assignment."""
        self._departed.clear()
        for member_id, member in self._members.items():
            self._members[member_id] = replace(member, target=result.get(member_id, ()))

    def change(self) -> None:
        """Changes something, or a few things, or nothing."""
        changes = (
            *(self._join, self._join, self._leave, self._replace, self._subscribe),
            *(self._create_topic, self._grow_topic, self._delete_topic),
            *(self._scramble, self._hide_topic),
        )
        weights = (4, 4, 6, 3, 4, 3, 3, 2, 2, 0.3)
        for change in self._rng.choices(changes, weights, k=self._rng.choice((0, 1, 1, 2, 3, 5))):
            change()

    # ---- topics

    def _create_topic(self) -> None:
        rng = self._rng
        topic_id = UUID(int=rng.getrandbits(128))
        if self._topics and rng.random() < 0.3:
            # Exchanged halves have the same hash.
            other, _ = rng.choice(list(self._topics.values()))
            swapped = UUID(int=(other.int >> 64) | (other.int & (1 << 64) - 1) << 64)
            if all(swapped != each for each, _ in self._topics.values()):
                topic_id = swapped
        count = rng.choice((0, 1, rng.randint(1, 6), rng.randint(1, self._count_max)))
        free = [name for name in self._names if name not in self._topics]
        if free:
            self._topics[rng.choice(free)] = topic_id, count

    def _grow_topic(self) -> None:
        if self._topics:
            name = self._rng.choice(list(self._topics))
            topic_id, count = self._topics[name]
            self._topics[name] = topic_id, max(0, count) + self._rng.randint(1, self._count_max)

    def _delete_topic(self) -> None:
        if self._topics:
            del self._topics[self._rng.choice(list(self._topics))]

    def _hide_topic(self) -> None:
        if self._topics:
            name = self._rng.choice(list(self._topics))
            self._topics[name] = self._topics[name][0], _HIDDEN

    # ---- members

    def _new_id(self) -> str:
        return f"{self._rng.choice(_LETTERS)}-{self._rng.getrandbits(self._rng.choice((16, 64))):x}"

    def _join(self) -> None:
        rng = self._rng
        member_id = self._new_id()
        self._members[member_id] = CaseMember(
            member_id=member_id,
            instance_id=self._new_id() if rng.random() < 0.3 else None,
            rack_id=rng.choice(("r1", "r2", None)),
            names=self._subscription_of_one(),
        )

    def _leave(self) -> None:
        if self._members:
            member = self._members.pop(self._rng.choice(list(self._members)))
            if self._rng.random() < 0.1:
                self._departed.append(member.target)

    def _replace(self) -> None:
        static = [each for each in self._members.values() if each.instance_id is not None]
        if static:
            member = self._rng.choice(static)
            del self._members[member.member_id]
            new = replace(member, member_id=self._new_id())
            self._members[new.member_id] = new

    def _subscribe(self) -> None:
        """Has all members subscribe to something else, or one."""
        rng = self._rng
        self._subscription = tuple(rng.sample(self._names, rng.randint(0, len(self._names))))
        if not self._is_alike and rng.random() < 0.7 and self._members:
            chosen = [rng.choice(list(self._members))]
        else:
            chosen = list(self._members)
        for member_id in chosen:
            names = self._subscription_of_one()
            self._members[member_id] = replace(self._members[member_id], names=names)

    def _subscription_of_one(self) -> tuple[str, ...]:
        names = self._subscription
        if not self._is_alike and self._rng.random() < 0.8:
            names = self._names
            return tuple(self._rng.sample(names, self._rng.randint(0, len(names))))
        return tuple(self._rng.sample(names, len(names)))

    def _scramble(self) -> None:
        """Gives all partitions to random members; some twice, and some that no topic has."""
        rng = self._rng
        is_valid = rng.random() < 0.7
        chosen: dict[str, dict[UUID, list[int]]] = {member_id: {} for member_id in self._members}
        for topic_id, count in self._topics.values():
            for partition in range(count if is_valid else count + rng.choice((0, 0, 2))):
                owners = rng.sample(list(chosen), min(len(chosen), 1 if is_valid else 2))
                for member_id in owners[: rng.choice((1, 1, 1, 2))]:
                    chosen[member_id].setdefault(topic_id, []).append(partition)
        self.store({member_id: _in_order(topics) for member_id, topics in chosen.items()})


def random_chain(rng: random.Random) -> Case:
    """Each topic has two subscribers, and each member two topics: balancing has no end in time."""
    length = rng.randint(10, 40)
    ids = [UUID(int=rng.getrandbits(128)) for _ in range(length)]
    partitions = tuple(range(rng.randint(5, 60)))
    return Case(
        assignor="uniform",
        is_homogeneous=False,
        topics={str(n): (topic_id, len(partitions)) for n, topic_id in enumerate(ids)},
        members=tuple(
            CaseMember(
                member_id=f"m{n}",
                instance_id=None,
                rack_id=None,
                names=(str(n - 1), str(n)),
                target=((ids[n - 1], partitions),) if n else (),
            )
            for n in range(length)
        ),
        taken=tuple((topic_id, partitions) for topic_id in ids[:-1]),
    )


def random_cases(rng: random.Random, number: int) -> list[tuple[Case, Result]]:
    """Groups at several times of their life, and what Cordwood computes for each."""
    found: list[tuple[Case, Result]] = []
    while len(found) < number:
        if rng.random() < 0.1:
            chain = random_chain(rng)
            found.append((chain, chain.result()))
        if rng.random() < 0.05:
            group = RandomGroup(rng, members_max=40, topics_max=20, count_max=200)
        else:
            group = RandomGroup(rng, members_max=12, topics_max=8, count_max=40)
        for _ in range(rng.randint(1, 6)):
            results = []
            for assignor in ASSIGNORS:
                case = group.case(assignor)
                results.append(case.result())
                found.append((case, results[-1]))
            kept = results[rng.random() < 0.2]
            if not isinstance(kept, str):
                group.store(kept)
            group.change()
    return found[:number]


pytestmark = pytest.mark.kafka


@pytest.mark.usefixtures("kafka_jars")
@pytest.mark.parametrize("number", [1200, pytest.param(60_000, marks=pytest.mark.nightly)])
def test_random_groups_get_the_assignments_of_kafka(number: int) -> None:
    """Topics and partitions in the same order, errors with the same text."""
    cases = random_cases(random.Random(848), number)
    java, of_kafka = results_of_kafka([case for case, _ in cases])
    assert len(of_kafka) == number
    kinds: Counter[tuple[str, bool, bool]] = Counter()
    for (case, ours), theirs in zip(cases, of_kafka, strict=True):
        if java >= JAVA_OF_ANOTHER_ORDER and case.depends_on_java:
            continue
        assert ours == theirs, "\n".join(case.lines())
        kinds[case.assignor, case.is_homogeneous, isinstance(theirs, str)] += 1
    for assignor in ("uniform", "range"):
        for is_homogeneous in (True, False):
            assert kinds[assignor, is_homogeneous, False] > number // 10, kinds
        assert kinds[assignor, True, True] + kinds[assignor, False, True] > 0, kinds
