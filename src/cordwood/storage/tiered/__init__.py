"""Tiered storage of Kafka: logs with older segments in remote storage, each as one log."""
