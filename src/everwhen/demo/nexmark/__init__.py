"""NEXMark: the auction streams of the thesis's running example, and its queries."""

from __future__ import annotations

from everwhen.demo.nexmark.config import NexmarkConfig
from everwhen.demo.nexmark.generator import SCHEMAS, STREAMS, NexmarkGenerator, generate

__all__ = ["SCHEMAS", "STREAMS", "NexmarkConfig", "NexmarkGenerator", "generate"]
