"""Scalar expressions: how they are built, what they mean, how whole columns of them are computed."""
