"""What an append must satisfy, and what is changed in it."""
