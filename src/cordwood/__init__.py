"""Apache Kafka's partition log and its cleanup, with the cleanup pipeline on Apache Spark."""

__version__ = "0.2.0"
