"""What a source goes through before the plan: checks, reordering (Align), forced progress (Finalize)."""
