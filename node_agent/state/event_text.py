"""The sentences: what happened, why, what was kept or lost, for whom. One place, so that the
notebook, the sidebar and the log agree.
"""

from __future__ import annotations

from jupyter_gpushare.core.model.units import duration_text, memory_text

from .kernel_record import KernelRecord

__all__ = ["EventText"]


class EventText:
    """Messages of one node. `label`: what they call a device, such as `simulated GPU`."""

    def __init__(self, label: str) -> None:
        self._gpu = label

    def gpus(self, indexes: tuple[int, ...]) -> str:
        """`simulated GPU 0`, `simulated GPUs 0 and 1`."""
        names = " and ".join(str(index) for index in indexes)
        return f"{self._gpu}{'s' if len(indexes) > 1 else ''} {names}"

    @staticmethod
    def who(kernel: KernelRecord | None) -> str:
        """For whom: a project, never another person's notebook by name."""
        if kernel is None or kernel.lease is None:
            return "another workload"
        return f"a workload of project {kernel.lease.project}"

    def attached(self, kernel: KernelRecord, home: tuple[int, ...]) -> str:
        share = memory_text(kernel.lease.request_mib) if kernel.lease else "nothing"
        return f"Attached to {self.gpus(home)}: {share} guaranteed."

    def burst(self, kernel: KernelRecord, borrowed: int) -> str:
        used = f"Uses {memory_text(kernel.memory.used_mib)}: {memory_text(borrowed)} above its share are borrowed"
        return f"{used}, and go back when their owner needs them."

    def notice(
        self, take: int, seconds: float, asker: KernelRecord | None, reason: str, saved: bool
    ) -> str:
        why = reason.rstrip(".") if reason else f"{self.who(asker)} needs its share"
        then = (
            "is saved to host memory, if the driver can, and comes back later"
            if saved
            else "is lost, because it cannot be saved here"
        )
        return f"In {seconds:.0f} s {memory_text(take)} of GPU memory are taken back: {why}. What is on the GPU then {then}."

    def command_notice(self, seconds: float, asker: KernelRecord | None, reason: str) -> str:
        why = reason.rstrip(".") if reason else f"{self.who(asker)} needs its share"
        return f"Its place is taken back: {why}. It has {seconds:.0f} s from SIGTERM to save what it needs; it is run again when there is room."

    def recalled(self) -> str:
        return "The notice is over: nobody needs the memory any more."

    def suspended(self, mib: int, asker: KernelRecord | None, reason: str, own: bool) -> str:
        if own:
            why = "as you asked"
        else:
            why = reason.rstrip(".") if reason else f"{self.who(asker)} needs the room"
        return f"Saved {memory_text(mib)} of GPU memory to host memory ({why}); nothing is lost, it comes back when a cell needs it."

    def moved(self, old: tuple[int, ...], new: tuple[int, ...], asker: KernelRecord | None) -> str:
        why = (
            f" to make room for {self.who(asker)}" if asker else ", where there is more room"
        )  # its owner may have asked for it
        return f"Moved from {self.gpus(old)} to {self.gpus(new)}{why}; nothing is lost."

    def must_restart(
        self, old: tuple[int, ...], new: tuple[int, ...], mib: int, asker: KernelRecord | None
    ) -> str:
        return (
            f"{self.gpus(old)} is needed by {self.who(asker)}, and this machine cannot move GPU memory to {self.gpus(new)}: save what you "
            f"need, or the kernel is restarted there, and {memory_text(mib)} on the GPU are lost."
        )

    def stays_behind(self, old: tuple[int, ...], new: tuple[int, ...]) -> str:
        return f"This kernel's share is on {self.gpus(new)} now, but its process already uses {self.gpus(old)}: restart the kernel to use it."

    def resumed(self, mib: int, gpus: tuple[int, ...], ms: int) -> str:
        return f"Brought {memory_text(mib)} back onto {self.gpus(gpus)} in {ms / 1000:.1f} s, with everything in it."

    def killed(self, mib: int, asker: KernelRecord | None, reason: str, why_not: str) -> str:
        why = reason.rstrip(".") if reason else f"{self.who(asker)} needs its share"
        hint = f" ({why_not})" if why_not else ""
        lost = f"It could not be saved{hint}: its variables are lost."
        return f"The kernel is restarted to free {memory_text(mib)} of GPU memory: {why}. {lost}"

    def command_killed(self, asker: KernelRecord | None, reason: str) -> str:
        why = reason.rstrip(".") if reason else f"{self.who(asker)} needs its share"
        return f"Its processes are ended: {why}. It is run again from the beginning when there is room."

    def reattached(self, gpus: tuple[int, ...]) -> str:
        return f"The new kernel process has {self.gpus(gpus)} again; what the old one held is gone."

    def lost(self, mib: int) -> str:
        return f"The kernel's process ended; {memory_text(mib)} that it held on the GPU are gone with it."

    def unrestorable(self, mib: int, problem: str) -> str:
        return f"{memory_text(mib)} of saved GPU memory cannot be brought back ({problem}): the kernel has to be restarted."

    def evicted(self, reason: str, kept: int) -> str:
        saved = f" {memory_text(kept)} are kept in host memory." if kept else ""
        return f"The GPU was given back: {reason.rstrip('.') or 'the scheduler needs it'}.{saved} The request waits for a GPU again."

    # ---- idle ------------------------------------------------------------------------------------

    def idle(
        self, step: str, idle_ms: int, left_ms: int | None, mib: int, why: str, pinned: bool
    ) -> str:
        since = f"No GPU work for {duration_text(idle_ms)}"
        if left_ms is None:
            return f"{since} ({why}): give the GPU back with `%gpu release` when you are done."
        what = {
            "suspend": f"{memory_text(mib)} of GPU memory are saved to host memory, and come back at the next cell",
            "release": "the GPU is given back"
            + (f", {memory_text(mib)} are kept in host memory" if mib else "")
            + "; the next cell asks for it again",
            "end": "the kernel is shut down, and its variables are lost",
        }[step]
        though = " (pinned, which does not protect from this)" if pinned else ""
        return f"{since}: in {duration_text(left_ms)} {what}{though} ({why}). Any cell keeps it."

    def idle_released(self, kept: int, why: str) -> str:
        saved = f" {memory_text(kept)} are kept in host memory." if kept else ""
        return f"The GPU was given back, because the kernel was idle ({why}).{saved} The next cell asks for it again."

    def idle_ended(self, why: str) -> str:
        return f"The kernel is shut down, because it was idle ({why})."

    # ---- at the gate -----------------------------------------------------------------------------

    def waits_for_room(
        self,
        blockers: list[KernelRecord],
        seconds: float | None,
        suspended: int,
        strangers: int = 0,
    ) -> str:
        what = f"{memory_text(suspended)} of saved memory" if suspended else "your share of the GPU"
        if seconds is not None:
            return f"Waiting for {what}: memory that others borrowed is being taken back, at the latest in {max(1, round(seconds))} s."
        if blockers:
            many = (
                f"{len(blockers)} running notebooks" if len(blockers) > 1 else "a running notebook"
            )
            return f"Waiting for room for {what}: {many} inside the share that is guaranteed to them.{self._beside(strangers)}"
        if strangers:
            return f"Waiting for room for {what}.{self._beside(strangers)}"
        return f"Waiting for {what}: the copy is under way."

    @staticmethod
    def waits_for_copy(mib: int, *, own: bool, back: bool) -> str:
        if own and back:
            return f"Bringing {memory_text(mib)} of saved GPU memory back."
        if own:
            return "Waiting for this notebook's own GPU memory: what was under way with it is being finished."
        done = "brought back" if back else "saved to host memory"
        return f"Waiting for your share of the GPU: {memory_text(mib)} of another notebook are being {done}."

    @staticmethod
    def copy_is_slow(seconds: int, patience_s: float) -> str:
        return (
            f" The driver has been at it for {seconds} s; if it does not answer, it is given up after {patience_s:.0f} s, and room is made "
            "in another way."
        )

    @staticmethod
    def _beside(strangers: int) -> str:
        return (
            f" Programs outside of the notebooks hold {memory_text(strangers)} of the GPU."
            if strangers
            else ""
        )

    @staticmethod
    def waits_for_driver() -> str:
        return "Waiting for the GPU's driver, which does not answer: what is free is not known. `%gpu release` lets cells run without a GPU."

    @staticmethod
    def waits_for_neighbours() -> str:
        return "Waiting for a notebook beside this one to hear from the node agent, which has just started: until then it may take what is yours."

    def waits_to_enter(self, seconds: float | None = None) -> str:
        until = "" if seconds is None else f", at the latest in {max(1, round(seconds))} s"
        return f"Waiting for the {self._gpu}: it is granted, and is being made free{until}."

    def waits_for_grant(self, message: str, expected: str = "") -> str:
        return (
            f"{message or 'Waiting for a GPU: the request is being looked at.'} {expected}".rstrip()
        )
