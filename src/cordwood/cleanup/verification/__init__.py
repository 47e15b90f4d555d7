"""Checks of logs, and of what a cleaning makes of them, that share no decision with cleanings."""
