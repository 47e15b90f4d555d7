"""Settings that keep a promise, and remarks on settings."""
