# SPDX-License-Identifier: Apache-2.0
"""The flags of `handfast join`: their grammar, and `Flags`, which is what was typed, read once.

Tokens are read from their files here, durations and the node's settings are parsed, and nothing is asked of anybody. Which
flags go together is decided in `bootstrap.discovery`, by way of `join_plan`.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import click

from handfast.assembly import node_config
from handfast.cli import durations, join_node, node_settings, output, token_input
from handfast.node import units

_F = TypeVar("_F", bound=Callable[..., Any])
_Option = Callable[[Any], Any]

# As kubeadm names it.
DEFAULT_FILE: Final = node_config.BOOTSTRAP_KUBECONFIG
_LONGEST: Final = "168h"
_TOKENS: Final = {
    "token": "The token for discovery and for logging in.",
    "discovery-token": "The token that cluster-info is signed with.",
    "tls-bootstrap-token": "The token to log in with, if it is not --token.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """What was typed; None: not given. Without a `node_plan` the command ends with the bootstrap kubeconfig."""

    endpoints: tuple[str, ...]
    token: str | None = field(repr=False)
    discovery_token: str | None = field(repr=False)
    tls_bootstrap_token: str | None = field(repr=False)
    pins: tuple[str, ...]
    unsafe_skip_ca_verification: bool
    discovery_file: str | None
    discovery_ca_file: str | None
    bootstrap_kubeconfig: str | None
    node_plan: join_node.NodePlan | None
    seconds: float
    dry_run: bool
    print_kubeconfig: bool
    form: str

    @property
    def bootstrap_file(self) -> pathlib.Path:
        """Where the bootstrap kubeconfig is, or goes."""
        return pathlib.Path(self.bootstrap_kubeconfig or DEFAULT_FILE)


def _token_rows(name: str, about: str) -> tuple[_Option, _Option]:
    return (
        click.option(f"--{name}", metavar="TOKEN", help=f"{about}  - reads it from stdin."),
        click.option(f"--{name}-file", metavar="FILE", help=f"A file with --{name}; - is stdin."),
    )


# In the order in which --help shows them.
_TOKEN_ROWS: Final = tuple(row for name, about in _TOKENS.items() for row in _token_rows(name, about))
_DISCOVERY_ROWS: Final[tuple[_Option, ...]] = (
    click.option(
        "--discovery-token-ca-cert-hash",
        "pins",
        metavar="sha256:HEX",
        multiple=True,
        help="Pin of a public key of the cluster's CA.  May be given several times.",
    ),
    click.option(
        "--discovery-token-unsafe-skip-ca-verification",
        "unsafe",
        is_flag=True,
        help="Join without a pin: whoever has the token can pose as the cluster.",
    ),
    click.option(
        "--discovery-file",
        metavar="FILE|URL|-",
        help="A file or https URL that describes the cluster; - is stdin.",
    ),
    click.option("--discovery-ca-file", metavar="FILE", help="CA of that URL.  [default: the roots of this system]"),
    node_settings.setting(
        "bootstrap-kubeconfig", "Where the bootstrap kubeconfig is written.", DEFAULT_FILE, metavar="FILE"
    ),
)
_NODE_ROWS: Final[tuple[_Option, ...]] = (
    node_settings.setting("node-name", "The name of the Node.", "the host name", metavar="NAME"),
    node_settings.setting("cert-dir", "Where certificates are kept.", node_config.CERT_DIR, metavar="DIR"),
    node_settings.setting("kubeconfig", "Where the node's kubeconfig goes.", node_config.KUBECONFIG, metavar="FILE"),
    click.option(
        "--replace-node",
        is_flag=True,
        help="Take over the name of a node that is alive, once its Lease has ended or an administrator approves.",
    ),
    click.option("--systemd", is_flag=True, help="Install the agent as a service, so that it runs after each start."),
    click.option("--systemd-dir", metavar="DIR", hidden=True, help="Where the unit goes."),
)
_ENDING_ROWS: Final[tuple[_Option, ...]] = (
    click.option(
        "--discovery-only",
        is_flag=True,
        help="Stop after the bootstrap kubeconfig is written, for a kubelet that asks for its own certificate.",
    ),
    click.option(
        "--timeout",
        default="5m",
        show_default=True,
        metavar="DURATION",
        help="How long to wait for a cluster, and then for a certificate.",
    ),
    click.option("--dry-run", is_flag=True, help="Find the cluster and check the token; write and request nothing."),
    click.option(
        "--print-kubeconfig",
        is_flag=True,
        help="Print the bootstrap kubeconfig, token included, and stop; it is written only if its place was named.",
    ),
    output.format_option,
)
_ENDPOINTS: Final[_Option] = click.argument("endpoints", metavar="[ENDPOINT]...", nargs=-1)


def options(function: _F) -> _F:
    """Adds all flags of `handfast join`; what click makes of them is for `read`."""
    for row in reversed((_ENDPOINTS, *_TOKEN_ROWS, *_DISCOVERY_ROWS, *_NODE_ROWS, *_ENDING_ROWS)):
        function = row(function)
    return function


def read(parsed: Mapping[str, Any]) -> Flags:
    """The flags, from what click parsed."""
    seconds = durations.parse(parsed["timeout"], "--timeout", _LONGEST).total_seconds()
    if parsed["print_kubeconfig"] and parsed["form"] != "text":
        raise output.Usage("--print-kubeconfig is YAML and does not go with -o", hint="leave one of them out")
    _require_one_reader_of_stdin(parsed)
    return Flags(
        node_plan=None if parsed["print_kubeconfig"] or parsed["discovery_only"] else _node(parsed),
        seconds=seconds,
        endpoints=parsed["endpoints"],
        token=_token(parsed, "token"),
        discovery_token=_token(parsed, "discovery-token"),
        tls_bootstrap_token=_token(parsed, "tls-bootstrap-token"),
        pins=parsed["pins"],
        unsafe_skip_ca_verification=parsed["unsafe"],
        discovery_file=parsed["discovery_file"],
        discovery_ca_file=parsed["discovery_ca_file"],
        bootstrap_kubeconfig=node_settings.named(parsed, "bootstrap-kubeconfig"),
        dry_run=parsed["dry_run"],
        print_kubeconfig=parsed["print_kubeconfig"],
        form=parsed["form"],
    )


def _node(parsed: Mapping[str, Any]) -> join_node.NodePlan:
    from handfast.node import machine

    settings = node_settings.resolved(parsed, "node-name", "cert-dir", "kubeconfig")
    return join_node.NodePlan(
        name=settings.node_name or machine.node_name(),
        kubeconfig=settings.kubeconfig,
        certificate_directory=settings.cert_dir,
        unit_directory=pathlib.Path(parsed["systemd_dir"] or units.DIRECTORY) if parsed["systemd"] else None,
        replace=parsed["replace_node"],
    )


def _require_one_reader_of_stdin(parsed: Mapping[str, Any]) -> None:
    readers = [f"--{name}" for name in _TOKENS if token_input.STDIN in _both_ways(parsed, name)]
    if parsed["discovery_file"] == token_input.STDIN:
        readers.append("--discovery-file")
    if len(readers) > 1:
        raise output.Usage(f"{' and '.join(readers)} cannot both read stdin", hint="put one of them into a file")


def _both_ways(parsed: Mapping[str, Any], name: str) -> tuple[str | None, str | None]:
    """A token as it was typed, and the file that it is in."""
    field_name = name.replace("-", "_")
    return parsed[field_name], parsed[f"{field_name}_file"]


def _token(parsed: Mapping[str, Any], name: str) -> str | None:
    """A token, which was typed, or is in a file or on stdin."""
    typed, path = _both_ways(parsed, name)
    if typed is not None and path is not None:
        raise output.Usage(f"--{name} and --{name}-file cannot both be set", hint="leave one of them out")
    if typed == token_input.STDIN:
        return token_input.read_file(token_input.STDIN, f"--{name}")
    return typed if path is None else token_input.read_file(path, f"--{name}-file")
