# The scheduler asks the Hub who presents a token, and in which groups they are.
import os
from pathlib import Path

c = get_config()  # noqa: F821 - Jupyter's configuration

token = Path(os.environ["GPUSHARE_STATE"]) / "hub.token"
token.touch(mode=0o600)
token.write_text(os.environ["HUB_TOKEN"])

c.SchedulerApp.hub_api_url = "http://hub:8081/hub/api"
c.SchedulerApp.hub_api_token_file = str(token)
c.SchedulerApp.hub_service = "gpushare"
