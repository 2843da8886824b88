# SPDX-License-Identifier: Apache-2.0
"""A directory that is prepared before it is served, and one that `up` prepares itself, on real processes.

Proves that both can be joined in the same way: cluster-info is public, nothing else is, the first token lets a machine
ask for its certificate and read what kubeadm reads, and it is made once. Proves too that no token is in the arguments of
any process that `up` starts.
"""

import http.client
import json
import pathlib
import socket
import ssl
import subprocess
from urllib import parse as urls

import pytest

from handfast import errors
from handfast.bootstrap import cluster_info, jws, tokens
from tests.scenarios import up_world

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

TOKEN = "abcdef.0123456789abcdef"
INFO = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
SYSTEM = "/api/v1/namespaces/kube-system"
CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "data"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ask(up, path, token=None):
    """The code of an answer, and what it says, without the administrator's credentials."""
    url = urls.urlsplit(up.facts["apiserver"])
    context = ssl.create_default_context(cafile=str(up.directory / "pki" / "ca.crt"))
    connection = http.client.HTTPSConnection(url.hostname or "", url.port, context=context, timeout=30)
    try:
        connection.request("GET", path, headers={} if token is None else {"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def token_secrets(up):
    code, found = up.call("GET", f"{SYSTEM}/secrets?fieldSelector=type%3Dbootstrap.kubernetes.io/token")
    assert code == 200, found
    return [item["metadata"]["name"] for item in found["items"]]


def signed_info(up, token, server):
    """cluster-info once it names the server and its signature is right: one controller writes the one, another the other."""
    seen = []

    def found():
        code, info = ask(up, INFO)
        assert code == 200, info
        seen.append(info["data"])
        signature = info["data"].get(f"jws-kubeconfig-{token.partition('.')[0]}")
        if signature is None or cluster_info.read(info["data"]["kubeconfig"]).servers != (server,):
            return False
        try:
            jws.verify(signature, info["data"]["kubeconfig"].encode(), tokens.parse(token))
        except errors.Refused:
            return False
        return True

    up_world.until(found, what=f"a signed cluster-info with {server}")
    return cluster_info.read(seen[-1]["kubeconfig"])


def require_joinable(up, token, server):
    """What a machine with the token sees, and what it does not."""
    found = signed_info(up, token, server)
    assert found.ca == (up.directory / "pki" / "ca.crt").read_bytes()
    assert found.id == up.call("GET", "/api/v1/namespaces/kube-system")[1]["metadata"]["uid"]
    # A signature opens nothing else to those without a credential.
    for path in (f"{SYSTEM}/configmaps/kubeadm-config", CSRS, "/api/v1/namespaces/kube-public/configmaps"):
        assert ask(up, path)[0] == 403, path
    codes = {
        f"{SYSTEM}/configmaps/kubeadm-config": 200,
        f"{SYSTEM}/configmaps/kubelet-config": 200,
        "/api/v1/nodes/new": 404,
        CSRS: 200,
        f"{SYSTEM}/configmaps/extension-apiserver-authentication": 403,
        f"{SYSTEM}/secrets": 403,
        "/api/v1/nodes": 403,
        "/api/v1/pods": 403,
    }
    assert {path: ask(up, path, token)[0] for path in codes} == codes


def test_init_then_up(directory):
    port, later = free_port(), "192.0.2.7:6443"
    words = ["init", "--dir", directory, "--listen", f"127.0.0.1:{port}", "--advertise", later]
    done = up_world.run(*words, "--token", TOKEN, "-o", "json")
    assert done.returncode == 0, done.stderr
    first = json.loads(done.stdout)
    assert first["joinCommand"].startswith(f"handfast join {later} --token {TOKEN} --discovery-token-ca-cert-hash ")
    assert "handfast token delete abcdef" in done.stderr
    again = up_world.run("init", "--dir", directory, "-o", "json")
    assert again.returncode == 0, again.stderr
    assert "token" not in json.loads(again.stdout)
    assert {row["outcome"] for row in json.loads(again.stdout)["objects"]} == {"kept"}
    # Up listens where init was told: its flags are in config.yaml. Here they give way, since others may have the port.
    with up_world.Up(directory, "--advertise", f"127.0.0.1:{port}") as up:
        up.ready()
        assert "token" not in up.facts
        assert token_secrets(up) == ["bootstrap-token-abcdef"]
        require_joinable(up, TOKEN, f"https://127.0.0.1:{port}")


def test_up_prepares_once(directory):
    with up_world.Up(directory) as up:
        up.ready()
        token, command = up.facts["token"], up.facts["joinCommand"]
        assert f" --token {token} " in command
        require_joinable(up, token, up.facts["apiserver"])
        assert token_secrets(up) == [f"bootstrap-token-{token[:6]}"]
        kubeconfig = up.facts["kubeconfig"]
        done = up_world.run("token", "list", "--kubeconfig", kubeconfig, "-o", "json")
        assert json.loads(done.stdout)["token"] == token
        # A deleted token is refused on the next request.
        assert up_world.run("token", "delete", token[:6], "--kubeconfig", kubeconfig).returncode == 0
        assert ask(up, CSRS, token)[0] == 401
        # Who does not want to be found by strangers closes that door, and it stays closed.
        binding = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-public/rolebindings"
        assert up.call("DELETE", f"{binding}/kubeadm:bootstrap-signer-clusterinfo")[0] == 200
        assert up.stop()[0] == 0
    with up_world.Up(directory) as again:
        again.ready()
        assert "token" not in again.facts
        assert token_secrets(again) == []
        assert ask(again, INFO)[0] == 403
        assert "were not made" not in again.log.read_text()


def test_no_token(directory):
    with up_world.Up(directory, "--token", "") as up:
        up.ready()
        assert "token" not in up.facts
        assert token_secrets(up) == []
        assert ask(up, INFO)[0] == 200


def test_a_given_token_is_in_no_childs_arguments(directory, tmp_path):
    file = tmp_path / "token"
    file.write_text(TOKEN)
    seen = set()

    def look():
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            if b"handfast" in words and str(directory).encode() in b" ".join(words):
                seen.add(words[words.index(b"handfast") + 1])
                assert TOKEN.encode() not in b" ".join(words)
        return b"init" in seen

    with up_world.Up(directory, "--token-file", file, "--token-ttl", "1h") as up:
        up_world.until(look, seconds=60, what="the child that makes the first objects")
        up.ready()
        assert up.facts["token"] == TOKEN
        assert up.facts["expires"] is not None
        require_joinable(up, TOKEN, up.facts["apiserver"])


def test_init_on_a_running_cluster(directory, tmp_path):
    """What somebody deleted is made again when it is asked for; a directory that is served is not touched."""
    with up_world.Up(directory) as up:
        up.ready()
        kubeconfig = up.facts["kubeconfig"]
        binding = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/kubeadm:kubelet-bootstrap"
        assert up.call("DELETE", binding)[0] == 200
        assert ask(up, CSRS, up.facts["token"])[0] == 403
        taken = up_world.run("init", "--dir", directory, seconds=90)
        assert (taken.returncode, "DirectoryInUse" in taken.stderr) == (1, True), taken.stderr
        done = up_world.run("init", "--kubeconfig", kubeconfig)
        assert done.returncode == 0, done.stderr
        assert "created ClusterRoleBinding kubeadm:kubelet-bootstrap" in done.stderr
        assert "No token was made" in done.stdout
        assert ask(up, CSRS, up.facts["token"])[0] == 200
        given = subprocess.run(
            [*up_world.COMMAND, "token", "create", "-", "--kubeconfig", kubeconfig, "--usages", "authentication"],
            input=f"{TOKEN}\n",
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env=up_world.environment(),
        )
        assert given.stdout == f"{TOKEN}\n"
        assert ask(up, CSRS, TOKEN)[0] == 200
        explained = up_world.run("token", "explain", "abcdef", "--kubeconfig", kubeconfig)
        assert explained.returncode == 0
        assert "can a machine verify the cluster with it?  no\n" in explained.stdout
        assert "can a machine log in with it?              yes\n" in explained.stdout
        assert "agree" in explained.stdout
