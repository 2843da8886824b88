# SPDX-License-Identifier: Apache-2.0
"""What is where in a data directory. It opens nothing: see `datadir`."""

from __future__ import annotations

import pathlib
from dataclasses import dataclass
from typing import Final

# What to do where a data directory cannot be used.
ELSEWHERE: Final = "choose another directory with --dir"


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths below one data directory."""

    root: pathlib.Path

    @classmethod
    def at(cls, directory: str | pathlib.Path) -> Layout:
        """The layout with absolute paths, so that a later change of the working directory does not matter."""
        return cls(pathlib.Path(directory).expanduser().absolute())

    @property
    def pki(self) -> pathlib.Path:
        return self.root / "pki"

    @property
    def ca_certificate(self) -> pathlib.Path:
        return self.pki / "ca.crt"

    @property
    def ca_key(self) -> pathlib.Path:
        return self.pki / "ca.key"

    @property
    def apiserver_certificate(self) -> pathlib.Path:
        return self.pki / "apiserver.crt"

    @property
    def apiserver_key(self) -> pathlib.Path:
        return self.pki / "apiserver.key"

    @property
    def machine_config_certificate(self) -> pathlib.Path:
        """Of a control plane that admits machines by inventory: what the server of their configurations shows."""
        return self.pki / "machine-config.crt"

    @property
    def machine_config_key(self) -> pathlib.Path:
        return self.pki / "machine-config.key"

    @property
    def service_account_key(self) -> pathlib.Path:
        return self.pki / "sa.key"

    @property
    def service_account_public_key(self) -> pathlib.Path:
        return self.pki / "sa.pub"

    def rotation(self, target: str) -> pathlib.Path:
        """Where a rotation of the CA (`ca`) or of the key of tokens (`service-account-key`) keeps what it needs."""
        return self.pki / f"{target}-rotation"

    @property
    def audit(self) -> pathlib.Path:
        return self.root / "audit"

    @property
    def machine_config_audit(self) -> pathlib.Path:
        """Who asked for a configuration, as long as the API server's audit log is where it usually is; else beside that."""
        return self.audit / "machine-config.log"

    @property
    def admin_kubeconfig(self) -> pathlib.Path:
        return self.root / "admin.conf"

    @property
    def controllers_kubeconfig(self) -> pathlib.Path:
        return self.root / "controllers.conf"

    @property
    def machine_config_kubeconfig(self) -> pathlib.Path:
        """… and what that server logs in with."""
        return self.root / "machine-config.conf"

    @property
    def former_identity_kubeconfig(self) -> pathlib.Path:
        """What the identity service of the mesh logged in with before its tokens: with a certificate."""
        return self.root / "identity.conf"

    @property
    def mesh(self) -> pathlib.Path:
        """Of a control plane with a mesh: what its services log in with."""
        return self.root / "mesh"

    def mesh_kubeconfig(self, account: str) -> pathlib.Path:
        """How the service with this account reaches the API …"""
        return self.mesh / f"{account}.conf"

    def mesh_token(self, account: str) -> pathlib.Path:
        """… and its token, which is renewed."""
        return self.mesh / f"{account}.token"

    @property
    def console_key(self) -> pathlib.Path:
        """While `up` runs a console: what the addresses that open it are made with."""
        return self.root / "console.key"

    @property
    def first_token(self) -> pathlib.Path:
        """Of a first start whose output is no terminal: the token that was made."""
        return self.root / "first-token"

    @property
    def machines(self) -> pathlib.Path:
        """Of a control plane that admits machines by inventory: the masters' bootstrap credential."""
        return self.root / "machines"

    @property
    def last_backup(self) -> pathlib.Path:
        """When the store was last backed up from here."""
        return self.root / "last-backup.json"

    @property
    def encryption_key(self) -> pathlib.Path:
        return self.root / "encryption.key"

    @property
    def config(self) -> pathlib.Path:
        return self.root / "config.yaml"

    @property
    def store_seen(self) -> pathlib.Path:
        """What the API server has seen of its store: which one it is, and how far it had come."""
        return self.root / "store-seen.json"

    def store(self, path: str) -> pathlib.Path:
        """Where the configuration's `store` is: relative to the directory, unless it is absolute."""
        return self.root / path
