"""Whether state stays bounded, before a query starts: what piles up, and which punctuation would free it."""
