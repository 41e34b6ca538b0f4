# SPDX-License-Identifier: GPL-2.0-or-later
"""The speed that a machine is measured to have, and what agentd makes of it."""
import json
import os
import pathlib
import signal
import subprocess
import threading
import time

import pytest

from conftest import BIN


def measured(slow=False):
    process = subprocess.Popen([f"{BIN}/souk", "calibrate", "--json"], stdout=subprocess.PIPE)
    ended = threading.Event()

    def slow_down():  # as cpulimit does: it stands two thirds of the time
        while not ended.is_set() and process.poll() is None:
            os.kill(process.pid, signal.SIGSTOP)
            time.sleep(0.02)
            os.kill(process.pid, signal.SIGCONT)
            time.sleep(0.01)

    thread = threading.Thread(target=slow_down) if slow else None
    if thread:
        thread.start()
    said = json.loads(process.stdout.read())
    ended.set()
    if thread:
        thread.join()
    process.stdout.close()
    assert process.wait() == 0
    return said


def test_a_machine_that_is_slower_is_measured_to_be_slower():
    for _ in range(12):  # what else this machine does may slow down the first of the two
        fast, slow = measured(), measured(slow=True)
        assert fast["runs"] >= 3 and slow["runs"] >= 3
        parts = fast["integer_ms"] + fast["floating_ms"] + fast["memory_ms"]
        add_up = 0.5 * fast["run_ms"] < parts < 2 * fast["run_ms"]
        if slow["speed"] < 0.7 * fast["speed"] and add_up:
            break
    assert slow["speed"] < 0.7 * fast["speed"] and add_up, (fast, slow)


def agentd(tmp_path, *more, text=""):
    config = tmp_path / "a.conf"
    config.write_text(f'node = "n1"\nmarket = "127.0.0.1:1"\nstate = "{tmp_path}/state"\n' + text)
    return subprocess.run([f"{BIN}/agentd", "--config", config, *more], capture_output=True,
                          text=True, timeout=60)


def group_of(name):
    """A new control group with a tenth of a processor (cpu.max), in which a shell is put."""
    mounts = [line.split()[1:4] for line in open("/proc/self/mounts")]
    for at, kind, options in mounts:
        v2 = kind == "cgroup2" and "cpu" in open(f"{at}/cgroup.subtree_control").read().split()
        if not v2 and not (kind == "cgroup" and "cpu" in options.split(",")):
            continue
        group = pathlib.Path(at) / name
        try:
            group.mkdir()
        except OSError:
            continue
        if v2:
            (group / "cpu.max").write_text("10000 100000")
        else:
            (group / "cpu.cfs_period_us").write_text("100000")
            (group / "cpu.cfs_quota_us").write_text("10000")
        return group
    return None


def test_two_unlike_machines_rank_rightly_untouched(tmp_path):
    group = group_of(f"souk-calibrate-{os.getpid()}")
    if not group:
        pytest.skip("no controller of cpu here that this test may use")
    speeds = {}
    try:
        for _ in range(12):  # what else this machine does may slow down the first of the two
            for name, enter in (("fast", ""), ("slow", f"echo $$ > {group}/cgroup.procs; ")):
                config = tmp_path / f"{name}.conf"
                config.write_text(f'node = "{name}"\nmarket = "127.0.0.1:1"\n'
                                  f'state = "{tmp_path}/{name}"\n')
                subprocess.run(["sh", "-c", f"{enter}exec {BIN}/agentd --config {config} "
                                "--calibrate"], check=True, capture_output=True, timeout=120)
                speeds[name] = int((tmp_path / name / "speed").read_text())
            if speeds["slow"] < 0.5 * speeds["fast"]:
                break
    finally:
        group.rmdir()
    assert speeds["slow"] < 0.5 * speeds["fast"], speeds


def test_agentd_keeps_the_speed_and_measures_none_beside_guests(tmp_path):
    done = agentd(tmp_path, "--calibrate")
    assert done.returncode == 0, done.stderr
    kept = (tmp_path / "state/speed").read_text()
    assert done.stdout == f"speed {kept.strip()}, kept in {tmp_path}/state/speed\n"
    (tmp_path / "state/guests/n2.1-1").mkdir(parents=True)
    done = agentd(tmp_path, "--calibrate")
    assert done.returncode == 1 and "guests run here" in done.stderr
    assert (tmp_path / "state/speed").read_text() == kept


def test_the_owners_word_holds_over_what_was_measured(tmp_path):
    done = agentd(tmp_path, "--calibrate", text="speed = 70\n")
    assert "the configuration says 70, which holds" in done.stdout, done
