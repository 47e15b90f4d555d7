"""What `cordwood dump-log` prints: a module to each kind of file."""
