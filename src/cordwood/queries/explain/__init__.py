"""Why each segment and record of a log is still there, and when it goes."""
