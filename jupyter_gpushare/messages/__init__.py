"""Every body that crosses a process boundary, typed and (on streams) tagged. Shapes only: no I/O,
no decisions.

Units on the wire: GPUs are numbers (0.5), memory is whole MiB, durations are ms unless the name
says seconds, times are ISO 8601 with a zone (`Stamp`). Four conversations use these bodies:

* REST and streams of the scheduler (`routes.py`, side "scheduler"),
* REST and stream of the Jupyter server extension (`routes.py`, side "jupyter"),
* scheduler <-> node agent: one WebSocket (or an in-process pair of queues): `ToAgent`, `FromAgent`,
* agent <-> the machine's kernels and Jupyter servers: one unix socket, a JSON object per line:
  `FromKernel`, `ToKernel`, `FromServer`, `ToServer`.
"""

from __future__ import annotations

from .agent import *  # noqa: F403 - the face of the package: each part lists its names
from .agent_socket import *  # noqa: F403 - the face of the package: each part lists its names
from .codec import *  # noqa: F403 - the face of the package: each part lists its names
from .common import *  # noqa: F403 - the face of the package: each part lists its names
from .history import *  # noqa: F403 - the face of the package: each part lists its names
from .jupyter import *  # noqa: F403 - the face of the package: each part lists its names
from .scheduler import *  # noqa: F403 - the face of the package: each part lists its names
from .usage import *  # noqa: F403 - the face of the package: each part lists its names
