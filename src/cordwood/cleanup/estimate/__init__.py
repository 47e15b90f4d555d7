"""What a compaction would free, estimated from a sample of its batches."""
