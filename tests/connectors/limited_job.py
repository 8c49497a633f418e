"""A job in a process whose files cannot grow beyond a size, as on a disk that is full."""

from __future__ import annotations

import resource
import warnings
from pathlib import Path

from connectors import killed_job
from everwhen.errors import EverwhenError
from everwhen.jobs.local_job import LocalJob
from everwhen.jobs.plan import job_plan

LOADED = killed_job.LOADED


def run(text: str, checkpoint: str, said: str, limit: int) -> None:
    """What ends the job is written down."""
    warnings.simplefilter("ignore")
    job = LocalJob(job_plan(text, unbounded=True), checkpoint, batch=200, every=0.0)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        ended = job.run()
    except EverwhenError as bad:
        ended = f"{type(bad).__name__}: {bad}"
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    Path(said).write_text(ended, encoding="utf-8")
