"""The join's compiled loops."""
