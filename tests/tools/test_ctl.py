# SPDX-License-Identifier: GPL-2.0-or-later
"""pvdctl and marketctl handle mistakes, refusals and answers in parts alike, and choose alike whom
they ask and how long."""
import json
import os
import select
import subprocess

import pytest

from codes import CAUSES, IN_JSON, refused
from conftest import BIN
from fake import LIMIT, PROVIDER, Agentd, answer


# Long: a table.
@pytest.mark.parametrize("tool_name, args, words", [
    ("pvdctl", [], "a verb is missing"),
    ("pvdctl", ["stats"], "'stats' is not a verb"),
    ("pvdctl", ["status", "now"], "unexpected argument 'now'"),
    ("pvdctl", ["guests", "n1"], "'n1' is not a job id"),
    ("pvdctl", ["guests", "n1.1", "x"], "unexpected argument 'x'"),
    ("marketctl", ["lj", "--story"], "--story is for job"),
    ("marketctl", ["lj", "--load"], "--load is for job"),
    ("marketctl", ["job", "n1.1", "--load", "--story"], "--load is for job, without --story"),
    ("marketctl", ["dump", "n1.1"], "unexpected argument 'n1.1'"),
    ("marketctl", ["job", "--story"], "a job's id is missing"),
    ("pvdctl", ["market"], "on or off is wanted"),
    ("pvdctl", ["market", "maybe"], "on or off is wanted"),
    ("pvdctl", ["set", "price"], "a value are wanted"),
    ("pvdctl", ["set", "price", "auto"], "--floor N is wanted"),
    ("pvdctl", ["set", "cpus", "2", "--floor", "3"], "--floor is for set price auto"),
    ("pvdctl", ["set", "price", "auto", "--floor", "x"], "'x' is not an amount"),
    ("pvdctl", ["frames", "drop", "1"], "one of list, add, remove, zone, warning is wanted"),
    ("pvdctl", ["frames", "add"], "frames add: a value is wanted"),
    ("pvdctl", ["frames", "warning", "soon"], "frames warning: 'soon' is no time"),
    ("pvdctl", ["price", "7"], "price: curve is wanted"),
    ("pvdctl", ["limits", "all"], "limits: unexpected argument 'all'"),
    ("pvdctl", ["earnings", "all"], "earnings: 'all' is not a whole number"),
    ("pvdctl", ["forecast", "x"], "forecast: unexpected argument 'x'"),
    ("pvdctl", ["watch", "x"], "watch: unexpected argument 'x'"),
    ("pvdctl", ["evict"], "evict: a job's id is wanted"),
    ("pvdctl", ["evict", "n1"], "'n1' is not a job id"),
    ("pvdctl", ["ban", "mallory"], "user NAME or program NAME is wanted"),
    ("pvdctl", ["allow", "dog", "rex"], "user NAME, program NAME or job ID is wanted"),
    ("pvdctl", ["set", "price", "3eur"], "set price: '3eur' is not an amount"),
    ("pvdctl", ["set", "price", "-4"], "'-4' is not an option, and no value is below 0"),
    ("pvdctl", ["set", "memory", "0"], "set memory: '0' is not from 1M to"),
    ("pvdctl", ["set", "memory", "4Q"], "set memory: '4Q' is no size such as"),
    ("marketctl", ["prices", "--last", "24"], "--last: '24' is no time such as 90s"),
    ("marketctl", ["status", "--patience", "long"], "--patience: 'long' is no time"),
    ("pvdctl", ["set", "colour", "3"], "'colour' is not one of"),
    ("marketctl", [], "a verb is missing"),
    ("marketctl", ["stat"], "'stat' is not a verb"),
    ("marketctl", ["job"], "job: a job's id is missing"),
    ("marketctl", ["job", "n1"], "'n1' is not a job id"),
    ("marketctl", ["job", "n1.1", "x"], "unexpected argument 'x'"),
    ("marketctl", ["move", "n1.1"], "a node's name is missing"),
    ("marketctl", ["move", "n1.1", "N!"], "'N!' is not a node name"),
    ("marketctl", ["lj", "--hold"], "--hold is for move"),
    ("marketctl", ["lj", "--no-wait"], "--wait and --no-wait are for move"),
    ("marketctl", ["freeze", "n1.1", "--wait", "long"], "--wait: 'long' is no time"),
    ("marketctl", ["freeze", "n1.1", "--wait", "9s", "--no-wait"], "exclude each other"),
    ("marketctl", ["lj", "--since", "3h"], "are for receipts"),
    ("marketctl", ["lj", "--db", "x"], "--db and --seen are for ledger"),
    ("marketctl", ["lp", "--user", "me"], "are for receipts and"),
    ("marketctl", ["lp", "--state", "run"], "--state is for"),
    ("marketctl", ["user"], "show, limit or unlimit is wanted"),
    ("marketctl", ["user", "limit"], "a user is missing"),
    ("marketctl", ["user", "limit", "me"], "--credit or --allowance is wanted"),
    ("marketctl", ["user", "limit", "me", "--jobs", "many"],
     "--jobs: 'many' is not a whole number"),
    ("marketctl", ["user", "limit", "me", "--spend-per-day", "-3"],
     "--spend-per-day: '-3' is not an amount"),
    ("marketctl", ["user", "show", "me", "--cpus", "3"], "are for user limit"),
    ("marketctl", ["lj", "--cpus", "3"], "are for user limit"),
    ("marketctl", ["ledger"], "'verify' is what"),
    ("marketctl", ["receipts", "--since", "noon"], "'noon' is neither"),
    ("marketctl", ["decisions"], "decisions: 'export' is what can be done"),
    ("marketctl", ["decisions", "export"], "a file is missing (- is stdout)"),
    ("marketctl", ["decisions", "export", "-", "x"], "unexpected argument 'x'"),
    ("marketctl", ["decisions", "export", "-", "--from", "noon"], "--from: 'noon' is neither"),
    ("marketctl", ["decisions", "export", "-", "--job", "n1.1"], "are for receipts"),
    ("marketctl", ["lj", "--to", "3h"], "--from and --to are for decisions export"),
    ("marketctl", ["why-price"], "a job or a node is missing"),
    ("marketctl", ["why"], "a job or a node is missing"),
    ("marketctl", ["report", "--by", "hour"], "--by is one of user, node and day, not 'hour'"),
    ("marketctl", ["lj", "--csv"], "--csv for report, history and statement"),
    ("marketctl", ["history", "-o", "id,peek"],
     "-o: 'peek' is no column; did you mean 'peak'?; there are id, user, name, "),
    ("marketctl", ["job", "n1.1", "-o", "id"], "job: --open and -o are for list-jobs and history"),
    ("marketctl", ["history", "n1.1"], "history: unexpected argument 'n1.1'"),
    ("marketctl", ["cancel", "n1.1", "--all"], "a job's id, or --name, --user, --array and --all"),
    ("marketctl", ["why", "N!"], "'N!' is neither a job id nor a node name"),
    ("marketctl", ["why", "n1.7", "n2"], "why: unexpected argument 'n2'"),
    ("marketctl", ["why", "n1.7", "--at", "3h"], "--at is for why price"),
    ("marketctl", ["why-price", "N!"], "'N!' is neither a job id nor a node name"),
    ("marketctl", ["why-price", "n1.7", "--at", "noon"], "--at: 'noon' is neither"),
    ("marketctl", ["lj", "--at", "3h"], "--at is for why price"),
    ("marketctl", ["list-job"], "'list-job' is not a verb; did you mean 'list-jobs'?"),
    ("marketctl", ["cancle", "n1.1"], "did you mean 'cancel'?"),
    ("pvdctl", ["erning"], "did you mean 'earnings'?"),
    ("souk", ["docter"], "did you mean 'doctor'?"),
    ("marketctl", ["cancel", "n1.1", "n1"], "'n1' is not a job id"),
    ("marketctl", ["cancel", "n1.1[x]"], "'x' is no list of indexes such as"),
    ("marketctl", ["cancel", "n1.1[1%2]"], "'1%2' is no list of indexes"),
    ("marketctl", ["hold"], "hold: a job's id is missing"),
    ("marketctl", ["release", "n1"], "'n1' is not a job id"),
    ("marketctl", ["give", "n1.7"], "give: a user is missing"),
    ("marketctl", ["give", "n1.7", "anna", "eva"], "give: unexpected argument 'eva'"),
    ("marketctl", ["cancel", "n1.9-3"], "'n1.9-3' is no range of at most 10000 jobs"),
    ("marketctl", ["lj", "--needs", "gpu"], "lj: --needs is for list-providers"),
    ("marketctl", ["backup"], "backup: a file is missing"),
    ("marketctl", ["backup", "a", "b"], "unexpected argument 'b'"),
    ("marketctl", ["backup", "a", "--dir", "b"], "--dir is for restore"),
    ("marketctl", ["ledger", "verify", "--seen", "1:a"], "--seen is for --db"),
    ("marketctl", ["receipts", "--limit", "0"], "'0' is not a whole number"),
])
def test_a_mistake_is_one_line_and_exit_2(tool, tool_name, args, words):
    status, out, err = tool(tool_name, *args)
    assert ((status, out) == (2, "") and err.startswith(tool_name + ": ") and words in err and
            err.count("\n") == 1)


def test_a_refusal_is_one_line_and_exit_1(start, agentd):
    for name, args in [("pvdctl", ["market", "off"]), ("marketctl", ["cancel", "n1.1"])]:
        process = start(name, *args)
        answer(agentd, process, error="only root may\ndo that")
        assert process.communicate(timeout=LIMIT) == (b"",
                                                      f"{name}: only root may do that\n".encode())
        assert process.returncode == 1


@pytest.mark.parametrize("number, code", [
    (0, "failed"), (CAUSES.index("not_found"), "not_found"), (60_000, "unknown"),
    (CAUSES.index("not_allowed"), "not_allowed"), (CAUSES.index("too_many"), "too_many")])
def test_a_refusal_has_its_code_for_programs(start, agentd, number, code):
    process = start("marketctl", "cancel", "n1.1", env={**os.environ, **IN_JSON}, text=True)
    answer(agentd, process, error="it is \"so\"", code=number)
    out, err = process.communicate(timeout=LIMIT)
    done = subprocess.CompletedProcess([], process.returncode, out, err)
    assert refused(done, code) == 'it is "so"'


def test_an_answer_that_is_not_what_was_agreed_is_one_line(start, agentd):
    for name, args, reply in [("pvdctl", ["status"], [1]), ("marketctl", ["lj"], {"a": 1}),
                              ("marketctl", ["status"], 3)]:
        process = start(name, *args)
        answer(agentd, process, reply)
        err = process.communicate(timeout=LIMIT)[1].decode()
        assert (process.returncode == 1 and "the daemon's answer is not a" in err and
                err.count("\n") == 1)


LONG = {"": ([], "a"), "a": ([{"id": "n1.1"}, {"id": "n1.2"}], "n1.2"),
        "n1.2": ([{"id": "n1.3"}], "b"), "b": ([], "")}


def test_a_list_that_comes_in_parts_is_shown_as_one(start, agentd):
    def rows(table):
        return [{"id": line.split()[0]} for line in table.splitlines()[1:]]
    for args, shown in [(["lj", "--json"], json.loads), (["lj"], rows)]:
        process = start("marketctl", *args)
        assert answer(agentd, process, parts=LONG) == ["list-jobs", "state=live"]
        out = process.communicate(timeout=LIMIT)[0].decode()
        assert process.returncode == 0 and shown(out) == [{"id": f"n1.{i}"} for i in (1, 2, 3)]


def test_what_is_not_there_yet_is_asked_for_again(start, agentd, tmp_path):
    done = {"file": "x", "bytes": 7, "receipts": 2, "head": "ab"}
    process = start("marketctl", "backup", "x", cwd=tmp_path)
    connection = agentd.accept()
    connection.welcome()
    for after in ("", "wait", "wait"):  # answers without JSON
        request = connection.expect("ctl_request")
        assert (request.get(5, [b""]) == [after.encode()] and
                request[4] == [f"{tmp_path}/x".encode()])
        connection.send("ctl_reply", {1: request[1][0], 2: True, 5: "wait"})
    request = connection.expect("ctl_request")
    connection.send("ctl_reply", {1: request[1][0], 2: True, 4: json.dumps(done)})
    assert (process.communicate(timeout=LIMIT)[0] == b"File:      x\nBytes:     7\nReceipts:  2\n"
            b"Head:      ab\n")
    assert process.returncode == 0


def test_parts_that_are_no_lists_are_refused(start, agentd):
    process = start("marketctl", "lj", "--json")
    answer(agentd, process, parts={"": ([1], "a"), "a": ({}, "")})
    out, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, out) == (1, b"") and b"is not a JSON list" in err


def test_sockets_are_found_by_node_then_here_then_the_first_node(agentd):
    run = os.path.dirname(agentd.path)
    fakes = {}

    def served_by(name, *args, **environment):
        process = subprocess.Popen([BIN / name, *args], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env={"SOUK_RUN": run, **environment})
        ready = select.select([fake.sock for fake in fakes.values()], [], [], LIMIT)[0]
        fake_name = [key for key, fake in fakes.items() if fake.sock in ready][0]
        answer(fakes[fake_name], process, PROVIDER)
        process.communicate(timeout=LIMIT)
        assert process.returncode == 0
        return fake_name

    try:
        for path in ("n2", "n5", "market"):
            os.mkdir(f"{run}/{path}")
        fakes["n2"], fakes["n5"] = Agentd(f"{run}/n2/agentd.sock"), Agentd(f"{run}/n5/agentd.sock")
        agentd.die()
        assert served_by("pvdctl", "status") == "n2"
        assert served_by("pvdctl", "--node", "n5", "status") == "n5"
        assert served_by("pvdctl", "status", SOUK_NODE="n5") == "n5"
        assert served_by("marketctl", "freeze", "--no-wait", "n1.1") == "n2"
        fakes["market"] = Agentd(f"{run}/market/marketd.sock")
        assert served_by("marketctl", "freeze", "--no-wait", "n1.1") == "market"
        assert served_by("marketctl", "freeze", "--no-wait", "n1.1", "--node", "n5") == "n5"
        fakes["here"] = Agentd(f"{run}/agentd.sock")
        assert served_by("pvdctl", "status") == "here"
    finally:
        for fake in fakes.values():
            fake.close()


def test_a_daemon_that_is_started_again_is_waited_for(start, agentd):
    for name, args in [("pvdctl", ["status"]), ("marketctl", ["status"])]:
        agentd.die()
        process = start(name, "--json", *args, "--patience", "1h")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        agentd.listen()
        answer(agentd, process, PROVIDER)
        assert (json.loads(process.communicate(timeout=LIMIT)[0]) == PROVIDER and
                process.returncode == 0)


def test_a_question_is_asked_again_when_the_daemon_dies_over_it_and_an_order_is_not(start, agentd):
    process = start("marketctl", "--json", "status")
    connection = agentd.accept()
    connection.welcome()
    connection.expect("ctl_request")
    connection.close()
    answer(agentd, process, {"a": 1})
    assert process.communicate(timeout=LIMIT)[0] == b'{"a": 1}\n'
    process = start("marketctl", "freeze", "--no-wait", "n1.1")
    connection = agentd.accept()
    connection.welcome()
    connection.expect("ctl_request")
    connection.close()
    assert (process.communicate(timeout=LIMIT)[1] ==
            b"marketctl: the daemon has closed the connection\n")


def test_an_agentd_without_a_market_is_asked_again(start, agentd):
    process = start("marketctl", "--json", "status")
    connection = agentd.accept()
    connection.welcome()
    connection.expect("ctl_request")
    connection.send("ctl_reply", {1: 1, 3: "no connection to the market", 6: 1})
    answer(agentd, process, {"a": 1})
    assert process.communicate(timeout=LIMIT)[0] == b'{"a": 1}\n'


def test_a_daemon_that_stays_away_is_one_line_after_the_patience(start, agentd):
    agentd.die()
    process = start("marketctl", "--patience", "0.3s", "status")
    err = process.communicate(timeout=LIMIT)[1].decode()
    assert (err.startswith("marketctl: cannot reach the daemon at ") and
            err.endswith("; it was tried again for 300ms\n"))
    assert process.returncode == 1 and err.count("\n") == 1
    process = start("marketctl", "--patience", "0", "status")
    assert b"tried again" not in process.communicate(timeout=LIMIT)[1] and process.returncode == 1


@pytest.mark.parametrize("tool", ["marketctl", "pvdctl"])
def test_a_daemon_that_hangs_is_said_to_be_silent_while_it_is_waited_for(start, agentd, tool):
    process = start(tool, "--json", "status")
    said = process.stderr.readline().decode()
    assert said.startswith(f"{tool}: no answer for 5") and "waited for" in said, said
    answer(agentd, process, {"node": "n1"})
    out, more = process.communicate(timeout=LIMIT)
    assert json.loads(out) == {"node": "n1"} and not more and process.returncode == 0, more
