"""Takes the screenshots of README and docs: ``python tests/ui/screenshots.py FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.ui import terminal_picture
from ui.lab import demo, demo_without_turns, run_script

STORIES = (
    "request_and_wait.mjs",
    "story.mjs",
    "kernel_killed.mjs",
    "dashboard.mjs",
    "charts.mjs",
    "widgets.mjs",
)
WITHOUT_TURNS = ("request_and_wait.mjs",)
FRAMES = {
    "two-halves-burst": "1. Two notebooks have half a GPU each and borrow memory: 70 of 80 GiB.",
    "a-whole-gpu-lands": "2. A third one gets a whole GPU; a notebook is saved and moved.",
    "moved-and-kept": "3. Both continue with their data on the other GPU. The sidebar says why.",
    "spread-again": "4. The third notebook ends: both spread out again.",
}
WIDTH = 1088
CAPTION = 44
EACH_MS = 4000


def animate(folder: Path) -> None:
    """The animation of the README, made of the screenshots of the tutorial."""
    frames = [framed(Image.open(folder / f"{name}.png"), words) for name, words in FRAMES.items()]
    frames[0].save(
        folder / "story.webp",
        save_all=True,
        append_images=frames[1:],
        duration=EACH_MS,
        loop=0,
        quality=88,
        method=6,
    )


def framed(picture: Image.Image, words: str) -> Image.Image:
    """A screenshot with its caption."""
    small = picture.convert("RGB").resize(
        (WIDTH, round(picture.height * WIDTH / picture.width)), Image.Resampling.LANCZOS
    )
    frame = Image.new("RGB", (WIDTH, small.height + CAPTION), "#263238")
    frame.paste(small)
    ImageDraw.Draw(frame).text(
        (16, small.height + CAPTION // 2),
        words,
        fill="white",
        font=ImageFont.load_default(18),
        anchor="lm",
    )
    return frame


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images").resolve()
    for story in STORIES:
        with (demo_without_turns if story in WITHOUT_TURNS else demo)() as url:
            run_script(story, url, str(folder))
    animate(folder)
    terminal_picture.take(folder / "top.svg")
    print(*sorted(path.name for path in folder.iterdir()), sep="\n")  # noqa: T201 - it is a command
