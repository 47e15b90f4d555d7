"""Bugs that are put into the real code on purpose, to show that the checkers find them."""
