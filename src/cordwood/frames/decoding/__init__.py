"""Keys and values of records decoded by a schema: JSON, Avro or Protobuf as Arrow columns."""
