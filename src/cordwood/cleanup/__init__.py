"""What to remove, by whom, and how it becomes true: capture, plan, execute, commit."""
