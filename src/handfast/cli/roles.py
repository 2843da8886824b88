# SPDX-License-Identifier: Apache-2.0
"""What the commands of all roles share: their directory, their configuration, their tie to `handfast up`. It runs none of them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterable
from typing import Any, Final

import click

from handfast.assembly import config
from handfast.cli import output, settings, supervised
from handfast.datadir import endpoints, layout
from handfast.runtime import addresses

DIRECTORY: Final = "/var/lib/handfast"

pod_ip_option = click.option(
    "--pod-ip",
    metavar="ADDRESS",
    default=None,
    help="In a Pod, its address: the service listens there with TLS, and on loopback in plaintext for the proxy beside it.",
)


def in_pod(listen: addresses.Address, pod_ip: str | None) -> addresses.Address:
    """Where a service listens that was told the address of its Pod."""
    if pod_ip is None:
        return listen
    if not addresses.ip_hosts([pod_ip]) or addresses.is_loopback(pod_ip):
        raise output.Usage(f'--pod-ip: "{pod_ip[:80]}" is no address of a Pod', hint="give status.podIP of the Pod")
    return addresses.Address(pod_ip, listen.port)


def configuration(
    place: layout.Layout, flags: dict[str, Any], config_file: str | None, tie: int | None
) -> config.Configuration:
    """What a role is told: by everything that counts, or by its supervisor alone, which may hand it sockets."""
    sockets = flags.pop("sockets", ())
    if tie is None:
        return settings.load(place, flags, config_file).configuration
    return _handed(settings.from_flags(flags), sockets)


def _handed(chosen: config.Configuration, sockets: Iterable[str]) -> config.Configuration:
    """The same, where addresses have the sockets that listen there already."""
    pairs = [text.split("=") for text in sockets]
    addressed = {
        name: dataclasses.replace(getattr(chosen, name), descriptor=int(descriptor)) for name, descriptor in pairs
    }
    return dataclasses.replace(chosen, **addressed)


def tied(tie: int | None, directory: str) -> contextlib.AbstractContextManager[None]:
    """The tie to the supervisor. Where that dies without a word, the file that names its children is removed."""
    return supervised.tied(tie, functools.partial(endpoints.remove, layout.Layout.at(directory).root))


def tls_files(certificate: str | None, key: str | None) -> tuple[str, str] | None:
    """The two files of a pair that was named; None: none was."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise output.Usage("--tls-cert-file and --tls-private-key-file are given together, or not at all")
    return certificate, key
