# SPDX-License-Identifier: Apache-2.0
"""Which method counts, and what is believed of a ConfigMap that was fetched without verified TLS."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from handfast import errors
from handfast.bootstrap import cluster_info, discovery, jws, tokens
from handfast.pki import pem, pins
from tests.unit.pki import making

TOKEN = tokens.Token("abcdef", "0123456789abcdef")
OTHER = tokens.Token("fedcba", "fedcba9876543210")
CA, SECOND, MALLORY = making.ca("one"), making.ca("two"), making.ca("one")
INFO = cluster_info.ClusterInfo(("https://192.0.2.1:6443",), CA.pem, "uid")
KUBECONFIG = cluster_info.build(INFO)
PIN = pins.of_certificate(CA.der)


def body(kubeconfig=KUBECONFIG, name="cluster-info", kind="ConfigMap", **signatures):
    data = {f"jws-kubeconfig-{key}": value for key, value in signatures.items()}
    data |= {} if kubeconfig is None else {"kubeconfig": kubeconfig}
    return msgspec.json.encode({"kind": kind, "metadata": {"name": name}, "data": data})


def published(kubeconfig=KUBECONFIG, *by):
    signatures = {token.id: jws.sign(kubeconfig.encode(), token.id, token.secret) for token in by or (TOKEN,)}
    return discovery.Published(kubeconfig, signatures)


class TestChoose:
    BY_TOKEN = discovery.Offer(endpoints=("a",), token=TOKEN.text, pins=(str(PIN),))
    BY_FILE = discovery.Offer(discovery_file="f", tls_bootstrap_token=TOKEN.text)

    def test_a_token(self):
        plan = discovery.choose(self.BY_TOKEN)
        assert plan.method == discovery.ByToken(TOKEN, (PIN,))
        assert plan.signs
        assert (plan.tls_token, [str(endpoint) for endpoint in plan.endpoints]) == (TOKEN, ["a:6443"])

    def test_a_discovery_token_is_the_other_one_too(self):
        plan = discovery.choose(dataclasses.replace(self.BY_TOKEN, token=None, discovery_token=OTHER.text))
        assert (plan.method, plan.tls_token) == (discovery.ByToken(OTHER, (PIN,)), OTHER)

    def test_each_by_its_own_flag(self):
        plan = discovery.choose(
            dataclasses.replace(self.BY_TOKEN, discovery_token=OTHER.text, tls_bootstrap_token=TOKEN.text, token=None)
        )
        assert (plan.method, plan.tls_token) == (discovery.ByToken(OTHER, (PIN,)), TOKEN)

    def test_token_fills_what_is_missing(self):
        plan = discovery.choose(dataclasses.replace(self.BY_TOKEN, tls_bootstrap_token=OTHER.text))
        assert (plan.method, plan.tls_token) == (discovery.ByToken(TOKEN, (PIN,)), OTHER)
        plan = discovery.choose(dataclasses.replace(self.BY_TOKEN, discovery_token=OTHER.text))
        assert plan.method == discovery.ByToken(OTHER, (PIN,))

    def test_without_pins_by_wish(self):
        plan = discovery.choose(dataclasses.replace(self.BY_TOKEN, pins=(), unsafe_skip_ca_verification=True))
        assert plan.method == discovery.ByToken(TOKEN, ())

    def test_pins_count_even_so(self):
        plan = discovery.choose(dataclasses.replace(self.BY_TOKEN, unsafe_skip_ca_verification=True))
        assert plan.method == discovery.ByToken(TOKEN, (PIN,))

    def test_two_pins_in_upper_case(self):
        wanted = (str(PIN).upper(), str(pins.of_certificate(SECOND.der)))
        plan = discovery.choose(dataclasses.replace(self.BY_TOKEN, pins=wanted))
        assert plan.method == discovery.ByToken(TOKEN, (PIN, pins.of_certificate(SECOND.der)))

    @pytest.mark.parametrize(
        ("text", "source", "is_url"),
        [
            ("-", "-", False),
            ("some/file.yaml", "some/file.yaml", False),
            ("https://url/file.conf", "https://url/file.conf", True),
            ("HTTPS://url/file.conf?sig=1", "https://url/file.conf?sig=1", True),
            ("https://url", "https://url", True),
        ],
    )
    def test_a_file(self, text, source, is_url):
        offer = dataclasses.replace(
            self.BY_FILE, discovery_file=text, ca_file="ca" if is_url else None, endpoints=("b:1",)
        )
        plan = discovery.choose(offer)
        assert isinstance(plan.method, discovery.ByDocument)
        assert (plan.method.source, plan.method.is_url, plan.signs) == (source, is_url, False)
        assert plan.method.ca_file == ("ca" if is_url else None)
        assert (plan.tls_token, [str(endpoint) for endpoint in plan.endpoints]) == (TOKEN, ["b:1"])

    @pytest.mark.parametrize(
        ("offer", "changes", "fault"),
        [
            (BY_TOKEN, {"token": None}, discovery.Fault.NO_METHOD),
            (BY_TOKEN, {"discovery_file": "f"}, discovery.Fault.LOGIN_AND_DOCUMENT),
            (BY_TOKEN, {"discovery_file": "f", "discovery_token": OTHER.text}, discovery.Fault.TWO_METHODS),
            (BY_TOKEN, {"discovery_file": "f", "token": None, "discovery_token": ""}, discovery.Fault.TWO_METHODS),
            (BY_TOKEN, {"endpoints": ()}, discovery.Fault.NO_ENDPOINT),
            (BY_TOKEN, {"pins": ()}, discovery.Fault.NO_PIN),
            (BY_TOKEN, {"ca_file": "ca"}, discovery.Fault.CA_WITHOUT_URL),
            (BY_FILE, {"ca_file": "ca"}, discovery.Fault.CA_WITHOUT_URL),
            (BY_FILE, {"tls_bootstrap_token": None}, discovery.Fault.NO_LOGIN),
            (BY_FILE, {"pins": (str(PIN),)}, discovery.Fault.PIN_BESIDE_DOCUMENT),
            (BY_FILE, {"unsafe_skip_ca_verification": True}, discovery.Fault.UNSAFE_BESIDE_DOCUMENT),
            (BY_FILE, {"discovery_file": ""}, discovery.Fault.NO_SOURCE),
            (BY_FILE, {"discovery_file": "http://url/f"}, discovery.Fault.OTHER_SCHEME),
            (BY_FILE, {"discovery_file": "ftp://url/f"}, discovery.Fault.OTHER_SCHEME),
            (BY_FILE, {"discovery_file": "https://u r l/f"}, discovery.Fault.NO_URL),
            (BY_FILE, {"discovery_file": "https://"}, discovery.Fault.NO_URL),
            (BY_FILE, {"discovery_file": "https://url:99999/f"}, discovery.Fault.NO_URL),
            (BY_FILE, {"discovery_file": "https://a:b@url/f"}, discovery.Fault.NO_URL),
        ],
    )
    def test_an_offer_that_does_not_hold_together_is_refused(self, offer, changes, fault):
        with pytest.raises(discovery.Unfit) as caught:
            discovery.choose(dataclasses.replace(offer, **changes))
        assert caught.value.fault is fault
        assert caught.value.message == fault.value

    @pytest.mark.parametrize(
        ("changes", "reason", "hint"),
        [
            ({"endpoints": ("a", "http://b")}, "BadEndpoint", "https"),
            ({"pins": ("foo",)}, "BadPin", "64 hex"),
            ({"pins": ("sha256:xyz",)}, "BadPin", "64 hex"),
            ({"pins": (str(PIN)[:-2],)}, "BadPin", "64 hex"),
            ({"pins": (str(PIN) * 2,)}, "BadPin", "64 hex"),
            ({"token": ""}, "BadBootstrapToken", "six letters"),
            ({"token": "abcdef.0123456789abcde"}, "BadBootstrapToken", "six letters"),
            ({"tls_bootstrap_token": "abcdef"}, "BadBootstrapToken", "six letters"),
        ],
    )
    def test_what_cannot_be_read_is_refused_with_what_is_allowed(self, changes, reason, hint):
        with pytest.raises(errors.Refused) as caught:
            discovery.choose(dataclasses.replace(self.BY_TOKEN, **changes))
        assert caught.value.reason == reason
        assert hint in str(caught.value.hint)
        assert TOKEN.secret[:15] not in caught.value.message

    def test_no_repr_shows_a_token(self):
        offer = dataclasses.replace(self.BY_TOKEN, discovery_token=OTHER.text, tls_bootstrap_token=OTHER.text)
        shown = repr((offer, discovery.choose(offer)))
        assert TOKEN.secret not in shown
        assert OTHER.secret not in shown


class TestConfigMap:
    def test_it_is_read_with_the_signatures_that_are_not_empty(self):
        found = discovery.read_config_map(body(abcdef="x", fedcba="", other="y"), "a")
        assert found == discovery.Published(KUBECONFIG, {"abcdef": "x", "other": "y"})

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"<html>",
            b"[]",
            b"\xff",
            b'{"kind":"ConfigMap"}',
            b"[" * 100_000,
            body(name="another"),
            body(kind="Secret"),
        ],
    )
    def test_something_else(self, content):
        with pytest.raises(errors.Refused) as caught:
            discovery.read_config_map(content, "https://a")
        assert caught.value.reason == "NotAnAPIServer"
        assert "https://a" in caught.value.message

    @pytest.mark.parametrize(
        "content",
        [
            body(None),
            body(""),
            body(7),
            b'{"kind":"ConfigMap","metadata":{"name":"cluster-info"}}',
        ],
    )
    def test_without_a_kubeconfig(self, content):
        with pytest.raises(
            errors.Unavailable, match="there is no kubeconfig key in the cluster-info ConfigMap"
        ) as caught:
            discovery.read_config_map(content, "a")
        assert caught.value.reason == "NoClusterInfo"


class TestCheck:
    @pytest.mark.parametrize("wanted", [(), (PIN,), (pins.of_certificate(SECOND.der), PIN)])
    def test_what_is_signed_and_pinned_is_believed(self, wanted):
        assert discovery.check(published(), TOKEN, wanted) == INFO

    def test_keyed_by_the_whole_token(self):
        signature = jws.sign(KUBECONFIG.encode(), TOKEN.id, TOKEN.text)
        assert discovery.check(discovery.Published(KUBECONFIG, {TOKEN.id: signature}), TOKEN, (PIN,)) == INFO

    def test_no_signature(self):
        with pytest.raises(errors.Unavailable) as caught:
            discovery.check(discovery.Published(KUBECONFIG, {}), TOKEN, ())
        assert caught.value.reason == "SignatureMissing"

    def test_others_sign(self):
        with pytest.raises(errors.Refused, match="could not find a JWS signature") as caught:
            discovery.check(published(KUBECONFIG, OTHER), TOKEN, ())
        assert caught.value.reason == "UnknownTokenID"

    def test_a_changed_kubeconfig_is_refused(self):
        changed = dataclasses.replace(published(), kubeconfig=KUBECONFIG.replace("192.0.2.1", "192.0.2.2"))
        with pytest.raises(errors.Refused, match="failed to verify JWS signature") as caught:
            discovery.check(changed, TOKEN, ())
        assert caught.value.reason == "SignatureMismatch"

    def test_another_ca_is_refused(self):
        text = cluster_info.build(dataclasses.replace(INFO, ca=MALLORY.pem))
        with pytest.raises(errors.Refused, match="none of the public keys") as caught:
            discovery.check(published(text), TOKEN, (PIN,))
        assert caught.value.reason == "WrongPin"

    def test_no_ca_fits_no_pin(self):
        text = cluster_info.build(dataclasses.replace(INFO, ca=None))
        with pytest.raises(errors.Refused, match="no CA in cluster-info") as caught:
            discovery.check(published(text), TOKEN, (PIN,))
        assert caught.value.reason == "WrongPin"

    def test_no_ca_is_the_roots_of_the_system(self):
        text = cluster_info.build(dataclasses.replace(INFO, ca=None))
        assert discovery.anchors(discovery.check(published(text), TOKEN, ()), ()) is None

    def test_credentials_are_refused(self):
        text = KUBECONFIG.replace("users: []", 'users: [{"name": "a", "user": {"token": "x"}}]')
        with pytest.raises(errors.Refused, match=r"users\[0\].user.token") as caught:
            discovery.check(published(text), TOKEN, ())
        assert caught.value.reason == "CredentialsInClusterInfo"

    def test_several_clusters_and_a_wrong_current_context(self):
        clusters = [{"name": name, "cluster": {"server": f"https://{name}"}} for name in ("one", "two")]
        text = msgspec.json.encode({"clusters": clusters, "current-context": "none"}).decode()
        with pytest.raises(errors.Refused, match='"one", "two"') as caught:
            discovery.check(published(text), TOKEN, ())
        assert caught.value.reason == "AmbiguousClusterInfo"

    def test_only_pinned_certificates_are_anchors(self):
        both = dataclasses.replace(INFO, ca=CA.pem + MALLORY.pem)
        assert discovery.anchors(both, ()) == both.ca
        kept = discovery.anchors(both, (PIN,))
        assert kept is not None
        assert pem.certificates_from_pem(kept) == [CA.der]

    def test_the_second_fetch_has_to_be_the_same(self):
        discovery.require_same(published(), published(KUBECONFIG, OTHER))
        with pytest.raises(errors.Refused, match="was different from the first") as caught:
            discovery.require_same(published(), published(KUBECONFIG + "\n"))
        assert caught.value.reason == "ClusterInfoChanged"


class TestAdopt:
    def test_whoever_leaves_the_id_out_is_not_adopted(self):
        with pytest.raises(errors.Refused, match="does not say its id any more") as caught:
            discovery.adopt(INFO, dataclasses.replace(INFO, id=""))
        assert caught.value.reason == "OtherCluster"

    @pytest.mark.parametrize(
        ("before", "fresh", "after"),
        [
            ({}, {"servers": ("https://b",)}, {"servers": ("https://b",)}),
            ({}, {"ca": CA.pem + SECOND.pem}, {"ca": CA.pem + SECOND.pem}),
            ({}, {"ca": None}, {}),
            ({"ca": None}, {}, {}),
            ({"ca": None}, {"ca": None}, {"ca": None}),
            ({"id": ""}, {}, {}),
        ],
    )
    def test_what_the_same_cluster_says_is_adopted(self, before, fresh, after):
        known, found = dataclasses.replace(INFO, **before), dataclasses.replace(INFO, **fresh)
        assert discovery.adopt(known, found) == dataclasses.replace(INFO, **after)

    def test_another_cluster(self):
        with pytest.raises(errors.Refused, match="its id is other") as caught:
            discovery.adopt(INFO, dataclasses.replace(INFO, id="other"))
        assert caught.value.reason == "OtherCluster"


class TestCommonRoots:
    """Check 9."""

    @staticmethod
    def of(known, fresh):
        return discovery.common_roots(dataclasses.replace(INFO, ca=known), dataclasses.replace(INFO, ca=fresh))

    def test_only_what_both_have_counts(self):
        assert self.of(CA.pem, CA.pem) == (CA.pem,)
        assert self.of(CA.pem, SECOND.pem + CA.pem) == (CA.pem,)
        assert self.of(CA.pem + SECOND.pem, SECOND.pem) == (SECOND.pem,)

    def test_no_root_is_left(self):
        with pytest.raises(errors.Refused, match="none of the CA certificates any more") as caught:
            self.of(CA.pem, SECOND.pem)
        assert caught.value.reason == "AllRootsChanged"
        assert "handfast join" in str(caught.value.hint)
        with pytest.raises(errors.Refused, match="none of the CA certificates any more"):
            discovery.adopt(INFO, dataclasses.replace(INFO, ca=SECOND.pem))

    def test_a_ca_renewed_with_its_key_is_the_same(self):
        renewed = making.ca("one", key=CA.key)
        assert renewed.der != CA.der
        assert self.of(CA.pem, renewed.pem) == (renewed.pem,)

    def test_the_roots_of_the_system_are_not_given_up_either(self):
        assert self.of(None, None) == (None,)
        assert self.of(None, CA.pem) == (None, CA.pem)
        assert self.of(CA.pem, None) == (CA.pem, None)
