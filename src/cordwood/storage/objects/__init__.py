"""Object storage: S3, Google Cloud Storage, Azure, or a directory that takes its place."""
