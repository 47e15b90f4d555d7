"""Access to logs of archives in object storage."""
