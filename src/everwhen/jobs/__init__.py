"""Jobs: a text of streams, queries and sinks that is started, watched, stopped and started again, exactly once."""
