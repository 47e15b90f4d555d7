"""One module for each API that is served."""
