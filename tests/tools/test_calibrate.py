# SPDX-License-Identifier: GPL-2.0-or-later
"""The speed that a machine is measured to have, and what agentd makes of it."""
import json
import os
import signal
import subprocess
import threading
import time

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
    for _ in range(4):  # what else this machine does may slow down the first of the two
        fast, slow = measured(), measured(slow=True)
        assert fast["runs"] >= 3 and slow["runs"] >= 3
        if slow["speed"] < 0.7 * fast["speed"]:
            break
    assert slow["speed"] < 0.7 * fast["speed"], (fast, slow)
    parts = fast["integer_ms"] + fast["floating_ms"] + fast["memory_ms"]
    assert 0.5 * fast["run_ms"] < parts < 2 * fast["run_ms"], fast


def agentd(tmp_path, *more, text=""):
    config = tmp_path / "a.conf"
    config.write_text(f'node = "n1"\nmarket = "127.0.0.1:1"\nstate = "{tmp_path}/state"\n' + text)
    return subprocess.run([f"{BIN}/agentd", "--config", config, *more], capture_output=True,
                          text=True, timeout=60)


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
