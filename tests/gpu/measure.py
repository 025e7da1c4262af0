"""`python -m tests.gpu.measure`: what suspending costs on the GPU of this machine, as a page of docs/measurements.

    python -m tests.gpu.measure [--sizes 0.5,4,16,64] [--out FOLDER] [--no-story]

On a played driver (tests/fakegpu) it runs too, so that the script itself is tried; what it writes then says that it measured nothing, and
goes nowhere near docs/.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import re
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

from node_agent.checkpointer import Checkpointer
from node_agent.devices.cuda import CudaError
from node_agent.devices.nvml import Nvml
from tests.gpu import bench
from tests.gpu.story import tell

__all__ = ["main"]

GIB = 1 << 30
DOCS = Path(__file__).parents[2] / "docs" / "measurements"
STEPS = ("lock", "checkpoint", "restore", "unlock")


def main() -> int:
    """Writes the page; its path is printed."""
    args = _arguments()
    played = "GPUSHARE_FAKE_GPU" in os.environ
    if played and args.out == DOCS:
        raise SystemExit("on a played driver nothing is measured: give another --out")
    nvml = Nvml()
    gpu, total, driver = nvml.gpus[0], nvml.memory(0).total, nvml.driver_version()
    page = "\n".join(_page(args, gpu.model, total, driver, played)) + "\n"
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / f"gpu-{_slug(gpu.model)}-{_slug(driver)}.md"
    path.write_text(page, encoding="utf-8")
    nvml.close()
    sys.stdout.write(f"{path}\n")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What suspending costs on the GPU of this machine.")
    parser.add_argument("--sizes", default="0.5,4,16,64", help="GiB, separated by commas")
    parser.add_argument("--out", type=Path, default=DOCS)
    parser.add_argument("--no-story", action="store_true", help="leave the whole product out")
    return parser.parse_args()


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower().removeprefix("nvidia ")).strip("-")


def _page(args: argparse.Namespace, model: str, total: int, driver: str, played: bool) -> Iterator[str]:
    today = datetime.datetime.now(datetime.UTC).date()
    yield f"# {model}, driver {driver}\n"
    if played:
        yield "**Played driver: these are not measurements.** This page only shows that the script runs.\n"
    yield f"{today}, {platform.machine()}, Linux {platform.release()}, Python {platform.python_version()}; written by `python -m tests.gpu.measure`.\n"
    sizes = [int(float(text) * GIB) for text in args.sizes.split(",")]
    sizes = [size for size in sizes if size < total * 0.9]
    driver_hand = Checkpointer()
    try:
        problem = driver_hand.problem()
        if problem:
            yield f"Nothing can be suspended here: {problem}."
            return
        for section in (_copies(driver_hand, sizes), _memory(driver_hand, sizes[min(1, len(sizes) - 1)]), _frameworks(driver_hand, sizes[0]),
                        _room(driver_hand, sizes[0], total), _neighbours(driver_hand)):  # fmt: skip
            yield from section
    finally:
        driver_hand.close()
    if not args.no_story:
        yield from _story(total)


def _copies(warm: Checkpointer, sizes: list[int]) -> Iterator[str]:
    with bench.Worker() as worker:
        upload = float(worker.do("upload", min(GIB, sizes[0])))
    yield "## Suspend and resume\n"
    yield f"Host to device, pinned where the driver gives it, same run: {upload:.1f} GB/s. Bar: each of suspend and resume within "
    yield "0.3 s + bytes at 70 % of that. Cold: the helper that calls the driver has just been started; warm: it has worked before.\n"
    yield "| GiB | | lock s | checkpoint s | restore s | unlock s | checkpoint GB/s | restore GB/s | suspend within the bar | resume within the bar | bytes |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for size in sizes:
        for kind in ("cold", "warm"):
            hand = Checkpointer() if kind == "cold" else warm
            try:
                with bench.Worker() as worker:
                    worker.do("hold", size)
                    made = bench.round_trip(hand, worker, size)
            finally:
                if kind == "cold":
                    hand.close()
            yield _copy_row(kind, made, upload)


def _copy_row(kind: str, made: bench.Round, upload: float) -> str:
    bar = 0.3 + made.size / (0.7 * upload * 1e9)
    suspend, resume = made.seconds["lock"] + made.seconds["checkpoint"], made.seconds["restore"] + made.seconds["unlock"]
    verdicts = [f"{'yes' if seconds <= bar else 'no'} ({seconds:.2f} of {bar:.2f} s)" for seconds in (suspend, resume)]
    cells = [f"{made.size / GIB:g}", kind, *(f"{made.seconds[step]:.3f}" for step in STEPS),
             f"{made.rate('checkpoint'):.1f}", f"{made.rate('restore'):.1f}", *verdicts, "right" if made.right else "**WRONG**"]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _memory(hand: Checkpointer, size: int) -> Iterator[str]:
    grown = bench.host_memory(hand, size)
    yield f"\n## Host memory while {size / GIB:g} GiB are saved\n"
    yield "| counter | grew by MiB | per byte on the GPU |"
    yield "|---|---|---|"
    for name, mib in grown.items():
        yield f"| {name} | {mib} | {mib * (1 << 20) / size:.2f} |"


def _frameworks(hand: Checkpointer, size: int) -> Iterator[str]:
    yield f"\n## Frameworks, {size / GIB:g} GiB, twice each\n"
    yield "| framework | values | longest pause of Python while suspended, ms | note |"
    yield "|---|---|---|---|"
    for one in bench.frameworks(hand, size):
        verdict = ("right" if one.right else "**WRONG**") if not one.problem else "-"
        yield f"| {one.name} | {verdict} | {one.longest_pause_ms if not one.problem else '-'} | {one.problem} |"


def _room(hand: Checkpointer, size: int, total: int) -> Iterator[str]:
    yield "\n## A restore without room\n"
    yield "| step | outcome |"
    yield "|---|---|"
    for step, outcome in bench.out_of_room(hand, size, total):
        yield f"| {step} | {outcome} |"


def _neighbours(hand: Checkpointer) -> Iterator[str]:
    yield "\n## Locking a neighbour\n"
    yield "| neighbour | median ms | worst ms |"
    yield "|---|---|---|"
    for busy in (False, True):
        try:
            taken = bench.neighbour_lock_ms(hand, busy=busy)
        except CudaError as error:
            yield f"| {'busy' if busy else 'idle'} | - | {error} |"
            continue
        yield f"| {'busy' if busy else 'idle'} | {statistics.median(taken):.1f} | {taken[-1]:.1f} |"


def _story(total: int) -> Iterator[str]:
    told = tell(total)
    yield "\n## Two notebooks through the whole product\n"
    yield f"Tensors by {told.library}. A holds {told.a_gib:.1f} GiB on half a share; B's first cell takes {told.b_gib:.1f} GiB.\n"
    yield "| what | |"
    yield "|---|---|"
    yield f"| B's first cell, sent to done | {told.b_first_cell_s:.2f} s |"
    yield f"| A was suspended for it | {'yes' if told.a_was_suspended else 'no'} |"
    yield f"| A's next cell, sent to done (its memory comes back) | {told.a_comes_back_s:.2f} s |"
    yield f"| all values | {'right' if told.right else '**WRONG**'} |"
    yield f"| what A was told | {', '.join(told.events)} |"


if __name__ == "__main__":
    raise SystemExit(main())
