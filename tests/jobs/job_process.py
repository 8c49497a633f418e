"""A job in a process of its own, to be killed."""

from __future__ import annotations

from everwhen.jobs.local_job import LocalJob
from everwhen.jobs.plan import job_plan


def run_job(text: str, checkpoint: str, every: float, batch: int) -> None:
    """Until its inputs end."""
    assert LocalJob(job_plan(text, unbounded=True), checkpoint, batch=batch, every=every).run() == "done"
