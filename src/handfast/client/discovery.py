# SPDX-License-Identifier: Apache-2.0
"""Finds a cluster: asks its endpoints without any credential, waits for those that are not up, and has the answers
checked by `bootstrap.discovery`.

It decides nothing about trust. It does not keep what it found: see `cluster_cache`. What it sees to:

1. A request over TLS that is not verified carries no credential, and one for cluster-info never does: there is no way to
   ask for one (`anonymous`).
2. Endpoints are raced: each one begins a head start after the one before it, or when that one has failed, so that the
   order given is the order of preference. The first good answer ends the race.
3. What may pass (`diagnosis.worth_waiting`) is asked again until the time is up; what cannot is not asked again. When
   no endpoint is left, or no time, the most telling error is raised.
4. Afterwards the servers that the cluster names are preferred, where one of them answers over verified TLS; else the
   endpoint that led here is kept. An endpoint that the cluster names itself is kept, too.
5. Many machines may do this at once behind one address. Who is told to come later (429) does so, not before `Retry-After`,
   and longer each time, and goes on where it was. The waits of no two machines are the same.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from handfast import errors
from handfast.bootstrap import cluster_info, diagnosis, endpoints, tokens
from handfast.bootstrap import discovery as discovery_rules
from handfast.client import anonymous
from handfast.runtime import backoff, tasks
from handfast.runtime import clock as clocks

T = TypeVar("T")

HEAD_START: Final = 0.25
RETRY: Final = backoff.Schedule(initial=2.0, cap=2.0, jitter=0.25)
# 5. How often a server that is busy is asked again before the search begins anew.
BUSY_TRIES: Final = 4
_BUSY: Final = backoff.Schedule(initial=1.0, cap=8.0, jitter=1.0)
# How often somebody is told that nothing has changed.
TELL: Final = 30.0


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster that was found: the server to use, and what a person may want to know about the search."""

    info: cluster_info.ClusterInfo
    server: str
    skew: datetime.timedelta | None = None
    notes: tuple[str, ...] = ()


class _Outcome(msgspec.Struct, Generic[T], frozen=True):
    target: str
    value: T | None = None
    error: errors.HandfastError | None = None


class _Waiting(msgspec.Struct):
    """Since when an endpoint gives the same reason, and when somebody was told last."""

    reason: str
    since: float
    reported: float


class Discovery:
    """One search, with its clock, its patience in seconds, and somebody who is told of its progress."""

    def __init__(
        self,
        clock: clocks.Clock,
        *,
        timeout: float = 300.0,
        report: Callable[[str], None] = lambda _: None,
        ask: anonymous.Ask = anonymous.ask,
    ) -> None:
        self._clock = clock
        self._timeout = timeout
        self._report = report
        self._ask = ask
        # Endpoints that are not asked about the token again: asking failed once, or what they said is in `_mismatched`.
        self._not_again: set[str] = set()
        # By endpoint: the error about a signature that does not match, with what the server answered to the token.
        self._mismatched: dict[str, errors.HandfastError] = {}
        # What is known of endpoints that are busy, in case the time runs out while one is waited for.
        self._busy: dict[str, errors.HandfastError] = {}

    async def by_token(self, typed: Sequence[endpoints.Endpoint], method: discovery_rules.ByToken) -> Cluster:
        """Signed cluster-info, fetched twice."""

        async def attempt(url: str) -> Cluster:
            return await self._proven_by_signature(url, method)

        return await self.until([endpoint.url for endpoint in typed], attempt)

    async def _proven_by_signature(self, url: str, method: discovery_rules.ByToken) -> Cluster:
        """Ask twice: over TLS that nobody verified, and over TLS that is verified with the CA that the token signed."""
        first, skew = await self._published(url, anonymous.UNVERIFIED)
        try:
            info = discovery_rules.check(first, method.token, method.pins)
        except errors.Refused as refused:
            if refused.reason == "UnknownTokenID" and method.pins:
                raise await self._why_unsigned(url, first, method, skew) from None
            if refused.reason == "SignatureMismatch" and method.pins:
                raise await self._why_mismatched(url, first, method, refused) from None
            raise diagnosis.with_clock(refused, skew) from None
        trust = anonymous.Trust(discovery_rules.anchors(info, method.pins))
        try:
            second, _ = await self._published(url, trust, skew)
            via: str | None = url
        except errors.Refused as refused:
            if refused.reason != "WrongServerName":
                raise
            # The name that was typed need not be one of the certificate's. Then a server of the signed list has to do.
            second, via = await self._published_elsewhere(info, trust, refused), None
        discovery_rules.require_same(first, second)
        return await self._with_working_server(info, via, skew, (info.ca,), proven=True)

    async def _published_elsewhere(
        self, info: cluster_info.ClusterInfo, trust: anonymous.Trust, refused: errors.Refused
    ) -> discovery_rules.Published:
        async def attempt(url: str) -> discovery_rules.Published:
            return (await self._published(url, trust))[0]

        won, _ = await self.race(info.servers, attempt)
        if won is None or won.value is None:
            raise refused
        return won.value

    async def _why_unsigned(
        self,
        url: str,
        first: discovery_rules.Published,
        method: discovery_rules.ByToken,
        skew: datetime.timedelta | None,
    ) -> errors.HandfastError:
        """Why a token signs nothing: asked only of a server under a pinned certificate, and of no other.

        The text is not verified. So it is read up to a limit only, and not again after one failure.
        """
        unknown = diagnosis.with_clock(diagnosis.unknown_token(method.token), skew)
        answer = await self._asked_pinned(url, first, method)
        if answer is None:
            return unknown
        return diagnosis.with_clock(diagnosis.asked_unsigned(method.token, answer.code, answer.challenge), skew)

    async def _why_mismatched(
        self, url: str, first: discovery_rules.Published, method: discovery_rules.ByToken, refused: errors.Refused
    ) -> errors.HandfastError:
        """Whether the secret half of the token is wrong, or the text: asked as above, and once. So the operator learns of it, too."""
        answer = await self._asked_pinned(url, first, method)
        if answer is not None:
            self._mismatched[url] = diagnosis.asked_mismatched(refused, method.token, answer.code)
            self._not_again.add(url)
        return self._mismatched.get(url, refused)

    async def _asked_pinned(
        self, url: str, first: discovery_rules.Published, method: discovery_rules.ByToken
    ) -> anonymous.Answer | None:
        """What a server under a pinned certificate says to the token; None: it is not one, does not answer, is too busy to look at it, or was asked before."""
        if url in self._not_again:
            return None
        try:
            info = cluster_info.read(first.kubeconfig, cluster_info.MAX_UNVERIFIED)
            trust = anonymous.Trust(discovery_rules.anchors(info, method.pins))
            answer = await self._ask(_version(url), trust, method.token)
        except (errors.Refused, anonymous.Troubled):
            self._not_again.add(url)
            return None
        return answer if answer.code in diagnosis.JUDGED else None

    async def fetch_document(self, url: str, ca: bytes | None) -> str:
        """The text at an https URL, with the roots of the system or with `ca`."""

        async def attempt(where: str) -> str:
            # Whatever follows the question mark may be a secret.
            shown = where.partition("?")[0]
            trust = anonymous.Trust(ca)
            try:
                answer = await self._ask(where, trust)
            except anonymous.Troubled as troubled:
                by = "a CA of --discovery-ca-file" if ca is not None else _judge(trust)
                raise diagnosis.explain(troubled.trouble, shown, troubled.detail, None, by=by) from None
            return diagnosis.document_text(answer.code, answer.body, shown)

        return await self.until([url], attempt)

    async def by_document(self, text: str, typed: Sequence[endpoints.Endpoint]) -> Cluster:
        """A ClusterInfo that is trusted for where it came from, brought up to date by the cluster itself."""
        known = cluster_info.read(text)

        async def attempt(url: str) -> Cluster:
            try:
                return await self.refreshed(known, url)
            except errors.HandfastError as error:
                # It was reached over verified TLS and has nothing to add: the document is enough.
                if error.reason not in {"AnonymousRefused", "NoClusterInfo"}:
                    raise
                return Cluster(
                    info=known, server=url, notes=(f"{error.message}; the discovery document is used as it is",)
                )

        return await self.until(merged(known.servers, [endpoint.url for endpoint in typed]), attempt)

    async def refreshed(self, known: cluster_info.ClusterInfo, url: str) -> Cluster:
        """What the cluster says of itself at `url`, over TLS that is verified with what is known."""
        published, skew = await self._published(url, anonymous.Trust(known.ca))
        fresh = discovery_rules.adopt(known, cluster_info.read(published.kubeconfig))
        roots = discovery_rules.common_roots(known, fresh)
        return await self._with_working_server(fresh, url, skew, roots, proven=fresh.ca == known.ca)

    async def _with_working_server(
        self,
        info: cluster_info.ClusterInfo,
        via: str | None,
        skew: datetime.timedelta | None,
        roots: Sequence[bytes | None],
        *,
        proven: bool,
    ) -> Cluster:
        """Choose the server to use (4): one that the cluster names, else the endpoint that led here.

        It must verify by each of `roots`.
        """
        same = (
            [] if via is None else [url for url in info.servers if endpoints.of_server(url) == endpoints.of_server(via)]
        )
        notes = diagnosis.clock_notes(skew)
        if proven and same:
            return Cluster(info=info, server=same[0], skew=skew, notes=notes)

        async def attempt(url: str) -> str:
            for ca in roots:
                await self._published(url, anonymous.Trust(ca))
            return url

        won, failed = await self.race(merged([*same, *info.servers], [via] if via else []), attempt)
        if won is None or won.value is None:
            raise _most_telling(failed)
        if won.value not in info.servers:
            named = ", ".join(info.servers)
            notes += (f"none of the servers that the cluster names answers here ({named}); {won.value} is used",)
        return Cluster(info=info, server=won.value, skew=skew, notes=notes)

    async def login(self, cluster: Cluster, token: tokens.Token, *, signs: bool) -> bool:
        """Does the cluster let the token in? False: it did not say. Asked over TLS that is verified with its CA."""

        async def attempt(url: str) -> bool:
            try:
                answer = await self._patiently(url, _version(url), anonymous.Trust(cluster.info.ca), token)
            except anonymous.Troubled as troubled:
                raise diagnosis.explain(troubled.trouble, url, troubled.detail, cluster.skew) from None
            if answer.code == 429:
                raise diagnosis.busy(url)
            refused = diagnosis.login(token, answer.code, answer.challenge, signs=signs)
            if refused is not None:
                raise diagnosis.with_clock(refused, cluster.skew)
            # Whoever is known may still be forbidden to read it, on a server with rules of its own.
            return answer.code in {200, 403}

        return await self.until([cluster.server], attempt)

    async def _published(
        self, url: str, trust: anonymous.Trust | anonymous.Unverified, skew: datetime.timedelta | None = None
    ) -> tuple[discovery_rules.Published, datetime.timedelta | None]:
        try:
            answer = await self._patiently(url, _request(url), trust)
        except anonymous.Troubled as troubled:
            if troubled.trouble is diagnosis.Trouble.NOT_VALID_NOW and skew is None:
                skew = await self.skew(url)
            raise diagnosis.explain(troubled.trouble, url, troubled.detail, skew, by=_judge(trust)) from None
        refused = diagnosis.answered(answer.code, answer.body, url)
        if refused is not None:
            raise refused
        return discovery_rules.read_config_map(answer.body, url), diagnosis.skew(answer.date, self._clock.now())

    async def _patiently(
        self, url: str, target: str, trust: anonymous.Trust | anonymous.Unverified, token: tokens.Token | None = None
    ) -> anonymous.Answer:
        """One answer, which is 429 only after several of those (5)."""
        waits = backoff.Backoff(_BUSY)
        for left in reversed(range(BUSY_TRIES)):
            answer = await self._ask(target, trust, token)
            if answer.code != 429 or not left:
                break
            self._busy[url] = diagnosis.busy(url)
            await self._clock.sleep(max(next(waits), float(answer.retry_after)))
        return answer

    async def skew(self, url: str) -> datetime.timedelta | None:
        """How far this machine's clock is ahead of a server's, which nobody vouches for: only to tell which may be wrong."""
        try:
            answer = await self._ask(_request(url), anonymous.UNVERIFIED)
        except anonymous.Troubled:
            return None
        return diagnosis.skew(answer.date, self._clock.now())

    async def until(self, targets: Sequence[str], attempt: Callable[[str], Awaitable[T]]) -> T:
        """The first good answer of any target (3)."""
        last: dict[str, errors.HandfastError] = {}
        won: list[T] = []

        async def search() -> None:
            left = list(targets)
            waiting: dict[str, _Waiting] = {}
            waits = backoff.Backoff(RETRY)
            while left:
                outcome, failed = await self.race(left, attempt)
                if outcome is not None and outcome.value is not None:
                    won.append(outcome.value)
                    return
                last.update(failed)
                left = [url for url in left if self._worth_waiting(waiting, url, failed[url])]
                if left:
                    await self._clock.sleep(next(waits))

        in_time = await tasks.within(search(), self._clock, self._timeout)
        if won:
            return won[0]
        raise _given_up(self._busy | last, targets, None if in_time else self._timeout)

    async def race(
        self, targets: Sequence[str], attempt: Callable[[str], Awaitable[T]]
    ) -> tuple[_Outcome[T] | None, dict[str, errors.HandfastError]]:
        """Who was first (2), and why the others were not; those that had not ended are in neither."""
        failed: dict[str, errors.HandfastError] = {}
        go = [asyncio.Event() for _ in targets]

        async def run(index: int) -> _Outcome[T]:
            await tasks.wait_for_event(go[index], self._clock, HEAD_START * index)
            outcome = await _attempted(targets[index], attempt)
            if outcome.error is not None and index + 1 < len(go):
                go[index + 1].set()
            return outcome

        async with tasks.Group("discovery") as group:
            started = [group.start(run(index), name=target) for index, target in enumerate(targets)]
            pending = set(started)
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in (task for task in started if task in done):
                    outcome = task.result()
                    if outcome.error is None:
                        return outcome, failed
                    failed[outcome.target] = outcome.error
        return None, failed

    def _worth_waiting(self, waiting: dict[str, _Waiting], url: str, error: errors.HandfastError) -> bool:
        now = self._clock.monotonic()
        seen = waiting.get(url)
        word = "still waiting"
        if seen is None or seen.reason != error.reason:
            seen = waiting[url] = _Waiting(error.reason, now, now - TELL)
            word = "waiting"
        worth = diagnosis.worth_waiting(error, now - seen.since)
        if worth and now - seen.reported >= TELL:
            seen.reported = now
            self._report(f"{word}: {error.message}")
        return worth


async def _attempted(target: str, attempt: Callable[[str], Awaitable[T]]) -> _Outcome[T]:
    try:
        return _Outcome(target, await attempt(target))
    except errors.Misuse:
        raise
    except errors.HandfastError as error:
        return _Outcome(target, error=error)
    except Exception as error:  # noqa: BLE001  whatever one server makes us stumble over must not end the others
        stumbled = errors.Refused(
            f"{target}: its answer cannot be understood ({type(error).__name__})", reason="BadAnswer"
        )
        return _Outcome(target, error=stumbled)


def _given_up(
    last: Mapping[str, errors.HandfastError], targets: Sequence[str], seconds: float | None
) -> errors.HandfastError:
    """The error of a search that found nothing; `seconds`: it ended because they were over."""
    if not last:
        return diagnosis.explain(diagnosis.Trouble.NO_ANSWER, ", ".join(targets), "", None)
    error = _most_telling({url: last[url] for url in targets if url in last})
    if seconds is not None:
        error.message = f"gave up after {seconds:g}s: {error.message}"
    others = [other.message for other in last.values() if other is not error]
    if others:
        error.message += f" (and {'; '.join(others)})"
    return error


def _most_telling(failed: Mapping[str, errors.HandfastError]) -> errors.HandfastError:
    """Whoever refuses has answered, and says more than silence does; of two alike, the one that is preferred."""
    every = list(failed.values())
    ranks: list[list[errors.HandfastError]] = [
        [error for error in every if isinstance(error, errors.Refused)],
        [error for error in every if error.reason in {"SignatureMissing", "NoClusterInfo", "ServerNotReady"}],
        every,
    ]
    first = next(rank for rank in ranks if rank)
    return first[0]


def merged(servers: Sequence[str], more: Sequence[str]) -> list[str]:
    """The servers, then those of `more`, each once, whatever its spelling."""
    by_endpoint: dict[endpoints.Endpoint, str] = {}
    for url in (*servers, *more):
        by_endpoint.setdefault(endpoints.of_server(url), url)
    return list(by_endpoint.values())


def _request(server: str) -> str:
    return server.rstrip("/") + discovery_rules.PATH


def _version(server: str) -> str:
    # What everybody may read who is let in, so that the question leaves no refusal in the server's log.
    return server.rstrip("/") + "/version"


def _judge(trust: anonymous.Trust | anonymous.Unverified) -> str:
    system = isinstance(trust, anonymous.Trust) and trust.ca is None
    return "a CA that this system trusts" if system else "the cluster's CA"
