"""The embedded controller: a quorum of one, its metadata log, and what requests change in it."""
