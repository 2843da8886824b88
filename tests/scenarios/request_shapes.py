# SPDX-License-Identifier: Apache-2.0
"""Every list, map, text and number of every kind, each filled to the limit of a body in all the ways there are.

The places come from the schema, path by path; where a message contains itself, one round is made. The ways ("shapes")
depend on the type of a field only. Who may send it is not decided here: `Rights` asks the server.
"""

from __future__ import annotations

import copy
import functools
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from handfast.api import kinds
from handfast.api.schema import schema
from tests.properties import sample_documents
from tests.scenarios import costly_requests as costly
from tests.world import stalls

# What a body may have, with room for the rest of the document.
BODY = (3 << 20) - 64_000
HOLE = "@@hole@@"
MERGE, STRATEGIC, APPLY = costly.MERGE, costly.STRATEGIC, costly.APPLY
# How a document is sent: method, media type, the verb it needs.
WAYS: dict[str, tuple[str, str, str]] = {
    "post": ("POST", "application/json", "create"),
    "put": ("PUT", "application/json", "update"),
    "merge": ("PATCH", MERGE, "patch"),
    "strategic": ("PATCH", STRATEGIC, "patch"),
    "apply": ("PATCH", APPLY, "patch"),
}
Fill = Callable[[int], bytes]


# Compared by identity: there is one of each.
@dataclass(frozen=True, eq=False)
class Place:
    """A field of a kind, or of what one of its subresources takes."""

    kind: kinds.Kind
    subresource: str
    message: str
    path: tuple[str, ...]
    owner: str
    field: schema.Field
    number: int

    @property
    def type(self) -> str:
        """list, map, text, number, form (JSON that is no object) or message."""
        if self.field.is_map:
            return "map"
        if self.field.repeated:
            return "list"
        if self.field.type in {"string", "bytes"}:
            return "text"
        if schema.is_scalar(self.field.type):
            return "number"
        return "form" if schema.message(self.field.type).json_form else "message"


# --- places -----------------------------------------------------------------------------------------------------------


def fields(
    message: str, path: tuple[str, ...] = (), above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], str, schema.Field]]:
    for field in schema.message(message).fields.values():
        below = (*path, field.name)
        yield below, message, field
        if schema.is_scalar(field.type) or schema.message(field.type).json_form or field.type in above:
            continue
        yield from fields(field.type, below, (*above, field.type))


@functools.cache
def places() -> tuple[Place, ...]:
    found: list[Place] = []
    for kind in kinds.builtin():
        for subresource, message in (("", kind.message), *_subresources(kind)):
            for path, owner, field in fields(message):
                # What the status subresource takes is the whole object; there only the status is worth a look.
                if subresource == "status" and path[0] != "status":
                    continue
                found.append(Place(kind, subresource, message, path, owner, field, len(found)))
    return tuple(found)


def _subresources(kind: kinds.Kind) -> Iterator[tuple[str, str]]:
    messages = {(row["group"], row["version"], row["kind"]): row["message"] for row in schema.kind_rows()}
    for row in kind.subresources:
        place = (row.group, row.version, row.kind) if row.version else (kind.group, kind.version, row.kind)
        yield row.name, messages[place]


# --- shapes -----------------------------------------------------------------------------------------------------------


def repeated(one: bytes, opening: bytes = b"[", closing: bytes = b"]") -> Fill:
    return lambda size: opening + b",".join([one] * max(1, size // (len(one) + 1))) + closing


def counted(template: bytes, opening: bytes = b"[", closing: bytes = b"]") -> Fill:
    def fill(size: int) -> bytes:
        count = size // (len(template) + 5)
        return opening + b",".join([template % number for number in range(count)]) + closing

    return fill


def giant(part: bytes, before: bytes = b'"', after: bytes = b'"') -> Fill:
    return lambda size: before + part * (size // len(part)) + after


def nested(size: int) -> bytes:
    """Towers of lists as high as is allowed, side by side."""
    tower = b"[" * 100 + b"]" * 100
    return b"[" + b",".join([tower] * (size // 201)) + b"]"


def _map(value: bytes, wrong: bytes, texts: dict[str, Fill]) -> dict[str, Fill]:
    filled = {
        "keys": counted(b'"k%d":' + value, b"{", b"}"),
        "bad-keys": counted(b'"_%d/ ":' + value, b"{", b"}"),
        "equal-keys": repeated(b'"k":' + value, b"{", b"}"),
        "giant-key": lambda size: b'{"' + b"k" * size + b'":' + value + b"}",
        "nulls": counted(b'"k%d":null', b"{", b"}"),
        "wrong-values": counted(b'"k%d":' + wrong, b"{", b"}"),
        "wrong": repeated(b"{}"),
    }
    for name, fill in texts.items():
        filled[f"value-{name}"] = functools.partial(_in_map, fill)
    return filled


def _in_map(fill: Fill, size: int) -> bytes:
    return b'{"k":' + fill(size) + b"}"


_TEXT: dict[str, Fill] = {
    "giant": giant(b"a"),
    "giant-dots": giant(b"a."),
    "giant-slashes": giant(b"a/"),
    "giant-escapes": giant(rb"\u0000"),
    "wrong": repeated(b"{}"),
}
_BYTES: dict[str, Fill] = {
    "giant": giant(b"QUJD"),
    # "-----BEGIN CERTIFICATE REQUEST-----\n" over and over.
    "giant-pem": giant(b"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K"),
    "giant-bad": giant(b"!"),
    "wrong": repeated(b"{}"),
}
_NUMBER: dict[str, Fill] = {
    "giant": lambda size: b"1" * size,
    "giant-fraction": lambda size: b"0." + b"1" * size,
    "giant-text": giant(b"1"),
    "wrong": repeated(b"{}"),
}
_QUANTITY: dict[str, Fill] = {
    "giant": giant(b"1"),
    "giant-fraction": giant(b"1", b'"0.'),
    "giant-exponent": giant(b"9", b'"1e'),
    "wrong": repeated(b"{}"),
}
_RAW: dict[str, Fill] = {
    "lists": repeated(b"[]", b'{"f":[', b"]}"),
    "keys": counted(b'"f:k%d":{}', b"{", b"}"),
    "nested": lambda size: b'{"f":' + nested(size) + b"}",
}
_FORMS: dict[str, dict[str, Fill]] = {
    "string": _QUANTITY,
    "int|string": {"giant": giant(b"1"), "giant-letters": giant(b"a"), "wrong": repeated(b"{}")},
    "rfc3339-seconds|null": {"giant": giant(b"2026-01-02T03:04:05Z"), "wrong": repeated(b"{}")},
    "rfc3339-micros|null": {"giant": giant(b"2026-01-02T03:04:05.000006Z"), "wrong": repeated(b"{}")},
    "array": {"empty": repeated(b'""'), "distinct": counted(b'"a%d"'), "wrong": repeated(b"{}")},
    "raw": _RAW,
}
_MESSAGE: dict[str, Fill] = {
    "wrong": repeated(b"{}"),
    "unknown-keys": counted(b'"u%d":0', b"{", b"}"),
    "unknown-lists": repeated(b"[]", b'{"u":[', b"]}"),
    "unknown-equal": repeated(b'"u":0', b"{", b"}"),
    "unknown-nested": lambda size: b'{"u":' + nested(size) + b"}",
}


@functools.cache
def shapes(place: Place) -> dict[str, Fill]:
    """The ways to fill a field, by name."""
    field = place.field
    if place.type == "map":
        return _maps(field)
    if place.type == "list":
        return _lists(place)
    if place.type == "text":
        return _TEXT if field.type == "string" else _BYTES
    if place.type == "number":
        return {"wrong": repeated(b"{}")} if field.type == "bool" else _NUMBER
    if place.type == "form":
        return _FORMS.get(schema.message(field.type).json_form, _RAW)
    return _MESSAGE


def _maps(field: schema.Field) -> dict[str, Fill]:
    if field.type in {"string", "bytes"}:
        return _map(b'""', b"0", _TEXT if field.type == "string" else _BYTES)
    if schema.is_scalar(field.type):
        return _map(b"0", b'""', {})
    form = schema.message(field.type).json_form
    if form == "string":
        return _map(b'"1"', b"{}", _QUANTITY)
    return _map(b"[]" if form == "array" else b"{}", b"0", {})


def _lists(place: Place) -> dict[str, Fill]:
    field = place.field
    common = {"nulls": repeated(b"null"), "wrong-map": counted(b'"k%d":0', b"{", b"}"), "wrong-lists": repeated(b"[]")}
    if field.type in {"string", "bytes"}:
        return {
            **common,
            "empty": repeated(b'""'),
            "equal": repeated(b'"YQ=="' if field.type == "bytes" else b'"a"'),
            "distinct": counted(b'"a%d"'),
            "bad": counted(b'"_%d/ "'),
            "wrong": repeated(b"0"),
            "one-giant": lambda size: b"[" + giant(b"a")(size) + b"]",
        }
    if schema.is_scalar(field.type):
        return {**common, "equal": repeated(b"0"), "distinct": counted(b"%d"), "wrong": repeated(b'""')}
    message = schema.message(field.type)
    if message.json_form:
        return {**common, "empty": repeated(b'""'), "objects": repeated(b"{}")}
    return {**common, **_of_messages(place, message)}


def _of_messages(place: Place, message: schema.Message) -> dict[str, Fill]:
    texts = [
        name
        for name, field in message.fields.items()
        if field.type == "string" and not field.repeated and not field.is_map
    ]
    filled = {
        "empty": repeated(b"{}"),
        "wrong": repeated(b"0"),
        "unknown": repeated(b'{"u":0}'),
        "unknown-distinct": counted(b'{"u%d":0}'),
    }
    key = next(
        (name for name in (*place.field.keys, place.field.patch_key) if name in texts), texts[0] if texts else ""
    )
    if key:
        filled["distinct"] = counted(json.dumps({key: "a@"}, separators=(",", ":")).encode().replace(b"@", b"%d"))
        filled["equal"] = repeated(json.dumps({key: "a"}, separators=(",", ":")).encode())
        bad = json.dumps(dict.fromkeys(texts[:4], "_@/ "), separators=(",", ":")).encode()
        filled["bad"] = counted(bad.replace(b"@", b"%d", 1).replace(b"@", b""))
    good = _sample_element(place)
    if good is not None and key:
        text = json.dumps({**good, key: "a@"}, separators=(",", ":")).encode().replace(b"%", b"%%")
        filled["good"] = counted(text.replace(b"a@", b"a%d"))
    inner = next((name for name, field in message.fields.items() if field.repeated), "")
    if inner:
        filled["two-levels"] = functools.partial(_two_levels, inner)
    return filled


def _two_levels(inner: str, size: int) -> bytes:
    """A thousand elements, each with a list of its own."""
    one = b'{"' + inner.encode() + b'":[' + b",".join([b"{}"] * (size // 3000)) + b"]}"
    return repeated(one)(size)


def _sample_element(place: Place) -> dict[str, Any] | None:
    found: Any = base(place.kind, place.subresource, "x")
    for step in place.path:
        if isinstance(found, list):
            found = found[0] if found else None
        found = found.get(step) if isinstance(found, dict) else None
    element = found[0] if isinstance(found, list) and found else None
    return element if isinstance(element, dict) else None


# --- documents --------------------------------------------------------------------------------------------------------


_QUESTIONS: dict[str, Any] = {
    "tokenreviews": {"token": "a.b.c"},
    "selfsubjectreviews": None,
    "subjectaccessreviews": {"user": "ada", "resourceAttributes": {"verb": "get", "resource": "pods"}},
    "localsubjectaccessreviews": {
        "user": "ada",
        "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"},
    },
    "selfsubjectaccessreviews": {"resourceAttributes": {"verb": "get", "resource": "pods"}},
    "selfsubjectrulesreviews": {"namespace": "default"},
}
_SUB_DOCUMENTS: dict[str, Any] = {
    "token": {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}},
    "eviction": {"apiVersion": "policy/v1", "kind": "Eviction"},
    "binding": {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "n1"}},
    "scale": {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 1}},
}


def base(kind: kinds.Kind, subresource: str, name: str) -> dict[str, Any]:
    """A valid document for this place."""
    if subresource in _SUB_DOCUMENTS:
        return {**copy.deepcopy(_SUB_DOCUMENTS[subresource]), "metadata": {"name": name}}
    if kind.plural in _QUESTIONS:
        made: dict[str, Any] = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {}}
        if _QUESTIONS[kind.plural] is not None:
            made["spec"] = copy.deepcopy(_QUESTIONS[kind.plural])
        return made
    made = sample_documents.document(kind)
    made["metadata"] = {"name": name}
    if kind.plural == "pods":
        made["spec"]["serviceAccountName"] = "default"
    if kind.plural == "certificatesigningrequests":
        made["spec"]["request"] = costly.signing_request()
        del made["spec"]["username"]
        made.pop("status")
    if kind.plural == "customresourcedefinitions":
        made["spec"].pop("conversion")
    return made


def with_hole(document: dict[str, Any], path: tuple[str, ...], message: str) -> dict[str, Any]:
    """The document with HOLE at a path, and whatever has to be around it."""
    here: Any = document
    for step in path[:-1]:
        field = schema.message(message).fields[step]
        if not isinstance(here.get(step), list if field.repeated else dict):
            here[step] = [{}] if field.repeated else {"k": {}} if field.is_map else {}
        here = here[step]
        if field.repeated:
            if not here or not isinstance(here[0], dict):
                here[:] = [{}]
            here = here[0]
        elif field.is_map:
            here = here.setdefault(next(iter(here), "k"), {})
        message = field.type
    here[path[-1]] = HOLE
    return document


def body(place: Place, fill: Fill, name: str) -> bytes:
    text = costly.dump(with_hole(base(place.kind, place.subresource, name), place.path, place.message))
    before, _, after = text.partition(f'"{HOLE}"'.encode())
    return before + fill(BODY - len(text)) + after


# --- who may, and where -----------------------------------------------------------------------------------------------


def space(kind: kinds.Kind, caller: str) -> str:
    if not kind.namespaced:
        return ""
    return "kube-node-lease" if caller == stalls.NODE and kind.plural == "leases" else "default"


def collection(kind: kinds.Kind, caller: str) -> str:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    place = space(kind, caller)
    return f"{root}/namespaces/{place}/{kind.plural}" if place else f"{root}/{kind.plural}"


class Rights:
    """Who of those that are not trusted may do what, as the server itself says when they ask about themselves."""

    # From the least trusted on. Whatever any user may, a bootstrap token may as well.
    CALLERS = (stalls.TOKEN, stalls.NODE, stalls.EDIT)

    def __init__(self, server: stalls.Server) -> None:
        self._server = server
        self._known: dict[tuple[tuple[str, str], str, str], str] = {}

    def who(self, kind: kinds.Kind, subresource: str, verb: str) -> str:
        """The least trusted who may, and whose honest object would be taken; nobody is an empty string."""
        key = (kind.resource, subresource, verb)
        if key not in self._known:
            row = kind.subresource(subresource)
            verbs = row.verbs if row is not None else kind.verbs
            able = [caller for caller in self.CALLERS if verb in verbs and self._may(caller, kind, subresource, verb)]
            taken = (caller for caller in able if self._is_taken(caller, kind, subresource, verb))
            self._known[key] = next(taken, able[0] if able else "")
        return self._known[key]

    def _may(self, caller: str, kind: kinds.Kind, subresource: str, verb: str) -> bool:
        attributes = {
            "group": kind.group,
            "version": kind.version,
            "resource": kind.plural,
            "subresource": subresource,
            "verb": verb,
            "namespace": space(kind, caller),
            "name": stalls.NODE_NAME if caller == stalls.NODE else "",
        }
        document = costly.dump({"spec": {"resourceAttributes": attributes}})
        code, answer = self._server.wire(caller).ask("POST", costly.SELF_REVIEWS, document, stalls.JSON)
        assert code == 201, answer
        return bool(json.loads(answer)["status"]["allowed"])

    def _is_taken(self, caller: str, kind: kinds.Kind, subresource: str, verb: str) -> bool:
        """Admission looks at objects: a node, say, may create no Pods but mirror Pods."""
        if verb != "create" or subresource or kind.verbs == ("create",):
            return True
        name = stalls.NODE_NAME if caller == stalls.NODE else "stall-taken"
        path = f"{collection(kind, caller)}?dryRun=All"
        code, _ = self._server.wire(caller).ask("POST", path, costly.dump(base(kind, "", name)), stalls.JSON)
        return code == 201


# --- cases ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A place, a shape and a way to send it."""

    place: Place
    shape: str
    way: str
    caller: str

    @property
    def name(self) -> str:
        place = self.place
        resource = f"{place.kind.plural}.{place.kind.group}" if place.kind.group else place.kind.plural
        where = f"{resource}/{place.subresource}" if place.subresource else resource
        return f"{self.caller} {self.way} {where} {'.'.join(place.path)} {self.shape}"

    def attack(self) -> stalls.Attack:
        place, kind = self.place, self.place.kind
        method, media, _ = WAYS[self.way]
        where = collection(kind, self.caller)
        fixed = (
            stalls.NODE_NAME if self.caller == stalls.NODE and kind.plural in {"nodes", "leases", "csinodes"} else ""
        )
        fill = shapes(place)[self.shape]
        named = method != "POST" or bool(place.subresource)
        # Apply makes what is not there, but no subresource of it.
        exists = named and (self.way != "apply" or bool(place.subresource))
        path = f"{where}/{{name}}" + (f"/{place.subresource}" if place.subresource else "") if named else where
        question = kind.verbs == ("create",)
        return stalls.Attack(
            name=self.name,
            caller=self.caller,
            method=method,
            path=path + ("?fieldManager=stalls&force=true" if self.way == "apply" else ""),
            body=lambda name: body(place, fill, name),
            media=media,
            before=(("POST", where, lambda name: base(kind, "", name)),) if exists else (),
            after=() if question else (("DELETE", f"{where}/{{name}}?gracePeriodSeconds=0"),),
            fixed_name=fixed,
        )


def cases(rights: Rights, ways: Iterable[str] = tuple(WAYS)) -> Iterator[Case]:
    """All there are: hundreds of thousands."""
    for place in places():
        for way in ways:
            caller = rights.who(place.kind, place.subresource, WAYS[way][2])
            if caller:
                for shape in shapes(place):
                    yield Case(place, shape, way, caller)


def order(case: Case) -> int:
    """A shuffle that is the same every time."""
    return zlib.crc32(f"{case.place.number} {case.shape} {case.way}".encode())


def union(found: Iterable[Case]) -> list[Case]:
    """Few cases that together have every list and map of every message, every shape in every way, and every kind."""
    rows = [(case, _shown_by(case)) for case in sorted(found, key=order)]
    seen: set[tuple[str, ...]] = set()
    chosen: list[Case] = []
    # Those that show most at once come first.
    for most in (3, 2, 1):
        for case, shown in rows:
            if len(shown - seen) >= most:
                chosen.append(case)
                seen |= shown
    return chosen


def _shown_by(case: Case) -> set[tuple[str, ...]]:
    place = case.place
    shown: set[tuple[str, ...]] = {
        ("kind", place.kind.group, place.kind.plural, place.subresource, case.way),
        ("shape", place.type, case.shape, case.way),
    }
    if place.type in {"list", "map"}:
        shown.add(("field", place.owner, place.field.name))
    return shown


def sample(found: Iterable[Case], count: int) -> list[Case]:
    """So many cases, the same every time."""
    return sorted(found, key=order)[:count]


def every_field_once(found: Iterable[Case]) -> list[Case]:
    """Each shape of each field of each message once, in the first place and the first way by which it can be reached."""
    known: dict[tuple[str, str, str], Case] = {}
    for case in sorted(found, key=order):
        known.setdefault((case.place.owner, case.place.field.name, case.shape), case)
    return list(known.values())
