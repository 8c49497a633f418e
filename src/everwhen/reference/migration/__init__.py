"""Plan migration as the thesis has it (chapters 28 to 30): models to run beside ours, its slips included."""
