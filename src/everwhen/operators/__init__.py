"""Physical operators: state machines over batches of signed segments, the same in process and in Spark's workers."""
