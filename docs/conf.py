"""How Sphinx builds the site: `make docs`, or `sphinx-build docs docs/_build/html`.

The pages are written so that they can also be read in the repository. Links that lead out of
`docs` go to the page that includes the file, or to the repository on the web.
"""

from __future__ import annotations

import posixpath
import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

from jupyter_gpushare.cli import COMMANDS
from jupyter_gpushare.version import __version__

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SOURCE = PROJECT["urls"]["Source"].rstrip("/")

project = "jupyter-gpushare"
author = "The jupyter-gpushare maintainers"
copyright = f"{datetime.now(UTC):%Y}, {author}"  # noqa: A001 - Sphinx's name
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_build", "changes/[!R]*"]  # fragments become part of the changes
nitpicky = True
nitpick_ignore_regex = [("py:.*", r".*")]  # types of other projects; links are checked below
default_role = "code"  # docstrings are written with single backticks
suppress_warnings = ["myst.strikethrough"]

myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline", "attrs_block"]
myst_heading_anchors = 4
myst_url_schemes = ["http", "https", "mailto"]

add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_type_aliases = {"Json": "Json"}
napoleon_numpy_docstring = False

html_theme = "pydata_sphinx_theme"
html_title = "jupyter-gpushare"
html_static_path = ["_static"]
html_logo = html_favicon = "_static/logo.svg"
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "icon_links": [
        {"name": "Source", "url": SOURCE, "icon": "fa-brands fa-github"},
        {
            "name": "PyPI",
            "url": "https://pypi.org/project/jupyter-gpushare",
            "icon": "fa-brands fa-python",
        },
    ],
    "logo": {"text": "jupyter-gpushare", "alt_text": "jupyter-gpushare: home"},
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": [], "tutorial": [], "comparison": []}
copybutton_prompt_text = r"\$ "
copybutton_prompt_is_regexp = True

INCLUDED = {"CONTRIBUTING.md": "contributing/index.md", "CHANGELOG.md": "contributing/changelog.md"}
"""Files of the repository that a page includes."""
LINK = re.compile(r"\]\((?P<path>[^)#\s:]+)(?P<anchor>#[^)]*)?\)")


def lead_links_out(_: Sphinx, page: str, source: list[str]) -> None:
    """Relative links that leave `docs`: to the page that includes the file, or to its source."""
    folder = posixpath.dirname(posixpath.join("docs", page))

    def target(link: re.Match[str]) -> str:
        anchor = link["anchor"] or ""
        path = posixpath.normpath(posixpath.join(folder, link["path"]))
        if path in INCLUDED:
            inside = posixpath.relpath(posixpath.join("docs", INCLUDED[path]), folder)
            return f"]({inside}{anchor})"
        is_page = path.startswith("docs/") and not (ROOT / path).is_dir()
        return link[0] if is_page else f"]({SOURCE}/tree/main/{path}{anchor})"

    source[0] = LINK.sub(target, source[0])


HEADING = re.compile(r"^## (?P<name>[a-z-]+)$", re.MULTILINE)


def show_commands(_: Sphinx, page: str, source: list[str]) -> None:
    """The page of commands: in the repository their help as printed, here their options."""
    if page != "reference/commands":
        return
    head, *sections = HEADING.split(source[0])
    names = sections[::2]
    parts = [
        f"## {name}\n\n```{{eval-rst}}\n.. click:: {COMMANDS[name][0]}\n"
        f"   :prog: jupyter gpushare {name}\n   :nested: full\n```\n"
        for name in names
    ]
    source[0] = "\n".join([head, *parts])


def merge_sections(_: Sphinx, doctree: nodes.document) -> None:
    """sphinx-click begins a section of its own below each heading of the page of commands."""
    for outer in list(doctree.findall(nodes.section)):
        inner = outer.children[-1]
        is_command = isinstance(inner, nodes.section) and inner["ids"][0].startswith("jupyter-")
        if is_command and len(outer.children) == 2:
            outer.remove(inner)
            outer["ids"] += inner["ids"]
            outer += inner.children[1:]


def setup(app: Sphinx) -> None:
    """Registers what Sphinx calls."""
    app.connect("source-read", lead_links_out)
    app.connect("source-read", show_commands)
    app.connect("doctree-read", merge_sections, priority=100)  # before the tables of contents
