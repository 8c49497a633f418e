"""The Spark runtime: an epoch is one job of stages, each a kernel per bucket; sinks are idempotent per epoch."""
