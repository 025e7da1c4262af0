"""Every route of both REST services, in two tables. The handlers are elsewhere.

`route` says what a route is, `scheduler` and `jupyter` are the tables. `openapi_document` and
`typescript_types` derive the OpenAPI document and the types of the front end;
`python -m jupyter_gpushare.routes` writes them.
"""

from __future__ import annotations

from .jupyter import JUPYTER_ROUTES
from .openapi_document import openapi
from .route import API_ROOT, Route
from .scheduler import ROUTES
from .typescript_types import typescript

__all__ = ["API_ROOT", "JUPYTER_ROUTES", "ROUTES", "Route", "openapi", "typescript"]
