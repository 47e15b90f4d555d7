"""A small blocking Kafka client: what the command line tools speak to a broker with."""
