"""`python -m tests.gpu.measure`: what suspending costs on the GPU of this machine, as a page of
docs/measurements.

A machine that can fetch nothing gets what is needed from tests/gpu/wheels.py.

    python -m tests.gpu.measure --plan                      # what would be done, and how long it
    takes; touches no GPU
    python -m tests.gpu.measure --budget 540 --state FOLDER # as much as fits into nine minutes;
    again, for the rest
    python -m tests.gpu.measure --part story --part room    # these, also when they are done already

Needs nobody's hand. Each part runs in a process of its own, is killed after its time, and keeps
what it has said; the results (`results.json`), everything that was printed (`log`) and the page are
written after every part, so that a machine that is taken away takes one part with it. A framework
that is not installed is said to be so.

On a played driver (tests/fake_driver) it runs too, so that the script itself is tried; what it
writes then says that it measured nothing, and goes nowhere near docs/.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tests.gpu.ask import GIB
from tests.gpu.page import file_name, page
from tests.gpu.parts import Part, chosen

__all__ = ["main"]

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs" / "measurements"
RUN: Final = "GPU_MEASURE_RUN"
"""In the environment of everything that a part starts: what it leaves behind is found by it."""
LEAST_S: Final = 15


def main() -> int:
    """0: every part that was asked for is done."""
    args = _arguments()
    results = _Results(args.state, fresh=args.fresh)
    if args.plan:
        sys.stdout.writelines(f"{line}\n" for line in _plan(chosen(_bytes(args.sizes)), results))
        return 0
    played = "GPUSHARE_FAKE_GPU" in os.environ
    if played and args.out == DOCS:
        raise SystemExit("on a played driver nothing is measured: give another --out")
    model, driver, total = _gpu()
    sizes = [size for size in _bytes(args.sizes) if size < total * 0.9]
    results.about(model=model, driver=driver, total=total, played=played, sizes=sizes)
    parts = chosen(tuple(sizes))
    if unknown := set(args.part) - {part.name for part in parts}:
        raise SystemExit(
            f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(part.name for part in parts)}"
        )
    until = time.monotonic() + args.budget
    for part in sorted(
        parts, key=lambda part: results.went_wrong(part.name)
    ):  # what failed before is tried again at the end
        if part.name in args.part if args.part else not results.is_done(part.name):
            _run(replace(part, limit_s=min(part.limit_s, args.limit)), sizes, total, results, until)
            path = _write(args.out, results, parts)
    path = _write(args.out, results, parts)
    left = [part.name for part in parts if not results.is_done(part.name)]
    sys.stdout.write(f"{path}\n" + (f"not done: {', '.join(left)}\n" if left else ""))
    return 1 if left else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="What suspending costs on the GPU of this machine."
    )
    parser.add_argument(
        "--sizes", default="0.5,4,16,64", help="GiB, separated by commas, smallest first"
    )
    parser.add_argument(
        "--out", type=Path, default=DOCS, help="where the page goes (default: docs/measurements)"
    )
    parser.add_argument(
        "--state",
        type=Path,
        default=ROOT / ".gpu-measurements",
        help="where results are kept, to go on from there",
    )
    parser.add_argument(
        "--budget",
        type=float,
        default=3600,
        help="seconds; a part that does not fit any more is not begun",
    )
    parser.add_argument(
        "--limit",
        type=float,
        default=3600,
        help="seconds; no part may take longer, whatever its own limit",
    )
    parser.add_argument(
        "--part", action="append", default=[], help="only this one (may be given more than once)"
    )
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    parser.add_argument("--plan", action="store_true", help="print what would be done, and end")
    return parser.parse_args()


def _bytes(sizes: str) -> tuple[int, ...]:
    return tuple(int(float(text) * GIB) for text in sizes.split(","))


def _plan(parts: Sequence[Part], results: _Results) -> Iterator[str]:
    yield f"{'part':<18} {'about':>6} {'at most':>8}  {'so far':<10} question"
    for part in parts:
        yield f"{part.name:<18} {part.expected_s:>5}s {part.limit_s:>7}s  {results.state_of(part.name):<10} {part.question}"
    yield f"{'all':<18} {sum(part.expected_s for part in parts):>5}s {sum(part.limit_s for part in parts):>7}s"


def _gpu() -> tuple[str, str, int]:
    """Model, driver and bytes of GPU 0; asked in a process of its own, because a driver may hang at
    the first word.
    """
    code = (
        "import json; from node_agent.devices.nvidia.nvml import Nvml; n = Nvml(); "
        "print(json.dumps([n.gpus[0].model, n.driver, n.memory(0).total]))"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            timeout=60,
        )
    except subprocess.TimeoutExpired:
        raise SystemExit("the NVIDIA driver does not answer (NVML, 60 s)") from None
    if done.returncode:
        raise SystemExit(done.stderr.strip().rpartition("\n")[2] or "no GPU was found")
    model, driver, total = json.loads(done.stdout)
    return model, driver, total


def _run(part: Part, sizes: Sequence[int], total: int, results: _Results, until: float) -> None:
    """One part, for as long as it may; its rows are in the results, whatever becomes of it."""
    left = until - time.monotonic()
    if left < max(LEAST_S, part.expected_s):
        return
    _say(f"{part.name}: {part.question} ...")
    limit, begun, mark = min(part.limit_s, left), time.monotonic(), uuid.uuid4().hex
    command = [
        sys.executable,
        "-m",
        "tests.gpu.parts",
        part.name,
        "--sizes",
        ",".join(map(str, sizes)),
        "--total",
        str(total),
    ]
    with results.log.open("ab") as log:
        log.write(f"==== {part.name}\n".encode())
        log.flush()
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=ROOT,
            env=os.environ | {RUN: mark},
            start_new_session=True,
        )
        results.begin(part.name)
        end = threading.Timer(limit, process.kill)
        end.start()
        assert process.stdout is not None
        reader = threading.Thread(
            target=_read, args=(process.stdout, part.name, results), daemon=True
        )
        reader.start()
        reader.join(limit + 10)  # a child of the dead part may hold the pipe open
        end.cancel()
        _clear(mark)
        reader.join(5)
        with contextlib.suppress(
            subprocess.TimeoutExpired
        ):  # it may be deep in the driver, where no signal reaches it
            process.wait(20)
    seconds = time.monotonic() - begun
    state = (
        "done"
        if process.returncode == 0
        else "hung"
        if seconds >= part.limit_s
        else "cut"
        if seconds >= limit
        else "failed"
    )
    why = (
        ""
        if state == "done"
        else _last_words(results.log)
        if state == "failed"
        else f"ended after {seconds:.0f} s"
    )
    results.end(part.name, state, round(seconds, 1), why)
    _say(f"{part.name}: {state} after {seconds:.0f} s{': ' + why if why else ''}")


def _read(pipe: Any, name: str, results: _Results) -> None:
    for line in pipe:
        with contextlib.suppress(ValueError):  # half a line of a killed process
            results.row(name, json.loads(line))


def _clear(mark: str) -> None:
    """End what the part has started and left: workers, helpers, servers in sessions of their own."""
    wanted = f"{RUN}={mark}".encode()
    for _ in range(3):
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                if folder.name.isdecimal() and wanted in (folder / "environ").read_bytes().split(
                    b"\0"
                ):
                    os.kill(int(folder.name), signal.SIGKILL)
        time.sleep(0.1)


def _last_words(log: Path) -> str:
    lines = [
        line
        for line in log.read_text(errors="replace").splitlines()
        if line.strip() and not line.startswith(" ")
    ]
    return lines[-1][:300] if lines else "it said nothing"


def _write(folder: Path, results: _Results, parts: Sequence[Part]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file_name(results.body)
    path.write_text(
        page(results.body, [(part.name, part.question) for part in parts]), encoding="utf-8"
    )
    return path


def _say(text: str) -> None:
    sys.stdout.write(f"{datetime.datetime.now(datetime.UTC):%H:%M:%S} {text}\n")
    sys.stdout.flush()


class _Results:
    """One file, replaced as a whole after every row."""

    def __init__(self, folder: Path, *, fresh: bool) -> None:
        self._path, self.log = folder / "results.json", folder / "log"
        self.body: dict[str, Any] = {"about": {}, "parts": {}}
        if not fresh:
            with contextlib.suppress(OSError, ValueError):
                self.body = json.loads(self._path.read_text(encoding="utf-8"))

    def about(self, **of: Any) -> None:
        """The machine. Results of another one are not mixed with its own."""
        known = {name: self.body["about"].get(name) for name in of}
        if self.body["about"] and known != of:
            raise SystemExit(
                f"{self._path} has results of something else ({known}); give another --state, or --fresh"
            )
        self.body["about"] = of | {"date": datetime.datetime.now(datetime.UTC).date().isoformat()}
        self._save()

    def state_of(self, name: str) -> str:
        """done, failed, hung, cut (by the budget); "": never begun."""
        return str(self.body["parts"].get(name, {}).get("state", ""))

    def is_done(self, name: str) -> bool:
        return self.state_of(name) == "done"

    def went_wrong(self, name: str) -> bool:
        return self.state_of(name) in ("failed", "hung")

    def begin(self, name: str) -> None:
        """What it said before is forgotten."""
        self.body["parts"][name] = {
            "state": "cut",
            "seconds": 0,
            "why": "the machine was gone before it ended",
            "rows": [],
        }
        self._save()

    def row(self, name: str, row: dict[str, Any]) -> None:
        self.body["parts"][name]["rows"].append(row)
        self._save()

    def end(self, name: str, state: str, seconds: float, why: str) -> None:
        self.body["parts"][name] |= {"state": state, "seconds": seconds, "why": why}
        self._save()

    def _save(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps(self.body, indent=1), encoding="utf-8")
        fresh.replace(self._path)


if __name__ == "__main__":
    raise SystemExit(main())
