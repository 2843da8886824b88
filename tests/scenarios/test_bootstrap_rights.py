# SPDX-License-Identifier: Apache-2.0
"""What a bootstrap token opens, and what no credential at all opens: everything else is enumerated and refused.

The cluster is prepared by the same code as `handfast init`. Every verb on every kind and subresource that is served, in
several namespaces and by several names, and every path that is none of these, is asked twice: of the authorizers, and as
a real request with the token. Both must allow exactly what is written here. What a token with limits may ask for is in
`test_token_limits`.
"""

from __future__ import annotations

import contextlib
import datetime
import http.client
import json
import pathlib
import ssl
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass

import pytest

from handfast.api import kinds
from handfast.bootstrap import cluster_info, first_objects, kubeconfig, tokens
from handfast.client import introduction
from handfast.datadir import layout, preparation
from handfast.rules import access, decision
from handfast.runtime import addresses, tls
from tests.scenarios import controlled
from tests.scenarios import test_own_certificates as own_certificates
from tests.world import world as worlds
from tests.world.clock import MovableClock

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quiet")]

TOKEN = tokens.Token("abcdef", "0123456789abcdef")
SECRETS = "/api/v1/namespaces/kube-system/secrets"
CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
# Names that something is known by; every kind is asked for `x`, too.
NAMES = {
    "configmaps": (
        cluster_info.NAME,
        first_objects.KUBEADM_CONFIG,
        first_objects.KUBELET_CONFIG,
        "kube-proxy",
        "kube-root-ca.crt",
        "extension-apiserver-authentication",
    ),
    "secrets": (tokens.secret_name(TOKEN.id),),
    "namespaces": ("kube-system",),
    "clusterroles": ("cluster-admin",),
}
PATHS = (
    *("/", "/metrics", "/debug/pprof/", "/logs", "/configz", "/.well-known/openid-configuration", "/openid/v1/jwks"),
    *("/healthz", "/livez", "/readyz", "/readyz/ping", "/livez/ping", "/healthz/ping", "/version", "/version/"),
    *("/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1"),
)
METHODS = {
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETE",
}
# Verbs and subresources without a path of their own: others ask whether somebody has them.
UNSERVED = (
    *(("impersonate", "", resource, "") for resource in ("users", "groups", "serviceaccounts")),
    *(("impersonate", "authentication.k8s.io", resource, "") for resource in ("uids", "userextras/scopes")),
    *(
        (verb, "rbac.authorization.k8s.io", role, "")
        for verb in ("bind", "escalate")
        for role in ("roles", "clusterroles")
    ),
    *((verb, "certificates.k8s.io", "signers", "") for verb in ("approve", "sign", "attest")),
    *(
        ("create", "certificates.k8s.io", "certificatesigningrequests", mark)
        for mark in ("nodeclient", "selfnodeclient", "selfnodeserver")
    ),
    *((verb, "", "nodes", "proxy") for verb in ("get", "create")),
    *((verb, "", "pods", "exec") for verb in ("get", "create")),
    ("*", "*", "*", ""),
)

HEALTH = {f"get {path}" for path in PATHS if path.startswith(("/healthz", "/livez", "/readyz"))}
VERSION = {"get /version", "get /version/"}
ANONYMOUS = {"get configmaps kube-public/cluster-info", *HEALTH, *VERSION}
# What everybody has who is somebody.
AUTHENTICATED = {
    "create selfsubjectreviews.authentication.k8s.io",
    "create selfsubjectaccessreviews.authorization.k8s.io",
    "create selfsubjectrulesreviews.authorization.k8s.io",
    *HEALTH,
    *VERSION,
    *(f"get {path}" for path in PATHS if path.startswith(("/api", "/openapi"))),
    "get configmaps kube-public/cluster-info",
}
JOINING = {
    "create certificatesigningrequests.certificates.k8s.io",
    "get certificatesigningrequests.certificates.k8s.io x",
    "list certificatesigningrequests.certificates.k8s.io",
    "watch certificatesigningrequests.certificates.k8s.io",
    "get nodes x",
    "get configmaps kube-system/kubeadm-config",
    "get configmaps kube-system/kubelet-config",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """One question: a verb on a resource, or on a path."""

    verb: str
    group: str = ""
    version: str = ""
    plural: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    def __str__(self) -> str:
        if not self.plural:
            return f"{self.verb} {self.path}"
        resource = (
            f"{self.plural}{f'/{self.subresource}' * bool(self.subresource)}{f'.{self.group}' * bool(self.group)}"
        )
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.verb} {resource} {where}".rstrip()

    def attributes(self, user: str, groups: tuple[str, ...]) -> access.Attributes:
        return access.Attributes(
            user,
            groups,
            self.verb,
            is_resource=bool(self.plural),
            path=self.path,
            group=self.group,
            version=self.version,
            plural=self.plural,
            subresource=self.subresource,
            namespace=self.namespace,
            name=self.name,
        )

    @property
    def target(self) -> str:
        """The path of the request, with what keeps it from changing anything."""
        if not self.plural:
            return self.path
        root = f"/apis/{self.group}" if self.group else "/api"
        space = f"/namespaces/{self.namespace}" if self.namespace else ""
        rest = "/".join(part for part in (self.plural, self.name, self.subresource) if part)
        end = {"watch": "?watch=1", "get": "", "list": ""}.get(self.verb, "?dryRun=All")
        return f"{root}/{self.version}{space}/{rest}{end}"


def served(table: Iterable[kinds.Kind]) -> Iterator[Asked]:
    """Everything there is to ask."""
    for kind in table:
        names = ("x", *NAMES.get(kind.plural, ()))
        for space in SPACES if kind.namespaced else ("",):
            yield from _of_kind(kind, space, names)
        if kind.namespaced:
            # In all namespaces at once.
            yield from (Asked(verb, *_resource(kind)) for verb in ("list", "watch") if verb in kind.verbs)
    for path in PATHS:
        yield from (Asked(verb, path=path) for verb in ("get", "post", "put", "patch", "delete"))


def _resource(kind: kinds.Kind) -> tuple[str, str, str]:
    return kind.group, kind.version, kind.plural


def _of_kind(kind: kinds.Kind, space: str, names: tuple[str, ...]) -> Iterator[Asked]:
    for verb in kind.verbs:
        of_one = verb in {"get", "update", "patch", "delete"}
        for name in names if of_one else ("",):
            yield Asked(verb, *_resource(kind), namespace=space, name=name)
    for sub in kind.subresources:
        yield from (
            Asked(verb, *_resource(kind), sub.name, space, name) for verb in sub.verbs for name in names
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Prepared:
    """A cluster that machines can join, and what can be asked of it."""

    world: worlds.World
    questions: tuple[Asked, ...]
    # TLS without a certificate.
    stranger: ssl.SSLContext

    async def add(self, token: tokens.Token, *groups: str, usages: tuple[str, ...] = tokens.USAGES) -> None:
        document = tokens.secret_document(token, usages=usages, groups=groups)
        assert (await self.world.request("POST", SECRETS, document)).status == 201

    async def code(self, asked: Asked, token: tokens.Token | None) -> int:
        """The status of the real request; its body is not waited for, since watches have no end."""
        patch = asked.verb == "patch" and bool(asked.plural)
        headers = {"Content-Type": "application/merge-patch+json" if patch else "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token.text}"
        method = METHODS.get(asked.verb, asked.verb.upper())
        body = None if method == "GET" else b"{}"
        session = self.world.session(self.stranger)
        async with session.request(method, asked.target, data=body, headers=headers) as response:
            if asked.verb != "watch" or response.status != 200:
                await response.read()
            return response.status

    def decided(self, user: str, *groups: str) -> set[str]:
        """What the authorizers allow."""
        decide = self.world.server.guard.authorizers.decide
        verdicts = ((asked, decide(asked.attributes(user, groups))) for asked in self.questions)
        return {str(asked) for asked, verdict in verdicts if isinstance(verdict, decision.Approve)}

    async def happens(self, token: tokens.Token | None) -> set[str]:
        """What real requests are not forbidden to do; whether they then find or change something is another matter."""
        codes = {str(asked): await self.code(asked, token) for asked in self.questions}
        assert 401 not in codes.values()
        return {asked for asked, code in codes.items() if code != 403}


@pytest.fixture
async def prepared(tmp_path: pathlib.Path) -> AsyncIterator[Prepared]:
    # TLS compares certificates with the real time.
    clock = MovableClock(datetime.datetime.now(datetime.UTC))
    async with worlds.world(tmp_path / "d", clock=clock) as world, controlled.connected(world) as client:
        wanted = introduction.Wanted(
            servers=(world.base,),
            ca=world.place.ca_certificate.read_bytes(),
            token=TOKEN,
            ttl=datetime.timedelta(hours=1),
        )
        made = await introduction.ensure(client, wanted, clock.now())
        assert made.new
        yield Prepared(world, tuple(served(world.server.table)), world.anonymous_context())


def _groups(*extra: str) -> tuple[str, ...]:
    """Of a token's user, as they are made at authentication."""
    return ("system:bootstrappers", *extra, "system:authenticated")


async def test_everything_is_asked(prepared: Prepared) -> None:
    """The enumeration is of what discovery shows, and large enough to mean something."""
    asked = {(each.group, each.plural, each.subresource, each.verb) for each in prepared.questions if each.plural}
    shown = set()
    for group in ("/api/v1", *await _group_versions(prepared.world)):
        found = (await prepared.world.get(group)).json()
        for row in found["resources"]:
            plural, _, sub = row["name"].partition("/")
            name = found["groupVersion"].rpartition("/")[0]
            shown |= {(name, plural, sub, verb) for verb in row["verbs"]}
    assert asked == shown
    assert len(prepared.questions) > 1000


async def _group_versions(world: worlds.World) -> list[str]:
    groups = (await world.get("/apis")).json()["groups"]
    return [f"/apis/{version['groupVersion']}" for group in groups for version in group["versions"]]


async def test_a_token_that_joins(prepared: Prepared) -> None:
    user = f"system:bootstrap:{TOKEN.id}"
    assert prepared.decided(user, *_groups(first_objects.NODE_GROUP)) == AUTHENTICATED | JOINING
    assert await prepared.happens(TOKEN) == AUTHENTICATED | JOINING


@pytest.mark.parametrize("extra", [(), ("system:bootstrappers:other",)])
async def test_a_token_without_the_group(prepared: Prepared, extra: tuple[str, ...]) -> None:
    other = tokens.Token("fedcba", "fedcba9876543210")
    await prepared.add(other, *extra)
    assert prepared.decided(f"system:bootstrap:{other.id}", *_groups(*extra)) == AUTHENTICATED
    assert await prepared.happens(other) == AUTHENTICATED


async def test_who_has_not_logged_in_may_do_what_is_listed_and_no_more(prepared: Prepared) -> None:
    assert prepared.decided(access.ANONYMOUS, "system:unauthenticated") == ANONYMOUS
    assert await prepared.happens(None) == ANONYMOUS


async def test_cluster_info_is_readable_by_everyone(prepared: Prepared) -> None:
    """Strangers, users without any role, nodes, and tokens; and nothing else of that namespace is."""
    world = prepared.world
    path = "/api/v1/namespaces/kube-public/configmaps"
    node = world.context_for("system:node:n1", "system:nodes")
    for context in (prepared.stranger, world.context_for("jane"), node):
        assert (await world.get(f"{path}/cluster-info", context=context)).status == 200
        assert (await world.get(f"{path}/other", context=context)).status == 403
        assert (await world.get(path, context=context)).status == 403
    asked = Asked("get", "", "v1", "configmaps", namespace="kube-public", name="cluster-info")
    assert await prepared.code(asked, TOKEN) == 200


async def test_a_token_that_only_signs_is_nobody_at_all(prepared: Prepared) -> None:
    """A credential that is not accepted does not make its holder anonymous."""
    signs = tokens.Token("signer", "0123456789abcdef")
    await prepared.add(signs, usages=("signing",))
    for asked in prepared.questions[::97]:
        assert await prepared.code(asked, signs) == 401, asked
    assert await prepared.code(Asked("get", path="/healthz"), signs) == 401


async def test_what_has_no_path(prepared: Prepared) -> None:
    """One mark, by which approvers know requests that need no human; nothing else."""
    decide = prepared.world.server.guard.authorizers.decide
    asked = [
        Asked(verb, group, "v1", plural, sub, name=name)
        for verb, group, plural, sub in UNSERVED
        for name in ("", "x", "system:masters", "kubernetes.io/kube-apiserver-client", "cluster-admin")
    ]
    callers = (
        (f"system:bootstrap:{TOKEN.id}", _groups(first_objects.NODE_GROUP)),
        (access.ANONYMOUS, ("system:unauthenticated",)),
    )
    allowed = {
        f"{user}: {each.verb} {each.plural}/{each.subresource}"
        for user, groups in callers
        for each in asked
        if isinstance(decide(each.attributes(user, groups)), decision.Approve)
    }
    assert allowed == {"system:bootstrap:abcdef: create certificatesigningrequests/nodeclient"}


async def test_the_answer_is_the_one_that_joining_needs(prepared: Prepared) -> None:
    """Not only allowed: what kubeadm reads is there, and nothing of it is secret."""
    stranger = prepared.stranger
    bearer = {"Authorization": f"Bearer {TOKEN.text}"}
    for name in (first_objects.KUBEADM_CONFIG, first_objects.KUBELET_CONFIG):
        answer = await prepared.world.get(
            f"/api/v1/namespaces/kube-system/configmaps/{name}", context=stranger, headers=bearer
        )
        assert (answer.status, TOKEN.secret in answer.body.decode()) == (200, False)
    info = await prepared.world.get("/api/v1/namespaces/kube-public/configmaps/cluster-info", context=stranger)
    assert (info.status, TOKEN.secret in info.body.decode()) == (200, False)
    assert cluster_info.read(info.json()["data"]["kubeconfig"]).servers == (prepared.world.base,)
    found = await prepared.world.get(CSRS, context=stranger, headers=bearer)
    assert (found.status, found.json()["items"]) == (200, [])


@pytest.mark.parametrize("words", [(), ("--experimental-bootstrap-token-auth",)], ids=["off", "by its older name"])
def test_the_older_name_of_the_flag_turns_the_authenticator_on(tmp_path: pathlib.Path, words: tuple[str, ...]) -> None:
    """`serve apiserver`, where it is off unless it is asked for."""
    place = layout.Layout.at(tmp_path / "d")
    preparation.prepare(place, server=addresses.Address("127.0.0.1", 6443), now=datetime.datetime.now(datetime.UTC))
    admin = kubeconfig.parse(place.admin_kubeconfig.read_text()).user
    assert admin is not None
    ca = place.ca_certificate.read_bytes()
    with own_certificates.Alone(place, *words) as server:

        def post(path: str, body: dict[str, object], context: ssl.SSLContext, **headers: str) -> int:
            line = http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=30)
            with contextlib.closing(line):
                line.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **headers})
                return line.getresponse().status

        administrator = tls.client_context(ca, admin.client_certificate_data, admin.client_key_data)
        assert post(SECRETS, tokens.secret_document(TOKEN, usages=["authentication"]), administrator) == 201
        review = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        code = post(review, {}, tls.client_context(ca), Authorization=f"Bearer {TOKEN.text}")
        assert code == (201 if words else 401)
