"""Checks of the machine for what a broker and its cleanup need."""
