"""What a broker counts, under the names that Kafka's metrics have in Prometheus."""
