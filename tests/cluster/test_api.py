# SPDX-License-Identifier: GPL-2.0-or-later
"""libsouk with a real market: through its Python module, and a C program that is built against it
as an installed library would be."""
import os
import pathlib
import subprocess
import sys
import threading

import pytest

from conftest import BIN, LIMIT, until

ROOT = pathlib.Path(__file__).parents[2]
LIB = pathlib.Path(BIN).resolve().parent / "lib"
os.environ.setdefault("SOUK_LIBRARY", str(LIB / "libsouk.so.0"))
sys.path.insert(0, str(ROOT / "tools/libsouk"))
import souk  # noqa: E402

pytestmark = pytest.mark.skipif(LIB.parent.name.startswith("build-"),
                                reason="a library with a sanitizer needs a program that has it")


@pytest.fixture
def api(market):
    with souk.Souk(f"{market.run_dir}/n1/agentd.sock") as handle:
        yield handle


def test_a_job_is_submitted_changed_watched_and_listed(api, market):
    quote = api.quote(40, runtime_s=60)
    assert quote["runs"] and quote["node"] in market.nodes()
    job = api.submit(["sh", "-c", "read x < /dev/null; sleep 1000"], price=40, name="by hand",
                     budget="12.5", cpus=1)
    assert job.startswith("n1.")
    running = api.watch(job, "wait", timeout=LIMIT)
    while running["status"] == "starting":
        running = api.watch(job, "starting", timeout=LIMIT)
    assert (running["status"], running["name"], running["value"], running["budget"]) == (
        "run", "by hand", 40, 12.5)
    assert [j["id"] for j in api.list(state="live")] == [job]
    api.change(job, price="41.25")
    assert api.watch(job, "run", timeout=0)["id"] == job
    while api.job(job)["value"] != 41.25:
        api.watch(job, "run", timeout=0.2)
    assert api.ask("status")["jobs"]["run"] == 1
    api.cancel(job)
    assert api.watch(job, timeout=LIMIT)["cancelled"] is True
    done = api.submit(["sh", "-c", "exit 3"], price=40)
    assert api.watch(done, timeout=LIMIT)["exit"] == 3


def test_a_jobs_streams_are_taken_by_a_program_through_a_restart_of_its_home(api, market, tmp_path):
    job = api.submit(["sh", "-c", "echo up; read x; echo got $x; echo bad >&2; exit 7"], price=40)
    out, err = tmp_path / "out", tmp_path / "err"
    theirs, ours = os.pipe()
    got = {}

    def attach():
        with open(out, "wb") as to, open(err, "wb") as errors:
            got["status"] = api.attach(job, stdin=theirs, stdout=to, stderr=errors)

    thread = threading.Thread(target=attach, daemon=True)
    thread.start()
    until("it is up", lambda: out.exists() and out.read_bytes() == b"up\n")
    market.kill_daemon("n1")
    os.write(ours, b"word\n")
    thread.join(LIMIT)
    assert got == {"status": 7}
    assert (out.read_bytes(), err.read_bytes()) == (b"up\ngot word\n", b"bad\n")
    os.close(ours)
    os.close(theirs)


def test_what_cannot_be_done_says_why(api, market):
    for call, words in (
            (lambda: api.submit(["no-such-program"], price=1), "no such program in PATH"),
            (lambda: api.submit([], price=1), "there is no program to run"),
            (lambda: api.submit(["true"], price="a"), "'a'"),
            (lambda: api.submit(["true"], price=0), "must be above 0"),
            (lambda: api.submit(["true"], price=None), "must say its price"),
            (lambda: api.change("n1.999", price=1), "n1.999"),
            (lambda: api.change("n1.1"), "no term of the job is named"),
            (lambda: api.attach("n1.999"), "no job n1.999"),
            (lambda: api.job("x"), "'x' is not a job id"),
            (lambda: api.list(state="odd"), "'odd' is no state"),
            (lambda: api.ask("nonsense"), "does not know the verb 'nonsense'")):
        with pytest.raises(souk.Error, match=words):
            call()
    api.close()
    with pytest.raises(souk.Error, match="closed"):
        api.job("n1.1")
    with souk.Souk("/nowhere/agentd.sock") as nobody, pytest.raises(souk.Error, match="/nowhere"):
        nobody.job("n1.1")


def test_a_c_program_uses_the_library_and_it_shows_nothing_else(market, tmp_path):
    shown = subprocess.run(["nm", "-D", "--defined-only", LIB / "libsouk.so.0"],
                           capture_output=True, text=True, check=True).stdout.split("\n")
    names = {line.split()[-1] for line in shown if line}
    header = (ROOT / "tools/libsouk/souk.h").read_text()
    assert names and all(f"{n}(" in header for n in names if n.startswith("souk_"))
    assert {n for n in names if not n.startswith("souk_")} == set()
    program = tmp_path / "submit"
    subprocess.run(["cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic",
                    f"-I{ROOT}/tools/libsouk", "-o", program, ROOT / "contrib/examples/submit.c",
                    f"-L{LIB}", "-lsouk", f"-Wl,-rpath,{LIB}"], check=True)
    done = subprocess.run([program, "40", "sh", "-c", "exit 5"], capture_output=True, text=True,
                          timeout=LIMIT, env={**market.env, "SOUK_NODE": "n1"})
    assert done.returncode == 5 and "n1." in done.stderr, done
    done = subprocess.run([program, "40", "no-such-program"], capture_output=True, text=True,
                          timeout=LIMIT, env={**market.env, "SOUK_NODE": "n1"})
    assert done.returncode == 1 and "no such program" in done.stderr, done
