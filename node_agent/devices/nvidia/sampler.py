"""Looks at the GPUs again and again, in a thread of its own: the event loop never waits for a
driver, and a driver that hangs stops nobody.

Once a second at rest; ten times a second while memory is moved or waited for; at once when a
decision needs it. What a driver or a GPU cannot do is tried once, said in a sentence, and left
alone from then on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from ...policy.gpu_errors import blamed, needs_recovery, unwell
from ...policy.memory_accounting import ListedProcess, MemoryAccount, account
from ..base.call_tracker import CALLS
from ..base.model import DeviceFault
from ..base.process_attribution import ProcessAttribution
from .nvml import Nvml, NvmlFailed
from .nvml_types import GpuEvent, NvmlMemory

__all__ = ["GpuSample", "GpuSampler"]

log = logging.getLogger("gpushare.agent")
T = TypeVar("T")

STEADY_S: Final = 1.0
CLOSELY_S: Final = 0.1
LEAST_S: Final = 0.01
"""Between two looks, however much somebody hurries."""
SETTLED_MS: Final = 30_000
"""Memory that nobody is named for is somebody's when it has been there for so long; until then the
driver may be taking it back.
"""
HEALTH_MS: Final = 10_000
SILENT_MS: Final = 10_000
"""A driver that has not answered for so long has lost its GPUs for us."""
BUSY_MS: Final = 900
"""Utilisation is asked for once a second, also when memory is looked at more often."""


UNSEEN: Final = (
    "GPU %d: the driver lists process %d, which cannot be seen from here; what it holds counts as a stranger's. Where that goes on, the agent "
    "lives in a pid namespace of its own: give it the host's (hostPID: true, `docker run --pid=host`), else kernels are not recognised"
)
"""Said once per device: the same happens for a moment when a process ends between two questions."""


ESTIMATED: Final = (
    "GPU %d: the driver does not say how much each process holds (WSL, some virtual GPUs): what is used is divided evenly among them, so that "
    "shares are only kept roughly"
)


@dataclass(frozen=True, slots=True)
class GpuSample:
    """The GPUs as they were at `taken` (monotonic ms). `memory` lacks devices that did not answer."""

    taken: int = -1
    memory: Mapping[int, NvmlMemory] = field(default_factory=dict)
    account: MemoryAccount = field(default_factory=MemoryAccount)
    busy_ms: Mapping[str, int] = field(default_factory=dict)
    utilization: Mapping[int, float] = field(default_factory=dict)
    untimed: frozenset[int] = frozenset()
    """Devices that do not tell how busy a process keeps them."""


def monotonic_ms() -> int:
    """The agent's clock."""
    return time.monotonic_ns() // 1_000_000


class GpuSampler:
    """One node's eyes. `last` is replaced as a whole; `version` changes when something in it has."""

    def __init__(self, nvml: Nvml, owners: ProcessAttribution) -> None:
        self._nvml, self._owners = nvml, owners
        self._looking = threading.Lock()
        self._hurry = threading.Event()
        self._closely = False
        self._stopped = False
        self._wake: Callable[[], None] = lambda: None
        self._thread: threading.Thread | None = None
        self._without: dict[tuple[str, int], str] = {}
        """(call, device): why it is not made any more."""
        self._silent: dict[int, str] = {}
        self._sick: dict[int, str] = {}
        """What events said: it stays until the agent starts again, because nobody tells us that
        somebody repaired it.
        """
        self._due: dict[int, str] = {}
        self._broken: set[int] = set()
        self._checked = -HEALTH_MS
        self._timed = -BUSY_MS
        self._since: dict[int, int] = {}
        self._busy: dict[str, float] = {}
        self._nameless: dict[int, deque[tuple[int, int]]] = {
            gpu.index: deque() for gpu in nvml.gpus
        }
        self._listed: dict[int, list[ListedProcess]] = {}
        self._unseen: set[int] = set()
        self._estimated: set[int] = set()
        self._faults: deque[DeviceFault] = deque(maxlen=64)
        self._events = self._listen()
        self.last = GpuSample()
        self.version = 0

    def _listen(self) -> Callable[[], list[GpuEvent]]:
        try:
            return self._nvml.listen()
        except NvmlFailed as error:
            log.warning("GPU errors are not heard of (%s): health is asked for instead", error)
            return list

    # ---- life ------------------------------------------------------------------------------------

    def start(self, wake: Callable[[], None]) -> None:
        """Look from now on, and call `wake` from the thread when there is something new."""
        self._wake = wake
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="gpushare-nvml", daemon=True)
            self._thread.start()

    def stop(self) -> bool:
        """False: a look hangs in the driver, and is left behind after a second."""
        self._stopped = True
        self._hurry.set()
        if self._thread is None:
            return True
        self._thread.join(timeout=1.0)
        return not self._thread.is_alive()

    def hurry(self) -> None:
        """Look at once."""
        self._hurry.set()

    def pace(self, closely: bool) -> None:
        """Look often, or as usual."""
        if closely and not self._closely:
            self._hurry.set()
        self._closely = closely

    def _run(self) -> None:
        while True:
            hurried = self._hurry.wait(CLOSELY_S if self._closely else STEADY_S)
            if self._stopped:
                return
            self._hurry.clear()
            before = self.version
            try:
                self.look()
            except Exception:  # the thread must outlive whatever a driver does
                log.exception("a look at the GPUs failed; it is tried again")
            if hurried or self.version != before:
                self._wake()
            time.sleep(LEAST_S)

    # ---- one look --------------------------------------------------------------------------------

    def look(self) -> GpuSample:
        """Read every device anew. From any thread; two at once wait for each other."""
        with self._looking:
            now = monotonic_ms()
            memory = {
                gpu.index: told
                for gpu in self._nvml.gpus
                if (told := self._memory(gpu.index)) is not None
            }
            for gpu in memory:
                self._listed[gpu] = self._list(gpu)
            listed = [one for gpu in memory for one in self._listed[gpu]]
            made = account(
                {gpu: told.used for gpu, told in memory.items()}, listed, self._settled(now)
            )
            self._note_nameless(now, made)
            if unknown := made.estimated - self._estimated:
                self._estimated |= unknown
                log.warning(ESTIMATED, min(unknown))
            utilization = (
                self._utilization(now, made)
                if now - self._timed >= BUSY_MS
                else self.last.utilization
            )
            self._hear(made)
            self._check_health(now)
            untimed = frozenset(gpu for call, gpu in self._without if call == "process_utilization")
            sample = GpuSample(
                now,
                memory,
                made,
                {name: int(ms) for name, ms in self._busy.items()},
                utilization,
                untimed,
            )
            if _without_time(sample) != _without_time(self.last):
                self.version += 1
            self.last = sample
            return sample

    def _ask(self, call: str, gpu: int, ask: Callable[[], T]) -> T | None:
        """None: it cannot, or did not this time. What cannot is not asked again."""
        if (call, gpu) in self._without:
            return None
        try:
            return ask()
        except NvmlFailed as error:
            if error.is_missing or error.is_refused:
                self._without[call, gpu] = error.text
                log.info("GPU %d: no %s here (%s)", gpu, call.replace("_", " "), error.text)
            elif call == "memory" or error.is_lost:
                self._fell_silent(gpu, error)
            return None

    def _fell_silent(self, gpu: int, error: NvmlFailed) -> None:
        text = f"It does not answer (NVML: {error.text})."
        if self._silent.get(gpu) != text:
            log.error("GPU %d: %s", gpu, text)
            self._silent[gpu] = text
            self.version += 1

    def _memory(self, gpu: int) -> NvmlMemory | None:
        told = self._ask("memory", gpu, partial(self._nvml.memory, gpu))
        if told is not None and self._silent.pop(gpu, ""):
            log.info("GPU %d answers again", gpu)
            self.version += 1
        return told

    def _list(self, gpu: int) -> list[ListedProcess]:
        """As it was, when the driver does not say this time."""
        told = self._ask("processes", gpu, partial(self._nvml.processes, gpu))
        if told is None:
            return self._listed.get(gpu, [])
        listed = [
            ListedProcess(gpu, one.pid, *_found(self._owners.of(one.pid), one.size)) for one in told
        ]
        if gpu not in self._unseen and (unseen := [one.pid for one in listed if not one.start]):
            self._unseen.add(gpu)
            log.warning(UNSEEN, gpu, unseen[0])
        return listed

    def _settled(self, now: int) -> dict[int, int]:
        """What has been nobody's for long. At first everything: whoever was here before us is no
        kernel that is leaving.
        """
        settled = {}
        for gpu, seen in self._nameless.items():
            while seen and now - seen[0][0] > SETTLED_MS:
                seen.popleft()
            settled[gpu] = min((size for _, size in seen), default=1 << 62)
        return settled

    def _note_nameless(self, now: int, made: MemoryAccount) -> None:
        for gpu, size in made.nameless.items():
            seen = self._nameless[gpu]
            while (
                seen and seen[-1][1] >= size
            ):  # only the smallest since then can ever be the answer
                seen.pop()
            seen.append((now, size))

    # ---- utilisation -----------------------------------------------------------------------------

    def _utilization(self, now: int, made: MemoryAccount) -> dict[int, float]:
        passed = min(now - self._timed, 2 * int(STEADY_S * 1000)) if self._timed >= 0 else 0
        self._timed = now
        owner = {pid: name for name, processes in made.processes.items() for pid, _ in processes}
        found = {}
        for gpu in (one.index for one in self._nvml.gpus):
            told = self._ask("utilization", gpu, partial(self._nvml.utilization, gpu))
            if told is not None:
                found[gpu] = round(told, 2)
            shares = self._ask(
                "process_utilization",
                gpu,
                partial(self._nvml.process_utilization, gpu, self._since.get(gpu, 0)),
            )
            if shares is None:
                continue
            first = gpu not in self._since
            self._since[gpu] = shares[1]
            for pid, share in shares[0].items():
                if pid in owner and not first:  # the first answer is about a time before ours
                    self._busy[owner[pid]] = self._busy.get(owner[pid], 0.0) + share * passed
        return found

    # ---- health ----------------------------------------------------------------------------------

    def _hear(self, made: MemoryAccount) -> None:
        try:
            events = self._events()
        except NvmlFailed as error:
            log.warning(
                "GPU errors are not heard of any more (%s): health is asked for instead", error
            )
            self._events = list
            return
        for event in events:
            for gpu in event.gpus:
                self._judge(gpu, event, made)

    def _judge(self, gpu: int, event: GpuEvent, made: MemoryAccount) -> None:
        sentence, did = (
            unwell(event.kind, event.data),
            blamed(event.data) if event.kind == "xid" else "",
        )
        if sentence:
            log.error("GPU %d: %s", gpu, sentence)
            self._sick.setdefault(gpu, sentence)
            self.version += 1
        elif did:
            who = self._suspect(gpu, made)
            log.warning(
                "GPU %d: XID %d in a process of %s: %s", gpu, event.data, who or "somebody", did
            )
            message = f"GPU error XID {event.data} in this kernel: {did}. CUDA does not recover from it: restart the kernel."
            self._faults.append(DeviceFault(gpu, who, message))
            self.version += 1
        else:
            log.info("GPU %d: event %s %d", gpu, event.kind or "?", event.data)

    def _suspect(self, gpu: int, made: MemoryAccount) -> str:
        """Whose process it was, when it can only have been one: nobody else is on the device, or
        nobody else was working.
        """
        here = sorted(name for name, held in made.held.items() if gpu in held)
        if len(here) == 1 and not made.foreign_processes.get(gpu, 0):
            return here[0]
        before = self.last.busy_ms
        working = [name for name in here if self._busy.get(name, 0) > before.get(name, 0)]
        return working[0] if len(working) == 1 else ""

    def _check_health(self, now: int) -> None:
        if now - self._checked < HEALTH_MS:
            return
        self._checked = now
        for gpu in (one.index for one in self._nvml.gpus):
            action = self._ask("recovery_action", gpu, partial(self._nvml.recovery_action, gpu))
            broken = self._ask("repair", gpu, partial(self._nvml.is_unrepairable, gpu))
            due = needs_recovery(action or 0) or (
                "A part of its memory broke, and could not be replaced." if broken else ""
            )
            if due != self._due.get(gpu, ""):
                log.log(
                    logging.ERROR if due else logging.INFO,
                    "GPU %d: %s",
                    gpu,
                    due or "nothing has to be done about it any more",
                )
                self._due[gpu] = due
                self.version += 1

    def health(self, gpu: int, now: int) -> str:
        """What is wrong with a device, in one sentence; "": nothing."""
        silent_for = now - self.last.taken
        if self.last.taken >= 0 and silent_for > SILENT_MS:
            call = CALLS.longest()
            return f"The driver has not answered for {silent_for // 1000} s{f' ({call.name})' if call else ''}."
        return self._sick.get(gpu) or self._silent.get(gpu) or self._due.get(gpu, "")

    def take_faults(self) -> list[DeviceFault]:
        """What happened since this was last asked."""
        taken = []
        while self._faults:
            taken.append(self._faults.popleft())
        return taken

    def unlisted(self, *, everywhere: bool = False) -> str:
        """Why nobody can be told apart on some device (or `everywhere`: on any); "": on all of them
        (on one of them) one can.
        """
        found = {
            gpu: why for (call, gpu), why in sorted(self._without.items()) if call == "processes"
        }
        return (
            next(iter(found.values()), "")
            if not everywhere or len(found) == len(self._nvml.gpus)
            else ""
        )


def _found(owner: tuple[int, str], size: int | None) -> tuple[int, int | None, str]:
    return owner[0], size, owner[1]


def _without_time(sample: GpuSample) -> tuple[object, ...]:
    return sample.memory, sample.account, sample.busy_ms, sample.utilization
