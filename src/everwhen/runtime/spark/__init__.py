"""The Spark runtime: an epoch is a job or two of stages, each a kernel per bucket; sinks are idempotent per epoch."""
