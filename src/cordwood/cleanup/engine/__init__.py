"""Engines that execute compactions: tasks, the process of Spark."""
