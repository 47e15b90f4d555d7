"""The effect of changed settings on a cleaning."""
