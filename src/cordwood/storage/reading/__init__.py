"""The one reader of segments: batches, blocks of them, payloads, records, aborted transactions."""
