"""Command line tools with the flags and the output of Kafka's: one module a tool."""
