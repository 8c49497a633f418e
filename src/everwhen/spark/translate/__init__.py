"""Scalar expressions as Spark SQL, and the stages of a plan told without a JVM."""
