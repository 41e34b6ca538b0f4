# SPDX-License-Identifier: GPL-2.0-or-later
"""A daemon looks at its surroundings before it works, and says what is wrong with them."""
import os
import resource
import signal
import socket
import subprocess

import pytest

from conftest import BIN


def few_files():
    resource.setrlimit(resource.RLIMIT_NOFILE, (500, 500))


def test_a_market_that_may_not_have_a_descriptor_for_each_node_says_so(tmp_path):
    config = tmp_path / "m.conf"
    config.write_text(f'listen = "127.0.0.1:0"\nsocket = "{tmp_path}/s"\n'
                      f'state = "{tmp_path}/state"\nnodes_max = 900\ninsecure = true\n')
    argv = [f"{BIN}/marketd", "--config", str(config)]
    told = ("no more than 500 files may be open (hard limit), and 900 agents (nodes_max) need "
            "1924: LimitNOFILE=1924 in its unit, or ulimit -Hn 1924")
    checked = subprocess.run([*argv, "--check-config"], capture_output=True, text=True, timeout=20,
                             preexec_fn=few_files)
    assert (checked.returncode, checked.stderr) == (0, f"marketd: {told}\n")
    assert subprocess.run([*argv, "--check-config"], capture_output=True, text=True,
                          timeout=20).stderr == ""
    daemon = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, preexec_fn=few_files)
    try:
        lines = []
        for line in daemon.stderr:
            lines.append(line)
            if " ready" in line:
                break
        assert any(told in line for line in lines), lines
    finally:
        os.kill(daemon.pid, signal.SIGTERM)
        assert daemon.wait(20) == 0
        daemon.stderr.close()


def test_an_address_that_names_no_machine_is_refused(tmp_path):
    config = tmp_path / "a.conf"
    for address in ("0.0.0.0:7071", "[::]:7071"):
        config.write_text(f'market = "127.0.0.1:7070"\naddress = "{address}"\n')
        checked = subprocess.run([f"{BIN}/agentd", "--config", str(config), "--check-config"],
                                 capture_output=True, text=True, timeout=20)
        assert (checked.returncode != 0 and
                f"address: {address} names no machine" in checked.stderr), checked
        assert len(checked.stderr.splitlines()) == 1


def in_an_etc_of_its_own(files, *argv):
    """Runs a program that sees an /etc with nothing but these files: {name in /etc/souk: text}."""
    script = "mount -t tmpfs souk-test /etc && mkdir /etc/souk && " + "".join(
        f"printf '%s' \"${i + 1}\" > /etc/souk/{name} && "
        for i, name in enumerate(files)) + f'shift {len(files)} && exec "$@"'
    return subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", *files.values(), *argv],
                          capture_output=True, text=True, timeout=20)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a mount namespace (root)")
@pytest.mark.parametrize("daemon", ["marketd", "agentd"])
def test_the_usual_configuration_is_read_if_it_is_there(daemon):
    said = in_an_etc_of_its_own({f"{daemon}.conf": "colour = 3\n"}, f"{BIN}/{daemon}",
                                "--check-config")
    assert (said.returncode, said.stderr) == (
        2, f"{daemon}: /etc/souk/{daemon}.conf:1: colour: unknown key\n")
    said = in_an_etc_of_its_own({}, f"{BIN}/{daemon}", "--check-config")
    if daemon == "marketd":
        assert (said.returncode, said.stderr) == (0, "")  # every value has a default
    else:
        assert said.returncode == 2 and "/etc/souk/agentd.conf" in said.stderr


def test_the_log_says_which_configuration_was_read(tmp_path):
    config = tmp_path / "m.conf"
    config.write_text(f'listen = "127.0.0.1:0"\nsocket = "{tmp_path}/s"\n'
                      f'state = "{tmp_path}/state"\ninsecure = true\n')
    daemon = subprocess.Popen([f"{BIN}/marketd", "--config", str(config)], stderr=subprocess.PIPE,
                              text=True)
    try:
        lines = []
        for line in daemon.stderr:
            lines.append(line)
            if " ready" in line:
                break
        assert any("configuration" in line and str(config) in line for line in lines), lines
    finally:
        os.kill(daemon.pid, signal.SIGTERM)
        assert daemon.wait(20) == 0
        daemon.stderr.close()


@pytest.mark.parametrize("daemon, line, told", [
    ("agentd", 'market = "m1"', "market"),
    ("agentd", 'market = "m1:"', "market"),
    ("agentd", 'market = "m1:0"', "market"),
    ("agentd", 'market = "m1:70700"', "market"),
    ("agentd", 'market = "m 1:7070"', "market"),
    ("agentd", 'market = "10.0.0.300:7070"', "market"),
    ("agentd", 'listen = "7071"', "listen"),
    ("agentd", 'listen = "/run/x"', "listen"),
    ("agentd", 'address = "m1:7071"', "address"),
    ("agentd", f'socket = "/{"x" * 120}"', "socket"),
    ("agentd", 'cgroup = "souk/a b"', "cgroup"),
    ("agentd", 'cgroup = "souk/../x"', "cgroup"),
    ("agentd", 'price = "-1"', "price"),
    ("agentd", 'frames = "daily 8"', "frames"),
    ("agentd", 'job_network = "10.0.0.0/8"\njob_bridge = "a/b"', "job_bridge"),
    ("marketd", 'listen = "7070"', "listen"),
    ("marketd", 'listen = "m1:7070"', "listen"),
    ("marketd", f'socket = "/{"x" * 120}"', "socket"),
])
def test_a_value_with_which_no_daemon_could_run_is_found_by_check_config(tmp_path, daemon, line,
                                                                         told):
    config = tmp_path / "d.conf"
    good = ('node = "n1"\nmarket = "m1:7070"\n'
            if daemon == "agentd" and not line.startswith("market") else "")
    config.write_text(good + line + "\n")
    said = subprocess.run([f"{BIN}/{daemon}", "--config", str(config), "--check-config"],
                          capture_output=True, text=True, timeout=20)
    assert said.returncode == 2 and said.stderr.count("\n") == 1, said
    assert str(config) in said.stderr and told in said.stderr, said.stderr


def test_a_good_configuration_passes_the_check(tmp_path):
    config = tmp_path / "a.conf"
    for market in ("m1:7070", "market.example.org:7070", "10.0.0.1:7070", "[::1]:7070"):
        config.write_text(f'node = "n1"\nmarket = "{market}"\nlisten = "0.0.0.0:7071"\n'
                          f'address = "10.0.0.2:7071"\n')
        said = subprocess.run([f"{BIN}/agentd", "--config", str(config), "--check-config"],
                              capture_output=True, text=True, timeout=20)
        assert (said.returncode, said.stderr) == (0, ""), market


def test_a_market_whose_pages_run_as_nobody_who_is_there_does_not_start(tmp_path):
    config = tmp_path / "m.conf"
    config.write_text(f'listen = "127.0.0.1:0"\nsocket = "{tmp_path}/s"\ninsecure = true\n'
                      f'state = "{tmp_path}/state"\nweb_user = "nobody-is-called-so"\n')
    said = subprocess.run([f"{BIN}/marketd", "--config", str(config)], capture_output=True,
                          text=True, timeout=20)
    assert said.returncode == 1, said
    assert "web_user: this machine has no user 'nobody-is-called-so'" in said.stderr, said


def test_a_market_without_a_certificate_does_not_start_and_says_how_to_make_one(tmp_path):
    config = tmp_path / "m.conf"
    config.write_text(f'listen = "127.0.0.1:0"\nsocket = "{tmp_path}/s"\n'
                      f'state = "{tmp_path}/state"\n')
    said = subprocess.run([f"{BIN}/marketd", "--config", str(config)], capture_output=True,
                          text=True, timeout=20)
    assert said.returncode == 1, said
    assert f"no certificate in {tmp_path}/state/identity" in said.stderr
    assert "souk setup market" in said.stderr and "insecure = true" in said.stderr
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("lines,word", [
    (["job_network = '10.79.64.0/18'"], "both or none"),
    (["job_bridge = 'br0'"], "both or none"),
    (["job_addresses = '10.79.64.64/26'"], "need job_network"),
    (["job_network = '10.79.64.1/18'", "job_bridge = 'br0'"],
     "job_network: '10.79.64.1/18' does not begin"),
    (["job_network = '10.79.64.0/18'", "job_bridge = 'br0'", "job_gateway = '10.80.0.1'"],
     "job_gateway: 10.80.0.1 is not in"),
    (["job_network = '10.79.64.0/18'", "job_bridge = 'br0'", "job_addresses = '10.79.0.0/16'"],
     "job_addresses: 10.79.0.0/16 is not in"),
    (["job_network = '10.79.64.0/18'", "job_bridge = 'br0'",
      "job_addresses = '10.79.64.64/26'", "job_gateway = '10.79.64.65'"], "holds the gateway"),
    (["job_network = '10.79.64.0/18'", "job_bridge = 'br0'", "job_addresses = '10.79.64.64/26'",
      "job_gateway = '10.79.64.1'"], None),
])
def test_a_network_for_jobs_that_cannot_be_is_refused_in_one_line(tmp_path, lines, word):
    path = tmp_path / "agentd.conf"
    path.write_text("\n".join(["market = '10.79.0.1:7070'", *lines, ""]))
    said = subprocess.run([f"{BIN}/agentd", "--config", path, "--check-config"],
                          capture_output=True, text=True, timeout=20)
    if word is None:
        assert said.returncode == 0, said.stderr
    else:
        assert said.returncode == 2 and said.stderr.count("\n") == 1 and word in said.stderr, said


@pytest.mark.parametrize("line, words", [
    ('frames = "daily 8:00-12:00; mon 11:00-13:00"', ("frames", "overlap")),
    ('frames = "mon 9:00-9:00"', ("frames", "ends when it begins")),
    ('frames_zone = "Mars/Phobos"', ("frames_zone", "is no time zone")),
    ('price_curve = "daily 8:00-9:00 = 4; mon 8:30-8:45 = 5"', ("price curve", "overlap")),
    ('share = "here = 120%"', ("share", "more than 100%")),
    ('share = "here = half"', ("share", "no share")),
    ('share = "here = -1 cpus"', ("share", "no number of CPUs")),
    ('price = "2000000000"', ("price", "1000000000")),
    ('price = "-1"', ("price",)),
    ('owner_cpu_percent = 101', ("owner_cpu_percent", "from 0 to 100")),
    ('budget_warn_permille = 1001', ("budget_warn_permille", "from 0 to 1000")),
    ('cpu_weight = 10001', ("cpu_weight", "from 1 to 10000")),
    ('cpus = 0', ("cpus",)),
    ('hidden = "private"', ("hidden", "private")),
    ('hidden = "/"', ("hidden", "/")),
], ids=lambda v: v.split()[0] if isinstance(v, str) else "")
def test_what_an_owners_configuration_cannot_say_is_refused_by_its_key(tmp_path, line, words):
    (tmp_path / "agentd.conf").write_text(f"market = '10.79.0.1:7070'\n{line}\n")
    said = subprocess.run([f"{BIN}/agentd", "--check-config", "--config", tmp_path / "agentd.conf"],
                          capture_output=True, text=True, timeout=20)
    assert said.returncode == 2 and said.stderr.count("\n") == 1, said
    assert all(word in said.stderr for word in words), said.stderr


@pytest.mark.parametrize("lines, says", [
    ('resource_devices = { gpu = "/dev/a /dev/a" }', "/dev/a is listed twice"),
    ('resource_devices = { gpu = "/dev/a", tpu = "/dev/a" }', "/dev/a is listed twice"),
    ('resource_devices = { gpu = "/dev//a" }', "is no file below /dev"),
    ('resource_devices = { gpu = "/dev/../etc/passwd" }', "is no file below /dev"),
    ('resources = { gpu = 1, GPU = 1 }', "GPU and gpu are one variable of a job"),
    ('resources = { gpu-a = 1, gpu_a = 1 }', "are one variable of a job, SOUK_RESOURCE_GPU_A")])
def test_devices_and_names_that_could_not_be_told_apart_are_refused(tmp_path, lines, says):
    config = tmp_path / "agentd.conf"
    config.write_text(f"market = '10.79.0.1:7070'\n{lines}\n")
    said = subprocess.run([f"{BIN}/agentd", "--config", str(config), "--check-config"],
                          capture_output=True, text=True, timeout=20)
    assert said.returncode == 2 and says in said.stderr, said.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's sandbox needs namespaces")
@pytest.mark.parametrize("program", ["souk-handshake", "souk-inspect"])
def test_a_helper_whose_sandbox_cannot_be_made_says_why_before_it_ends(program):
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(20)
    helper = subprocess.Popen(
        ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", f"{BIN}/{program}"],
        preexec_fn=lambda: os.dup2(its.fileno(), 3), pass_fds=[3], stdin=subprocess.DEVNULL)
    its.close()
    try:
        assert b"namespaces of its own: Operation not permitted" in ours.recv(4096)
        assert helper.wait(20) == 1
    finally:
        helper.kill()
        helper.wait()
        ours.close()
