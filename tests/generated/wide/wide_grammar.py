"""All that generated queries may hold, in one grammar."""

from __future__ import annotations

from generated.wide.aggregates import Aggregates
from generated.wide.forms import Forms
from generated.wide.functions import Functions
from generated.wide.nested import Nested
from generated.wide.overs import Overs
from generated.wide.patterns import Patterns
from generated.wide.recursions import Recursions
from generated.wide.window_tables import WindowTables


class WideGrammar(Forms, Recursions, Patterns, WindowTables, Overs, Nested, Functions, Aggregates):
    """Draws everything."""
