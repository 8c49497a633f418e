"""What is known of a stream from its plan alone: order, lifetimes, keys, nulls.  False is always safe."""
