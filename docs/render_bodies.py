"""docs/reference/rest-bodies.md: each route of the scheduler with its parameters, body and answer,
and each body with its fields, from docs/openapi.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jupyter_gpushare.kernel.documentation import anchor_of

DOCUMENT = Path(__file__).with_name("openapi.json")
HEAD = (
    "The [routes of the scheduler](rest.md#scheduler) in detail: [openapi.json](../openapi.json) as"
    " a page. Optional fields have a default. Errors have the body [ErrorBody](#errorbody);"
    " [codes](errors.md#errors)."
)
REF = "#/components/schemas/"


def bodies(written: str) -> str:
    """The page."""
    document = json.loads(DOCUMENT.read_text())
    parts = ["# Routes and bodies of the scheduler", written, HEAD, "## Routes"]
    for path, verbs in document["paths"].items():
        for verb, operation in verbs.items():
            parts += _operation(f"{verb.upper()} {path}", operation)
    for stream in document["x-websockets"]:
        parts += [
            f"### WS {stream['path']}",
            stream["summary"],
            f"Who: `{stream['scope']}`. Receives: {_kind(stream['receives'])}."
            + (f" Sends: {_kind(stream['sends'])}." if stream["sends"] else ""),
        ]
    parts.append("## Bodies")
    for name, schema in sorted(document["components"]["schemas"].items()):
        parts += _schema(name, schema)
    return "\n\n".join(parts) + "\n"


def _operation(title: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"### {title}"
    yield operation["summary"]
    facts = [f"Who: `{operation['x-scope']}`."]
    if "requestBody" in operation:
        facts.append(f"Body: {_content(operation['requestBody'])}.")
    responses = operation["responses"]
    facts.append(f"Answer: {_content(responses['200'])}.")
    refusals = [status for status in responses if status != "200"]
    if refusals:
        facts.append(f"Errors: {', '.join(refusals)}.")
    yield " ".join(facts)
    if "parameters" in operation:
        rows = ["| parameter | in | |", "|---|---|---|"]
        rows += [
            f"| `{one['name']}` | {one['in']} | {_cell(one.get('description', ''))} |"
            for one in operation["parameters"]
        ]
        yield "\n".join(rows)


def _content(part: dict[str, Any]) -> str:
    return " or ".join(
        _kind(one["schema"]) if kind == "application/json" else f"`{kind}`"
        for kind, one in part["content"].items()
    )


def _schema(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"### {name}"
    if "description" in schema:
        yield " ".join(schema["description"].split())
    if "properties" not in schema:
        yield f"{_kind(schema)}."
        return
    required = set(schema.get("required", ()))
    rows = ["| field | type | default | |", "|---|---|---|---|"]
    for field, one in schema["properties"].items():
        default = "required" if field in required else f"`{json.dumps(one.get('default'))}`"
        default = default if field in required or "default" in one else "omitted"
        text = _cell(one.get("description", ""))
        rows.append(f"| `{field}` | {_kind(one)} | {default} | {text} |")
    if schema["properties"]:
        yield "\n".join(rows)


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(REF)
        return f"[{name}](#{anchor_of(name)})"
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(_kind(one) for one in schema[key]))
    if "enum" in schema:
        return " or ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    match schema.get("type"):
        case "array":
            return f"list of {_kind(schema['items'])}" if "items" in schema else "list"
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return f"object of {_kind(schema['additionalProperties'])}"
        case None:
            return "any"
        case kind:
            return str(kind)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
