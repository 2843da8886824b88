# SPDX-License-Identifier: Apache-2.0
"""What is served before there is a cluster: the masters' configuration, from the files of a directory. No API is called.

The same rules render it as in the cluster, so that the rendering has the name that the cluster gives it later, from the same objects.

1. Only `master` and `arbiter` are served, as OpenShift does before there is a cluster: no other pool has a credential then.
2. The credential is the kubeconfig that `handfast machine credentials create --kind master` wrote there. Without that file the answer is 404.
3. MachineConfigs, pools and secrets are read from the documents in `*.yaml` and `*.yml`; other kinds are passed over. A name is there once.
   The masters' pool is the one that every fleet begins with, unless a file has another.
4. Files that have changed are read again when somebody asks. If they cannot be used, the log says so, and what was good before goes on. But a
   secret counts only while a file that can be read has it, and a kubeconfig that was taken away is not served: whatever else is wrong,
   what was deleted has ended.
5. Callers show the secret of the pool, or come from a network that was named. No certificate counts, since revocations are not known.
6. The directory is this user's, and nobody else may write to it: a file that somebody adds there would be a secret of theirs, or root on the
   masters.
"""

from __future__ import annotations

import contextlib
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata as packages
from typing import Any, Final

import structlog

from handfast import errors
from handfast.api import jsonpath, machine_config_kinds, objects
from handfast.api.codec import yaml_document
from handfast.machines import offers
from handfast.rules import networks as networks_module
from handfast.rules.machine_config import credential, ignition_secrets, names, pools, rendering, requester
from handfast.rules.machines import inventory
from handfast.runtime import files, following

NOT_BEFORE_THE_CLUSTER: Final = "NotBeforeTheCluster"
NO_FILE: Final = "NoFile"
BAD_DIRECTORY: Final = "BadBootstrapDirectory"
_PATTERNS: Final = ("*.yaml", "*.yml")
_MAX_BYTES: Final = 16 << 20
_DOCUMENT: Final = re.compile(rb"^---(?=\s|$)", re.MULTILINE)
_SECRET: Final = "Secret"  # noqa: S105 - a kind
# By their digests.
Secrets = dict[str, ignition_secrets.Entry]
_log = structlog.get_logger("handfast.machine_config")


@dataclass(frozen=True, slots=True)
class _Content:
    """What the files said when they were good."""

    pools: dict[str, pools.Pool] = field(default_factory=dict)
    configs: list[objects.Document] = field(default_factory=list)
    secrets: Secrets = field(default_factory=dict)
    # None: the file is not there.
    kubeconfig: bytes | None = field(default=None, repr=False)


class Directory:
    """A bootstrap directory. It is read, and has to be good, when it is made."""

    def __init__(
        self,
        root: pathlib.Path,
        kubeconfig: str,
        *,
        networks: networks_module.Networks,
        kubelet_ca: Callable[[], bytes],
    ) -> None:
        self._root = root
        self._kubeconfig = root / kubeconfig
        self._networks = networks
        self._kubelet_ca = kubelet_ca
        self._version = packages.version("handfast")
        self._stamp = self._look()
        self._rendered: dict[str, objects.Document] = {}
        self._content = self._load()

    def not_ready(self) -> str | None:
        return None

    def known(self) -> requester.Known:
        self._follow()
        # 5. no certificate, and no machine, is known
        return requester.Known(
            secrets=self._content.secrets,
            machines=inventory.Index(),
            revocations=None,
            networks=self._networks,
            pool_of=lambda _: None,
        )

    def offer(self, pool: str, _node: str, /) -> offers.Offer | requester.Refusal:
        # 1. masters and arbiters
        if pool not in credential.CERTIFICATE_POOLS:
            sentence = f'refusing to serve bootstrap configuration to pool "{pool}"'
            return requester.Refusal(500, NOT_BEFORE_THE_CLUSTER, sentence)
        document = self._rendered.get(pool)
        kubeconfig = self._content.kubeconfig
        # 2. without the file there is nothing
        if document is None or kubeconfig is None:
            missing = self._kubeconfig if kubeconfig is None else f"a MachineConfigPool {pool} in {self._root}"
            return requester.Refusal(404, NO_FILE, f"there is no {missing}")
        ca = self._kubelet_ca()
        name = objects.metadata(document)["name"]
        return offers.Offer(
            rendering=name, key=(name, ca), document=lambda: document, kubeconfig=kubeconfig, kubelet_ca=ca
        )

    def _paths(self) -> list[pathlib.Path]:
        return sorted(path for pattern in _PATTERNS for path in self._root.glob(pattern))

    def _look(self) -> object:
        paths = self._paths()
        return paths, following.stamp([self._root, self._kubeconfig, *paths])

    def _follow(self) -> None:
        # 4. when somebody asks
        stamp = self._look()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._content = self._load()
        except errors.HandfastError as error:
            _log.warning("changed files cannot be used", reason=error.reason, error=error.message)
            # 4. what was deleted has ended
            kubeconfig = self._content.kubeconfig if self._kubeconfig.exists() else None
            self._content = replace(self._content, secrets=self._readable_secrets(), kubeconfig=kubeconfig)

    def _readable_secrets(self) -> Secrets:
        """The secrets of those files that can be read; none of a directory that others may write to."""
        secrets: Secrets = {}
        with contextlib.suppress(errors.HandfastError):
            files.require_own_directory(self._root)
            for path in self._paths():
                with contextlib.suppress(errors.HandfastError):
                    secrets.update(_secrets(_documents(path)))
        return secrets

    def _load(self) -> _Content:
        """Everything that the files say, rendered; errors.Refused where one of them is not good."""
        if not self._root.is_dir():
            raise _refused(f"there is no directory {self._root}")
        # 6. whoever may write there is root on the masters
        files.require_own_directory(self._root)
        content = _Content(kubeconfig=_credential(self._kubeconfig))
        # 3. the pool that every fleet begins with
        own = pools.read(machine_config_kinds.pool(machine_config_kinds.MASTER))
        content.pools[own.name] = own
        _read_all(self._paths(), content)
        kubeconfig = content.kubeconfig
        if kubeconfig is not None:
            self._rendered = {
                pool.name: self._render(pool, content.configs, kubeconfig)
                for pool in content.pools.values()
                if pool.name in credential.CERTIFICATE_POOLS
            }
        return content

    def _render(self, pool: pools.Pool, configs: Sequence[objects.Document], kubeconfig: bytes) -> objects.Document:
        held = credential.Credential(names.CERTIFICATE, kubeconfig)
        try:
            return rendering.render(pool.name, pools.configs_for(pool, configs), held, self._version)
        except errors.Refused as refused:
            raise errors.Refused(
                f"{self._root}: the pool {pool.name} cannot be rendered: {refused.message}",
                reason=refused.reason,
                hint=refused.hint,
            ) from None


def _credential(path: pathlib.Path) -> bytes | None:
    if not path.exists():
        return None
    text = files.read_private(path, limit=_MAX_BYTES)
    seen = credential.Seen(trusted=True, masters_kubeconfig=text)
    chosen = credential.choose(machine_config_kinds.MASTER, seen)
    if isinstance(chosen, credential.Missing):
        raise _refused(f"{path}: {chosen.sentence}")
    return text


def _read_all(paths: Sequence[pathlib.Path], content: _Content) -> None:
    taken: dict[tuple[str, str], pathlib.Path] = {}
    for path in paths:
        for document in _documents(path):
            kind, name = document.get("kind", ""), jsonpath.text(document, "metadata", "name")
            if kind == machine_config_kinds.MACHINE_CONFIG_POOL.kind:
                content.pools[name] = pools.read(document)
            elif kind == machine_config_kinds.MACHINE_CONFIG.kind:
                content.configs.append(document)
            elif kind == _SECRET:
                content.secrets.update(_secrets([document]))
            else:
                continue
            # 3. a name is there once
            if (other := taken.setdefault((kind, name), path)) != path:
                raise _refused(f"{kind} {name} is in {other} and in {path}")


def _secrets(documents: Iterable[dict[str, Any]]) -> Secrets:
    secrets = (document for document in documents if document.get("kind") == _SECRET)
    return {entry.digest: entry for document in secrets for entry in ignition_secrets.read(document)}


def _documents(path: pathlib.Path) -> Iterator[dict[str, Any]]:
    for part in _DOCUMENT.split(files.read(path, limit=_MAX_BYTES)):
        try:
            document, _ = yaml_document.load(part)
        except errors.Refused as refused:
            raise _refused(f"{path}: {refused.message}") from None
        if isinstance(document, dict):
            yield document
        elif document is not None:
            raise _refused(f"{path}: a document in it is no object")


def _refused(message: str) -> errors.Refused:
    return errors.Refused(message, reason=BAD_DIRECTORY, hint="correct it, or name another with --bootstrap-dir")
