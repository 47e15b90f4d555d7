"""Producers, readers and members of groups, over the real connections and codecs."""
