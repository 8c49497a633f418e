"""`page`: the page of something that runs in this program, beside it."""

from __future__ import annotations

import os
import secrets
import sys
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from everwhen.engine.session.sql_session import SqlSession
from everwhen.errors import EverwhenError, QueryError
from everwhen.serve.engine_loop import EngineLoop
from everwhen.serve.job_watch import JobWatch
from everwhen.serve.watched import Watched
from everwhen.shell.input import Feeds
from everwhen.stream.element_batch import ElementBatch

try:
    from everwhen.serve.program import Place, address_of, make_server, open_socket, rules_of
except ModuleNotFoundError as missing:
    if missing.name not in ("starlette", "uvicorn", "anyio"):
        raise
    raise QueryError(
        "the page needs Starlette and uvicorn, which are not installed; pip install 'everwhen[page]'"
    ) from None

if TYPE_CHECKING:
    from everwhen.spark.api.handle import Handle

_PATIENCE: Final = 30.0


class Page:
    """A page that is open, until `close` or the end of a `with`.  `address` is what a browser opens."""

    def __init__(self, engine: Watched, place: Place, token: str) -> None:
        self._engine = engine
        self._listening = open_socket(place)
        rules = rules_of(place, self._listening, token)
        self.address = address_of(place, rules)
        self._server = make_server(engine, rules)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._listening]}, name="everwhen-page", daemon=True
        )
        self._thread.start()
        end = time.monotonic() + _PATIENCE
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > end:
                raise EverwhenError("the page's server did not start")
            time.sleep(0.01)

    def push(self, batches: Mapping[str, ElementBatch]) -> dict[str, ElementBatch]:
        """One epoch of a session, as `SqlSession.push`: while its page is open the session is the page's."""
        if not isinstance(self._engine, EngineLoop):
            raise QueryError("only a session is pushed; what is watched here gets its data elsewhere")
        engine = self._engine
        return engine.submit(lambda: engine.push(batches)).result()

    def close(self) -> None:
        """Close it; what was watched goes on."""
        self._server.should_exit = True
        self._thread.join(_PATIENCE)
        self._listening.close()

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"the page is at {self.address}"


def page(
    of: SqlSession | Handle | str | os.PathLike[str],
    *,
    host: str = "127.0.0.1",
    port: int | None = 0,
    read_only: bool = False,
    token: str | None = None,
) -> Page:
    """Open the page of a session, of a query on Spark (what `ew.spark.start` returned), or of a job (its checkpoint).

    It runs in a thread of this program.  A session is the page's while it is open: give it data with `Page.push`.  A
    Spark query goes on as it was; it can be stopped, moved to another level and changed from the page, unless
    `read_only`.  `port`: 0 for a free one, None for 8642 or a free one.  It needs `everwhen[page]`.

    >>> import everwhen as ew
    >>> session = ew.SqlSession()
    >>> _ = session.execute("CREATE STREAM S (x INT); SELECT MAX(x) AS best FROM S WINDOW(RANGE 10)")
    >>> with ew.page(session, token="secret") as opened:
    ...     said = opened.push({"S": ew.ElementBatch.of([ew.Insert(1, 2, {"x": 7})], session.schema_of("S"))})
    ...     opened.address.endswith("/#token=secret"), [str(each) for each in said["q1"].elements()]
    (True, ['insert [1, ∞) best=7'])
    """
    return Page(_watched(of), Place(host, port, (), read_only), token or secrets.token_urlsafe(24))


def _watched(of: Any) -> Watched:
    if isinstance(of, SqlSession):
        return EngineLoop(of, Feeds(of.tick))
    if isinstance(of, str | os.PathLike):
        return JobWatch(os.fspath(of))
    if "everwhen.spark.api.handle" in sys.modules:  # else it is none
        from everwhen.serve.spark_watch import SparkWatch
        from everwhen.spark.api.handle import Handle

        if isinstance(of, Handle):
            return SparkWatch(of)
    raise QueryError(
        f"a page shows an SqlSession, what ew.spark.start has returned, or the checkpoint of a job, not a "
        f"{type(of).__name__}"
    )
