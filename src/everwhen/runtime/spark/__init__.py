"""The Spark runtime: an epoch is a job or two of stages, each a kernel per bucket; sinks are idempotent per epoch."""

from importlib.util import find_spec

from everwhen.errors import EverwhenError


def require_pyspark() -> None:
    """Raise an error with the remedy if PySpark is not installed; it comes with the extra `everwhen[spark]`."""
    if find_spec("pyspark") is None:
        raise EverwhenError(
            "Spark needs PySpark, which is not installed. Remedy: pip install 'everwhen[spark]'; or run in this "
            "process, with --engine local or ew.run"
        )
