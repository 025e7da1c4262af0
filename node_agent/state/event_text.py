"""The texts that people read in the notebook, the sidebar and the log: what happened, why, and what
was kept or lost.
"""

from __future__ import annotations

from jupyter_gpushare.core.model.reason import clause
from jupyter_gpushare.core.model.units import duration_text, memory_text

from .kernel_record import KernelRecord, have_same_user

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
    def requester(asker: KernelRecord | None, victim: KernelRecord | None = None) -> str:
        """The notebook by its name when both belong to one person, else only its project."""
        if asker is None or asker.lease is None:
            return "another workload"
        if victim is not None and have_same_user(asker, victim) and asker.name:
            return f"your notebook {asker.name}"
        return f"a workload of project {asker.lease.project}"

    def _why(self, victim: KernelRecord | None, asker: KernelRecord | None, reason: str) -> str:
        return clause(reason) or f"{self.requester(asker, victim)} needs its share"

    # ---- GPU and memory --------------------------------------------------------------------------

    def attached(self, kernel: KernelRecord, gpus: tuple[int, ...], *, gated: bool) -> str:
        share = memory_text(kernel.lease.request_mib) if kernel.lease else "nothing"
        if gated or kernel.is_command:
            return f"Attached to {self.gpus(gpus)}: {share} guaranteed."
        text = f"Attached to {self.gpus(gpus)}: {share}, not guaranteed."
        return f"{text} {_restart_to_see(kernel, gpus)}".rstrip()

    def ungated(self, kernel: KernelRecord) -> str:
        """Why its cells do not ask, what follows, and what to do."""
        registration, gpus = kernel.registration, kernel.assignment.assigned_gpus
        if registration.never_connected:
            why, remedy = "the cell gate did not load", "Restart the kernel to try another way."
        else:
            why, remedy = registration.gate_reason or "this kernel has no cell gate", ""
        text = f"Cells run without asking ({why}): GPU memory is not guaranteed."
        return " ".join(filter(None, (text, _restart_to_see(kernel, gpus) or remedy)))

    def reattached(self, gpus: tuple[int, ...]) -> str:
        return (
            f"The new kernel process is attached to {self.gpus(gpus)}. "
            "GPU memory of the previous process is gone."
        )

    def burst(self, kernel: KernelRecord, borrowed: int) -> str:
        used = memory_text(kernel.memory.used_mib)
        return (
            f"Uses {used}, {memory_text(borrowed)} above its share. "
            "The excess is borrowed and can be reclaimed."
        )

    def suspended(
        self,
        mib: int,
        kernel: KernelRecord,
        asker: KernelRecord | None,
        reason: str,
        requested: bool,
    ) -> str:
        if kernel.assignment.active_lease is None:
            why, restored = "the GPU was released", "this notebook has a GPU again"
        elif requested:
            why, restored = "as you requested", "a cell needs it"
        else:
            why, restored = self._why(kernel, asker, reason), "a cell needs it"
        return (
            f"Saved {memory_text(mib)} of GPU memory to host memory: {why}. "
            f"It is restored when {restored}."
        )

    def resumed(self, mib: int, gpus: tuple[int, ...], ms: int) -> str:
        return (
            f"Restored {memory_text(mib)} of GPU memory on {self.gpus(gpus)} in {ms / 1000:.1f} s."
        )

    def moved(
        self,
        old: tuple[int, ...],
        new: tuple[int, ...],
        asker: KernelRecord | None,
        kernel: KernelRecord | None = None,
    ) -> str:
        why = (
            f" to make room for {self.requester(asker, kernel)}"
            if asker
            else ", which has more room"
        )
        return f"Moved from {self.gpus(old)} to {self.gpus(new)}{why}. Nothing was lost."

    def must_restart(
        self, old: tuple[int, ...], new: tuple[int, ...], mib: int, asker: KernelRecord | None
    ) -> str:
        return (
            f"{self.gpus(old)} is needed by {self.requester(asker)}, and this node cannot move GPU "
            f"memory to {self.gpus(new)}. Save your work: the kernel will be restarted there, and "
            f"{memory_text(mib)} of GPU memory will be lost."
        )

    def stays_behind(self, old: tuple[int, ...], new: tuple[int, ...]) -> str:
        return (
            f"The share is on {self.gpus(new)} now, but the kernel process already uses "
            f"{self.gpus(old)}. Restart the kernel to use {self.gpus(new)}."
        )

    def gave_way(self, reason: str, mib: int) -> str:
        kept = f" Its {memory_text(mib)} of GPU memory are kept." if mib else ""
        return f"Released: {clause(reason)}.{kept} The next cell continues."

    def lost(self, mib: int) -> str:
        return f"The kernel process ended. {memory_text(mib)} of its GPU memory are lost."

    def unrestorable(self, mib: int, problem: str) -> str:
        return (
            f"{memory_text(mib)} of saved GPU memory cannot be restored ({problem}). "
            "The kernel must be restarted."
        )

    # ---- reclaim ---------------------------------------------------------------------------------

    def notice(
        self,
        take: int,
        needed: int,
        seconds: float,
        kernel: KernelRecord,
        asker: KernelRecord | None,
        reason: str,
        can_save: bool,
    ) -> str:
        """`take`: MiB that will be saved or lost; `needed`: MiB that prevent it when they are freed
        before; as much as `take`: nothing less does.
        """
        then = (
            "The memory will be saved to host memory if the driver supports it, and restored later."
            if can_save
            else "The memory cannot be saved here and will be lost."
        )
        hint = f" Free {memory_text(needed)} by then to prevent it." if 0 < needed < take else ""
        return (
            f"{memory_text(take)} of GPU memory will be reclaimed in {seconds:.0f} s: "
            f"{self._why(kernel, asker, reason)}. {then}{hint}"
        )

    def command_notice(
        self, seconds: float, kernel: KernelRecord, asker: KernelRecord | None, reason: str
    ) -> str:
        return (
            f"The GPU will be reclaimed: {self._why(kernel, asker, reason)}. "
            f"The command has {seconds:.0f} s from SIGTERM to save its state; "
            "it is run again when a GPU is free."
        )

    def notice_cancelled(self) -> str:
        return "The notice is cancelled: the memory is no longer needed."

    def killed(
        self, mib: int, kernel: KernelRecord, asker: KernelRecord | None, reason: str, problem: str
    ) -> str:
        hint = f" ({problem})" if problem else ""
        return (
            f"The kernel is restarted to free {memory_text(mib)} of GPU memory: "
            f"{self._why(kernel, asker, reason)}. "
            f"Its memory could not be saved{hint}: its variables are lost."
        )

    def command_killed(self, kernel: KernelRecord, asker: KernelRecord | None, reason: str) -> str:
        return (
            f"The command is stopped: {self._why(kernel, asker, reason)}. "
            "It is run again from the beginning when a GPU is free."
        )

    def evicted(self, reason: str, saved_mib: int) -> str:
        why = clause(reason) or "the scheduler needs it"
        return f"The GPU was released: {why}.{_kept(saved_mib)} The request is pending again."

    # ---- previews --------------------------------------------------------------------------------

    @staticmethod
    def affected_name(kernel: KernelRecord, *, is_own: bool) -> str:
        """The notebook's path, or only its project."""
        if is_own and kernel.name:
            return kernel.name
        kind = "notebook" if kernel.registration.registered else "command"
        return f"a {kind} of project {kernel.lease.project}" if kernel.lease else f"a {kind}"

    def affected(
        self, name: str, mib: int, notice_s: float, moves_to: tuple[int, ...], *, is_saved: bool
    ) -> str:
        """What a share that starts does to another notebook."""
        memory = f"{memory_text(mib)} of its GPU memory"
        if is_saved:
            where = f" on {self.gpus(moves_to)}" if moves_to else ""
            then = f"{memory} is saved to host memory and restored{where} when it needs it"
        else:
            then = f"it is restarted and {memory} is lost"
        first = f"A{name[1:]}" if name.startswith("a ") else name
        if not notice_s:
            return f"{first} is idle: {then}."
        return f"{first} gets a notice of {_whole_seconds(notice_s)} s, then {then}."

    # ---- idle ------------------------------------------------------------------------------------

    def idle(
        self, step: str, idle_ms: int, left_ms: int | None, mib: int, rule: str, pinned: bool
    ) -> str:
        since = f"No GPU work for {duration_text(idle_ms)}"
        if left_ms is None:
            return f"{since} ({rule}). Release the GPU with `%gpu release` when you are done."
        kept = f", {memory_text(mib)} will be kept in host memory" if mib else ""
        what = {
            "suspend": f"{memory_text(mib)} of GPU memory will be saved to host memory and "
            "restored by the next cell",
            "release": f"the GPU will be released{kept}; the next cell requests it again",
            "end": "the kernel will be shut down, and its variables will be lost",
        }[step]
        though = " Pinning does not prevent this." if pinned else ""
        when = duration_text(left_ms)
        return f"{since}: in {when} {what} ({rule}).{though} Run any cell to prevent this."

    def idle_released(self, saved_mib: int, rule: str) -> str:
        return (
            f"The GPU was released because the kernel was idle ({rule}).{_kept(saved_mib)} "
            "The next cell requests it again."
        )

    def idle_ended(self, rule: str) -> str:
        return f"The kernel was shut down because it was idle ({rule})."

    # ---- at the gate -----------------------------------------------------------------------------

    def waits_for_room(
        self,
        blockers: list[KernelRecord],
        seconds: float | None,
        saved_mib: int,
        foreign_mib: int = 0,
    ) -> str:
        what = f"{memory_text(saved_mib)} of saved memory" if saved_mib else "your share of the GPU"
        if seconds is not None:
            return (
                f"Waiting for {what}: borrowed memory is being reclaimed. "
                f"The cell runs in at most {_whole_seconds(seconds)} s."
            )
        if blockers:
            many = len(blockers) > 1
            who = f"{len(blockers)} running notebooks use" if many else "a running notebook uses"
            whose = "their" if many else "its"
            others = self._other_processes(foreign_mib)
            return f"Waiting for room for {what}: {who} {whose} guaranteed memory.{others}"
        if foreign_mib:
            return f"Waiting for room for {what}.{self._other_processes(foreign_mib)}"
        return f"Waiting for {what}: a copy is in progress."

    @staticmethod
    def waits_for_own_notebook(kernel: KernelRecord, seconds: float) -> str:
        return (
            f"Waiting for memory of your notebook {kernel.name}. Both need more than "
            f"their shares, so it keeps its memory for at least {_whole_seconds(seconds)} s. "
            "To use the memory here now, interrupt that notebook or run `%gpu release` in it."
        )

    @staticmethod
    def _other_processes(mib: int) -> str:
        return f" Other processes use {memory_text(mib)} of the GPU." if mib else ""

    @staticmethod
    def waits_for_copy(mib: int, *, own: bool, back: bool) -> str:
        if own and back:
            return f"Restoring {memory_text(mib)} of saved GPU memory."
        if own:
            return "Waiting for this notebook's GPU memory: a copy in progress has to finish first."
        done = "restored" if back else "saved to host memory"
        return (
            f"Waiting for your share of the GPU: {memory_text(mib)} of another notebook are being "
            f"{done}."
        )

    @staticmethod
    def copy_is_slow(seconds: int, timeout_s: float) -> str:
        return (
            f" The driver has been busy for {seconds} s. If it does not respond, the copy is "
            f"abandoned after {timeout_s:.0f} s and memory is freed in another way."
        )

    @staticmethod
    def waits_for_driver() -> str:
        return (
            "Waiting for the GPU driver, which does not respond: the free memory is unknown. "
            "`%gpu release` lets cells run without a GPU."
        )

    @staticmethod
    def waits_for_reconnect() -> str:
        return (
            "Waiting for another notebook on this GPU to reconnect: the node agent has just "
            "started, and until then that notebook may use your share."
        )

    def waits_to_attach(self, seconds: float | None = None) -> str:
        until = "" if seconds is None else f" The cell runs in at most {_whole_seconds(seconds)} s."
        return f"Waiting for the {self._gpu}: it is granted and is being freed.{until}"

    @staticmethod
    def waits_for_turn(message: str = "", seconds: float | None = None) -> str:
        """`message`: how many are ahead; "": the scheduler has not answered yet."""
        if not message:
            return "Waiting for a turn."
        about = f", about {round(seconds)} s" if seconds else ""
        return f"{message.rstrip('.')}{about}."

    @staticmethod
    def waits_for_grant(message: str, expected: str = "") -> str:
        return (
            f"{message or 'Waiting for a GPU: the request is being evaluated.'} {expected}".rstrip()
        )


def _kept(mib: int) -> str:
    return f" {memory_text(mib)} are kept in host memory." if mib else ""


def _whole_seconds(seconds: float) -> int:
    return max(1, round(seconds))


def _restart_to_see(kernel: KernelRecord, gpus: tuple[int, ...]) -> str:
    """For a process that started before it had these GPUs; "": it sees them."""
    visible = kernel.process.visible_gpus
    if visible is None or set(gpus) <= set(visible):
        return ""
    return "Restart the kernel to use its GPU."
