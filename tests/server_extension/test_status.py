"""The status of scheduler and agent: reachable or not, and why."""

from __future__ import annotations

import asyncio
import dataclasses
import logging

import pytest
from msgspec import structs

from jupyter_gpushare.client import SchedulerClient
from jupyter_gpushare.messages import ServerWelcome, ServiceStatus
from jupyter_gpushare.server_extension.clients.agent_client import AgentClient
from jupyter_gpushare.server_extension.clients.scheduler_transport import LateTransport
from jupyter_gpushare.server_extension.clients.startup import StartupState
from jupyter_gpushare.server_extension.requests.presets import Presets
from jupyter_gpushare.server_extension.services.status import ServiceSettings, StatusService

SERVICE = ServiceStatus(
    version="1",
    revision=1,
    user="ada",
    projects=["vision"],
    policy_problems=["gpushare.yaml:3: gpu: bad"],
)
WELCOME = ServerWelcome(node="n0", simulated=True, tiers=["suspend"], kernels=[])
SETTINGS = ServiceSettings(mode="embedded", user="me", presets=Presets())


def status_of(
    settings=SETTINGS,
    *,
    service=SERVICE,
    scheduler=True,
    welcome=WELCOME,
    agent=True,
    problem=None,
    finished=True,
):
    """The status in this situation; `scheduler`, `agent`: whether they are reachable."""

    async def compose():
        client, startup = SchedulerClient(LateTransport()), StartupState()
        agent_client = AgentClient("/nowhere", logging.getLogger("test"))
        client.reachable, startup.problem, agent_client.welcome = scheduler, problem, welcome
        if agent:
            agent_client.connected.set()
        if finished:
            startup.finished.set()
        status = StatusService(client, agent_client, startup, settings)
        status.service = service
        return status.status()

    return asyncio.run(compose())


CASES = {
    "only the policy is wrong": ({}, True, "gpushare.yaml:3: gpu: bad", True, None),
    "the scheduler is unreachable": (
        {"scheduler": False, "service": None},
        False,
        "the scheduler cannot be reached",
        True,
        None,
    ),
    "the agent is unreachable": (
        {"agent": False},
        True,
        "gpushare.yaml:3: gpu: bad",
        False,
        "the node agent of this machine cannot be reached",
    ),
    "both are starting": (
        {"scheduler": False, "agent": False, "finished": False, "service": None, "welcome": None},
        False,
        "the scheduler is starting",
        False,
        "the node agent of this machine is starting",
    ),
    "this machine has no GPU": (
        {
            "problem": "no GPU here",
            "scheduler": False,
            "agent": False,
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
    ("situation", "scheduler", "why", "agent", "why_agent"), CASES.values(), ids=CASES
)
def test_reachable_or_why_not(situation, scheduler, why, agent, why_agent):
    status = status_of(**situation)
    assert (status.scheduler.reachable, status.scheduler.problem) == (scheduler, why)
    assert (status.agent.reachable, status.agent.problem) == (agent, why_agent)


def test_the_lines_of_a_refused_policy_are_a_list():
    lines = ["gpushare.yaml:5: x", "gpushare.yaml:7: y"]
    status = status_of(service=structs.replace(SERVICE, policy_problems=lines))
    assert status.scheduler.policy_problems == lines
    assert status.scheduler.problem == "gpushare.yaml:5: x; gpushare.yaml:7: y"


def test_in_remote_mode_the_user_is_the_configured_one():
    assert status_of().user == "ada"
    assert status_of(dataclasses.replace(SETTINGS, mode="remote")).user == "me"


def test_simulated_gpus_are_labelled_before_and_after_the_agent_connects():
    assert status_of().simulated
    simulated = ServiceSettings(mode="embedded", user="me", presets=Presets(), simulated=True)
    assert status_of(simulated, welcome=None).simulated


NAMES = {
    "not reached": ("remote", None, "ada-account"),
    "personal token of another name": ("remote", ["ada"], "ada"),
    "server for everyone": ("remote", ["server", "*"], "ada-account"),
    "server for some": ("remote", ["server", "bob", "ada-account"], "ada-account"),
    "server for one other": ("remote", ["ada", "server"], "ada"),
    "embedded": ("embedded", ["ada", "*"], "ada"),
    "older scheduler": ("remote", [], "ada-account"),
    "older scheduler, embedded": ("embedded", [], "ada"),
}


@pytest.mark.parametrize(("mode", "acts_for", "user"), NAMES.values(), ids=NAMES)
def test_the_user_is_the_one_for_whom_requests_are_made(mode, acts_for, user):
    settings = dataclasses.replace(SETTINGS, mode=mode, user="ada-account")
    service = None
    if acts_for is not None:
        service = ServiceStatus(version="1", revision=1, user="ada", acts_for=acts_for)
    assert status_of(settings, service=service).user == user
