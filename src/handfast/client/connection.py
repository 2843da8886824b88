# SPDX-License-Identifier: Apache-2.0
"""Where the API server is and who we are to it: from a kubeconfig and the files it names.

What a kubeconfig says that would be ignored here is refused instead. It opens no connection: see `transport`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from handfast import errors
from handfast.bootstrap import kubeconfig
from handfast.runtime import files

_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A server and credentials for it. Secrets stay out of its repr.

    `others` are further servers of the same cluster, under the same CA, for when the first does not answer.
    """

    server: str
    others: tuple[str, ...] = ()
    cluster_id: str = ""
    ca_pem: bytes | None = None
    cert_pem: bytes | None = field(default=None, repr=False)
    key_pem: bytes | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    tls_server_name: str | None = None


def load(path: str, context: str = "") -> Connection:
    """The connection that a kubeconfig file describes; `context` overrides its current one."""
    file = pathlib.Path(path)
    text = _text(file)
    with _naming(path):
        return resolve(kubeconfig.parse(text, context), file.parent)


def load_merged(paths: Sequence[str]) -> Connection:
    """The connection that several kubeconfig files describe together; those that are not there do not count."""
    documents = []
    for path in dict.fromkeys(paths):
        file = pathlib.Path(path)
        if path and file.exists():
            with _naming(path):
                here = file.parent.absolute()
                documents.append(kubeconfig.anchored(kubeconfig.load(_text(file)), functools.partial(_at, here)))
    if not documents:
        raise errors.Refused(f"there is none of these kubeconfig files: {', '.join(paths)}", reason="FileNotFound")
    with _naming(", ".join(paths)):
        return resolve(kubeconfig.resolve(kubeconfig.merge(documents)), pathlib.Path())


def _at(directory: pathlib.Path, path: str) -> str:
    return str(directory / path)


def _text(file: pathlib.Path) -> str:
    try:
        return files.read(file, limit=_MAX_BYTES).decode("utf-8")
    except UnicodeDecodeError:
        raise errors.Refused(f"kubeconfig: {file} is not UTF-8 text", reason="BadKubeconfig") from None


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    """What is wrong with a document is told with the name of its file."""
    try:
        yield
    except errors.Refused as refused:
        if refused.reason != "BadKubeconfig" or refused.message.startswith(f"kubeconfig: {path} "):
            raise
        raise errors.Refused(f"{path}: {refused.message}", reason=refused.reason, hint=refused.hint) from None


def resolve(config: kubeconfig.Kubeconfig, directory: pathlib.Path) -> Connection:
    """Read the files that the document names, relative to the directory it lies in."""
    cluster, user = config.cluster, config.user
    for name, value in (
        ("insecure-skip-tls-verify", cluster.insecure_skip_tls_verify),
        ("proxy-url", cluster.proxy_url),
    ):
        if value:
            raise errors.Refused(
                f"kubeconfig: cluster {cluster.name!r}: {name} is not supported",
                reason="BadKubeconfig",
                hint="name the server's CA in certificate-authority-data and reach the server directly",
            )
    connection = Connection(
        server=cluster.server,
        others=tuple(url for url in dict.fromkeys(cluster.beside.servers) if not _same(url, cluster.server)),
        cluster_id=cluster.beside.id,
        ca_pem=_pem(cluster.certificate_authority_data, cluster.certificate_authority, directory),
        tls_server_name=cluster.tls_server_name or None,
    )
    if user is None:
        return connection
    return dataclasses.replace(
        connection,
        cert_pem=_pem(user.client_certificate_data, user.client_certificate, directory),
        key_pem=_pem(user.client_key_data, user.client_key, directory),
        token=user.token or None,
        # A file of a token that changes is preferred, as client-go does.
        token_file=str(directory / user.token_file) if user.token_file else None,
    )


def _same(url: str, server: str) -> bool:
    return url.rstrip("/") == server.rstrip("/")


def _pem(data: bytes | None, path: str, directory: pathlib.Path) -> bytes | None:
    if data is not None or not path:
        return data
    return files.read(directory / path, limit=_MAX_BYTES)
