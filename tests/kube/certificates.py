"""Certificates and kubeconfig files of a test cluster. The organization is the group."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

NO_SERVER: Final = ("localhost",)
"""Go accepts no certificate with an empty list of names."""
__all__ = ["Certificates"]

SERVER_NAMES: Final = ("localhost", "kubernetes.default.svc", "127.0.0.1")


class Certificates:
    """A certificate authority and what it signed, as files."""

    def __init__(self, folder: Path, server: str, *addresses: str) -> None:
        self.folder, self.server = folder, server
        folder.mkdir(parents=True, exist_ok=True)
        self._authority = trustme.CA()
        self.ca = folder / "ca.crt"
        self._authority.cert_pem.write_to_path(str(self.ca))
        self._authority.private_key_pem.write_to_path(str(folder / "ca.key"))
        self.account_key = folder / "service-accounts.key"
        self.account_key.write_bytes(_rsa_key())
        self._sign("server", *SERVER_NAMES, *addresses, name="kube-apiserver", group="servers")

    def files(self, name: str) -> tuple[Path, Path]:
        """The certificate and the key."""
        return self.folder / f"{name}.crt", self.folder / f"{name}.key"

    def client(self, name: str, user: str, group: str = "test") -> Path:
        """Signs a client certificate; returns the path of its kubeconfig."""
        self._sign(name, name=user, group=group)
        certificate, key = self.files(name)
        return self._kubeconfig(
            name, {"client-certificate": str(certificate), "client-key": str(key)}
        )

    def with_token(self, name: str, token: str) -> Path:
        """The path of a kubeconfig for a bearer token."""
        return self._kubeconfig(name, {"token": token})

    def _kubeconfig(self, name: str, user: dict[str, str]) -> Path:
        cluster = {"server": self.server, "certificate-authority": str(self.ca)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        }
        path = self.folder / f"{name}.kubeconfig"
        path.write_text(json.dumps(config))
        return path

    def _sign(self, file: str, *identities: str, name: str, group: str) -> None:
        signed = self._authority.issue_cert(
            *(identities or NO_SERVER), common_name=name, organization_name=group
        )
        certificate, key = self.files(file)
        signed.cert_chain_pems[0].write_to_path(str(certificate))
        signed.private_key_pem.write_to_path(str(key))


def _rsa_key() -> bytes:
    """Service account tokens need RSA, or ECDSA in a format that trustme does not write."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
