# SPDX-License-Identifier: Apache-2.0
"""The story of `handfast demo`, on one page: what is typed, why, and what must be seen. It runs nothing: `telling` does.

A line that ends with `&` stays. `{api}`, `{pin}` and the like stand for what is known when the story is told. A step that does not show what it must
fails the demo. What `Line` and `Step` hold is said in `lines`.
"""

from __future__ import annotations

from typing import Final

from handfast.demo.lines import MESH, Line, Step

_FIRST: Final = (r"joined|found the cluster", r"^  certificate")
_REFUSED: Final = (r"^error:", r"^reason:")
_ZEROS: Final = "sha256:" + "0" * 64


def _files(directory: str) -> str:
    """Where a machine keeps what it has: on a real one, these flags are left out."""
    return f"--kubeconfig {directory}/kubelet.conf --cert-dir {directory}/pki"


def _joining(node: str, directory: str = "") -> str:
    directory = directory or node
    return f"--node-name {node} {_files(directory)} --bootstrap-kubeconfig {directory}/bootstrap.conf"


def _agent(name: str, more: str = "") -> Line:
    """The agent of a machine, which keeps its certificate fresh."""
    flags = f"--node-name {name} {_files(name)} --rotate-certificates --listen 127.0.0.1:0{more}"
    return Line(f"handfast node run {flags} > {name}-agent.txt 2> {name}-agent.log &")


STEPS: Final = (
    Step(
        "A certificate authority, before anything runs",
        "What a machine has to know to trust a cluster can be made before the cluster is there: a token and a pin.",
        (
            Line("handfast token generate > early.token"),
            Line(
                "handfast init --dir data --listen {api} --machines --inventory machines.csv --token-file early.token"
                " > init.txt 2> init.log"
            ),
            Line("grep -o 'sha256:[0-9a-f]*' init.txt", keep={"pin": r"^sha256:[0-9a-f]{64}$"}),
        ),
    ),
    Step(
        "A machine that comes too early",
        "Machines and control planes start in any order: this one waits.",
        (
            Line(
                "handfast join {api} --token-file early.token --discovery-token-ca-cert-hash {pin}"
                f" {_joining('early')} > early.txt 2> early.log &",
            ),
            Line("grep waiting early.log", seen=("refuses connections",), again=True),
        ),
    ),
    Step(
        "The control plane starts, and the early machine joins",
        "An API server with its store, controllers, a server of configurations and a mesh, in one directory, without root.",
        (
            Line("handfast up --dir data --listen {api} --machines{mesh}{console} > up.txt 2> up.log &"),
            Line("grep -o 'Handfast is ready' up.txt", again=True),
            Line("grep joined early.txt", seen=("as node early",), again=True),
        ),
    ),
    Step(
        "A machine joins by a token",
        "The token is good for one machine, one name and one hour. The machine verifies the cluster by it, and by the pin.",
        (
            Line("handfast token create --ttl 1h --max-uses 1 --node worker-1 > worker-1.token"),
            Line(
                "handfast join {api} --token-file worker-1.token --discovery-token-ca-cert-hash {pin}"
                f" {_joining('worker-1')}",
                seen=("joined the cluster as node worker-1", "CN=system:node:worker-1,O=system:nodes"),
                show=_FIRST,
            ),
        ),
    ),
    Step(
        "A machine joins by a file",
        "The file says which cluster to trust, and holds no secret: it can be part of an image.",
        (
            Line(
                "kubectl --cache-dir cache get configmap cluster-info -n kube-public"
                " -o jsonpath='{.data.kubeconfig}' > cluster.yaml",
                instead="{python} ask.py cluster-info > cluster.yaml",
            ),
            Line("handfast token create --ttl 1h --node 'worker-*' > shared.token 2> shared.log"),
            Line(
                "handfast join --discovery-file cluster.yaml --tls-bootstrap-token-file shared.token"
                f" {_joining('worker-2')}",
                seen=("joined the cluster as node worker-2",),
                show=_FIRST,
            ),
        ),
    ),
    Step(
        "Intruders are refused",
        "One guesses the secret of a token, one poses with another CA, one brings a token that was used. Each is told why, and so is the operator.",
        (
            Line("cut -d . -f 1 shared.token", keep={"id": r"^[a-z0-9]{6}$"}),
            Line("echo {id}.0123456789abcdef > guessed.token"),
            Line(
                "handfast join {api} --token-file guessed.token --discovery-token-ca-cert-hash {pin}"
                f" {_joining('intruder-1')} --timeout 5s > guess.txt 2> guess.log &",
                may_end=True,
            ),
            Line(
                f"handfast join {{api}} --token-file shared.token --discovery-token-ca-cert-hash {_ZEROS}"
                f" {_joining('intruder-2')}",
                code=1,
                seen=("reason: WrongPin",),
                show=_REFUSED,
            ),
            Line(
                "handfast join {api} --token-file worker-1.token --discovery-token-ca-cert-hash {pin}"
                f" {_joining('worker-1', 'intruder-3')}",
                code=1,
                seen=("reason: TokenUsedUp",),
                show=_REFUSED,
            ),
            Line(
                "grep -v waiting guess.log",
                seen=("^error: .*signature", "reason: SignatureMismatch"),
                again=True,
                show=_REFUSED,
            ),
            Line("handfast join failures", seen=("worker-1 +TokenUsedUp",), again=True),
        ),
    ),
    Step(
        "The machines run, and one renews its certificate now",
        "The agent renews by itself, long before the end. `node rotate` does not wait for that: a new key, a new certificate, no pause.",
        (
            _agent("early"),
            _agent("worker-1"),
            _agent("worker-2"),
            Line(f"handfast node rotate {_files('worker-1')}", again=True),
            Line("handfast node list", seen=("^early +good", "^worker-1 +good", "^worker-2 +good"), again=True),
        ),
    ),
    Step(
        "A fleet of known machines, and one that nobody knows",
        "Machines of a fleet share a credential, which is good for asking only. Who is on the list is approved; who is not waits, and the reason is told.",
        (
            Line("handfast machine credentials create --kind worker --out fleet", seen=("To revoke it",)),
            _agent("rack-1", " --node-ip 192.0.2.11 --bootstrap-kubeconfig fleet/kubeconfig-kubelet-worker"),
            _agent("rack-9", " --node-ip 192.0.2.19 --bootstrap-kubeconfig fleet/kubeconfig-kubelet-worker"),
            Line("handfast machine list", seen=("^rack-1 +worker +joined",), again=True),
            Line(
                "handfast join failures",
                seen=("rack-9 +Waiting",),
                again=True,
                keep={"request": r"node-csr-\S+"},
                show=("^LAST", "rack-9"),
            ),
            Line(
                "handfast csr explain {request}",
                seen=('no Machine has the InternalDNS name "rack-9"',),
                show=("^CHECK", "^Machine", "^Pending:", "^judged by"),
            ),
        ),
    ),
    Step(
        "Two programs get identities, and talk over mutual TLS",
        "Neither knows of TLS. Each runs as a Pod, gets a proxy and a certificate in the name of its account, and is told who the other is.",
        (
            Line(
                "kubectl --cache-dir cache apply -f shop.json",
                seen=("service/web created",),
                instead="{python} ask.py create shop.json",
            ),
            Line(
                "handfast mesh run --service-account shop/web --inbound 8080:{web} --label app=web"
                " --annotation mesh.handfast.dev/identity-headers=enabled -- {python} web.py {web} > web.txt 2> web.log &"
            ),
            Line(
                "handfast mesh run --service-account shop/client --annotation mesh.handfast.dev/identity-headers=enabled"
                " -- {python} client.py http://web.shop.svc.cluster.local:8080/ > calls.txt 2> client.log &"
            ),
            Line(
                "tail -n 1 calls.txt",
                seen=(r"^200 web\.shop\.\S+ says: hello client\.shop\.\S+",),
                again=True,
            ),
            Line(
                "kubectl --cache-dir cache get pods -n shop"
                " -o custom-columns='POD:.metadata.name,SIDECARS:.spec.initContainers[*].name'",
                seen=("^web.*linkerd-proxy", "^client.*linkerd-proxy"),
                instead="{python} ask.py pods shop",
            ),
            Line(
                "handfast mesh explain shop/client shop/web:8080",
                seen=("^client certificate +ok", "^server certificate +ok", "^allowed"),
                show=("^CHECK", "^client", "^server", "^allowed"),
            ),
        ),
        part=MESH,
    ),
    Step(
        "A token has leaked, and is revoked",
        "Whoever holds it could log in until now. From the next request on, nobody can; machines that joined with it go on.",
        (
            Line(
                "handfast join --discovery-file cluster.yaml --tls-bootstrap-token-file shared.token --discovery-only"
                " --bootstrap-kubeconfig leaked.conf",
                seen=("accepted for logging in",),
                show=("^found", "^  token"),
            ),
            Line("handfast csr list --kubeconfig leaked.conf -o json > before.json"),
            Line("handfast token delete {id}", seen=("deleted",)),
            Line("handfast csr list --kubeconfig leaked.conf", code=1, seen=("reason: Unauthorized",)),
            Line(
                "handfast join failures",
                seen=(r"unknown \({id}\) .*UnknownToken",),
                again=True,
                show=("^LAST", "UnknownToken"),
            ),
        ),
    ),
    Step(
        "The fleet's bootstrap CA is revoked",
        "It has signed one certificate for ten years, which every master brings. It ends now, also on connections that are open.",
        (
            Line("handfast csr list --kubeconfig data/machines/kubeconfig-kubelet -o json > before.json"),
            Line(
                "handfast machine credentials revoke --kind master --no-wait",
                seen=("kubelet-bootstrap-kubeconfig deleted",),
            ),
            Line(
                "handfast csr list --kubeconfig data/machines/kubeconfig-kubelet",
                code=1,
                seen=("reason: Unauthorized",),
            ),
            Line(
                "handfast join failures",
                seen=("certificate .*UnknownAuthority",),
                again=True,
                show=("^LAST", "certificate"),
            ),
        ),
    ),
    Step(
        "A workload is taken over, and its identity is taken back",
        "Its certificate is good for a day. Its next request is refused all the same, on the connection that is open.",
        (
            Line(
                "handfast mesh revoke shop/client --reason 'a shell was opened in it'",
                seen=("account shop/client is refused from now on",),
                show=("^account", "^  "),
            ),
            Line("tail -n 1 calls.txt", seen=("^403 certificate-revoked",), again=True),
        ),
        part=MESH,
    ),
)

# What is typed at the end of a demo that stays, where there is a console: an address that opens it, once, within a minute.
STAYING: Final = (Line("handfast console --url --dir data", seen=("http",)),)
