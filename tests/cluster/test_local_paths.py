# SPDX-License-Identifier: GPL-2.0-or-later
"""For a job, some directories lie over the files of its home: directories of the node that it asks
for (srun --local-path), and a /tmp that is the node's or its own (files_tmp). The home is n1, the
slowest; each other node has a /srv and a /tmp of its own."""
import os
import pathlib
import re
import shutil
import signal
import tempfile

import pytest

from codes import refused
from conftest import Market, bring_up, read_text, until

pytestmark = pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="no /dev/fuse here")

# Holds a file of DIR open while the file "hold" is there, and counts.
HOLDS = """
exec 3< /dev/null
n=0
while [ ! -e enough ]; do
    if [ -e hold ]; then exec 3>> DIR/held; echo $n >&3; else exec 3< /dev/null; fi
    n=$((n + 1))
    echo $n > count.new
    mv count.new count
    sleep 0.02
done
"""


@pytest.fixture(scope="module")
def standing(fit):
    yield from bring_up(Market("--nodes", "3", "--speeds", "60,100,80", "--private-files"))


@pytest.fixture
def top(market, tmp_path):
    return tmp_path


def configure(market, node, line):
    with open(f"{market.run_dir}/{node}/agentd.conf", "a") as f:
        f.write(line + "\n")
    reload(market, node)


def reload(market, node):
    log = f"{market.run_dir}/{node}/log"
    before = read_text(log).count("configuration read again")
    os.kill(market.daemon(node)["pid"], signal.SIGHUP)
    until("it has read that", lambda: read_text(log).count("configuration read again") > before)


@pytest.fixture
def with_lines(market):
    """Lines of the configuration of nodes, for one test."""
    kept = {}

    def add(node, line):
        path = f"{market.run_dir}/{node}/agentd.conf"
        kept.setdefault(node, read_text(path))
        configure(market, node, line)
    yield add
    for node, text in kept.items():
        with open(f"{market.run_dir}/{node}/agentd.conf", "w") as f:
            f.write(text)
        reload(market, node)


@pytest.fixture
def scratch(market, with_lines):
    """A directory of n1, and others of that name of n2 and n3."""
    name = f"/srv/souk-test-{os.getpid()}"
    for node in ("n1", "n2", "n3"):
        os.mkdir(of_node(market, node, name))
    yield name
    for node in ("n1", "n2", "n3"):
        shutil.rmtree(of_node(market, node, name))


@pytest.fixture
def offered(scratch, with_lines):
    for node in ("n2", "n3"):
        with_lines(node, f'local_paths = "/opt {scratch}"')
    return scratch


@pytest.fixture
def apart():
    """A directory of n1 that is not in its /tmp."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        yield pathlib.Path(name)


def of_node(market, node, path):
    return f"/proc/{market.daemon(node)['pid']}/root{path}"


def counts(top):
    before = read_text(top / "count")
    until("it goes on", lambda: read_text(top / "count") not in ("", before))


def test_a_job_has_the_directory_of_its_node_and_the_rest_of_its_home(market, top, offered):
    (top / "in").write_text("of the home\n")
    job = market.srun("-p", 50, "--node", "n1", "--local-path", offered, "/bin/sh", "-c",
                      f"cp in {offered}/copy; ls -a {offered} > out", cwd=top)
    assert job.wait() == 0, job.told
    assert market.job(job.id)["places"] == ["n2"]
    assert read_text(of_node(market, "n2", f"{offered}/copy")) == "of the home\n"
    assert os.listdir(offered) == [] and "copy" in (top / "out").read_text()


def test_who_does_not_ask_sees_its_home_there(market, top, scratch):
    job = market.srun("-p", 50, "--node", "n1", "/bin/touch", f"{scratch}/mine", cwd=top)
    assert job.wait() == 0 and market.job(job.id)["places"] == ["n2"]
    assert os.listdir(scratch) == ["mine"]


def test_a_node_that_does_not_offer_it_is_barred_with_the_reason(market, top, scratch, with_lines):
    with_lines("n3", f'local_paths = "{scratch}"')
    job = market.srun("-p", 50, "--node", "n1", "--local-path", scratch, "/bin/sh", "-c",
                      f"echo here > {scratch}/which", cwd=top)
    assert job.wait() == 0, job.told
    assert "path_not_offered" in re.findall(r" CODE=(\w+)", read_text(f"{market.run_dir}/n2/log"))
    assert market.job(job.id)["places"] == ["n3"]
    assert read_text(of_node(market, "n3", f"{scratch}/which")) == "here\n"


def test_it_moves_unless_a_file_is_open_that_the_other_node_has_not(market, top, offered):
    job = market.srun("-p", 50, "--node", "n1", "--local-path", offered, "/bin/sh", "-c",
                      HOLDS.replace("DIR", offered), cwd=top)
    market.until_runs(job.id, "n2")
    counts(top)
    for node in ("n3", "n1", "n2"):
        market.tool("marketctl", "--hold", "move", job.id, node)
        market.until_runs(job.id, node)
        counts(top)
    (top / "hold").touch()
    held = of_node(market, "n2", f"{offered}/held")
    until("it has it open", lambda: read_text(held).count("\n") > 1)
    done = market.tool("marketctl", "--wait", "60s", "--hold", "move", job.id, "n3", check=False,
                       limit=70)
    assert f"{offered}/held" in refused(done, "file_not_opened"), done
    counts(top)  # there, as before
    assert read_text(of_node(market, "n3", f"{offered}/held")) == ""
    (top / "hold").unlink()
    counts(top)
    counts(top)
    market.tool("marketctl", "--hold", "move", job.id, "n3")
    market.until_runs(job.id, "n3")
    (top / "enough").touch()
    assert job.wait() == 0, job.told


def test_what_cannot_lie_over_a_home_is_refused_at_once(market, top):
    for code, *words in (("not_found", "--files=home", "--local-path", "/no-such"),
                         ("invalid", "--files=local", "--local-path", "/srv")):
        refused(market.tool("srun", "-p", "50", "-d", *words, "true", check=False), code)


def test_a_tmp_of_its_own_goes_along_and_is_nobody_elses(market, apart, with_lines):
    with_lines("n1", 'files_tmp = "private"')
    name = f"souk-test-{os.getpid()}"
    job = market.srun("-p", 50, "--node", "n1", "/bin/sh", "-c",
                      f"echo mine > /tmp/{name}; exec 4< /tmp/{name}\n"
                      + HOLDS.replace("DIR", "/tmp") + f"cat /tmp/{name} <&4; ls /tmp", cwd=apart)
    market.until_runs(job.id, "n2")
    (apart / "hold").touch()
    counts(apart)
    for node in ("n3", "n1", "n2"):
        market.tool("marketctl", "--hold", "move", job.id, node)
        market.until_runs(job.id, node)
        counts(apart)
        for each in ("n1", "n2", "n3"):
            assert not os.path.exists(of_node(market, each, f"/tmp/{name}"))
    (apart / "enough").touch()
    assert job.wait() == 0, job.told
    assert bytes(job.out).decode().split() == ["mine", "held", name]


def test_with_the_tmp_of_its_node_it_moves_when_it_holds_nothing_there(market, apart, with_lines):
    with_lines("n1", 'files_tmp = "node"')
    job = market.srun("-p", 50, "--node", "n1", "/bin/sh", "-c", HOLDS.replace("DIR", "/tmp"),
                      cwd=apart)
    market.until_runs(job.id, "n2")
    (apart / "hold").touch()
    held = of_node(market, "n2", "/tmp/held")
    until("it has it open", lambda: read_text(held).count("\n") > 1)
    done = market.tool("marketctl", "--wait", "60s", "--hold", "move", job.id, "n3", check=False,
                       limit=70)
    refused(done, "holds_node_file")
    counts(apart)
    (apart / "hold").unlink()
    counts(apart)
    counts(apart)
    market.tool("marketctl", "--hold", "move", job.id, "n3")
    market.until_runs(job.id, "n3")
    (apart / "enough").touch()
    assert job.wait() == 0, job.told
    os.unlink(held)
