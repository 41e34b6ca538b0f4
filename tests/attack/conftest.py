# SPDX-License-Identifier: GPL-2.0-or-later
"""Attacks on real daemons. The markets, and what tests ask of them, are those of tests/cluster."""
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CLUSTER = os.path.join(HERE, "..", "cluster")

_spec = importlib.util.spec_from_file_location("cluster", os.path.join(CLUSTER, "conftest.py"))
cluster = importlib.util.module_from_spec(_spec)
sys.modules["cluster"] = cluster
sys.path[:0] = [CLUSTER, HERE]  # what it names to pytest; attack_place.py
_spec.loader.exec_module(cluster)

# For files_tree.py, and for what tests/cluster has that a test here uses.
BIN, LIMIT, alive = cluster.BIN, cluster.LIMIT, cluster.alive
Market, bring_up = cluster.Market, cluster.bring_up
mount_points, read_text, until = cluster.mount_points, cluster.read_text, cluster.until
fit, standing, market = cluster.fit, cluster.standing, cluster.market
pytest_runtest_makereport = cluster.pytest_runtest_makereport
