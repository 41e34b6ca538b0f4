# SPDX-License-Identifier: GPL-2.0-or-later
"""What a daemon says of its surroundings before it works."""
import os
import resource
import signal
import subprocess

from conftest import BIN


def few_files():
    resource.setrlimit(resource.RLIMIT_NOFILE, (500, 500))


def test_a_market_that_may_not_have_a_descriptor_for_each_node_says_so(tmp_path):
    config = tmp_path / "m.conf"
    config.write_text(f'listen = "127.0.0.1:0"\nsocket = "{tmp_path}/s"\nstate = "{tmp_path}/state"\nnodes_max = 900\n')
    argv = [f"{BIN}/marketd", "--config", str(config)]
    told = "no more than 500 files may be open (hard limit), and 900 agents (nodes_max) need 1924: LimitNOFILE=1924 in its unit, or ulimit -Hn 1924"
    checked = subprocess.run([*argv, "--check-config"], capture_output=True, text=True, timeout=20, preexec_fn=few_files)
    assert (checked.returncode, checked.stderr) == (0, f"marketd: {told}\n")
    assert subprocess.run([*argv, "--check-config"], capture_output=True, text=True, timeout=20).stderr == ""
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
        checked = subprocess.run([f"{BIN}/agentd", "--config", str(config), "--check-config"], capture_output=True, text=True, timeout=20)
        assert checked.returncode != 0 and f"address: {address} names no machine" in checked.stderr, checked
        assert len(checked.stderr.splitlines()) == 1
