# SPDX-License-Identifier: Apache-2.0
"""The names of the controllers, and which of them `--controllers` chooses.

It builds none, and loads none: so a supervisor can tell a wrong name before anything starts. What each name stands for is
in `controllers`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from handfast import errors

NAMES: Final = (
    "namespace-controller",
    "garbage-collector-controller",
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
    "endpointslice-controller",
    "endpoints-controller",
    "endpointslice-mirroring-controller",
    "event-ttl-controller",
    "pod-garbage-collector-controller",
    "clusterrole-aggregation-controller",
    "resourcequota-controller",
    "disruption-controller",
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-cleaner-controller",
    "certificatesigningrequest-signing-controller",
    "issuance-log-cleaner-controller",
    "serviceaccount-token-controller",
    "cluster-info-publisher-controller",
    "bootstrap-signer-controller",
    "token-cleaner-controller",
    "node-lifecycle-controller",
    "client-ca-controller",
    "node-bootstrapper-token-controller",
    "node-link-controller",
    "machine-approver-controller",
    "machine-config-render-controller",
    "machine-config-pool-controller",
    "credential-rollout-controller",
)
# Names from before controllers were called controllers, which kubeadm still uses.
ALIASES: Final[Mapping[str, str]] = {
    "bootstrapsigner": "bootstrap-signer-controller",
    "clientca": "client-ca-controller",
    "clusterinfo": "cluster-info-publisher-controller",
    "credentialrollout": "credential-rollout-controller",
    "csrapproving": "certificatesigningrequest-approving-controller",
    "csrcleaner": "certificatesigningrequest-cleaner-controller",
    "csrsigning": "certificatesigningrequest-signing-controller",
    "machineapprover": "machine-approver-controller",
    "machineconfigpool": "machine-config-pool-controller",
    "machineconfigrender": "machine-config-render-controller",
    "nodebootstrappertoken": "node-bootstrapper-token-controller",
    "nodelink": "node-link-controller",
    "nodelifecycle": "node-lifecycle-controller",
    "podgc": "pod-garbage-collector-controller",
    "tokencleaner": "token-cleaner-controller",
}
# What some cannot do without.
_CA: Final = "a CA to sign with: --cluster-signing-cert-file and --cluster-signing-key-file, or one in --dir"
NEEDS: Final[Mapping[str, str]] = {
    "certificatesigningrequest-signing-controller": _CA,
    "issuance-log-cleaner-controller": _CA,
    "serviceaccount-token-controller": "a key to sign tokens with, which is pki/sa.key in --dir",
    "cluster-info-publisher-controller": "--advertise, and a CA in the kubeconfig or in --dir",
}
# `*` does not include these. A cluster that is not joined with tokens does not want them, and another may have its own. Two
# controllers that judge nodes would undo one another's taints, so that the second has to be named. Those of machine fleets are
# for clusters that have one.
MACHINES: Final = (
    "client-ca-controller",
    "node-bootstrapper-token-controller",
    "node-link-controller",
    "machine-approver-controller",
    "machine-config-render-controller",
    "machine-config-pool-controller",
    "credential-rollout-controller",
)
OPT_IN: Final = frozenset(
    {"bootstrap-signer-controller", "token-cleaner-controller", "node-lifecycle-controller", *MACHINES}
)


def chosen(selection: Sequence[str], able: Sequence[str] = NAMES) -> Sequence[str]:
    """The controllers that `*,name,-name` chooses of those that can run, in their order.

    1. Every name, with or without a minus, must be one that there is, or another name for it; and one that can run here.
    2. `-name` takes one out, whatever else is said of it; `name` takes it in; `*` takes in all the others but those of
       `OPT_IN`, which have to be named.
    3. At least one must be left.
    """
    # 1. every name is known
    unknown = [word for word in selection if word != "*" and _named(word.removeprefix("-")) not in NAMES]
    if unknown:
        raise errors.Refused(
            f"there is no controller {', '.join(map(repr, unknown))}; there are: {', '.join(map(_shown, NAMES))}",
            reason="UnknownController",
            hint="write names separated by commas; * means all, -NAME all but that one",
        )
    out = {_named(word[1:]) for word in selection if word.startswith("-")}
    for word in selection:
        if not word.startswith(("*", "-")) and _named(word) not in {*able, *out}:
            raise errors.Refused(
                f"the controller {word!r} cannot run here: it needs {NEEDS[_named(word)]}", reason="ControllerUnable"
            )
    # 2. which are taken out, and which in
    named = {_named(word) for word in selection}
    left = [name for name in able if name not in out and (name in named or ("*" in named and name not in OPT_IN))]
    # 3. at least one is left
    if not left:
        raise errors.Refused(
            f"no controller is left by {','.join(selection)!r}",
            reason="NoController",
            hint="write * before -NAME to run all but that one",
        )
    return left


def opt_in_aliases() -> list[str]:
    """The short names of those that `*` does not include, in their order."""
    return [short for name in NAMES for short, named in ALIASES.items() if named == name and name in OPT_IN]


def _shown(name: str) -> str:
    other = next((short for short, named in ALIASES.items() if named == name), None)
    return name if other is None else f"{name} ({other})"


def _named(word: str) -> str:
    return ALIASES.get(word, word)
