"""Random schedules of a group: clients of both protocols, models of the group, and the events."""
