"""Groups of the classic protocol, whose leader, one of the members, assigns."""
