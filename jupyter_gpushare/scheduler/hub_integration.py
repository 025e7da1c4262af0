"""Joins a house and a JupyterHub: who asks is found out there, and what its groups' properties say
is added to the policy file.
"""

from __future__ import annotations

import logging

from .auth.jupyterhub import JupyterHub
from .policy.hub_quotas import with_groups
from .policy.policy_file import LoadedPolicy
from .server import SchedulerServer

__all__ = ["joined"]

log = logging.getLogger("gpushare.scheduler")


def joined(server: SchedulerServer, hub: JupyterHub) -> None:
    """From now on this house knows the Hub's people, and what the properties of its groups add to
    the policy.
    """

    def extend(loaded: LoadedPolicy) -> LoadedPolicy:
        extended, problems = with_groups(loaded, hub.groups)
        problems = [hub.problem, *problems] if hub.problem else problems
        for problem in problems:
            if problem not in server.service.unit_of_work.beside_policy:
                log.error("%s", problem)
        server.service.unit_of_work.beside_policy = problems
        server.service.visibility.groups_changed()
        return extended

    server.callers.external = hub
    server.tokens.groups_of = (
        hub.groups_of
    )  # people who come with a token of ours, and those whom a server asks for
    server.beside.append(hub)
    server.loop.extend, hub.changed = extend, server.loop.extend_again
