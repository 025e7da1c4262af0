"""Takes the pictures of README and docs from the running product: ``python tests/ui/screenshots.py FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from ui.lab import demo, play

if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images").resolve()
    for story in ("tour.mjs", "story.mjs", "killed.mjs", "dashboard.mjs", "widgets.mjs"):
        with demo() as url:
            play(story, url, str(folder))
    print(*sorted(path.name for path in folder.glob("*.png")), sep="\n")  # noqa: T201 - it is a command
