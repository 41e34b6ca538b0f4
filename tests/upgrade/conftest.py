# SPDX-License-Identifier: GPL-2.0-or-later
"""A market of which each daemon is of one of two versions: SOUK_OLD (a directory of programs) and
SOUK_NEW. Both lie behind one directory of programs, in which agentd and marketd are what the file
use/NAME says, and can be another when they are started again."""
import glob
import importlib.util
import os
import pathlib
import shutil
import sys

OLD, NEW = os.environ["SOUK_OLD"], os.environ["SOUK_NEW"]
DAEMON = """#!/bin/sh
# The version of this daemon that its node is to have: --config .../NAME/DAEMON.conf
for word; do case $word in */$PROGRAM.conf) name=${word%/*} name=${name##*/};; esac; done
exec "$(cat "$USE/${name:-tools}")/$PROGRAM" "$@"
"""


def make_both(place):
    (place / "use").mkdir()
    for name in sorted(set(os.listdir(OLD)) | set(os.listdir(NEW))):
        if name in ("agentd", "marketd"):
            text = DAEMON.replace("$PROGRAM", name).replace("$USE", str(place / "use"))
            (place / name).write_text(text)
            (place / name).chmod(0o755)
        elif name == "souk" and os.path.exists(f"{OLD}/{name}"):
            shutil.copy(f"{OLD}/{name}", place / name)  # it starts what lies beside it
        else:
            tools = OLD if os.path.exists(f"{OLD}/{name}") else NEW
            (place / name).symlink_to(f"{tools}/{name}")
    for who in ("market", "n1", "n2", "n3", "tools"):
        (place / "use" / who).write_text(OLD)


PLACE = pathlib.Path(os.environ["SOUK_BOTH"])
if not (PLACE / "use").exists():
    make_both(PLACE)
os.environ["SOUK_BIN"] = str(PLACE)
os.environ["SOUK_TEST_AGENT_USER"] = ""  # the older `souk up` does not know of it
HERE = os.path.dirname(os.path.abspath(__file__))
CLUSTER = os.path.join(HERE, "..", "cluster")
_spec = importlib.util.spec_from_file_location("cluster", os.path.join(CLUSTER, "conftest.py"))
cluster = importlib.util.module_from_spec(_spec)
sys.modules["cluster"] = cluster
sys.path[:0] = [CLUSTER]  # what it names to pytest
_spec.loader.exec_module(cluster)

fit, standing, market = cluster.fit, cluster.standing, cluster.market
pytest_runtest_makereport = cluster.pytest_runtest_makereport

_down = cluster.Market.down


def down(self):
    """Removes the directories that the newer version keeps beside a node's state. The older `souk
    down` does not know them."""
    for kept in glob.glob(f"{self.run_dir}/state/*-root"):
        shutil.rmtree(kept)
    return _down(self)


cluster.Market.down = down
