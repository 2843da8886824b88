# SPDX-License-Identifier: Apache-2.0
"""Who may change the client CAs, and to what. The names of the table in `client_ca_admission.py` are here."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from handfast.api import kinds, status
from handfast.apiserver import identity
from handfast.apiserver.admission import client_ca, plugin
from handfast.apiserver.state import envelope, replica
from handfast.rules import access, client_ca_bundle, decision
from handfast.store.sqlite import engine
from tests.unit.pki.making import NOW, SERVER, ca, leaf

CONFIG_MAPS = next(row for row in kinds.builtin() if row.resource == ("", "configmaps"))
FIRST, SECOND = ca("first").pem.decode(), ca("second").pem.decode()
SERVING = leaf(ca("root"), SERVER).pem.decode()
PRIVATE_KEY = (
    ca("x")
    .key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    .decode()
)
EDITOR = identity.User("eve", ("editors",))
ADMIN = identity.User("kubernetes-admin", ("system:masters",))


class Asked:
    """An authoriser in which only system:masters may trust; remembers the questions."""

    def __init__(self) -> None:
        self.questions: list[access.Attributes] = []

    def decide(self, question: access.Attributes) -> decision.Decision:
        self.questions.append(question)
        if "system:masters" in question.groups:
            return decision.Approve("SystemMasters", "", "test")
        if "denied" in question.groups:
            return decision.Deny("Denied", "never", "test")
        return decision.NotMine("NoRuleAllows", "", "test")


def config_map(bundle: str | None = FIRST, name: str = client_ca_bundle.NAME, **more: Any) -> dict[str, Any]:
    data = {} if bundle is None else {client_ca_bundle.KEY: bundle}
    metadata = {"name": name, "namespace": client_ca_bundle.NAMESPACE, "uid": "1", **more.pop("metadata", {})}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {**data, **more.pop("data", {})},
        **more,
    }


def admit(
    new: dict[str, Any] | None,
    old: dict[str, Any] | None,
    user: identity.User = ADMIN,
    *,
    namespace: str = client_ca_bundle.NAMESPACE,
    asked: Asked | None = None,
) -> None:
    operation = plugin.CREATE if old is None else plugin.DELETE if new is None else plugin.UPDATE
    given = new or old or {}
    write = plugin.Attributes(
        operation=operation,
        kind=CONFIG_MAPS,
        subresource="",
        namespace=namespace,
        name=given["metadata"]["name"],
        document=copy.deepcopy(new),
        old=copy.deepcopy(old),
        user=user,
        dry_run=False,
    )
    store = engine.SqliteStore.__new__(engine.SqliteStore)
    context = plugin.Context(
        replica.Replica(store, envelope.Envelopes(None, ())), (asked or Asked()).decide, lambda: NOW
    )
    client_ca.ROW.plugin(write, context)


def refused(call: Callable[[], None]) -> status.StatusError:
    with pytest.raises(status.StatusError) as caught:
        call()
    return caught.value


def forbidden(new: dict[str, Any] | None, old: dict[str, Any] | None, user: identity.User = EDITOR) -> str:
    error = refused(lambda: admit(new, old, user))
    assert isinstance(error, plugin.Refusal)
    assert (error.code, error.why) == (403, "TrustNotPermitted")
    return error.message


class TestWho:
    def test_an_editor_cannot_add_a_ca(self) -> None:
        message = forbidden(config_map(FIRST + SECOND), config_map())
        assert message == (
            'configmaps "extension-apiserver-authentication" is forbidden: User "eve" cannot trust resource '
            '"configmaps" in API group "" in the namespace "kube-system": whoever changes the client CAs can become '
            "anyone, so that UPDATE of this object, except of its labels and annotations, also needs the verb "
            '"trust" on it'
        )

    def test_the_question(self) -> None:
        asked = Asked()
        admit(config_map(SECOND), config_map(), asked=asked)
        (question,) = asked.questions
        assert question == access.Attributes(
            user="kubernetes-admin",
            groups=("system:masters",),
            verb="trust",
            is_resource=True,
            version="v1",
            plural="configmaps",
            namespace="kube-system",
            name="extension-apiserver-authentication",
        )

    def test_an_editor_cannot_start_over(self) -> None:
        assert "DELETE" in forbidden(None, config_map())
        assert "CREATE" in forbidden(config_map(), None)

    def test_an_editor_cannot_name_an_owner(self) -> None:
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "2"}
        forbidden(config_map(metadata={"ownerReferences": [owner]}), config_map())
        forbidden(config_map(metadata={"finalizers": ["example.com/x"]}), config_map())

    def test_the_other_keys_are_guarded(self) -> None:
        forbidden(config_map(data={"requestheader-client-ca-file": SECOND}), config_map())
        forbidden(config_map(binaryData={"x": "AA=="}), config_map())

    def test_an_editor_cannot_freeze_it(self) -> None:
        forbidden(config_map(immutable=True), config_map())

    def test_an_editor_cannot_take_the_key_away(self) -> None:
        forbidden(config_map(None), config_map())

    def test_an_outright_no_counts(self) -> None:
        denied = identity.User("eve", ("denied",))
        assert '"kube-system": never: whoever' in forbidden(config_map(SECOND), config_map(), denied)

    def test_labels_are_free(self) -> None:
        asked = Asked()
        labelled = config_map(metadata={"labels": {"a": "b"}, "annotations": {"c": "d"}, "resourceVersion": "7"})
        admit(labelled, config_map(metadata={"resourceVersion": "6"}), EDITOR, asked=asked)
        assert asked.questions == []

    @pytest.mark.parametrize(
        ("name", "namespace"),
        [("other", "kube-system"), (client_ca_bundle.NAME, "default"), (client_ca_bundle.HISTORY, "default")],
    )
    def test_other_config_maps_are_free(self, name: str, namespace: str) -> None:
        asked = Asked()
        for new, old in (
            (config_map("x", name), None),
            (config_map("x", name), config_map(FIRST, name)),
            (None, config_map(FIRST, name)),
        ):
            admit(new, old, EDITOR, namespace=namespace, asked=asked)
        assert asked.questions == []


class TestWhat:
    @pytest.mark.parametrize("bundle", [SECOND, FIRST + SECOND, "# the new one\n" + SECOND])
    def test_a_bundle_is_taken(self, bundle: str) -> None:
        admit(config_map(bundle), config_map())
        admit(config_map(bundle), None)

    @pytest.mark.parametrize(
        ("bundle", "says"),
        [
            ("", "no CERTIFICATE block"),
            ("hello", "no CERTIFICATE block"),
            (SERVING, "certificate 1: "),
            (FIRST + SERVING, "certificate 2: "),
            (FIRST + PRIVATE_KEY, "PEM block 2: expected CERTIFICATE, found PRIVATE KEY"),
            (FIRST + SECOND[: len(SECOND) // 2], "PEM block 2 (CERTIFICATE): no END line"),
            (FIRST.replace("M", "!", 1), "PEM block 1 (CERTIFICATE)"),
            ("\ud800", "no CERTIFICATE block"),
        ],
    )
    def test_what_is_no_bundle_is_refused(self, bundle: str, says: str) -> None:
        for old in (config_map(), None):
            error = refused(lambda old=old: admit(config_map(bundle), old))  # type: ignore[misc]
            assert (error.code, error.causes[0].field) == (422, "data[client-ca-file]")
            assert error.causes[0].reason == "FieldValueInvalid"
            assert "must be one or more CA certificates in PEM: " in error.message
            assert says in error.message

    def test_a_pasted_key_is_not_shown(self) -> None:
        error = refused(lambda: admit(config_map(PRIVATE_KEY), config_map()))
        assert not any(line in error.message for line in PRIVATE_KEY.splitlines()[1:-1])

    @pytest.mark.parametrize("old", [config_map(), config_map("broken")])
    def test_no_key_is_refused(self, old: dict[str, Any]) -> None:
        error = refused(lambda: admit(config_map(None), old))
        assert (error.code, error.causes[0].reason) == (422, "FieldValueRequired")

    def test_what_was_wrong_already_may_stay(self) -> None:
        admit(config_map("broken", data={"other": "x"}), config_map("broken"))
        admit(config_map(), config_map("broken"))

    def test_it_can_be_deleted_by_who_may(self) -> None:
        admit(None, config_map())


def test_the_row() -> None:
    assert client_ca.ROW.operations == {"CREATE", "UPDATE", "DELETE"}
    assert client_ca.ROW.resources == {("", "configmaps")}
