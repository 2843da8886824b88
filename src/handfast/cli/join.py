# SPDX-License-Identifier: Apache-2.0
"""`handfast join`: find a cluster, prove that it is the right one, log in, and get this machine a certificate of its own.

What may be combined is decided in `bootstrap.discovery`, and the finding is done in `client.discovery`. What follows the
bootstrap kubeconfig is in `join_node`.
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from handfast import errors
from handfast.assembly import node_config
from handfast.cli import durations, join_node, node_settings, output, token_input

if TYPE_CHECKING:
    from handfast.bootstrap import discovery as rules
    from handfast.bootstrap import tokens
    from handfast.client import discovery

_F = TypeVar("_F", bound=Callable[..., Any])

# As kubeadm names them.
DEFAULT_FILE: Final = node_config.BOOTSTRAP_KUBECONFIG
USER: Final = "tls-bootstrap-token-user"
CLUSTER: Final = "kubernetes"
_MAX_BYTES: Final = 1 << 20
_STDIN: Final = "-"
_TOKENS: Final = {
    "token": "The token for discovery and for logging in.",
    "discovery-token": "The token that cluster-info is signed with.",
    "tls-bootstrap-token": "The token to log in with, if it is not --token.",
}


def _token_options(function: _F) -> _F:
    for name, about in reversed(_TOKENS.items()):
        function = click.option(f"--{name}-file", metavar="FILE", help=f"A file with --{name}; - is stdin.")(function)
        function = click.option(f"--{name}", metavar="TOKEN", help=f"{about}  - reads it from stdin.")(function)
    return function


@click.command(name="join", short_help="Make this machine a node of a cluster.")
@click.argument("endpoints", metavar="[ENDPOINT]...", nargs=-1)
@_token_options
@click.option(
    "--discovery-token-ca-cert-hash",
    "pins",
    metavar="sha256:HEX",
    multiple=True,
    help="Pin of a public key of the cluster's CA.  May be given several times.",
)
@click.option(
    "--discovery-token-unsafe-skip-ca-verification",
    "unsafe",
    is_flag=True,
    help="Join without a pin: whoever has the token can pose as the cluster.",
)
@click.option(
    "--discovery-file", metavar="FILE|URL|-", help="A file or https URL that describes the cluster; - is stdin."
)
@click.option("--discovery-ca-file", metavar="FILE", help="CA of that URL.  [default: the roots of this system]")
@node_settings.setting(
    "bootstrap-kubeconfig", "Where the bootstrap kubeconfig is written.", DEFAULT_FILE, metavar="FILE"
)
@join_node.options
@click.option(
    "--discovery-only",
    is_flag=True,
    help="Stop after the bootstrap kubeconfig is written, for a kubelet that asks for its own certificate.",
)
@click.option(
    "--timeout",
    default="5m",
    show_default=True,
    metavar="DURATION",
    help="How long to wait for a cluster, and then for a certificate.",
)
@click.option("--dry-run", is_flag=True, help="Find the cluster and check the token; write and request nothing.")
@click.option(
    "--print-kubeconfig",
    is_flag=True,
    help="Print the bootstrap kubeconfig, token included, and stop; it is written only if its place was named.",
)
@output.format_option
def command(**given: Any) -> None:
    """Make this machine a node: find the cluster, prove that it is the right one, and get a certificate from it.

    Each ENDPOINT is host, host:port, [v6]:port or https://host:port; the port is 6443 by default. The first that
    answers is used; those named first are preferred. Servers that are not up yet are waited for.

    `handfast node run --rotate-certificates` renews the certificate. With --systemd it runs as a service.
    """
    from handfast.bootstrap import discovery as rules

    seconds = durations.parse(given["timeout"], "--timeout", "168h").total_seconds()
    if given["print_kubeconfig"] and given["form"] != "text":
        raise output.Usage("--print-kubeconfig is YAML and does not go with -o", hint="leave one of them out")
    ends_early = given["print_kubeconfig"] or given["discovery_only"]
    node = None if ends_early else join_node.plan(given)
    given |= _read_tokens(given)
    given["bootstrap_kubeconfig"] = node_settings.given(given, "bootstrap-kubeconfig")
    given |= _second_credential(given)
    plan = rules.choose(
        rules.Flags(
            endpoints=given["endpoints"],
            token=given["token"],
            discovery_token=given["discovery_token"],
            tls_bootstrap_token=given["tls_bootstrap_token"],
            discovery_file=given["discovery_file"],
            pins=given["pins"],
            unsafe_skip_ca_verification=given["unsafe"],
            ca_file=given["discovery_ca_file"] is not None,
        )
    )
    if not given["pins"] and given["unsafe"]:
        output.note("the CA is not pinned: whoever has the token can pose as the cluster")

    import asyncio

    found, accepted = asyncio.run(_search(plan, given["discovery_ca_file"], seconds))
    for text in found.notes:
        output.note(text)
    if not accepted:
        output.note(f"{found.server} did not say whether it lets the token {plan.tls_token.id} log in")
    if node is not None:
        join_node.require_same_cluster(node, found)
    facts = _deliver(found, plan, given, accepted=accepted)
    if node is None:
        return
    if given["dry_run"]:
        facts["requestAccepted"] = asyncio.run(join_node.rehearse(node, bootstrap_kubeconfig(found, plan.tls_token)))
        asks, where = bool(facts["requestAccepted"]), given["bootstrap_kubeconfig"] or DEFAULT_FILE
        _tell(facts, _found(facts) + join_node.would(node, where, asks=asks), given["form"])
        return
    bootstrap = pathlib.Path(facts["bootstrapKubeconfig"]).absolute()
    joined = asyncio.run(join_node.obtain(node, bootstrap, seconds))
    facts |= joined.facts()
    # Whoever has joined has no use for the token, and others should not find it here.
    bootstrap.unlink(missing_ok=True)
    facts["bootstrapKubeconfig"] = None
    facts |= join_node.install(node)
    _tell(facts, join_node.story(facts, _table(facts)), given["form"])


def _read_tokens(given: dict[str, Any]) -> dict[str, str | None]:
    """The tokens by name, whichever of the ways they were given in."""
    flags = {f"--{name}": name.replace("-", "_") for name in _TOKENS}
    from_stdin = [flag for flag, name in flags.items() if _STDIN in {given[name], given[f"{name}_file"]}]
    if given["discovery_file"] == _STDIN:
        from_stdin.append("--discovery-file")
    if len(from_stdin) > 1:
        raise output.Usage(f"{' and '.join(from_stdin)} cannot both read stdin", hint="put one of them into a file")
    found: dict[str, str | None] = {}
    for flag, name in flags.items():
        path = given[f"{name}_file"]
        if given[name] is not None and path is not None:
            raise output.Usage(f"{flag} and {flag}-file cannot both be set", hint="leave one of them out")
        if given[name] == _STDIN:
            found[name] = token_input.read_file(_STDIN, flag)
        else:
            found[name] = given[name] if path is None else token_input.read_file(path, f"{flag}-file")
    return found


def _second_credential(given: dict[str, Any]) -> dict[str, str]:
    """The token of a bootstrap kubeconfig that is there, for a discovery file that came without one."""
    if given["discovery_file"] is None or given["tls_bootstrap_token"] or given["token"]:
        return {}
    from handfast.bootstrap import kubeconfig, tokens
    from handfast.runtime import files

    path = pathlib.Path(given["bootstrap_kubeconfig"] or DEFAULT_FILE)
    try:
        text = files.read(path, limit=_MAX_BYTES).decode("utf-8", "replace")
    except errors.Refused as refused:
        if refused.reason in {"FileNotFound", "NotADirectory"}:
            return {}
        raise
    user = kubeconfig.parse(text).user
    if user is None or not tokens.is_well_formed(user.token):
        raise errors.Refused(
            f"the bootstrap kubeconfig {path} has no bootstrap token to log in with",
            reason="NoBootstrapToken",
            hint="give one with --tls-bootstrap-token; with a certificate or another token, start the kubelet with that file",
        )
    output.note(f"logging in with the token of {path}")
    return {"tls_bootstrap_token": user.token}


def _read(path: str, way_out: str) -> bytes:
    """All of a file, of what `<(command)` writes, or of stdin."""
    from handfast.runtime import files

    if path != _STDIN:
        with files.otherwise(way_out):
            return files.read_given(pathlib.Path(path), limit=_MAX_BYTES)
    data = sys.stdin.buffer.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise errors.Refused(f"cannot read stdin: larger than {_MAX_BYTES} bytes", reason="FileTooLarge")
    return data


def _about(refused: errors.Refused, source: str) -> errors.Refused:
    """What is wrong with a document, with the name of the document."""
    if refused.reason != "BadKubeconfig":
        return refused
    return errors.Refused(
        f"--discovery-file {'stdin' if source == _STDIN else source}: {refused.message}",
        reason=refused.reason,
        hint=refused.hint or "it is a kubeconfig with one cluster and no user, in YAML",
    )


async def _search(plan: rules.Plan, ca_file: str | None, seconds: float) -> tuple[discovery.Found, bool]:
    from handfast.bootstrap import diagnosis
    from handfast.bootstrap import discovery as rules
    from handfast.client import discovery
    from handfast.runtime import clock
    from handfast.telemetry import log

    # What goes wrong is told as an error; the client's own remarks would come on top of it.
    log.configure(level="error")
    search = discovery.Discovery(clock.SystemClock(), timeout=seconds, report=output.note)
    if isinstance(plan.method, rules.ByToken):
        found = await search.by_token(plan.endpoints, plan.method)
        signs = plan.method.token == plan.tls_token
    else:
        source = plan.method.source
        if plan.method.is_url:
            ca = None if ca_file is None else _read(ca_file, "name another file with --discovery-ca-file")
            text = await search.document(source, ca)
        else:
            data = _read(source, "name another file, or an https URL, with --discovery-file")
            text = diagnosis.decoded(data, "stdin" if source == "-" else source)
        try:
            found = await search.by_document(text, plan.endpoints)
        except errors.Refused as refused:
            raise _about(refused, source) from None
        signs = False
    return found, await search.login(found, plan.tls_token, signs=signs)


def bootstrap_kubeconfig(found: discovery.Found, token: tokens.Token) -> str:
    """The kubeconfig of the user who is allowed to ask for a certificate, and to little else."""
    from handfast.bootstrap import kubeconfig
    from handfast.client import cluster_cache

    text = kubeconfig.render(
        kubeconfig.Kubeconfig(
            context=f"{USER}@{CLUSTER}",
            cluster=kubeconfig.Cluster(name=CLUSTER, server=found.server),
            user=kubeconfig.User(name=USER, token=token.text),
        )
    )
    return cluster_cache.replaced(text, CLUSTER, found.info, found.server)


def _deliver(found: discovery.Found, plan: rules.Plan, given: dict[str, Any], *, accepted: bool) -> dict[str, Any]:
    """Write or print the bootstrap kubeconfig; what is known now."""
    from handfast.runtime import files

    text = bootstrap_kubeconfig(found, plan.tls_token)
    chosen = given["bootstrap_kubeconfig"]
    path = None if chosen is None and given["print_kubeconfig"] else pathlib.Path(chosen or DEFAULT_FILE)
    written = path is not None and not given["dry_run"]
    if path is not None and written:
        with files.otherwise("name another file with --bootstrap-kubeconfig"):
            files.create_directory(path.parent, mode=0o755)
            files.write_atomically(path, text.encode("utf-8"))
    facts = {**_facts(found, plan, path if written else None), "tokenAccepted": accepted or None}
    if given["print_kubeconfig"]:
        output.result(text.rstrip("\n"))
    elif given["discovery_only"]:
        _tell(facts, _found(facts) + _next(path, dry_run=given["dry_run"]), given["form"])
    return facts


def _tell(facts: dict[str, Any], text: str, form: str) -> None:
    output.result(text if form == "text" else output.document(facts, form))


def _facts(found: discovery.Found, plan: rules.Plan, written: pathlib.Path | None) -> dict[str, Any]:
    from handfast.pki import pem, pins

    authorities = [] if found.info.ca is None else pem.certificates_from_pem(found.info.ca)
    return {
        "server": found.server,
        "servers": list(found.info.servers),
        "clusterID": found.info.id or None,
        "caPins": [str(pins.of_certificate(der)) for der in authorities],
        "tokenID": plan.tls_token.id,
        "bootstrapKubeconfig": None if written is None else str(written),
        "joined": False,
    }


def _table(facts: dict[str, Any]) -> str:
    trusted = ", ".join(facts["caPins"]) or "the roots of this system"
    return (
        f"  server      {facts['server']}\n"
        f"  servers     {', '.join(facts['servers'])}\n"
        f"  CA          {trusted}\n"
        f"  cluster id  {facts['clusterID'] or 'not published'}\n"
        f"  token       {facts['tokenID']}, {'accepted' if facts['tokenAccepted'] else 'not checked'} for logging in\n"
    )


def _found(facts: dict[str, Any]) -> str:
    return f"found the cluster, and it is the right one\n\n{_table(facts)}\n"


def _next(path: pathlib.Path | None, *, dry_run: bool) -> str:
    wrote = f"would write {path}" if dry_run else f"wrote {path}, mode 0600"
    return (
        f"{wrote}\n"
        "This machine has not joined yet: no certificate was requested. A kubelet that is started with\n"
        "--bootstrap-kubeconfig and that file requests its own."
    )
