"""Compares our structures, numbers and names with a table of NVIDIA's headers.

The table was printed by a C program (sizeof, offsetof, enumerators) from: cuda.h of
nvidia-cuda-runtime-cu12 12.8.90 (drivers 570), nvidia-cuda-runtime 13.0.96 (580) and 13.5.37
(615); nvml.h of nvidia-nvml-dev-cu12 12.9.79 and nvidia-nvml-dev 13.5.37; all x86-64 Linux. Where
they differ, the table has the newest, and a comment explains compatibility with the older one. The
fake driver (tests/fake_driver) is compared with the same table.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path
from typing import Final

import pynvml
import pytest

from node_agent.devices.nvidia import cuda, nvml
from tests.fake_driver.build import HERE as FAKE_DRIVER
from tests.fake_driver.build import libraries

Shape = tuple[int, dict[str, tuple[int, int]]]
"""Size in bytes, and (offset, size) per field."""

CUDA: Final[dict[str, Shape]] = {
    "CUcheckpointLockArgs": (64, {"timeoutMs": (0, 4), "reserved0": (4, 4), "reserved1": (8, 56)}),
    # Until 13.0 all 64 bytes are reserved; both require zeros without custom storage.
    "CUcheckpointCheckpointArgs": (64, {"customStorageInfo_out": (0, 8), "reserved": (8, 56)}),
    "CUcheckpointGpuPair": (32, {"oldUuid": (0, 16), "newUuid": (16, 16)}),
    # 12.8: 64 reserved bytes; 13.0: reserved from 12 on. Zeros are correct for all three.
    "CUcheckpointRestoreArgs": (
        64,
        {
            "gpuPairs": (0, 8),
            "gpuPairsCount": (8, 4),
            "padding0": (12, 4),
            "customStorageInfo_out": (16, 8),
            "reserved": (24, 40),
        },
    ),
    "CUcheckpointUnlockArgs": (64, {"reserved": (0, 64)}),
}
NVML: Final[dict[str, Shape]] = {
    "nvmlProcessInfo_t": (
        24,
        {
            "pid": (0, 4),
            "usedGpuMemory": (8, 8),
            "gpuInstanceId": (16, 4),
            "computeInstanceId": (20, 4),
        },
    ),
    "nvmlMemory_t": (24, {"total": (0, 8), "free": (8, 8), "used": (16, 8)}),
    "nvmlMemory_v2_t": (
        40,
        {"version": (0, 4), "total": (8, 8), "reserved": (16, 8), "free": (24, 8), "used": (32, 8)},
    ),
    "nvmlProcessUtilizationSample_t": (
        32,
        {
            "pid": (0, 4),
            "timeStamp": (8, 8),
            "smUtil": (16, 4),
            "memUtil": (20, 4),
            "decUtil": (28, 4),
        },
    ),
    "nvmlUtilization_t": (8, {"gpu": (0, 4), "memory": (4, 4)}),
    "nvmlFieldValue_t": (
        40,
        {
            "fieldId": (0, 4),
            "scopeId": (4, 4),
            "timestamp": (8, 8),
            "latencyUsec": (16, 8),
            "valueType": (24, 4),
            "nvmlReturn": (28, 4),
            "value": (32, 8),
        },
    ),
    "nvmlEventData_t": (
        32,
        {
            "device": (0, 8),
            "eventType": (8, 8),
            "eventData": (16, 8),
            "gpuInstanceId": (24, 4),
            "computeInstanceId": (28, 4),
        },
    ),
    "nvmlSetMemoryLimits_v1_t": (
        24,
        {"nameSpace": (0, 8), "softLimit": (8, 8), "hardLimit": (16, 8)},
    ),  # since 13.4
    "nvmlGetMemoryLimits_v1_t": (
        32,
        {"nameSpace": (0, 8), "softLimit": (8, 8), "hardLimit": (16, 8), "currentUsed": (24, 8)},
    ),  # since 13.4
}

OURS: Final[dict[str, tuple[type[ctypes.Structure], dict[str, str]]]] = {
    "CUcheckpointLockArgs": (
        cuda._LockArgs,
        {"timeoutMs": "timeout_ms", "reserved0": "padding", "reserved1": "reserved"},
    ),
    "CUcheckpointCheckpointArgs": (cuda._ReservedArgs, {}),
    "CUcheckpointGpuPair": (cuda._GpuPair, {"oldUuid": "old", "newUuid": "new"}),
    "CUcheckpointRestoreArgs": (
        cuda._RestoreArgs,
        {"gpuPairs": "pairs", "gpuPairsCount": "count", "padding0": "padding"},
    ),
    "CUcheckpointUnlockArgs": (cuda._ReservedArgs, {"reserved": "reserved"}),
}
BINDINGS: Final[dict[str, type[ctypes.Structure]]] = {
    "nvmlProcessInfo_t": pynvml.c_nvmlProcessInfo_v3_t,
    "nvmlMemory_t": pynvml.c_nvmlMemory_t,
    "nvmlMemory_v2_t": pynvml.c_nvmlMemory_v2_t,
    "nvmlProcessUtilizationSample_t": pynvml.c_nvmlProcessUtilizationSample_t,
    "nvmlUtilization_t": pynvml.c_nvmlUtilization_t,
    "nvmlFieldValue_t": pynvml.c_nvmlFieldValue_t,
    "nvmlEventData_t": pynvml.c_nvmlEventData_t,
    "nvmlSetMemoryLimits_v1_t": pynvml.c_nvmlSetMemoryLimits_v1_t,
    "nvmlGetMemoryLimits_v1_t": pynvml.c_nvmlGetMemoryLimits_v1_t,
}
IN_C: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "CUcheckpointLockArgs": (
        "lock_args",
        {"timeoutMs": "timeout", "reserved0": "pad", "reserved1": "reserved"},
    ),
    "CUcheckpointCheckpointArgs": (
        "checkpoint_args",
        {"customStorageInfo_out": "storage", "reserved": "reserved"},
    ),
    "CUcheckpointGpuPair": ("gpu_pair", {"oldUuid": "from", "newUuid": "to"}),
    "CUcheckpointRestoreArgs": (
        "restore_args",
        {
            "gpuPairs": "pairs",
            "gpuPairsCount": "count",
            "padding0": "pad",
            "customStorageInfo_out": "storage",
            "reserved": "reserved",
        },
    ),
    "CUcheckpointUnlockArgs": ("unlock_args", {"reserved": "reserved"}),
    "nvmlProcessInfo_t": (
        "process_entry",
        {
            "pid": "pid",
            "usedGpuMemory": "bytes",
            "gpuInstanceId": "gpu_instance",
            "computeInstanceId": "compute_instance",
        },
    ),
    "nvmlMemory_v2_t": ("memory_v2", {name: name for name in NVML["nvmlMemory_v2_t"][1]}),
    "nvmlProcessUtilizationSample_t": (
        "utilization_entry",
        {
            "pid": "pid",
            "timeStamp": "time_us",
            "smUtil": "sm",
            "memUtil": "memory",
            "decUtil": "dec",
        },
    ),
    "nvmlFieldValue_t": (
        "field_value",
        {
            "fieldId": "id",
            "scopeId": "scope",
            "timestamp": "time",
            "latencyUsec": "latency",
            "valueType": "type",
            "nvmlReturn": "result",
            "value": "value",
        },
    ),
    "nvmlEventData_t": (
        "event_data",
        {
            "device": "device",
            "eventType": "type",
            "eventData": "data",
            "gpuInstanceId": "gpu_instance",
            "computeInstanceId": "compute_instance",
        },
    ),
    "nvmlGetMemoryLimits_v1_t": (
        "memory_limits",
        {"nameSpace": "path", "softLimit": "soft", "hardLimit": "hard", "currentUsed": "used"},
    ),
}

CUDA_ERRORS: Final = {
    "SUCCESS": 0,
    "INVALID_VALUE": 1,
    "OUT_OF_MEMORY": 2,
    "NOT_INITIALIZED": 3,
    "DEVICE_UNAVAILABLE": 46,
    "NO_DEVICE": 100,
    "INVALID_DEVICE": 101,
    "INVALID_CONTEXT": 201,
    "OPERATING_SYSTEM": 304,
    "ILLEGAL_STATE": 401,
    "NOT_FOUND": 500,
    "NOT_READY": 600,
    "NOT_PERMITTED": 800,
    "NOT_SUPPORTED": 801,
    "SYSTEM_NOT_READY": 802,
    "SYSTEM_DRIVER_MISMATCH": 803,
    "MPS_CLIENT_TERMINATED": 810,
    "UNKNOWN": 999,
}
STATES: Final = {
    "RUNNING": 0,
    "LOCKED": 1,
    "CHECKPOINTED": 2,
    "FAILED": 3,
    "CHECKPOINTING": 4,
    "RESTORING": 5,
}
NVML_ERRORS: Final = {
    "UNINITIALIZED": 1,
    "INVALID_ARGUMENT": 2,
    "NOT_SUPPORTED": 3,
    "NO_PERMISSION": 4,
    "NOT_FOUND": 6,
    "INSUFFICIENT_SIZE": 7,
    "DRIVER_NOT_LOADED": 9,
    "TIMEOUT": 10,
    "LIBRARY_NOT_FOUND": 12,
    "FUNCTION_NOT_FOUND": 13,
    "GPU_IS_LOST": 15,
    "RESET_REQUIRED": 16,
    "OPERATING_SYSTEM": 17,
    "LIB_RM_VERSION_MISMATCH": 18,
    "INSUFFICIENT_RESOURCES": 23,
    "ARGUMENT_VERSION_MISMATCH": 25,
    "GPU_NOT_FOUND": 28,
    "UNKNOWN": 999,
}
EVENTS: Final = {"xid": 0x8, "ecc": 0x2, "mig": 0x100, "unavailable": 0x4000, "recovery": 0x8000}
RECOVERY_ACTION, MEMORY_V2, NO_LIMIT = 230, 0x2000028, 0xFFFFFFFFFFFFFFFF

SINCE: Final = {
    0: """
        cuInit cuDriverGetVersion cuGetErrorName cuDeviceGet cuDeviceGetCount cuDeviceGetUuid_v2
        cuDeviceTotalMem_v2 cuDevicePrimaryCtxRetain cuDevicePrimaryCtxGetState cuCtxSetCurrent
        cuCtxSynchronize cuMemAlloc_v2 cuMemAllocHost_v2 cuMemAllocManaged cuMemFree_v2
        cuMemGetInfo_v2 cuMemcpyHtoD_v2 cuMemcpyDtoH_v2 cuMemsetD8_v2 cuLaunchKernel
        cuModuleLoadData cuModuleGetFunction
        """,
    570: """
        cuCheckpointProcessGetState cuCheckpointProcessLock cuCheckpointProcessCheckpoint
        cuCheckpointProcessRestore cuCheckpointProcessUnlock
        """,
}
"""First driver -> functions of libcuda.so.1 that we look up by name, after the renaming in cuda.h
(`#define cuMemAlloc cuMemAlloc_v2`), which ctypes does not read.
"""
NOT_IN_FAKE_DRIVER: Final = {"cuMemAllocHost_v2", "cuModuleLoadData", "cuModuleGetFunction"}
"""Only measurements use them, if they exist."""


@pytest.mark.parametrize("name", OURS)
def test_our_structures_match_the_headers(name):
    size, fields = CUDA[name]
    ours, names = OURS[name]
    assert ctypes.sizeof(ours) == size
    for theirs, mine in names.items():
        field = getattr(ours, mine)
        assert (field.offset, field.size) == fields[theirs], theirs
    assert bytes(ours()) == bytes(size), "unset fields are zero, as required for `reserved`"


@pytest.mark.parametrize("name", BINDINGS)
def test_structures_of_the_installed_nvml_binding_match_the_headers(name):
    size, fields = NVML[name]
    assert ctypes.sizeof(BINDINGS[name]) == size
    for field, place in fields.items():
        mine = getattr(BINDINGS[name], field)
        assert (mine.offset, mine.size) == place, field


def test_our_numbers_match_the_headers():
    named = {name for name in CUDA_ERRORS if hasattr(cuda, name)}
    assert len(named) == 8
    assert {name: getattr(cuda, name) for name in named} == {
        name: CUDA_ERRORS[name] for name in named
    }
    assert {state.name: state.value for state in cuda.ProcessState} == STATES
    assert {name: getattr(pynvml, f"NVML_ERROR_{name}") for name in NVML_ERRORS} == NVML_ERRORS
    assert nvml.HEALTH_EVENTS == EVENTS
    assert (nvml.RECOVERY_ACTION_FIELD, pynvml.nvmlMemory_v2, nvml.NO_LIMIT) == (
        RECOVERY_ACTION,
        MEMORY_V2,
        NO_LIMIT,
    )


def test_the_driver_exports_every_name_that_we_look_up():
    """A new name in our code must be checked against cuda.h and added to the table."""
    known = {name for names in SINCE.values() for name in names.split()}
    root = FAKE_DRIVER.parents[1]
    sources = [
        *(root / "node_agent").rglob("*.py"),
        *(root / "jupyter_gpushare/kernel").rglob("*.py"),
        *(root / "tests/gpu").glob("*.py"),
        FAKE_DRIVER / "driver.py",
    ]
    used = {
        name
        for path in sources
        for name in re.findall(r"""["'.](cu[A-Z][A-Za-z]+(?:_v\d)?)\b""", path.read_text())
    }
    assert used <= known
    assert len(used) > 20, "the expression above still matches"


@pytest.mark.parametrize("driver", [535, 570, 615])
def test_the_fake_driver_exports_the_same_names(driver):
    fake = ctypes.CDLL(str(libraries(driver) / "libcuda.so.1"))
    for since, names in SINCE.items():
        for name in set(names.split()) - NOT_IN_FAKE_DRIVER:
            assert hasattr(fake, name) == (driver >= since), name


def test_structures_and_numbers_of_the_fake_driver_match_the_headers(tmp_path):
    """Its C source is compiled with a program that prints sizes and offsets."""
    for source, shapes, numbers in (
        (
            "cuda.c",
            CUDA,
            {name: CUDA_ERRORS[name] for name in set(CUDA_ERRORS) & _enumerators("cuda.c")},
        ),
        (
            "nvml.c",
            NVML,
            {name: NVML_ERRORS[name] for name in set(NVML_ERRORS) & _enumerators("nvml.c")}
            | {"MEMORY_V2": MEMORY_V2},
        ),
    ):
        mine = {name: IN_C[name] for name in shapes if name in IN_C}
        printed = _printed_by_c(tmp_path, source, mine, sorted(numbers))
        expected = (
            {
                f"{of}.{field}": shapes[name][1][theirs]
                for name, (of, fields) in mine.items()
                for theirs, field in fields.items()
            }
            | {of: (shapes[name][0], 0) for name, (of, _) in mine.items()}
            | {name: (value, 0) for name, value in numbers.items()}
        )
        assert printed == expected


def _enumerators(source: str) -> set[str]:
    return set(
        re.findall(
            r"\b[A-Z_]{4,}\b",
            re.search(
                r"^enum \{(.*?)\};", (FAKE_DRIVER / source).read_text(), re.DOTALL | re.MULTILINE
            )[1],
        )
    )


def _printed_by_c(
    folder: Path, source: str, structures: dict[str, tuple[str, dict[str, str]]], numbers: list[str]
) -> dict[str, tuple[int, int]]:
    lines = [f'#include "{FAKE_DRIVER / source}"', "int main(void) {"]
    for of, fields in structures.values():
        lines.append(f'printf("{of} %zu 0\\n", sizeof({of}));')
        for field in fields.values():
            values = f"offsetof({of}, {field}), sizeof((({of} *)0)->{field})"
            lines.append(f'printf("{of}.{field} %zu %zu\\n", {values});')
    lines += [f'printf("{name} %lld 0\\n", (long long)({name}));' for name in numbers]
    program, built = folder / "sizes.c", folder / "sizes"
    program.write_text("\n".join([*lines, "return 0; }"]))
    subprocess.run(
        ["cc", "-std=gnu11", "-w", "-pthread", "-DFAKE_DRIVER=615", "-o", built, program],
        check=True,
        timeout=60,
    )
    output = subprocess.run([built], capture_output=True, text=True, check=True, timeout=60).stdout
    return {
        name: (int(first), int(second))
        for name, first, second in (line.split() for line in output.splitlines())
    }
