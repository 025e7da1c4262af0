"""Integrates a server with a JupyterHub: authentication of the Hub's users, and projects from the
properties of its groups.
"""

from __future__ import annotations

import logging

from .auth.jupyterhub import JupyterHub
from .policy.hub_quotas import with_groups
from .policy.policy_file import LoadedPolicy
from .server import SchedulerServer

__all__ = ["integrate"]

log = logging.getLogger("gpushare.scheduler")


def integrate(server: SchedulerServer, hub: JupyterHub) -> None:
    """Accepts the Hub's users on this server, and extends the policy by its groups' properties."""

    def extend(loaded: LoadedPolicy) -> LoadedPolicy:
        extended, problems = with_groups(loaded, hub.groups)
        problems = [hub.problem, *problems] if hub.problem else problems
        for problem in problems:
            if problem not in server.service.unit_of_work.other_policy_problems:
                log.error("%s", problem)
        server.service.unit_of_work.other_policy_problems = problems
        server.service.visibility.groups_changed()
        return extended

    server.authenticator.external.append(hub)
    server.tokens.groups_of = (
        hub.groups_of
    )  # of owners of tokens, and of users that a server submits for
    server.background_services.append(hub)
    server.loop.extend, hub.changed = extend, server.loop.extend_again
