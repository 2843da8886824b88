# SPDX-License-Identifier: Apache-2.0
"""Who may change the client CAs, and to what. The names of the table in `client_ca_admission.py` are here."""

from __future__ import annotations

import base64
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
from handfast.rules.machines import bootstrapper, client_ca_sources
from handfast.store.sqlite import engine
from tests.unit.pki.making import NOW, SERVER, ca, leaf

CONFIG_MAPS = next(row for row in kinds.builtin() if row.resource == ("", "configmaps"))
FIRST, SECOND = ca("first").pem.decode(), ca("second").pem.decode()
SIGNER, OTHER = (ca(bootstrapper.SIGNER).pem.decode() for _ in range(2))
SERVING = leaf(ca("root"), SERVER).pem.decode()
PRIVATE_KEY = (
    ca("x")
    .key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    .decode()
)
EDITOR = identity.User("eve", ("editors",))
ADMIN = identity.User("kubernetes-admin", ("system:masters",))


class Asked:
    """An authorizer in which only system:masters may trust; remembers the questions."""

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
    namespace = given["metadata"]["namespace"] if namespace == client_ca_bundle.NAMESPACE else namespace
    write = plugin.Write(
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


RECORD = '{"certificates":{"' + "ab" * 32 + '":["openshift-config/a"]}}'


class TestOtherKeys:
    def test_bootstrap_cas_are_ca_certificates(self) -> None:
        key = client_ca_bundle.SCOPED_KEY
        admit(config_map(data={key: SECOND}), config_map())
        admit(config_map(), config_map(data={key: SECOND}))
        for wrong in ("", SERVING, PRIVATE_KEY):
            error = refused(lambda wrong=wrong: admit(config_map(data={key: wrong}), config_map()))  # type: ignore[misc]
            assert (error.code, error.causes[0].field) == (422, f"data[{key}]")
        # What was wrong already may stay while other things change.
        admit(config_map(SECOND, data={key: "broken"}), config_map(data={key: "broken"}))

    def test_the_record_is_not_lost_by_accident(self) -> None:
        key = client_ca_bundle.SOURCES_KEY
        recorded = config_map(data={key: RECORD})
        error = refused(lambda: admit(config_map(SECOND), recorded))
        assert (error.code, error.causes[0].reason) == (422, "FieldValueRequired")
        assert "write {} if that is meant" in error.message
        admit(config_map(data={key: "{}"}), recorded)
        admit(config_map(SECOND, data={key: RECORD}), recorded)

    def test_the_record_can_be_read(self) -> None:
        key = client_ca_bundle.SOURCES_KEY
        error = refused(lambda: admit(config_map(data={key: "broken"}), config_map()))
        assert (error.code, error.causes[0].field) == (422, f"data[{key}]")
        assert "must be the record of sources" in error.message

    def test_an_editor_writes_neither(self) -> None:
        for key, value in ((client_ca_bundle.SCOPED_KEY, SECOND), (client_ca_bundle.SOURCES_KEY, RECORD)):
            forbidden(config_map(data={key: value}), config_map())


def source(
    text: str | None, place: tuple[str, str] = client_ca_sources.BOOTSTRAP[0], **metadata: Any
) -> dict[str, Any]:
    meta = {"namespace": place[0], "name": place[1], "uid": "1", **metadata}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": meta,
        "data": {} if text is None else {"ca-bundle.crt": text},
    }


class TestSources:
    @pytest.mark.parametrize("place", client_ca_sources.ALL)
    def test_an_editor_cannot_write_a_source(self, place: tuple[str, str]) -> None:
        message = forbidden(source(SIGNER, place), None)
        assert (
            f'"configmaps" in API group "" in the namespace "{place[0]}": the CAs in it become client CAs of the API server, so '
            "that CREATE of this object, except of its labels and annotations, also needs the verb"
        ) in message
        forbidden(source(OTHER, place), source(SIGNER, place))
        forbidden(source("", place), source(SIGNER, place))

    def test_the_question(self) -> None:
        asked = Asked()
        admit(source(SIGNER), None, asked=asked)
        (question,) = asked.questions
        assert (question.verb, question.namespace, question.name) == ("trust", *client_ca_sources.BOOTSTRAP[0])

    @pytest.mark.parametrize("place", client_ca_sources.ALL)
    def test_deleting_takes_trust_away_and_needs_nothing_else(self, place: tuple[str, str]) -> None:
        asked = Asked()
        admit(None, source(SIGNER, place), EDITOR, asked=asked)
        assert asked.questions == []

    def test_labels_annotations_and_finalizers_are_free(self) -> None:
        free: dict[str, Any] = {
            "labels": {"a": "b"},
            "annotations": {"c": "d"},
            "finalizers": ["example.com/x"],
            "resourceVersion": "7",
        }
        admit(source(SIGNER, **free), source(SIGNER), EDITOR)
        going: dict[str, Any] = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["foregroundDeletion"]}
        admit(source(SIGNER, deletionTimestamp=going["deletionTimestamp"]), source(SIGNER, **going), EDITOR)

    def test_an_editor_cannot_name_the_owner_of_a_source(self) -> None:
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "2"}
        forbidden(source(SIGNER, ownerReferences=[owner]), source(SIGNER))
        # Nor keep the garbage collector from what somebody wanted to end with its owner.
        forbidden(source(SIGNER), source(SIGNER, ownerReferences=[owner]))

    def test_the_same_name_elsewhere_is_free(self) -> None:
        admit(source("x", ("default", client_ca_sources.BOOTSTRAP[0][1])), None, EDITOR)
        admit(source("x", ("kube-system", "user-client-ca")), None, EDITOR)

    @pytest.mark.parametrize("text", [SIGNER, SIGNER + OTHER, "# ours\n" + SIGNER, "", " ", None])
    def test_ca_certificates_or_nothing_are_taken(self, text: str | None) -> None:
        admit(source(text), None)
        admit(source(text), source(OTHER))

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("hello", "no CERTIFICATE block"),
            (SERVING, "certificate 1: "),
            (SIGNER + SIGNER[:100], "PEM block 2"),
            (SIGNER + PRIVATE_KEY, "there is a private key in it: put the CA certificate there"),
        ],
    )
    def test_a_source_is_ca_certificates(self, text: str, says: str) -> None:
        for old in (source(SIGNER), None):
            error = refused(lambda old=old: admit(source(text), old))  # type: ignore[misc]
            assert (error.code, error.causes[0].field) == (422, "data[ca-bundle.crt]")
            assert says in error.message
            assert not any(line in error.message for line in PRIVATE_KEY.splitlines()[1:-1])

    def test_binary_data_holds_no_key_either(self) -> None:
        document = {**source(SIGNER), "binaryData": {"ca.key": base64.b64encode(PRIVATE_KEY.encode()).decode()}}
        for old in (source(SIGNER), None):
            error = refused(lambda old=old: admit(document, old))  # type: ignore[misc]
            assert (error.code, error.causes[0].field) == (422, "binaryData[ca.key]")
            assert "there is a private key in it" in error.message
        admit({**source(SIGNER), "binaryData": {"notes": "AP8="}}, source(SIGNER))

    def test_a_bootstrap_ca_has_the_name_of_its_signer(self) -> None:
        error = refused(lambda: admit(source(SIGNER + FIRST), None))
        assert (error.code, error.causes[0].field) == (422, "data[ca-bundle.crt]")
        assert "has the common name kubelet-bootstrap-kubeconfig-signer" in error.message
        # Others are named as their owners like.
        admit(source(FIRST, client_ca_sources.UNSCOPED[0]), None)

    def test_an_end_is_an_instant(self) -> None:
        document = source(SIGNER)
        document["data"]["revoke-at"] = "2027-01-31T12:00:00Z"
        admit(document, None)
        for wrong in ("soon", "", "2027-01-31"):
            document["data"]["revoke-at"] = wrong
            error = refused(lambda: admit(document, source(SIGNER)))
            assert (error.code, error.causes[0].field) == (422, "data[revoke-at]")
            assert "must be an instant: it is no instant, as in 2027-01-31T12:00:00Z" in error.message
        # In a ConfigMap without bootstrap credentials the word means nothing.
        other = source(FIRST, client_ca_sources.UNSCOPED[0])
        other["data"]["revoke-at"] = "soon"
        admit(other, None)

    def test_an_editor_cannot_put_off_an_end(self) -> None:
        ending, later = source(SIGNER), source(SIGNER)
        ending["data"]["revoke-at"], later["data"]["revoke-at"] = "2027-01-31T12:00:00Z", "2028-01-31T12:00:00Z"
        forbidden(later, ending)
        forbidden(source(SIGNER), ending)

    def test_a_key_under_another_name_is_refused(self) -> None:
        document = source(SIGNER)
        document["data"]["tls.key"] = PRIVATE_KEY
        error = refused(lambda: admit(document, None))
        assert error.causes[0].field == "data[tls.key]"

    def test_what_was_wrong_already_may_stay(self) -> None:
        admit({**source("broken"), "immutable": True}, source("broken"))


def test_the_row() -> None:
    assert client_ca.ROW.operations == {"CREATE", "UPDATE", "DELETE"}
    assert client_ca.ROW.resources == {("", "configmaps")}
