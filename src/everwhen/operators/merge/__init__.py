"""LMerge: many physical copies of one stream, merged into one."""
