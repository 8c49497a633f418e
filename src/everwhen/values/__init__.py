"""Values in their order: as ranks or bytes, as sets of runs, whole columns of them by position."""
