# SPDX-License-Identifier: Apache-2.0
"""Etcds that let in only who shows a certificate, or a login. It tests nothing."""

from __future__ import annotations

import datetime
import ipaddress
import os
import pathlib
import subprocess

from handfast.pki import authority, keys, names, profiles
from handfast.wire import etcd_access
from tests.world import etcds

NOW = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
PASSWORD = "correct horse"


class Authority:
    """A CA that writes what it issues into a directory."""

    def __init__(self, directory: pathlib.Path, name: str) -> None:
        directory.mkdir(mode=0o700)
        self.directory = directory
        self.replace_ca(name)

    def replace_ca(self, name: str) -> None:
        """Another CA, in the same file."""
        self._ca = authority.self_signed_ca(names.Subject(common_name=name), keys.generate(), NOW)
        self.ca_file = self.write("ca.crt", self._ca.pem)

    def write(self, name: str, data: bytes) -> str:
        path = self.directory / name
        path.write_bytes(data)
        path.chmod(0o600)
        return str(path)

    def pair(self, name: str, profile: profiles.Profile, sans: names.Sans) -> tuple[str, str]:
        key = keys.generate()
        issued = self._ca.issue(key.public, names.Subject(common_name=name), sans, profile, NOW)
        return self.write(f"{name}.crt", issued.pem), self.write(f"{name}.key", key.to_pem())

    def client(self, name: str = "client") -> etcd_access.Access:
        cert, key = self.pair(name, profiles.CLIENT, names.Sans())
        return etcd_access.Access(ca_file=self.ca_file, cert_file=cert, key_file=key)

    def etcd(self, *, host: str = "127.0.0.1") -> etcds.Etcd:
        cert, key = self.pair("etcd", profiles.APISERVER_SERVING, names.Sans(ip=(ipaddress.ip_address(host),)))
        flags = [f"--cert-file={cert}", f"--key-file={key}", f"--trusted-ca-file={self.ca_file}", "--client-cert-auth"]
        return etcds.Etcd(self.directory, flags, scheme="https")


def etcdctl(etcd: etcds.Etcd, *words: str) -> None:
    environment = {**os.environ, "ETCDCTL_API": "3"}
    command = ["etcdctl", f"--endpoints={etcd.address}", *words]
    subprocess.run(command, check=True, capture_output=True, env=environment)


def as_root(etcd: etcds.Etcd, *words: str) -> None:
    etcdctl(etcd, "--user=root:root", *words)


def require_login(etcd: etcds.Etcd) -> None:
    """From now on only users are let in: root, and `handfast`, who may use `/hf/` alone."""
    etcdctl(etcd, "user", "add", "root:root")
    etcdctl(etcd, "user", "grant-role", "root", "root")
    etcdctl(etcd, "role", "add", "hf")
    etcdctl(etcd, "role", "grant-permission", "hf", "readwrite", "--prefix=true", "/hf/")
    etcdctl(etcd, "user", "add", f"handfast:{PASSWORD}")
    etcdctl(etcd, "user", "grant-role", "handfast", "hf")
    etcdctl(etcd, "auth", "enable")


def password_file(directory: pathlib.Path, text: str = PASSWORD) -> str:
    path = directory / "password"
    path.write_text(text + "\n")
    path.chmod(0o600)
    return str(path)
