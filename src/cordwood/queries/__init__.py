"""Questions about logs and brokers, and their answers: typed values, which surfaces only render."""
