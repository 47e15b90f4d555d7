"""The requests that a controller serves: one module for each API, or a few that are alike.

Requests of brokers have their handlers here; those of clients, which brokers forward in an
Envelope, have the handlers of `cordwood.broker.handlers`.

Source: kafka.server.ControllerApis.
"""
