"""The address of the documentation, and of the explanation of a code."""

from __future__ import annotations

from typing import Final

__all__ = ["DOCUMENTATION", "address_of_code", "anchor_of", "help_link", "page_of_codes"]

DOCUMENTATION: Final = "https://jupyter-gpushare.readthedocs.io/en/latest"


def page_of_codes() -> str:
    """The page with cause and remedy of every code."""
    return f"{DOCUMENTATION}/reference/errors.html"


def address_of_code(code: str) -> str:
    """Cause and remedy of an error code, a reason or a node condition."""
    return f"{page_of_codes()}#{anchor_of(code)}"


def help_link(code: str) -> str:
    """The same as the value of the header `Link` of an answer."""
    return f'<{address_of_code(code)}>; rel="help"'


def anchor_of(code: str) -> str:
    """The id of its heading. Jupyter's own errors (`http-404`) share one."""
    is_http = code.startswith("http-")
    return "http-status" if is_http else code.lower().replace(" ", "-")
