# SPDX-License-Identifier: Apache-2.0
"""The variables of a proxy: every spelling, and what no proxy starts with."""

from __future__ import annotations

import base64

import pytest

from handfast.rules.mesh import proxy_environment, sidecar
from tests.unit.pki import making

IDENTITY = "web.shop.sa.linkerd-identity.linkerd.cluster.local"
ROOT = making.ca("root")
OTHER = making.ca("other")
P = "LINKERD2_PROXY_"
BLOB = f"{P}IDENTITY_TRUST_ANCHORS_BLOB"
RAW = f"{P}IDENTITY_TRUST_ANCHORS"
NAME = f"{P}LOCAL_IDENTITY_NAME"
STORE = f"{P}IDENTITY_STORE_DIR"
TOKEN = f"{P}IDENTITY_TOKEN_FILE"


def blob(*pems: bytes) -> str:
    return base64.b64encode(b"".join(pems)).decode()


SEED = {NAME: IDENTITY, BLOB: blob(ROOT.pem), TOKEN: "/token", STORE: "/store"}


def changed(**changes: str | None) -> dict[str, str]:
    """The seed's variables, with others for these words; None takes one away."""
    renamed = {word if word.startswith("LINKERD") else f"{P}{word}": value for word, value in changes.items()}
    return {name: value for name, value in {**SEED, **renamed}.items() if value is not None}


def refusal(variables: dict[str, str]) -> proxy_environment.Invalid:
    with pytest.raises(proxy_environment.Invalid) as refused:
        proxy_environment.read(variables)
    return refused.value


def test_the_seeds_variables_are_read():
    read = proxy_environment.read({**SEED, "HOME": "/"})
    assert read is not None
    assert (read.name, read.token_file, read.store) == (IDENTITY, "/token", "/store")
    assert [anchor.der for anchor in read.anchors.anchors] == [ROOT.der]
    assert "anchors" not in repr(read)


def test_without_a_name_it_is_a_plain_proxy():
    assert proxy_environment.read({}) is None
    assert proxy_environment.read(changed(LOCAL_IDENTITY_NAME=None)) is None


@pytest.mark.parametrize(
    "spelling",
    ["LOCAL_IDENTITY", "IDENTITY_LOCAL_NAME", "IDENTITY_SERVER_NAME", "IDENTITY_SERVER_ID"],
)
def test_every_spelling_of_the_name_counts(spelling):
    read = proxy_environment.read(changed(LOCAL_IDENTITY_NAME=None, **{spelling: IDENTITY}))
    assert read is not None
    assert read.name == IDENTITY


def test_todays_name_of_the_directory_is_what_refusals_name():
    read = proxy_environment.read(changed(IDENTITY_STORE_DIR=None, IDENTITY_DIR="/today"))
    assert read is not None
    assert (read.store, read.store_variable) == ("/today", f"{P}IDENTITY_DIR")


@pytest.mark.parametrize("spelling", ["LINKERD_PROXY_TRUST_ANCHORS_BLOB", RAW, BLOB])
@pytest.mark.parametrize("value", [ROOT.pem.decode(), blob(ROOT.pem), base64.encodebytes(ROOT.pem).decode()])
def test_anchors_are_pem_or_base64_of_it_under_every_name(spelling, value):
    read = proxy_environment.read(changed(IDENTITY_TRUST_ANCHORS_BLOB=None) | {spelling: value})
    assert read is not None
    assert read.anchors.ders == (ROOT.der,)


def test_what_the_injector_sets_is_taken():
    # Both spellings of everything, anchors in both forms.
    read = proxy_environment.read(
        changed(
            LOCAL_IDENTITY=IDENTITY,
            IDENTITY_LOCAL_NAME=IDENTITY,
            IDENTITY_DIR="/store",
            IDENTITY_TRUST_ANCHORS_BLOB=blob(ROOT.pem, OTHER.pem),
            IDENTITY_TRUST_ANCHORS=(OTHER.pem + ROOT.pem).decode(),
        )
    )
    assert read is not None
    assert set(read.anchors.ders) == {ROOT.der, OTHER.der}
    assert proxy_environment.NAME.startswith(sidecar.PREFIX)


@pytest.mark.parametrize(
    ("first", "other", "value"),
    [
        (NAME, f"{P}LOCAL_IDENTITY", "api.shop.sa.linkerd-identity.linkerd.cluster.local"),
        (NAME, f"{P}IDENTITY_SERVER_ID", "spiffe://cluster.local/ns/shop/sa/web"),
        (STORE, f"{P}IDENTITY_DIR", "/elsewhere"),
        (BLOB, RAW, OTHER.pem.decode()),
        (BLOB, "LINKERD_PROXY_TRUST_ANCHORS_BLOB", blob(ROOT.pem, OTHER.pem)),
    ],
)
def test_two_values_for_one_thing_are_refused(first, other, value):
    refused = refusal({**SEED, other: value})
    assert refused.reason == "ProxyVariablesDiffer"
    assert first in refused.message
    assert other in refused.message


@pytest.mark.parametrize("variable", [BLOB, TOKEN, STORE])
def test_what_is_missing_is_named(variable):
    refused = refusal({name: value for name, value in SEED.items() if name != variable})
    assert refused.reason == "ProxyVariableMissing"
    assert f"{variable} is not set" in refused.message
    assert refused.hint


@pytest.mark.parametrize("variable", [NAME, BLOB, TOKEN, STORE])
@pytest.mark.parametrize("value", ["", " \n"])
def test_an_empty_variable_is_no_plain_proxy(variable, value):
    refused = refusal({**SEED, variable: value})
    assert refused.reason == "ProxyVariableEmpty"
    assert variable in refused.message


@pytest.mark.parametrize(
    "name",
    [
        "web",
        "Web.shop",
        "web.shop.",
        ".web.shop",
        "*.shop",
        "web.1",
        "10.0.0.1",
        "$(K8S_SA).$(K8S_NS)",
        "web..shop",
        "web.shop\n",
        f"{'a' * 64}.shop",
        ".".join(["a" * 60] * 5),
    ],
)
def test_a_name_that_no_certificate_can_have_is_refused(name):
    refused = refusal({**SEED, NAME: name})
    assert refused.reason == "BadProxyIdentity"
    assert NAME in refused.message
    assert len(refused.message) < 600


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("no base64!", "TrustAnchorsNotBase64"),
        ("\udcff", "TrustAnchorsNotBase64"),
        (blob(ROOT.der), "TrustAnchorsNotPEM"),
        (blob(b"text"), "TrustAnchorsNotPEM"),
        (blob(making.leaf(ROOT).pem), "BadTrustAnchor"),
        (blob(ROOT.pem, making.leaf(ROOT).pem), "BadTrustAnchor"),
        (blob(ROOT.pem[:-40]), "BadTrustAnchor"),
        (blob(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), "BadTrustAnchor"),
        (blob(b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"), "BadTrustAnchor"),
    ],
)
def test_anchors_that_cannot_be_used_are_refused_with_variable_and_cause(value, reason):
    refused = refusal({**SEED, BLOB: value})
    assert refused.reason == reason
    assert refused.message.startswith(f"{BLOB}: ")


@pytest.mark.parametrize("value", [blob(ROOT.pem * 2000), (ROOT.pem * 600).decode()])
def test_two_thousand_anchors_are_refused(value):
    refused = refusal({**SEED, BLOB: value})
    assert refused.reason == "BadTrustAnchor"
    assert BLOB in refused.message


@pytest.mark.parametrize("variable", [TOKEN, STORE])
def test_a_path_that_cannot_be_printed_is_refused(variable):
    refused = refusal({**SEED, variable: "/a\n/b"})
    assert refused.reason == "BadProxyPath"
    assert variable in refused.message


FILES = {NAME: IDENTITY, TOKEN: "/token"} | {
    f"{P}IDENTITY_{word}_FILE": f"/store/{word}" for word in ("KEY", "CSR", "TRUST_ANCHORS")
}


def test_after_the_start_up_the_files_are_named():
    read = proxy_environment.read_files(FILES)
    assert read == proxy_environment.ProxyFiles(
        name=IDENTITY,
        key_file="/store/KEY",
        csr_file="/store/CSR",
        anchors_file="/store/TRUST_ANCHORS",
        token_file="/token",
    )
    assert proxy_environment.read_files({TOKEN: "/token"}) is None


@pytest.mark.parametrize("variable", sorted(set(FILES) - {NAME}))
def test_without_one_of_the_files_no_proxy_runs(variable):
    with pytest.raises(proxy_environment.Invalid, match=f"^{variable} is not set") as refused:
        proxy_environment.read_files({name: value for name, value in FILES.items() if name != variable})
    assert refused.value.reason == "ProxyVariableMissing"
