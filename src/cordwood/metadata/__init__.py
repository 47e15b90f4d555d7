"""The cluster's metadata: its image, the records that change it, their log and its snapshots."""
