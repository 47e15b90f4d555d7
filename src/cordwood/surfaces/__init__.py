"""User interfaces: command line, HTTP endpoint, metrics, dumps and settings."""
