"""The types of every body that crosses a process boundary; messages on streams are tagged. No I/O
and no decisions.

Units on the wire: GPUs are numbers (0.5), memory is whole MiB, durations are ms unless the name
says seconds, times are ISO 8601 with a zone (`Stamp`). Four protocols use these bodies:

* REST and streams of the scheduler (`routes.scheduler`),
* REST and stream of the Jupyter server extension (`routes.jupyter`),
* scheduler <-> node agent: one WebSocket, or a pair of queues in one process: `ToAgent`,
  `FromAgent`,
* agent <-> kernels and Jupyter servers of the machine: one unix socket, one JSON object per line:
  `FromKernel`, `ToKernel`, `FromServer`, `ToServer`.
"""

from __future__ import annotations

from .administration import *  # noqa: F403 - each module lists its public names in __all__
from .agent import *  # noqa: F403 - each module lists its public names in __all__
from .agent_socket import *  # noqa: F403 - each module lists its public names in __all__
from .bookings import *  # noqa: F403 - each module lists its public names in __all__
from .codec import *  # noqa: F403 - each module lists its public names in __all__
from .columns import *  # noqa: F403 - each module lists its public names in __all__
from .common import *  # noqa: F403 - each module lists its public names in __all__
from .csv_format import *  # noqa: F403 - each module lists its public names in __all__
from .history import *  # noqa: F403 - each module lists its public names in __all__
from .jupyter import *  # noqa: F403 - each module lists its public names in __all__
from .kernel_state import *  # noqa: F403 - each module lists its public names in __all__
from .people import *  # noqa: F403 - each module lists its public names in __all__
from .scheduler import *  # noqa: F403 - each module lists its public names in __all__
from .server_socket import *  # noqa: F403 - each module lists its public names in __all__
from .start_preview import *  # noqa: F403 - each module lists its public names in __all__
from .state_labels import *  # noqa: F403 - each module lists its public names in __all__
from .tables import *  # noqa: F403 - each module lists its public names in __all__
from .usage import *  # noqa: F403 - each module lists its public names in __all__
