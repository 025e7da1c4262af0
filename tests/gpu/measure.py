"""`python -m tests.gpu.measure`: measures suspend and resume on the GPU of this machine, and writes
a page of docs/measurements.

For a machine without network access, tests/gpu/wheels.py downloads the dependencies.

    # the parts and their durations, without using a GPU
    python -m tests.gpu.measure --plan
    # as many parts as fit into nine minutes; repeat it for the rest
    python -m tests.gpu.measure --budget 540 --state DIRECTORY
    # selected parts, also when they are done
    python -m tests.gpu.measure --part two-notebooks --part room

Requires no interaction. Each part runs in its own process with a time limit. Results
(`results.json`), output (`log`) and the page are written after every row, so that a machine that is
taken away costs at most one part. Frameworks that are not installed are listed.

The script also runs with the fake driver (tests/fake_driver), as a test of itself; the page then
says that nothing was measured, and is not written to docs/.
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

from tests.gpu.parts import Part, parts_for
from tests.gpu.report import file_name, report
from tests.gpu.sizes import GIB

__all__ = ["main"]

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs" / "measurements"
RUN: Final = "GPU_MEASURE_RUN"
"""Environment variable that identifies all processes that a part has started."""
LEAST_S: Final = 15


def main() -> int:
    """Returns 0 when every selected part is done."""
    args = _arguments()
    results = _Results(args.state, fresh=args.fresh)
    if args.plan:
        sys.stdout.writelines(f"{line}\n" for line in _plan(parts_for(_bytes(args.sizes)), results))
        return 0
    fake = "GPUSHARE_FAKE_GPU" in os.environ
    if fake and args.out == DOCS:
        raise SystemExit("nothing is measured with the fake driver: use another --out")
    model, driver, total = _gpu()
    sizes = [size for size in _bytes(args.sizes) if size < total * 0.9]
    results.set_machine(model=model, driver=driver, total=total, fake=fake, sizes=sizes)
    parts = parts_for(tuple(sizes))
    if unknown := set(args.part) - {part.name for part in parts}:
        names = ", ".join(part.name for part in parts)
        raise SystemExit(f"unknown part: {', '.join(sorted(unknown))}; known parts: {names}")
    until = time.monotonic() + args.budget
    # Parts that failed before are retried last.
    for part in sorted(parts, key=lambda part: results.has_failed(part.name)):
        if part.name in args.part if args.part else not results.is_done(part.name):
            _run(replace(part, limit_s=min(part.limit_s, args.limit)), sizes, total, results, until)
            path = _write(args.out, results, parts)
    path = _write(args.out, results, parts)
    left = [part.name for part in parts if not results.is_done(part.name)]
    sys.stdout.write(f"{path}\n" + (f"not done: {', '.join(left)}\n" if left else ""))
    return 1 if left else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Measures suspend and resume on the GPU of this machine."
    )
    parser.add_argument(
        "--sizes", default="0.5,4,16,64", help="GiB, separated by commas, ascending"
    )
    parser.add_argument(
        "--out", type=Path, default=DOCS, help="directory of the page (default: docs/measurements)"
    )
    parser.add_argument(
        "--state",
        type=Path,
        default=ROOT / ".gpu-measurements",
        help="directory of the results, from which the next run continues",
    )
    parser.add_argument(
        "--budget", type=float, default=3600, help="seconds; parts that do not fit are not started"
    )
    parser.add_argument(
        "--limit", type=float, default=3600, help="seconds; upper bound of the limits of all parts"
    )
    parser.add_argument(
        "--part", action="append", default=[], help="only this part (can be repeated)"
    )
    parser.add_argument("--fresh", action="store_true", help="discard earlier results")
    parser.add_argument("--plan", action="store_true", help="print the parts and exit")
    return parser.parse_args()


def _bytes(sizes: str) -> tuple[int, ...]:
    return tuple(int(float(text) * GIB) for text in sizes.split(","))


def _plan(parts: Sequence[Part], results: _Results) -> Iterator[str]:
    yield f"{'part':<18} {'about':>6} {'at most':>8}  {'state':<10} question"
    for part in parts:
        state = results.state_of(part.name)
        times = f"{part.expected_s:>5}s {part.limit_s:>7}s"
        yield f"{part.name:<18} {times}  {state:<10} {part.question}"
    expected, limit = (sum(part.expected_s for part in parts), sum(part.limit_s for part in parts))
    yield f"{'all':<18} {expected:>5}s {limit:>7}s"


def _gpu() -> tuple[str, str, int]:
    """Model, driver and memory of GPU 0, read in a separate process because a driver may hang."""
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
    """Run one part within its limit; its rows are kept even if it fails."""
    left = until - time.monotonic()
    if left < max(LEAST_S, part.expected_s):
        return
    _log(f"{part.name}: {part.question} ...")
    limit, begun, run_id = min(part.limit_s, left), time.monotonic(), uuid.uuid4().hex
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
            env=os.environ | {RUN: run_id},
            start_new_session=True,
        )
        results.begin(part.name)
        end = threading.Timer(limit, process.kill)
        end.start()
        assert process.stdout is not None
        reader = threading.Thread(
            target=_read_rows, args=(process.stdout, part.name, results), daemon=True
        )
        reader.start()
        reader.join(limit + 10)  # a child of a killed part may keep the pipe open
        end.cancel()
        _kill_leftovers(run_id)
        reader.join(5)
        # A process inside the driver may ignore signals.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
    seconds = time.monotonic() - begun
    state = _state(process.returncode, seconds, part.limit_s, limit)
    why = ""
    if state == "failed":
        why = _last_line(results.log)
    elif state != "done":
        why = f"ended after {seconds:.0f} s"
    results.end(part.name, state, round(seconds, 1), why)
    _log(f"{part.name}: {state} after {seconds:.0f} s{': ' + why if why else ''}")


def _state(status: int | None, seconds: float, limit_s: float, budget_s: float) -> str:
    if status == 0:
        return "done"
    if seconds >= limit_s:
        return "hung"
    return "cut" if seconds >= budget_s else "failed"


def _read_rows(pipe: Any, name: str, results: _Results) -> None:
    for line in pipe:
        with contextlib.suppress(ValueError):  # an incomplete line of a killed process
            results.row(name, json.loads(line))


def _kill_leftovers(run_id: str) -> None:
    """Kill processes that the part has left: workers, checkpoint workers, servers."""
    wanted = f"{RUN}={run_id}".encode()
    for _ in range(3):
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                if folder.name.isdecimal() and wanted in (folder / "environ").read_bytes().split(
                    b"\0"
                ):
                    os.kill(int(folder.name), signal.SIGKILL)
        time.sleep(0.1)


def _last_line(log: Path) -> str:
    lines = [
        line
        for line in log.read_text(errors="replace").splitlines()
        if line.strip() and not line.startswith(" ")
    ]
    return lines[-1][:300] if lines else "no output"


def _write(folder: Path, results: _Results, parts: Sequence[Part]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file_name(results.body)
    path.write_text(
        report(results.body, [(part.name, part.question) for part in parts]), encoding="utf-8"
    )
    return path


def _log(text: str) -> None:
    sys.stdout.write(f"{datetime.datetime.now(datetime.UTC):%H:%M:%S} {text}\n")
    sys.stdout.flush()


class _Results:
    """A file that is replaced after every row."""

    def __init__(self, folder: Path, *, fresh: bool) -> None:
        self._path, self.log = folder / "results.json", folder / "log"
        self.body: dict[str, Any] = {"about": {}, "parts": {}}
        if not fresh:
            with contextlib.suppress(OSError, ValueError):
                self.body = json.loads(self._path.read_text(encoding="utf-8"))

    def set_machine(self, **part: Any) -> None:
        """Record the machine. Results of different machines are not mixed."""
        known = {name: self.body["about"].get(name) for name in part}
        if self.body["about"] and known != part:
            raise SystemExit(
                f"{self._path} has results of another machine ({known}); "
                "use another --state, or --fresh"
            )
        self.body["about"] = part | {"date": datetime.datetime.now(datetime.UTC).date().isoformat()}
        self._save()

    def state_of(self, name: str) -> str:
        """done, failed, hung, cut (by the budget); "": not started."""
        return str(self.body["parts"].get(name, {}).get("state", ""))

    def is_done(self, name: str) -> bool:
        return self.state_of(name) == "done"

    def has_failed(self, name: str) -> bool:
        return self.state_of(name) in ("failed", "hung")

    def begin(self, name: str) -> None:
        """Start a part; its earlier rows are removed."""
        self.body["parts"][name] = {
            "state": "cut",
            "seconds": 0,
            "why": "the machine was lost before it ended",
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
