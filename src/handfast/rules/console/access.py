# SPDX-License-Identifier: Apache-2.0
"""The binding that would let somebody read a kind: commands to paste, for who may grant it. It grants nothing.

1. A role has the verbs of an informer and one kind, no more. Where one namespace is enough, it is a Role there.
2. Names that strangers could write are quoted for the shell.
"""

from __future__ import annotations

import shlex

from handfast.api import kinds

_VERBS = "get,list,watch"


def grant(kind: kinds.Kind, namespace: str, user: str) -> tuple[str, str]:
    """Two commands of kubectl: the role, and its binding to `user`."""
    resource = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
    name = f"handfast-console:{kind.plural}"
    who = f"--user={shlex.quote(user)}" if user else "--user=NAME"
    # 1. no wider than needed
    if namespace:
        where = f"--namespace={shlex.quote(namespace)}"
        return (
            f"kubectl create role {name} {where} --verb={_VERBS} --resource={resource}",
            f"kubectl create rolebinding {name} {where} --role={name} {who}",
        )
    return (
        f"kubectl create clusterrole {name} --verb={_VERBS} --resource={resource}",
        f"kubectl create clusterrolebinding {name} --clusterrole={name} {who}",
    )
