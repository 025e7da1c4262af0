"""A process that executes GPU commands, one line in, one line out.

alloc ORDINAL SIZE | managed ORDINAL SIZE | write POINTER TEXT | read POINTER LENGTH | free POINTER
| launch ORDINAL MS | sync ORDINAL | memory ORDINAL | uuid ORDINAL | count (cuInit, and no context)
| alive.
"""

from __future__ import annotations

import sys

from tests.fake_driver.driver import CudaError, Gpu, count_gpus

gpus: dict[int, Gpu] = {}


def gpu(ordinal: str) -> Gpu:
    """Opened by its first use."""
    number = int(ordinal)
    if number not in gpus:
        gpus[number] = Gpu(number)
    return gpus[number]


def execute(word: str, args: list[str]) -> object:
    """Returns the answer."""
    match word, args:
        case "alloc", [ordinal, size]:
            return gpu(ordinal).alloc(int(size))
        case "managed", [ordinal, size]:
            return gpu(ordinal).alloc(int(size), managed=True)
        case "write", [pointer, text]:
            return gpus[min(gpus)].write(int(pointer), text.encode()) or "ok"
        case "read", [pointer, length]:
            return gpus[min(gpus)].read(int(pointer), int(length)).decode("latin-1")
        case "free", [pointer]:
            return gpus[min(gpus)].free(int(pointer)) or "ok"
        case "launch", [ordinal, milliseconds]:
            return gpu(ordinal).launch(int(milliseconds)) or "ok"
        case "sync", [ordinal]:
            return gpu(ordinal).synchronize() or "ok"
        case "memory", [ordinal]:
            return "{} {}".format(*gpu(ordinal).memory())
        case "uuid", [ordinal]:
            return gpu(ordinal).uuid()
        case "count", []:
            return count_gpus()
        case "alive", []:
            return "yes"
    return f"unknown: {word} {args}"


def main() -> None:
    """Run until the end of the input."""
    for line in sys.stdin:
        word, *args = line.split()
        try:
            answer = execute(word, args)
        except CudaError as error:
            answer = f"error {error.code}"
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
