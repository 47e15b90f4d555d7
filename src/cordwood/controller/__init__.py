"""The controller of a quorum of one: checks what clients ask for, and writes it as records."""
