"""Random schedules of a consumer group: clients, a model of the group, and the events."""
