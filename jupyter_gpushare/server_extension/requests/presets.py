"""Named shares of the administrator, offered in JupyterLab and usable in kernelspecs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.messages import KernelRequest, Preset, convert

from ..kernels.request import checked

__all__ = ["DEFAULT_PRESETS", "Presets", "presets_or_default", "read_presets"]

DEFAULT_PRESETS: Final[list[dict[str, Any]]] = [
    {"name": "¼ GPU", "gpu": 0.25},
    {"name": "½ GPU", "gpu": 0.5},
    {"name": "1 GPU", "gpu": 1},
]
AMOUNTS: Final = ("gpu", "gpu_memory")


@dataclass(frozen=True, slots=True)
class Presets:
    """Presets in the administrator's order, with unique names.

    `problem`: why these are the default presets instead.
    """

    offered: tuple[Preset, ...] = ()
    problem: str | None = None

    def resolved(self, request: KernelRequest) -> KernelRequest:
        """The request with the preset's values where it has none; it keeps the preset's name.

        Raises:
            InvalidInput: no preset has that name.
        """
        if request.preset is None:
            return request
        preset = next((one for one in self.offered if one.name == request.preset), None)
        if preset is None:
            names = ", ".join(one.name for one in self.offered) or "none"
            raise InvalidInput(
                f"unknown preset {request.preset!r}; presets: {names}", field="preset"
            )
        own = _given(request)
        theirs = {
            name: value
            for name, value in _given(preset.request).items()
            if not (name in AMOUNTS and own.keys() & set(AMOUNTS))
        }
        return KernelRequest(**{**theirs, **own})


def presets_or_default(entries: Iterable[Mapping[str, Any]]) -> Presets:
    """The administrator's presets; the default ones and the problem if these are invalid.

    A wrong list must not keep notebooks from starting.
    """
    try:
        return read_presets(entries)
    except InvalidInput as error:
        where = f"GpuShareExtension.presets{error.field}"
        problem = f"{where}: {error.message}; the default presets are offered instead"
        return Presets(read_presets(DEFAULT_PRESETS).offered, problem)


def read_presets(entries: Iterable[Mapping[str, Any]]) -> Presets:
    """The administrator's presets.

    Raises:
        InvalidInput: an entry is invalid; `field` has its number and key.
    """
    offered: list[Preset] = []
    for index, entry in enumerate(entries):
        preset = _read(entry, f"[{index}]")
        if any(one.name == preset.name for one in offered):
            raise InvalidInput(f"duplicate preset {preset.name!r}", field=f"[{index}].name")
        offered.append(preset)
    return Presets(tuple(offered))


def _read(entry: Mapping[str, Any], where: str) -> Preset:
    values = {name: value for name, value in entry.items() if name not in ("name", "description")}
    if not isinstance(entry.get("name"), str) or not entry["name"].strip():
        raise InvalidInput("a preset needs a name", field=f"{where}.name")
    if "preset" in values:
        raise InvalidInput("a preset cannot refer to another preset", field=f"{where}.preset")
    try:
        request = checked(convert(KernelRequest, values))
    except InvalidInput as error:
        raise InvalidInput(
            error.message, field=f"{where}.{error.field}" if error.field else where
        ) from None
    return Preset(
        name=entry["name"].strip(), description=str(entry.get("description", "")), request=request
    )


def _given(request: KernelRequest) -> dict[str, Any]:
    """The fields that differ from their defaults."""
    fields = msgspec.structs.asdict(request)
    return {
        name: value for name, value in fields.items() if value is not None and value is not False
    }
