"""Shares that the administrator has given a name: what people choose in JupyterLab, and what a
kernelspec may ask by name. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.messages import KernelRequest, Preset, convert

from ..kernels.request import checked

__all__ = ["DEFAULT_PRESETS", "Presets", "presets_or_usual", "read_presets"]

DEFAULT_PRESETS: Final[list[dict[str, Any]]] = [
    {"name": "¼ GPU", "gpu": 0.25},
    {"name": "½ GPU", "gpu": 0.5},
    {"name": "1 GPU", "gpu": 1},
]
AMOUNTS: Final = ("gpu", "gpu_memory")


@dataclass(frozen=True, slots=True)
class Presets:
    """What is offered, in the administrator's order; names are unique. `problem`: why it is not the
    administrator's list.
    """

    offered: tuple[Preset, ...] = ()
    problem: str | None = None

    def resolved(self, request: KernelRequest) -> KernelRequest:
        """The request with its preset's words where it has none of its own; it keeps the preset's
        name.

        Raises:
            InvalidInput: there is no preset of that name.
        """
        if request.preset is None:
            return request
        preset = next((one for one in self.offered if one.name == request.preset), None)
        if preset is None:
            names = ", ".join(one.name for one in self.offered) or "none"
            raise InvalidInput(
                f"there is no preset {request.preset!r}; there are: {names}", field="preset"
            )
        own = _given(request)
        theirs = {
            name: value
            for name, value in _given(preset.request).items()
            if not (name in AMOUNTS and own.keys() & set(AMOUNTS))
        }
        return KernelRequest(**{**theirs, **own})


def presets_or_usual(entries: Iterable[Mapping[str, Any]]) -> Presets:
    """The administrator's list; when it cannot be read, the usual one and the reason: no notebook
    should fail to start for that.
    """
    try:
        return read_presets(entries)
    except InvalidInput as error:
        problem = f"GpuShareExtension.presets{error.field}: {error.message}; the usual shares are offered instead"
        return Presets(read_presets(DEFAULT_PRESETS).offered, problem)


def read_presets(entries: Iterable[Mapping[str, Any]]) -> Presets:
    """The administrator's list.

    Raises:
        InvalidInput: an entry that makes no sense; its number and field are in `field`.
    """
    offered: list[Preset] = []
    for index, entry in enumerate(entries):
        preset = _read(entry, f"[{index}]")
        if any(one.name == preset.name for one in offered):
            raise InvalidInput(f"{preset.name!r} stands there twice", field=f"[{index}].name")
        offered.append(preset)
    return Presets(tuple(offered))


def _read(entry: Mapping[str, Any], where: str) -> Preset:
    words = {name: value for name, value in entry.items() if name not in ("name", "description")}
    if not isinstance(entry.get("name"), str) or not entry["name"].strip():
        raise InvalidInput("a preset needs a name", field=f"{where}.name")
    if "preset" in words:
        raise InvalidInput("a preset cannot stand for another one", field=f"{where}.preset")
    try:
        request = checked(convert(KernelRequest, words))
    except InvalidInput as error:
        raise InvalidInput(
            error.message, field=f"{where}.{error.field}" if error.field else where
        ) from None
    return Preset(
        name=entry["name"].strip(), description=str(entry.get("description", "")), request=request
    )


def _given(request: KernelRequest) -> dict[str, Any]:
    return {
        name: value for name, value in msgspec.structs.asdict(request).items() if value is not None
    }
