"""A port beside Kafka's, for people and Prometheus: metrics, the cleaner's status, the clock."""
