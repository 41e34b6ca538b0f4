# SPDX-License-Identifier: GPL-2.0-or-later
"""souk-web's pages in headless Chromium: what axe-core says of them, at phone width, in both colour
schemes, by keyboard, live. Needs what `make check-web` brings."""
import json
import os
import pathlib
import shutil
import subprocess

import pytest

from conftest import BIN, LIMIT, until

MODULES = os.environ.get("SOUK_WEB_MODULES", "/var/cache/souk/web")
CHROMIUM = shutil.which("chromium")
PICTURES = os.environ.get("SOUK_WEB_PICTURES", "")
HERE = pathlib.Path(__file__).parent

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and shutil.which("node") and os.path.isdir(MODULES + "/node_modules/axe-core")),
    reason="no chromium, node, playwright-core or axe-core: make check-web brings them")


@pytest.fixture
def link(market):
    process = subprocess.Popen([f"{BIN}/souk-web", "--listen", "127.0.0.1:0", "--delay", "1s",
                                "--actions"], env=market.env, stdout=subprocess.PIPE, text=True)
    yield process.stdout.readline().strip()
    process.terminate()
    assert process.wait(LIMIT) == 0


def some_life(market):
    """A job that moved, lay frozen and runs again, one that waits, one that is finished."""
    job = market.srun("-p", 50, "--name", "simulate", "sh", "-c", "echo up; read x",
                      stdin=subprocess.PIPE)
    job.printed(1)
    here = market.until_runs(job.id)["where"]
    there = next(n for n in market.nodes() if n != here)
    market.tool("marketctl", "--hold", "move", job.id, there)
    market.until_runs(job.id, there)
    market.tool("marketctl", "--hold", "freeze", job.id)
    market.until_job(job.id, "is frozen", lambda j: j["status"] == "suspend")
    market.tool("marketctl", "release", job.id)
    market.until_runs(job.id)
    waits = market.tool("srun", "--detach", "-p", 0.5, "--name", "<b>too poor</b>", "sleep",
                        "1000").stdout.strip()
    market.tool("srun", "-p", 60, "true")
    until("it waits", lambda: market.job(waits).get("status") == "wait")
    return job, there


def look(link, pages, widths, submit=None, token=None, own=None):
    """Opens the pages in the browser and returns its findings. `submit` starts a job to wait for;
    without it the pages are still. `own` are pages that the browser opens after it has logged in
    with the token from `token`."""
    node = subprocess.Popen(["node", HERE / "web_browser.mjs"], stdin=subprocess.PIPE, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env={**os.environ, "SOUK_WEB_MODULES": MODULES,
                                 "SOUK_CHROMIUM": CHROMIUM})
    wanted = {"link": link, "pages": pages, "widths": widths, "schemes": ["light", "dark"],
              "pictures": PICTURES, "still": submit is None, "own": own}

    def tell(text):
        node.stdin.write(text + "\n")
        node.stdin.flush()
    tell(json.dumps(wanted))
    for word, answer in (("token", token), ("watching", submit)):
        if answer:
            said = node.stdout.readline()
            assert said == word + "\n", said + node.communicate(timeout=LIMIT)[1]
            tell(answer())
    out, err = node.communicate(timeout=300)
    assert node.returncode == 0, err
    return json.loads(out)


def test_the_pages_are_accessible_fit_a_phone_and_follow_the_market(market, link):
    job, there = some_life(market)
    pages = {"board": "/", "job": "/job/" + job.id, "node": "/node/" + there, "jobs": "/jobs",
             "nodes": "/nodes", "history": "/history", "prices": "/prices", "time": "/time?span=1h",
             "ledger": "/ledger", "report": "/report"}
    own = {"orders": "/job/" + job.id,
           **{verb: f"/job/{job.id}/{verb}" for verb in ("cancel", "move", "freeze")}}
    widths = [320, 768, 1280]
    found = look(link, pages, widths, lambda: market.tool(
        "srun", "--detach", "-p", 0.5, "sleep", "1000").stdout.strip(),
        lambda: market.tool("marketctl", "web-token").stdout.strip(), own)
    assert found["errors"] == []
    assert len(found["looks"]) == (len(pages) + 1 + len(own)) * len(widths) * 2
    assert [seen for seen in found["looks"] if seen["broken"] or seen["wider"] > 0] == []
    keyboard = found["keyboard"]
    assert keyboard.pop("row").startswith("n")
    assert keyboard == {"first": "To the content", "skipped_to": "main", "kept": True,
                        "search": "match", "found": ["n2"]}


def test_the_page_of_a_comparison_is_accessible_and_fits_a_phone(tmp_path):
    (tmp_path / "config").write_text("use_swf = no\njobs = 60\nproviders = 2\n"
                                     "interarrival = uniform 0 60\nrun = uniform 20 200\n")
    for command in (["compare", "-i", "config", "-s", "mig,fcfs,easy", "--seeds", "4", "--json",
                     "all.json", "-o", "all.txt"],
                    ["report", "all.json", "-o", "comparison.html"]):
        subprocess.run([f"{BIN}/marketsim", *command], cwd=tmp_path, check=True, timeout=LIMIT,
                       capture_output=True)
    page = tmp_path / "comparison.html"
    found = look(f"file://{page}", {"comparison": f"file://{page}"}, [320, 768, 1280])
    assert found["errors"] == [] and len(found["looks"]) == 6
    assert [seen for seen in found["looks"] if seen["broken"] or seen["wider"] > 0] == []
