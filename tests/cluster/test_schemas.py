# SPDX-License-Identifier: GPL-2.0-or-later
"""The output of programs with --json follows docs/schemas, on a market with jobs in every state. A
key that no schema names is an error here. A reader may meet unknown keys, but the schemas must name
every key that there is."""
import json
import os
import subprocess

import pytest
from conftest import HERE, until

jsonschema = pytest.importorskip("jsonschema")
SCHEMAS = os.path.join(HERE, "..", "..", "docs", "schemas")


def strict(schema):
    """The same schema, without any key that it does not name."""
    if isinstance(schema, list):
        return [strict(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    made = {k: strict(v) for k, v in schema.items()}
    if isinstance(schema.get("properties"), dict):
        made["additionalProperties"] = False
    return made


def schema(name):
    with open(os.path.join(SCHEMAS, name + ".schema.json")) as f:
        return json.load(f)


def fits(name, said):
    jsonschema.Draft202012Validator(strict(schema(name))).validate(said)
    return said


def test_schemas_are_schemas_with_a_version_and_their_commands():
    names = [n.removesuffix(".schema.json") for n in sorted(os.listdir(SCHEMAS))]
    assert len(names) >= 20
    for name in names:
        one = schema(name)
        jsonschema.Draft202012Validator.check_schema(one)
        assert one["$id"] == f"urn:souk:{name}:1" and one["x-commands"] and one["description"]
    with pytest.raises(jsonschema.ValidationError):
        fits("codes", [{"kind": "reason", "code": "x", "text": "", "means": "", "more": 1}])


def test_every_answer_is_as_its_schema_says(market, tmp_path):
    def of(name, *args):
        return fits(name, market.ctl(*args))

    def submit(*args):
        said = market.tool("srun", "--node", "n1", "--detach", "--json", *args)
        return fits("detach", json.loads(said.stdout))["id"]

    runs, frozen, ends = (submit("-p", p, "sleep", "1000") for p in (60, 50, 40))
    poor = submit("-p", "0.5", "-b", "100", "sleep", "1000")
    submit("-p", 30, "--array", "1-2", "--name", "several", "true")
    for id in (runs, frozen, ends):
        market.until_runs(id)
    here = market.job(runs)["where"]
    there = next(n for n in market.nodes() if n != here)
    order = ("marketctl", "--wait", "60s", "--hold")
    assert of("order", *order, "move", runs, there)["done"]
    assert of("order", *order, "freeze", frozen)["done"]
    market.tool("srun", "--node", "n1", "-p", 90, f"--json={tmp_path}/end", "sh", "-c", "exit 3",
                check=False)
    assert fits("summary", json.loads((tmp_path / "end").read_text()))["exit"] == 3
    market.tool("marketctl", "cancel", ends)
    until("it has ended", lambda: market.job(ends)["status"] == "finish")
    of("moved", "marketctl", "deposit", "root", "1", "--note", "a start")
    market.tool("srun", "--detach", "-p", 9, "--start", "now+1h", "--for", "1h", "true")
    for name in ("status", "list-jobs", "list-providers", "reservations", "plan", "receipts",
                 "account", "prices", "history", "report", "statement"):
        assert of(name, "marketctl", name), name
    of("list-jobs", "marketctl", "list-jobs", "--state", "all")
    for by in ("node", "day"):
        of("report", "marketctl", "report", "--by", by)
    of("user-show", "marketctl", "user", "show")
    of("ledger-verify", "marketctl", "ledger", "verify")
    for verb in ("history", "frames", "price", "share", "limits", "why"):
        of("provider-" + verb, "pvdctl", "--node", here, verb)
    of("codes", "marketctl", "why", "codes")
    for id in (runs, frozen, poor, ends):
        of("job", "marketctl", "job", id)
        assert of("why", "marketctl", "why", id)["reasons"]
    for id in (runs, frozen, poor):
        assert of("story", "marketctl", "job", id, "--story")["steps"]
    for node in market.nodes():
        of("why", "marketctl", "why", node)
        of("provider-status", "pvdctl", "--node", node, "status")
    for more in ((), ("-n", "3")):
        of("quote", "srun", "--node", "n1", "--quote", "-p", 40, *more, "true")
    fits("souk-status", market.daemons())


def test_a_plain_user_is_told_no_more_of_another_users_job_than_the_schema_requires(market):
    job = market.srun("-p", 40, "sleep", "1000")
    market.until_runs(job.id)
    done = subprocess.run(["marketctl", "--json", "job", job.id], env=market.env, user=65534,
                          group=65534, extra_groups=[], capture_output=True, text=True,
                          timeout=40, cwd="/")
    assert done.returncode == 0, done.stderr
    assert sorted(fits("job", json.loads(done.stdout))) == ["id", "status", "uid", "user"]
