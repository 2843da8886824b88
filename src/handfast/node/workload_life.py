# SPDX-License-Identifier: Apache-2.0
"""The life of one workload: proxy, application, token and status, from the first start to the last end.

It makes no Pod and no directory, and chooses no address: `workload` does.

1. The proxy's environment is that of the injected Pod, with its fields resolved, and with paths of a directory in memory. Nothing else is in it.
2. Before the proxy starts there is a token, bound to the Pod (`workload_token`).
3. The proxy is the first to start. The application waits for it as long as the Pod's start-up probe says [ProxyNotReady]. Where the identity service
   refuses it a certificate twice, nothing is waited for [CertificateRefused]: once may be an API server that has not heard of the Pod.
4. A proxy that ends before it was ever ready ends everything [ProxyFailed]. Later it is started again, after a delay that grows.
5. Ready is what the proxy says of itself, and an application that accepts connections at its ports. A proxy that was ready has to say three times that
   it is not, as to a kubelet: at every renewal there is a moment in which Envoy has not acknowledged. Every change is reported. An API server
   that is away is told later; the workload goes on.
6. When the Pod is deleted, the application is asked to end, and is killed after the Pod's grace period.
7. When the application ends, that is reported, and everything else ends. The exit code is the application's.
8. Loopback is every user's. Who answers in the proxy's place is not believed unless it is this user's process. Who listens at a port of the application
   before it starts ends everything [AddressInUse]. So does another user where the application calls others [ProxyPortTaken]: what it sends there is
   plaintext. That is looked at once a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import structlog

from handfast import errors
from handfast.api import jsonpath, objects
from handfast.node import workload_directory, workload_places, workload_pods, workload_probes, workload_token
from handfast.rules.mesh import certify, pod_environment, workload_pod, workload_status
from handfast.runtime import addresses, backoff, children, listeners, tasks, tethers
from handfast.runtime import clock as clocks

# Between two looks at what is not well, and at what is.
_PERIOD: Final = 1.0
_STEADY: Final = 5.0
# How many looks a proxy that was ready may fail before that counts.
_MISSES: Final = 2
# Between two looks while the application waits for its proxy.
_EAGER: Final = 0.1
# Between two looks at whether the Pod is still there.
_LOOK: Final = 5.0
_PROXY_GRACE: Final = 4.0
_GRACE: Final = 30
_FAREWELL: Final = 3.0
_LONG: Final = 60.0
_RESTART: Final = backoff.Schedule(initial=0.5, cap=30.0)
_EXIT_UNAVAILABLE: Final = 3
# Of the environment of whoever starts it, what the proxy needs to run at all.
_PASSED: Final = ("PATH", "LANG", "LC_ALL")
_ENDING: Final = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
_STDERR: Final = 2
_log = structlog.get_logger("handfast.workload")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What is run, and as which Pod: with an account it is made, else it is there. `on_running` is told what a person wants to know."""

    program: str
    words: Sequence[str]
    namespace: str
    name: str = ""
    account: str = ""
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    ports: tuple[workload_pod.Port, ...] = ()
    pod_ip: str = ""
    log_level: str = "warning"
    # Where programs of the workload ask for their SPIFFE identity; empty: nowhere.
    spiffe_socket: str = ""
    on_running: Callable[[str], None] = lambda _text: None


class Life:
    """One workload, while it runs."""

    def __init__(
        self,
        options: Options,
        pods: workload_pods.Pods,
        pod: objects.Document,
        ports: tuple[workload_pod.Port, ...],
        places: workload_places.Places,
        directory: workload_directory.Directory,
        clock: clocks.Clock,
    ) -> None:
        self._options = options
        self._pods = pods
        self._pod = pod
        self._ports = ports
        self._places = places
        self._directory = directory
        self._clock = clock
        now = clock.now()
        self._facts = workload_status.Facts(
            ip=places.ip, host_ip=places.host_ip, started=now, ready_changed=now, why_not="it starts"
        )
        self._application: subprocess.Popen[bytes] | None = None
        self._was_ready = False
        self._misses = 0
        self._ending = False
        self._looking = asyncio.Event()
        self._error: errors.HandfastError | None = None

    def signal(self, number: int) -> bool:
        """Pass a signal on to the application; False: it has not started, or has ended."""
        if self._application is None or self._application.poll() is not None:
            return False
        self._application.send_signal(number)
        if number in _ENDING:
            # 5. it is to be called no more
            self._ending = True
            self._looking.set()
        return True

    async def run(self) -> int:
        """Until the application has ended; its exit code."""
        place = pod_environment.Place(pod_ips=(self._places.ip,), host_ip=self._places.host_ip)
        resolved = pod_environment.resolve(self._pod, workload_pod.require_injected(self._pod), place)
        own = pod_environment.resolve(self._pod, workload_pod.application(self._pod), place)
        projected = workload_pod.projected(self._pod, resolved)
        variables = workload_pod.proxy_variables(
            resolved, store=str(self._directory.store), token_file=str(self._directory.token)
        )
        async with tasks.Group("workload") as group:
            if projected is not None:
                # 2. before the proxy starts
                file = workload_token.TokenFile(self._pods, self._pod, projected, self._directory.token, self._clock)
                group.start(file.keep(await file.write()), name="token")
            group.start(self._report(), name="report")
            group.start(self._keep_proxy(variables, group), name="proxy")
            group.start(self._live(own, group), name="application")
            await group.wait()
        if self._error is not None:
            raise self._error
        return self._facts.code or 0

    def _end(self, group: tasks.Group, error: errors.HandfastError | None = None) -> None:
        self._error = self._error or error
        group.end()

    # --- the proxy

    async def _keep_proxy(self, variables: Mapping[str, str], group: tasks.Group) -> None:
        delays = backoff.Backoff(_RESTART)
        while True:
            begun = self._clock.monotonic()
            code = await self._run_proxy(variables)
            if not self._was_ready:
                # 4. it cannot start
                family = errors.Unavailable if code == _EXIT_UNAVAILABLE else errors.Refused
                message = (
                    f"the proxy of {workload_pod.title(self._pod)} ended with exit code {code} before it was ready"
                )
                self._end(group, family(message, reason="ProxyFailed", hint=children.MESSAGES_ABOVE))
                return
            _log.error("the proxy ended and is started again", pod=workload_pod.title(self._pod), code=code)
            self._facts = dataclasses.replace(self._facts, proxy_restarts=self._facts.proxy_restarts + 1)
            if self._clock.monotonic() - begun > _LONG:
                delays.reset()
            await self._clock.sleep(next(delays))

    async def _run_proxy(self, variables: Mapping[str, str]) -> int:
        places, options = self._places, self._options
        words = ["mesh", "proxy", "run", "--pod-ip", places.ip, "--outbound", str(places.outbound)]
        words += ["--admin-listen", str(places.admin), "--log-level", options.log_level]
        words += ["--spiffe-socket", options.spiffe_socket] if options.spiffe_socket else []
        words += [word for port in self._ports for word in ("--inbound", str(port))]
        start = children.command("mesh", "proxy", "init", "--require-memory", "--", *children.command(*words))
        passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
        # 1. the Pod's environment
        own = {**passed, **variables, "TMPDIR": str(self._directory.temporary)}
        with _starting("the proxy"):
            process = subprocess.Popen(  # noqa: S603, ASYNC220  words of our own; it returns once exec is done
                tethers.command(start, own),
                stdin=subprocess.DEVNULL,
                # What the application prints is the command's output; the proxy has none of its own.
                stdout=_STDERR,
                start_new_session=True,
                env=own,
            )
        try:
            return await tethers.ended(process)
        finally:
            await tethers.end(process, _PROXY_GRACE)

    # --- the application

    async def _live(self, own: Mapping[str, str], group: tasks.Group) -> None:
        try:
            await self._wait_for_proxy()
            self._require_free()
        except (errors.Refused, errors.Unavailable) as error:
            self._end(group, error)
            return
        process = self._start(own)
        try:
            group.start(self._watch(process), name="watch")
            group.start(self._guard(process, group), name="guard")
            code = await tethers.ended(process)
        finally:
            await tethers.end(process, _PROXY_GRACE)
        self._facts = dataclasses.replace(
            self._facts, code=code if code >= 0 else 128 - code, why_not="the application has ended"
        )
        # 7. told, and then everything ends
        async with tasks.deadline(_FAREWELL):
            with contextlib.suppress(errors.Refused, errors.Unavailable):
                await self._pods.report(self._pod, self._facts)
        self._end(group)

    def _start(self, own: Mapping[str, str]) -> subprocess.Popen[bytes]:
        sys.stdout.flush()
        variables = workload_pod.application_variables(
            os.environ,
            own,
            self._pod,
            ip=self._places.ip,
            proxy=f"http://{self._places.outbound}",
            admin=f"http://{self._places.admin}",
            spiffe=self._options.spiffe_socket,
        )
        with _starting("the command"):
            process = subprocess.Popen(  # noqa: S603  the command that the user typed
                tethers.command(self._options.words, variables, program=self._options.program), env=variables
            )
        self._application = process
        self._facts = dataclasses.replace(self._facts, is_started=True)
        self._looking.set()
        self._options.on_running(self._described())
        return process

    async def _wait_for_proxy(self) -> None:
        # 3. as long as the start-up probe says
        patience = workload_pod.patience(self._pod)
        begun = self._clock.monotonic()
        refusals: set[str] = set()
        while (why := await workload_probes.why_not_ready(self._places.admin)) is not None:
            if patience is None:
                return
            if self._clock.monotonic() - begun > patience:
                raise errors.Unavailable(
                    f"the proxy of {workload_pod.title(self._pod)} is not ready after {patience:g} s: {why}",
                    reason="ProxyNotReady",
                    hint="`handfast mesh check` says whether the mesh is in order",
                )
            await self._require_no_refusal(refusals)
            await self._clock.sleep(_EAGER)
        self._was_ready = True

    async def _require_no_refusal(self, refusals: set[str]) -> None:
        """Return unless the identity service has refused twice; `refusals` is when it has so far."""
        refused = await workload_probes.refusal(self._places.admin)
        if refused is None:
            return
        refusals.add(refused[0])
        # 3. twice
        if len(refusals) > 1:
            message = f"{workload_pod.title(self._pod)} gets no certificate: {refused[1]}"
            hint = "see who is revoked: kubectl get revocations; and whether the mesh is in order: handfast mesh check"
            raise errors.Refused(message, reason=certify.REFUSED, hint=hint)

    def _require_free(self) -> None:
        # 8. nobody listens where the application is going to
        for port in self._ports:
            address = addresses.Address(workload_places.LOCAL, port.application)
            if listeners.owner(address) is not None:
                raise errors.Refused(
                    f"{address} is taken: another process has begun to listen there",
                    reason="AddressInUse",
                    hint="choose another port with --inbound PORT:APPLICATION_PORT",
                )

    async def _guard(self, process: subprocess.Popen[bytes], group: tasks.Group) -> None:
        """End the application when somebody else gets what it sends to its proxy (8)."""
        while listeners.owner(self._places.outbound) in {None, os.geteuid()}:
            await self._clock.sleep(_PERIOD)
        process.kill()
        message = f"another user listens at {self._places.outbound}, where {workload_pod.title(self._pod)} calls others"
        hint = "its proxy had ended, or Envoy had; see who listens there before you start it again"
        self._end(group, errors.Refused(message, reason="ProxyPortTaken", hint=hint))

    def _described(self) -> str:
        return (
            f"{workload_pod.title(self._pod)} runs at {self._places.ip}; its proxy is http://{self._places.outbound}, "
            f"and says how it is at http://{self._places.admin}"
        )

    async def _watch(self, process: subprocess.Popen[bytes]) -> None:
        """End the application when the Pod is deleted (6)."""
        while True:
            await self._clock.sleep(_LOOK)
            try:
                await self._pods.refresh()
                if await self._pods.is_there(self._pod):
                    continue
            except (errors.Refused, errors.Unavailable):
                # 5. the API server is away, or refuses: the workload goes on
                continue
            _log.warning("the Pod was deleted: its workload ends", pod=workload_pod.title(self._pod))
            self._ending = True
            grace = jsonpath.number(self._pod, "spec", "terminationGracePeriodSeconds") or _GRACE
            await tethers.end(process, float(grace))
            return

    # --- the status

    async def _report(self) -> None:
        """Look, and report what has changed, for ever (5)."""
        written: workload_status.Facts | None = None
        failing = ""
        while True:
            self._looking.clear()
            await self._look()
            facts = self._facts
            if facts != written:
                try:
                    await self._pods.report(self._pod, facts)
                    written, failing = facts, ""
                except (errors.Refused, errors.Unavailable) as error:
                    if failing != error.reason:
                        _log.warning("the status was not written", reason=error.reason, error=error.message)
                    failing = error.reason
            steady = facts == written and facts.is_ready and not self._misses
            await tasks.wait_for_event(self._looking, self._clock, _STEADY if steady else _PERIOD)

    async def _look(self) -> None:
        proxy = await workload_probes.why_not_ready(self._places.admin)
        why = proxy or await self._why_not_application()
        facts = self._facts
        if facts.code is not None:
            return
        # 5. three times
        hesitates = proxy not in {None, workload_probes.SILENT} and facts.is_ready and not self._ending
        self._misses = self._misses + 1 if hesitates else 0
        if 0 < self._misses <= _MISSES:
            return
        self._was_ready = self._was_ready or proxy is None
        changed = facts.ready_changed if (why is None) == facts.is_ready else self._clock.now()
        self._facts = dataclasses.replace(facts, proxy_ready=proxy is None, why_not=why, ready_changed=changed)

    async def _why_not_application(self) -> str | None:
        if self._application is None:
            return "the application has not started"
        for port in self._ports:
            if not await workload_probes.accepts(port.application):
                return f"the application does not accept connections at 127.0.0.1:{port.application}"
        return "it ends" if self._ending else None


@contextlib.contextmanager
def _starting(what: str) -> Iterator[None]:
    """A program that the kernel does not start is told by name."""
    try:
        yield
    except OSError as error:
        raise errors.Unavailable(
            f"cannot start {what}: {(error.strerror or 'failed').lower()}", reason="NotStarted"
        ) from error
