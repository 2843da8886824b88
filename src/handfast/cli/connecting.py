# SPDX-License-Identifier: Apache-2.0
"""Which API a command talks to, and the client for it, closed again. What it says there is the command's own business.

1. `--kubeconfig` counts, else `admin.conf` of a `--dir` that was given, else `$KUBECONFIG`, else `admin.conf` of the data
   directory, else `/etc/kubernetes/admin.conf`, where kubeadm puts it. Where $KUBECONFIG names several files, they are
   read as one, as kubectl does.
2. A refusal for want of rights says how to choose another credential.
3. A kubeconfig that nobody named, found in `./handfast-data`, is believed as far as `init` could have written it: it and its
   directory are the caller's or root's and nobody else's to write, and it leads to no other files. Somebody else's directory, or
   one that came with a download, could send a file of the caller's to a server of its own choice.
4. A server that does not answer, or whose certificate is not signed by the kubeconfig's CA, is explained as `join`
   explains it: what the trouble is, and what to do.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from handfast import errors
from handfast.cli import directories
from handfast.datadir import layout

if TYPE_CHECKING:
    from handfast.client import api, connection, trouble

_F = TypeVar("_F", bound=Callable[..., Any])

_VARIABLE: Final = "KUBECONFIG"
SYSTEM: Final = pathlib.Path("/etc/kubernetes/admin.conf")
# What OpenSSL reads the system's roots from.
_ROOTS: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_MAX_BYTES: Final = 1 << 20
CHOOSE: Final = "choose another credential with --kubeconfig"


def options(function: _F) -> _F:
    """Adds --kubeconfig and --dir; the command gets both by these names, the latter as `directory`."""
    named = click.option(
        "--kubeconfig",
        type=click.Path(),
        default=None,
        help="How to reach the API.  [default: $KUBECONFIG, else admin.conf of --dir, else /etc/kubernetes/admin.conf]",
    )
    return named(directories.option(directories.DEFAULT)(function))


def chosen(ctx: click.Context, kubeconfig: str | None, directory: str) -> str:
    """The path of the kubeconfig that counts (1)."""
    if (path := named(ctx, kubeconfig, directory)) is not None:
        return path
    own = layout.Layout.at(directory).admin_kubeconfig
    if own.exists():
        _require_harmless(own)
        return str(own)
    if SYSTEM.exists():
        return str(SYSTEM)
    raise errors.Refused(
        f"no kubeconfig: ${_VARIABLE} is not set, and there is neither {own} nor {SYSTEM}",
        reason="NoKubeconfig",
        hint="name one with --kubeconfig, or the data directory of a control plane with --dir",
    )


def named(ctx: click.Context, kubeconfig: str | None, directory: str) -> str | None:
    """The path of the kubeconfig that somebody named; None: nobody did."""
    if kubeconfig is not None:
        return kubeconfig
    sources = click.core.ParameterSource
    source = ctx.get_parameter_source("directory")
    own = layout.Layout.at(directory).admin_kubeconfig
    if source is sources.COMMANDLINE:
        return str(own)
    if variable := os.environ.get(_VARIABLE, ""):
        return variable
    return str(own) if source is sources.ENVIRONMENT and own.exists() else None


def _require_harmless(path: pathlib.Path) -> None:
    """Return if a kubeconfig that nobody named is one that `init` could have written for this user (3)."""
    from handfast.bootstrap import kubeconfig
    from handfast.runtime import files

    for place in (path.parent, path):
        about = place.stat()
        if about.st_uid not in {os.geteuid(), 0} or about.st_mode & 0o022:
            raise _not_believed(path, f"others than you can change {place}")
    try:
        read = kubeconfig.parse(files.read(path, limit=_MAX_BYTES).decode("utf-8", "replace"))
    except errors.Refused:
        # What cannot be read leads nowhere: the command is refused when it uses it.
        return
    user = read.user
    elsewhere = [read.cluster.certificate_authority]
    if user is not None:
        elsewhere += [user.client_certificate, user.client_key, user.token_file]
    if any(elsewhere):
        raise _not_believed(path, "it leads to other files")


def _not_believed(path: pathlib.Path, why: str) -> errors.Refused:
    return errors.Refused(
        f"{path} is not used, since nobody named it and {why}",
        reason="KubeconfigNotNamed",
        hint="if it is the one you mean, name it with --kubeconfig",
    )


def chosen_file(ctx: click.Context, kubeconfig: str | None, directory: str) -> pathlib.Path:
    """The same, for a command that is about one file."""
    path = chosen(ctx, kubeconfig, directory)
    if kubeconfig is None and len(several(path)) > 1:
        raise errors.Refused(
            f"${_VARIABLE} names several files: {path}",
            reason="BadKubeconfig",
            hint="name one of them with --kubeconfig",
        )
    return pathlib.Path(path)


def several(kubeconfig: str) -> list[str]:
    """The files that $KUBECONFIG names; one that has the separator in its name is one file."""
    if pathlib.Path(kubeconfig).exists():
        return [kubeconfig]
    return [part for part in kubeconfig.split(os.pathsep) if part]


@dataclass(frozen=True, slots=True)
class Reached:
    """A client, and what it was made from."""

    client: api.Client
    connection: connection.Connection


@dataclass(frozen=True, slots=True)
class _Explain:
    """What is wrong with a server, and what to do (4)."""

    kubeconfig: str

    async def __call__(self, server: str, met: trouble.Troubled) -> errors.HandfastError:
        from handfast.bootstrap import diagnosis

        skew = None
        if met.trouble is diagnosis.Trouble.NOT_VALID_NOW:
            from handfast.client import discovery
            from handfast.runtime import clock

            skew = await discovery.Discovery(clock.SystemClock()).skew(server)
        error = diagnosis.explain(met.trouble, server, met.detail, skew, by=f"a CA of {self.kubeconfig}")
        error.hint = f"{error.hint}; server and CA are those of {self.kubeconfig}, and --kubeconfig names another"
        return error


@contextlib.contextmanager
def _no_system_roots() -> Iterator[None]:
    """Hides the system's roots while aiohttp is imported.

    It would read all of them (40 ms), for a context that no request here uses. `runtime.tls` makes the context of each connection, and reads the roots where they count.
    """
    before = {name: os.environ.get(name) for name in _ROOTS}
    os.environ |= dict.fromkeys(_ROOTS, os.devnull)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.asynccontextmanager
async def connected(kubeconfig: str) -> AsyncIterator[Reached]:
    """A client for as long as the block runs (2)."""
    from handfast.api import status

    with _no_system_roots():
        from handfast.client import api, connection, transport
    from handfast.runtime import clock, files
    from handfast.telemetry import log

    # What goes wrong becomes an error. The client's own warnings would say it twice.
    log.configure(level="error")
    with files.otherwise("name another file with --kubeconfig"):
        found_paths = several(kubeconfig)
        found = connection.load_merged(found_paths) if len(found_paths) > 1 else connection.load(kubeconfig)
    opened = transport.Transport(found, clock=clock.SystemClock(), explain=_Explain(kubeconfig))
    try:
        yield Reached(api.Client(opened), found)
    except status.StatusError as error:
        if error.reason in {"Forbidden", "Unauthorized"}:
            error.hint = CHOOSE
        raise
    finally:
        await opened.close()
