"""Compiled loops: the only way to Numba.  When a loop is compiled, when interpreted, and how that is shared.

Private parts of Numba and llvmlite are used here and nowhere else.  `EVERWHEN_COMPILE=eager` turns interpretation off,
`never` turns compilation off.
"""
