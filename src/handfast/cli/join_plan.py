# SPDX-License-Identifier: Apache-2.0
"""From the flags of `handfast join` to its plan, and how this command line says what does not go together.

What must hold is the numbered list of `bootstrap.discovery`. Here are the flags' spellings, and the one credential that is not
typed: the token of a bootstrap kubeconfig.
"""

from __future__ import annotations

from typing import Final

import msgspec

from handfast import errors
from handfast.bootstrap import discovery as discovery_rules
from handfast.bootstrap import kubeconfig, tokens
from handfast.cli import join_flags, output
from handfast.runtime import files

_LEAVE_ONE: Final = "leave one of them out"
_SOURCES: Final = "name a file, an https URL, or - for stdin"
_FILE_IS_TRUSTED: Final = "leave it out: the CA in the file is trusted because the file is"


class _Words(msgspec.Struct, frozen=True):
    """A fault as this command says it; `{file}` is what was typed as --discovery-file."""

    message: str
    hint: str
    reason: str = output.Usage.reason


_WORDS: Final = {
    discovery_rules.Fault.LOGIN_AND_DOCUMENT: _Words(
        "--token and --discovery-file cannot both be set",
        "beside --discovery-file, the token to log in with is given as --tls-bootstrap-token",
        "TwoDiscoveryMethods",
    ),
    discovery_rules.Fault.TWO_METHODS: _Words(
        "--discovery-token and --discovery-file cannot both be set", _LEAVE_ONE, "TwoDiscoveryMethods"
    ),
    discovery_rules.Fault.NO_METHOD: _Words(
        "no discovery method was given",
        "give --token (or --discovery-token) with an endpoint, or --discovery-file with a file, an https URL or -",
        "NoDiscoveryMethod",
    ),
    discovery_rules.Fault.NO_ENDPOINT: _Words(
        "discovery with a token needs the address of an API server",
        "name it as the argument, as in: handfast join 192.0.2.1:6443 --token …",
        "NoEndpoint",
    ),
    discovery_rules.Fault.NO_PIN: _Words(
        "discovery with a token and without a pin of the CA is not safe: whoever else has the token could answer in the "
        "cluster's place",
        "add the --discovery-token-ca-cert-hash that `handfast token create --print-join-command` prints, or "
        "--discovery-token-unsafe-skip-ca-verification",
        "NoPin",
    ),
    discovery_rules.Fault.PIN_BESIDE_DOCUMENT: _Words(
        "--discovery-token-ca-cert-hash is for discovery with a token, not for --discovery-file",
        _FILE_IS_TRUSTED,
        "UnusedFlag",
    ),
    discovery_rules.Fault.UNSAFE_BESIDE_DOCUMENT: _Words(
        "--discovery-token-unsafe-skip-ca-verification is for discovery with a token, not for --discovery-file",
        _FILE_IS_TRUSTED,
        "UnusedFlag",
    ),
    discovery_rules.Fault.NO_SOURCE: _Words("--discovery-file is empty", _SOURCES),
    discovery_rules.Fault.OTHER_SCHEME: _Words(
        "--discovery-file: {file!r}: if a URL is used, the scheme must be https", _SOURCES
    ),
    discovery_rules.Fault.NO_URL: _Words(
        "--discovery-file: this is not a URL such as https://example.com/cluster.yaml, without credentials in it",
        _SOURCES,
    ),
    discovery_rules.Fault.CA_WITHOUT_URL: _Words(
        "--discovery-ca-file is for a --discovery-file that is an https URL",
        "leave it out; the CA of the cluster is pinned with --discovery-token-ca-cert-hash",
        "UnusedFlag",
    ),
    discovery_rules.Fault.NO_LOGIN: _Words(
        "no token was given to log in with after discovery",
        "give it with --tls-bootstrap-token, or have a bootstrap kubeconfig with a token at --bootstrap-kubeconfig: a "
        "discovery file holds no credentials",
        "NoBootstrapToken",
    ),
}


def choose(flags: join_flags.Flags) -> discovery_rules.Plan:
    """What this join is going to do; flags that do not go together are a wrong usage."""
    offer = discovery_rules.Offer(
        endpoints=flags.endpoints,
        token=flags.token,
        discovery_token=flags.discovery_token,
        tls_bootstrap_token=_login_token(flags),
        discovery_file=flags.discovery_file,
        pins=flags.pins,
        unsafe_skip_ca_verification=flags.unsafe_skip_ca_verification,
        ca_file=flags.discovery_ca_file,
    )
    try:
        plan = discovery_rules.choose(offer)
    except discovery_rules.Unfit as unfit:
        raise _usage(_WORDS[unfit.fault], flags) from None
    except errors.Refused as refused:
        # A token, an endpoint or a pin that cannot be read.
        raise output.Usage(refused.message, reason=refused.reason, hint=refused.hint) from None
    if flags.unsafe_skip_ca_verification and not flags.pins:
        output.note("the CA is not pinned: whoever has the token can pose as the cluster")
    return plan


def _usage(words: _Words, flags: join_flags.Flags) -> output.Usage:
    return output.Usage(words.message.format(file=flags.discovery_file), reason=words.reason, hint=words.hint)


def _login_token(flags: join_flags.Flags) -> str | None:
    """The token that was typed. With a discovery file and no token typed: the token in the bootstrap kubeconfig."""
    if flags.discovery_file is None or flags.tls_bootstrap_token or flags.token:
        return flags.tls_bootstrap_token
    path = flags.bootstrap_file
    try:
        text = files.read(path, limit=kubeconfig.MAX_BYTES).decode("utf-8", "replace")
    except errors.Refused as refused:
        if refused.reason in {"FileNotFound", "NotADirectory"}:
            return flags.tls_bootstrap_token
        raise
    user = kubeconfig.parse(text).user
    if user is None or not tokens.is_well_formed(user.token):
        raise errors.Refused(
            f"the bootstrap kubeconfig {path} has no bootstrap token to log in with",
            reason="NoBootstrapToken",
            hint="give one with --tls-bootstrap-token; with a certificate or another token, start the kubelet with that file",
        )
    output.note(f"logging in with the token of {path}")
    return user.token
