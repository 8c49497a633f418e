"""The numeric loops: compiled once with Numba, on fixed dtypes, with no Python object inside."""
