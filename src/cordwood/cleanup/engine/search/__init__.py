"""Search of records by key or condition, and the bits of what an erasure keeps."""
