# SPDX-License-Identifier: Apache-2.0
"""One line for each request, in the shape of Kubernetes' audit.k8s.io/v1 Event at the level Metadata.

It makes the line; who writes it to a file, and when, is `telemetry.rotating`. What is in a line, and what never is:

1. Who, how they were authenticated, what they asked, what was decided and why, the outcome, and how long it took.
2. Never a body, a header (but for the User-Agent) or a credential. Nothing is copied that is not named here.
3. Of the query only parameters that are known to be harmless keep their values.
4. Whatever a caller can write into it (path, names, User-Agent, user, messages) is looked through for bootstrap tokens,
   JSON web tokens and bearer credentials, escaped or not; they are replaced.
5. Such texts hold no control or invisible characters, and have a length: a line cannot be forged, nor the file filled by
   one request.
6. Requests over their rate limit have at most ten lines a second, and the next line tells how many had none: a flood
   must not push what matters out of the file.

| who | holding | tries | stopped by | shown in tests/unit/apiserver/test_audit_log.py |
|---|---|---|---|---|
| a reader of the file | the file | find a token that somebody put into a URL | 3, 4 | test_tokens_are_taken_out |
| a caller | a name or User-Agent with line breaks | forge a line | 5 | test_a_line_cannot_be_forged |
| a caller | long paths and headers | fill the disk | 5, and the rotation | test_lengths_are_bounded |
| a stranger | a flood of requests | have the trace of another deed rotated away | 6 | test_a_flood_has_few_lines |
"""

from __future__ import annotations

import datetime
import functools
import re
import urllib.parse
from collections.abc import Hashable
from typing import Final

import msgspec
from aiohttp import hdrs

from handfast.api import status
from handfast.apiserver import calls, identity, request
from handfast.apiserver.access import authz
from handfast.apiserver.admission import plugin
from handfast.runtime import clock as clocks
from handfast.serving import buckets
from handfast.telemetry import rotating

REDACTED: Final = "<redacted>"
HARMLESS: Final = frozenset(
    {
        *("labelSelector", "fieldSelector", "limit", "continue", "watch", "allowWatchBookmarks", "sendInitialEvents"),
        *("resourceVersion", "resourceVersionMatch", "timeout", "timeoutSeconds", "pretty", "includeObject"),
        *("dryRun", "fieldManager", "fieldValidation", "force"),
        *("gracePeriodSeconds", "propagationPolicy", "orphanDependents"),
    }
)
RESPONSE_STARTED: Final = "ResponseStarted"
RESPONSE_COMPLETE: Final = "ResponseComplete"

# Characters of a text; twice as many are looked through, so that no token is cut in two before it is found.
_URI_LENGTH = 2048
_NAME_LENGTH = 256
_TEXT_LENGTH = 1024
_AGENT_LENGTH = 256
# A parameter has a name and a value; more than the server reads are not shown.
_PARAMETERS = 100
# Texts looked through: as it is, and with one, two and three layers of escapes taken off.
_LAYERS = 4

_SECRET: Final = re.compile(
    r"(?<![A-Za-z0-9])[a-z0-9]{6}\.[a-z0-9]{16}(?![A-Za-z0-9])"
    # Only from the start of a run of such letters, and without backtracking: else the time would grow with its square.
    r"|(?<![A-Za-z0-9_-])(?=[A-Za-z0-9_-]*eyJ)[A-Za-z0-9_-]{11,}+\.[A-Za-z0-9_.-]*"
    r"|(?i:bearer)[\s+]+[\w.~+/=-]{16,}"
)

# What each of the three has in it, found in a fraction of the time: nearly every text has none of it.
_TOKEN_END: Final = re.compile(r"\.[a-z0-9]{16}")

_USERS_REMEMBERED = 4096
_TARGETS_REMEMBERED = 4096
_TARGET_LENGTH = 256
_LINES_REMEMBERED = 1024
_LINE_LENGTH = 1024
_LIMITED_PER_SECOND = 10.0
_LIMITED_BURST = 10

_VERBS = frozenset(
    {"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "head", "post", "put"}
)


class _Annotations(msgspec.Struct, omit_defaults=True):
    decision: str = msgspec.field(default="", name="authorization.k8s.io/decision")
    reason: str = msgspec.field(default="", name="authorization.k8s.io/reason")
    authenticated_by: str = msgspec.field(default="", name="handfast.dev/authenticated-by")
    serial: str = msgspec.field(default="", name="handfast.dev/certificate-serial")
    refused_because: str = msgspec.field(default="", name="handfast.dev/refused-because")
    noted: str = msgspec.field(default="", name="handfast.dev/noted")
    latency: str = msgspec.field(default="", name="handfast.dev/latency-us")
    unwritten: str = msgspec.field(default="", name="handfast.dev/limited-without-a-line")


class _ResponseStatus(msgspec.Struct, omit_defaults=True):
    metadata: msgspec.Raw
    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0


class _ObjectRef(msgspec.Struct, omit_defaults=True, rename="camel"):
    resource: str = ""
    namespace: str = ""
    name: str = ""
    api_group: str = ""
    api_version: str = ""
    subresource: str = ""


class _UserInfo(msgspec.Struct, omit_defaults=True):
    username: str
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class _Event(msgspec.Struct, omit_defaults=True, rename="camel"):
    kind: str
    api_version: str
    level: str
    audit_id: str = msgspec.field(name="auditID")
    stage: str
    request_uri: msgspec.Raw = msgspec.field(name="requestURI")
    verb: str
    user: msgspec.Raw
    source_ips: tuple[str, ...] = msgspec.field(name="sourceIPs")
    request_received_timestamp: str
    stage_timestamp: str
    annotations: _Annotations | dict[str, str]
    impersonated_user: msgspec.Raw | None = None
    user_agent: str = ""
    object_ref: msgspec.Raw | None = None
    response_status: _ResponseStatus | msgspec.Raw | None = None


_OURS = ("authorization.k8s.io/", "handfast.dev/")
_encode = msgspec.json.Encoder().encode
_NOTHING = msgspec.Raw(b"{}")
# Stands for the id, the source, the two instants and the latency, in this order, in a line that is kept for the next
# request. Nothing that a caller wrote looks like it: see 5.
_HOLE = "\x1a"
_ENCODED_HOLE = _encode(_HOLE)
_HOLES = 5


class AuditLog:
    """Makes lines and hands them on."""

    def __init__(self, writer: rotating.LineWriter, clock: clocks.Clock) -> None:
        self.writer = writer
        self._clock = clock
        self._users: dict[int, tuple[identity.User, msgspec.Raw]] = {}
        self._targets: dict[tuple[str, str, bool], tuple[msgspec.Raw, msgspec.Raw | None]] = {}
        self._lines: dict[tuple[Hashable, ...], tuple[identity.User, list[bytes]]] = {}
        self._limited = buckets.Buckets(_LIMITED_PER_SECOND, _LIMITED_BURST)
        # Requests over their rate limit that had no line since the last one that had.
        self.unwritten = 0

    def write(
        self,
        call: calls.Call,
        code: int,
        seconds: float,
        error: status.StatusError | None = None,
        stage: str = RESPONSE_COMPLETE,
    ) -> None:
        """The line of a request that has been answered with `code` after `seconds`; 0: with nothing."""
        # 6. at most ten lines a second for requests over their rate limit
        if code == 429 and self._limited.wait("", self._clock.monotonic()) > 0.0:
            self.unwritten += 1
            return
        now = self._clock.now()
        micros = int(seconds * 1e6)
        head, source, received, at, latency, rest = self._parts(call, code, error, stage)
        self.writer.add(
            b'%b"%b"%b%b%b%b%b%b%b"%d"%b\n'
            % (
                *(head, call.id.encode(), source, _encode(call.source)),
                *(received, _instant(now - datetime.timedelta(0, 0, micros))),
                *(at, _instant(now), latency, micros, rest),
            )
        )

    def _parts(self, call: calls.Call, code: int, error: status.StatusError | None, stage: str) -> list[bytes]:
        """The line without what fills its holes. In this most requests are like an earlier one, so it is remembered."""
        http, user = call.http, call.user
        target, agent = http.raw_path, http.headers.get(hdrs.USER_AGENT, "")
        special = call.noted or call.created_name or call.annotations or call.impersonator is not None
        if special or error is not None or self.unwritten:
            return self._event(call, code, error, stage).split(_ENCODED_HOLE, _HOLES)
        # Whether it is a resource is not known of a request that was refused before its path was read.
        what = (target, call.info.verb, call.info.is_resource)
        key = (id(user), what, call.decision, agent, code, stage)
        known = self._lines.get(key)
        # The user is kept with it: another could be given the same id.
        if known is not None and known[0] is user:
            return known[1]
        parts = self._event(call, code, error, stage).split(_ENCODED_HOLE, _HOLES)
        if len(target) + len(agent) + len(call.decision) <= _LINE_LENGTH:
            if len(self._lines) >= _LINES_REMEMBERED:
                self._lines.clear()
            self._lines[key] = (user, parts)
        return parts

    def _event(self, call: calls.Call, code: int, error: status.StatusError | None, stage: str) -> bytes:
        """The line with holes for what differs in every request."""
        info, user, impersonator = call.info, call.user, call.impersonator
        uri, reference = self._target(call.http.raw_path, info)
        if call.created_name and not info.name:
            reference = msgspec.Raw(_encode(_object_ref(info, call.created_name)))
        verb = info.verb
        caller = user if impersonator is None else impersonator
        # A refused credential proves nobody, and so does not prove a stranger.
        unknown = caller is identity.ANONYMOUS and isinstance(error, identity.Unauthorized)
        decision = clean(call.decision, _TEXT_LENGTH)
        annotations = _Annotations("allow" if decision else "", decision, latency=_HOLE)
        if not unknown:
            annotations.authenticated_by, annotations.serial = caller.method, caller.serial
        if error is not None or call.noted or self.unwritten:
            self._annotate(annotations, call, error)
        event = _Event(
            "Event",
            "audit.k8s.io/v1",
            "Metadata",
            _HOLE,
            stage,
            uri,
            verb if verb in _VERBS else clean(verb, _NAME_LENGTH),
            _NOTHING if unknown else self._user(caller),
            (_HOLE,),
            _HOLE,
            _HOLE,
            _with(annotations, call.annotations) if call.annotations else annotations,
            None if impersonator is None else self._user(user),
            clean(call.http.headers.get(hdrs.USER_AGENT, ""), _AGENT_LENGTH),
            reference,
            _succeeded(code) if error is None else _failed(code, error),
        )
        return _encode(event)

    def _annotate(self, annotations: _Annotations, call: calls.Call, error: status.StatusError | None) -> None:
        if isinstance(error, authz.Refusal):
            annotations.decision, annotations.reason = "forbid", clean(error.sentence, _TEXT_LENGTH)
            annotations.refused_because = clean(error.why, _TEXT_LENGTH)
        elif isinstance(error, plugin.Refusal):
            annotations.refused_because = clean(error.why, _TEXT_LENGTH)
        elif isinstance(error, identity.Unauthorized):
            annotations.refused_because = clean(f"{error.why}: {error.detail}", _TEXT_LENGTH)
        annotations.noted = clean(call.noted, _TEXT_LENGTH)
        if self.unwritten:
            annotations.unwritten, self.unwritten = str(self.unwritten), 0

    def _user(self, user: identity.User) -> msgspec.Raw:
        known = self._users.get(id(user))
        # The user is kept with it: another could be given the same id.
        if known is not None and known[0] is user:
            return known[1]
        fragment = msgspec.Raw(_encode(_user_info(user)))
        if len(self._users) >= _USERS_REMEMBERED:
            self._users.clear()
        self._users[id(user)] = (user, fragment)
        return fragment

    def _target(self, target: str, info: request.RequestInfo) -> tuple[msgspec.Raw, msgspec.Raw | None]:
        key = (target, info.verb, info.is_resource)
        known = self._targets.get(key)
        if known is None:
            uri = msgspec.Raw(_encode(request_uri(target)))
            known = (uri, msgspec.Raw(_encode(_object_ref(info))) if info.is_resource else None)
            if len(target) <= _TARGET_LENGTH:
                if len(self._targets) >= _TARGETS_REMEMBERED:
                    self._targets.clear()
                self._targets[key] = known
        return known


def _instant(when: datetime.datetime) -> bytes:
    """As Kubernetes' MicroTime, whose six digits are never left out; in quotes."""
    return _encode(when) if when.microsecond else when.strftime('"%Y-%m-%dT%H:%M:%S.000000Z"').encode()


@functools.lru_cache
def _succeeded(code: int) -> msgspec.Raw | None:
    return msgspec.Raw(_encode(_ResponseStatus(_NOTHING, code=code))) if code else None


def _failed(code: int, error: status.StatusError) -> _ResponseStatus:
    return _ResponseStatus(
        _NOTHING, "Failure", clean(error.message, _TEXT_LENGTH), clean(error.reason, _NAME_LENGTH), code
    )


def _with(annotations: _Annotations, said: dict[str, str]) -> dict[str, str]:
    """The server's annotations, and those that webhooks gave; theirs never pass for ours."""
    ours: dict[str, str] = msgspec.to_builtins(annotations)
    theirs = {
        clean(key, _NAME_LENGTH): clean(value, _TEXT_LENGTH) for key, value in said.items() if not key.startswith(_OURS)
    }
    return theirs | ours


def _object_ref(info: request.RequestInfo, created: str = "") -> _ObjectRef:
    """`created` is the name of a new object: its URL has none."""
    parts = (info.plural, info.namespace, info.name or created, info.group, info.version, info.subresource)
    return _ObjectRef(*[clean(part, _NAME_LENGTH) for part in parts])


def _user_info(user: identity.User) -> _UserInfo:
    return _UserInfo(
        clean(user.name, _NAME_LENGTH),
        clean(user.uid, _NAME_LENGTH),
        [clean(group, _NAME_LENGTH) for group in user.groups],
        {
            clean(key, _NAME_LENGTH): [clean(value, _NAME_LENGTH) for value in values]
            for key, values in user.extra.items()
        },
    )


def clean(text: str, length: int) -> str:
    """`text` without tokens, control characters and what is over `length`."""
    return _clean(text if len(text) <= 2 * length else text[: 2 * length], length) if text else ""


@functools.lru_cache(maxsize=4096)
def _clean(text: str, length: int) -> str:
    # 4. tokens, also behind escapes: whoever decodes the line would see them
    plain = text
    for _ in range(_LAYERS):
        if _looks_secret(plain) and _SECRET.search(plain):
            text = plain = _SECRET.sub(REDACTED, plain)
        if "%" not in plain:
            break
        plain = urllib.parse.unquote(plain, errors="replace")
    # 5. no control or invisible characters, and a length
    if not text.isprintable():
        text = "".join(character if character.isprintable() else " " for character in text)
    return text if len(text) <= length else text[: length - 1] + "…"


def _looks_secret(text: str) -> bool:
    return "eyJ" in text or _TOKEN_END.search(text) is not None or "bearer" in text.lower()


def request_uri(target: str) -> str:
    """Path and query of a request as they may be written down."""
    path, mark, query = target[: 2 * _URI_LENGTH].partition("?")
    # 3. only harmless parameters keep their values
    if mark:
        path = f"{path}?{'&'.join(_parameter(part) for part in query.split('&', _PARAMETERS)[:_PARAMETERS])}"
    return clean(path, _URI_LENGTH)


def _parameter(part: str) -> str:
    name, equals, value = part.partition("=")
    if not value or name in HARMLESS or urllib.parse.unquote_plus(name) in HARMLESS:
        return part
    return f"{name}{equals}{REDACTED}"
