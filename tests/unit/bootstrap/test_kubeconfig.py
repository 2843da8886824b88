# SPDX-License-Identifier: Apache-2.0
"""Kubeconfig documents are written, and read with errors that name the field; it does not test files or TLS."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess

import pytest
import yaml

from handfast import errors
from handfast.bootstrap import kubeconfig

USUAL = kubeconfig.build(
    cluster="kubernetes",
    server="https://192.0.2.1:6443",
    ca=b"the ca",
    user="kubernetes-admin",
    client_certificate=b"the certificate",
    client_key=b"the secret key",
)

BASE = """
apiVersion: v1
kind: Config
current-context: one
contexts:
- name: one
  context: {cluster: c, user: u, namespace: team}
- name: anonymous
  context: {cluster: c}
clusters:
- name: c
  cluster:
    server: https://api.example:6443
users:
- name: u
  user:
    token: abc
"""


def with_user(body: str) -> str:
    return BASE.replace("    token: abc\n", body)


def with_cluster(body: str) -> str:
    return BASE.replace("    server: https://api.example:6443\n", body)


def test_the_document_has_the_fields_of_kubeadms():
    assert yaml.safe_load(USUAL) == {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "current-context": "kubernetes-admin@kubernetes",
        "clusters": [
            {
                "name": "kubernetes",
                "cluster": {"server": "https://192.0.2.1:6443", "certificate-authority-data": "dGhlIGNh"},
            }
        ],
        "contexts": [
            {
                "name": "kubernetes-admin@kubernetes",
                "context": {"cluster": "kubernetes", "user": "kubernetes-admin"},
            }
        ],
        "users": [
            {
                "name": "kubernetes-admin",
                "user": {
                    "client-certificate-data": "dGhlIGNlcnRpZmljYXRl",
                    "client-key-data": "dGhlIHNlY3JldCBrZXk=",
                },
            }
        ],
    }


def test_parse_what_was_built():
    config = kubeconfig.parse(USUAL)
    assert config.context == "kubernetes-admin@kubernetes"
    assert config.cluster == kubeconfig.Cluster(
        name="kubernetes", server="https://192.0.2.1:6443", certificate_authority_data=b"the ca"
    )
    assert config.user == kubeconfig.User(
        name="kubernetes-admin", client_certificate_data=b"the certificate", client_key_data=b"the secret key"
    )


EVERYTHING = kubeconfig.Kubeconfig(
    context="yes",
    namespace="1.5",
    cluster=kubeconfig.Cluster(
        name="2026-01-01",
        server="https://[2001:db8::1]:6443",
        certificate_authority="pki/ca.crt",
        tls_server_name="kubernetes",
        proxy_url="http://proxy.example:3128",
    ),
    user=kubeconfig.User(
        name="ünïcode",
        client_certificate="/a b/client.crt",
        client_key="client.key",
        token="012345.0123e56789012345",
        token_file="/run/token",
    ),
)


@pytest.mark.parametrize(
    "config",
    [
        EVERYTHING,
        dataclasses.replace(EVERYTHING, user=None, namespace=""),
        dataclasses.replace(
            EVERYTHING,
            cluster=kubeconfig.Cluster(name="c", server="http://localhost", insecure_skip_tls_verify=True),
        ),
    ],
)
def test_parse_undoes_render(config: kubeconfig.Kubeconfig):
    assert kubeconfig.parse(kubeconfig.render(config)) == config


def test_what_looks_like_a_number_is_quoted():
    assert 'token: "012345.0123e56789012345"' in kubeconfig.render(EVERYTHING)


def test_what_looks_like_a_number_is_text():
    config = kubeconfig.parse(with_user("    token: 012345.0123456789012345\n"))
    assert config.user is not None
    assert config.user.token == "012345.0123456789012345"


def test_the_context_that_is_named_counts_before_the_current_one():
    assert kubeconfig.parse(BASE).namespace == "team"
    anonymous = kubeconfig.parse(BASE, "anonymous")
    assert (anonymous.context, anonymous.user, anonymous.namespace) == ("anonymous", None, "")


def test_first_of_one_name_counts():
    config = kubeconfig.parse(BASE.replace("users:\n", "users:\n- {name: u, user: {token: first}}\n"))
    assert config.user is not None
    assert config.user.token == "first"


def test_of_several_documents_the_first_that_names_something_counts():
    one = kubeconfig.load("{clusters: [{name: a, cluster: {server: 'https://one'}}], current-context: ''}")
    two = kubeconfig.load(
        "{current-context: x, contexts: [{name: x, context: {cluster: a, user: u}}], "
        "clusters: [{name: a, cluster: {server: 'https://two'}}], users: [{name: u, user: {token: t}}]}"
    )
    three = kubeconfig.load("{current-context: y, users: [{name: u, user: {token: other}}]}")
    found = kubeconfig.resolve(kubeconfig.merge([one, two, three]))
    assert (found.context, found.cluster.server) == ("x", "https://one")
    assert found.user is not None
    assert found.user.token == "t"


def test_each_of_several_documents_is_a_kubeconfig():
    with pytest.raises(errors.Refused, match="kind: 'Pod' is not supported"):
        kubeconfig.merge([kubeconfig.load("{kind: Config}"), kubeconfig.load("{kind: Pod}")])


def test_paths_are_those_of_their_own_document():
    document = kubeconfig.load(
        "{clusters: [{name: a, cluster: {certificate-authority: ca.crt, server: s}}, {name: b}], "
        "users: [{name: u, user: {client-key: k, client-certificate: '', tokenFile: t, token: k}}]}"
    )
    found = kubeconfig.anchored(document, lambda text: f"/d/{text}")
    assert found["clusters"] == [
        {"name": "a", "cluster": {"certificate-authority": "/d/ca.crt", "server": "s"}},
        {"name": "b"},
    ]
    assert found["users"][0]["user"] == {
        "client-key": "/d/k",
        "client-certificate": "",
        "tokenFile": "/d/t",
        "token": "k",
    }


def test_without_version_and_with_unknown_fields():
    text = BASE.replace("apiVersion: v1\nkind: Config\n", "extensions: []\nfuture: {}\n")
    assert kubeconfig.parse(text) == kubeconfig.parse(BASE)


def test_user_without_body():
    config = kubeconfig.parse(BASE.replace("  user:\n    token: abc\n", ""))
    assert config.user == kubeconfig.User(name="u")


def test_folded_data():
    config = kubeconfig.parse(
        with_cluster("    server: https://a\n    certificate-authority-data: |\n      dGhl\n      IGNh\n")
    )
    assert config.cluster.certificate_authority_data == b"the ca"


def test_json_is_yaml():
    context = '{"name": "x", "context": {"cluster": "c"}}'
    text = f'{{"contexts": [{context}], "clusters": [{{"name": "c", "cluster": {{"server": "https://a"}}}}]}}'
    assert kubeconfig.parse(text, "x").cluster.server == "https://a"


def test_document_of_cluster_info():
    cluster = '- cluster:\n    server: https://a\n  name: ""\n'
    text = f'apiVersion: v1\nclusters:\n{cluster}contexts: null\ncurrent-context: ""\n'
    assert kubeconfig.load(text)["clusters"][0]["cluster"] == {"server": "https://a"}
    with pytest.raises(errors.Refused, match="current-context: not set"):
        kubeconfig.parse(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("", "must be a mapping", id="empty"),
        pytest.param("- a\n", "must be a mapping", id="list"),
        pytest.param("a: [\n", "not one YAML document, line 2", id="broken"),
        pytest.param("a: 1\n---\nb: 2\n", "not one YAML document", id="two documents"),
        pytest.param("a: \udc80\n", "not one YAML document", id="not Unicode"),
        pytest.param("a: &x {}\n", "line 1: YAML anchors and aliases", id="anchor"),
        pytest.param("a: *x\n", "line 1: YAML anchors and aliases", id="alias"),
        pytest.param("\na: !!binary aGk=\n", "line 2: YAML tags", id="tag"),
        pytest.param("a: !!python/object/apply:os.system [x]\n", "line 1: YAML tags", id="python tag"),
        pytest.param("<<: {a: b}\n", "line 1: a key must be a string", id="merge key"),
        pytest.param("true: a\n", "line 1: a key must be a string", id="boolean key"),
        pytest.param("a: {b: 1, b: 2}\n", 'line 1: "b" occurs twice', id="key twice"),
        pytest.param(f"{'k' * 201}: 1\n{'k' * 201}: 2\n", f'line 2: "{"k" * 200}" occurs twice', id="long key twice"),
        pytest.param('{"\\e[2J": 1, "\\e[2J": 2}', r'line 1: "\u001b[2J" occurs twice', id="hostile key twice"),
        pytest.param("a: " + "[" * 40, "more than 32 levels deep", id="deep"),
        pytest.param(" " * (kubeconfig.MAX_BYTES + 1), "at most 1048576 are read", id="too large"),
        pytest.param(BASE.replace("v1", "v2"), "apiVersion: 'v2' is not supported; it must be 'v1'", id="version"),
        pytest.param(BASE.replace("Config", "Pod"), "kind: 'Pod' is not supported", id="kind"),
        pytest.param(BASE.replace("kind: Config", "kind: yes"), "kind: must be a string", id="not a string"),
        pytest.param(
            BASE.replace("current-context: one", "current-context: two"),
            'current-context: there is no context "two"; the document has: "anonymous", "one"',
            id="unknown context",
        ),
        pytest.param(
            BASE.replace("{cluster: c, user", "{cluster: d, user"),
            'contexts[0].context.cluster: there is no cluster "d"; the document has: "c"',
            id="missing cluster",
        ),
        pytest.param(
            BASE.replace("user: u,", "user: v,"),
            'contexts[0].context.user: there is no user "v"; the document has: "u"',
            id="missing user",
        ),
        pytest.param(
            BASE.replace("cluster: c, user: u, ", ""), "contexts[0].context.cluster: required", id="no cluster named"
        ),
        pytest.param("current-context: x\n", 'there is no context "x"; the document has: none', id="no contexts"),
        pytest.param("current-context: x\ncontexts: {}\n", "contexts: must be a list", id="not a list"),
        pytest.param("current-context: x\ncontexts: [a]\n", "contexts[0]: must be a mapping", id="not a mapping"),
        pytest.param(
            "current-context: x\ncontexts: [{name: x, context: a}]\n",
            "contexts[0].context: must be a mapping",
            id="body is not a mapping",
        ),
        pytest.param(with_cluster("    proxy-url: x\n"), "clusters[0].cluster.server: required", id="no server"),
        pytest.param(with_cluster("    server: api.example\n"), "'api.example' is not a URL such as", id="no scheme"),
        pytest.param(with_cluster("    server: https://\n"), "is not a URL", id="no host"),
        pytest.param(with_cluster("    server: https://a:x\n"), "is not a URL", id="bad port"),
        pytest.param(with_cluster("    server: https://a:0\n"), "is not a URL", id="port 0"),
        pytest.param(with_cluster("    server: https://a:secret@b\n"), "credentials do not belong", id="password"),
        pytest.param(
            with_cluster("    server: https://a\n    certificate-authority-data: '!'\n"),
            "clusters[0].cluster.certificate-authority-data: not base64",
            id="bad base64",
        ),
        pytest.param(
            with_cluster("    server: https://a\n    certificate-authority-data: AB==\n"),
            "clusters[0].cluster.certificate-authority-data: base64 is not canonical",
            id="stray bits",
        ),
        pytest.param(
            with_cluster("    server: https://a\n    insecure-skip-tls-verify: 1\n"),
            "clusters[0].cluster.insecure-skip-tls-verify: must be true or false",
            id="not a flag",
        ),
        pytest.param(
            with_cluster("    server: https://a\n    insecure-skip-tls-verify: true\n    certificate-authority: x\n"),
            "cannot be true beside a certificate authority",
            id="insecure with CA",
        ),
        pytest.param(
            with_user("    client-certificate: a\n"), "users[0].user.client-key: required", id="certificate without key"
        ),
        pytest.param(
            with_user("    client-key: a\n"), "users[0].user.client-certificate: required", id="key without certificate"
        ),
        pytest.param(with_user("    exec: {command: x}\n"), "users[0].user.exec: this kind", id="exec"),
        pytest.param(with_user("    auth-provider: {name: x}\n"), "users[0].user.auth-provider: this", id="provider"),
        pytest.param(with_user("    username: x\n"), "users[0].user.username: this kind", id="basic"),
        pytest.param(with_user("    as: x\n"), "users[0].user.as: this kind", id="impersonation"),
    ],
)
def test_a_wrong_document_is_refused_with_its_field(text: str, words: str):
    with pytest.raises(errors.Refused) as caught:
        kubeconfig.parse(text)
    assert words in caught.value.message
    assert caught.value.message.startswith(("kubeconfig: ", "users[0]"))


def test_unknown_context_by_argument():
    with pytest.raises(errors.Refused, match='--context: there is no context "x"'):
        kubeconfig.parse(BASE, "x")


def test_secrets_never_show():
    assert "secret" not in repr(kubeconfig.parse(USUAL))
    shown = repr(EVERYTHING)
    assert "012345" not in shown
    assert "proxy.example" not in shown
    for text in (with_user("    token: [my-secret]\n"), with_user("    client-key-data: my-secret!\n"), "my-secret: ]"):
        with pytest.raises(errors.Refused) as caught:
            kubeconfig.parse(text)
        assert "my-secret" not in caught.value.message


@pytest.mark.slow
@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs a real kubectl")
def test_kubectl_reads_it(tmp_path):
    (tmp_path / "config").write_text(kubeconfig.render(EVERYTHING))
    command = ["kubectl", "config", "view", "--raw", "-o", "yaml", "--kubeconfig", str(tmp_path / "config")]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seen = kubeconfig.parse(shown)
    assert seen.user is not None
    assert seen.user.token == "012345.0123e56789012345"
    assert seen.context == "yes"
