"""Tools for users' tests: a Kafka broker in the test's process, a file system that loses power.

`broker` has `RunningBroker`, and `pytest_plugin` its fixtures. `simulated_filesystem` and
`manual_clock` are for tests of programs that use `cordwood.storage`. docs/testing.md describes all
of them.
"""
