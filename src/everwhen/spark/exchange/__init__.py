"""What crosses between stages: schema, codec, punctuation, watermarks, scans of sources."""
