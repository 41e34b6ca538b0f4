# SPDX-License-Identifier: GPL-2.0-or-later
"""Others take away what a job has by a name, while it lies frozen on a disk. It thaws in
directories that are made again; else it is told which path is to be brought back, and thaws
then."""
import json
import os
import shutil
import subprocess

import pytest

from conftest import until

JOB = """
import ctypes, os, socket, sys
what, path = sys.argv[1:]
if what == "directories":
    kept = os.open(path, os.O_RDONLY)
    os.chdir(path + "/inside")
if what == "fifo": kept = os.open(path, os.O_RDWR)
if what == "watched":
    kept = ctypes.CDLL(None).inotify_init1(0)
    assert ctypes.CDLL(None).inotify_add_watch(kept, path.encode(), 2) > 0
if what == "socket":
    kept = socket.socket(socket.AF_UNIX)
    kept.bind(path)
    kept.listen(3)
print("set", flush=True)
for line in sys.stdin:
    if what == "directories":
        print(os.path.samestat(os.fstat(kept), os.stat(path)), os.getcwd() == path + "/inside",
              oct(os.stat(".").st_mode), os.listdir(kept))
    elif what == "socket":
        with socket.socket(socket.AF_UNIX) as client: client.connect(path)
        print("connected")
    else: print(line.strip())
    sys.stdout.flush()
"""


def frozen(market, what, path):
    job = market.srun("-p", 50, "--node", "n1", "/usr/bin/python3", "-c", JOB, what, path,
                      stdin=subprocess.PIPE)
    until("it is set", lambda: b"set\n" in bytes(job.out))
    market.tool("marketctl", "--hold", "--wait", "60s", "freeze", job.id, limit=80)
    assert not market.job(job.id).get("stopped_in_place"), market.job(job.id)
    return job


def thaw(market, job, **how):
    return market.tool("marketctl", "--hold", "--wait", "60s", "thaw", job.id, "n2", limit=80,
                       **how)


def says(job, words):
    job.process.stdin.write(b"on\n")
    job.process.stdin.flush()
    until(f"it says {words}", lambda: words.encode() in bytes(job.out))


def test_it_thaws_in_directories_that_were_removed_meanwhile(market, tmp_path):
    path = f"{tmp_path}/made/again"
    os.makedirs(f"{path}/inside", mode=0o751)
    job = frozen(market, "directories", path)
    shutil.rmtree(path)
    thaw(market, job)
    says(job, f"True True {oct(os.stat(path + '/inside').st_mode)} ['inside']\n")


def test_a_directory_whose_own_is_gone_too_is_named(market, tmp_path):
    path = f"{tmp_path}/made/again"
    os.makedirs(f"{path}/inside")
    job = frozen(market, "directories", path)
    shutil.rmtree(f"{tmp_path}/made")
    done = thaw(market, job, check=False)
    assert json.loads(done.stderr)["error"]["code"] == "file_not_opened", done
    assert f"cannot open {path}" in done.stderr, done
    os.mkdir(f"{tmp_path}/made")
    thaw(market, job)
    says(job, "True True ")


@pytest.mark.parametrize("what", ["fifo", "watched"])
def test_what_is_to_be_brought_back_is_named(market, tmp_path, what):
    path = f"{tmp_path}/thing"
    make = os.mkfifo if what == "fifo" else lambda name: open(name, "w").close()
    make(path)
    job = frozen(market, what, path)
    os.unlink(path)
    done = thaw(market, job, check=False)
    assert json.loads(done.stderr)["error"]["code"] == "file_not_opened", done
    assert f"cannot open {path}: No such file or directory" in done.stderr, done
    make(path)
    thaw(market, job)
    says(job, "on\n")


def test_a_socket_whose_file_was_removed_has_one_again(market, tmp_path):
    job = frozen(market, "socket", f"{tmp_path}/socket")
    os.unlink(f"{tmp_path}/socket")
    thaw(market, job)
    says(job, "connected\n")
