"""The jars of Spark's own Kafka source, which PySpark does not bring.

They are in the folder `EVERWHEN_SPARK_JARS`, else `.cache/spark-jars`; `make test-connectors` fetches those of the
installed PySpark's version.  A folder that was named is taken as it is, whatever versions are in it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pyspark

ROOT = Path(__file__).resolve().parents[3]
SOURCE = "spark-sql-kafka-0-10_2.13"


def kafka_jars() -> list[Path] | None:
    """What goes into `spark.jars`, if it is there: all that PySpark does not have itself."""
    named = os.environ.get("EVERWHEN_SPARK_JARS")
    folder = Path(named) if named else ROOT / ".cache" / "spark-jars"
    if not list(folder.glob(f"{SOURCE}-{'*' if named else pyspark.__version__}.jar")):
        return None
    own = {_artifact(jar) for jar in (Path(pyspark.__file__).parent / "jars").glob("*.jar")}
    return sorted(jar for jar in folder.glob("*.jar") if _artifact(jar) not in own)


def _artifact(jar: Path) -> str:
    """A jar's name up to its version."""
    return re.sub(r"-\d[^-]*(-rc\d+|-preview\d+)?\.jar$", "", jar.name)
