"""Spark's Kafka source and sink behind jobs in JSON: a line in, a line out.

The arguments are the directory of the connector's jars, and the broker.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

SCHEMA = (
    "key binary, value binary, topic string, partition int,"
    " headers array<struct<key: string, value: binary>>"
)
DATA_LOSS = ("KAFKA_DATA_LOSS", "data may have been lost", "OffsetOutOfRange", "data loss")


def session(jars: Path) -> SparkSession:
    """A small local Spark with the connector."""
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(str(jar) for jar in sorted(jars.glob("*.jar"))))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )


def decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


class Client:
    """The operations, each with its job."""

    def __init__(self, spark: SparkSession, servers: str) -> None:
        self.spark = spark
        self.servers = servers

    def produce(self, job: dict[str, Any]) -> None:
        rows = [
            (
                bytearray(key) if (key := decoded(told["key"])) is not None else None,
                bytearray(value) if (value := decoded(told["value"])) is not None else None,
                job["topic"],
                0,
                [(name, decoded(header)) for name, header in told["headers"]],
            )
            for told in job["records"]
        ]
        written = self.spark.createDataFrame(rows, SCHEMA).coalesce(1).write.format("kafka")
        written.options(
            **{
                "kafka.bootstrap.servers": self.servers,
                "kafka.compression.type": job["codec"],
                "kafka.enable.idempotence": job["idempotent"],
                "kafka.max.request.size": job["maxBytes"],
                "kafka.acks": "all",
                "includeHeaders": "true",
            }
        ).save()

    def options(self, job: dict[str, Any]) -> dict[str, Any]:
        topic = job["topic"]
        options = {
            "kafka.bootstrap.servers": self.servers,
            "subscribe": topic,
            "includeHeaders": "true",
            "failOnDataLoss": str(job["reset"] == "none").lower(),
            "kafka.fetch.max.wait.ms": "100",
        }
        if job["start"] == "offset":
            options["startingOffsets"] = json.dumps({topic: {"0": job["at"]}})
        elif job["start"] == "timestamp":
            options["startingOffsetsByTimestamp"] = json.dumps({topic: {"0": job["at"]}})
        else:
            options["startingOffsets"] = job["start"]
        if job.get("fetchBytes"):
            options["kafka.max.partition.fetch.bytes"] = job["fetchBytes"]
            options["kafka.fetch.max.bytes"] = job["fetchBytes"]
        return options

    def consume(self, job: dict[str, Any]) -> list[dict[str, Any]]:
        frame = self.spark.read.format("kafka").options(**self.options(job)).load()
        rows = self.told(frame).orderBy("offset").limit(job["count"]).collect()
        return [
            {
                "key": encoded(row.key),
                "value": encoded(row.value),
                "headers": [[h["key"], encoded(h["value"])] for h in row.headers or []],
                "timestamp": row.timestamp,
                "offset": row.offset,
            }
            for row in rows
        ]

    @staticmethod
    def told(frame: DataFrame) -> DataFrame:
        millis = f.unix_millis("timestamp").alias("timestamp")
        return frame.select("key", "value", "headers", "offset", millis)

    def stream(self, job: dict[str, Any]) -> list[int]:
        """Copies what there is to another topic; the number of records in each batch."""
        options = self.options(job)
        if job.get("perTrigger"):
            options["maxOffsetsPerTrigger"] = job["perTrigger"]
        source = self.spark.readStream.format("kafka").options(**options).load()
        query = (
            source.select("key", "value", "headers", f.lit(job["to"]).alias("topic"))
            .writeStream.format("kafka")
            .option("kafka.bootstrap.servers", self.servers)
            .option("includeHeaders", "true")
            .option("checkpointLocation", job["checkpoint"])
            .trigger(availableNow=True)
            .start()
        )
        if not query.awaitTermination(job["timeoutMs"] // 1000):
            query.stop()
            raise TimeoutError("the stream did not come to its end")
        return [progress["numInputRows"] for progress in query.recentProgress]


def main() -> None:
    # What Spark prints is no answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    client = Client(session(Path(sys.argv[1])), sys.argv[2])
    operations: dict[str, Callable[[dict[str, Any]], object]] = {
        "produce": client.produce,
        "consume": client.consume,
        "stream": client.stream,
    }
    for line in sys.stdin:
        job = json.loads(line)
        try:
            answer = {"ok": operations[job["op"]](job)}
        except Exception as error:  # the error is the answer
            said = str(error)
            lost = any(words.lower() in said.lower() for words in DATA_LOSS)
            answer = {"error": "no_offset" if lost else "other", "message": said[:3000]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
