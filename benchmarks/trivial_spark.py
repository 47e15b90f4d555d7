"""The least that a PySpark program does: a session, one job in Python, the end of the session."""

from __future__ import annotations

from pyspark.sql import SparkSession


def main() -> int:
    session = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false")
    spark = session.getOrCreate()
    assert spark.sparkContext.parallelize([1, 2], 2).map(lambda each: each + 1).sum() == 5
    spark.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
