# SPDX-License-Identifier: GPL-2.0-or-later
"""Every part of a job that lies on a disk is encrypted. Its memory is found nowhere below a state
directory while it is frozen or has a checkpoint. It goes on even if daemons start anew meanwhile,
and an image that was changed is refused."""
import glob
import hashlib
import os
import shutil
import subprocess

import pytest

from conftest import read_text, until
from test_checkpoints import checkpoint, lose
from test_crash import Absence

CHUNK = 256 << 10
# The memory of the job holds this, and nothing else does: no command line, no environment, no
# output.
PATTERN = hashlib.sha512(b"what only this job has in its memory").digest()
JOB = """
import fcntl, hashlib, sys
for path in sys.argv[2:]:
    file = open(path, "w")
    fcntl.flock(file, fcntl.LOCK_EX)  # with a lock, all of its memory is in CRIU's image
seed = b"what only this " + b"job has in its memory"
memory = bytearray(hashlib.sha512(seed).digest() * (int(sys.argv[1]) // 64))
print("ready", flush=True)
for line in sys.stdin:
    print(hashlib.sha256(memory).hexdigest(), flush=True)
"""
SIZES = {"in CRIU's image": 5 << 20, "in a file of pages": 40 << 20}


def begin(market, size, *options, locks=()):
    job = market.srun("-p", 50, *options, "python3", "-c", JOB, size, *locks,
                      stdin=subprocess.PIPE)
    job.printed(1)
    return job


def check_goes_on(job, size, lines):
    """Its memory is as it was."""
    job.process.stdin.write(b"\n")
    job.process.stdin.flush()
    job.printed(lines)
    assert (bytes(job.out).splitlines()[-1].decode()
            == hashlib.sha256(PATTERN * (size // 64)).hexdigest())


def end(job):
    job.process.stdin.close()
    assert job.wait(60) == 0, job.words[-5:]


def freeze(market, job):
    market.tool("marketctl", "--hold", "freeze", job.id)
    return market.until_job(job.id, "is frozen", lambda j: j["status"] == "suspend")["where"]


def thaw(market, job, there):
    market.tool("marketctl", "--hold", "thaw", job.id, there)
    market.until_job(job.id, "runs again", lambda j: j["status"] == "run" and j["where"] == there)


def holds_pattern(path):
    try:
        with open(path, "rb") as f:
            before = b""
            while part := f.read(1 << 20):
                if PATTERN in before + part:
                    return True
                before = part[-64:]
    except FileNotFoundError:  # a checkpoint that another one takes the place of
        pass
    return False


def stores_with_pattern(market):
    """Files below the state directories of all nodes, tmpfs among them, that hold the pattern."""
    return [path for path in glob.glob(f"{market.run_dir}/state/**", recursive=True)
            if os.path.isfile(path) and not os.path.islink(path) and holds_pattern(path)]


def image_of(market, job, node):
    """The path of the job's one image. Older images, from which it was restored, may still be on
    their way out."""
    pattern = f"{market.run_dir}/state/{node}/images/{job.id}.*"
    return until("it has one image", lambda: len(found := glob.glob(pattern)) == 1 and found)[0]


@pytest.mark.parametrize("where", SIZES)
def test_the_memory_of_a_frozen_job_is_nowhere_on_a_disk_and_it_is_thawed(market, where, tmp_path):
    size = SIZES[where]
    job = begin(market, size, locks=[tmp_path / "lock"] if where == "in CRIU's image" else [])
    lines = 1
    for there in "n2", "n3", "n3":
        here = freeze(market, job)
        image = image_of(market, job, here)
        stored = sum(os.path.getsize(f"{image}/{n}") for n in os.listdir(image))
        assert stored > size and read_text(f"{image}/MANIFEST").startswith("souk-image 3\n")
        assert os.path.exists(f"{image}/souk-pages") == (where == "in a file of pages")
        assert stores_with_pattern(market) == []
        thaw(market, job, there)
        lines += 1
        check_goes_on(job, size, lines)
    end(job)


def test_a_checkpoint_is_encrypted_at_its_home_and_the_job_goes_back_to_it(market):
    size = SIZES["in a file of pages"]
    job = begin(market, size, "--node", "n1", "--checkpoint-every", "1s")
    market.tool("marketctl", "--hold", "move", job.id, "n2")
    market.until_runs(job.id, "n2")
    checkpoint(market, job)
    until("nothing of it is in a file",
          lambda: stores_with_pattern(market) == [] and market.job(job.id)["checkpoint_age_s"] >= 0)
    assert glob.glob(f"{market.run_dir}/state/n1/images/{job.id}.*/MANIFEST")
    market.kill_daemon("n1")  # its home, with the checkpoint
    with Absence(market):
        lose(market, "n2", job)
        market.tool("marketctl", "node", "lost", "n2")
        market.until_job(job.id, "runs again",
                         lambda j: j["status"] == "run" and j["where"] != "n2", 60)
        check_goes_on(job, size, 2)
    end(job)


def test_a_node_that_has_lost_its_keys_gets_them_with_the_order_to_thaw(market):
    size = SIZES["in a file of pages"]
    job = begin(market, size, "--node", "n1")
    market.tool("marketctl", "--hold", "move", job.id, "n2")
    market.until_runs(job.id, "n2")
    for there in "n3", "n3":
        where = freeze(market, job)
        keys = glob.glob(f"{market.run_dir}/state/{where}/ram/keys/{job.id}.*")
        assert len(keys) == 1 and os.stat(keys[0]).st_mode & 0o77 == 0
        assert os.stat(os.path.dirname(keys[0])).st_mode & 0o77 == 0
        os.remove(keys[0])  # as a reboot does
        market.kill_daemon(where)
        thaw(market, job, there)
    check_goes_on(job, size, 2)
    end(job)
    until("no key is left of it",
          lambda: not glob.glob(f"{market.run_dir}/state/*/ram/keys/{job.id}.*"))


def refused(market, job, node):
    """An order to thaw it there is refused for its image, and it stays as it was."""
    failed = market.job(job.id)["failed_moves"]
    market.tool("marketctl", "--hold", "thaw", job.id, node)
    market.until_job(job.id, "is refused", lambda j: j["failed_moves"] > failed and
                     j["status"] == "suspend" and "going_to" not in j and
                     j["last_failed_code"] == "image_refused")
    market.tool("marketctl", "--hold", "freeze", job.id)
    # The market may just have tried again.
    market.until_job(job.id, "stays as it was",
                     lambda j: j["status"] == "suspend" and "going_to" not in j)
    assert not market.processes(job.id, "python3")


def changed(path, how):
    """Changes a file, and returns what undoes that."""
    with open(path, "rb") as f:
        before = f.read()
    after = bytearray(before)
    if how == "a flipped bit":
        after[7 * CHUNK + 100] ^= 8
    elif how == "swapped chunks":
        after[:CHUNK], after[CHUNK:2 * CHUNK] = before[CHUNK:2 * CHUNK], before[:CHUNK]
    else:
        del after[-4096:]
    with open(path, "wb") as f:
        f.write(after)

    def undo():
        with open(path, "wb") as f:
            f.write(before)
    return undo


def test_a_changed_image_and_that_of_another_job_are_refused_and_nothing_is_lost(market):
    size = SIZES["in a file of pages"]
    jobs = []
    for _ in range(2):
        job = begin(market, size, "--node", "n1")
        if market.job(job.id)["where"] != "n2":
            market.tool("marketctl", "--hold", "move", job.id, "n2")
            market.until_runs(job.id, "n2")
        assert freeze(market, job) == "n2"
        jobs.append(job)
    one, other = [image_of(market, job, "n2") for job in jobs]
    for how in ("a flipped bit", "swapped chunks", "a shorter file"):
        undo = changed(f"{one}/souk-pages", how)
        for there in "n2", "n3":
            refused(market, jobs[0], there)
        undo()
    for a, b in ((one, f"{one}.away"), (other, one), (f"{one}.away", other)):
        shutil.move(a, b)
    for there in "n2", "n3":
        refused(market, jobs[0], there)
    for a, b in ((one, f"{one}.away"), (other, one), (f"{one}.away", other)):
        shutil.move(a, b)
    for job, there in zip(jobs, ("n2", "n3")):
        thaw(market, job, there)
        check_goes_on(job, size, 2)
        end(job)


@pytest.mark.parametrize("there", ["n2", "n3"])
def test_a_job_whose_image_is_refused_goes_on_from_its_checkpoint_and_the_image_is_kept(
        market, there):
    size = SIZES["in a file of pages"]
    job = begin(market, size, "--node", "n1", "--checkpoint-every", "1s")
    market.tool("marketctl", "--hold", "move", job.id, "n2")
    market.until_runs(job.id, "n2")
    checkpoint(market, job)
    assert freeze(market, job) == "n2"
    image = image_of(market, job, "n2")
    kept = f"{market.run_dir}/state/n2/refused/{os.path.basename(image)}"
    changed(f"{image}/souk-pages", "a flipped bit")
    with open(f"{image}/souk-pages", "rb") as f:
        as_it_lay = f.read()
    market.tool("marketctl", "--hold", "thaw", job.id, there)
    market.until_step(job.id, step="went_back", why_code="image_refused")
    until("it is kept", lambda: os.path.exists(kept) and not os.path.exists(image))
    with open(f"{kept}/souk-pages", "rb") as f:
        assert f.read() == as_it_lay
    assert os.stat(os.path.dirname(kept)).st_mode & 0o77 == 0
    assert f"as={kept}" in read_text(f"{market.run_dir}/n2/log")
    market.until_job(job.id, "runs again", lambda j: j["status"] == "run", 60)
    check_goes_on(job, size, 2)
    end(job)


def test_what_a_job_was_given_is_in_no_record_when_its_home_has_forgotten_it(market):
    secret = hashlib.sha512(os.urandom(64)).hexdigest()
    job = market.srun("--node", "n1", "-p", 50, "/bin/sh", "-c", "echo ready; read x",
                      env={**market.env, "ITS_SECRET": secret}, stdin=subprocess.PIPE)
    job.printed(1)

    def records_with_it():
        found = []
        for path in glob.glob(f"{market.run_dir}/state/*/state.db*"):
            with open(path, "rb") as f:
                found += [path] if secret.encode() in f.read() else []
        return found
    assert any("/n1/" in path for path in records_with_it())
    job.process.stdin.write(b"\n")
    job.process.stdin.flush()
    assert job.wait(60) == 0
    until("no record shows it", lambda: not records_with_it())
