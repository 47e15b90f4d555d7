"""Kafka's messages in every version: schemas as text, readers and writers compiled from them.

Requests, responses, metadata records, coordinator records and the consumer protocol all use this
engine. `schema` parses the notation, `reader_source` and `writer_source` write the Python source
of one version's reader and writer, `codec` compiles them at first use, `message` is the base of the
typed classes, `primitives` has what compiled code calls.
"""
