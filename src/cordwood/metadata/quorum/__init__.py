"""The metadata log of a node that is not its leader: what it asks the quorum, and what it keeps."""
