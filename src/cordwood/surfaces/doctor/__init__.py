"""What the machine has of what a broker and its cleanup need."""
