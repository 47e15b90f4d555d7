"""Creates, connects, starts and stops the parts of a broker; one module for each role of a node."""
