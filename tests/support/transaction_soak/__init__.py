"""Transactions of several producers while producers and the broker are killed, and their judge."""
