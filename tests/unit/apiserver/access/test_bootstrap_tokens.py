# SPDX-License-Identifier: Apache-2.0
"""Bearers of bootstrap tokens. The names of the table in `apiserver/access/bootstrap_tokens.py` are here."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Callable
from typing import Any

import pytest

from handfast.apiserver import identity
from handfast.apiserver.access import bootstrap_tokens
from handfast.apiserver.state import envelope, items, replica
from handfast.bootstrap import token_verdict, tokens
from handfast.rules import networks
from handfast.rules.tokens import maker

NOW = datetime.datetime(2026, 11, 15, 12, 0, 0, tzinfo=datetime.UTC)
TOKEN = tokens.Token("foobar", "circumnavigation")
TEXT = TOKEN.text
SECRETS = "core/secrets/"


class Server:
    """A copy without its store, and the authenticator over it."""

    def __init__(self) -> None:
        # Nothing here reads the store: the copy is written to directly.
        nothing: Any = None
        self.replica = replica.Replica(nothing, envelope.Envelopes())
        self.authenticator: identity.TokenAuthenticator = bootstrap_tokens.BootstrapTokens(
            self.replica, ("api", "api2")
        )
        self._version = 0

    def put(self, document: dict[str, Any]) -> None:
        metadata = document["metadata"]
        self.put_bytes(metadata["namespace"], metadata["name"], envelope.encode_document(document))

    def put_bytes(self, namespace: str, name: str, payload: bytes) -> None:
        self._version += 1
        item = items.Item(namespace, name, self._version, payload)
        self.replica.collection(SECRETS).apply(namespace, name, item, self._version)

    def delete(self, document: dict[str, Any]) -> None:
        self._version += 1
        metadata = document["metadata"]
        self.replica.collection(SECRETS).apply(metadata["namespace"], metadata["name"], None, self._version)

    def ask(self, text: str = TEXT, now: datetime.datetime = NOW) -> identity.TokenVerdict | None:
        return self.authenticator.authenticate(text, ("api",), now)

    def why(self, text: str = TEXT, now: datetime.datetime = NOW) -> identity.Unauthorized:
        with pytest.raises(identity.Unauthorized) as caught:
            self.ask(text, now)
        return caught.value


@pytest.mark.parametrize(("can_read", "named"), [(True, "alice"), (False, "")])
def test_who_made_a_token_is_told_once_every_server_can_read_it(can_read: bool, named: str) -> None:
    server = Server()
    server.put(secret(lambda made: made["metadata"].update(annotations={maker.KEY: "alice"})))
    judge = bootstrap_tokens.BootstrapTokens(server.replica, ("api",), lambda: can_read)
    verdict = judge.authenticate(TEXT, ("api",), NOW)
    assert verdict is not None
    assert (verdict.user.token_maker, verdict.user.extra) == (named, {})


@pytest.fixture
def server() -> Server:
    return Server()


def secret(change: Callable[[dict[str, Any]], object] | None = None, **rest: Any) -> dict[str, Any]:
    made = tokens.secret_document(TOKEN, **({"usages": ["authentication"]} | rest))
    if change is not None:
        change(made)
    return made


def setting(key: str, value: str) -> Callable[[dict[str, Any]], object]:
    return lambda made: made["data"].update({key: base64.b64encode(value.encode()).decode()})


GOOD: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "valid": (secret(), ("system:bootstrappers",)),
    "extra group": (
        secret(groups=["system:bootstrappers:foo"]),
        ("system:bootstrappers", "system:bootstrappers:foo"),
    ),
    "expires in 2109": (secret(setting("expiration", "2109-11-10T23:00:00Z")), ("system:bootstrappers",)),
    "offset that is still to come": (
        secret(setting("expiration", "2026-11-15T12:30:00-01:00")),
        ("system:bootstrappers",),
    ),
}


@pytest.mark.parametrize(("made", "groups"), GOOD.values(), ids=GOOD)
def test_a_good_token(server: Server, made: dict[str, Any], groups: tuple[str, ...]) -> None:
    server.put(made)
    verdict = server.ask()
    assert verdict is not None
    user = verdict.user
    assert (user.name, user.groups, user.uid, user.extra) == ("system:bootstrap:foobar", groups, "", {})
    assert user.method == "bootstrap-token"


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "invalid group": (secret(setting("auth-extra-groups", "foo")), "BadBootstrapGroup"),
    "bad name": (secret(lambda made: made["metadata"].update(name="bad-name")), "UnknownToken"),
    "name of another token": (
        secret(lambda made: made["metadata"].update(name="bootstrap-token-barfoo")),
        "UnknownToken",
    ),
    "no usage": (secret(usages=[]), "NotForAuthentication"),
    "usage True": (secret(setting("usage-bootstrap-authentication", "True")), "NotForAuthentication"),
    "wrong id": (secret(setting("token-id", "barfoo")), "WrongTokenID"),
    "wrong secret": (secret(setting("token-secret", "0123456789abcdef")), "WrongTokenSecret"),
    "being deleted": (
        secret(lambda made: made["metadata"].update(deletionTimestamp="2026-11-15T11:00:00Z")),
        "TokenBeingDeleted",
    ),
    "expired in 2009": (secret(setting("expiration", "2009-11-10T23:00:00Z")), "TokenExpired"),
    "offset that is past": (secret(setting("expiration", "2026-11-15T12:30:00+01:00")), "TokenExpired"),
    "garbage expiration": (secret(setting("expiration", "garbage")), "BadTokenExpiration"),
    "wrong type": (secret(lambda made: made.update(type="Opaque")), "WrongSecretType"),
    "trailing comma in groups": (
        secret(setting("auth-extra-groups", "system:bootstrappers:foo,")),
        "BadBootstrapGroup",
    ),
    "bad base64": (secret(lambda made: made["data"].update({"token-secret": "!"})), "BadSecretData"),
}


@pytest.mark.parametrize(("made", "reason"), BAD.values(), ids=BAD)
def test_a_bad_token_is_refused_and_only_the_log_learns_why(server: Server, made: dict[str, Any], reason: str) -> None:
    server.put(made)
    refused = server.why()
    assert refused.why == reason
    assert refused.detail.startswith("bootstrap-token-foobar: ")
    assert TOKEN.secret not in refused.detail
    # The caller is told nothing of it.
    assert (refused.code, refused.message) == (401, "Unauthorized")


def test_an_unknown_id(server: Server) -> None:
    assert server.why().why == "UnknownToken"


def test_the_decoys_own_token_is_unknown(server: Server) -> None:
    assert server.why(tokens.read(token_verdict.decoy()).token.text).why == "UnknownToken"


OTHER_SHAPES = {
    "empty": "",
    "short id": "foo.circumnavigation",
    "wrong alphabet": "Foobar.circumnavigation",
    "long secret": f"{TEXT}x",
    "trailing newline": f"{TEXT}\n",
    "Arabic digits": "foobar.١٢٣٤٥٦٧٨٩٠١٢٣٤٥٦",
    "three dots": "foobar.circu.navi.ation",
    "JSON web token": "eyJhbGciOiJSUzI1NiJ9.e30.c2ln",
    "a megabyte": "a" * (1 << 20),
    "path": "foobar.../../../../etc/",
}


@pytest.mark.parametrize("text", OTHER_SHAPES.values(), ids=OTHER_SHAPES)
def test_another_shape_is_not_mine(server: Server, text: str) -> None:
    server.put(secret())
    assert server.ask(text) is None


@pytest.mark.parametrize(
    ("asked", "good_for"),
    [((), ("api", "api2")), (("api2",), ("api2",)), (("elsewhere", "api"), ("api",)), (("elsewhere",), None)],
)
def test_only_the_audiences_of_the_api_are_served(
    server: Server, asked: tuple[str, ...], good_for: tuple[str, ...] | None
) -> None:
    server.put(secret())
    if good_for is None:
        with pytest.raises(identity.Unauthorized) as refused:
            server.authenticator.authenticate(TEXT, asked, NOW)
        assert refused.value.why == "WrongAudience"
        return
    verdict = server.authenticator.authenticate(TEXT, asked, NOW)
    assert verdict is not None
    assert verdict.audiences == good_for


def test_the_user_ends_with_the_token(server: Server) -> None:
    until = NOW + datetime.timedelta(hours=1)
    server.put(secret(expiration=until))
    verdict = server.ask(now=until - datetime.timedelta(microseconds=1))
    assert verdict is not None
    assert verdict.user.until == until
    assert server.why(now=until).why == "TokenExpired"


def test_a_token_without_end(server: Server) -> None:
    server.put(secret())
    verdict = server.ask(now=NOW + datetime.timedelta(days=36500))
    assert verdict is not None
    assert verdict.user.until is None


def test_a_deleted_token_ends_at_once(server: Server) -> None:
    server.put(secret())
    assert server.ask() is not None
    server.delete(secret())
    assert server.why().why == "UnknownToken"


def test_a_changed_token_counts_at_once(server: Server) -> None:
    server.put(secret())
    assert server.ask() is not None
    server.put(secret(usages=["signing"]))
    assert server.why().why == "NotForAuthentication"
    server.put(secret(groups=["system:bootstrappers:foo"]))
    verdict = server.ask()
    assert verdict is not None
    assert verdict.user.groups == ("system:bootstrappers", "system:bootstrappers:foo")


@pytest.mark.parametrize("namespace", ["default", "kube-public", "kube-systems", ""])
def test_other_namespaces_make_no_tokens(server: Server, namespace: str) -> None:
    server.put(secret(lambda made: made["metadata"].update(namespace=namespace)))
    assert server.why().why == "UnknownToken"


HEAD = b'{"apiVersion":"v1","kind":"Secret","metadata":{"name":"bootstrap-token-foobar"'
NO_DOCUMENTS = {
    "cut off": HEAD,
    "not UTF-8": HEAD + b',"x":"\xff"}}',
    "nested without end": HEAD + b'},"data":' + b"[" * 100_000,
    "not JSON": HEAD + b"}}}}",
    "no data": HEAD + b"}}",
}


@pytest.mark.parametrize("payload", NO_DOCUMENTS.values(), ids=NO_DOCUMENTS)
def test_what_is_no_document_is_refused(server: Server, payload: bytes) -> None:
    server.put_bytes("kube-system", "bootstrap-token-foobar", payload)
    assert server.why().why in {"NotADocument", "WrongSecretType"}


def test_a_copy_that_has_stopped_is_not_believed(server: Server) -> None:
    server.put(secret())
    server.replica.failed = RuntimeError("the watch broke")
    assert server.why().why == "ReplicaStopped"
    assert server.ask("not a token") is None


def test_an_unknown_id_takes_the_steps_of_a_wrong_secret(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    decode, judge = items.Item.document, token_verdict.verdict

    def decoded(item: items.Item) -> dict[str, Any]:
        steps.append("decode")
        return decode(item)

    def judged(*args: Any, **kwargs: Any) -> token_verdict.Accepted | token_verdict.Rejected:
        steps.append("judge")
        return judge(*args, **kwargs)

    monkeypatch.setattr(items.Item, "document", decoded)
    monkeypatch.setattr(token_verdict, "verdict", judged)
    server.put(secret())

    def taken(text: str) -> tuple[str, list[str]]:
        steps.clear()
        return server.why(text).why, list(steps)

    assert taken("foobar.0123456789abcdef") == ("WrongTokenSecret", ["decode", "judge"])
    assert taken("nobody.0123456789abcdef") == ("UnknownToken", ["decode", "judge"])


def test_a_source_elsewhere() -> None:
    user = identity.User("system:bootstrap:foobar", (), method=bootstrap_tokens.METHOD)
    allowed = networks.Networks.parse("192.0.2.0/24")
    bootstrap_tokens.require_source(user, allowed, "192.0.2.9")
    for elsewhere in ("198.51.100.1", ""):
        with pytest.raises(identity.Unauthorized) as caught:
            bootstrap_tokens.require_source(user, allowed, elsewhere)
        assert caught.value.why == "TokenNotFromHere"
        assert caught.value.detail.startswith("system:bootstrap:foobar: ")
        # The caller is told nothing of it …
        assert (caught.value.message, caught.value.public_reason) == ("Unauthorized", "")
        # … but for who can see from a public signature that the token is a good one.
        with pytest.raises(identity.Unauthorized) as caught:
            bootstrap_tokens.require_source(user, allowed, elsewhere, tell_bearer=True)
        assert (caught.value.message, caught.value.public_reason) == ("Unauthorized", "TokenNotFromHere")


OTHER = tokens.Token("foobar", "0123456789abcdef").text


@pytest.mark.parametrize(
    ("document", "text", "bearer"),
    [
        (None, TEXT, identity.Bearer("foobar", known=False, holds_secret=False)),
        (secret(), OTHER, identity.Bearer("foobar", holds_secret=False)),
        (secret(expiration=NOW), TEXT, identity.Bearer("foobar")),
        (secret(usages=["signing"]), TEXT, identity.Bearer("foobar")),
        (secret(usages=["signing"]), OTHER, identity.Bearer("foobar", holds_secret=False)),
        (
            secret(lambda made: made["metadata"].update(annotations={"handfast.dev/allowed-cidrs": "nowhere"})),
            TEXT,
            identity.Bearer("foobar"),
        ),
    ],
    ids=["unknown", "wrong secret", "expired", "for signing", "for signing, and wrong", "a limit that nobody can read"],
)
def test_only_the_operator_learns_whose_token_was_refused(
    server: Server, document: dict[str, Any] | None, text: str, bearer: identity.Bearer
) -> None:
    if document is not None:
        server.put(document)
    refused = server.why(text)
    assert refused.bearer == bearer
    # What is answered is made of these, and they are the same for everybody.
    assert refused.document() == identity.Unauthorized("", "").document()
    assert refused.public_reason in {"", "TokenExpired"}


def test_who_showed_something_else_is_no_bearer() -> None:
    assert bootstrap_tokens.bearer(identity.User("system:bootstrap:foobar", (), method="x509")) is None
    assert bootstrap_tokens.bearer(identity.User("alice", (), method=bootstrap_tokens.METHOD)) is None
    named = identity.User("system:bootstrap:foobar", (), method=bootstrap_tokens.METHOD)
    assert bootstrap_tokens.bearer(named) == identity.Bearer("foobar")
