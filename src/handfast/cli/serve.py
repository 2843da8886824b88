# SPDX-License-Identifier: Apache-2.0
"""`handfast serve ROLE`: one role in the foreground, until a signal stops it. It does not restart anything.

A role that `handfast up` started has the hidden flags: its listening socket and its tie to the supervisor.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import Coroutine, Iterator
from typing import TYPE_CHECKING, Any

import click

from handfast import errors
from handfast.assembly import config, endpoints, layout
from handfast.cli import output, settings, supervised
from handfast.runtime import clock, files

if TYPE_CHECKING:
    from handfast.assembly import apiserver

_DIRECTORY = "/var/lib/handfast"


class _Roles(click.Group):
    """The roles; a list of them is refused for now, in its own words."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if "," in cmd_name:
            raise output.Usage(
                f'several roles in one process are not supported: "{cmd_name}"',
                hint="start one process per role, or run `handfast up`, which keeps them all running",
            )
        return super().get_command(ctx, cmd_name)


@click.group(name="serve", cls=_Roles, short_help="Run one role in the foreground.")
def command() -> None:
    """Run one role in the foreground, until SIGTERM or Ctrl-C stops it."""


async def _until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Run `work`; a signal cancels it, which is a good end. Only a second Ctrl-C also cuts the stopping short."""
    task = asyncio.current_task()
    if task is None:
        raise errors.Misuse("a role runs inside a task")
    seen: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        if not seen or number is signal.SIGINT:
            task.cancel()
        seen.append(number)

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    with contextlib.suppress(asyncio.CancelledError):
        await work


def _run(work: Coroutine[Any, Any, None], log_level: str) -> None:
    import uvloop

    from handfast.telemetry import log

    log.configure(level=log_level)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_until_stopped(work))


def _configuration(
    place: layout.Layout, flags: dict[str, Any], config_file: str | None, tie: int | None
) -> config.Configuration:
    return settings.load(place, flags, config_file).configuration if tie is None else settings.from_flags(flags)


@contextlib.contextmanager
def _owned(place: layout.Layout, tie: int | None) -> Iterator[layout.Layout]:
    """The directory as this process's own; a supervised child shares its supervisor's ownership."""
    if tie is not None:
        yield place
        return
    with files.otherwise(layout.ELSEWHERE):
        files.create_directory(place.root)
        lock = files.lock_directory(place.root)
    try:
        yield place
    finally:
        lock.release()


@command.command(name="apiserver", short_help="The Kubernetes API over HTTPS.")
@settings.directory_option(_DIRECTORY)
@settings.config_option
@settings.setting_options("listen", "advertise", "store", "logLevel", *settings.APISERVER)
@click.option("--listen-fd", type=int, hidden=True, help="A socket that listens already.")
@supervised.option
def apiserver_command(
    directory: str, config_file: str | None, listen_fd: int | None, tie: int | None, **flags: Any
) -> None:
    """Serve the Kubernetes API from a data directory, which is made if it is not there."""
    with (
        supervised.tied(tie),
        _owned(layout.Layout.at(directory), tie) as place,
        contextlib.ExitStack() as stack,
    ):
        chosen = _configuration(place, flags, config_file, tie)
        if listen_fd is None:
            sock = stack.enter_context(endpoints.listen(chosen.listen, "--listen"))
            _prepare(place, endpoints.bound(sock, chosen.listen), chosen)
            # From here on it is the server's to close.
            listen_fd = sock.detach()
        from handfast.apiserver import limits
        from handfast.assembly import apiserver, guard

        options = apiserver.ApiServerOptions(
            directory=str(place.root),
            listen=None,
            listen_fd=listen_fd,
            advertise=tuple(str(one) for one in chosen.advertise),
            store=str(place.store(chosen.store)),
            limits=limits.Limits(lifted=chosen.unsafe_lift_limits),
            guard=guard.GuardOptions(
                bootstrap_tokens=chosen.enable_bootstrap_token_auth,
                anonymous_from=chosen.anonymous_from,
                issuer=chosen.service_account_issuer,
                audiences=chosen.api_audiences,
                max_token_seconds=chosen.service_account_max_token_seconds,
            ),
            audit=_audit(place, chosen),
        )
        _run(apiserver.run(options), chosen.log_level)


@command.command(name="controllers", short_help="The controllers, against any Kubernetes API.")
@settings.directory_option(_DIRECTORY)
@settings.config_option
@click.option("--kubeconfig", type=click.Path(), help="How to reach the API.  [default: controllers.conf of --dir]")
@settings.setting_options("advertise", "adminListen", "controllers", "leaderElect", "logLevel")
@supervised.option
def controllers_command(
    directory: str, config_file: str | None, kubeconfig: str | None, tie: int | None, **flags: Any
) -> None:
    """Run controllers against the API that a kubeconfig names: this program's own, or any cluster's.

    Addresses given with --advertise are published in the ConfigMap kube-public/cluster-info.
    """
    with supervised.tied(tie):
        place = layout.Layout.at(directory)
        chosen = _configuration(place, flags, config_file, tie)
        from handfast.assembly import controllers

        work = controllers.run(
            kubeconfig_path=kubeconfig or str(place.controllers_kubeconfig),
            selection=chosen.controllers,
            admin_listen=(chosen.admin_listen.host, chosen.admin_listen.port),
            leader_elect=chosen.leader_elect,
            service_account_key=_signing_key(place),
            servers=[address.url("https") for address in chosen.advertise],
            root_ca_pem=files.read(place.ca_certificate, limit=1 << 20) if place.ca_certificate.exists() else None,
            clock=clock.SystemClock(),
        )
        _run(work, chosen.log_level)


def _audit(place: layout.Layout, chosen: config.Configuration) -> apiserver.AuditOptions | None:
    from handfast.assembly import apiserver

    path = chosen.audit_log_path
    if path in {"", "none"}:
        return None
    return apiserver.AuditOptions(
        path=path if path == "-" else str(place.root / path),
        max_mib=chosen.audit_log_max_mib,
        max_files=chosen.audit_log_max_files,
        max_days=chosen.audit_log_max_days,
    )


def _signing_key(place: layout.Layout) -> bytes | None:
    """The key of service account tokens; without it Secrets of that type are left alone, as on a cluster they must be."""
    path = place.service_account_key
    return files.read_private(path, limit=1 << 20) if path.exists() else None


def _prepare(place: layout.Layout, server: endpoints.Address, chosen: config.Configuration) -> list[tuple[str, str]]:
    from handfast.assembly import datadir

    return datadir.prepare(
        place, server=server, advertise=chosen.advertise, store=chosen.store, now=clock.SystemClock().now()
    )


@command.command(name="prepare", hidden=True)
@settings.directory_option(_DIRECTORY)
@settings.setting_options("listen", "advertise", "store")
@supervised.option
def prepare_command(directory: str, tie: int | None, **flags: Any) -> None:
    """Make the data directory of `handfast up` whole, and print what was done."""
    with supervised.tied(tie), _owned(layout.Layout.at(directory), tie) as place:
        chosen = settings.from_flags(flags)
        output.result(json.dumps(_prepare(place, chosen.listen, chosen)))
