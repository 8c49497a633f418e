"""The changelog folder: how it is laid out, how it is read, how readers leave word."""
