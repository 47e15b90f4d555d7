"""Many groups of both protocols for some time: who owns which partition, and what was committed."""
