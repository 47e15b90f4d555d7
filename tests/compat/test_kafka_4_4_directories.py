"""Directories of a real Kafka 4.4: at its own levels of features, and at one that is not known.

With `unstable.feature.versions.enable` Kafka 4.4 formats at 4.5-IV0, metadata.version 34, whose
records are all known: what looks at such a directory warns, and what would change it refuses.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner, Result

from cordwood.metadata.replay import read_metadata_image
from cordwood.surfaces.cli.main import app
from support.kafka import RealKafka
from support.kafka_programs import KAFKA_4_4

pytestmark = pytest.mark.kafka

#: Commands that look.
LOOKING: Final = (
    ("%",),
    ("explain", "%"),
    ("whatif", "%", "--set", "orders:retention.ms=1d"),
    ("advise", "%"),
    ("verify", "%", "--topic", "orders"),
    ("clean", "%", "--dry-run", "--retention-only"),
    ("dump-log", "--cluster-metadata-decoder", "--files", "%/__cluster_metadata-0/*.log"),
)
#: Removes data by settings, which may not all be known.
CLEAN: Final = ("clean", "%", "--retention-only")
WARNING: Final = "the metadata log is that of a newer Kafka than 4.4 (metadata.version 34)"


def run(log_dir: Path, words: tuple[str, ...]) -> Result:
    """Runs a command; % is the directory."""
    given = []
    for word in words:
        text = word.replace("%", str(log_dir))
        given.append(str(next(Path(text).parent.glob(Path(text).name))) if "*" in text else text)
    return CliRunner().invoke(app, given)


def written(root: Path, *, release: str | None = None) -> Path:
    """The directory of a Kafka 4.4 that has had a topic with records, and has stopped."""
    unstable = {"unstable.feature.versions.enable": "true"}
    properties = {} if release is None else unstable
    with RealKafka(root, version=KAFKA_4_4, release=release, properties=properties) as kafka:
        kafka.start()
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        new = NewTopic("orders", 1, 1, config={"retention.ms": "900000000"})
        admin.create_topics([new])["orders"].result(120)
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        for number in range(10):
            producer.produce("orders", key=f"k{number}", value="v")
        assert producer.flush(120) == 0
        kafka.stop()
        return kafka.log_dirs[0]


@pytest.fixture(scope="module")
def own_level(kafka_4_4_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert kafka_4_4_jars.is_dir()
    return written(tmp_path_factory.mktemp("kafka"))


@pytest.fixture(scope="module")
def unknown_level(kafka_4_4_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert kafka_4_4_jars.is_dir()
    return written(tmp_path_factory.mktemp("kafka"), release="4.5-IV0")


def test_a_directory_of_4_4_is_read_and_cleaned_without_a_warning(own_level: Path) -> None:
    image = read_metadata_image(own_level / "__cluster_metadata-0")
    assert (image.features["metadata.version"], image.features["share.version"]) == (33, 2)
    for words in (*LOOKING, CLEAN):
        done = run(own_level, words)
        assert done.exit_code == 0, (words, done.output)
        assert "newer Kafka" not in done.output, (words, done.output)


def test_a_directory_at_a_level_that_is_not_known_is_looked_at_and_not_changed(
    unknown_level: Path,
) -> None:
    for words in LOOKING:
        done = run(unknown_level, words)
        assert done.exit_code == 0, (words, done.output)
        is_about_records = words[0] in {"verify", "dump-log"}
        assert done.output.count(WARNING) == (0 if is_about_records else 1), (words, done.output)
    before = contents(unknown_level)
    done = run(unknown_level, CLEAN)
    assert done.exit_code == 1, done.output
    assert WARNING in done.output
    assert contents(unknown_level) == before
    # A process of its own: `serve` takes its process's signals.
    serving = [sys.executable, "-m", "cordwood", "serve", "--log-dir", str(unknown_level)]
    command = [*serving, "--port", "0"]
    served = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert served.returncode == 1
    assert "the cluster has metadata.version at level 34" in served.stderr


def contents(log_dir: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in log_dir.rglob("*") if path.is_file()}
