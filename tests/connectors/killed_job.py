"""A job in a process of its own, to be killed; what it needs is loaded before it is forked (`warm_job`)."""

from __future__ import annotations

import warnings

import deltalake
import psycopg
import pyiceberg.catalog.sql
import pyiceberg.io.pyarrow

import everwhen.connectors.delta
import everwhen.connectors.iceberg
import everwhen.connectors.kafka
import everwhen.connectors.postgres
from everwhen.jobs.local_job import LocalJob
from everwhen.jobs.plan import job_plan

LOADED = (deltalake, psycopg, pyiceberg, everwhen)


def run(text: str, checkpoint: str, every: float) -> None:
    """Until it is stopped."""
    warnings.simplefilter("ignore")
    assert LocalJob(job_plan(text, unbounded=True), checkpoint, batch=50, every=every).run() in ("done", "stopped")
