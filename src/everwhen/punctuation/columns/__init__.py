"""How punctuations are kept, by what they bind: constants, ranges, boxes; with their compiled loops."""
