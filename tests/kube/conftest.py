"""Fixtures of a real Kubernetes cluster, one per session. Without the programs the tests are
skipped.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.kube.assets import missing, program
from tests.kube.audit import assert_only_granted
from tests.kube.control_plane import ControlPlane
from tests.kube.helm import Helm
from tests.kube.lab import Lab
from tests.kube.node import OneNodeCluster


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane. Tests set the status of nodes and pods."""
    if reason := missing():
        pytest.skip(reason)
    made = ControlPlane(tmp_path_factory.mktemp("control-plane"))
    try:
        yield made.start()
        assert_only_granted(made)
    finally:
        made.stop()


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm without a cluster."""
    if program("helm") is None:
        pytest.skip("requires helm: run `make kube-assets`")
    return Helm(tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def one_node_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneNodeCluster]:
    """A cluster with one real node, `node0`, whose pods run."""
    if reason := missing(node=True):
        pytest.skip(reason)
    made = OneNodeCluster(tmp_path_factory.mktemp("node"))
    try:
        yield made.start()
        assert_only_granted(made.control_plane)
    except AssertionError:
        sys.stdout.write(made.control_plane.logs())
        raise
    finally:
        made.stop()


@pytest.fixture(scope="session")
def lab(one_node_cluster: OneNodeCluster, helm: Helm) -> Iterator[Lab]:
    """JupyterHub and gpushare on the cluster. `helm` is a reason to skip."""
    made = Lab(one_node_cluster)
    try:
        yield made.start()
    finally:
        sys.stdout.write(made.logs())  # shown when a test fails
        made.stop()
