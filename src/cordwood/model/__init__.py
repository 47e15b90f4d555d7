"""Words of the domain: no I/O, no other layer."""
