"""What can be asked: a table of endpoints, from which the routes and their OpenAPI description are made.

A body is checked against its schema here, by the few words of JSON Schema that the table uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from everwhen.errors import EverwhenError

Schema = Mapping[str, Any]


class Refused(EverwhenError):
    """A request that is not done: the status, the kind and the words, and the place in a text where there is one."""

    def __init__(self, status: int, kind: str, message: str, place: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.status, self.kind, self.place = status, kind, dict(place or {})

    def to_plain(self) -> dict[str, Any]:
        return {"error": {"kind": self.kind, "message": str(self), **self.place}}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the path, or of the query after it."""

    name: str
    schema: Schema
    about: str
    is_path: bool = False


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`name` is that of the function that answers; `result` describes what it answers with."""

    method: str
    path: str
    name: str
    about: str
    result: str
    parameters: tuple[Parameter, ...] = ()
    body: Schema | None = None
    media: str = "application/json"


_TEXT: Final = {"type": "string", "maxLength": 50_000}
_NAME: Final = Parameter("name", {"type": "string", "minLength": 1, "maxLength": 200}, "a query", is_path=True)
_INSTANT: Final = {"type": "string", "pattern": "^(now|-?[0-9]{1,19})$"}
_AT: Final = Parameter("at", _INSTANT, "an instant in ticks, or now")
_LIMIT: Final = Parameter("limit", {"type": "integer", "minimum": 1, "maximum": 1000}, "so many at most")
_LENGTH: Final = {
    "anyOf": [{"type": "integer", "minimum": 0, "maximum": 2**53 - 1}, {"type": "string", "maxLength": 60}]
}


def _object(required: tuple[str, ...], **properties: Schema) -> Schema:
    return {
        "type": "object", "properties": properties, "required": list(required), "additionalProperties": False,
    }  # fmt: skip


ENDPOINTS: Final = (
    Endpoint("GET", "/api/openapi.json", "describe", "This description.", "an OpenAPI document"),
    Endpoint(
        "POST", "/api/login", "login", "Give the token of the address, get the cookie.", "whether orders are taken",
        body=_object(("token",), token={"type": "string", "maxLength": 200}),
    ),
    Endpoint("POST", "/api/logout", "logout", "Give the cookie back.", "nothing", body=_object(())),
    Endpoint("GET", "/api/state", "state", "All of a frame: the session, its queries, its graph.", "a frame"),
    Endpoint("GET", "/api/streams", "streams", "The streams and relations that are declared.", "a list of streams"),
    Endpoint("GET", "/api/queries", "queries", "All queries, stopped and failed ones too.", "a list of queries"),
    Endpoint("GET", "/api/graph", "graph", "Sources, operators and queries, each once, with figures.", "nodes"),
    Endpoint("GET", "/api/metadata", "metadata", "What each operator has done and keeps.", "metadata by operator"),
    Endpoint(
        "GET", "/api/sources/{name}/late", "late_rows",
        "The rows of a source that came too late and were given up, the last ones, as elements.", "JSON lines",
        (Parameter("name", {"type": "string", "minLength": 1, "maxLength": 200}, "a source", is_path=True),),
        media="application/x-ndjson",
    ),
    Endpoint("GET", "/api/series", "series", "Figures of the last minutes, a point a second.", "points"),
    Endpoint("GET", "/api/names", "names", "What can be named in SQL, for completion.", "names by kind"),
    Endpoint(
        "GET", "/api/queries/{name}/answer", "answer", "The rows of an answer at an instant.", "rows with lifetimes",
        (_NAME, _AT, _LIMIT),
    ),
    Endpoint(
        "GET", "/api/queries/{name}/timeline", "timeline", "Events of an answer that overlap a span.", "events",
        (_NAME, Parameter("from", _INSTANT, "the first instant"), Parameter("to", _INSTANT, "the end"), _LIMIT),
    ),
    Endpoint(
        "GET", "/api/queries/{name}/corrections", "corrections", "The last corrections, those of an instant if given.",
        "corrections", (_NAME, _AT, _LIMIT),
    ),
    Endpoint(
        "GET", "/api/queries/{name}/waiting", "waiting", "Why a query says nothing at the moment.", "WAITING", (_NAME,)
    ),
    Endpoint("GET", "/api/queries/{name}/analyze", "analyze", "What its operators have done.", "ANALYZE", (_NAME,)),
    Endpoint("GET", "/api/queries/{name}/explain", "explain_query", "The plan by which it runs.", "EXPLAIN", (_NAME,)),
    Endpoint(
        "POST", "/api/explain", "explain", "The plan of a text that is not run; errors with their place.", "EXPLAIN",
        body=_object(("text",), text=_TEXT),
    ),
    Endpoint(
        "POST", "/api/statements", "statements", "Run statements: CREATE, SELECT, ALTER QUERY, DROP.", "outcomes",
        body=_object(("text",), text=_TEXT, name={"type": "string", "minLength": 1, "maxLength": 200}),
    ),
    Endpoint("POST", "/api/queries/{name}/start", "start", "Start a stopped query again.", "an outcome", (_NAME,),
             _object(())),
    Endpoint("POST", "/api/queries/{name}/stop", "stop", "Stop a query.", "nothing", (_NAME,), _object(())),
    Endpoint("POST", "/api/queries/{name}/remove", "remove", "Delete a query.", "nothing", (_NAME,), _object(())),
    Endpoint(
        "POST", "/api/queries/{name}/alter", "alter", "A running query becomes another one: the plan migrates.",
        "an outcome, with the instant", (_NAME,), _object(("text",), text=_TEXT),
    ),
    Endpoint(
        "POST", "/api/queries/{name}/consistency", "consistency", "Move a running query to another level.", "the level",
        (_NAME,),
        _object((), block=_LENGTH, remember=_LENGTH, emit={"type": "string", "enum": ["final", "ended", "current"]}),
    ),
    Endpoint(
        "POST", "/api/run", "run", "Let data move, stop it, take one step, or set how fast it comes.", "nothing",
        body=_object(
            (), action={"type": "string", "enum": ["play", "pause", "step"]},
            rate={"anyOf": [{"type": "number", "exclusiveMinimum": 0, "maximum": 1e9}, {"type": "null"}]},
        ),
    ),
    Endpoint(
        "GET", "/api/events", "events", "Frames as they are made: server-sent events.", "a stream of events",
        (Parameter("query", {"type": "string", "maxLength": 200}, "whose answer is shown"), _AT),
        media="text/event-stream",
    ),
)  # fmt: skip

_ERROR: Final = _object(
    ("error",), error={"type": "object", "properties": {"kind": {"type": "string"}, "message": {"type": "string"}},
                       "required": ["kind", "message"]},
)  # fmt: skip
_REFUSALS: Final = {
    "400": "the request is wrong", "401": "the token is missing or wrong", "403": "not allowed",
    "404": "there is no such query", "409": "it cannot be done now", "413": "too large", "415": "not JSON",
    "421": "another host is meant", "422": "the text is wrong, at a place", "429": "too many", "503": "too busy",
}  # fmt: skip


def openapi(version: str) -> dict[str, Any]:
    """The description of all endpoints."""
    paths: dict[str, dict[str, Any]] = {}
    for each in ENDPOINTS:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Everwhen", "version": version, "description": "A running session, seen and steered."},
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(each: Endpoint) -> dict[str, Any]:
    content = {each.media: {"schema": {"type": "string"} if each.media != "application/json" else {"type": "object"}}}
    problem = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    told: dict[str, Any] = {
        "operationId": each.name,
        "summary": each.about,
        "responses": {
            "200": {"description": each.result, "content": content},
            **{status: {"description": words, "content": problem} for status, words in _REFUSALS.items()},
        },
    }
    if each.parameters:
        told["parameters"] = [
            {
                "name": one.name, "in": "path" if one.is_path else "query", "required": one.is_path,
                "description": one.about, "schema": one.schema,
            }
            for one in each.parameters
        ]  # fmt: skip
    if each.body is not None:
        told["requestBody"] = {"required": True, "content": {"application/json": {"schema": each.body}}}
    if each.path == "/api/login":
        told["security"] = []
    return told


# -- checking ----------------------------------------------------------------------------------------------------------


def wrong(value: Any, schema: Schema, where: str = "the body") -> str | None:
    """What is wrong with a value, in words; None if nothing is.

    >>> wrong({"text": 3}, {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]})
    'text is a string'
    """
    if "anyOf" in schema:
        found = [wrong(value, each, where) for each in schema["anyOf"]]
        return None if None in found else found[0]
    kind = schema["type"]
    if not _is(value, kind):
        return f"{where} is {'an' if kind[0] in 'aeiou' else 'a'} {kind}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{where} is one of {', '.join(schema['enum'])}"
    if kind == "string":
        return _wrong_length(value, schema, where)
    if kind in ("integer", "number"):
        return _out_of_range(value, schema, where)
    if kind != "object":
        return None
    missing = [name for name in schema.get("required", ()) if name not in value]
    if missing:
        return f"{where} needs {', '.join(missing)}"
    unknown = [name for name in value if name not in schema["properties"]]
    if unknown and not schema.get("additionalProperties", True):
        return f"{where} has no {unknown[0][:60]!r}; there is {', '.join(schema['properties']) or 'nothing'}"
    known = (name for name in value if name in schema["properties"])
    return next((told for name in known if (told := wrong(value[name], schema["properties"][name], name))), None)


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    kinds: dict[str, Any] = {
        "string": str, "integer": int, "number": (int, float), "object": dict, "null": type(None),
    }  # fmt: skip
    return isinstance(value, kinds[kind])


def _wrong_length(value: str, schema: Schema, where: str) -> str | None:
    if len(value) > schema.get("maxLength", len(value)):
        return f"{where} has at most {schema['maxLength']:,} characters"
    return f"{where} is empty" if len(value) < schema.get("minLength", 0) else None


def _out_of_range(value: float, schema: Schema, where: str) -> str | None:
    if not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        return f"{where} is from {schema['minimum']:,} to {schema['maximum']:,}"
    return f"{where} is more than 0" if value <= schema.get("exclusiveMinimum", value - 1) else None
