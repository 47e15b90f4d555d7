"""What must hold in every history: one class for each guarantee."""
