"""What a page is told about scheduler and agent: reachable or not, and one sentence why."""

from __future__ import annotations

import pytest

from jupyter_gpushare.messages import ServerWelcome, ServiceStatus
from jupyter_gpushare.server_extension.requests.presets import Presets
from jupyter_gpushare.server_extension.services.status import status_of

SERVICE = ServiceStatus(
    version="1",
    revision=1,
    user="ada",
    projects=["vision"],
    policy_problems=["gpushare.yaml:3: gpu: bad"],
)
WELCOME = ServerWelcome(node="n0", simulated=True, tiers=["suspend"], kernels=[])
WELL = {
    "mode": "embedded",
    "user": "me",
    "simulated": False,
    "presets": Presets(),
    "problem": None,
    "has_started": True,
    "service": SERVICE,
    "scheduler_answers": True,
    "welcome": WELCOME,
    "agent_answers": True,
}
CASES = {
    "all is well but the policy": ({}, True, "gpushare.yaml:3: gpu: bad", True, None),
    "the scheduler is away": (
        {"scheduler_answers": False, "service": None},
        False,
        "the scheduler cannot be reached",
        True,
        None,
    ),
    "the agent is away": (
        {"agent_answers": False},
        True,
        "gpushare.yaml:3: gpu: bad",
        False,
        "the node agent of this machine cannot be reached",
    ),
    "both are starting": (
        {
            "scheduler_answers": False,
            "agent_answers": False,
            "has_started": False,
            "service": None,
            "welcome": None,
        },
        False,
        "the scheduler is starting",
        False,
        "the node agent of this machine is starting",
    ),
    "there is none here": (
        {
            "problem": "no GPU here",
            "scheduler_answers": False,
            "agent_answers": False,
            "service": None,
            "welcome": None,
        },
        False,
        "no GPU here",
        False,
        "no GPU here",
    ),
}


@pytest.mark.parametrize(
    ("change", "scheduler", "why", "agent", "why_agent"), CASES.values(), ids=CASES
)
def test_who_answers_and_why_not(change, scheduler, why, agent, why_agent):
    status = status_of(**{**WELL, **change})
    assert (status.scheduler.reachable, status.scheduler.problem) == (scheduler, why)
    assert (status.agent.reachable, status.agent.problem) == (agent, why_agent)


def test_in_a_remote_server_its_own_user_stands_for_everybody():
    assert status_of(**WELL).user == "ada"
    assert status_of(**{**WELL, "mode": "remote"}).user == "me"


def test_a_simulated_node_is_called_so_before_and_after_its_agent_has_spoken():
    assert status_of(**WELL).simulated
    assert status_of(**{**WELL, "welcome": None, "simulated": True}).simulated
