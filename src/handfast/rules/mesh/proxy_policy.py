# SPDX-License-Identifier: Apache-2.0
"""What the variables of a proxy's container say of policy: who may call before it is known, and which Pod it is about. It asks nobody.

| what | variables |
|---|---|
| who may call before the policy of a port is known | `LINKERD2_PROXY_INBOUND_DEFAULT_POLICY` |
| the Pod, as the policy service is asked | `LINKERD2_PROXY_POLICY_WORKLOAD`; else made of the next two |
| the Pod, as reports name it | `K8S_NS` and `K8S_POD`; else that of the line before |
| ports that the policy service is asked for | `LINKERD2_PROXY_INBOUND_PORTS` |

1. The default is `deny`, `all-authenticated` or `all-unauthenticated` [BadDefaultPolicy]. Linkerd's others go by networks, which the own proxy does
   not know; what is not known is refused, and not guessed. Where it is not set, everybody may call: so is a proxy without policy.
2. A Pod has a name and a namespace [InvalidWorkload]. Without any there is nothing to ask for, and the default holds for ever.
3. Ports are numbers [BadInboundPorts].
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import msgspec

from handfast.rules.mesh import proxy_environment, settings, sidecar, workload_tokens

DEFAULT: Final = f"{sidecar.PREFIX}INBOUND_DEFAULT_POLICY"
WORKLOAD: Final = f"{sidecar.PREFIX}POLICY_WORKLOAD"
PORTS: Final = f"{sidecar.PREFIX}INBOUND_PORTS"
_NAMESPACE: Final = "K8S_NS"
_POD: Final = "K8S_POD"
_DEFAULTS: Final = (settings.NOBODY, settings.EVERY_WORKLOAD, settings.EVERYBODY)
_MOST_PORT: Final = 65535


class ProxyPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What holds before a policy is known, and of which Pod to ask; `workload` is empty where nobody knows, `pod` then is, too."""

    default: str = settings.EVERYBODY
    workload: str = ""
    pod: tuple[str, str] = ("", "")
    ports: tuple[int, ...] = ()


def read(variables: Mapping[str, str]) -> ProxyPolicy:
    """What the variables say."""
    default = variables.get(DEFAULT, settings.EVERYBODY)
    # 1. one that is known
    if default not in _DEFAULTS:
        raise proxy_environment.Invalid(
            f"{DEFAULT}: {default[:80]!r} is not allowed",
            reason="BadDefaultPolicy",
            hint=f"allowed: {', '.join(_DEFAULTS)}",
        )
    workload = variables.get(WORKLOAD) or _composed(variables)
    pod = _pod(workload) if workload else ("", "")
    return ProxyPolicy(
        default=default,
        workload=workload,
        pod=(variables.get(_NAMESPACE) or pod[0], variables.get(_POD) or pod[1]) if workload else pod,
        ports=_ports(variables.get(PORTS, "")),
    )


def _composed(variables: Mapping[str, str]) -> str:
    namespace, pod = variables.get(_NAMESPACE, ""), variables.get(_POD, "")
    return json.dumps({"ns": namespace, "pod": pod}) if namespace and pod else ""


def _pod(workload: str) -> tuple[str, str]:
    # 2. a name and a namespace
    try:
        parsed = workload_tokens.parse(workload)
    except workload_tokens.InvalidWorkload as invalid:
        raise proxy_environment.Invalid(
            f"{WORKLOAD}: {invalid.message}", reason=invalid.reason, hint=invalid.hint
        ) from None
    return parsed.namespace, parsed.pod


def _ports(text: str) -> tuple[int, ...]:
    numbers = []
    for part in filter(None, map(str.strip, text.split(","))):
        # 3. a number
        if not part.isdecimal() or not part.isascii() or not 1 <= int(part) <= _MOST_PORT:
            raise proxy_environment.Invalid(
                f"{PORTS}: {part[:80]!r} is not allowed", reason="BadInboundPorts", hint="allowed: 1 to 65535"
            )
        numbers.append(int(part))
    return tuple(sorted(set(numbers)))
