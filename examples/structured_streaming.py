"""Spark Structured Streaming reads a topic: how often each book was ordered.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0 \\
        examples/structured_streaming.py 127.0.0.1:9092 orders

It reads what there is, and ends. A test runs it as a process, with the address of the fixture:
`cordwood_broker.bootstrap_servers`. The connector has to be of the version of Spark.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f


def main(servers: str, topic: str) -> None:
    """Prints a book and its number a line."""
    spark = SparkSession.builder.appName("orders").getOrCreate()
    orders = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    book = f.col("key").cast("string").alias("book")
    query = (
        orders.groupBy(book)
        .count()
        .writeStream.outputMode("complete")
        .format("memory")
        .queryName("counts")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    for row in spark.table("counts").orderBy("book").collect():
        print(row["book"], row["count"])


if __name__ == "__main__":
    main(*sys.argv[1:])
