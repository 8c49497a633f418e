"""The live NEXMark demo."""
