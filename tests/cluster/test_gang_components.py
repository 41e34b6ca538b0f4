# SPDX-License-Identifier: GPL-2.0-or-later
"""Unlike components of one job (srun --components FILE) on real daemons."""
import subprocess

from codes import refused
from conftest import BIN, gang, until


def until_gang(market, first, what, probe):
    return until(what, lambda: (lambda jobs: jobs if probe(jobs) else None)(gang(market, first)))


def write(tmp_path, text):
    path = tmp_path / "job.toml"
    path.write_text(text)
    return path


def test_components_have_programs_needs_and_labels_of_their_own(wide, tmp_path):
    file = write(tmp_path, """
        [[component]]
        label = "master"
        cpus = 2
        memory = "64M"
        program = "sh"
        arguments = ["-c", "echo master of $SOUK_COMPONENTS: $SOUK_NAMES"]

        [[component]]
        count = 2
        label = "worker"
        arguments = ["-c", "echo $JOB_PART in $PWD"]
        environment = { JOB_PART = "part" }
        directory = "/usr"
        """)
    done = wide.tool("srun", "-p", "40", "-N", file, "-l", "sh")
    lines = sorted(line.strip() for line in done.stdout.splitlines())
    assert lines == ["master: master of 3: master,worker-0,worker-1",
                     "worker-0: part in /usr", "worker-1: part in /usr"], done.stderr
    jobs = gang(wide, done.stderr.split()[2].rstrip(":"))
    assert [j["cpus"] for j in jobs] == [2, 1, 1]
    assert jobs[0]["memory_mb"] == 64


def test_the_reference_form_of_a_request_runs(wide, tmp_path):
    (tmp_path / "job").write_text(
        "+ ( &(label=a) (count=2) (executable=/bin/echo) (arguments=one $(N))"
        "      (rslSubstitution=(N 1)) (jobtype=mpi) )\n"
        "  ( &(label=b) (executable=/bin/echo) (arguments=two) )\n")
    done = wide.tool("srun", "-p", "40", "--components", tmp_path / "job")
    assert sorted(done.stdout.splitlines()) == ["one 1", "two"], done.stderr


def test_an_optional_component_is_not_waited_for_and_ends_with_the_others(wide, tmp_path):
    blocks = wide.srun("-p", "90", "-c", "2", "sleep", "1000")
    wide.until_runs(blocks.id)
    go = tmp_path / "go"
    file = write(tmp_path, f"""
        [[component]]
        count = 3
        arguments = ["-c", "until [ -e {go} ]; do sleep 0.1; done"]
        [[component]]
        count = 2
        class = "optional"
        arguments = ["-c", "exec sleep 1000"]
        """)
    srun = subprocess.Popen([f"{BIN}/srun", "-p", "40", "-N", file, "sh"], env=wide.env,
                            stderr=subprocess.PIPE, text=True)
    try:
        first = srun.stderr.readline().split()[2].rstrip(":")
        jobs = until_gang(wide, first, "all but one run", lambda jobs: [
            j["status"] for j in jobs].count("run") == 4)
        assert [j.get("optional", False) for j in jobs] == [False] * 3 + [True] * 2
        assert all(j["status"] == "run" for j in jobs[:3])
        wide.tool("marketctl", "cancel", blocks.id)
        until_gang(wide, first, "all run", lambda jobs: all(j["status"] == "run" for j in jobs))
        go.touch()
        assert srun.wait(60) == 0
        jobs = until_gang(wide, first, "all ended", lambda jobs: all(
            j["status"] == "finish" for j in jobs))
        assert all(j["why_code"] == "component_ended" for j in jobs[3:])
        assert [j["exit"] for j in jobs] == [0] * 5  # they ended with a job that ended well
    finally:
        srun.kill()
        srun.wait()
        srun.stderr.close()
        wide.tool("marketctl", "cancel", blocks.id, check=False)


def test_an_optional_component_that_fails_ends_nobody(wide, tmp_path):
    go = tmp_path / "go"
    file = write(tmp_path, f"""
        [[component]]
        arguments = ["-c", "until [ -e {go} ]; do sleep 0.1; done; echo done"]
        [[component]]
        class = "optional"
        arguments = ["-c", "exit 5"]
        [[component]]
        class = "interactive"
        arguments = ["-c", "exit 6"]
        """)
    srun = subprocess.Popen([f"{BIN}/srun", "-p", "40", "-N", file, "sh"], env=wide.env,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        first = srun.stderr.readline().split()[2].rstrip(":")
        # A component that is not required may begin later than the others.
        until_gang(wide, first, "both have failed", lambda jobs: [
            j.get("exit") for j in jobs[1:]] == [5, 6])
        go.touch()
        out, err = srun.communicate(timeout=60)
        assert (srun.returncode, out) == (0, "done\n"), err
    finally:
        srun.kill()
        srun.wait()
    assert [j["exit"] for j in gang(wide, first)] == [0, 5, 6]


def test_an_interactive_component_that_cannot_start_is_left_out(wide, tmp_path):
    """Its program is there when it is submitted, and nowhere when it is to start."""
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho never\n")
    program.chmod(0o755)
    blocks = [wide.srun("-p", "90", "-c", "2", "sleep", "1000") for _ in wide.nodes()]
    for job in blocks:
        wide.until_runs(job.id)
    file = write(tmp_path, f"""
        [[component]]
        arguments = ["-c", "echo done"]
        [[component]]
        class = "interactive"
        program = "{program}"
        """)
    srun = subprocess.Popen([f"{BIN}/srun", "-p", "40", "-N", file, "sh"], env=wide.env,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        srun.stderr.readline()
        program.unlink()
        for job in blocks:
            wide.tool("marketctl", "cancel", job.id)
        out, _ = srun.communicate(timeout=120)
        assert (srun.returncode, out) == (0, "done\n")
    finally:
        srun.kill()
        srun.wait()


def test_names_resolve_inside_the_job_and_go_along(wide, tmp_path):
    """c0, c1, ... and labels are addresses of the components, before and after a move; elsewhere
    they mean nothing."""
    out = tmp_path / "out"
    look = tmp_path / "look"
    look.write_text("import socket, sys\n"
                    "print(*[socket.gethostbyname(name) for name in sys.argv[1:]])\n")
    file = write(tmp_path, f"""
        [[component]]
        label = "master"
        arguments = ["-c", "/usr/bin/python3 {look} c0 c1 worker >> {out}; touch {out}.began; \
until [ -e {out}.go ]; do sleep 0.1; done; /usr/bin/python3 {look} c0 c1 worker >> {out}"]
        [[component]]
        label = "worker"
        arguments = ["-c", "until [ -e {out}.go ]; do sleep 0.1; done; \
exec /usr/bin/python3 {look} master"]
        """)
    first = wide.tool("srun", "-p", "40", "-d", "-N", file, "sh").stdout.split()[0]
    jobs = until_gang(wide, first, "runs", lambda jobs: len(jobs) == 2 and all(
        j["status"] == "run" for j in jobs))
    until("it has begun", lambda: (tmp_path / "out.began").exists())
    to = next(n for n in wide.nodes() if n not in [j["where"] for j in jobs])
    wide.tool("marketctl", "--hold", "move", first, to)
    wide.until_runs(first, to)
    (tmp_path / "out.go").touch()
    c0, c1 = (job["address"] for job in jobs)
    done = wide.tool("srun", "--attach", f"{first}.1")
    assert done.stdout.split() == [c0], done.stderr
    until_gang(wide, first, "ends", lambda all_of_it: all(
        j["status"] == "finish" for j in all_of_it))
    assert [line.split() for line in out.read_text().splitlines()] == [[c0, c1, c1]] * 2
    names = subprocess.run(["getent", "hosts", "worker"], capture_output=True, check=False)
    assert c1 not in names.stdout.decode()
    done = wide.tool("srun", "--attach", f"{first}.2", check=False)
    refused(done, "not_found")


def test_all_components_or_one_read_stdin(wide):
    def run(*args):
        return subprocess.run([f"{BIN}/srun", "-p", "40", "-N", "3", "-l", *args, "cat"],
                              env=wide.env, input="x\n" * 20_000, capture_output=True, text=True,
                              timeout=100)
    done = run("--stdin", "all")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == sorted(f"{n}: x" for n in range(3)
                                                      for _ in range(20_000))
    assert set(run("--stdin", "2").stdout.splitlines()) == {"2: x"}
    assert run("--stdin", "none").stdout == ""


def test_a_sum_of_cpus_goes_to_one_machine_or_to_any(wide):
    first = wide.tool("srun", "-p", "40", "-d", "--flexible", "5:2", "sleep", "1000").stdout.split()
    jobs = until_gang(wide, first[0], "runs", lambda jobs: len(jobs) == 3 and all(
        j["status"] == "run" for j in jobs))
    assert [j["cpus"] for j in jobs] == [2, 2, 1]
    wide.tool("marketctl", "cancel", first[0])
    first = wide.tool("srun", "-p", "40", "-d", "--total", "2", "sleep", "1000").stdout.split()
    jobs = until_gang(wide, first[0], "runs", lambda jobs: [j["status"] for j in jobs] == ["run"])
    assert jobs[0]["cpus"] == 2
    wide.tool("marketctl", "cancel", first[0])


def test_names_resolve_where_the_home_gives_the_files(wide, tmp_path):
    """At home, where its tree is the job's root, and where it is served."""
    look = tmp_path / "look"
    look.write_text("import socket\nprint(socket.gethostbyname('c0'))\n")
    done = wide.tool("srun", "-p", "40", "-N", "5", "--files=home", "/usr/bin/python3", look)
    jobs = gang(wide, done.stderr.split()[2].rstrip(":"))
    assert done.stdout.split() == [jobs[0]["address"]] * 5, done.stderr
    assert len({n for j in jobs for n in j["places"]}) > 1
