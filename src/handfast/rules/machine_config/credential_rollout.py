# SPDX-License-Identifier: Apache-2.0
"""The next step on the way to revoke a bootstrap credential once its replacement is everywhere.

It makes, marks and deletes nothing. What there is comes in as `Workers` or `Masters`, and one `Step` goes out: whoever takes it looks
again. Everything that has to be remembered is in the objects themselves, so a crash between two steps changes nothing. What the operator
asked for is a mark, an annotation of the credential's own object, and goes with it.

Workers, while `node-bootstrapper-token` is marked:

1. The account is there, and stays. Else: wait for the keeper.
2. The Secret `node-bootstrapper-token-next` is there, for this account; else it is made, empty. Somebody else's is never touched.
3. It has a token; else wait for whoever fills it in. That token was never revoked before: another server that signs with an RSA key could
   fill in the very token of an earlier roll-out. It is remembered on the account, as the keeper does it.
4. There are pools that are rendered, each of them with the next token, and every node with an agent has it. Nodes that cannot follow now are
   waited for, too: the old token still counts for them. Nodes without an agent are never waited for; `rollout_progress` names them.
5. The cut: open requests that are older than the next Secret came by the old token, and are denied. Then every Secret with a token of
   the account goes, except for the next one. The marked one goes last, since it carries the mark.

Workers, while it is not marked and a next one is there:

6. The keeper has made the Secret anew, and it is filled in. Else: wait.
7. Each pool is rendered with the new token, and every node with an agent has it. Then the next Secret goes.

Masters, while a ConfigMap of theirs is marked:

8. Everything that is to go is marked before any of it goes: after a crash the rest is known by its mark.
9. As 4, for the pools of masters, with the service-account kind.
10. The cut: the ConfigMaps go, open requests that came by the certificate are denied, and the Secret with the kubeconfig goes last.

| who | holding | tries | stopped by | shown in tests/unit/rules/machine_config/test_credential_rollout.py |
|---|---|---|---|---|
| a thief | a token of an earlier roll-out, on a server with an RSA key | have it count again as the next one | 3 | test_a_next_token_that_was_revoked_before_is_not_handed_out |
| … | a request filed with the old token, before the next was there | be approved after the cut | 5 | test_the_cut_denies_what_is_older_than_the_next_token |
| … | a token of the account in a Secret of another name | outlive the cut | 5 | test_the_cut_takes_every_token_but_the_next |
| who may make Secrets there | one named as the next, of another account | have machines get it | 2 | test_somebody_elses_secret_is_never_touched |
| who deletes all pools | … | have the credential cut while nobody has the next | 4 | test_without_pools_nothing_is_cut |

Not stopped: a node, taken over, that never follows keeps the old credential alive. It is named, and revoking at once waits for nobody.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from handfast.rules.machine_config import following, rollout_progress
from handfast.rules.machines import bootstrap_token, bootstrapper, revocation
from handfast.rules.tokens import service_accounts

# The phases, in order.
MAKING: Final = "making the replacement"
DISTRIBUTING: Final = "distributing the replacement"
RETURNING: Final = "distributing the new token"

WAITS_FOR_KEEPER: Final = "TokenNotKept"
NOT_FILLED: Final = bootstrap_token.NOT_FILLED
OTHERS_SECRET: Final = bootstrap_token.OTHERS_SECRET
ENDS: Final = bootstrap_token.SECRET_ENDS
RETURNED: Final = "RevokedTokenReturned"
NO_POOLS: Final = "NoPools"
NO_CREDENTIAL: Final = "NoReplacement"
NOT_RENDERED: Final = following.NOT_RENDERED
BEHIND: Final = "NodesBehind"
REASONS: Final = (
    WAITS_FOR_KEEPER,
    NOT_FILLED,
    OTHERS_SECRET,
    ENDS,
    RETURNED,
    NO_POOLS,
    NO_CREDENTIAL,
    NOT_RENDERED,
    BEHIND,
)
# How many names a sentence has.
_SHOWN: Final = 5

_NEXT: Final = f"{bootstrapper.NAMESPACE}/{bootstrapper.NEXT_TOKEN_SECRET}"
_SHARED: Final = f"{bootstrapper.NAMESPACE}/{bootstrapper.TOKEN_SECRET}"


class Object(msgspec.Struct, frozen=True, kw_only=True):
    """An object of a credential that is there: which one it is, and whether it is marked."""

    target: revocation.Target
    uid: str
    marked: bool = False
    deleting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """What there is of the workers' credential; None for what is not there. `tokens` are all Secrets with a token of the account."""

    account: bootstrap_token.Account | None = None
    shared: bootstrap_token.Secret | None = None
    marked: bool = False
    next: bootstrap_token.Secret | None = None
    next_created: datetime.datetime | None = None
    tokens: Sequence[Object] = ()
    pools: Sequence[rollout_progress.Progress] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Masters:
    """What there is of the masters' credential, in the order in which it goes."""

    objects: Sequence[Object] = ()
    pools: Sequence[rollout_progress.Progress] = ()


class Nothing(msgspec.Struct, frozen=True):
    """No credential is to be revoked after a roll-out."""


class Wait(msgspec.Struct, frozen=True):
    """Something else has to happen first. `loud` is what a person should know of."""

    phase: str
    reason: str
    sentence: str
    loud: bool = False


class MakeNext(msgspec.Struct, frozen=True):
    """Create the next Secret, empty, for the account with this UID."""

    account_uid: str


class Remember(msgspec.Struct, frozen=True):
    """Write these tokens down on the account, then look again."""

    tokens: Mapping[str, str]


class Mark(msgspec.Struct, frozen=True):
    """Mark these, too."""

    objects: tuple[Object, ...]


class Cut(msgspec.Struct, frozen=True):
    """Deny open requests that came by it, and delete these objects, in this order. `older_than`: deny only requests before that instant."""

    kind: str
    objects: tuple[Object, ...]
    older_than: datetime.datetime | None = None


class DropNext(msgspec.Struct, frozen=True):
    """Delete the next Secret, if it still has this UID: everybody has the new token, or its account is gone (`orphan`)."""

    uid: str
    orphan: bool = False


Step = Nothing | Wait | MakeNext | Remember | Mark | Cut | DropNext


def step(seen: Workers | Masters) -> Step:
    """The one next step."""
    if isinstance(seen, Masters):
        return _masters(seen)
    if seen.marked and seen.shared is not None:
        return _replace(seen)
    # 2. somebody else's is never touched
    return Nothing() if seen.next is None or not _is_ours(seen.next) else _return(seen)


def phase(decided: Step) -> str:
    """The phase that a step belongs to, in words for people; empty where nothing is under way."""
    match decided:
        case Nothing():
            return ""
        case Wait():
            return decided.phase
        case MakeNext() | Remember() | Mark():
            return MAKING
        case DropNext():
            return RETURNING
    return DISTRIBUTING


# --- workers


def _replace(seen: Workers) -> Step:
    # 1. the account is there, and stays
    if seen.account is None or seen.account.deleting:
        return Wait(MAKING, WAITS_FOR_KEEPER, f"{bootstrapper.USER} is not there: its keeper makes it")
    # 2. the next Secret is there, for this account
    if seen.next is None:
        return MakeNext(seen.account.uid)
    # 3. it has a token that was never revoked
    waiting = _of_next(seen.account, seen.next)
    if waiting is not None:
        return waiting
    # 4. every node with an agent has it
    waiting = _distribution(seen.pools, DISTRIBUTING)
    if waiting is not None:
        return waiting
    # 5. every token of the account but the next, the marked one last
    going = [each for each in seen.tokens if each.target[2] != bootstrapper.NEXT_TOKEN_SECRET and not each.deleting]
    ordered = sorted(going, key=lambda each: each.target[2] == bootstrapper.TOKEN_SECRET)
    if not ordered:
        return Wait(DISTRIBUTING, ENDS, f"{_SHARED} is being deleted, and a finalizer keeps it")
    return Cut(revocation.WORKER, tuple(ordered), seen.next_created)


def _is_ours(secret: bootstrap_token.Secret) -> bool:
    return secret.type == service_accounts.LEGACY_TYPE and secret.account == bootstrapper.ACCOUNT


def _of_next(account: bootstrap_token.Account, secret: bootstrap_token.Secret) -> Step | None:
    if not _is_ours(secret):
        sentence = f"{_NEXT} is no Secret with a token of {bootstrapper.ACCOUNT!r}: delete it, and it is made anew"
        return Wait(MAKING, OTHERS_SECRET, sentence, loud=True)
    if secret.deleting:
        return Wait(MAKING, ENDS, f"{_NEXT} is being deleted, and a finalizer keeps it")
    if secret.account_uid and secret.account_uid != account.uid:
        return DropNext(secret.uid, orphan=True)
    if not secret.digest:
        return _empty(MAKING, _NEXT, secret)
    where = account.tokens.get(secret.digest)
    if where is None:
        return Remember(bootstrap_token.remembered(account.tokens, secret))
    if where != secret.uid:
        sentence = (
            f"the token in {_NEXT} was revoked before: this cluster's service account tokens have nothing random in them. "
            "Revoke at once, without --after-rollout: then the account is made anew"
        )
        return Wait(MAKING, RETURNED, sentence, loud=True)
    return None


def _empty(at: str, where: str, secret: bootstrap_token.Secret) -> Wait:
    sentence = (
        f"{where} has no token yet: the controller serviceaccount-token-controller, or the cluster's "
        "kube-controller-manager, fills it in"
    )
    return Wait(at, NOT_FILLED, sentence, loud=secret.age >= bootstrap_token.FILLED_WITHIN)


def _return(seen: Workers) -> Step:
    # 6. made anew, and filled in
    if seen.shared is None or seen.shared.deleting:
        sentence = f"{_SHARED} is not there: node-bootstrapper-token-controller makes it anew"
        return Wait(RETURNING, WAITS_FOR_KEEPER, sentence)
    if not seen.shared.digest:
        return _empty(RETURNING, _SHARED, seen.shared)
    # 7. every node with an agent has it
    waiting = _distribution(seen.pools, RETURNING)
    if waiting is not None or seen.next is None or seen.next.deleting:
        return waiting or Wait(RETURNING, ENDS, f"{_NEXT} is being deleted, and a finalizer keeps it")
    return DropNext(seen.next.uid)


# --- masters


def _masters(seen: Masters) -> Step:
    trust = [each for each in seen.objects if each.target[0] == "ConfigMap"]
    # 8. what a crash has left
    if not any(each.marked for each in trust):
        left = tuple(each for each in seen.objects if each.marked and not each.deleting)
        return Cut(revocation.MASTER, left) if left and not trust else Nothing()
    unmarked = tuple(each for each in seen.objects if not each.marked)
    if unmarked:
        return Mark(unmarked)
    # 9. every master with an agent has the service-account kind
    waiting = _distribution(seen.pools, DISTRIBUTING)
    if waiting is not None:
        return waiting
    # 10. in the order in which it goes
    going = tuple(each for each in seen.objects if not each.deleting)
    if going:
        return Cut(revocation.MASTER, going)
    return Wait(
        DISTRIBUTING, ENDS, "what makes the masters' credential count is being deleted, and a finalizer keeps it"
    )


# --- both


def _distribution(all_pools: Sequence[rollout_progress.Progress], at: str) -> Wait | None:
    """What the roll-out waits for; None: every node with an agent has the credential (4)."""
    # A pool that nobody renders hands out neither the old nor the new one.
    pools = [pool for pool in all_pools if pool.rendering]
    if not pools:
        sentence = (
            "no MachineConfigPool is rendered that could hand out the replacement: revoke without --after-rollout"
        )
        return Wait(at, NO_POOLS, sentence, loud=True)
    missing = next((pool for pool in pools if pool.missing), None)
    if missing is not None:
        return Wait(at, NO_CREDENTIAL, missing.missing)
    late = [pool.pool for pool in pools if not pool.rendered]
    if late:
        sentence = f"not rendered with the replacement yet: {_names(late)}; machine-config-render-controller does that"
        return Wait(at, NOT_RENDERED, sentence)
    behind = [f"{node.node} ({node.reason})" for pool in pools for node in pool.expected]
    if behind:
        return Wait(at, BEHIND, f"{len(behind)} nodes do not have the replacement yet: {_names(behind)}")
    return None


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
