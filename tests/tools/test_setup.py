# SPDX-License-Identifier: GPL-2.0-or-later
"""souk setup market: what it makes, and for whom."""
import os
import subprocess

import pytest

from conftest import BIN

NOBODY = 65534


def set_up(directory, root_key="root.key", *more):
    return subprocess.run([f"{BIN}/souk", "setup", "market", "--no-restart", "--config",
                           directory / "marketd.conf", "--root-key", directory / root_key, *more],
                          capture_output=True, text=True, timeout=60)


@pytest.fixture
def state(tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "marketd.conf").write_text(f'insecure = true\nstate = "{tmp_path}/state"\n')
    return tmp_path


def test_the_keys_belong_to_whom_the_state_belongs_to_and_nobody_else_reads_them(state):
    if os.geteuid() != 0:
        pytest.skip("only root gives files away")
    os.chown(state / "state", NOBODY, NOBODY)
    done = set_up(state)
    assert done.returncode == 0, done.stderr
    made = [state / "state/identity", *(state / "state/identity").iterdir()]
    assert {"issuing.key", "key.pem", "ticket.keys"} < {path.name for path in made}
    for path in made:
        about = path.lstat()
        assert (about.st_uid, about.st_gid) == (NOBODY, NOBODY), path
        private = path.suffix in (".key", ".keys") or path.name == "key.pem"
        assert not private or about.st_mode & 0o077 == 0, path
    about = (state / "root.key").lstat()
    assert about.st_uid == 0 and about.st_mode & 0o777 == 0o600
    assert "insecure" not in (state / "marketd.conf").read_text()


def test_a_second_time_it_changes_nothing(state):
    assert set_up(state).returncode == 0
    before = {p: p.read_bytes() for p in (state / "state/identity").iterdir()}
    again = set_up(state, "another.key")
    assert again.returncode == 1 and again.stderr.count("\n") == 1
    assert "has its certificates already" in again.stderr
    assert {p: p.read_bytes() for p in (state / "state/identity").iterdir()} == before
    assert not (state / "another.key").exists()


@pytest.mark.parametrize("nodes, why", [("n1,,n2", "'' is not a node name"),
                                        ("n1,a b", "'a b' is not a node name"),
                                        ("n1,n2,n1", "n1 is there twice")])
def test_names_of_nodes_are_looked_at_before_anything_is_made(state, nodes, why):
    done = set_up(state, "root.key", "--nodes", nodes)
    assert done.returncode == 1 and why in done.stderr and done.stderr.count("\n") == 1, done
    assert not (state / "state/identity").exists() and not (state / "root.key").exists()


def test_without_a_market_that_runs_there_are_no_tokens_and_it_says_so(state):
    done = set_up(state, "root.key", "--nodes", "n1,n2")
    assert done.returncode == 1 and "no tokens were made: marketd does not run" in done.stderr
    assert "souk token create NAME" in done.stdout and (state / "root.key").exists()


def site_of(directory, *more):
    return subprocess.run([f"{BIN}/souk", "setup", "site", "--no-restart", "--config", directory,
                           "--root-key", directory / "root.key", *more],
                          capture_output=True, text=True, timeout=60)


@pytest.fixture
def machine(state):
    (state / "node").mkdir()
    (state / "agentd.conf").write_text(f'state = "{state}/node"\nnode = "n7"\n')
    return state


def test_a_site_is_a_market_and_its_node_which_know_each_other(machine):
    done = site_of(machine, "--name", "desk")
    assert done.returncode == 0, done.stderr
    assert "this machine is site desk, and its node n7" in done.stdout
    said = (machine / "agentd.conf").read_text()
    assert 'market = "127.0.0.1:7070"' in said and "node" in said and said.count("node =") == 1
    assert "insecure" not in (machine / "marketd.conf").read_text()
    root = machine / "state/identity/root.pem"
    assert root.read_bytes() == (machine / "node/identity/root.pem").read_bytes()
    again = site_of(machine, "--name", "desk")
    assert again.returncode == 1 and "this machine is a node already" in again.stderr
    (machine / "agentd.conf").unlink()  # the market is still there
    assert "has its certificates already" in site_of(machine, "--name", "desk").stderr


def test_a_site_whose_name_cannot_be_is_not_begun(machine):
    done = site_of(machine, "--name", "a b")
    assert done.returncode == 1 and "'a b' is no name of a site" in done.stderr
    assert not (machine / "state/identity").exists() and not (machine / "root.key").exists()


def addresses(directory, *more):
    return subprocess.run([f"{BIN}/souk", "setup", "addresses", "--no-restart", "--config",
                           directory / "agentd.conf", *more], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=60)


@pytest.fixture
def bridge():
    """A bridge of this machine, in no network; skips where none can be made."""
    name = f"sk{os.getpid() % 1_000_000}"
    if subprocess.run(["ip", "link", "add", name, "type", "bridge"], capture_output=True,
                      timeout=60).returncode != 0:
        pytest.skip("no bridge can be made here")
    yield name
    subprocess.run(["ip", "link", "del", name], check=True, timeout=60)


def test_a_node_gets_addresses_by_the_number_of_its_name(tmp_path, bridge):
    conf = tmp_path / "agentd.conf"
    conf.write_text('node = "lab-3"\nmarket = "m:7070"\njob_bridge = "old"\n')
    done = addresses(tmp_path, "--bridge", bridge)
    assert done.returncode == 0, done.stderr
    wanted = ('node = "lab-3"\nmarket = "m:7070"\njob_network = "10.77.0.0/16"\n'
              f'job_bridge = "{bridge}"\njob_addresses = "10.77.3.0/24"\n')
    assert conf.read_text() == wanted
    said = subprocess.run([f"{BIN}/agentd", "--check-config", "--config", conf],
                          capture_output=True, text=True, timeout=60)
    assert "job_addresses = \"10.77.3.0/24\"" in said.stdout, said
    assert addresses(tmp_path, "--bridge", bridge).returncode == 0
    assert conf.read_text() == wanted


@pytest.mark.parametrize("more, why", [
    (["--addresses", "10.77.3.0/24"], "this machine has no bridge br-jobs"),
    (["--addresses", "10.78.3.0/24"], "10.78.3.0/24 is not in 10.77.0.0/16"),
    (["--addresses", "lots"], "--addresses: "), (["--network", "x"], "--network: "),
    ([], "which addresses are this node's? --addresses RANGE")])
def test_addresses_that_are_none_change_nothing(tmp_path, more, why):
    conf = tmp_path / "agentd.conf"
    conf.write_text('node = "lab"\n')
    done = addresses(tmp_path, *more)
    assert done.returncode == 1 and why in done.stderr and done.stderr.count("\n") == 1, done
    assert conf.read_text() == 'node = "lab"\n'
