"""People of projects, and what managers do: next turns, suspensions, limits."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Struct, UnsetType, field

from .columns import UNLIMITED_TEXT, column
from .common import Body, Stamp
from .state_labels import StateLabel

__all__ = ["MemberLimit", "People", "PersonNotebook", "PersonRow"]


class PersonNotebook(Body, frozen=True, kw_only=True):
    """A workload of a person. `since`: since when it is in this state; null: not known."""

    id: str
    name: str
    state: StateLabel
    gpu: float
    """GPUs that it holds now."""
    since: Stamp | None = None
    position: int | None = None
    """In the queue; null: it is not waiting."""
    next_turn: bool = False
    """A manager has put it first."""


class PersonRow(Body, frozen=True, kw_only=True):
    """A person in a project with rules between its members or managers."""

    project: Annotated[str, column("Project")]
    user: Annotated[str, column("User")]
    state: Annotated[
        StateLabel, column("State", "The most active state of the person's notebooks.")
    ]
    since: Annotated[Stamp | None, column("Since", "Since when; empty: not known.")]
    gpu: Annotated[float, column("GPUs", "GPUs that the person holds now.")]
    gpu_limit: Annotated[float | None, column("GPU limit", null=UNLIMITED_TEXT)]
    turns_today: Annotated[int, column("Turns today", "How often a GPU was granted today.")]
    gpu_minutes_today: Annotated[
        float, column("GPU minutes today", "Time that shares were held today.")
    ]
    notebook_limit: Annotated[
        int | None, column("Notebook limit", null=UNLIMITED_TEXT, cli=False, dashboard=False)
    ]
    pending_limit: Annotated[
        int | None, column("Waiting limit", null=UNLIMITED_TEXT, cli=False, dashboard=False)
    ]
    managed: Annotated[
        bool, column("Managed", "Whether the caller manages it.", cli=False, dashboard=False)
    ]
    notebooks: Annotated[list[PersonNotebook], column("Notebooks", cli=False)] = field(
        default_factory=list
    )


class People(Body, frozen=True, kw_only=True):
    """Answer of `GET people`: the caller, and everybody in projects that the caller manages."""

    people: list[PersonRow]


class MemberLimit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST people/limit`: limits of one person, within those of the policy. Null: only the
    policy's; absent: unchanged.
    """

    project: str
    user: str
    gpu: float | UnsetType | None = UNSET
    notebooks: int | UnsetType | None = UNSET
    pending: int | UnsetType | None = UNSET
