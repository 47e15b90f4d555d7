"""Records what a real Kafka 4.4 answers to the group APIs, for tests to compare with."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from support.group_transcript import PROPERTIES, keep_transcript, transcribe
from support.kafka import RealKafka
from support.kafka_programs import KAFKA_4_4

GOLDEN = Path(__file__).parents[1] / "tests" / "golden" / "groups.json.xz"


def main() -> None:
    """Starts a Kafka, asks it, and writes the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=GOLDEN)
    out = parser.parse_args().out
    with (
        tempfile.TemporaryDirectory() as root,
        RealKafka(Path(root), properties=PROPERTIES, version=KAFKA_4_4) as kafka,
    ):
        kafka.start_without_cleaning()
        steps = transcribe(kafka.port)
        kafka.stop()
    keep_transcript(out, steps)
    print(f"{len(steps)} answers in {out}, {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
