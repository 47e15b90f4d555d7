"""A cluster of processes on this machine: a controller, and brokers of Cordwood and of Kafka."""
