"""Finds out who makes a call: the scheduler's own tokens first, then JupyterHub's, and on a unix
socket the operating system's word.
"""

from __future__ import annotations

import socket
from collections.abc import Hashable
from typing import Protocol

from tornado.httputil import HTTPServerRequest

from .identity import Identity, NotAuthenticated, TokenService
from .peer_credentials import UnixPeers, uid_of_peer

__all__ = ["Authenticator", "ExternalTokens", "certificate_names", "is_local"]


class ExternalTokens(Protocol):
    """Tokens of somebody else's making, such as JupyterHub's."""

    async def identity(self, secret: str) -> Identity | None:
        """None: not one of theirs. Raises Unavailable: it cannot be asked now."""


class Authenticator:
    """`peers` None: a unix socket says nothing. `foreign` None: only our own tokens count."""

    def __init__(
        self,
        tokens: TokenService,
        *,
        peers: UnixPeers | None = None,
        foreign: ExternalTokens | None = None,
    ) -> None:
        self.tokens, self.peers, self.foreign = tokens, peers, foreign

    async def identify(self, request: HTTPServerRequest) -> Identity | None:
        """None: nobody that we know. A token that is not good is nobody, on a unix socket as well.
        Raises Unavailable.
        """
        header = request.headers.get("Authorization")
        if header is None:
            return self._peer(request)
        try:
            return self.tokens.authenticate(header)
        except NotAuthenticated:
            kind, _, secret = header.strip().partition(" ")
            if (
                self.foreign is None
                or kind.lower() not in ("bearer", "token")
                or not secret.strip()
            ):
                return None
            return await self.foreign.identity(secret.strip())

    def _peer(self, request: HTTPServerRequest) -> Identity | None:
        peer = _socket(request)
        uid = uid_of_peer(peer) if peer is not None and self.peers is not None else None
        return self.peers.identity(uid) if self.peers is not None and uid is not None else None

    @staticmethod
    def key(identity: Identity | None, request: HTTPServerRequest) -> Hashable:
        """Whose bucket a call is counted in: the caller's; of those who are nobody, their
        address's.
        """
        return ("", request.remote_ip) if identity is None else (identity.scope, identity.user)


def _socket(request: HTTPServerRequest) -> socket.socket | None:
    stream = getattr(request.connection, "stream", None)
    found = getattr(stream, "socket", None)
    return found if isinstance(found, socket.socket) else None


def is_local(request: HTTPServerRequest) -> bool:
    """Whether this came over a unix socket."""
    peer = _socket(request)
    return peer is not None and peer.family == socket.AF_UNIX


def certificate_names(request: HTTPServerRequest) -> frozenset[str] | None:
    """The names in the client's certificate, which was verified; None: it showed none."""
    shown = request.get_ssl_certificate()
    if not isinstance(shown, dict) or not shown:
        return None
    subject = [
        value for part in shown.get("subject", ()) for key, value in part if key == "commonName"
    ]
    return frozenset(
        [*subject, *(value for kind, value in shown.get("subjectAltName", ()) if kind == "DNS")]
    )
