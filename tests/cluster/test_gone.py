# SPDX-License-Identifier: GPL-2.0-or-later
"""Others take away what a job has by a name, while it lies frozen on a disk. In /tmp and /var/tmp
it thaws in directories that are made again; else it is told which path is to be brought back, and
thaws then."""
import json
import os
import shutil
import subprocess
import tempfile

import pytest

from conftest import until

JOB = """
import ctypes, os, socket, sys
what, path = sys.argv[1:]
if what == "closed":
    os.mkdir(path)
    os.chdir(path)
    os.chmod(path, 0o3311)
if what == "many":
    kept = [os.open(f"{path}/{i}", os.O_RDONLY) for i in range(300)]
    kept.append(os.open(path + "/file", os.O_RDWR))
if what == "deepest":
    kept = [os.open(path + "/a" * depth, os.O_PATH) for depth in (3, 2, 1)]
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
    elif what == "closed":
        print(os.path.samestat(os.stat("."), os.stat(path)), oct(os.stat(".").st_mode))
    elif what == "many":
        print(os.pread(kept[-1], 9, 0),
              os.path.samestat(os.fstat(kept[-1]), os.stat(path + "/file")))
    elif what == "deepest":
        print([os.path.samestat(os.fstat(fd), os.stat(path + "/a" * depth))
               for fd, depth in zip(kept, (3, 2, 1))])
    elif what == "socket":
        with socket.socket(socket.AF_UNIX) as client: client.connect(path)
        print("connected")
    else: print(line.strip())
    sys.stdout.flush()
"""


def frozen(market, what, path, **how):
    job = market.srun("-p", 50, "--node", "n1", "/usr/bin/python3", "-c", JOB, what, path,
                      stdin=subprocess.PIPE, **how)
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


def test_three_directories_that_were_opened_deepest_first_are_there_again(market, tmp_path):
    os.makedirs(f"{tmp_path}/a/a/a")
    job = frozen(market, "deepest", tmp_path)
    shutil.rmtree(f"{tmp_path}/a")
    thaw(market, job)
    says(job, "[True, True, True]\n")


@pytest.mark.parametrize("user", [0, 65534])
def test_a_directory_that_its_owner_may_not_read_has_its_mode_again(market, user):
    with open("/proc/self/status") as status:
        mine = next(line.split()[1] for line in status if line.startswith("CapEff:"))
    if user and not int(mine, 16) >> 24 & 1:
        pytest.skip("this root has no CAP_SYS_RESOURCE: only root's jobs can move here")
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="souk-gone.") as directory:
        os.chmod(directory, 0o777)
        job = frozen(market, "closed", f"{directory}/inside", user=user, group=user,
                     extra_groups=[], cwd="/")
        os.rmdir(f"{directory}/inside")
        thaw(market, job)
        says(job, "True 0o43311\n")
        assert os.stat(f"{directory}/inside").st_uid == user


def test_many_directories_leave_room_for_a_file(market, tmp_path):
    for i in range(300):
        os.mkdir(f"{tmp_path}/{i}")
    with open(f"{tmp_path}/file", "w") as file:
        file.write("kept")
    job = frozen(market, "many", tmp_path)
    os.unlink(f"{tmp_path}/file")
    thaw(market, job)
    says(job, "b'kept' True\n")


def test_a_directory_elsewhere_is_not_made_but_named(market, tmp_path):
    """A job that went on in an empty one would be at work beside the one that was renamed."""
    with tempfile.TemporaryDirectory(dir="/opt", prefix="souk-gone.") as directory:
        path = f"{directory}/project"
        os.makedirs(f"{path}/inside")
        job = frozen(market, "directories", path)
        os.rename(path, f"{path}.old")
        done = thaw(market, job, check=False)
        assert json.loads(done.stderr)["error"]["code"] == "file_not_opened", done
        assert f"cannot open {path}" in done.stderr and not os.path.exists(path), done
        os.rename(f"{path}.old", path)
        thaw(market, job)
        says(job, "True True ")


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
    os.rename(path, f"{path}.old")
    done = thaw(market, job, check=False)
    assert json.loads(done.stderr)["error"]["code"] == "file_not_opened", done
    assert f"cannot open {path}: No such file or directory" in done.stderr, done
    os.rename(f"{path}.old", path)
    thaw(market, job)
    says(job, "on\n")


def test_a_socket_whose_file_was_removed_has_one_again(market, tmp_path):
    job = frozen(market, "socket", f"{tmp_path}/socket")
    os.unlink(f"{tmp_path}/socket")
    thaw(market, job)
    says(job, "connected\n")
