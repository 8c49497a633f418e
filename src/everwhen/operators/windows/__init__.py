"""Windows of rows, lifetimes as instants, coalescing."""
