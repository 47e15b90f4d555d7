"""Access to logs whose broker is stopped, or is not disturbed: their files."""
