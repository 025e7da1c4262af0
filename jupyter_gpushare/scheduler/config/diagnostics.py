"""Errors of files that do not match their schema: line, dotted field, and a message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from .documents import Document, FileError, FileErrors, Place, read

__all__ = ["error_object", "name_in", "refuse_if", "schema_problems", "validated", "unknown_name"]

M = TypeVar("M", bound=BaseModel)

_SENTENCES: Final[Mapping[str, Callable[[ErrorDetails], str]]] = {
    "missing": lambda _: "is missing",
    "refused": lambda error: error["msg"],
    "model_type": lambda error: f"must be a mapping, got {_shown(error)}",
    "model_attributes_type": lambda error: f"must be a mapping, got {_shown(error)}",
    "dict_type": lambda error: f"must be a mapping, got {_shown(error)}",
    "list_type": lambda error: f"must be a list, got {_shown(error)}",
    "string_type": lambda error: f"must be text, got {_shown(error)}",
    "int_type": lambda error: f"must be a whole number, got {_shown(error)}",
    "bool_type": lambda error: f"must be true or false, got {_shown(error)}",
    "bool_parsing": lambda error: f"must be true or false, got {_shown(error)}",
    "literal_error": lambda error: (
        f"must be {error.get('ctx', {}).get('expected', '')}, got {_shown(error)}"
    ),
    "greater_than_equal": lambda error: (
        f"must be at least {error.get('ctx', {}).get('ge')}, got {_shown(error)}"
    ),
    "less_than_equal": lambda error: (
        f"must be at most {error.get('ctx', {}).get('le')}, got {_shown(error)}"
    ),
}


def validated(document: Document, shape: type[M]) -> tuple[M | None, list[FileError]]:
    """The document as an instance of its schema, or None and all errors."""
    if document.value is None:
        return None, [document.problem((), "the file is empty")]
    try:
        return shape.model_validate(document.value), []
    except ValidationError as error:
        return None, schema_problems(document, shape, error)


def schema_problems(
    document: Document, shape: type[BaseModel], error: ValidationError, under: Place = ()
) -> list[FileError]:
    """All errors of a validation. `under` is the place of the validated value in the document."""
    problems = []
    for details in error.errors(include_url=False):
        place = tuple(details["loc"])
        problems.append(document.problem((*under, *place), _sentence(details, shape, place)))
    return problems


def unknown_name(
    name: object, known: Mapping[str, object] | list[str] | set[str], what: str
) -> str:
    """`there is no project 'vison'; did you mean 'vision'?`"""
    close = get_close_matches(str(name), sorted(known), n=1)
    return f"there is no {what} {name!r}" + (f"; did you mean {close[0]!r}?" if close else "")


def _sentence(details: ErrorDetails, shape: type[BaseModel], place: Place) -> str:
    if details["type"] == "extra_forbidden":
        known = _keys(shape, place[:-1])
        close = get_close_matches(str(place[-1]), known, n=1)
        return "is not a known key" + (
            f"; did you mean {close[0]!r}?"
            if close
            else f" (known here: {', '.join(known)})"
            if known
            else ""
        )
    say = _SENTENCES.get(details["type"])
    return (
        say(details)
        if say
        else f"{details['msg'][:1].lower()}{details['msg'][1:]}, got {_shown(details)}"
    )


def _shown(details: ErrorDetails) -> str:
    text = repr(details["input"])
    return text if len(text) <= 60 else f"{text[:57]}..."


def _keys(shape: Any, place: Place) -> list[str]:
    """The keys that the schema knows at a place."""
    for step in place:
        shape = _inside(_bare(shape), step)
    shape = _bare(shape)
    return (
        list(shape.model_fields) if isinstance(shape, type) and issubclass(shape, BaseModel) else []
    )


def _bare(annotation: Any) -> Any:
    """A type without `Annotated` and without `| None`."""
    while get_origin(annotation) in (Annotated, Union, UnionType):
        annotation = next(part for part in get_args(annotation) if part is not type(None))
    return annotation


def _inside(annotation: Any, step: str | int) -> Any:
    """The type of one entry."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        known = annotation.model_fields.get(str(step))
        return known.annotation if known else None
    parts = get_args(annotation)
    return parts[-1] if parts else None


def refuse_if(problems: list[FileError]) -> None:
    """Raises FileErrors if there are any."""
    if problems:
        raise FileErrors(problems)


def name_in(file: str) -> str:
    """The `name` in an invalid file, if it can be read, else the name of the file."""
    try:
        value = read(file).value
    except FileErrors:
        value = None
    name = value.get("name") if isinstance(value, dict) else None
    return name if isinstance(name, str) else Path(file).stem


def error_object(name: str, error: FileErrors) -> dict[str, Any]:
    """The result of an invalid file; `field` is "" if the error concerns the whole file."""
    first = error.problems[0]
    said = {
        "code": error.code,
        "message": error.message,
        "field": first.field,
        "file": first.file,
        "line": first.line,
    }
    more = [
        {"field": problem.field, "line": problem.line, "message": problem.message}
        for problem in error.problems
    ]
    return {"name": name, "error": {**said, "problems": more}}
