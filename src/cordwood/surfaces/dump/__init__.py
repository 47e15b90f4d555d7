"""The output of `cordwood dump-log`: one module for each kind of file."""
