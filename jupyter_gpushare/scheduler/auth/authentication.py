"""Authenticates calls: by the scheduler's own tokens, by tokens of others (JupyterHub, Kubernetes),
and on a unix socket by the peer's user.
"""

from __future__ import annotations

import socket
from collections.abc import Hashable, Sequence
from typing import Protocol

from tornado.httputil import HTTPServerRequest

from .identity import Identity, NotAuthenticated, TokenService
from .peer_credentials import UnixPeers, uid_of_peer

__all__ = ["Authenticator", "ExternalTokens", "certificate_names", "is_local"]


class ExternalTokens(Protocol):
    """Tokens that another service issued, such as JupyterHub or Kubernetes."""

    async def identity(self, secret: str) -> Identity | None:
        """None: not a token of this service. Raises Unavailable: the service does not respond."""


class Authenticator:
    """Without `peers`, unix sockets do not authenticate. Without `external`, only the scheduler's
    own tokens are accepted; otherwise its issuers are asked in this order.
    """

    def __init__(
        self,
        tokens: TokenService,
        *,
        peers: UnixPeers | None = None,
        external: Sequence[ExternalTokens] = (),
    ) -> None:
        self.tokens, self.peers, self.external = tokens, peers, list(external)

    async def identify(self, request: HTTPServerRequest) -> Identity | None:
        """None: not authenticated. An invalid token is not authenticated on a unix socket either.
        Raises Unavailable.
        """
        header = request.headers.get("Authorization")
        if header is None:
            return self._peer(request)
        try:
            return self.tokens.authenticate(header)
        except NotAuthenticated:
            kind, _, secret = header.strip().partition(" ")
            if kind.lower() not in ("bearer", "token") or not secret.strip():
                return None
            for issuer in self.external:
                if (found := await issuer.identity(secret.strip())) is not None:
                    return found
            return None

    def _peer(self, request: HTTPServerRequest) -> Identity | None:
        peer = _socket(request)
        uid = uid_of_peer(peer) if peer is not None and self.peers is not None else None
        return self.peers.identity(uid) if self.peers is not None and uid is not None else None

    @staticmethod
    def key(identity: Identity | None, request: HTTPServerRequest) -> Hashable:
        """The rate limit bucket of a call: the caller's, or the address's if not authenticated."""
        return ("", request.remote_ip) if identity is None else (identity.scope, identity.user)


def _socket(request: HTTPServerRequest) -> socket.socket | None:
    stream = getattr(request.connection, "stream", None)
    found = getattr(stream, "socket", None)
    return found if isinstance(found, socket.socket) else None


def is_local(request: HTTPServerRequest) -> bool:
    """Whether the request came over a unix socket."""
    peer = _socket(request)
    return peer is not None and peer.family == socket.AF_UNIX


def certificate_names(request: HTTPServerRequest) -> frozenset[str] | None:
    """The names in the client's verified certificate; None: no certificate."""
    shown = request.get_ssl_certificate()
    if not isinstance(shown, dict) or not shown:
        return None
    subject = [
        value for part in shown.get("subject", ()) for key, value in part if key == "commonName"
    ]
    return frozenset(
        [*subject, *(value for kind, value in shown.get("subjectAltName", ()) if kind == "DNS")]
    )
