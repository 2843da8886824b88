# SPDX-License-Identifier: Apache-2.0
"""What a joining machine reads before it trusts anybody: the ConfigMap cluster-info, its kubeconfig and its signature (first byte: which).

1. It is refused, or to be tried later; never believed: nobody here has the token.
2. A kubeconfig that is read as cluster information is written out, and read again as the same.
"""

from __future__ import annotations

from handfast import errors
from handfast.bootstrap import cluster_info, discovery, jws, kubeconfig, tokens
from tests.fuzz import promises

_TOKEN = tokens.Token("abcdef", "0123456789abcdef")


class Believed(Exception):
    """What nobody signed was believed."""


def _read(data: bytes) -> None:
    text = data[1:].decode("utf-8", "replace")
    if data[:1] == b"j":
        jws.verify(text, b"another content", _TOKEN)
        raise Believed
    if data[:1] == b"t":
        info = cluster_info.read(text)
        promises.require(
            cluster_info.read(cluster_info.build(info)) == info, "cluster-info is not read again as it was"
        )
        return
    if data[:1] == b"k":
        config = kubeconfig.parse(text)
        promises.require(
            kubeconfig.parse(kubeconfig.render(config)) == config, "a kubeconfig is not read again as it was"
        )
        return
    published = discovery.read_config_map(data[1:], "server.example.com")
    discovery.check(published, _TOKEN, ())
    raise Believed


run = promises.refusing(_read, errors.Refused, errors.Unavailable)
