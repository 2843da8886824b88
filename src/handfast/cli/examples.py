# SPDX-License-Identifier: Apache-2.0
"""Examples of every command, as `--help` shows them. A test parses each by the command's own grammar.

They are words only: nothing here runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

_PIN: Final = "sha256:" + "0123456789abcdef" * 4

# The words of a command, without `handfast` -> examples of it.
EXAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    "": ("handfast demo", "handfast up", "handfast token create --print-join-command", "handfast help token create"),
    "up": ("handfast up", "handfast up --dir ./other --listen 0.0.0.0:6443 --advertise 192.0.2.10:6443"),
    "demo": ("handfast demo", "handfast demo --step", "handfast demo --stay", "handfast demo -o json"),
    "init": ("handfast init --dir /var/lib/handfast", "handfast init --ca-cert ca.crt --ca-key ca.key"),
    "status": ("handfast status", "handfast status --kubeconfig admin.conf -o json"),
    "console": ("handfast console", "handfast console --listen 127.0.0.1:0 --kubeconfig admin.conf"),
    "check": ("handfast check", "handfast check --node worker-1", "handfast check -o junit --fail-on-warning"),
    "serve": ("handfast serve apiserver --dir /var/lib/handfast",),
    "serve apiserver": ("handfast serve apiserver --dir /var/lib/handfast --listen 0.0.0.0:6443",),
    "serve machine-config": (
        "handfast serve machine-config --dir /var/lib/handfast --machine-config-listen 0.0.0.0:22623",
        "handfast serve machine-config --bootstrap-dir ./bootstrap --dir ./handfast-data",
    ),
    "serve injector": (
        "handfast serve injector --kubeconfig injector.conf",
        "handfast serve injector --dir ./handfast-data --injector-listen 0.0.0.0:8443",
    ),
    "serve identity": (
        "handfast serve identity --kubeconfig linkerd-identity.conf",
        "handfast serve identity --dir ./handfast-data --identity-listen 127.0.0.1:8081",
    ),
    "serve destination": (
        "handfast serve destination --kubeconfig linkerd-controller.conf",
        "handfast serve destination --dir ./handfast-data --destination-listen 127.0.0.1:8186",
    ),
    "serve controllers": (
        "handfast serve controllers --dir /var/lib/handfast",
        "handfast serve controllers --kubeconfig controllers.conf --print-manifest",
    ),
    "token": ("handfast token create --ttl 2h --print-join-command", "handfast token list"),
    "token create": (
        "handfast token create --print-join-command",
        "handfast token create --ttl 2h --max-uses 3 --node 'worker-*' --description 'rack 4'",
    ),
    "token list": ("handfast token list", "handfast token list -o wide"),
    "token delete": ("handfast token delete abcdef",),
    "token generate": ("handfast token generate",),
    "token explain": ("handfast token explain abcdef", "handfast token explain - < token.txt"),
    "node": ("handfast node list", "handfast node status", "handfast node revoke worker-1 --reason 'disk was stolen'"),
    "node list": ("handfast node list", "handfast node list -o wide", "handfast node list -o json"),
    "node run": (
        "handfast node run --rotate-certificates",
        "handfast node run --bootstrap-kubeconfig bootstrap.conf --node-name worker-1",
        "handfast node run --rotate-certificates --machine-config",
    ),
    "node configuration": ("handfast node configuration status", "handfast node configuration restore"),
    "node configuration status": ("handfast node configuration status", "handfast node configuration status -o json"),
    "node configuration restore": (
        "handfast node configuration restore",
        "handfast node configuration restore --undo",
    ),
    "node configuration fetch": (
        "handfast node configuration fetch --pointer worker-1.ign",
        "handfast node configuration fetch --pointer - --root /mnt < worker-1.ign",
    ),
    "node status": ("handfast node status", "handfast node status -o json"),
    "node rotate": ("handfast node rotate", "handfast node rotate --timeout 30s -o json"),
    "node recover": ("handfast node recover",),
    "node reset": (
        "handfast node reset --dry-run",
        "handfast node reset --remove --revoke --admin-kubeconfig admin.conf",
    ),
    "node revoke": (
        "handfast node revoke worker-1 --for 12h --reason 'under repair'",
        "handfast node revoke worker-1 --undo",
    ),
    "machine": ("handfast machine import machines.csv --dry-run", "handfast machine explain worker-1"),
    "machine create": (
        "handfast machine create worker-1 --dns worker-1.example --ip 10.0.0.11",
        "handfast machine create master-1 --dns master-1 --ip 10.0.0.1 --mac 52:54:00:12:34:56 --role master",
    ),
    "machine import": (
        "handfast machine import machines.csv --dry-run",
        "handfast machine import machines.yaml --prune",
        "handfast machine import - --set rack-4 < machines.csv",
    ),
    "machine list": ("handfast machine list", "handfast machine list -o wide"),
    "machine delete": ("handfast machine delete worker-1 worker-2",),
    "machine explain": ("handfast machine explain worker-1", "handfast machine explain worker-1 -o json"),
    "machine pools": ("handfast machine pools", "handfast machine pools -o json"),
    "machine readmit": ("handfast machine readmit worker-1",),
    "machine ignition": (
        "handfast machine ignition worker-1 --out worker-1.ign",
        "handfast machine ignition --pool worker --rotate --overlap 2h --out worker.ign",
    ),
    "machine credentials": (
        "handfast machine credentials show",
        "handfast machine credentials revoke --kind worker --dry-run",
    ),
    "machine credentials create": (
        "handfast machine credentials create --kind master --server https://api-int.example:6443 --out ./bootstrap",
        "handfast machine credentials create --kind worker --machine worker-1 --out ./bootstrap",
    ),
    "machine credentials show": ("handfast machine credentials show", "handfast machine credentials show -o json"),
    "machine credentials revoke": (
        "handfast machine credentials revoke --kind master --dry-run",
        "handfast machine credentials revoke --kind worker",
        "handfast machine credentials revoke --kind worker --after-rollout --timeout 30m",
    ),
    "mesh": ("handfast mesh install", "handfast mesh check"),
    "mesh anchors": ("handfast mesh anchors show",),
    "mesh anchors show": ("handfast mesh anchors show", "handfast mesh anchors show -o json"),
    "mesh anchors rotate": (
        "handfast mesh anchors rotate --dry-run",
        "handfast mesh anchors rotate",
        "handfast mesh anchors rotate --trust-anchors root.crt --issuer-cert issuer.crt --issuer-key issuer.key",
        "handfast mesh anchors rotate --undo",
    ),
    "mesh check": (
        "handfast mesh check",
        "handfast mesh check --fail-on-warning -o json",
    ),
    "mesh edges": (
        "handfast mesh edges",
        "handfast mesh edges --would-deny --namespace shop -o json",
    ),
    "mesh explain": (
        "handfast mesh explain shop/web shop/db:5432",
        "handfast mesh explain none pod/shop/db-0:5432 -o json",
    ),
    "mesh inject": (
        "handfast mesh inject web.yaml | kubectl apply -f -",
        "handfast mesh inject --trust-anchors root.crt --trust-domain mesh.example manifests/",
        "handfast mesh inject --namespace shop - < web.yaml",
    ),
    "mesh uninject": ("handfast mesh uninject web-injected.yaml",),
    "mesh proxy": ("handfast mesh proxy init -- linkerd2-proxy",),
    "mesh proxy init": (
        "handfast mesh proxy init -- linkerd2-proxy",
        "handfast mesh proxy init --require-memory > identity.env",
        "handfast mesh proxy init -- handfast mesh proxy run --pod-ip 192.0.2.7 --inbound 8080",
    ),
    "mesh proxy run": (
        "handfast mesh proxy run --pod-ip 192.0.2.7 --inbound 8080",
        "handfast mesh proxy run --pod-ip 192.0.2.7 --inbound 8080 --inbound 9090:19090 --admin-listen 0.0.0.0:4191",
    ),
    "mesh run": (
        "handfast mesh run --service-account shop/web --inbound 8080:18080 --label app=web -- ./web --port 18080",
        "handfast mesh run --service-account shop/client -- curl http://web.shop.svc.cluster.local:8080/",
        "handfast mesh run --pod shop/web-0 -- ./web --port 8080",
    ),
    "mesh proxy iptables": (
        "handfast mesh proxy iptables --proxy-uid 2102 --inbound-ports-to-ignore 4190,4191",
        "handfast mesh proxy iptables --dry-run",
        "handfast mesh proxy iptables --undo",
    ),
    "mesh revoke": (
        "handfast mesh revoke shop/web --reason 'token was in a public repository'",
        "handfast mesh revoke --pod shop/web-7d4b9 --expires 24h",
        "handfast mesh revoke shop/web --undo",
    ),
    "mesh install": (
        "handfast mesh install",
        "handfast mesh install --trust-anchors root.crt --issuer-cert issuer.crt --issuer-key issuer.key",
        "handfast mesh install --trust-domain mesh.example --set identity.lifetime=12h -o yaml",
        "handfast mesh install --endpoint identity=192.0.2.1:8080 --endpoint injector=192.0.2.1:8443",
    ),
    "ca": ("handfast ca show", "handfast ca rotate"),
    "ca show": ("handfast ca show", "handfast ca show --dir /var/lib/handfast -o json"),
    "ca rotate": ("handfast ca rotate", "handfast ca rotate --all", "handfast ca rotate --service-account-key"),
    "store": ("handfast store status", "handfast store backup plane.backup"),
    "store backup": (
        "handfast store backup plane.backup",
        "handfast store backup - --dir /var/lib/handfast | gzip > plane.backup.gz",
    ),
    "store restore": (
        "handfast store restore plane.backup",
        "handfast store restore plane.backup --dir /var/lib/handfast -o json",
    ),
    "store copy": (
        "handfast store copy handfast-data/store.db new.db",
        "handfast store copy handfast-data/store.db etcd://127.0.0.1:2379/handfast",
    ),
    "store verify": ("handfast store verify", "handfast store verify plane.backup --ledger"),
    "store status": ("handfast store status", "handfast store status -o json"),
    "ledger": ("handfast ledger list --since 24h", "handfast ledger verify"),
    "ledger list": (
        "handfast ledger list --since 24h",
        "handfast ledger list --since 2026-11-16 --node worker-1 -o json",
    ),
    "ledger show": ("handfast ledger show 4ac1f0",),
    "ledger verify": ("handfast ledger verify", f"handfast ledger verify --head {_PIN.partition(':')[2]}"),
    "csr": ("handfast csr list", "handfast csr approve csr-8xk2p"),
    "csr list": ("handfast csr list", "handfast csr list -o json"),
    "csr approve": ("handfast csr approve csr-8xk2p", "handfast csr approve csr-8xk2p csr-c7v9d --message 'seen it'"),
    "csr deny": ("handfast csr deny csr-8xk2p --message 'not one of our machines'",),
    "csr explain": ("handfast csr explain csr-8xk2p",),
    "join": (
        f"handfast join 192.0.2.10:6443 --token-file token.txt --discovery-token-ca-cert-hash {_PIN}",
        "handfast join --discovery-file cluster-info.yaml --tls-bootstrap-token-file token.txt --dry-run",
    ),
    "join failures": ("handfast join failures", "handfast join failures --since 10m -o json"),
    "kubeconfig": ("handfast kubeconfig show", "handfast kubeconfig refresh"),
    "kubeconfig refresh": ("handfast kubeconfig refresh --kubeconfig admin.conf",),
    "kubeconfig show": ("handfast kubeconfig show --kubeconfig admin.conf",),
    "config": ("handfast config show", "handfast config validate config.yaml"),
    "config show": ("handfast config show", "handfast config show --listen 0.0.0.0:6443 -o yaml > config.yaml"),
    "config validate": ("handfast config validate config.yaml",),
    "explain": ("handfast explain TokenExpired", "handfast explain --list", "handfast explain nosuchpod -o json"),
    "version": ("handfast version", "handfast version -o json"),
    "completion": (
        "bash:  source <(handfast completion bash)",
        "zsh:   source <(handfast completion zsh)",
        "fish:  handfast completion fish | source",
    ),
    "help": ("handfast help", "handfast help token create"),
}


def attach(command: click.Command, words: str) -> None:
    """Have the help of a command, and of those in it, end with its examples."""
    examples = EXAMPLES.get(words, ())
    if examples:
        # \b: click leaves the lines as they are.
        lines = "\n".join(f"  {each}" for each in examples)
        command.epilog = f"\b\n{'Examples' if len(examples) > 1 else 'Example'}:\n{lines}"
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            attach(each, f"{words} {name}".strip())
