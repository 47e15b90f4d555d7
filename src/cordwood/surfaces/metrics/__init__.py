"""A broker's metrics, with the names that Kafka's metrics have in Prometheus."""
