"""Kafka's wire protocol: bytes to messages and back, no I/O."""
