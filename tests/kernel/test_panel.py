"""`gpu.panel()` in a real kernel: live, silent while no page shows it, and independent of cells and
gate.
"""

from __future__ import annotations

import queue

import pytest

from jupyter_gpushare.core.model.errors import InvalidInput

pytestmark = pytest.mark.slow
HALF = {
    "request": {"gpu": 0.5, "gpu_memory_mib": None},
    "project": "vision",
    "gpu_uuid": "SIM-GPU-n-0",
    "node": "n",
    "simulated": True,
}
MEMORY = {"guaranteed": 40960, "used": 71680, "borrowed": 30720}


class Page:
    """A front end with one panel: it follows the widgets' state by comm messages, and clicks."""

    def __init__(self, nb) -> None:
        self.nb = nb
        self.states: dict[str, dict] = {}
        self.comms: set[str] = set()

    def open(self) -> None:
        """Run the cell that shows the panel."""
        msg_id = self.nb.submit("from jupyter_gpushare import gpu\np = gpu.panel()\np")
        self.listen_until(
            lambda message: (
                message["msg_type"] == "status"
                and message["content"]["execution_state"] == "idle"
                and message["parent_header"].get("msg_id") == msg_id
            )
        )
        self.nb.client.get_shell_msg(timeout=60)

    def listen_until(self, seen, timeout: float = 60) -> None:
        while not seen(message := self.nb.client.get_iopub_msg(timeout=timeout)):
            self._take(message)
        self._take(message)

    def _take(self, message) -> None:
        content = message["content"]
        if message["msg_type"] == "comm_open":
            self.states[content["comm_id"]] = dict(content["data"]["state"])
            self.comms.add(content["comm_id"])
        if message["msg_type"] == "comm_msg" and content["data"].get("method") == "update":
            self.states[content["comm_id"]].update(content["data"]["state"])

    def _one(self, model: str, **with_values) -> str:
        return next(
            comm
            for comm, state in self.states.items()
            if state.get("_model_name") == model
            and all(state.get(name) == value for name, value in with_values.items())
        )

    @property
    def card(self) -> str:
        return self.states[self._one("HTMLModel")]["value"]

    def until_card(self, words: str) -> None:
        if words not in self.card:
            self.listen_until(lambda message: self._take(message) or words in self.card)

    def enabled(self) -> set[str]:
        return {
            s["description"]
            for s in self.states.values()
            if s.get("_model_name") == "ButtonModel" and not s["disabled"]
        }

    def click(self, label: str) -> None:
        self.send(
            self._one("ButtonModel", description=label),
            {"method": "custom", "content": {"event": "click"}},
        )

    def views(self, number: int) -> None:
        """As JupyterLab does when a view of the panel is added or removed."""
        self.send(
            self._one("VBoxModel"),
            {"method": "update", "state": {"_view_count": number}, "buffer_paths": []},
        )

    def send(self, comm: str, data: dict) -> None:
        session = self.nb.client.session
        self.nb.client.shell_channel.send(session.msg("comm_msg", {"comm_id": comm, "data": data}))

    def nothing_comes(self) -> bool:
        """Whether the kernel sends no widget update until it has answered one more cell."""
        msg_id, before = (
            self.nb.submit("0"),
            {comm: dict(state) for comm, state in self.states.items()},
        )
        self.listen_until(
            lambda m: (
                m["parent_header"].get("msg_id") == msg_id
                and m["content"].get("execution_state") == "idle"
            )
        )
        self.nb.client.get_shell_msg(timeout=60)
        return before == self.states


@pytest.fixture
def page(agent, notebook):
    agent.answers |= {
        "request": lambda body: {"kernel": agent.kernel},
        "suspend": lambda _: agent.kernel,
        "release": lambda _: {},
    }
    page = Page(notebook())
    page.open()
    return page


def test_it_shows_updates_of_the_agent_at_once(agent, page):
    assert "request a share" in page.card
    assert page.enabled() == {"Request"}
    agent.set_state("attached", **HALF, memory_mib=MEMORY, gpu_memory_total_mib=81920)
    page.until_card("70 GiB of 80 GiB used")
    assert "simulated GPU" in page.card
    assert 'role="meter"' in page.card
    agent.set_state("suspended", **HALF)
    page.until_card("suspended")
    while page.enabled() != {"Change", "Release", "Resume"}:
        page.listen_until(lambda _: True)


def test_a_button_sends_a_request_and_shows_its_refusal(agent, page):
    def refuse(_body):
        raise InvalidInput("unknown project 'moon'", field="project")

    agent.answers["request"] = refuse
    page.click("Request")
    page.until_card("unknown project &#x27;moon&#x27;")
    while (asked := agent.receive("ask"))["action"] != "request":
        pass
    assert asked["body"] == {"gpu": "0.5"}


def test_a_button_does_not_wait_at_the_gate(agent, page):
    agent.set_state("suspended", **HALF)
    page.until_card("suspended")
    agent.received_kinds()
    agent.holding = True  # at the gate it would wait without end
    page.click("Release")
    while agent.receive("ask")["action"] != "release":
        pass
    assert "cell_start" not in agent.received_kinds()


def test_a_slow_reply_delays_no_cell(agent, page):
    answers = queue.Queue()
    agent.answers["request"] = lambda _: answers.get(timeout=60)
    page.click("Request")
    while page.enabled():  # until the reply, all buttons are disabled
        page.listen_until(lambda _: True)
    assert page.nb.run("6 * 7").ok
    answers.put({"kernel": agent.kernel})
    while page.enabled() != {"Request"}:
        page.listen_until(lambda _: True)


def test_nothing_is_sent_while_no_page_shows_it(agent, page):
    page.views(1)
    page.views(0)
    assert page.nothing_comes()
    agent.set_state("attached", **HALF, memory_mib=MEMORY, gpu_memory_total_mib=81920)
    assert page.nothing_comes()
    page.views(1)
    page.until_card("70 GiB of 80 GiB used")


def test_it_shows_that_the_agent_is_not_reachable(agent, page):
    agent.close()
    page.until_card("not reachable")
    agent.open()
    page.until_card("request a share")
    if "not reachable" in page.card:
        page.listen_until(lambda message: page._take(message) or "not reachable" not in page.card)


def test_a_closed_panel_sends_nothing(agent, page):
    assert page.nb.run("p.close()").ok
    agent.set_state("attached", **HALF)
    assert page.nothing_comes()


def test_it_uses_only_the_modules_of_ipywidgets(page):
    """VS Code and others bring these modules, and cannot load others from the Jupyter server."""
    standard = {"@jupyter-widgets/base", "@jupyter-widgets/controls"}
    models = page.states.values()
    assert {state["_model_module"] for state in models} == standard
    assert {state["_view_module"] for state in models if state.get("_view_module")} <= standard
    assert {state["_model_module_version"] for state in models} == {"2.0.0"}


def test_without_widgets_it_is_shown_as_text(page):
    assert "GPU share of this notebook" in page.nb.run("p").text
