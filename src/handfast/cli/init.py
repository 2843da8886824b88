# SPDX-License-Identifier: Apache-2.0
"""`handfast init`: make a data directory, or any cluster, ready to be joined, and say how. It does not go on serving.

`handfast up` runs it as a child on every start, with the hidden flags. Then it creates something only at the first
start, and its output is for the supervisor.
"""

from __future__ import annotations

import datetime
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click

from handfast import errors
from handfast.assembly import config
from handfast.cli import connecting, init_machines, invocation, output, settings, supervised, token_input
from handfast.datadir import layout
from handfast.runtime import addresses, files

if TYPE_CHECKING:
    from handfast.client import api, introduction
    from handfast.runtime import clock as clocks

_SETTINGS: Final = ("listen", "advertise", "store", *config.ETCD, "machines", "machineConfigListen")
# Seconds that a first start waits for an API server that was ready a moment ago.
_PATIENCE: Final = 30.0


@dataclass(frozen=True, slots=True)
class _First:
    """The first token, as the flags ask for it: None is a random one, and empty is none. It does not print."""

    token: str | None = field(repr=False)
    ttl: datetime.timedelta | None
    # Only where nothing was prepared yet.
    start_only: bool

    @classmethod
    def of(cls, flags: dict[str, Any]) -> _First:
        """Takes its flags out of `flags`. A flag that is wrong is refused before anything is created."""
        token = token_input.first_token(flags.pop("token"), flags.pop("token_file"))
        ttl = token_input.parse_ttl(flags.pop("token_ttl"), "--token-ttl")
        return cls(token, ttl, flags.pop("first_start"))


@dataclass(frozen=True, slots=True)
class _Start:
    """What a directory begins with: a token, a CA of the operator's, a fleet."""

    token: _First
    authority: tuple[bytes, bytes] | None = field(repr=False)
    fleet: init_machines.Fleet | None


@click.command(name="init", short_help="Prepare a control plane to be joined, without starting it.")
@settings.directory_option("./handfast-data")
@settings.config_option
@click.option(
    "--kubeconfig",
    type=click.Path(),
    default=None,
    help="Prepare the cluster of this kubeconfig instead of a directory.",
)
@click.option("--ca-cert", type=click.Path(), default=None, help="Sign with this CA of your own instead of a new one.")
@click.option("--ca-key", type=click.Path(), default=None, help="The private key of --ca-cert.")
@settings.setting_options(*_SETTINGS)
@init_machines.options
@click.option(
    "--machines-out",
    type=click.Path(),
    default=None,
    help="With --machines: where the masters' bootstrap credential goes.  [default: machines in the data directory]",
)
@token_input.first_token_options
@click.option("--first-start", is_flag=True, hidden=True, help="Only where nothing was prepared yet.")
@supervised.option
@output.format_option
def command(
    directory: str,
    config_file: str | None,
    kubeconfig: str | None,
    machines_out: str | None,
    tie: int | None,
    form: str,
    **flags: Any,
) -> None:
    """Prepare a control plane to be joined, without starting it.

    It creates a certificate authority, an administrator's kubeconfig, a configuration file and a store in the data
    directory. The store gets what joining machines need: the public ConfigMap kube-public/cluster-info, the rights to
    read it and to ask for a certificate, what `kubeadm join` reads, and a first token. A second call changes nothing.
    With --kubeconfig the same objects are created in that cluster instead.

    --ca-cert and --ca-key name a CA of your own. It may be an intermediate CA: then that CA is trusted, not its root.

    With --machines it also gets what a fleet of machines begins with: the masters' bootstrap credential, the account of
    the workers', the kinds and pools of machines, and the Machines of --inventory. A credential that was revoked since is
    not made again.
    """
    with supervised.tied(tie):
        first = _First.of(flags)
        authority = _own_authority(flags.pop("ca_cert"), flags.pop("ca_key"), kubeconfig)
        out = None if machines_out is None else pathlib.Path(machines_out).absolute()
        fleet_flags = init_machines.taken(flags)
        if kubeconfig is not None:
            # The settings of a data directory are not those of that cluster.
            typed = settings.from_flags(flags)
            fleet = init_machines.typed(fleet_flags, machines=typed.machines, out=out)
            outcome = _in_cluster(kubeconfig, typed.advertise, first, fleet)
            _show(None, outcome, (), form, ("--kubeconfig", kubeconfig))
            return
        place = layout.Layout.at(directory)
        chosen = settings.load(place, flags, config_file)
        fleet = init_machines.typed(fleet_flags, machines=chosen.configuration.machines, out=out or place.machines)
        outcome, done = _in_directory(place, chosen, config_file, _Start(first, authority, fleet))
        _show(place, outcome, done, form, ("--dir", str(place.root)))


def _own_authority(certificate: str | None, key: str | None, kubeconfig: str | None) -> tuple[bytes, bytes] | None:
    """The CA that was named, and its key; None for a new one."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        there, missing = ("--ca-cert", "--ca-key") if key is None else ("--ca-key", "--ca-cert")
        raise output.Usage(f"{there} is given without {missing}", hint="a certificate and its key go together")
    if kubeconfig is not None:
        raise output.Usage(
            "--ca-cert and --kubeconfig do not go together", hint="a cluster that is there has its CA already"
        )
    with files.otherwise("name another file with --ca-cert or --ca-key"):
        return (
            files.read_given(pathlib.Path(certificate), limit=1 << 20),
            files.read_given(pathlib.Path(key), limit=1 << 20),
        )


def _wanted(servers: tuple[str, ...], ca: bytes | None, first: _First) -> introduction.Wanted:
    import secrets

    from handfast.bootstrap import tokens
    from handfast.client import introduction

    token = tokens.parse(first.token) if first.token else None
    if first.token is None:
        token = tokens.generate(secrets.token_bytes)
    return introduction.Wanted(
        servers=servers,
        ca=ca,
        token=token,
        named=first.token is not None,
        ttl=first.ttl,
        first_start_only=first.start_only,
    )


async def _apply(
    client: api.Client, wanted: introduction.Wanted, fleet: init_machines.Fleet | None, clock: clocks.Clock
) -> introduction.Outcome:
    """Make a cluster joinable, and ready for machines where that was asked for."""
    from handfast.client import introduction

    outcome = await introduction.ensure(client, wanted, clock.now())
    if fleet is not None:
        outcome.objects += await init_machines.install(client, fleet, wanted.servers[0], wanted.ca, clock)
    return outcome


def _in_cluster(
    kubeconfig: str, advertise: Sequence[addresses.Address], first: _First, fleet: init_machines.Fleet | None
) -> introduction.Outcome:
    import asyncio

    from handfast.runtime import clock as clocks

    clock = clocks.SystemClock()

    async def work() -> introduction.Outcome:
        async with connecting.connected(kubeconfig) as reached:
            used = reached.connection
            servers = tuple(address.url("https") for address in advertise) or (used.server,)
            wanted = _wanted(servers, used.ca_pem, first)
            end = clock.monotonic() + (_PATIENCE if first.start_only else 0.0)
            while True:
                try:
                    return await _apply(reached.client, wanted, fleet, clock)
                except errors.Unavailable:
                    if clock.monotonic() >= end:
                        raise
                    await clock.sleep(0.2)

    return asyncio.run(work())


def _in_directory(
    place: layout.Layout,
    chosen: config.Resolved,
    config_file: str | None,
    start: _Start,
) -> tuple[introduction.Outcome, list[tuple[str, str]]]:
    import asyncio

    from handfast.assembly import init
    from handfast.datadir import preparation
    from handfast.runtime import clock as clocks
    from handfast.telemetry import log

    configuration = chosen.configuration
    if configuration.listen.port == 0:
        raise output.Usage(
            f"--listen: {configuration.listen} has no port that could be told to others",
            hint="name the port that the server will listen on, as in --listen 127.0.0.1:6443",
        )
    log.configure(level="error")
    clock = clocks.SystemClock()

    async def work() -> introduction.Outcome:
        ca = files.read(place.ca_certificate, limit=1 << 20)
        async with init.served(place, configuration, clock) as client:
            servers = init.servers(configuration.listen, configuration.advertise)
            return await _apply(client, _wanted(servers, ca, start.token), start.fleet, clock)

    own = start.authority
    taken = None if own is None else preparation.OwnAuthority.of(*own, clock.now())
    with files.otherwise(layout.ELSEWHERE):
        files.create_directory(place.root)
        lock = files.lock_directory(place.root)
    try:
        done = [] if taken is None else preparation.adopt(place, taken, clock.now())
        done += [] if config_file is not None else _write_config(place, chosen)
        done += preparation.prepare(
            place,
            server=configuration.listen,
            advertise=configuration.advertise,
            store=configuration.store,
            settings=config.template(),
            machine_config=configuration.machine_config_listen if configuration.machines else None,
            now=clock.now(),
        )
        return asyncio.run(work()), done
    finally:
        lock.release()


def _write_config(place: layout.Layout, chosen: config.Resolved) -> list[tuple[str, str]]:
    """Keep what was said in flags for those who serve the directory later; a file that is there stays as it is."""
    typed = {row.key: chosen.values[row.key] for row in config.SETTINGS if chosen.origins[row.key] == row.flag}
    if not typed:
        return []
    if place.config.exists():
        output.note(f"{place.config} is left as it is: give {', '.join(sorted(typed))} to `handfast up` as well")
        return []
    with files.otherwise(layout.ELSEWHERE):
        files.write_atomically(place.config, config.template(typed).encode(), mode=0o600)
    return [(place.config.name, "created")]


def facts(outcome: introduction.Outcome) -> dict[str, Any]:
    """What came of it, for machines; the token is in it."""
    from handfast.api import objects

    document: dict[str, Any] = {
        "new": outcome.new,
        "servers": list(outcome.servers),
        "caCertHashes": list(outcome.pins),
        "objects": [{"object": title, "outcome": verb} for verb, title in outcome.objects],
    }
    if outcome.token is not None:
        document["token"] = outcome.token.text
        document["tokenID"] = outcome.token.id
        document["expires"] = None if outcome.expires is None else objects.timestamp(outcome.expires)
        document["joinCommand"] = outcome.join_command
    return document


def _show(
    place: layout.Layout | None,
    outcome: introduction.Outcome,
    done: Sequence[tuple[str, str]],
    form: str,
    reached_by: tuple[str, str],
) -> None:
    """`reached_by` is the flag by which other commands find the same cluster."""
    document = facts(outcome)
    if form != "text":
        where = {} if place is None else {"directory": str(place.root), "kubeconfig": str(place.admin_kubeconfig)}
        files_made = {} if place is None else {"files": [{"file": path, "outcome": verb} for path, verb in done]}
        output.result(output.document({**where, **files_made, **document}, form))
    else:
        _progress(place, outcome, done)
        output.result(_text(place, outcome, reached_by))
    _tell_of_another_cluster_info(place, outcome)
    if outcome.token is not None:
        output.warn(token_input.holder_warning(outcome.token.id, document["expires"] or ""))


def _tell_of_another_cluster_info(place: layout.Layout | None, outcome: introduction.Outcome) -> None:
    """Say that the published cluster-info is another one. A machine that joins follows it, or refuses it for its pin."""
    from handfast.bootstrap import first_objects
    from handfast.client import introduction

    if (introduction.DIFFERENT, first_objects.CLUSTER_INFO) not in outcome.objects:
        return
    there = f"the {first_objects.CLUSTER_INFO} that is there names other servers or another CA"
    if place is not None:
        output.note(f"{there}; `handfast up` brings it up to date")
    else:
        output.warn(
            f"{there}: machines that join are led there, or refuse it for its pin; if that is not meant, delete it and "
            "run this again: kubectl delete configmap cluster-info --namespace kube-public"
        )


def _text(place: layout.Layout | None, outcome: introduction.Outcome, reached_by: tuple[str, str]) -> str:
    parts = []
    if place is not None:
        # A cluster that was named by its kubeconfig is started by others.
        parts.append(f"To start it:\n\n  {invocation.program()} up --dir {output.quoted(str(place.root))}")
    if outcome.token is not None:
        parts.append(_joining(outcome))
    else:
        flag, value = reached_by
        command = f"{invocation.program()} token create --print-join-command {flag} {output.quoted(value)}"
        parts.append(f"No token was made. To make one: {command}")
    return "\n\n".join(parts)


def _joining(outcome: introduction.Outcome) -> str:
    alone = token_input.only_here(outcome.servers)
    if not alone:
        return f"To join a machine, there:\n\n  {outcome.join_command}"
    here = invocation.here(outcome.join_command)
    return f"To join this machine:\n\n  {here}\n\n{alone[:1].upper()}{alone[1:]}."


def _progress(place: layout.Layout | None, outcome: introduction.Outcome, done: Sequence[tuple[str, str]]) -> None:
    from handfast.client import introduction

    for path, verb in done:
        output.progress(f"{verb} {'' if place is None else place.root / path}")
    kept = 0
    for verb, title in outcome.objects:
        if verb == introduction.KEPT:
            kept += 1
        else:
            output.progress(f"{verb} {title}")
    if kept:
        output.progress(f"kept {kept} objects that were there already")
