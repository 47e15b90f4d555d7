"""Every setting of a broker: what it may be, what is in force, how it is changed and described."""
