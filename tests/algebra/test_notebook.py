"""How queries look in a notebook: everything escaped."""

from __future__ import annotations

import everwhen as ew


def test_a_query_shows_its_columns_and_its_plan() -> None:
    stream = ew.source("S", {"<b>": "int64"})
    shown = stream.where(ew.col("<b>") < 5)._repr_html_()
    assert shown == ("<p>Stream (&lt;b&gt; int64)</p><pre>Filter &lt;b&gt; &lt; 5\n└─ Source S (&lt;b&gt; int64)</pre>")
    assert repr(stream) == "<Stream (<b> int64)>"
