"""Plans of cleanings: pure functions of views, rules and time."""
