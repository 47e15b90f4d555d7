"""An S3 server for tests, and a proxy before it that breaks, repeats and delays requests."""
