"""The functions behind the endpoints: each asks the engine's thread, or reads what the observer has seen."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from everwhen import __version__
from everwhen.core.time import is_time
from everwhen.engine.observe.answer_book import AnswerBook
from everwhen.engine.observe.asked import is_about_running, to_explain
from everwhen.engine.observe.plain import plain_time
from everwhen.engine.session.sql_session import Outcome
from everwhen.errors import EverwhenError, QueryError, SqlError
from everwhen.formats.json.lines import jsonlines
from everwhen.language import syntax as s
from everwhen.language.parse import parse
from everwhen.serve.api import Endpoint, Refused, openapi, wrong
from everwhen.serve.gate import Rules
from everwhen.serve.observer import Observer, plain_level
from everwhen.serve.subscribers import Subscribers, TooMany, View
from everwhen.serve.watched import Busy, Watched
from everwhen.storage.folder import path_name

_PATIENCE: Final = 60.0
"""The first time loops are compiled, which takes a while."""
T = TypeVar("T")


class Endpoints:
    """Answers requests; `handler` gives the function of an endpoint."""

    def __init__(self, engine: Watched, observer: Observer, subscribers: Subscribers, rules: Rules) -> None:
        self.engine, self.observer, self.subscribers, self.rules = engine, observer, subscribers, rules
        self._looking = asyncio.Semaphore(4)

    def handler(self, endpoint: Endpoint) -> Callable[[Request], Any]:
        """Checks what is given, and tells what goes wrong as JSON."""
        work = getattr(self, endpoint.name)

        async def handle(request: Request) -> Response:
            try:
                given = await _given(request, endpoint)
                told = await work(given)
            except Refused as refused:
                return JSONResponse(refused.to_plain(), refused.status)
            except (Busy, TooMany) as error:
                return _problem(429 if isinstance(error, TooMany) else 503, "busy", str(error))
            except SqlError as error:
                place = {"line": error.line, "column": error.column, "start": error.start, "problem": error.problem}
                place["end"] = error.start + str(error).rpartition("\n")[2].count("^")
                return JSONResponse(Refused(422, "sql", str(error), place).to_plain(), 422)
            except QueryError as error:
                return _problem(409, "query", str(error))
            except EverwhenError as error:
                return _problem(409, "engine", str(error))
            except TimeoutError:
                return _problem(503, "busy", "the engine has been busy for too long; try again")
            return told if isinstance(told, Response) else JSONResponse(told)

        return handle

    async def _ask(self, work: Callable[..., T], *given: Any) -> T:
        """On the engine's thread, between two epochs."""
        return await asyncio.wait_for(asyncio.wrap_future(self.engine.submit(lambda: work(*given))), _PATIENCE)

    async def _apart(self, work: Callable[..., T], *given: Any) -> T:
        """On some other thread, at most four at once."""
        async with self._looking:
            return await asyncio.to_thread(work, *given)

    def _book(self, name: str) -> AnswerBook:
        found = self.engine.books.get(name)
        if found is None:
            raise Refused(404, "query", f"there is no query {name!r}")
        return found

    # -- who is there ---------------------------------------------------------------------------------------------

    async def describe(self, given: Mapping[str, Any]) -> Any:
        return openapi(__version__)

    async def login(self, given: Mapping[str, Any]) -> Any:
        if not self.rules.is_token(given["token"]):
            raise Refused(401, "token", "the token is wrong; open the address that the server printed")
        response = JSONResponse({"read_only": self.rules.read_only, "version": __version__})
        response.set_cookie(
            self.rules.cookie_name, self.rules.cookie, httponly=True, samesite="strict", path="/", max_age=7 * 86_400
        )
        return response

    async def logout(self, given: Mapping[str, Any]) -> Any:
        response = JSONResponse({})
        response.delete_cookie(self.rules.cookie_name, path="/", httponly=True, samesite="strict")
        return response

    # -- looking --------------------------------------------------------------------------------------------------

    async def state(self, given: Mapping[str, Any]) -> Any:
        about = {"read_only": self.rules.read_only, "version": __version__}
        frame = await self._apart(self.observer.look)
        return {**json.loads(frame.session), **about}

    async def streams(self, given: Mapping[str, Any]) -> Any:
        return {"streams": await self._apart(self.engine.aside, self.engine.streams)}

    async def queries(self, given: Mapping[str, Any]) -> Any:
        return {"queries": (await self.state(given))["queries"]}

    async def graph(self, given: Mapping[str, Any]) -> Any:
        return {"nodes": (await self.state(given))["nodes"]}

    async def metadata(self, given: Mapping[str, Any]) -> Any:
        return {"operators": await self._ask(self.engine.metadata)}

    async def late_rows(self, given: Mapping[str, Any]) -> Any:
        name = given["name"]
        if name not in {each["name"] for each in (await self.state(given))["sources"]}:
            raise Refused(404, "source", f"no running query reads a source {name!r}")
        lines = await self._apart(_lines, self.engine, name)
        named = {"Content-Disposition": f'attachment; filename="late-{path_name(name)}.jsonl"'}
        return Response(lines, media_type="application/x-ndjson", headers=named)

    async def series(self, given: Mapping[str, Any]) -> Any:
        return {"points": list(self.observer.points)}

    async def names(self, given: Mapping[str, Any]) -> Any:
        return await self._apart(self.engine.aside, self.engine.names)

    async def answer(self, given: Mapping[str, Any]) -> Any:
        book = self._book(given["name"])
        told = await self._apart(book.snapshot, _instant(given.get("at", "now")), given.get("limit", 200))
        return {"query": given["name"], **told}

    async def timeline(self, given: Mapping[str, Any]) -> Any:
        book = self._book(given["name"])
        lo, hi = _instant(given.get("from", "now")), _instant(given.get("to", "now"))
        lo, hi = (book.now if lo is None else lo), (book.now + 1 if hi is None else hi)
        if lo >= hi:
            raise Refused(400, "span", "a span begins before it ends")
        return {"query": given["name"], **await self._apart(book.timeline, lo, hi, given.get("limit", 200))}

    async def corrections(self, given: Mapping[str, Any]) -> Any:
        book = self._book(given["name"])
        at = _instant(given["at"]) if "at" in given else None
        at = book.now if at is None and "at" in given else at
        found = await self._apart(book.changed, 0, at, given.get("limit", 100))
        return {"query": given["name"], "at": given.get("at"), "corrections": [each.to_plain() for each in found]}

    async def waiting(self, given: Mapping[str, Any]) -> Any:
        self._book(given["name"])
        search = await self._ask(self.engine.waiting, given["name"])
        return await self._apart(search)

    async def analyze(self, given: Mapping[str, Any]) -> Any:
        self._book(given["name"])
        return await self._ask(self.engine.analyze, given["name"])

    async def explain_query(self, given: Mapping[str, Any]) -> Any:
        self._book(given["name"])
        return {"text": await self._apart(self.engine.aside, self.engine.explain, given["name"])}

    async def explain(self, given: Mapping[str, Any]) -> Any:
        text = given["text"]
        _require_no_source(text)
        if is_about_running(text):
            return {"text": await self._apart(await self._ask(self.engine.explain_later, text))}
        return {"text": await self._apart(self.engine.aside, self.engine.explain, text)}

    async def events(self, given: Mapping[str, Any]) -> Any:
        view = View(given["query"], _instant(given.get("at", "now"))) if given.get("query") else None
        subscriber = self.subscribers.add(view)
        subscriber.ready.set()  # the frame that is there already
        return StreamingResponse(self.subscribers.stream(subscriber), media_type="text/event-stream")

    # -- orders ---------------------------------------------------------------------------------------------------

    async def statements(self, given: Mapping[str, Any]) -> Any:
        text = given["text"]
        _require_no_source(text)
        if to_explain(text) is not None and not given.get("name"):
            told = (await self.explain(given))["text"]
            return {"outcomes": [_outcome(Outcome("explained", "", "", text, told=told))]}
        outcomes = await self._ask(self.engine.execute, text, given.get("name"))
        return {"outcomes": await self._ask(lambda: [_outcome(each) for each in outcomes])}

    async def start(self, given: Mapping[str, Any]) -> Any:
        self._book(given["name"])
        return {"outcomes": [_outcome(await self._ask(self.engine.start_again, given["name"]))]}

    async def stop(self, given: Mapping[str, Any]) -> Any:
        self._book(given["name"])
        await self._ask(self.engine.stop_query, given["name"])
        return {}

    async def remove(self, given: Mapping[str, Any]) -> Any:
        self._book(given["name"])
        await self._ask(self.engine.remove, given["name"])
        return {}

    async def alter(self, given: Mapping[str, Any]) -> Any:
        self._book(given["name"])
        _require_no_source(given["text"])
        outcomes = await self._ask(self.engine.alter, given["name"], given["text"])
        return {"outcomes": await self._ask(lambda: [_outcome(each) for each in outcomes])}

    async def consistency(self, given: Mapping[str, Any]) -> Any:
        self._book(given["name"])
        bounds = given.get("block"), given.get("remember"), given.get("emit")
        query = await self._ask(self.engine.change, given["name"], *bounds)
        return {"level": plain_level(query.consistency)}

    async def run(self, given: Mapping[str, Any]) -> Any:
        if "rate" in given:
            await self._ask(self.engine.set_rate, given["rate"])
        match given.get("action"):
            case "step":
                await self._ask(self.engine.step)
            case "play" | "pause":
                await self._ask(self.engine.play, given["action"] == "play")
        return {}


def _lines(engine: Watched, source: str) -> bytes:
    batches, axis = engine.submit(lambda: (engine.late_rows(source), engine.observe().axis)).result(_PATIENCE)
    return "".join(f"{line}\n" for batch in batches for line in jsonlines(batch, axis)).encode()


def _problem(status: int, kind: str, message: str) -> JSONResponse:
    return JSONResponse(Refused(status, kind, message).to_plain(), status)


async def _given(request: Request, endpoint: Endpoint) -> dict[str, Any]:
    """The parameters and the body, checked."""
    found: dict[str, Any] = {}
    known = {each.name for each in endpoint.parameters if not each.is_path}
    for name in request.query_params:
        if name not in known:
            raise Refused(400, "request", f"there is no parameter {name[:60]!r}")
    for each in endpoint.parameters:
        given = request.path_params if each.is_path else request.query_params
        if each.name in given:
            found[each.name] = _parameter(str(given[each.name]), each.schema, each.name)
    if endpoint.body is None:
        return found
    try:
        body = json.loads(await request.body() or b"{}")
        json.dumps(body, ensure_ascii=False).encode()  # half a character could not be told back
    except (ValueError, RecursionError):
        raise Refused(400, "request", "the body is not JSON") from None
    problem = wrong(body, endpoint.body)
    if problem is not None:
        raise Refused(400, "request", problem)
    return {**found, **body}


def _parameter(text: str, schema: Mapping[str, Any], name: str) -> Any:
    value: Any = text
    if schema["type"] == "integer":
        if not text.isascii() or not text.isdecimal() or len(text) > 9:
            raise Refused(400, "request", f"{name} is a whole number")
        value = int(text)
    problem = wrong(value, schema, name)
    if problem is not None:
        raise Refused(400, "request", problem)
    return value


def _instant(text: str) -> int | None:
    """An instant that a request names; None: now."""
    if text == "now":
        return None
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 19 and is_time(int(text))):
        raise Refused(400, "request", "an instant is a whole number of ticks, or now")
    return int(text)


def _require_no_source(text: str) -> None:
    """A text from a page opens no file and no connection."""
    if is_about_running(text):
        return
    for statement in parse(to_explain(text) or text):
        if isinstance(statement, s.CreateSource) and statement.source is not None:
            span = statement.source.span
            raise SqlError("SOURCE is not taken from the page; give it to the server when it starts", text, span.start,
                           span.end)  # fmt: skip


def _outcome(outcome: Outcome) -> dict[str, Any]:
    at = None if outcome.at is None else plain_time(outcome.at)
    told = {"kind": outcome.kind, "what": outcome.what, "name": outcome.name, "at": at}
    return {**told, "text": str(outcome), "warnings": list(outcome.warnings)}
