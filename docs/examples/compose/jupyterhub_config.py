# Any password logs in, and all users are one unix account: only for a look at the parts.
import os

c = get_config()  # noqa: F821 - JupyterHub's configuration

c.JupyterHub.bind_url = "http://0.0.0.0:8000"
c.JupyterHub.hub_bind_url = "http://0.0.0.0:8081"
c.JupyterHub.hub_connect_url = "http://127.0.0.1:8081"
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allowed_users = {"ada", "bob"}
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = "/home/gpushare/{username}"
c.Spawner.start_timeout = c.Spawner.http_timeout = 120
c.Spawner.environment = {
    "GPUSHARE_SCHEDULER": "http://scheduler:8470",
    "GPUSHARE_AGENT_SOCKET": "/run/gpushare/agent.sock",
}

c.JupyterHub.load_groups = {"vision": {"users": ["ada"]}, "language": {"users": ["bob"]}}
c.JupyterHub.services = [{"name": "gpushare", "api_token": os.environ["HUB_TOKEN"]}]
access = "access:services!service=gpushare"
c.JupyterHub.load_roles = [
    {"name": "gpushare", "scopes": ["read:groups", "list:groups"], "services": ["gpushare"]},
    {"name": "gpu-users", "scopes": [access], "groups": ["vision", "language"]},
]
c.Spawner.server_token_scopes = ["users:activity!user", "access:servers!server", access]
