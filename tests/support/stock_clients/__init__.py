"""Kafka clients that others made, behind one small interface, and what each must be able to do.

Role: `contract` holds the checks, `base` the interface, and each other module one kind of client.
They take a broker's address and nothing else, so that they hold for Kafka and Cordwood alike.
"""
