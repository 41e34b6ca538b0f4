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

# For files_tree.py, for what tests/cluster has that a test here uses, and for what that imports of
# the conftest.py beside it: all of it, also what comes to be there later.
for _name, _value in vars(cluster).items():
    if not _name.startswith("_"):
        globals().setdefault(_name, _value)
