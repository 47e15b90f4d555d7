"""Topics as Delta tables, each run adding what is new, exactly once."""
