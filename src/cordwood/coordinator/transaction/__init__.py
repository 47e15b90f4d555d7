"""The transactions of producers."""
