"""Values that everything else is made of: time, schemas, scalars, promises, emission policies.  Pure data."""
