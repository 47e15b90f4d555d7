"""Archives of partition logs in object storage: Kafka's own files, and a manifest a partition."""
