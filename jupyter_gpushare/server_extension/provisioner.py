"""The kernel provisioner: a local kernel that starts at once, with a line to the node agent and
without the server's secrets.

It never waits for a GPU, never raises on a restart, and gives the share back only in
`cleanup(restart=False)`: Jupyter's `kill` and `terminate` do not know whether the kernel comes
back. Without our server extension it is a plain local provisioner.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from tornado.web import HTTPError
from traitlets import Any as AnyTrait

from jupyter_gpushare.core.model.errors import GpuShareError
from jupyter_gpushare.messages import Event, KernelRequest, stamp

from .handlers.api import SETTING
from .kernels.request import CONFIG_FIELDS, from_config, passed_over
from .services.service import GpuShareService

__all__ = ["GpuShareProvisioner", "with_extension"]

SECRETS: Final = re.compile(
    r"^(JUPYTERHUB_API_TOKEN|JPY_API_TOKEN|JUPYTER_TOKEN|GPUSHARE_\w*TOKEN|GPUSHARE_TOKEN_FILE|GPUSHARE_DB_URL|CONFIGPROXY_AUTH_TOKEN)$"
)
"""Of the server, never of the kernel. A kernel's own `GPUSHARE_TOKEN_FILE` is set after these were
taken out.
"""
OURS: Final = (
    "GPUSHARE_KERNEL_ID",
    "GPUSHARE_AGENT",
    "GPUSHARE_LAUNCH",
    "GPUSHARE_SIMGPU",
    "GPUSHARE_WANTS_GPU",
    "GPUSHARE_HIDES_GPUS",
)
"""Of a kernel, never inherited: a server that runs in a kernel's terminal must not pass them on."""
THEIRS: Final = frozenset({"CUDA_VISIBLE_DEVICES", "GPUSHARE_HIDES_GPUS"})
"""Which GPUs a kernel sees: as its kernelspec or its server's environment says, where one does."""
IPYKERNEL: Final = re.compile(r"^ipykernel(_launcher|\.kernelapp)?$")
IN_A_SHELL: Final = re.compile(r"(?<=\s)-m\s+ipykernel(_launcher|\.kernelapp)?(?=\s|$)")
LOADING: Final = ("--ext", "jupyter_gpushare")


def _amount(help_text: str) -> Any:
    # Any value is taken here: a wrong one is answered with our own words at the first start, and
    # never stops a restart.
    return AnyTrait(None, allow_none=True, config=True, help=help_text)


class GpuShareProvisioner(LocalProvisioner):
    """`gpushare-provisioner` in a kernelspec; its `config` is the request."""

    preset = _amount("Name of one of the server's presets, instead of amounts or as their default.")
    gpu = _amount(
        "GPUs that this kernel asks for: 0.5, 2. Nothing: it starts without one and may ask later."
    )
    gpu_memory = _amount("GPU memory instead of a number of GPUs: 20GiB.")
    gpu_limit = _amount("Burst ceiling in GPUs; nothing: the whole GPU.")
    project = _amount("Project; nothing: the person's first.")
    node_pools = _amount("Node pools in order; nothing: the project's.")
    priority_class = _amount("Priority class; nothing: the policy's default.")

    _launches = 0

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        kwargs = await super().pre_launch(**kwargs)
        kwargs["env"] = env = {
            name: value
            for name, value in kwargs["env"].items()
            if not SECRETS.match(name) and name not in OURS
        }
        first, self._launches = self._launches == 0, self._launches + 1
        sharing = self._sharing()
        if sharing is None:
            return kwargs
        request = await self._first_request(sharing) if first else None
        unknown = passed_over(self._config()) if first else ""
        try:
            ours = await sharing.register(
                self.kernel_id,
                name=self._name(env),
                language=self._language(),
                request=request,
                first=first,
            )
            env |= {
                name: value
                for name, value in ours.items()
                if name not in THEIRS or THEIRS.isdisjoint(env)
            }
            if unknown:
                self.log.warning("gpushare: kernel %s: %s", self.kernel_id, unknown)
                sharing.remark(
                    self.kernel_id,
                    Event(time=stamp(time.time_ns() // 1_000_000), kind="refused", message=unknown),
                )
        except Exception:
            # A restart that raises leaves a notebook that says "disconnected" for ever; a kernel
            # without a GPU still works.
            self.log.exception("gpushare: kernel %s starts without a GPU", self.kernel_id)
        kwargs["cmd"] = with_extension(kwargs["cmd"])
        return kwargs

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        # An automatic restart and a person's restart can overlap; the newer launch wins, and nobody
        # is left behind with its ports.
        if self.process is not None and self.process.poll() is None:
            self.log.warning("gpushare: kernel %s was being launched twice", self.kernel_id)
            await self.kill()
            await self.wait()
        return await super().launch_kernel(cmd, **kwargs)

    async def post_launch(self, **kwargs: Any) -> None:
        await super().post_launch(**kwargs)
        sharing = self._sharing()
        if sharing is not None and self.pid:
            sharing.launched(self.kernel_id, self.pid)

    async def send_signal(self, signum: int) -> None:
        await super().send_signal(signum)
        sharing = self._sharing()
        if sharing is not None and signum == signal.SIGINT:
            sharing.interrupted(self.kernel_id)

    async def cleanup(self, restart: bool = False) -> None:
        await super().cleanup(restart=restart)
        sharing = self._sharing()
        if sharing is None:
            return
        if restart:
            sharing.restarting(self.kernel_id)
        else:
            sharing.gone(self.kernel_id)

    # ---- parts

    def _sharing(self) -> GpuShareService | None:
        """The server's, found through the kernel manager's parents; None in nbconvert, papermill,
        `jupyter console`.
        """
        owner: Any = self.parent
        while owner is not None:
            settings = getattr(getattr(owner, "web_app", None), "settings", None)
            if settings is not None:
                found = settings.get(SETTING)
                return found if isinstance(found, GpuShareService) else None
            owner = getattr(owner, "parent", None)
        return None

    async def _first_request(self, sharing: GpuShareService) -> KernelRequest | None:
        try:
            return await self._request(sharing)
        except GpuShareError as error:
            status = error.status_hint if 400 <= error.status_hint < 500 else 400
            raise HTTPError(
                status, f"{error.message} (kernelspec config: {error.field or 'gpu'})"
            ) from None

    async def _request(self, sharing: GpuShareService) -> KernelRequest | None:
        """What the kernelspec asks for, checked by the scheduler when it answers quickly.

        Raises:
            GpuShareError: it makes no sense, or names what there is not.
        """
        request = from_config({name: getattr(self, name) for name in CONFIG_FIELDS})
        if request is None:
            return None
        request = sharing.presets.resolved(request)
        await sharing.check(request)
        return request

    def _config(self) -> Mapping[str, object]:
        """The kernelspec's `config`, as it is written."""
        stanza = (getattr(self.kernel_spec, "metadata", None) or {}).get("kernel_provisioner")
        config = stanza.get("config") if isinstance(stanza, Mapping) else None
        return config if isinstance(config, Mapping) else {}

    def _name(self, env: dict[str, str]) -> str:
        """The notebook's path below the server's root, when Jupyter says it."""
        path = env.get("JPY_SESSION_NAME", "")
        root = getattr(getattr(self.parent, "parent", None), "root_dir", "") or ""
        return (
            os.path.relpath(path, root)
            if path and root and path.startswith(root.rstrip("/") + "/")
            else path
        )

    def _language(self) -> str:
        return str(getattr(self.kernel_spec, "language", "") or "")


def with_extension(cmd: Sequence[str]) -> list[str]:
    """The command of a kernelspec, loading the magics where it starts an IPython kernel: as a
    module, as the module's file, or in the text of a shell's command. Other commands do not know
    `--ext`, and are left as they are.
    """
    for i, (before, word) in enumerate(pairwise(["", *cmd])):
        if (before == "-m" and IPYKERNEL.match(word)) or word.endswith("/ipykernel_launcher.py"):
            return [*cmd[: i + 1], *LOADING, *cmd[i + 1 :]]
        if IN_A_SHELL.search(word):
            return [
                *cmd[:i],
                IN_A_SHELL.sub(lambda found: " ".join((found[0], *LOADING)), word, count=1),
                *cmd[i + 1 :],
            ]
    return list(cmd)
