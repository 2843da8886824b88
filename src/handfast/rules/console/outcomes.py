# SPDX-License-Identifier: Apache-2.0
"""What is said of an action that the API server did not take, or whose answer was lost: what stands now, and what to do next. It does nothing.

1. "Not done" is said only where the server has said no. Where no answer came, or one of a server that stumbled, it may have been done: that is said, too.
2. Whoever may not do it is told which right would let them, as commands for who may grant it.
3. A server that has too much to do has not begun: it is asked again, not before it said so.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Final

from handfast import errors
from handfast.api import status

_BUSY: Final = 429
_STUMBLED: Final = 500
_LOOK: Final = "What stands here now is what the server says now: look at it before you send it again"


@dataclass(frozen=True, slots=True)
class Right:
    """What somebody needs for an action: verbs on a resource, for one name of it or for all, in a namespace or in the cluster."""

    verbs: str
    resource: str
    name: str = ""
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """A sentence or two, and commands where a right is missing. `unknown`: it may have been done."""

    sentence: str
    commands: tuple[str, ...] = ()
    unknown: bool = False


def failure(
    error: errors.HandfastError, doing: str, rights: tuple[Right, ...], user: str, *, begun: bool = True
) -> Failure:
    """What to say; `doing` is the action in words, as in "approve the request csr-1". Not `begun`: nothing was sent but questions."""
    code = error.code if isinstance(error, status.StatusError) else 0
    # 3. not begun
    if code == _BUSY:
        wait = f"{error.retry_after} s" if isinstance(error, status.StatusError) and error.retry_after else "a while"
        return Failure(
            f"Not done: the API server has too much to do. Wait {wait}, and send it again. It says: {error.message}."
        )
    # 1. it may have been done
    if code >= _STUMBLED or (not code and isinstance(error, errors.Unavailable) and error.reason != "Conflict"):
        if not begun:
            return Failure(f"Not done: the API server gave no answer: {error.message}. Send it again once it answers.")
        return Failure(f"It is not known whether it was done: {error.message}. {_LOOK}.", unknown=True)
    # 2. which right would let them
    if error.reason == "Forbidden":
        return Failure(f"Not done: you may not {doing}. The API server says: {error.message}.", grant(rights, user))
    if error.reason == "NotFound":
        return Failure(
            f"Not done: what you wanted to {doing.split(' ', 1)[0]} is not there any more. Somebody deleted it, or its time was over."
        )
    if error.reason == "Conflict":
        return Failure(f"Not done: somebody else is writing to it at the same time. {_LOOK}.")
    hint = f" Next: {error.hint}." if error.hint else ""
    return Failure(f"Not done: {error.message} (reason {error.reason}).{hint}")


def grant(rights: tuple[Right, ...], user: str) -> tuple[str, ...]:
    """Commands of kubectl that let a user do it: a role for each right, and its binding."""
    who = f"--user={shlex.quote(user)}" if user else "--user=NAME"
    commands: list[str] = []
    for right in rights:
        plain = "".join(letter if letter.isalnum() else "-" for letter in f"{right.verbs}-{right.resource}")
        name = f"handfast-console:{plain}"
        rule = f"--verb={right.verbs} --resource={right.resource}"
        rule += f" --resource-name={shlex.quote(right.name)}" if right.name else ""
        kind, where = (
            ("role", f" --namespace={shlex.quote(right.namespace)}") if right.namespace else ("clusterrole", "")
        )
        commands.append(f"kubectl create {kind} {name}{where} {rule}")
        commands.append(f"kubectl create {kind}binding {name}{where} --{kind}={name} {who}")
    return tuple(commands)
