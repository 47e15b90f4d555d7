"""Serving requests, by brokers and controllers: from a client's bytes to a handler and back."""
