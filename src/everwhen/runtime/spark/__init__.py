"""The Spark runtime: an epoch is one job of stages, each a kernel per bucket, with sinks that are idempotent per epoch."""
