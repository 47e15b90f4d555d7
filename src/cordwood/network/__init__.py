"""Sockets, requests and turns: from a client's bytes to the handler of its request, and back."""
