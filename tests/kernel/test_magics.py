"""The magics in a real kernel: their requests, their output, and their errors."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.kernel.magics.verbs import VERBS
from jupyter_gpushare.messages import KernelRequest, convert
from jupyter_gpushare.server_extension.kernels.request import checked

pytestmark = pytest.mark.slow
MISTAKES = {
    "%gpu request 7e9": "SHARE is too many GPUs",
    "%gpu request -1": "SHARE must not be negative",
    "%gpu request nan": "SHARE must be a number of GPUs",
    "%gpu request 0": "SHARE must be more than 0",
    "%gpu request": "the share is missing",
    "%gpu request 0.5 --memory 20GiB": "exclude each other",
    "%gpu request --memory much": "--memory must be a size",
    "%gpu request --memory 20": "--memory needs a unit: 20GiB or 20MiB",
    "%gpu request 0.5 --limit x": "--limit must be a number of GPUs",
    "%gpu request 0.5 --nonsense": "unrecognized arguments: --nonsense",
    '%gpu request "0.5': "no closing quotation",
    "%gpu request --memory": "expected one argument; see `%gpu request --help`",
    "%gpu fly": "unknown verb 'fly' of %gpu",
    "%gpu request 0.5 --project nope": "unknown project 'nope'",
    "%gpu wait": "nothing to wait for",
}


def refuse_unknown_project(body):
    """Validates like the Jupyter server, then refuses the project."""
    checked(convert(KernelRequest, body))
    raise InvalidInput(f"unknown project {body['project']!r}", field="project")


def test_every_error_is_one_line_and_the_cell_fails(agent, notebook):
    agent.answers["request"] = refuse_unknown_project
    nb = notebook()
    for cell, words in MISTAKES.items():
        result = nb.run(cell)
        assert result.reply["status"] == "error", cell
        assert result.reply["ename"] == "UsageError", cell
        assert words in result.text, cell
        assert len(result.text.strip().splitlines()) == 1, result.text


def test_a_request_is_sent_as_written_and_waited_for(agent, notebook):
    def grant(body):
        agent.set_state(
            "attached",
            simulated=True,
            gpu_uuid="SIM-GPU-n-0",
            node="n",
            gpu_memory_total_mib=81920,
            project="vision",
            request={"gpu": 0.5, "gpu_memory_mib": None},
            memory_mib={"guaranteed": 40960, "used": 71680, "borrowed": 30720},
        )
        return {"kernel": agent.kernel}

    agent.answers["request"] = grant
    nb = notebook()
    result = nb.run(
        "%gpu request 0.5 --limit 1.0 --project vision --pool a100,default --priority train"
    )
    assert agent.receive("ask")["body"] == {
        "gpu": "0.5",
        "gpu_limit": "1.0",
        "project": "vision",
        "node_pools": ["a100", "default"],
        "priority_class": "train",
    }
    while not agent.receive("cell_start")["wait"]:
        pass
    for words in (
        "(simulated GPU)",
        "SIM-GPU-n-0 on n",
        "0.5 GPU = 40 GiB guaranteed",
        "70 GiB of 80 GiB used, 30 GiB borrowed",
    ):
        assert words in result.text


def test_a_cell_with_its_own_share_fails_with_its_error_and_releases_the_share(agent, notebook):
    asked = []

    def grant(body):
        asked.append(body)
        agent.set_state("attached")
        return {"kernel": agent.kernel}

    def release(body):
        asked.append("release")
        agent.set_state("detached")
        return {}

    agent.answers |= {"request": grant, "release": release}
    nb = notebook()
    result = nb.run("%%gpu 1.0\nx = 6 * 7\nprint(x)\nraise KeyError('mine')")
    assert (result.reply["ename"], asked) == ("KeyError", [{"gpu": "1.0"}, "release"])
    assert [one["msg_type"] for one in result.outputs] == ["stream", "error"]
    assert nb.run("print(x)").text == "42\n"


def test_functions_return_mappings_and_raise_errors_of_one_line(agent, notebook):
    agent.answers["request"] = refuse_unknown_project
    nb = notebook()
    assert (
        nb.run("from jupyter_gpushare import gpu\nprint(gpu.status()['state'])").text
        == "detached\n"
    )
    assert "request a share" in nb.run("gpu.status()").text
    assert nb.run("import json; json.dumps(gpu.status())").ok
    result = nb.run("gpu.request(0.5, project='nope')")
    assert (result.reply["ename"], result.reply["evalue"]) == ("GpuError", "unknown project 'nope'")
    assert result.reply["traceback"] == ["GpuError: unknown project 'nope'"]


@pytest.mark.parametrize("pools", ["pool='a, b'", "pools='a,b'", "pools=['a', 'b']"])
def test_functions_accept_the_options_of_the_magics(agent, notebook, pools):
    asked = []
    agent.answers["request"] = lambda body: asked.append(body) or {"kernel": agent.kernel}
    asks = f"gpu.request(0.5, limit=1, project='p', {pools}, priority='train', wait=False)"
    assert notebook().run(f"from jupyter_gpushare import gpu\n{asks};").ok
    assert asked == [
        {
            "gpu": 0.5,
            "gpu_limit": 1,
            "project": "p",
            "node_pools": ["a", "b"],
            "priority_class": "train",
        }
    ]


def test_the_status_shows_that_the_agent_is_not_reachable(agent, notebook):
    nb = notebook()
    nb.run("1")
    agent.close()
    assert "not reachable" in nb.run("import time; time.sleep(0.1)\n%gpu").text


def test_cells_ask_the_agent_only_while_the_extension_is_loaded(agent, notebook):
    agent.kernel["state"] = "attached"
    nb = notebook()
    nb.run("1")
    agent.receive("cell_end")
    assert nb.run("%unload_ext jupyter_gpushare").text == ""
    assert nb.run("2").text == "2"
    assert "cell_start" not in agent.received_kinds()[1:], "the first one was that of %unload_ext"
    nb.run("%load_ext jupyter_gpushare")
    agent.receive("kernel_hello")  # the connection is made in a thread
    for _ in range(100):
        nb.run("3")
        if "cell_start" in agent.received_kinds():
            break
    else:
        pytest.fail("no cell asked the agent")


HELP = {
    "%gpu --help": ("usage: %gpu [VERB]", "release the GPU", "%gpu request 0.5"),
    "%gpu -h": ("usage: %gpu [VERB]",),
    "%gpu request --help": (
        "usage: %gpu request",
        "--memory SIZE",
        "--queue-anyway",
        "%gpu request 0.5",
    ),
    "%gpu what-if 0.5 --help": ("usage: %gpu what-if", "Show whether a request would start now"),
    "%gpu release -h": ("usage: %gpu release", "%gpu release"),
    "%gpu history --help": ("--minutes N", "%gpu history --minutes 15"),
    "%%gpu --help\nraise SystemError": ("usage: %%gpu", "%%gpu 1"),
}


def test_every_verb_has_usage_with_options_examples_and_a_link(agent, notebook):
    nb = notebook()
    for cell, words in HELP.items():
        result = nb.run(cell)
        assert result.ok, cell
        for expected in (*words, "examples:", "Documentation: docs/reference/notebook.md"):
            assert expected in result.text, cell
    for verb in VERBS:
        assert f"usage: %gpu {verb}" in nb.run(f"%gpu {verb} --help").text
    pager = nb.run("%gpu?").reply["payload"][0]["data"]["text/plain"]
    assert "usage: %gpu [VERB]" in pager
    assert "ask" not in agent.received_kinds(), "help needs no answer"


def test_a_request_may_stay_in_the_queue_although_no_node_can_run_it(agent, notebook):
    asked = []
    agent.answers["request"] = lambda body: asked.append(body) or {"kernel": agent.kernel}
    nb = notebook()
    assert nb.run("%gpu request 3 --queue-anyway --no-wait").ok
    assert nb.run(
        "from jupyter_gpushare import gpu\ngpu.request(3, queue_anyway=True, wait=False);"
    ).ok
    assert asked == [{"gpu": "3", "queue_anyway": True}, {"gpu": 3, "queue_anyway": True}]
