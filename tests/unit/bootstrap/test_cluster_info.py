# SPDX-License-Identifier: Apache-2.0
"""ClusterInfo: what is written, what is read and refused, and who signs."""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
import json
from typing import Any

import pytest
import yaml

from handfast import errors
from handfast.bootstrap import cluster_info, jws, kubeconfig, tokens

NOW = datetime.datetime(2026, 11, 15, 12, 0, 0, tzinfo=datetime.UTC)
CA = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
CA_DATA = base64.b64encode(CA).decode()
INFO = cluster_info.ClusterInfo(
    ("https://192.0.2.1:6443", "https://[2001:db8::1]:6443"), CA, "7d0c9f3e-0000-4000-8000-000000000000"
)
WRITTEN = f"""apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: {CA_DATA}
    extensions:
    - extension:
        id: "7d0c9f3e-0000-4000-8000-000000000000"
        servers:
        - https://192.0.2.1:6443
        - https://[2001:db8::1]:6443
      name: handfast.dev/cluster
    server: https://192.0.2.1:6443
  name: ""
contexts: []
current-context: ""
kind: Config
preferences: {{}}
users: []
"""


@pytest.mark.parametrize("odd", ["[]", "{}", "7", "[1]", "{a: b}"])
@pytest.mark.parametrize("key", ["apiVersion", "kind", "insecure-skip-tls-verify"])
def test_odd_values_are_refused_in_words(key, odd):
    inside = f"    {key}: {odd}\n" if key.startswith("insecure") else ""
    outside = "" if inside else f"{key}: {odd}\n"
    with pytest.raises(errors.Refused, match=f"{key}: "):
        cluster_info.read(f"{outside}clusters:\n- cluster:\n    server: https://a\n{inside}  name: ''\n")


def entry(name: Any = "", **body: Any) -> dict[str, Any]:
    given = {key.replace("_", "-"): value for key, value in body.items()}
    return {"name": name, "cluster": {"server": "https://a:1", **given}}


def document(*clusters: Any, **more: Any) -> str:
    fields = {key.replace("_", "-"): value for key, value in more.items()}
    return json.dumps({"clusters": list(clusters), **fields})


def refusal(text: str) -> errors.Refused:
    with pytest.raises(errors.Refused) as caught:
        cluster_info.read(text)
    return caught.value


# --- written ---------------------------------------------------------------------------------------------------------


def test_the_written_form():
    assert cluster_info.build(INFO) == WRITTEN
    assert cluster_info.read(WRITTEN) == INFO


def test_other_readers_see_one_cluster_and_nothing_else():
    found = yaml.safe_load(cluster_info.build(INFO))
    assert [row["name"] for row in found["clusters"]] == [""]
    assert (found["contexts"], found["users"], found["current-context"]) == ([], [], "")
    assert found["clusters"][0]["cluster"]["server"] == INFO.servers[0]
    # A context put beside it makes it a kubeconfig.
    found["contexts"], found["current-context"] = [{"name": "x", "context": {"cluster": "a"}}], "x"
    found["clusters"][0]["name"] = "a"
    assert kubeconfig.parse(yaml.safe_dump(found)).cluster.certificate_authority_data == CA


@pytest.mark.parametrize(
    "info",
    [
        cluster_info.ClusterInfo(("https://a:1",), None, ""),
        cluster_info.ClusterInfo(("https://a.example/base/",), CA, "1e5"),
        cluster_info.ClusterInfo(("https://a", "https://b/x%20=y"), CA, "true"),
        cluster_info.ClusterInfo(("https://[::1]:7",), CA, "a" * 253),
    ],
)
def test_reading_undoes_writing(info: cluster_info.ClusterInfo):
    assert cluster_info.read(cluster_info.build(info)) == info
    assert yaml.safe_load(cluster_info.build(info))["clusters"][0]["cluster"]["server"] == info.servers[0]


def test_nothing_that_cannot_be_read_is_written():
    with pytest.raises(errors.Misuse, match="without a server"):
        cluster_info.build(cluster_info.ClusterInfo((), CA, ""))
    with pytest.raises(errors.Refused, match=r'id: "a b" is no identifier'):
        cluster_info.build(cluster_info.ClusterInfo(("https://a",), CA, "a b"))
    with pytest.raises(errors.Refused, match=r"servers\[1\]: \"http://a\" is not a URL such as"):
        cluster_info.build(cluster_info.ClusterInfo(("https://a", "http://a"), CA, ""))


# --- read ------------------------------------------------------------------------------------------------------------


def test_a_text_of_kubeadm():
    text = (
        f"apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {CA_DATA}\n"
        '    server: https://127.0.0.1:6443\n  name: ""\ncontexts: null\ncurrent-context: ""\nkind: Config\nusers: null\n'
    )
    assert cluster_info.read(text) == cluster_info.ClusterInfo(("https://127.0.0.1:6443",), CA, "")


CONTEXTS = [{"name": "x", "context": {"cluster": "b"}}, {"name": "y", "context": None}]
A, B, UNNAMED = entry("a"), entry("b", server="https://b:2"), entry("", server="https://unnamed:3")


@pytest.mark.parametrize(
    ("text", "server"),
    [
        pytest.param(
            document(A, B, UNNAMED, contexts=CONTEXTS, current_context="x"), "https://unnamed:3", id="unnamed"
        ),
        pytest.param(document(A, B, contexts=CONTEXTS, current_context="x"), "https://b:2", id="current context"),
        pytest.param(document(A, contexts=CONTEXTS, current_context="x"), "https://a:1", id="only one"),
        pytest.param(document(A, contexts=CONTEXTS, current_context="y"), "https://a:1", id="context without cluster"),
        pytest.param(document(entry(None), B), "https://a:1", id="null is no name"),
        pytest.param(document(UNNAMED, entry("")), "https://unnamed:3", id="twice, the first"),
    ],
)
def test_which_cluster(text: str, server: str):
    assert cluster_info.read(text).servers == (server,)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (document(B, A), '"a", "b"'),
        (document(B, A, contexts=CONTEXTS, current_context="z"), '"a", "b"'),
        (document(A, entry("c"), contexts=CONTEXTS, current_context="x"), '"a", "c"'),
        (document(), "none"),
        ("{}", "none"),
    ],
)
def test_no_cluster_is_guessed(text: str, names: str):
    refused = refusal(text)
    assert refused.reason == "AmbiguousClusterInfo"
    assert refused.message.endswith(f"there are: {names}")


EXTENSION: dict[str, Any] = {"name": "handfast.dev/cluster", "extension": {"id": "i", "servers": ["https://b:2"]}}


def test_the_extension():
    other = {"name": "minikube.sigs.k8s.io/cluster_info", "extension": 7}
    found = cluster_info.read(document(entry(extensions=[other, "odd", EXTENSION])))
    assert found == cluster_info.ClusterInfo(("https://a:1", "https://b:2"), None, "i")
    absent: list[Any] = [None, {}, [other]]
    for extensions in absent:
        assert cluster_info.read(document(entry(extensions=extensions))).id == ""


def extended(**more: Any) -> str:
    return document(entry(extensions=[{**EXTENSION, "extension": {**EXTENSION["extension"], **more}}]))


def user(**body: Any) -> str:
    given = {key.replace("_", "-"): value for key, value in body.items()}
    return document(A, users=[{"name": "nobody"}, {"name": "u", "user": given}])


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (user(token="abcdef.0123456789abcdef"), "users[1].user.token"),
        (user(tokenFile="f"), "users[1].user.tokenFile"),
        (user(client_certificate="f"), "users[1].user.client-certificate"),
        (user(client_certificate_data="eA=="), "users[1].user.client-certificate-data"),
        (user(client_key="f"), "users[1].user.client-key"),
        (user(client_key_data="eA=="), "users[1].user.client-key-data"),
        (user(username="admin"), "users[1].user.username"),
        (user(password="hunter2"), "users[1].user.password"),
        (user(exec={"command": "x"}), "users[1].user.exec"),
        (user(auth_provider={"name": "gcp"}), "users[1].user.auth-provider"),
        (user(**{"as": "root"}), "users[1].user.as"),
        (user(anything=True), "users[1].user.anything"),
        (document(entry(server="https://u:hunter2@a:1")), "clusters[0].cluster.server"),
        (document(A, entry("b", proxy_url="http://u:hunter2@p:1")), "clusters[1].cluster.proxy-url"),
        (extended(servers=["https://u:hunter2@a:1"]), "clusters[0].cluster.extensions[0].extension.servers[0]"),
    ],
)
def test_credentials_are_refused_by_name(text: str, where: str):
    refused = refusal(text)
    assert refused.reason == "CredentialsInClusterInfo"
    assert refused.message == f"cluster-info: {where}: credentials do not belong in a ClusterInfo"
    assert "--tls-bootstrap-token" in str(refused.hint)


def test_an_empty_user_is_no_credential():
    text = document(A, users=[{"name": "u", "user": {"token": "", "exec": None, "as-groups": []}}, {"name": "v"}])
    assert cluster_info.read(text).servers == ("https://a:1",)


@pytest.mark.parametrize("value", [True, "true", 1])
def test_insecure_is_refused(value: Any):
    refused = refusal(document(entry(insecure_skip_tls_verify=value, certificate_authority_data=CA_DATA)))
    assert refused.reason == "InsecureClusterInfo"
    assert "clusters[0].cluster.insecure-skip-tls-verify" in refused.message


def test_not_insecure_is_not():
    assert cluster_info.read(document(entry(insecure_skip_tls_verify=False))).ca is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "the document must be a mapping"),
        (document(A, apiVersion="v2"), "apiVersion: must be 'v1'"),
        (document(A, kind="Pod"), "kind: must be 'Config'"),
        ('{"clusters": {}}', "clusters: must be a list"),
        (document("a"), "clusters[0]: must be a mapping"),
        (document({"name": "", "cluster": []}), "clusters[0].cluster: must be a mapping"),
        (document(entry(True)), "clusters[0].name: must be a string"),
        (document(A, users=[{"user": "u"}]), "users[0].user: must be a mapping"),
        (document(A, current_context=True), "cluster-info: current-context: must be a string"),
        (document(entry(server=None)), "clusters[0].cluster.server: required, an https URL"),
        (document(entry(server=True)), "clusters[0].cluster.server: must be a string"),
        (document(entry(server="http://a")), '"http://a" is not a URL such as https://192.0.2.1:6443'),
        (document(entry(server="https://")), '"https://" is not a URL'),
        (document(entry(server="https://a:0")), '"https://a:0" is not a URL'),
        (document(entry(server="https://a:x")), '"https://a:x" is not a URL'),
        (document(entry(server="https://[a")), '"https://[a" is not a URL'),
        (document(entry(server="https://a?x")), '"https://a?x" is not a URL'),
        (document(entry(server="https://a#x")), '"https://a#x" is not a URL'),
        (document(entry(server="https://a b")), '"https://a b" is not a URL'),
        (document(entry(server="https://é")), "is not a URL"),
        (document(entry(proxy_url="http://p")), "clusters[0].cluster.proxy-url: not supported here"),
        (document(entry(tls_server_name="a")), "clusters[0].cluster.tls-server-name: not supported here"),
        (document(entry(certificate_authority="/ca.crt")), "a path says nothing on another machine"),
        (document(entry(certificate_authority_data="?")), "certificate-authority-data: not base64"),
        (document(entry(extensions=[{"name": "handfast.dev/cluster"}])), "extensions[0].extension: must be a mapping"),
        (extended(servers=None), "extensions[0].extension.servers: must be a list of URLs"),
        (extended(servers=["https://b", None]), "extensions[0].extension.servers[1]: required, an https URL"),
        (extended(id=True), "extensions[0].extension.id: must be a string"),
        (
            extended(id="\x1b[2J"),
            r'extensions[0].extension.id: "\u001b[2J" is no identifier; allowed: 1 to 253 letters, digits, ., _ and -',
        ),
        (extended(id="a\n"), "is no identifier"),
        (extended(id="a" * 254), "is no identifier"),
        (document(entry(server="https://a\nb")), r'"https://a\nb" is not a URL'),
        (document(entry(server="https://a/x\ty")), r'"https://a/x\ty" is not a URL'),
        (document(entry(server=f"https://{'a' * 64}.b")), "is not a URL"),
        (document(entry(server="https://a/b'c")), "is not a URL"),
    ],
)
def test_a_wrong_document_is_refused_with_its_field(text: str, says: str):
    refused = refusal(text)
    assert refused.reason in {"BadClusterInfo", "BadKubeconfig"}
    assert says in refused.message


def test_data_beside_a_path_counts():
    assert cluster_info.read(document(entry(certificate_authority="/x", certificate_authority_data=CA_DATA))).ca == CA


# --- signed ----------------------------------------------------------------------------------------------------------

ROOM = 1 << 20
CONTENT = "payload"


def secret(token_id: str = "abc123", **data: str | None) -> tokens.TokenSecret:
    """The Secret of a token that signs, with data keys (`_` for `-`) replaced or, where None, left out."""
    values: dict[str, str | None] = {
        "token-id": token_id,
        "token-secret": "tokenSecret",
        "usage-bootstrap-signing": "true",
    }
    values |= {key.replace("_", "-"): value for key, value in data.items()}
    packed = {key: base64.b64encode(value.encode()).decode() for key, value in values.items() if value is not None}
    name = tokens.secret_name(token_id)
    return tokens.read({"metadata": {"name": name}, "type": tokens.SECRET_TYPE, "data": packed})


def at(hours: float) -> str:
    return (NOW + datetime.timedelta(hours=hours)).isoformat()


def signatures(text: str, secrets: list[tokens.TokenSecret], *arguments: Any, **named: Any) -> cluster_info.Signatures:
    """Of those that may sign."""
    found = [each for each in map(cluster_info.signing_token, secrets) if each is not None]
    return cluster_info.signatures(text, found, *arguments, **named)


@pytest.mark.parametrize(
    ("given", "signs"),
    [
        pytest.param(secret(), True, id="no expiration"),
        pytest.param(secret(expiration=at(1)), True, id="expires in an hour"),
        pytest.param(secret(expiration=at(0)), False, id="expires now"),
        pytest.param(secret(expiration=at(-1)), False, id="expired an hour ago"),
        pytest.param(secret(expiration="garbage"), False, id="garbage expiration"),
        pytest.param(secret(usage_bootstrap_signing=""), False, id="usage empty"),
        pytest.param(secret(usage_bootstrap_signing=None), False, id="usage missing"),
        pytest.param(secret(usage_bootstrap_signing="True"), False, id="usage in other letters"),
        pytest.param(secret(token_id=""), False, id="id empty"),
        pytest.param(secret(token_secret=""), False, id="secret empty"),
        pytest.param(secret(**{"token-id": "other1"}), False, id="name mismatch"),
    ],
)
def test_who_signs(given: tokens.TokenSecret, signs: bool):
    found = signatures(CONTENT, [given], NOW, ROOM)
    # The vector of Kubernetes for this content, id and secret.
    vector = "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiYzEyMyJ9..QSxpUG7Q542CirTI2ECPSZjvBOJURUW5a7XqFpNI958"
    assert found.data == ({"jws-kubeconfig-abc123": vector} if signs else {})
    assert found.left_out == ()


def test_a_token_that_is_being_deleted_does_not_sign():
    document = tokens.secret_document(tokens.Token("abcdef", "0123456789abcdef"), usages=["signing"])
    document["metadata"]["deletionTimestamp"] = "2026-11-15T11:00:00Z"
    assert signatures(CONTENT, [tokens.read(document)], NOW, ROOM).data == {}


def test_the_signatures_are_those_of_an_independent_implementation():
    text = WRITTEN + "# é\n"
    found = signatures(text, [secret("000001"), secret("000002", token_secret="x" * 16)], NOW, ROOM).data
    for key, key_text in (("000001", "tokenSecret"), ("000002", "x" * 16)):
        head, mac = found[f"jws-kubeconfig-{key}"].split("..")
        signed = f"{head}.{base64.urlsafe_b64encode(text.encode()).decode().rstrip('=')}"
        wanted = hmac.new(key_text.encode(), signed.encode(), hashlib.sha256).digest()
        assert base64.urlsafe_b64decode(mac + "=") == wanted
        assert json.loads(base64.urlsafe_b64decode(head + "==")) == {"alg": "HS256", "kid": key}


def test_when_it_changes_next():
    given = [secret("000001"), secret("000002", expiration=at(2)), secret("000003", expiration=at(1))]
    given += [secret("000004", expiration=at(-1)), secret("000005", expiration=at(0.5), usage_bootstrap_signing=None)]
    assert signatures(CONTENT, given, NOW, ROOM).next_change == NOW + datetime.timedelta(hours=1)
    assert signatures(CONTENT, given[:1], NOW, ROOM).next_change is None


def test_those_that_expire_last_keep_their_signatures():
    given = [secret(f"00000{hours}", expiration=at(hours)) for hours in (3, 1, 4, 2)]
    given += [secret("00000b"), secret("00000a")]
    one = sum(len(text) for pair in signatures(CONTENT, given[:1], NOW, ROOM).data.items() for text in pair)
    for count, left_out in (
        (6, ()),
        (4, ("000002", "000001")),
        (2, ("000004", "000003", "000002", "000001")),
        (1, ("00000b", "000004", "000003", "000002", "000001")),
        (0, ("00000a", "00000b", "000004", "000003", "000002", "000001")),
    ):
        found = signatures(CONTENT, given, NOW, one * count)
        assert (len(found.data), found.left_out) == (count, left_out)
        assert sum(len(key) + len(value) for key, value in found.data.items()) == one * count
        # One that is left out changes something when it expires, too.
        assert found.next_change == NOW + datetime.timedelta(hours=1)
        short = signatures(CONTENT, given, NOW, one * count - 1)
        assert len(short.data) == max(0, count - 1)


def test_what_signs_may_remember():
    calls: list[tuple[bytes, str, str]] = []

    def sign(content: bytes, token_id: str, secret: str) -> str:
        calls.append((content, token_id, secret))
        return jws.sign(content, token_id, secret)

    made = signatures("é", [secret()], NOW, ROOM, sign=sign)
    assert calls == [("é".encode(), "abc123", "tokenSecret")]
    assert made == signatures("é", [secret()], NOW, ROOM)


def test_no_field_of_a_user_reaches_a_terminal_as_it_is():
    text = 'users: [{name: me, user: {"\\e[2J": x}}]'
    with pytest.raises(errors.Refused) as caught:
        cluster_info.read(text)
    assert r'users[0].user."\u001b[2J": credentials' in caught.value.message


def test_a_text_that_nobody_vouches_for_is_read_up_to_a_limit():
    text = cluster_info.build(cluster_info.ClusterInfo(("https://a",), CA, ""))
    longer = text + "#" * (cluster_info.MAX_UNVERIFIED + 1 - len(text))
    assert cluster_info.read(longer) == cluster_info.read(longer[:-1], cluster_info.MAX_UNVERIFIED)
    with pytest.raises(errors.Refused, match="at most 65536 are read"):
        cluster_info.read(longer, cluster_info.MAX_UNVERIFIED)


USER = "users: [{name: u, user: {token: abc}}]"


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (WRITTEN, ""),
        ("payload", ""),
        ("", ""),
        ("a: [", ""),
        ("users: [{name: u, user: {}}]", ""),
        (WRITTEN.replace("users: []", USER), "users[0].user.token"),
        ("{users: [{name: u, user: {client-key-data: AAAA}}]}", "users[0].user.client-key-data"),
        ("clusters: [{name: c, cluster: {server: 'https://a:b@c'}}]", "clusters[0].cluster.server"),
        # What cannot be read here may be readable elsewhere.
        ("a: &x {token: abc}\nusers: [{user: *x}]", "token"),
        ("a: [\npassword : x", "password"),
    ],
)
def test_only_a_text_without_credentials_may_be_signed(text: str, where: str):
    if not where:
        cluster_info.require_no_credentials(text)
        return
    with pytest.raises(errors.Refused) as caught:
        cluster_info.require_no_credentials(text)
    assert caught.value.reason == cluster_info.CREDENTIALS
    assert caught.value.message.startswith(f"cluster-info: {where}: credentials")
    assert "abc" not in caught.value.message
