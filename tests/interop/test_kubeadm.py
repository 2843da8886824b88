# SPDX-License-Identifier: Apache-2.0
"""Stock kubeadm against `handfast up`, and `handfast` against what kubeadm leaves in a cluster.

Proves that tokens go both ways, that kubeadm finds, verifies and reads this cluster as it does its own, that it refuses in
its own words what it should refuse, and that `handfast join` trusts a cluster-info that kubeadm wrote. No kubelet runs:
see `test_kubelet`. Where there is no kubeadm nothing is proven: see `tools`.
"""

from __future__ import annotations

import pathlib
import re
import ssl
from collections.abc import Iterator
from typing import Any

import pytest

from handfast.bootstrap import cluster_info, first_objects, jws, tokens
from handfast.controllers.joining import cluster_info as publisher
from handfast.pki import pairs, pins
from tests.interop import running, tools
from tests.interop.tools import Tool, listed

pytestmark = [pytest.mark.slow]

KUBEADM = "kubead.0123456789abcdef"
IGNORE = "--ignore-preflight-errors=all"
UNTRUSTED = "couldn't validate the identity of the API Server: "
OTHER_PIN = f"sha256:{'0' * 64}"


@pytest.fixture(scope="module")
def kubeadm(tmp_path_factory: pytest.TempPathFactory) -> Tool:
    return tools.find_kubeadm(tmp_path_factory.mktemp("kubeadm"))


@pytest.fixture
def theirs(kubeadm: Tool, control_plane: running.ControlPlane) -> Tool:
    """`kubeadm token`."""
    return tools.kubeadm_token(kubeadm, control_plane)


@pytest.fixture
def ours(control_plane: running.ControlPlane) -> Tool:
    """`handfast token`."""
    return tools.handfast_token(control_plane)


def pin_of(plane: running.ControlPlane) -> str:
    return str(pins.of_certificate(ssl.PEM_cert_to_DER_cert((plane.pki / "ca.crt").read_text())))


def address(plane: running.ControlPlane) -> str:
    return plane.server.removeprefix("https://")


def line_of(tool: Tool, token: str) -> list[str]:
    return next(line.split() for line in tool("list").stdout.splitlines() if line.startswith(token))


class TestTokens:
    def test_made_here(self, ours: Tool, theirs: Tool) -> None:
        token = ours("create", "--ttl", "2h", "--description", "d").stdout.strip()
        assert listed(ours)[token] == listed(theirs)[token]
        assert line_of(ours, token) == line_of(theirs, token)
        assert theirs("delete", token[:6]).stdout == f'bootstrap token "{token[:6]}" deleted\n'
        assert token not in listed(ours)
        assert "not found" in theirs("delete", token, code=1).stderr

    def test_made_by_kubeadm(self, ours: Tool, theirs: Tool) -> None:
        token = theirs("create", "--ttl", "0", "--description", "d").stdout.strip()
        assert listed(ours)[token] == listed(theirs)[token]
        assert line_of(ours, token) == line_of(theirs, token)
        explained = ours("explain", token).stdout
        assert "never expires" in explained
        assert explained.count("  yes\n") == 3
        assert ours("delete", token).stdout == f'bootstrap token "{token[:6]}" deleted\n'
        assert token not in listed(theirs)

    def test_a_token_that_kubeadm_generates_is_accepted_and_not_stored(self, ours: Tool, kubeadm: Tool) -> None:
        """Made by the one, accepted by the other; nothing is stored by that."""
        token = kubeadm("token", "generate").stdout.strip()
        assert tokens.parse(token).text == token
        assert token not in listed(ours)
        assert ours("create", token).stdout == f"{token}\n"
        assert ours("delete", token).returncode == 0

    def test_the_same_head_of_the_list(self, ours: Tool, theirs: Tool) -> None:
        token = ours("create").stdout.strip()
        # The widths follow what is listed, which kubeadm measures otherwise where a token never expires.
        heads = [tool("list").stdout.splitlines()[0].split() for tool in (ours, theirs)]
        assert heads[0] == heads[1]
        ours("delete", token)

    def test_join_command(self, theirs: Tool, ours: Tool, control_plane: running.ControlPlane) -> None:
        printed = theirs("create", "--print-join-command").stdout
        token = re.search(r"--token (\S+)", printed)
        assert token is not None
        wanted = f"--token {token[1]} --discovery-token-ca-cert-hash {pin_of(control_plane)}"
        assert printed.strip() == f"kubeadm join {address(control_plane)} {wanted}"
        ours("delete", token[1])

    def test_groups_that_do_not_fit_the_usages_are_refused_in_the_same_words(self, ours: Tool, theirs: Tool) -> None:
        arguments = ["create", "abcdef.0123456789abcdef", "--usages", "signing", "--groups", first_objects.NODE_GROUP]
        here, there = ours(*arguments, code=2).stderr.splitlines()[0], theirs(*arguments, code=1).stderr
        assert not set(here.split()) - set(there.split()), there

    @pytest.mark.parametrize(
        ("arguments", "quoted"), [(["create", "--groups", "foo"], '"foo"'), (["delete", "invalid-token"], "token")]
    )
    def test_what_is_malformed_is_refused_by_both_and_here_in_words(
        self, ours: Tool, theirs: Tool, arguments: list[str], quoted: str
    ) -> None:
        """kubeadm shows a regular expression."""
        here, there = ours(*arguments, code=2).stderr, theirs(*arguments, code=1).stderr
        assert quoted in here
        assert "[a-z0-9]" in there
        assert "[a-z0-9]" not in here

    def test_one_that_is_there(self, ours: Tool, theirs: Tool) -> None:
        token = ours("create").stdout.strip()
        says = f'a token with id "{token[:6]}" already exists'
        assert says in theirs("create", token, code=1).stderr
        assert says in ours("create", token, code=1).stderr
        ours("delete", token)


@pytest.fixture
def token(ours: Tool, core: Any) -> Iterator[str]:
    """One that has signed: kubeadm tries a missing signature again only after seconds."""
    made = ours("create", "--ttl", "1h").stdout.strip()

    def signed() -> bool:
        data = core.read_namespaced_config_map(cluster_info.NAME, cluster_info.NAMESPACE).data
        return f"{cluster_info.SIGNATURE_PREFIX}{made[:6]}" in data

    running.eventually(signed, f"a signature of {made[:6]}")
    yield made
    ours("delete", made)


class TestJoin:
    def join(self, kubeadm: Tool, plane: running.ControlPlane, token: str, pin: str = "", code: int = 0) -> Any:
        pinned = ("--discovery-token-ca-cert-hash", pin or pin_of(plane))
        words = ("join", address(plane), "--token", token, *pinned, "--node-name", "newcomer", IGNORE, "--dry-run")
        return kubeadm(*words, code=code)

    def test_dry_run(self, kubeadm: Tool, control_plane: running.ControlPlane, token: str) -> None:
        printed = self.join(kubeadm, control_plane, token).stdout
        read = re.findall(r'Resource name "(\S+)", namespace "(\S*)"', printed)
        assert read == [
            ("cluster-info", "kube-public"),
            ("cluster-info", "kube-public"),
            ("kubeadm-config", "kube-system"),
            ("kube-proxy", "kube-system"),
            ("kubelet-config", "kube-system"),
            ("newcomer", ""),
        ]
        assert "This node has joined the cluster" in printed
        assert '[dryrun] Would write file "/var/lib/kubelet/config.yaml"' in printed

    def test_preflight_reads_all_it_needs_but_kube_proxys_configuration(
        self, kubeadm: Tool, control_plane: running.ControlPlane, token: str
    ) -> None:
        pinned = ("--discovery-token-ca-cert-hash", pin_of(control_plane))
        done = kubeadm("join", "phase", "preflight", address(control_plane), "--token", token, *pinned, IGNORE)
        assert 'Reading configuration from the "kubeadm-config" ConfigMap in namespace "kube-system"' in done.stdout
        # The only one it may not read, and it goes on without it.
        assert re.findall(r'configmaps "(\S+)" is forbidden', done.stderr) == ["kube-proxy"]

    def test_a_file(
        self, kubeadm: Tool, control_plane: running.ControlPlane, token: str, core: Any, tmp_path: pathlib.Path
    ) -> None:
        """The extension in it is none of kubeadm's business."""
        data = core.read_namespaced_config_map(cluster_info.NAME, cluster_info.NAMESPACE).data
        (tmp_path / "cluster.yaml").write_text(data["kubeconfig"])
        words = ("--discovery-file", tmp_path / "cluster.yaml", "--tls-bootstrap-token", token, IGNORE, "--dry-run")
        assert "This node has joined the cluster" in kubeadm("join", *words, "--node-name", "newcomer").stdout

    def test_a_name_that_is_taken(
        self, kubeadm: Tool, control_plane: running.ControlPlane, token: str, core: Any
    ) -> None:
        core.create_node({"metadata": {"name": "newcomer"}})
        condition = {"type": "Ready", "status": "True"}
        core.patch_node_status("newcomer", {"status": {"conditions": [condition]}})
        try:
            refused = self.join(kubeadm, control_plane, token, code=1).stderr
        finally:
            core.delete_node("newcomer")
        assert 'a Node with name "newcomer" and status "Ready" already exists in the cluster' in refused

    def test_another_secret(self, kubeadm: Tool, control_plane: running.ControlPlane, token: str) -> None:
        refused = self.join(kubeadm, control_plane, f"{token[:6]}.ffffffffffffffff", code=1).stderr
        assert f"{UNTRUSTED}failed to verify JWS signature of received cluster info object" in refused

    def test_another_pin(self, kubeadm: Tool, control_plane: running.ControlPlane, token: str) -> None:
        refused = self.join(kubeadm, control_plane, token, OTHER_PIN, code=1).stderr
        assert f'{UNTRUSTED}cluster CA found in cluster-info ConfigMap is invalid: none of the public keys "' in refused
        assert f'"{pin_of(control_plane)}" are pinned' in refused

    def test_an_unknown_id(self, kubeadm: Tool, control_plane: running.ControlPlane, tmp_path: pathlib.Path) -> None:
        """Only a configuration file can tell kubeadm not to wait for five minutes."""
        (tmp_path / "join.yaml").write_text(
            "apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\ntimeouts: {discovery: 1s}\n"
            "nodeRegistration: {name: newcomer}\ndiscovery:\n  bootstrapToken:\n    token: zzzzzz.0123456789abcdef\n"
            f"    apiServerEndpoint: {address(control_plane)}\n    caCertHashes: ['{pin_of(control_plane)}']\n"
        )
        refused = kubeadm("join", "phase", "preflight", "--config", tmp_path / "join.yaml", IGNORE, code=1).stderr
        assert f"{UNTRUSTED}could not find a JWS signature in the cluster-info ConfigMap" in refused
        assert 'for token ID "zzzzzz"' in refused


class TestPreparedByKubeadm:
    """kubeadm writes tokens, rights, cluster-info and configuration into a cluster whose publisher does not run."""

    @pytest.fixture
    def plane(
        self, kubeadm: Tool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[running.ControlPlane]:
        monkeypatch.setenv("HANDFAST_CONTROLLERS", f"*,bootstrap-signer-controller,-{publisher.NAME}")
        plane = running.ControlPlane(tmp_path / "data")
        (tmp_path / "init.yaml").write_text(
            "apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\n"
            f"bootstrapTokens: [{{token: {KUBEADM}, ttl: 1h0m0s}}]\n"
            "localAPIEndpoint: {advertiseAddress: 192.0.2.1}\n"
            "nodeRegistration: {name: first, criSocket: 'unix:///nowhere'}\n---\n"
            "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.37.0\n"
        )
        yield plane
        plane.stop()
        assert plane.failures() == []

    def written(self, core: Any) -> dict[str, str] | None:
        data: dict[str, str] = core.read_namespaced_config_map(cluster_info.NAME, cluster_info.NAMESPACE).data
        return data if f"{cluster_info.SIGNATURE_PREFIX}{KUBEADM[:6]}" in data else None

    def test_handfast_joins_a_cluster_that_kubeadm_prepared(
        self, kubeadm: Tool, plane: running.ControlPlane, tmp_path: pathlib.Path
    ) -> None:
        from kubernetes import client, config

        told = ("--config", tmp_path / "init.yaml", "--kubeconfig", plane.kubeconfig)
        with config.new_client_from_config(str(plane.kubeconfig), persist_config=False) as api:
            core = client.CoreV1Api(api)
            # What is there, kubeadm does not replace.
            core.delete_namespaced_config_map(cluster_info.NAME, cluster_info.NAMESPACE)
            kubeadm("init", "phase", "bootstrap-token", *told)
            kubeadm("init", "phase", "upload-config", "all", *told)
            data = running.eventually(lambda: self.written(core), "kubeadm's cluster-info, signed") or {}
        text = data["kubeconfig"]
        assert text.endswith('  name: ""\ncontexts: null\ncurrent-context: ""\nkind: Config\nusers: null\n')
        jws.verify(data[f"{cluster_info.SIGNATURE_PREFIX}{KUBEADM[:6]}"], text.encode(), tokens.parse(KUBEADM))
        ca = (plane.pki / "ca.crt").read_bytes()
        assert cluster_info.read(text) == cluster_info.ClusterInfo((plane.server,), ca, "")
        # The rights are kubeadm's, too: to ask for a certificate, and to have it approved.
        pinned = ("--discovery-token-ca-cert-hash", pin_of(plane), "--bootstrap-kubeconfig", tmp_path / "b.conf")
        machine = ("--node-name", "newcomer", "--cert-dir", tmp_path / "pki", "--kubeconfig", tmp_path / "k.conf")
        join = Tool((*tools.HANDFAST, "join", address(plane), "--token", KUBEADM, *map(str, (*pinned, *machine))))
        done = join()
        assert "this machine has joined the cluster as node newcomer" in done.stdout
        assert "cluster id  not published" in done.stdout
        current = pairs.read((tmp_path / "pki" / "kubelet-client-current.pem").read_bytes())
        assert str(current.leaf.subject) == "CN=system:node:newcomer,O=system:nodes"
        shown = tools.handfast_token(plane)
        assert listed(shown)[KUBEADM]["groups"] == [first_objects.NODE_GROUP]
        # One that goes on signing: without it nobody could tell a deleted token from a signer that does not run.
        shown("create", "others.0123456789abcdef")
        assert shown("delete", KUBEADM).stdout == 'bootstrap token "kubead" deleted\n'
        assert "reason: UnknownTokenID" in join("--timeout", "5s", code=1).stderr
