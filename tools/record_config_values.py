"""Records what the definitions of Kafka 4.4 make of values for every setting, for tests/golden.

Needs a JDK, for `javac`.
"""

from __future__ import annotations

import lzma
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cordwood.configs.table import (
    TOPIC_SETTINGS,
    Setting,
    broker_settings,
    client_metrics_settings,
    group_settings,
)
from support.kafka_programs import KAFKA_4_4, kafka_jars

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "tests" / "golden" / "config-values.tsv.xz"
PROGRAM = ROOT / "tools" / "realkafka" / "ConfigValues.java"
TABLES = {
    "broker": broker_settings(),
    "client": client_metrics_settings(),
    "group": group_settings(),
    "topic": TOPIC_SETTINGS,
}
VALUES = (
    *("", "x", "0", "1", "-1", "-2", "2147483647", "2147483648", "-2147483649", "32768", "-32769"),
    *("9223372036854775807", "9223372036854775808", "1.5", "0.5", "true", "FALSE", " 7 ", "1e3"),
    *("a,b", "a,,b", "a,a", " a , b ", ",", "*", "NaN", "Infinity", "0x1p3", "1_0", "+3", "٣"),
    *("1L", "1d", "null", "a:1", "0:1,1:2", "by_duration:PT1H", "by_duration:-PT1H"),
)


def values_of(key: Setting) -> Iterator[str]:
    yield from VALUES
    for bound in (key.rule.at_least, key.rule.at_most):
        if bound is not None:
            yield from (str(bound), str(bound - 1), str(bound + 1), f"{bound}.0")
    for choice in key.rule.choices:
        yield from (choice, choice.swapcase(), f"{choice},{choice}", f" {choice} ")


def main() -> None:
    lines = [
        f"{table}\t{name}\t{value}"
        for table, keys in TABLES.items()
        for name, key in keys.items()
        if not name.startswith("cordwood.")
        for value in dict.fromkeys(values_of(key))
    ]
    classpath = f"{kafka_jars(KAFKA_4_4)}/*"
    with tempfile.TemporaryDirectory() as place:
        asked = Path(place) / "values"
        asked.write_text("\n".join(lines) + "\n", encoding="utf-8")
        subprocess.run(["javac", "-cp", classpath, "-d", place, str(PROGRAM)], check=True)
        done = subprocess.run(
            ["java", "-cp", f"{classpath}:{place}", "ConfigValues", str(asked)],
            check=True,
            capture_output=True,
            encoding="utf-8",
        )
    answers = done.stdout.splitlines()
    kept = "".join(f"{line}\t{answer}\n" for line, answer in zip(lines, answers, strict=True))
    TARGET.write_bytes(lzma.compress(kept.encode(), preset=9))


if __name__ == "__main__":
    main()
