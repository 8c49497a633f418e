"""The jars of Spark's own Kafka source and of Delta's source and sink, which PySpark does not bring.

They are in the folder `EVERWHEN_SPARK_JARS`, else `.cache/spark-jars`.  `make test-connectors` fetches them, and runs
these tests with the PySpark that they are for, which may be older than the one of the other tests.  A folder that was
named is taken as it is, whatever versions are in it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pyspark

ROOT = Path(__file__).resolve().parents[3]
KAFKA = "spark-sql-kafka-0-10_2.13"
DELTA = "delta-spark_*2.13"


def found_jars() -> list[Path] | None:
    """What goes into `spark.jars`, if it is there: all that PySpark does not have itself."""
    named = os.environ.get("EVERWHEN_SPARK_JARS")
    folder = Path(named) if named else ROOT / ".cache" / "spark-jars"
    version = "*" if named else pyspark.__version__
    if not list(folder.glob(f"{KAFKA}-{version}.jar")) or not list(folder.glob(f"{DELTA}-*.jar")):
        return None
    own = {_artifact(jar) for jar in (Path(pyspark.__file__).parent / "jars").glob("*.jar")}
    return sorted(jar for jar in folder.glob("*.jar") if _artifact(jar) not in own)


def _artifact(jar: Path) -> str:
    """A jar's name up to its version."""
    return re.sub(r"-\d[^-]*(-rc\d+|-preview\d+)?\.jar$", "", jar.name)
