# SPDX-License-Identifier: Apache-2.0
"""What this machine is: the name and the addresses of its node, its labels, and what it runs.

It reads files and asks the kernel, and sends nothing. What becomes of it in the API is in `registration`.
"""

from __future__ import annotations

import ipaddress
import os
import pathlib
import platform
import socket
import urllib.parse
from dataclasses import dataclass
from typing import Final

from handfast import errors
from handfast.api import objects
from handfast.runtime import files, routes

# As Go names them.
_MAX_BYTES: Final = 64 << 10
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386", "i386": "386"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a Node says of its machine."""

    name: str
    hostname: str
    addresses: tuple[str, ...]
    port: int = 0
    os: str = "linux"
    architecture: str = "amd64"
    kernel: str = ""
    image: str = ""
    machine_id: str = ""
    boot_id: str = ""

    @property
    def labels(self) -> dict[str, str]:
        """The labels a node gives itself, under their present and their old names."""
        rows = {"os": self.os, "arch": self.architecture}
        own = {
            f"{domain}/{key}": text for key, text in rows.items() for domain in ("beta.kubernetes.io", "kubernetes.io")
        }
        # A host name can be longer than a label may be.
        return own | ({"kubernetes.io/hostname": self.hostname} if objects.label_value(self.hostname) is None else {})

    @property
    def node_addresses(self) -> list[dict[str, str]]:
        """`status.addresses`, in the order in which clients should try them."""
        found = [{"type": "InternalIP", "address": address} for address in self.addresses]
        return [*found, {"type": "Hostname", "address": self.hostname}]


def node_name() -> str:
    """The name of this node where none was given, the host name; refused where no Node could have it."""
    name = socket.gethostname().strip().lower()
    if objects.dns_subdomain(name) is None:
        return name
    raise errors.Refused(
        f"the host name {name!r} cannot be a Node's name: {objects.SUBDOMAIN_WORDS}",
        reason="BadNodeName",
        hint="choose another with --node-name or $HANDFAST_NODE_NAME, as in worker-1",
    )


def addresses(named: tuple[str, ...], server: str) -> tuple[str, ...]:
    """The addresses of this node: those named, else the one from which it reaches the API server."""
    if named:
        return named
    host = urllib.parse.urlsplit(server).hostname or ""
    loopback: tuple[str, ...] = ()
    # The address of a server on this machine says nothing; the way out of the machine does.
    for target in (host, *routes.ANYWHERE):
        if address := routes.source(target):
            if not ipaddress.ip_address(address).is_loopback:
                return (address,)
            loopback = loopback or (address,)
    return loopback


def this_machine(
    name: str, own_addresses: tuple[str, ...], port: int, root: pathlib.Path = pathlib.Path("/")
) -> Machine:
    """What this machine is; `root` is where its files are."""
    information = os.uname()
    return Machine(
        name=name,
        hostname=socket.gethostname().lower() or name,
        addresses=own_addresses,
        port=port,
        os=platform.system().lower(),
        architecture=_ARCHITECTURES.get(information.machine, information.machine),
        kernel=information.release,
        image=_image(root / "etc" / "os-release"),
        machine_id=_line(root / "etc" / "machine-id"),
        boot_id=_line(root / "proc" / "sys" / "kernel" / "random" / "boot_id"),
    )


def _line(path: pathlib.Path) -> str:
    try:
        return files.read(path, limit=_MAX_BYTES).decode("utf-8").strip()
    except (errors.HandfastError, UnicodeDecodeError):
        return ""


def _image(path: pathlib.Path) -> str:
    rows = (line.partition("=") for line in _line(path).splitlines())
    return next((value.strip("\"'") for key, _, value in rows if key == "PRETTY_NAME"), "")
