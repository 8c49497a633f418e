"""Other systems as inputs and outputs of queries: Kafka, Delta, PostgreSQL, Iceberg."""
