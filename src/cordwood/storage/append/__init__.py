"""Validation of appends, and the changes made to them."""
