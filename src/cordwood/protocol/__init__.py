"""Messages of Kafka's wire protocol: bytes to values and back, no I/O."""
