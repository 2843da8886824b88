# SPDX-License-Identifier: Apache-2.0
"""The audit log of a served world: a line for every request with who, how, what, the decision and the outcome; no secrets.

Rotation, losses and the shape of single texts are tested with `audit_log` and `rotating`. What is sent here is sent over
TLS, and the file is read when the server has stopped.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import logging
import pathlib
import urllib.parse
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import structlog

from handfast.apiserver import limits as limits_module
from handfast.assembly import apiserver
from handfast.telemetry import log
from tests.scenarios import callers, refusals, wire
from tests.world import world as worlds

pytestmark = [pytest.mark.slow, pytest.mark.on_etcd]
BOOTSTRAP = "foobar.circumnavigation"
SECRETS = "/api/v1/namespaces/default/secrets"
# A watch that begins with what there is waits for no version to come.
FUTURE = "watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&resourceVersion=999999"
NOBODY_KNOWS = {"username": "system:anonymous", "groups": ["system:unauthenticated"]}


@pytest.fixture
def audit_file(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "audit.log"


@contextlib.asynccontextmanager
async def audited_world(
    directory: pathlib.Path, audit_file: pathlib.Path, **options: Any
) -> AsyncIterator[worlds.World]:
    async with worlds.world(directory, audit=apiserver.AuditOptions(path=str(audit_file)), **options) as made:
        yield made


class Trail:
    """Requests with what their lines must say, put together while the server runs and compared when it has stopped."""

    def __init__(self) -> None:
        self._expected: list[tuple[str, dict[str, Any]]] = []

    def expect(self, number: str, **said: Any) -> None:
        self._expected.append((number, said))

    def compare(self, path: pathlib.Path) -> None:
        lines = callers.audited_by_id(path)
        for number, said in self._expected:
            line = lines[number]
            notes, answer = line["annotations"], line.get("responseStatus", {})
            found = {
                "who": line["user"].get("username", ""),
                "by": notes.get("handfast.dev/authenticated-by", ""),
                "verb": line["verb"],
                "what": line.get("objectRef"),
                "uri": line["requestURI"],
                "decision": notes.get("authorization.k8s.io/decision", ""),
                "reason": notes.get("authorization.k8s.io/reason", ""),
                "because": notes.get("handfast.dev/refused-because", "").partition(":")[0],
                "code": answer.get("code"),
                "says": answer.get("reason", ""),
            }
            assert found == {**found, **said}, line
            assert (line["apiVersion"], line["kind"], line["level"]) == ("audit.k8s.io/v1", "Event", "Metadata")
            assert (line["stage"], line["sourceIPs"]) == ("ResponseComplete", ["127.0.0.1"])
            assert int(notes["handfast.dev/latency-us"]) >= 0


def config_map(name: str = "", **more: str) -> dict[str, str]:
    named = {"name": name} if name else {}
    return {"resource": "configmaps", "namespace": "default", **named, "apiVersion": "v1", **more}


class TestOutcomes:
    async def test_every_outcome(self, tmp_path: pathlib.Path, audit_file: pathlib.Path) -> None:
        trail = Trail()
        async with audited_world(tmp_path / "d", audit_file) as world:
            await self._allowed(world, trail)
            await self._refused(world, trail)
            await self._impersonated(world, trail)
        trail.compare(audit_file)

    async def _allowed(self, world: worlds.World, trail: Trail) -> None:
        said = {"who": "kubernetes-admin", "by": "x509", "decision": "allow", "reason": "member of system:masters"}
        document = {"metadata": {"name": "a"}}
        rows: list[tuple[str, str, Any, str, int, str]] = [
            ("POST", "", document, "create", 201, ""),
            ("GET", "/a", None, "get", 200, ""),
            ("GET", "?limit=5", None, "list", 200, ""),
            ("POST", "", document, "create", 409, "AlreadyExists"),
            ("GET", "/absent", None, "get", 404, "NotFound"),
            ("POST", "", {"metadata": {"name": "A B"}}, "create", 422, "Invalid"),
            ("DELETE", "/a", None, "delete", 200, ""),
        ]
        for method, path, body, verb, code, says in rows:
            answer = await world.request(method, callers.CONFIG_MAPS + path, body)
            # A create has no name in its URL: the line says which one the object got, if it was made.
            name = "a" if code == 201 else path[1:] if path.startswith("/") else ""
            what = config_map(name)
            uri = callers.CONFIG_MAPS + path
            number = answer.headers["Audit-Id"]
            trail.expect(number, verb=verb, code=code, says=says, what=what, uri=uri, because="", **said)
        answer = await world.get("/version")
        trail.expect(answer.headers["Audit-Id"], verb="get", code=200, what=None, uri="/version", **said)

    async def _refused(self, world: worlds.World, trail: Trail) -> None:
        nobody, jane = world.anonymous_context(), world.context_for("jane")
        token = await callers.bootstrap_token(world)
        robot = await callers.account_token(world)
        bad = await world.get(callers.CONFIG_MAPS, context=nobody, headers=callers.bearer("foobar.0123456789abcdef"))
        # Nobody was proven to ask: not even that it was a stranger.
        trail.expect(
            bad.headers["Audit-Id"],
            who="",
            by="",
            code=401,
            says="Unauthorized",
            because="WrongTokenSecret",
            decision="",
        )
        forbidden: list[tuple[Any, dict[str, str], str, str]] = [
            (nobody, {}, "system:anonymous", "anonymous"),
            (jane, {}, "jane", "x509"),
            (nobody, callers.bearer(token), "system:bootstrap:foobar", "bootstrap-token"),
            (nobody, callers.bearer(robot), "system:serviceaccount:default:robot", "service-account-token"),
        ]
        for context, headers, who, by in forbidden:
            answer = await world.get(f"{callers.CONFIG_MAPS}/a", context=context, headers=headers)
            trail.expect(
                answer.headers["Audit-Id"],
                who=who,
                by=by,
                verb="get",
                what=config_map("a"),
                code=403,
                says="Forbidden",
                decision="forbid",
                reason=f'User "{who}" cannot get resource "configmaps" in API group "" in the namespace "default"',
                because="NoRuleAllows",
            )
        answer = await world.request("DELETE", "/api/v1/namespaces/kube-system")
        trail.expect(
            answer.headers["Audit-Id"],
            code=403,
            says="Forbidden",
            decision="allow",
            reason="member of system:masters",
            because="ProtectedNamespace",
        )
        assert await callers.refusals(world, "ProtectedNamespace", "admission") == 1
        missing = await world.get("/apis/frob.example.com/v1/frobs")
        what = {"resource": "frobs", "apiGroup": "frob.example.com", "apiVersion": "v1"}
        trail.expect(missing.headers["Audit-Id"], code=404, what=what, decision="allow")

    async def _impersonated(self, world: worlds.World, trail: Trail) -> None:
        headers = {"Impersonate-User": "alice", "Impersonate-Group": "system:masters"}
        for given, code in ((headers, 200), ({"Impersonate-User": "alice"}, 403)):
            answer = await world.get(callers.CONFIG_MAPS, headers=dict(given))
            trail.expect(answer.headers["Audit-Id"], who="kubernetes-admin", by="x509", code=code)
        jane = world.context_for("jane")
        answer = await world.get(callers.CONFIG_MAPS, headers=headers, context=jane)
        # She was not let act as anybody.
        trail.expect(answer.headers["Audit-Id"], who="jane", code=403, decision="forbid")

    async def test_in_whose_name(self, tmp_path: pathlib.Path, audit_file: pathlib.Path) -> None:
        async with audited_world(tmp_path / "d", audit_file) as world:
            answer = await world.get(callers.CONFIG_MAPS, headers={"Impersonate-User": "alice"})
            other = await world.get(callers.CONFIG_MAPS)
        lines = callers.audited_by_id(audit_file)
        line = lines[answer.headers["Audit-Id"]]
        assert line["impersonatedUser"] == {"username": "alice", "groups": ["system:authenticated"]}
        assert line["user"]["username"] == "kubernetes-admin"
        assert "impersonatedUser" not in lines[other.headers["Audit-Id"]]

    async def test_a_watch_has_a_line_at_both_ends(self, tmp_path: pathlib.Path, audit_file: pathlib.Path) -> None:
        async with (
            audited_world(tmp_path / "d", audit_file) as world,
            callers.watching(world, world.admin_context()) as watch,
        ):
            await world.movable().advance(7.5)
            world.server.hub.end_all()
            await watch.ended()
        started, complete = [line for line in callers.audited(audit_file) if line["verb"] == "watch"]
        assert started["auditID"] == complete["auditID"]
        assert (started["stage"], complete["stage"]) == ("ResponseStarted", "ResponseComplete")
        assert (started["responseStatus"]["code"], complete["responseStatus"]["code"]) == (200, 200)
        assert complete["annotations"]["handfast.dev/latency-us"] == "7500000"
        assert started["stageTimestamp"] == complete["requestReceivedTimestamp"] < complete["stageTimestamp"]

    @pytest.mark.parametrize(
        ("path", "code"),
        [
            ("/apis/frob.example.com/v1/frobs?watch=true", 404),
            (f"{callers.CONFIG_MAPS}?watch=true&fieldSelector=data.a=b", 400),
            (f"{callers.CONFIG_MAPS}?{FUTURE}", 504),
        ],
    )
    async def test_a_watch_that_is_refused_has_not_started(
        self, tmp_path: pathlib.Path, audit_file: pathlib.Path, path: str, code: int
    ) -> None:
        async with audited_world(tmp_path / "d", audit_file) as world:
            refused = asyncio.ensure_future(world.get(path))
            while not refused.done():
                await world.movable().advance(1.0)
            assert (await refused).status == code
        [line] = [line for line in callers.audited(audit_file) if line["verb"] == "watch"]
        assert (line["stage"], line["responseStatus"]["code"]) == ("ResponseComplete", code)

    async def test_too_many_requests(self, tmp_path: pathlib.Path, audit_file: pathlib.Path) -> None:
        few = limits_module.Limits(anonymous_per_second=0.001, anonymous_burst=2)
        async with audited_world(tmp_path / "d", audit_file, limits=few) as world:
            nobody = world.anonymous_context()
            answers = [await world.get("/version", context=nobody) for _ in range(3)]
            assert [answer.status for answer in answers] == [200, 200, 429]
            assert await callers.refusals(world, "TooManyRequests", "ratelimit") == 1
            assert int(answers[-1].headers["Retry-After"]) >= 1
        line = callers.audited_by_id(audit_file)[answers[-1].headers["Audit-Id"]]
        assert (line["responseStatus"]["code"], line["responseStatus"]["reason"]) == (429, "TooManyRequests")
        assert line["user"] == NOBODY_KNOWS

    async def test_one_line_for_each_request(self, tmp_path: pathlib.Path, audit_file: pathlib.Path) -> None:
        async with audited_world(tmp_path / "d", audit_file) as world:
            numbers = []
            for at in range(50):
                context = None if at % 2 else world.anonymous_context()
                path = f"{callers.CONFIG_MAPS}/c{at}" if at % 3 else "/healthz"
                numbers.append((await world.get(path, context=context)).headers["Audit-Id"])
        assert [line["auditID"] for line in callers.audited(audit_file)] == numbers
        assert len(set(numbers)) == 50


@pytest.fixture
def real_log() -> Iterator[io.BytesIO]:
    """Lines as they are written in production, from the lowest level on."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.BytesIO()
    log.configure(level="debug", stream=stream, terminal=False)
    yield stream
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def escaped(text: str, layers: int) -> str:
    """Every character as an escape, so many times over."""
    for _ in range(layers):
        text = "".join(f"%{octet:02x}" for octet in text.encode()) if "%" not in text else urllib.parse.quote(text)
    return text


class TestSecrets:
    VALUE = "hunter2-hunter2-hunter2"

    def _traces(self, robot: str) -> list[str]:
        """What must not be found anywhere: the secret halves, plain, in base64, and in a line of JSON."""
        plain = [BOOTSTRAP.partition(".")[2], robot.split(".")[1], robot.split(".")[2], self.VALUE]
        return [*plain, *(base64.b64encode(text.encode()).decode() for text in (plain[0], self.VALUE))]

    async def test_credentials_wherever_they_are_put(
        self, tmp_path: pathlib.Path, audit_file: pathlib.Path, real_log: io.BytesIO
    ) -> None:
        async with audited_world(tmp_path / "d", audit_file) as world:
            await callers.bootstrap_token(world)
            robot = await callers.account_token(world)
            metrics = ""
            for token in (BOOTSTRAP, robot, f"{BOOTSTRAP[:-1]}x"):
                await self._everywhere(world, token)
                metrics += (await world.get("/metrics")).body.decode()
            # Also what begins like one, and is wrong.
            wrong = f"{robot[:-8]}AAAAAAAA"
            await self._everywhere(world, wrong)
        written, logged = audit_file.read_text(), real_log.getvalue().decode()
        assert written.count("<redacted>") > 20
        assert logged.count("request refused") > 20
        for trace in (*self._traces(robot), BOOTSTRAP[7:-1], wrong.split(".")[2]):
            for place, text in (("audit", written), ("log", logged), ("metrics", metrics)):
                assert trace not in urllib.parse.unquote(urllib.parse.unquote(text)), (place, trace)

    async def _everywhere(self, world: worlds.World, token: str) -> None:
        nobody, jane = world.anonymous_context(), world.context_for("jane")
        paths = [
            *(f"{SECRETS}/{token}", f"/{token}", f"/{token}?{token}={token}", f"{SECRETS}?token={token}"),
            *(f"{SECRETS}?fieldSelector=metadata.name={token}", f"{SECRETS}?labelSelector={token}"),
            *(f"/apis/{token}/v1/x", f"/api/v1/namespaces/{token}/{token}", f"{SECRETS}?continue={token}"),
            *(f"{SECRETS}/{escaped(token, layers)}" for layers in (1, 2)),
            *(f"{SECRETS}?limit={escaped(token, layers)}" for layers in (1, 2)),
        ]
        headers = [
            *({"Authorization": f"{scheme} {token}"} for scheme in ("Bearer", "bearer", "Basic", "Frob")),
            *({name: token} for name in ("User_Agent", "Cookie", "Accept", "If_None_Match", "X_Forwarded_For")),
            *({"Impersonate_User": token}, {"Impersonate_User": "a", "Impersonate_Group": token}),
            *({f"Impersonate_Extra_{token}": token, "Impersonate_User": "a"}, {"User_Agent": f"Bearer {token}"}),
            {"Content_Type": token},
        ]
        for context in (nobody, jane, world.admin_context()):
            async with wire.line(world.server.address[1], context) as line:
                for path in paths:
                    await line.ask("GET", path)
                for given in headers:
                    await line.ask("POST", SECRETS, b"{}", **given)
                await line.ask("POST", callers.TOKEN_REVIEWS, b'{"spec":{"token":"%s"}}' % token.encode())
                await line.ask(
                    "POST", SECRETS, b'{"metadata":{"name":"%s","labels":{"a":"%s"}}}' % ((token.encode(),) * 2)
                )
        async with wire.line(world.server.address[1], jane) as line:
            # Methods are a caller's own words, too; a long one ends the connection.
            await line.send(wire.request(token, SECRETS))
            await line.rest()

    async def test_values_of_secrets(
        self, tmp_path: pathlib.Path, audit_file: pathlib.Path, real_log: io.BytesIO
    ) -> None:
        packed, value = base64.b64encode(self.VALUE.encode()).decode(), self.VALUE
        meta = {"name": "s"}
        bodies: list[Any] = [
            {"metadata": meta, "data": {"k": packed}, "stringData": {"x": value}},
            {"metadata": meta, "data": {"k": packed}},
            *({"metadata": {"name": "t"}, "data": wrong} for wrong in ({"k": value}, {"k": [value]}, value, [value])),
            *({"metadata": {"name": "t"}, "stringData": wrong} for wrong in ({"k": {value: value}}, [value], value)),
            {"metadata": {"name": "t"}, "type": "kubernetes.io/dockerconfigjson", "stringData": {"k": value}},
            {"metadata": {"name": "t"}, "type": "kubernetes.io/tls", "stringData": {"tls.crt": value}},
            b'{"metadata":{"name":"t"},"stringData":{"k":"%s"' % value.encode(),
            b'{"metadata":{"name":"t"},"stringData":{"k":"\x00%s"}}' % value.encode(),
        ]
        patches: list[tuple[str, Any]] = [
            (refusals.MERGE, {"data": {"k": value}}),
            (refusals.MERGE, value.encode()),
            (refusals.JSON_PATCH, [{"op": "test", "path": "/data/k", "value": value}]),
            (refusals.JSON_PATCH, [{"op": "replace", "path": "/data/k/x", "value": value}]),
            (refusals.STRATEGIC, {"stringData": {"k": [value]}}),
            (refusals.APPLY, f"apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\ndata: {{k: {value}}}\n".encode()),
            (refusals.MERGE, {"immutable": True}),
            (refusals.MERGE, {"stringData": {"k": f"other {value}"}}),
        ]
        async with audited_world(tmp_path / "d", audit_file) as world:
            codes = [(await world.request("POST", SECRETS, body)).status for body in bodies]
            assert (codes[0], codes[1], set(codes[2:])) == (201, 409, {400, 422})
            for media, patch in patches:
                headers = {"Content-Type": media}
                await world.request("PATCH", f"{SECRETS}/s?fieldManager=m", patch, headers=headers)
            assert (await world.get(f"{SECRETS}/s")).json()["data"]["k"] == packed
        assert len(callers.audited(audit_file)) == len(bodies) + len(patches) + 1
        for text in (audit_file.read_text(), real_log.getvalue().decode()):
            assert self.VALUE not in text
            assert packed not in text
