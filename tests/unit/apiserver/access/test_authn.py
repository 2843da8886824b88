# SPDX-License-Identifier: Apache-2.0
"""Who is asking. The names of the table in `apiserver/access/authn.py` are here; the same over real TLS is in the scenarios."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from handfast.apiserver import identity, request
from handfast.apiserver.access import authn, node_recovery
from handfast.pki import bundles, certificates, names
from handfast.rules import networks
from handfast.rules.machines import bootstrapper, credential_end
from handfast.serving import peer
from tests.unit.pki.making import ANY, CLIENT, DAY, NOW, SERVER, Made, ca, leaf

ROOT = ca("the client CA")
OTHER = ca("another CA")
SECOND = datetime.timedelta(seconds=1)


def subject(common_name: str | None, *organizations: str) -> x509.Name:
    rows = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organizations]
    if common_name is not None:
        rows.append(x509.NameAttribute(NameOID.COMMON_NAME, common_name))
    return x509.Name(rows)


def peer_of(*chain: Made) -> peer.Peer:
    return peer.Peer.of(tuple(made.der for made in chain), "192.0.2.1", "tls")


def trusting(*cas: Made) -> authn.Authenticator:
    return authn.Authenticator(bundles.TrustBundle.of(made.der for made in cas))


def refusal(
    authenticator: authn.Authenticator, chain: Sequence[Made], now: datetime.datetime = NOW, header: str | None = None
) -> str:
    """Why somebody is not let in; what they are told is always the same."""
    with pytest.raises(identity.Unauthorized) as caught:
        authenticator.authenticate(peer_of(*chain), header, now)
    document = caught.value.document()
    assert (document["code"], document["reason"], document["message"]) == (401, "Unauthorized", "Unauthorized")
    assert "details" not in document
    assert caught.value.detail
    return caught.value.why


class TestNobody:
    def test_who_presents_nothing_is_anonymous(self) -> None:
        user = trusting(ROOT).authenticate(peer_of(), None, NOW)
        assert user is identity.ANONYMOUS
        assert (user.name, user.groups) == ("system:anonymous", ("system:unauthenticated",))

    def test_anonymous_only_from_its_networks(self) -> None:
        authenticator = authn.Authenticator(
            bundles.TrustBundle.of([ROOT.der]), anonymous_from=networks.Networks.parse("10.0.0.0/8")
        )
        for near in ("10.1.2.3", "127.0.0.1", "::1"):
            found = authenticator.authenticate(peer.Peer.of((), near, "tls"), None, NOW)
            assert found is identity.ANONYMOUS
        with pytest.raises(identity.Unauthorized) as caught:
            authenticator.authenticate(peer.Peer.of((), "192.0.2.1", "tls"), None, NOW)
        assert caught.value.why == "AnonymousElsewhere"


class Tokens:
    """An authenticator that knows tokens by heart."""

    def __init__(
        self, known: Mapping[str, identity.User], refused: Sequence[str] = (), remembered: str | None = None
    ) -> None:
        self._known = known
        self._refused = refused
        self._remembered = remembered
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    def remembers(self, token: str) -> bool:
        return token == self._remembered

    def authenticate(
        self, token: str, audiences: tuple[str, ...], now: datetime.datetime
    ) -> identity.TokenVerdict | None:
        self.asked.append((token, audiences))
        if token in self._refused:
            raise identity.Unauthorized("Refused", "the detail")
        user = self._known.get(token)
        return None if user is None else identity.TokenVerdict(user, audiences)


JOE = identity.User("joe", ("developers",), method="test")


class TestToken:
    @pytest.mark.parametrize(
        ("header", "why"),
        [
            ("Bearer abcdef.0123456789abcdef", "UnknownToken"),
            ("bearer x", "UnknownToken"),
            ("Basic YTpi", "UnsupportedCredential"),
            ("Negotiate x", "UnsupportedCredential"),
            ("Bearer", "MalformedToken"),
            ("Bearer ", "MalformedToken"),
            ("", "UnsupportedCredential"),
            (" ", "UnsupportedCredential"),
            ("\xff", "UnsupportedCredential"),
            ("Bearer " + "x" * (1 << 20), "MalformedToken"),
        ],
        ids=lambda text: text[:30],
    )
    def test_unknown_token_is_401(self, header: str, why: str) -> None:
        assert refusal(trusting(ROOT), [], header=header) == why

    def test_a_good_token_gives_its_user(self) -> None:
        judge = Tokens({"good": JOE})
        authenticator = authn.Authenticator(
            bundles.TrustBundle.of([ROOT.der]), [authn.TokenRow(judge)], audiences=("api",)
        )
        user = authenticator.authenticate(peer_of(), "Bearer good", NOW)
        assert (user.name, user.groups, user.method) == ("joe", ("developers", "system:authenticated"), "test")
        assert judge.asked == [("good", ("api",))]

    def test_the_first_that_knows_it_decides(self) -> None:
        first, second, third = Tokens({}), Tokens({}, ["t"]), Tokens({"t": JOE})
        authenticator = authn.Authenticator(
            bundles.TrustBundle.of([ROOT.der]), [authn.TokenRow(row) for row in (first, second, third)]
        )
        assert refusal(authenticator, [], header="Bearer t") == "Refused"
        assert [len(row.asked) for row in (first, second, third)] == [1, 1, 0]

    @pytest.mark.parametrize("explains", [True, False])
    def test_who_may_be_told_why(self, explains: bool) -> None:
        authenticator = authn.Authenticator(
            bundles.TrustBundle.of([ROOT.der]), [authn.TokenRow(Tokens({}, ["t"]), explains=explains)]
        )
        with pytest.raises(identity.Unauthorized) as caught:
            authenticator.reviewed("t", (), NOW)
        assert caught.value.explained is explains

    def test_a_good_certificate_wins(self) -> None:
        authenticator = authn.Authenticator(bundles.TrustBundle.of([ROOT.der]), [authn.TokenRow(Tokens({"good": JOE}))])
        jane = leaf(ROOT, CLIENT, subject="jane")
        for header in ("Bearer good", "Bearer bad", "Basic x"):
            assert authenticator.authenticate(peer_of(jane), header, NOW).name == "jane"

    def test_a_bad_certificate_does_not_spoil_a_good_token(self) -> None:
        authenticator = authn.Authenticator(bundles.TrustBundle.of([ROOT.der]), [authn.TokenRow(Tokens({"good": JOE}))])
        foreign = leaf(OTHER, CLIENT)
        assert authenticator.authenticate(peer_of(foreign), "Bearer good", NOW).name == "joe"
        assert refusal(authenticator, [foreign], header="Bearer bad") == "UnknownAuthority"


class Denied:
    """A deny list of names."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def check(self, user: identity.User, now: datetime.datetime) -> None:
        if user.name in self.names:
            raise identity.Unauthorized("Revoked", "by a test")


class TestDenyList:
    def test_revoked_on_an_open_connection(self) -> None:
        denied = Denied()
        authenticator = authn.Authenticator(bundles.TrustBundle.of([ROOT.der]), deny_list=denied)
        node = leaf(ROOT, CLIENT, subject="system:node:a")
        assert authenticator.authenticate(peer_of(node), None, NOW).name == "system:node:a"
        denied.names.add("system:node:a")
        assert refusal(authenticator, [node]) == "Revoked"
        denied.names.clear()
        assert authenticator.authenticate(peer_of(node), None, NOW).name == "system:node:a"

    def test_tokens_too(self) -> None:
        denied = Denied()
        rows = [authn.TokenRow(Tokens({"good": JOE}))]
        authenticator = authn.Authenticator(bundles.TrustBundle.of([ROOT.der]), rows, deny_list=denied)
        assert authenticator.reviewed("good", ("a",), NOW)[1] == ("a",)
        denied.names.add("joe")
        assert refusal(authenticator, [], header="Bearer good") == "Revoked"
        with pytest.raises(identity.Unauthorized) as caught:
            authenticator.reviewed("good", (), NOW)
        assert caught.value.why == "Revoked"


class TestCertificate:
    def test_the_subject_gives_the_user_and_the_groups(self) -> None:
        jane = leaf(ROOT, CLIENT, subject=subject("jane", "developers", "system:masters"))
        user = trusting(ROOT).authenticate(peer_of(jane), None, NOW)
        assert (user.name, user.method) == ("jane", "x509")
        assert set(user.groups) == {"developers", "system:masters", "system:authenticated"}

    def test_what_is_known_of_the_certificate(self) -> None:
        jane = leaf(ROOT, CLIENT, subject="jane")
        user = trusting(ROOT).authenticate(peer_of(jane), None, NOW)
        found = certificates.read(jane.der)
        assert (user.serial, user.key_fingerprint) == (found.serial, found.public_key.fingerprint)
        assert user.extra == {"authentication.kubernetes.io/credential-id": (f"X509SHA256={found.fingerprint}",)}

    def test_groups_of_the_server_are_not_taken(self) -> None:
        who = subject("jane", "system:unauthenticated", "developers", "system:authenticated")
        user = trusting(ROOT).authenticate(peer_of(leaf(ROOT, CLIENT, subject=who)), None, NOW)
        assert user.groups == ("developers", "system:authenticated")

    def test_without_groups(self) -> None:
        user = trusting(ROOT).authenticate(peer_of(leaf(ROOT, CLIENT, subject="jane")), None, NOW)
        assert user.groups == ("system:authenticated",)

    def test_a_chain_needs_its_intermediates(self) -> None:
        middle = ca("team", ROOT)
        jane = leaf(middle, CLIENT, subject="jane")
        assert trusting(ROOT).authenticate(peer_of(jane, middle), None, NOW).name == "jane"
        assert refusal(trusting(ROOT), [jane]) == "UnknownAuthority"

    def test_serving_certificate_cannot_log_in(self) -> None:
        serving = leaf(ROOT, SERVER, subject=subject("system:node:a", "system:nodes"))
        assert refusal(trusting(ROOT), [serving]) == "WrongPurpose"

    def test_certificate_without_purpose_cannot_log_in(self) -> None:
        assert refusal(trusting(ROOT), [leaf(ROOT, subject="jane")]) == "WrongPurpose"

    def test_certificate_for_any_purpose(self) -> None:
        assert trusting(ROOT).authenticate(peer_of(leaf(ROOT, ANY, subject="jane")), None, NOW).name == "jane"

    def test_a_ca_cannot_log_in(self) -> None:
        middle = ca(subject("jane", "system:masters"), ROOT, (x509.ExtendedKeyUsage([CLIENT]), False))
        assert refusal(trusting(ROOT), [middle]) == "WrongOrder"

    def test_foreign_ca(self) -> None:
        assert refusal(trusting(ROOT), [leaf(OTHER, CLIENT, subject="jane"), OTHER]) == "UnknownAuthority"

    def test_foreign_ca_of_the_same_name(self) -> None:
        assert refusal(trusting(ROOT), [leaf(ca("the client CA"), CLIENT)]) in {"UnknownAuthority", "Untrusted"}

    def test_no_common_name(self) -> None:
        assert refusal(trusting(ROOT), [leaf(ROOT, CLIENT, subject=subject(None, "system:masters"))]) == "NoCommonName"

    def test_two_common_names(self) -> None:
        both = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in ("jane", "kubernetes-admin")])
        assert refusal(trusting(ROOT), [leaf(ROOT, CLIENT, subject=both)]) == "Malformed"

    def test_not_yet_valid(self) -> None:
        early = leaf(ROOT, CLIENT, not_before=NOW + SECOND)
        authenticator = trusting(ROOT)
        assert refusal(authenticator, [early]) == "NotYetValid"
        assert authenticator.authenticate(peer_of(early), None, NOW + SECOND).name == "jane"

    def test_what_is_no_certificate_is_refused(self) -> None:
        for chain in ((b"garbage",), (b"",), (leaf(ROOT, CLIENT).der + b"x",)):
            with pytest.raises(identity.Unauthorized) as caught:
                trusting(ROOT).authenticate(peer.Peer.of(chain, "192.0.2.1", "tls"), None, NOW)
            assert caught.value.why == "Malformed"

    def test_too_long_a_chain(self) -> None:
        assert refusal(trusting(ROOT), [leaf(ROOT, CLIENT), *[ROOT] * 10]) == "Malformed"


class TestTime:
    def test_expiry_ends_an_open_connection(self) -> None:
        until = NOW + datetime.timedelta(hours=1)
        jane = leaf(ROOT, CLIENT, not_after=until)
        authenticator = trusting(ROOT)
        assert authenticator.authenticate(peer_of(jane), None, NOW).name == "jane"
        assert authenticator.authenticate(peer_of(jane), None, until).name == "jane"
        # The verdict is remembered by now, and still does not outlive the certificate.
        assert refusal(authenticator, [jane], until + SECOND) == "Expired"
        assert refusal(authenticator, [jane], until + datetime.timedelta(microseconds=1)) == "Expired"

    def test_expiry_of_the_ca_ends_it_too(self) -> None:
        root = ca("short", not_after=NOW + SECOND)
        jane = leaf(root, CLIENT, not_after=NOW + DAY)
        authenticator = trusting(root)
        authenticator.authenticate(peer_of(jane), None, NOW)
        assert refusal(authenticator, [jane], NOW + 2 * SECOND) == "Expired"


class TestTrust:
    def test_removed_ca(self) -> None:
        jane, joe = leaf(ROOT, CLIENT, subject="jane"), leaf(OTHER, CLIENT, subject="joe")
        authenticator = trusting(ROOT, OTHER)
        for made, name in ((jane, "jane"), (joe, "joe")):
            assert authenticator.authenticate(peer_of(made), None, NOW).name == name
        authenticator.trust(bundles.TrustBundle.of([OTHER.der]))
        assert refusal(authenticator, [jane]) == "UnknownAuthority"
        assert authenticator.authenticate(peer_of(joe), None, NOW).name == "joe"
        authenticator.trust(bundles.TrustBundle.of([ROOT.der]))
        assert authenticator.authenticate(peer_of(jane), None, NOW).name == "jane"

    def test_nobody_is_trusted(self) -> None:
        assert refusal(authn.Authenticator(bundles.TrustBundle.of([])), [leaf(ROOT, CLIENT)]) == "UnknownAuthority"

    def test_one_chain_does_not_profit_from_the_verdict_on_another(self) -> None:
        middle = ca("team", ROOT)
        jane = leaf(middle, CLIENT)
        authenticator = trusting(ROOT)
        authenticator.authenticate(peer_of(jane, middle), None, NOW)
        assert refusal(authenticator, [jane]) == "UnknownAuthority"

    def test_refusals_are_not_remembered(self) -> None:
        authenticator = trusting(ROOT)
        for _ in range(3):
            refusal(authenticator, [leaf(OTHER, CLIENT)])
        assert not authenticator._verified

    def test_what_is_remembered_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(authn, "_REMEMBERED", 3)
        authenticator = trusting(ROOT)
        for number in range(10):
            peer_ = peer_of(leaf(ROOT, CLIENT, subject=f"u{number}"))
            assert authenticator.authenticate(peer_, None, NOW).name == f"u{number}"
            assert len(authenticator._verified) <= 3


SIGNER = ca("kubelet-bootstrap-kubeconfig-signer")


def beside(*scoped: Made, unscoped: Sequence[Made] = (ROOT,)) -> authn.Authenticator:
    """One that also believes CAs of bootstrap credentials."""
    authenticator = trusting(*unscoped)
    authenticator.trust_bootstrap_cas(bundles.TrustBundle.of(made.der for made in scoped))
    return authenticator


def long_name(common_name: str, *organizations: str) -> x509.Name:
    """A subject with a common name that is longer than X.520 allows."""
    return names.to_name(names.Subject(common_name=common_name, organizations=organizations))


KUBELET = long_name(bootstrapper.USER, *bootstrapper.GROUPS)


class TestBootstrapCAs:
    CLAIMS = (
        subject("kubernetes-admin", "system:masters"),
        subject("system:node:a", "system:nodes"),
        long_name(bootstrapper.USER, *bootstrapper.GROUPS, "system:masters"),
        long_name(bootstrapper.USER, "system:authenticated"),
        subject("jane"),
    )

    def test_it_vouches_for_the_bootstrap_identity(self) -> None:
        kubelet = leaf(SIGNER, CLIENT, subject=KUBELET)
        user = beside(SIGNER).authenticate(peer_of(kubelet), None, NOW)
        assert len(user.name) == 73
        assert (user.name, set(user.groups)) == (bootstrapper.USER, {*bootstrapper.GROUPS, "system:authenticated"})

    @pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.rfc4514_string()[-40:])
    def test_a_bootstrap_ca_vouches_for_nobody_else(self, claim: x509.Name) -> None:
        assert refusal(beside(SIGNER), [leaf(SIGNER, CLIENT, subject=claim)]) == "OutsideAuthorityScope"

    def test_a_refusal_is_not_remembered_and_a_token_beside_it_counts(self) -> None:
        authenticator = authn.Authenticator(bundles.TrustBundle.of([ROOT.der]), [authn.TokenRow(Tokens({"good": JOE}))])
        authenticator.trust_bootstrap_cas(bundles.TrustBundle.of([SIGNER.der]))
        admin = leaf(SIGNER, CLIENT, subject=self.CLAIMS[0])
        assert authenticator.authenticate(peer_of(admin), "Bearer good", NOW).name == "joe"
        assert refusal(authenticator, [admin]) == "OutsideAuthorityScope"
        assert not authenticator._verified

    @pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.rfc4514_string()[-40:])
    def test_an_intermediate_of_a_bootstrap_ca_has_its_limit(self, claim: x509.Name) -> None:
        middle = ca("further", SIGNER)
        chain = [leaf(middle, CLIENT, subject=claim), middle]
        assert refusal(beside(SIGNER), chain) == "OutsideAuthorityScope"
        # Whatever else is presented beside it.
        assert refusal(beside(SIGNER), [*chain, SIGNER, ROOT]) == "OutsideAuthorityScope"
        good = [leaf(middle, CLIENT, subject=KUBELET), middle]
        assert beside(SIGNER).authenticate(peer_of(*good), None, NOW).name == bootstrapper.USER

    def test_a_bootstrap_ca_of_the_same_name(self) -> None:
        twin = ca("the client CA")
        authenticator = beside(twin)
        assert refusal(authenticator, [leaf(twin, CLIENT, subject=self.CLAIMS[0])]) == "OutsideAuthorityScope"
        assert refusal(authenticator, [leaf(twin, CLIENT, subject=self.CLAIMS[0]), ROOT]) == "OutsideAuthorityScope"
        # And takes nothing from the one it looks like.
        assert authenticator.authenticate(peer_of(leaf(ROOT, CLIENT)), None, NOW).name == "jane"

    def test_what_has_another_path_stays_good(self) -> None:
        """The same key, or a signature of a CA without a limit: that one's word counts, as it did before."""
        again = ca("the client CA", key=ROOT.key)
        assert beside(again).authenticate(peer_of(leaf(again, CLIENT)), None, NOW).name == "jane"
        middle = ca("team", ROOT)
        chain = peer_of(leaf(middle, CLIENT), middle)
        assert beside(middle).authenticate(chain, None, NOW).name == "jane"
        assert refusal(beside(middle), [leaf(middle, CLIENT)]) == "OutsideAuthorityScope"

    def test_a_revoked_bootstrap_ca(self) -> None:
        authenticator, kubelet = beside(SIGNER, OTHER), peer_of(leaf(SIGNER, CLIENT, subject=KUBELET))
        jane = peer_of(leaf(ROOT, CLIENT))
        for who in (kubelet, jane):
            authenticator.authenticate(who, None, NOW)
        told: list[str] = []
        authenticator.changed.append(lambda: told.append("all"))
        authenticator.bootstrap_cas_changed.append(lambda: told.append("scoped"))
        authenticator.trust_bootstrap_cas(bundles.TrustBundle.of([OTHER.der]))
        assert told == ["scoped"]
        assert refusal(authenticator, [leaf(SIGNER, CLIENT, subject=KUBELET)]) == "UnknownAuthority"
        with pytest.raises(identity.Unauthorized) as caught:
            authenticator.authenticate(kubelet, None, NOW)
        assert caught.value.why == "UnknownAuthority"
        # Nobody else is judged anew.
        assert authenticator.remembers(jane, None)

    def test_the_first_reason_is_told_unless_only_the_bootstrap_ca_is_known(self) -> None:
        gone: dict[str, Any] = {"not_before": NOW - 2 * DAY, "not_after": NOW - DAY}
        assert refusal(beside(SIGNER), [leaf(ROOT, CLIENT, **gone)]) == "Expired"
        assert refusal(beside(SIGNER), [leaf(ROOT, SERVER)]) == "WrongPurpose"
        assert refusal(beside(SIGNER), [leaf(SIGNER, SERVER, subject=KUBELET)]) == "WrongPurpose"
        assert refusal(beside(SIGNER), [leaf(OTHER, CLIENT)]) == "UnknownAuthority"

    def test_a_bootstrap_ca_recovers_nobody(self) -> None:
        """An expired certificate of a node that it signed: only the bundle is asked whether that is one."""
        asked: list[bundles.TrustBundle] = []

        class Recovery:
            def authenticate(self, _peer: object, bundle: bundles.TrustBundle, _now: object) -> identity.User:
                asked.append(bundle)
                raise identity.Unauthorized("UnknownAuthority", "by a test")

        judge = cast("node_recovery.NodeRecovery", Recovery())
        authenticator = authn.Authenticator(bundles.TrustBundle.of([ROOT.der]), recovery=judge)
        authenticator.trust_bootstrap_cas(bundles.TrustBundle.of([SIGNER.der]))
        node = leaf(
            SIGNER,
            CLIENT,
            subject=subject("system:node:a", "system:nodes"),
            not_before=NOW - 2 * DAY,
            not_after=NOW - DAY,
        )
        create = request.parse("POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests")
        with pytest.raises(identity.Unauthorized):
            authenticator.authenticate(peer_of(node), None, NOW, create)
        assert [each.ders for each in asked] == [(ROOT.der,)]

    def test_its_expiry_ends_an_open_connection(self) -> None:
        short = ca("short", not_after=NOW + SECOND)
        authenticator, kubelet = beside(short), leaf(short, CLIENT, subject=KUBELET)
        authenticator.authenticate(peer_of(kubelet), None, NOW)
        assert refusal(authenticator, [kubelet], NOW + 2 * SECOND) == "Expired"

    def test_the_end_of_a_bootstrap_ca(self) -> None:
        authenticator, kubelet = beside(), leaf(SIGNER, CLIENT, subject=KUBELET)
        until = {certificates.fingerprint(SIGNER.der): NOW + 2 * SECOND}
        authenticator.trust_bootstrap_cas(bundles.TrustBundle.of([SIGNER.der]), until)
        user = authenticator.authenticate(peer_of(kubelet), None, NOW + SECOND)
        # Open watches end then, too.
        assert user.until == NOW + 2 * SECOND - datetime.timedelta.resolution
        # On the connection whose verdict is remembered, from that very instant on.
        assert refusal(authenticator, [kubelet], NOW + 2 * SECOND) == "BootstrapCredentialEnded"
        # It is no longer than its certificates.
        short = leaf(SIGNER, CLIENT, subject=KUBELET, not_after=NOW + SECOND)
        assert authenticator.authenticate(peer_of(short), None, NOW).until == NOW + SECOND
        # An end that nobody can read has been.
        authenticator.trust_bootstrap_cas(
            bundles.TrustBundle.of([SIGNER.der]), dict.fromkeys(until, credential_end.LONG_AGO)
        )
        assert refusal(authenticator, [kubelet], NOW) == "BootstrapCredentialEnded"

    def test_whose_open_watches_are_judged_anew(self) -> None:
        authenticator = beside(SIGNER)
        kubelet = authenticator.authenticate(peer_of(leaf(SIGNER, CLIENT, subject=KUBELET)), None, NOW)
        with pytest.raises(identity.Unauthorized) as caught:
            authenticator.require_no_bootstrap_credential(kubelet)
        assert caught.value.why == "CredentialsChanged"
        authenticator.require_no_bootstrap_credential(
            authenticator.authenticate(peer_of(leaf(ROOT, CLIENT)), None, NOW)
        )
        # The same identity by its token has nothing to do with these CAs.
        authenticator.require_no_bootstrap_credential(
            identity.User(bootstrapper.USER, bootstrapper.GROUPS, method="token")
        )


class TestRemembers:
    """What is cheap to judge is let through where the rest has to wait for its budget: no more than that may be."""

    JANE = leaf(ROOT, CLIENT, subject="jane")

    def test_nothing_at_all_costs_little(self) -> None:
        assert trusting(ROOT).remembers(peer_of(), None)

    def test_a_chain_from_when_it_was_believed_until_the_bundle_changes(self) -> None:
        authenticator, jane = trusting(ROOT), peer_of(self.JANE)
        assert not authenticator.remembers(jane, None)
        authenticator.authenticate(jane, None, NOW)
        assert authenticator.remembers(jane, None)
        assert authenticator.remembers(jane, "Bearer bad"), "the certificate wins"
        assert not authenticator.remembers(peer_of(leaf(ROOT, CLIENT, subject="joe")), None)
        authenticator.trust(bundles.TrustBundle.of([ROOT.der]))
        assert not authenticator.remembers(jane, None)

    def test_a_refused_chain_never(self) -> None:
        authenticator, stranger = trusting(ROOT), peer_of(leaf(OTHER, CLIENT))
        refusal(authenticator, [leaf(OTHER, CLIENT)])
        assert not authenticator.remembers(stranger, None)

    def test_a_token_that_any_of_its_judges_remembers(self) -> None:
        rows = [authn.TokenRow(Tokens({}, remembered=one)) for one in ("a", "b")]
        authenticator = authn.Authenticator(bundles.TrustBundle.of([ROOT.der]), rows)
        for header, cheap in (("Bearer a", True), ("Bearer b", True), ("Bearer c", False), ("a", False), ("", False)):
            assert authenticator.remembers(peer_of(), header) is cheap
            assert authenticator.remembers(peer_of(self.JANE), header) is cheap, "an unknown chain is no hindrance"

    @pytest.mark.parametrize(("longer", "cheap"), [(0, True), (1, False)])
    def test_no_token_that_is_too_long_is_looked_at(self, longer: int, cheap: bool) -> None:
        token = "x" * (authn.TOKEN_BYTES + longer)
        rows = [authn.TokenRow(Tokens({}, remembered=token))]
        authenticator = authn.Authenticator(bundles.TrustBundle.of([ROOT.der]), rows)
        assert authenticator.remembers(peer_of(), f"Bearer {token}") is cheap
