"""Formats results as a page of docs/measurements. Pure; parts that were not measured are listed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

__all__ = ["file_name", "report"]

GIB: Final = 1 << 30
STEPS: Final = ("lock", "checkpoint", "restore", "unlock")
FRAMEWORKS: Final = ("torch", "torch-expandable", "jax", "cupy")
BAR_S, BAR_SHARE = 0.3, 0.7
COPY_COLUMNS: Final = (
    "GiB",
    "",
    "lock s",
    "checkpoint s",
    "restore s",
    "unlock s",
    "checkpoint GB/s",
    "restore GB/s",
    "to the device, back GB/s",
    "suspend",
    "resume",
    "bytes",
)
FRAMEWORK_COLUMNS: Final = (
    "framework",
    "values",
    "longest pause of Python while suspended, ms",
    "its Python while a thread waits for the GPU",
    "suspend s",
    "resume s",
    "note",
)
Results = dict[str, Any]


def file_name(results: Results) -> str:
    """`gpu-<model>-<driver>.md`."""
    return f"gpu-{_slug(results['about']['model'])}-{_slug(results['about']['driver'])}.md"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower().removeprefix("nvidia ")).strip("-")


def report(results: Results, parts: Sequence[tuple[str, str]]) -> str:
    """The page. `parts`: (name, question) of all parts."""
    return "\n".join(_lines(results, parts)).rstrip() + "\n"


def _lines(results: Results, parts: Sequence[tuple[str, str]]) -> Iterator[str]:
    about = results["about"]
    yield f"# {about['model']}, driver {about['driver']}\n"
    if about["fake"]:
        yield "**Fake driver: these are not measurements**, only a test of the script.\n"
    yield (
        f"{about['date']}; written by `python -m tests.gpu.measure`. "
        f"GPU memory: {about['total'] / GIB:.1f} GiB.\n"
    )
    yield from _unfinished(results, parts)
    yield from _copies(results, [name for name, _ in parts if name.startswith("copies-")])
    yield from _memory(_rows(results, "memory"))
    yield from _frameworks(results)
    yield from _table(
        "The product's caps on the real frameworks",
        _rows(results, "caps"),
        ("framework", "what", "outcome"),
    )
    yield from _table(
        "A restore without enough GPU memory", _rows(results, "room"), ("step", "outcome")
    )
    yield from _neighbours(_rows(results, "neighbours"))
    yield from _table(
        "How long NVML lists suspended and ended processes", _rows(results, "lag"), ("what", "is")
    )
    yield from _table(
        "Who may suspend whose processes", _rows(results, "rights"), ("who", "outcome")
    )
    yield from _table("Unusual processes", _rows(results, "odd"), ("process", "asked", "answer"))
    yield from _table(
        "A GPU that becomes visible after a process has listed the GPUs",
        _rows(results, "hidden"),
        ("by", "said"),
    )
    yield from _table(
        "Cost of a reading",
        _rows(results, "polling"),
        ("call", "median_ms", "worst_ms", "cpu_ms", "problem"),
    )
    yield from _table(
        "Two notebooks with the whole product", _rows(results, "two-notebooks"), ("what", "is")
    )
    yield from _tiers(_rows(results, "tiers"))
    yield from _table("The machine", _rows(results, "machine"), ("what", "is"))


def _rows(results: Results, name: str) -> list[Results]:
    return list(results["parts"].get(name, {}).get("rows", ()))


def _unfinished(results: Results, parts: Sequence[tuple[str, str]]) -> Iterator[str]:
    states = [(name, question, results["parts"].get(name, {})) for name, question in parts]
    open_ = [
        (name, question, part) for name, question, part in states if part.get("state") != "done"
    ]
    if open_:
        yield "## Not measured, or incomplete\n"
        yield "| part | question | why |\n|---|---|---|"
        for name, question, part in open_:
            reason = f": {_cell(part['why'])}" if part.get("why") else ""
            yield f"| {name} | {question} | {_cell(part.get('state', 'not run'))}{reason} |"
        yield ""


def _copies(results: Results, names: Sequence[str]) -> Iterator[str]:
    rows = [row for name in names for row in _rows(results, name)]
    if not rows:
        return
    yield "## Suspend and resume\n"
    yield (
        f"Target: suspend and resume each within {BAR_S} s + bytes at {BAR_SHARE:.0%} of the "
        "host-to-device bandwidth of the same run, unless the excess is time of the driver. Cold: "
        "the checkpoint worker has just started; warm: it has made calls before; driver: the "
        "driver's calls alone. Every page of the memory is different, and all are compared.\n"
    )
    yield f"| {' | '.join(COPY_COLUMNS)} |"
    yield f"|{'---|' * len(COPY_COLUMNS)}"
    alone = {row["size"]: row["seconds"] for row in rows if row["kind"] == "driver"}
    for row in rows:
        seconds, size = row["seconds"], row["size"]
        verdicts = [
            _verdict(row, alone.get(size), pair) if row["kind"] != "driver" else "-"
            for pair in (("lock", "checkpoint"), ("restore", "unlock"))
        ]
        cells = [
            f"{size / GIB:g}",
            row["kind"],
            *(f"{seconds[step]:.3f}" for step in STEPS),
            *(f"{size / max(seconds[step], 1e-9) / 1e9:.1f}" for step in ("checkpoint", "restore")),
            f"{row['up']:.1f}, {row['down']:.1f}",
            *verdicts,
            "right" if row["right"] else "**WRONG**",
        ]
        yield f"| {' | '.join(cells)} |"
    yield ""


def _verdict(row: Results, alone: dict[str, float] | None, pair: tuple[str, str]) -> str:
    """Whether the target is met, and if not, the time of the driver."""
    took, bar = (
        sum(row["seconds"][step] for step in pair),
        BAR_S + row["size"] / (BAR_SHARE * row["up"] * 1e9),
    )
    if took <= bar:
        return f"within ({took:.2f} of {bar:.2f} s)"
    drivers = (
        f"{sum(alone[step] for step in pair):.2f} s by the driver"
        if alone
        else "the driver alone was not measured"
    )
    return f"over ({took:.2f} of {bar:.2f} s; {drivers})"


def _memory(rows: list[Results]) -> Iterator[str]:
    if rows:
        yield f"## Host memory while {rows[0]['size'] / GIB:g} GiB are saved\n"
        yield "| counter | growth, MiB | per byte on the GPU | growth after the resume, MiB |"
        yield "|---|---|---|---|"
        for row in rows:
            per_byte = row["grew_mib"] * (1 << 20) / row["size"]
            yield (f"| {row['counter']} | {row['grew_mib']} | {per_byte:.2f} | {row['left_mib']} |")
        yield ""


def _frameworks(results: Results) -> Iterator[str]:
    found = [
        (name, _rows(results, name), results["parts"].get(name, {}))
        for name in FRAMEWORKS
        if name in results["parts"]
    ]
    if not found:
        return
    yield "## Frameworks, suspended and resumed three times\n"
    yield f"| {' | '.join(FRAMEWORK_COLUMNS)} |"
    yield f"|{'---|' * len(FRAMEWORK_COLUMNS)}"
    for name, rows, part in found:
        row = rows[0] if rows else {"problem": f"{part.get('state')}: {part.get('why', '')}"}
        if "problem" in row:
            yield f"| {name} | - | - | - | - | - | {_cell(row['problem'])} |"
            continue
        seconds = row["seconds"]
        cells = [
            name,
            "right" if row["right"] else "**WRONG**",
            str(row["longest_pause_ms"]),
            row["while_waiting"],
            f"{seconds['lock'] + seconds['checkpoint']:.2f}",
            f"{seconds['restore'] + seconds['unlock']:.2f}",
            "",
        ]
        yield f"| {' | '.join(cells)} |"
    yield ""


def _neighbours(rows: list[Results]) -> Iterator[str]:
    if rows:
        yield "## Locking a neighbour\n"
        yield "| length of its kernels, ms | median ms | worst ms |\n|---|---|---|"
        for row in rows:
            yield f"| {row['kernel_ms'] or 'idle'} | {row['median_ms']} | {row['worst_ms']} |"
        yield ""


def _tiers(rows: list[Results]) -> Iterator[str]:
    if rows:
        yield "## The self-test\n"
        yield from (f"    {row['line']}" for row in rows)
        yield ""


def _table(title: str, rows: list[Results], columns: Sequence[str]) -> Iterator[str]:
    if rows:
        shown = [name for name in columns if any(name in row for row in rows)]
        yield f"## {title}\n"
        yield f"| {' | '.join(name.replace('_', ' ') for name in shown)} |\n|{'---|' * len(shown)}"
        for row in rows:
            yield f"| {' | '.join(_cell(row.get(name, '-')) for name in shown)} |"
        yield ""


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")
