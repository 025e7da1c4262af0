"""The API of a test cluster, as plain dictionaries. Tests use it as the administrator."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import httpx

__all__ = ["Api", "Refused"]

Object = dict[str, Any]
APPLY = "application/apply-patch+yaml"  # JSON is YAML
MERGE = "application/merge-patch+json"


class Refused(Exception):
    """The API server refused a request. `str()` is its message."""

    def __init__(self, response: httpx.Response) -> None:
        try:
            self.status: Object = response.json()
        except ValueError:
            self.status = {"message": response.text}
        super().__init__(self.status.get("message", ""))
        self.code = response.status_code


class Api:
    """Requests to one API server. Kinds are found by discovery."""

    def __init__(
        self,
        server: str,
        ca: Path,
        *,
        certificate: tuple[Path, Path] | None = None,
        token: str | None = None,
    ) -> None:
        context = ssl.create_default_context(cafile=str(ca))
        if certificate is not None:
            context.load_cert_chain(*map(str, certificate))
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(base_url=server, verify=context, headers=headers, timeout=60)
        self._resources: dict[tuple[str, str], Object] = {}

    def close(self) -> None:
        self._http.close()

    # ---- by path

    def call(self, verb: str, path: str, body: object = None, **options: Any) -> Object:
        """The answer. Raises Refused, httpx.TransportError."""
        response = self._http.request(verb, path, json=body, **options)
        if response.status_code >= 400:
            raise Refused(response)
        return response.json() if response.content[:1] == b"{" else {"text": response.text}

    def get(self, path: str, **params: str) -> Object:
        return self.call("GET", path, params=params)

    def items(self, path: str, **params: str) -> list[Object]:
        found = self.get(path, **params)
        known = {"apiVersion": found["apiVersion"], "kind": found["kind"].removesuffix("List")}
        return [known | item for item in found["items"]]

    def create(self, path: str, body: Object) -> Object:
        return self.call("POST", path, body)

    def merge(self, path: str, body: Object) -> Object:
        """A JSON merge patch: `null` removes a field."""
        return self.call("PATCH", path, body, headers={"Content-Type": MERGE})

    def delete(self, path: str, **options: object) -> Object | None:
        """The deleted object; None if there is none."""
        try:
            return self.call(
                "DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1"} | options
            )
        except Refused as error:
            if error.code == 404:
                return None
            raise

    # ---- by object

    def path(self, item: Object, namespace: str = "default") -> str:
        """Where an object is, or would be. Raises KeyError for an unknown kind."""
        resource = self._resource(item["apiVersion"], item["kind"])
        space = item["metadata"].get("namespace", namespace)
        inside = f"/namespaces/{space}" if resource["namespaced"] else ""
        name = item["metadata"]["name"]
        return f"{_group(item['apiVersion'])}{inside}/{resource['name']}/{name}"

    def apply(self, *items: Object, namespace: str = "default", dry_run: bool = False) -> None:
        """Server-side apply. Raises Refused."""
        params = {"fieldManager": "tests", "force": "true", "fieldValidation": "Strict"}
        if dry_run:
            params["dryRun"] = "All"
        for item in items:
            path = self.path(item, namespace)
            self.call("PATCH", path, item, params=params, headers={"Content-Type": APPLY})

    def remove(self, item: Object, namespace: str = "default") -> None:
        self.delete(self.path(item, namespace), propagationPolicy="Background")

    def namespace(self, name: str, **labels: str) -> str:
        self.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        )
        return name

    def log(self, namespace: str, pod: str, container: str = "") -> str:
        """The output of a container. Needs a kubelet."""
        params = {"container": container} if container else {}
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
        response = self._http.get(path, params=params)
        if response.status_code >= 400:
            raise Refused(response)
        return response.text

    def _resource(self, version: str, kind: str) -> Object:
        if (version, kind) not in self._resources:
            for found in self.get(_group(version))["resources"]:
                if "/" not in found["name"]:
                    self._resources[version, found["kind"]] = found
        return self._resources[version, kind]


def _group(version: str) -> str:
    return f"/apis/{version}" if "/" in version else f"/api/{version}"
