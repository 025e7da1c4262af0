"""`python -m jupyter_gpushare.routes`: writes the generated files."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from jupyter_gpushare.routes import openapi, typescript
from jupyter_gpushare.version import __version__


def main(argv: list[str] | None = None) -> int:
    """Writes the generated files; with `--check`, reports stale ones and exits with 1."""
    parser = argparse.ArgumentParser(
        prog="python -m jupyter_gpushare.routes", description=main.__doc__
    )
    parser.add_argument("--openapi", type=Path, metavar="FILE")
    parser.add_argument("--typescript", type=Path, metavar="FILE")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if a file is stale"
    )
    options = parser.parse_args(argv)
    wanted = {
        options.openapi: json.dumps(openapi(__version__), indent=1) + "\n",
        options.typescript: typescript(),
    }
    stale = [
        path
        for path, text in wanted.items()
        if path is not None and not (path.exists() and path.read_text() == text)
    ]
    for path in stale:
        if options.check:
            print(f"error: {path} is stale; run `make schema`", file=sys.stderr)
        else:
            path.write_text(wanted[path])
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
