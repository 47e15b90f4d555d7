"""Writing a DataFrame as the segments of a topic."""
