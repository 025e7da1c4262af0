"""`jupyter gpushare policy`: the schema that editors get, and what differs between two files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.cli.command import gpushare

FOUR = "projects: [{name: vision, pools: {default: {gpu: {quota: 4}}}}]\n"
TWO = FOUR.replace("quota: 4", "quota: 2")
EXAMPLE = Path(__file__).parents[2] / "docs/examples/gpushare.yaml"
RULED = """
node_pools:
  - name: a100
    label: {key: t, value: a}
    rules: {max_waiting: 12h}
    pressure: {disk: 5GiB, memory_stall: 20}
projects:
  - name: vision
    rules: {max_running: 8h, idle: {warn: 20m, suspend: 30m, release: 2h, end: null}}
defaults: {notice: 30s, rules: {max_waiting: never}}
"""


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    result = gpushare("policy", "schema")
    assert result.status == 0
    found: dict[str, Any] = json.loads(result.stdout)
    jsonschema.Draft202012Validator.check_schema(found)
    return found


@pytest.mark.parametrize(
    "text", [FOUR, RULED, EXAMPLE.read_text()], ids=["small", "ruled", "example"]
)
def test_good_files_are_good_for_editors(schema: dict[str, Any], text: str) -> None:
    jsonschema.validate(yaml.safe_load(text), schema)


@pytest.mark.parametrize(
    "text",
    [
        "project: []",
        "projects: [{nme: a}]",
        "defaults: {rules: {max_runing: 8h}}",
        "defaults: {rules: {idle: {suspend: soon}}}",
        "node_pools: [{name: a, workloads_per_gpu: 9}]",
        "projects: 5",
    ],
)
def test_slips_are_underlined(schema: dict[str, Any], text: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(text), schema)


def test_every_key_that_needs_it_is_explained_and_no_default_is_in_our_units(
    schema: dict[str, Any],
) -> None:
    assert "default 30s" in schema["$defs"]["DefaultsSchema"]["properties"]["notice"]["description"]
    assert '"default"' not in json.dumps(schema)


def test_two_files_are_compared_without_a_scheduler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUSHARE_STATE", str(tmp_path / "nobody"))
    (tmp_path / "a.yaml").write_text(FOUR)
    (tmp_path / "b.yaml").write_text(TWO)
    result = gpushare("policy", "diff", tmp_path / "a.yaml", tmp_path / "b.yaml")
    assert (result.status, result.stdout) == (0, "vision: GPU quota in default 4 -> 2\n")
    assert (
        gpushare("policy", "diff", tmp_path / "a.yaml", tmp_path / "a.yaml").stdout
        == "No changes.\n"
    )
    body = json.loads(
        gpushare("policy", "diff", "--json", tmp_path / "a.yaml", tmp_path / "b.yaml").stdout
    )
    assert body["changes"] == [
        {
            "field": "projects.vision.pools.default.gpu.quota",
            "before": "4",
            "after": "2",
            "message": "vision: GPU quota in default 4 -> 2",
        }
    ]


def test_a_bad_file_is_bad_input_and_no_scheduler_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUSHARE_STATE", str(tmp_path / "nobody"))
    (tmp_path / "a.yaml").write_text(FOUR)
    (tmp_path / "bad.yaml").write_text("projects: 5\n")
    result = gpushare("policy", "diff", tmp_path / "a.yaml", tmp_path / "bad.yaml")
    assert result.status == 2
    assert result.stdout == f"{tmp_path}/bad.yaml:1: projects: must be a list, got 5\n"
    assert len(result.stderr.splitlines()) == 1
    alone = gpushare("policy", "diff", tmp_path / "a.yaml")
    assert (alone.status, len(alone.stderr.splitlines())) == (1, 1)
