"""Command lines of `kafka-storage` that `cordwood storage` must answer alike, in their order.

`%` stands for a directory of each side's own, in which `FILES` are written before the first row.
What Kafka prints of its usage and of stack traces is not compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qk"

_NODE = """node.id=1
process.roles=broker,controller
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
"""
_DYNAMIC = _NODE + "controller.quorum.bootstrap.servers=127.0.0.1:9093\n"
_STATIC = _NODE + "controller.quorum.voters=1@127.0.0.1:9093\n"

FILES: Final[Mapping[str, str]] = {
    "one.properties": f"{_DYNAMIC}log.dirs=%/one\n",
    "two.properties": f"{_DYNAMIC}log.dirs=%/two-b,%/two-a\nmetadata.log.dir=%/two-m\n",
    "static.properties": f"{_STATIC}log.dirs=%/static\n",
    "node-2.properties": f"{_DYNAMIC.replace('node.id=1', 'node.id=2')}log.dirs=%/one\n",
    "broker.properties": "node.id=1\nprocess.roles=broker\ncontroller.listener.names=CONTROLLER\n"
    "controller.quorum.bootstrap.servers=127.0.0.1:9093\nlisteners=PLAINTEXT://127.0.0.1:9092\n"
    "log.dirs=%/broker\n",
    "no-roles.properties": "node.id=1\nlog.dirs=%/one\n",
    "mixed.properties": f"{_DYNAMIC}log.dirs=%/one,%/new\n",
    "both.properties": f"{_DYNAMIC}log.dirs=%/one,%/other\n",
    "other.properties": f"{_DYNAMIC}log.dirs=%/other\n",
    "bad.properties": f"{_DYNAMIC}log.dirs=%/bad\n",
    "file.properties": f"{_DYNAMIC}log.dirs=%/file\n",
    "wrong.properties": f"{_DYNAMIC}log.dirs=%/wrong\nnum.partitions=none\n",
    "legacy.properties": f"{_DYNAMIC}log.dirs=%/legacy\n",
    "features.properties": f"{_DYNAMIC}log.dirs=%/features\n",
    "release.properties": f"{_DYNAMIC}log.dirs=%/release\n",
    "release-2.properties": f"{_DYNAMIC}log.dirs=%/release-2\n",
    "bad/meta.properties": "version=1\nnode.id=x\ncluster.id=c\n",
    "file": "x",
    "legacy/meta.properties": "version=0\nbroker.id=1\ncluster.id=c\n",
}

_FORMAT = f"format -t {CLUSTER_ID} -c"
CASES: Final[Sequence[str]] = (
    "",
    "random-uuid x",
    "info",
    "info -c %/one.properties",
    "info -c %/none.properties",
    "format",
    "format -c %/one.properties",
    f"format -t {CLUSTER_ID}",
    f"{_FORMAT} %/one.properties --bogus",
    f"{_FORMAT} %/one.properties",
    f"{_FORMAT} %/one.properties --standalone",
    "info -c %/one.properties",
    f"{_FORMAT} %/one.properties --standalone",
    f"{_FORMAT} %/one.properties --standalone --ignore-formatted",
    "format --cluster-id other --config %/one.properties -s -g",
    f"{_FORMAT} %/node-2.properties -s -g",
    f"{_FORMAT} %/two.properties -s",
    "info --config %/two.properties",
    f"{_FORMAT} %/static.properties --standalone",
    f"{_FORMAT} %/static.properties",
    "info -c %/static.properties",
    f"{_FORMAT} %/broker.properties --standalone",
    f"{_FORMAT} %/broker.properties --no-initial-controllers",
    "info -c %/broker.properties",
    "info -c %/no-roles.properties",
    f"{_FORMAT} %/no-roles.properties -s",
    "info -c %/mixed.properties",
    f"{_FORMAT} %/mixed.properties -s",
    f"{_FORMAT} %/mixed.properties -s -g",
    "info -c %/mixed.properties",
    "format -t other -c %/other.properties -s",
    "info -c %/both.properties",
    f"{_FORMAT} %/bad.properties -s",
    "info -c %/file.properties",
    f"{_FORMAT} %/file.properties -s",
    "info -c %/wrong.properties",
    "info -c %/legacy.properties",
    f"{_FORMAT} %/legacy.properties -s",
    f"{_FORMAT} %/features.properties -s --feature nope=1",
    f"{_FORMAT} %/features.properties -s --feature group.version=9",
    f"{_FORMAT} %/features.properties -s --feature group.version",
    f"{_FORMAT} %/features.properties -s -f group.version=x",
    f"{_FORMAT} %/features.properties -s -f kraft.version=0",
    f"{_FORMAT} %/features.properties -s -f transaction.version=0 -f group.version=0",
    f"{_FORMAT} %/release.properties -s -r 4.0-IV0 --feature metadata.version=25",
    f"{_FORMAT} %/release.properties -s -r 3.9",
    f"{_FORMAT} %/release-2.properties -s -r 4.1.1",
)


#: Of Kafka 4.4 alone, with its own files.
FILES_4_4: Final[Mapping[str, str]] = {
    "one.properties": f"{_DYNAMIC}log.dirs=%/one-b,%/one-a\nmetadata.log.dir=%/one-m\n",
    "alone.properties": f"{_DYNAMIC}log.dirs=%/alone\n",
    "static.properties": f"{_STATIC}log.dirs=%/static\n",
    "broker.properties": FILES["broker.properties"],
    "joining.properties": f"{_DYNAMIC}log.dirs=%/joining\n",
}
CASES_4_4: Final[Sequence[str]] = (
    f"{_FORMAT} %/one.properties --standalone -r 4.4",
    "info -c %/one.properties",
    f"{_FORMAT} %/one.properties --standalone -r 4.4 -g",
    f"{_FORMAT} %/static.properties -r 4.4-IV0 -f share.version=1",
    f"{_FORMAT} %/broker.properties -N -r 4.4.0",
    f"{_FORMAT} %/joining.properties -N -f metadata.version=32",
    f"{_FORMAT} %/alone.properties -s -r 9.9",
    f"{_FORMAT} %/alone.properties -s -r 4.5",
    f"{_FORMAT} %/alone.properties -s -f metadata.version=34",
    f"{_FORMAT} %/alone.properties -s -f metadata.version=35",
    f"{_FORMAT} %/alone.properties -s -r 4.4 -f share.version=3",
    "version-mapping",
    "version-mapping x",
    "version-mapping -f group.version=1",
    *(f"version-mapping -r {release}" for release in ("3.3-IV3", "3.9", "4.0", "4.2", "4.3.1")),
    *(f"version-mapping --release-version {release}" for release in ("4.4", "4.5-IV0", "9.9")),
    "feature-dependencies",
    "feature-dependencies -f eligible.leader.replicas.version=1 -f share.version=2",
    *(f"feature-dependencies -f metadata.version={level}" for level in (6, 7, 33, 34, 35)),
    "feature-dependencies -f kraft.version=1 -f no.such=1",
    *(f"feature-dependencies -f share.version{rest}" for rest in ("", "=", "=x", "=3", "=1=2")),
)


def write_files(root: Path, files: Mapping[str, str] = FILES) -> None:
    """Writes files, their text by name, below `root`."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("%", str(root)), encoding="utf-8")


def words(case: str, root: Path) -> list[str]:
    """The arguments of a row, for the side whose directory is `root`."""
    return case.replace("%", str(root)).split()
