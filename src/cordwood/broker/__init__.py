"""A Kafka broker: requests of clients answered from the partition logs."""
