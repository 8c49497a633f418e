"""A session in a notebook that moves: what `_repr_html_` shows, anew after epochs.

    pip install 'everwhen[notebook]'

It is an anywidget.  The session tells after each epoch that there is something new; at most every `every` seconds the
picture is made anew and sent.  While a cell pushes, Jupyter shows it as it goes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from everwhen.engine.session.query_handle import QueryHandle
from everwhen.engine.session.session import Session
from everwhen.engine.session.sql_session import SqlSession
from everwhen.errors import QueryError, a_type

if TYPE_CHECKING:
    from anywidget import AnyWidget

SCRIPT: Final = """
function render({ model, el }) {
  const draw = () => {
    const made = new DOMParser().parseFromString(model.get("html"), "text/html");
    el.replaceChildren(...made.body.childNodes);
  };
  model.on("change:html", draw);
  draw();
}
export default { render };
"""
"""The browser's side: the picture has no script in it, and every text of a stream is escaped (`graph_html`)."""


def live(of: SqlSession | Session | QueryHandle, every: float = 0.5) -> AnyWidget:
    """A widget of a session, or of a query of one (`Session.register`), that is drawn anew after epochs, at most every
    so many seconds; `close()` ends that.  It needs `everwhen[notebook]`.

    >>> import everwhen as ew
    >>> ew.live("a session")
    Traceback (most recent call last):
    ...
    everwhen.errors.QueryError: a session or a query of one is shown live, not a str
    """
    if not isinstance(of, SqlSession | Session | QueryHandle):
        raise QueryError(f"a session or a query of one is shown live, not {a_type(of)}")
    if not every > 0:
        raise QueryError(f"every is a number of seconds, more than 0, not {every!r}")
    try:
        import traitlets
        from anywidget import AnyWidget
    except ModuleNotFoundError as missing:
        raise QueryError(
            f"a live picture needs {missing.name}, which is not installed; pip install 'everwhen[notebook]'"
        ) from None

    class LiveGraph(AnyWidget):
        """The graph and the answers of a session."""

        _esm = SCRIPT
        html = traitlets.Unicode("").tag(sync=True)

        def close(self) -> None:
            if redraw in watchers:
                watchers.remove(redraw)
            super().close()

    made = LiveGraph(html=of._repr_html_())
    redraw = _redrawn(of, made, every)
    watchers = of.session.watchers if isinstance(of, QueryHandle) else of.watchers
    watchers.append(redraw)
    return made


def _redrawn(
    of: SqlSession | Session | QueryHandle, widget: Any, every: float, clock: Callable[[], float] = time.monotonic
) -> Callable[[], None]:
    drawn = clock()

    def redraw() -> None:
        nonlocal drawn
        if clock() - drawn >= every:
            widget.html = of._repr_html_()
            drawn = clock()

    return redraw
