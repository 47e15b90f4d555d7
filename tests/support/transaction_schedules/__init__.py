"""Random schedules of producers with transactions, and a model of what must hold."""
