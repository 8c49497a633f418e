"""An epoch on the driver: its job, its log, late rows, what outputs promise."""
