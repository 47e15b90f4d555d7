"""Handlers of the APIs that brokers and controllers both serve, and what these APIs share.

Source: kafka.server.KafkaApis, ControllerApis.
"""
