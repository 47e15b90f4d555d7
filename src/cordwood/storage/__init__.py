"""A log directory and its partitions on a file system."""
