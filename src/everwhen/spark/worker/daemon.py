"""The process that Spark's Python workers of this machine are forked from, with the engine imported already.

Spark starts it by `spark.python.daemon.module`.  A worker then need not import the engine, which takes longer than most
epochs: the first epochs come sooner, a worker that has died is soon replaced, and workers share the memory of the code.
It is PySpark's own daemon otherwise.  On a cluster that one is used as it is, since the engine may come with the job,
when daemons run already.  Nothing is computed before a fork; the threads that NumPy and Arrow start when they are
imported rest, and both libraries know what to do when they are forked.

A worker looks for garbage after every task.  What is imported before it is forked it need not look through: that would
take longer than most tasks.
"""

from __future__ import annotations

import gc
import os

from pyspark.daemon import manager

if __name__ == "__main__":
    os.setpgid(0, 0)  # as the daemon does soon: Ctrl-C at the terminal is not for us, also while we import
    import everwhen.spark.worker.stage_program  # noqa: F401

    gc.collect()
    gc.freeze()
    manager()
