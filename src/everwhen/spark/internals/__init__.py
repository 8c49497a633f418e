"""The only place that touches private parts of PySpark and py4j."""
