# SPDX-License-Identifier: GPL-2.0-or-later
"""srun without a terminal, against a scripted agentd."""
import json
import os
import re
import resource
import signal
import subprocess

import pytest

from fake import COMMENT, FROZEN, LIMIT, RUNNING, STOPPED, read_until
from protobuf import decode


@pytest.mark.parametrize("args, words", [
    ([], "--max-price is missing"),
    (["true"], "--max-price is missing"),
    (["-p", "0", "true"], "--max-price: it must be more than 0"),
    (["-p", "-3", "true"], "--max-price: '-3' is not an amount"),
    (["-p", "3eur", "true"], "--max-price: '3eur' is not an amount"),
    (["-p", "3"], "the program to run is missing"),
    (["-p", "3", "-m", "12k", "true"], "--memory: '12k' is no whole number of MB"),
    (["-p", "3", "-m", "4X", "true"], "--memory: '4X' is no size such as 512M, 4G"),
    (["-p", "3", "-m", "0", "true"], "--memory: '0' is not from 1M to 1024T"),
    (["-p", "3", "-c", "0", "true"], "--cpus: '0' is not a whole number"),
    (["-p", "3", "--notify", "true", "true"], "--notify is for --detach"),
    (["-p", "3", "--pace", "-b", "1", "true"], "--pace needs --budget and --finish"),
    (["-p", "3", "--pace=so", "true"], "--pace: 'so' is neither yes nor no"),
    (["-p", "3", "-b", "0", "true"], "--budget: it must be more than 0"),
    (["-p", "3", "-f", "soon", "true"], "--finish: 'soon' is no time such as 90s, 30m, 1.5h, 2d"),
    (["-p", "3", "-f", "0h", "true"], "--finish: '0h' is not from"),
    (["-p", "3", "--hangup", "die", "true"], "--hangup: 'die' is neither detach nor kill"),
    (["-p", "3", "-s", "whatever", "true"],
     "--strategy: 'whatever' is none of truthful, pace, deadline and patient"),
    (["-p", "3", "-s", "pace", "true"], "--pace needs --budget and --finish"),
    (["-p", "3", "-s", "deadline", "-f", "1", "true"], "-s deadline needs --finish and --runtime"),
    (["-p", "3", "--name", "a\nb", "true"],
     "--name: a name without control and format characters is wanted: it holds U+000A"),
    (["-p", "3", "--name", "a\u202eb", "true"], "it holds U+202E"),
    (["-p", "3", "--name", "\u200f", "true"], "U+200F"),
    (["-p", "3", "--name", "a\u2066b", "true"], "U+2066"),
    (["-p", "3", "--name", b"a\xffb", "true"], "in UTF-8 is wanted: byte 2"),
    (["--bogus", "true"], "unknown or ambiguous option '--bogus'"),
    (["-p"], "'-p' needs a value"),
    (["--quiet=3", "-p", "3", "true"], "'--quiet=3' takes no value"),
    (["-J", "n1.7"], "--job: no term to change was given"),
    (["-J", "seven", "-p", "3"], "'seven' is not a job id"),
    (["-J", "n1.7", "-p", "3", "true"], "'true': a program is only for a new job"),
    (["--attach", "n1.7", "-p", "3"], "--attach changes no terms"),
    (["--quote", "-J", "n1.7", "-p", "3"], "--quote is for a new job"),
    (["--quote", "-d", "-p", "3", "true"], "--quote submits nothing"),
    (["--quote", "true"], "--max-price is missing"),
    (["-d", "--log", "x", "-p", "3", "true"], "--log is for a job that srun stays attached to"),
    (["--quote", "--runtime", "2x", "-p", "3", "true"], "--runtime: '2x' is no time such as"),
    (["-n", "2", "-p", "3", "true"], "--jobs is for --quote"),
    (["--quote", "-n", "1001", "-p", "3", "true"], "--jobs: '1001' is not a whole number"),
])
def test_a_mistake_on_the_command_line_is_one_line_and_exit_2(tool, args, words):
    status, out, err = tool("srun", *args)
    assert (status, out) == (2, "")
    assert err.startswith("srun: ") and words in err and err.count("\n") == 1


def test_a_price_that_is_said_once_is_that_of_each_job(tool, tmp_path):
    home = tmp_path / ".config/souk"
    home.mkdir(parents=True)
    env = {**os.environ, "HOME": str(tmp_path), "SOUK_RUN": str(tmp_path), "SOUK_NODE": ""}
    env.pop("SOUK_PRICE", None)
    assert "--max-price is missing" in tool("srun", "true", env=env)[2]
    (home / "price").write_text("40\n")
    status, _, err = tool("srun", "true", env=env)
    assert status == 1 and "no agentd runs on this machine" in err
    status, _, err = tool("srun", "true", env={**env, "SOUK_PRICE": "0"})
    assert status == 2 and "$SOUK_PRICE: it must be more than 0" in err
    (home / "price").write_text("much")
    status, _, err = tool("srun", "true", env=env)
    assert status == 2 and f"{home}/price: 'much' is not an amount" in err


@pytest.mark.parametrize("after, words", [
    ("n1.7:maybe", "'maybe' is none of ok, notok, any and each"), ("n1", "--after: "),
    ("n1.7,n1.8?n1.9", "not both"), ("n1.7:each", "'each' is for --array")])
def test_what_a_job_waits_for_is_looked_at_first(tool, after, words):
    status, _, err = tool("srun", "-p", "3", "--after", after, "true")
    assert status == 2 and words in err and err.count("\n") == 1, err


@pytest.mark.parametrize("begin", ["2020-01-01", "25:00", "soon", "5"])
def test_a_time_to_begin_at_lies_ahead(tool, begin):
    status, _, err = tool("srun", "-p", "3", "--begin", begin, "true")
    assert status == 2 and err.startswith(f"srun: --begin: '{begin}' is "), err


def test_what_cannot_be_run_or_reached_is_one_line_and_exit_1(tool, start, agentd, tmp_path):
    (tmp_path / "plain").write_text("x")
    for program, words in [("no-such-program", "no-such-program: no such program in PATH"),
                           ("./plain", "./plain: Permission denied"),
                           ("/tmp", "/tmp: Is a directory")]:
        process = start("srun", "-p", "3", program, cwd=tmp_path)
        assert process.communicate(timeout=LIMIT) == (b"", f"srun: {words}\n".encode())
        assert process.returncode == 1
    status, _, err = tool("srun", "-p", "3", "true",
                          env={**os.environ, "SOUK_RUN": str(tmp_path), "SOUK_NODE": ""})
    assert status == 1 and "no agentd runs on this machine" in err and err.count("\n") == 1
    status, _, err = tool("srun", "--node", "n9", "-p", "3", "true",
                          env={**os.environ, "SOUK_RUN": str(tmp_path)})
    assert status == 1 and "no node 'n9' here" in err
    process = start("srun", "-p", "3", "true", "x" * 100_000,
                    env={**os.environ, "A": "x" * 120_000, "B": "x" * 120_000, "C": "x" * 120_000,
                         "D": "x" * 120_000})
    assert (b"KiB; a job may have 512" in process.communicate(timeout=LIMIT)[1] and
            process.returncode == 1)


def test_a_job_gets_what_srun_itself_has(start, agentd, tmp_path):
    def limits():
        os.umask(0o027)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 4096))

    process = start("srun", "-p", "40.5", "-b", "9", "-m", "180", "-c", "2", "-f", "1.5", "-s",
                    "pace",
                    "--name", "my job", "sh", "-c", "exit 3", "--help", cwd=tmp_path,
                    preexec_fn=limits, env={"PATH": "/nowhere:/bin", "ODD": b"\xff\xfe"})
    connection = agentd.accept()
    submit = connection.accept_job()
    spec, terms = decode(submit[1][0]), decode(submit[2][0])
    assert spec[1] == [b"sh", b"-c", b"exit 3", b"--help"] and spec[2] == [b"/bin/sh"]
    assert sorted(spec[3]) == [b"ODD=\xff\xfe", b"PATH=/nowhere:/bin"]
    assert spec[4] == [str(tmp_path).encode()] and spec[5] == [0o027]
    core = [decode(r) for r in spec[6] if decode(r).get(1, [0]) == [resource.RLIMIT_CORE]]
    assert core[0].get(2, [0]) == [0] and core[0][3] == [4096]
    assert terms == {1: [40_500_000], 2: [9_000_000], 3: [180], 4: [2], 5: [5400 * 10**9],
                     6: [b"pace"], 7: [1]}
    assert submit[3] == [b"my job"] and submit[4] == [1] and 10 not in spec
    connection.exit(3 << 8)
    assert process.wait(LIMIT) == 3


@pytest.mark.parametrize("message, status, words", [
    (dict(status=0), 0, ""), (dict(status=7 << 8), 7, ""),
    (dict(status=15), 143, "job n1.7: Terminated"), (dict(status=9), 137, "job n1.7: Killed"),
    (dict(status=9, why="it may have 64 MB"), 137, "job n1.7: it may have 64 MB"),
    (dict(status=13), 141, ""), (dict(status=2), 130, ""),
    (dict(why="cancelled by root", cancelled=True), 255, "job n1.7: cancelled by root"),
    (dict(why="/bin/x: Exec format error"), 1, "job n1.7: /bin/x: Exec format error"),
])
def test_the_exit_status_is_the_jobs(start, agentd, message, status, words):
    process = start("srun", "-p", "3", "true")
    connection = agentd.accept()
    connection.accept_job()
    connection.exit(**message)
    out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == status
    assert (out, err.decode()) == (b"", f"srun: {words}\n" if words else "")


def test_a_refused_job_is_one_line_and_exit_1(start, agentd):
    process = start("srun", "-p", "3", "true")
    connection = agentd.accept()
    connection.welcome()
    connection.expect("submit")
    connection.send("error", {1: "this node keeps 100000 jobs already\nreally"})
    assert (process.communicate(timeout=LIMIT)[1] ==
            b"srun: this node keeps 100000 jobs already really\n")
    assert process.returncode == 1


def test_output_comes_whole_in_order_and_once(start, agentd):
    process = start("srun", "-p", "3", "true")
    connection = agentd.accept()
    connection.accept_job()
    connection.output(1, 0, b"hello ")
    connection.output(2, 0, b"oops\n")
    connection.output(1, 0, b"hello wor")  # again, and more
    connection.output(1, 2, b"llo")        # again, nothing new
    connection.output(1, 9, b"ld\n")
    connection.exit()
    assert process.communicate(timeout=LIMIT) == (b"hello world\n", b"oops\n")
    acks = {}
    try:
        while True:
            kind, fields = connection.receive()
            if kind == "output_ack":
                acks[fields[1][0]] = fields[2][0]
    except EOFError:
        pass
    assert acks == {1: 12, 2: 5}


def test_nothing_is_lost_or_doubled_when_the_agentd_dies_and_returns(start, agentd):
    # Quiet: that it has been alone for a second it would say.
    process = start("srun", "-q", "-p", "3", "cat", stdin=subprocess.PIPE)
    connection = agentd.accept()
    connection.accept_job()
    process.stdin.write(b"abcdef")
    process.stdin.flush()
    assert connection.expect("input")[2] == [b"abcdef"]
    connection.send("input_ack", {1: 2})
    connection.output(1, 0, b"line 1\nli")
    assert read_until(process.stdout.fileno(), b"li") == b"line 1\nli"
    agentd.die()
    process.stdin.write(b"ghi")
    process.stdin.close()
    process.stdin = None
    process.send_signal(signal.SIGUSR1)  # while nobody is there
    agentd.listen()
    for _ in range(2):  # and a second time, before the first attach is answered
        connection = agentd.accept()
        connection.welcome()
        attach = connection.expect("attach")
        assert attach[2] == [1] and attach[3] == [9] and attach.get(4, [0]) == [0]
        if _ == 0:
            connection.close()
    connection.send("attached", {1: {1: "n1", 2: 7}, 2: RUNNING, 4: 4, 5: 7})
    # From the offset that the agentd has on, each byte; how they are cut into frames is srun's
    # affair.
    given, ended, signals = b"", False, []
    while not ended or len(given) < 5 or not signals:
        kind, fields = connection.receive()
        if kind == "signal":
            signals.append(fields[1][0])
        if kind == "input":
            assert fields[1] == [4 + len(given)]
            given += fields.get(2, [b""])[0]
            ended = ended or 3 in fields
    assert given == b"efghi" and signals == [signal.SIGUSR1]
    connection.output(1, 7, b"line 2\n")
    connection.exit()
    assert process.communicate(timeout=LIMIT) == (b"ne 2\n", b"")
    assert process.returncode == 0


def test_a_submission_whose_answer_was_lost_is_asked_for_again_not_doubled(start, agentd):
    process = start("srun", "-q", "-p", "3", "true")  # quiet, as above
    connection = agentd.accept()
    connection.welcome()
    first = connection.expect("submit")
    connection.close()
    connection = agentd.accept()
    connection.welcome()
    second = connection.expect("submit")
    assert second[5] == first[5] and second[5] != [0] and 6 not in first and second[6] == [1]
    assert second[1] == first[1] and second[2] == first[2]
    connection.send("submitted", {1: {1: "n1", 2: 7}})
    connection.send("attached", {1: {1: "n1", 2: 7}, 2: RUNNING})
    connection.output(1, 0, b"once\n")
    connection.exit()
    assert process.communicate(timeout=LIMIT) == (b"once\n", b"")


def test_an_agentd_that_stays_away_ends_srun_and_names_the_job(start, agentd):
    process = start("srun", "--patience", "0.3", "-p", "3", "true")
    agentd.accept().accept_job()
    agentd.die()
    assert b"The job goes on: srun --attach n1.7" in process.communicate(timeout=LIMIT)[1]
    assert process.returncode == 1


def test_signals_reach_a_job_that_runs(start, agentd):
    process = start("srun", "-p", "3", "-v", "sleep", "9")
    connection = agentd.accept()
    connection.accept_job()
    read_until(process.stderr.fileno(), b"started on n2")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
                   signal.SIGTSTP, signal.SIGCONT):
        process.send_signal(number)
        while True:
            kind, fields = connection.receive()
            if kind == "signal":
                assert fields[1] == [number]
                break
            assert kind == "input"  # the end of stdin
    connection.exit(15)
    assert process.wait(LIMIT) == 143


def test_a_lost_terminal_leaves_the_job_and_says_how_to_come_back(start, agentd):
    for running in (True, False):
        process = start("srun", "-p", "3", "-v", "sleep", "9")
        connection = agentd.accept()
        connection.accept_job(running)
        connection.send("notice", {1: COMMENT, 2: "seen"})
        read_until(process.stderr.fileno(), b"seen")
        process.send_signal(signal.SIGHUP)
        assert (process.communicate(timeout=LIMIT)[1] ==
                b"srun: the terminal is gone; job n1.7 goes on: srun --attach n1.7\n")
        assert process.returncode == 128 + signal.SIGHUP
        with pytest.raises(EOFError):  # and the job has heard of nothing but the end of stdin
            while True:
                assert connection.receive()[0] == "input"


def test_a_terminal_that_is_lost_before_the_job_has_an_id_waits_for_the_id(start, agentd):
    process = start("srun", "-p", "3", "sleep", "9")
    connection = agentd.accept()
    connection.welcome()
    connection.expect("submit")
    process.send_signal(signal.SIGHUP)
    connection.send("submitted", {1: {1: "n1", 2: 7}})
    assert (b"job n1.7 goes on" in process.communicate(timeout=LIMIT)[1] and
            process.returncode == 129)


def test_a_lost_terminal_ends_the_job_if_so_wished(start, agentd):
    process = start("srun", "--hangup=kill", "-p", "3", "-v", "sleep", "9")
    connection = agentd.accept()
    connection.accept_job()
    read_until(process.stderr.fileno(), b"started on n2")
    process.send_signal(signal.SIGHUP)
    while (frame := connection.receive())[0] != "signal":
        assert frame[0] == "input"  # the end of stdin
    assert frame[1] == {1: [signal.SIGHUP]}
    connection.exit(1)
    assert process.wait(LIMIT) == 129


def test_a_job_that_stops_by_itself_does_not_stop_srun(start, agentd):
    process = start("srun", "-p", "3", "-v", "sh", preexec_fn=os.setpgrp)
    connection = agentd.accept()
    connection.accept_job()
    connection.send("notice", {1: STOPPED, 2: "stopped"})
    connection.output(1, 0, b"still here\n")
    # a stopped srun would not write it.
    assert read_until(process.stdout.fileno(), b"\n") == b"still here\n"
    connection.exit()
    assert process.wait(LIMIT) == 0


def test_a_job_that_was_told_to_stop_stops_srun(start, agentd):
    process = start("srun", "-p", "3", "-v", "sh", preexec_fn=os.setpgrp)
    connection = agentd.accept()
    connection.accept_job()
    read_until(process.stderr.fileno(), b"started on n2")
    process.send_signal(signal.SIGTSTP)
    while (frame := connection.receive())[0] != "signal":
        assert frame[0] == "input"
    connection.send("notice", {1: STOPPED, 2: "stopped"})
    assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
    process.send_signal(signal.SIGCONT)
    while (frame := connection.receive())[0] != "signal":
        assert frame[0] == "input"
    assert frame[1] == {1: [signal.SIGCONT]}
    connection.exit()
    assert process.wait(LIMIT) == 0


@pytest.mark.parametrize("memory, mb",
                         [("4G", 4096), ("512m", 512), ("1.5GiB", 1536), ("2048K", 2), ("7", 7)])
@pytest.mark.parametrize("finish, seconds",
                         [("30m", 1800), ("1.5h", 5400), ("90s", 90), ("1d", 86400), ("2", 7200)])
def test_times_and_sizes_have_units_or_the_one_they_always_had(start, agentd, memory, mb, finish,
                                                               seconds):
    process = start("srun", "-J", "n1.7", "-m", memory, "-f", finish)
    connection = agentd.accept()
    connection.welcome()
    terms = decode(connection.expect("change")[3][0])
    assert terms[3] == [mb] and terms[5] == [seconds * 10**9]
    connection.send("ok")
    assert process.wait(LIMIT) == 0


def cancelled_by_then(connection, process):
    while True:
        kind, fields = connection.receive()
        if kind == "signal":
            break
        assert kind == "input"  # the end of stdin
    assert fields[1] == [signal.SIGINT]
    connection.exit(why="cancelled", cancelled=True)
    assert process.wait(LIMIT) == 130


def test_a_job_that_waits_says_why_and_is_cancelled_by_one_signal(start, agentd):
    process = start("srun", "-p", "3", "sleep", "9")
    connection = agentd.accept()
    connection.accept_job(running=False,
                          then=[("notice", {1: COMMENT, 2: "no machine has 2 CPUs"})])
    assert (read_until(process.stderr.fileno(), b"\n") ==
            b"srun: job n1.7 waits: no machine has 2 CPUs\n")
    process.send_signal(signal.SIGINT)
    cancelled_by_then(connection, process)


def test_a_frozen_job_says_why_and_is_cancelled_when_asked_twice(start, agentd):
    process = start("srun", "-p", "3", "sleep", "9")
    connection = agentd.accept()
    connection.accept_job()
    connection.send("notice", {1: FROZEN, 2: "outbid"})
    assert read_until(process.stderr.fileno(), b"\n") == b"srun: job n1.7 is frozen: outbid\n"
    process.send_signal(signal.SIGINT)
    assert b"once more to cancel it" in read_until(process.stderr.fileno(), b"\n")
    process.send_signal(signal.SIGINT)
    cancelled_by_then(connection, process)


def test_input_keeps_within_its_window(start, agentd, tmp_path):
    data = os.urandom(1_000_000)
    (tmp_path / "data").write_bytes(data)
    with open(tmp_path / "data", "rb") as stdin:
        process = start("srun", "-p", "3", "cat", stdin=stdin)
    connection = agentd.accept()
    connection.accept_job()
    got, acked, ended = b"", 0, False
    while not ended:
        fields = connection.expect("input")
        assert fields.get(1, [0])[0] == len(got)
        got += fields.get(2, [b""])[0]
        ended = 3 in fields
        assert len(got) - acked <= 300_000
        if len(got) - acked > 200_000:
            acked = len(got)
            connection.send("input_ack", {1: acked})
    assert got == data
    connection.exit()
    assert process.wait(LIMIT) == 0


def test_a_reader_that_goes_away_is_a_broken_pipe_for_the_job(start, agentd):
    process = start("srun", "-p", "3", "yes")
    connection = agentd.accept()
    connection.accept_job()
    connection.output(1, 0, b"y\n")
    assert os.read(process.stdout.fileno(), 2) == b"y\n"
    process.stdout.close()
    process.stdout = None
    connection.output(1, 2, b"y\n" * 1000)
    while True:
        kind, fields = connection.receive()
        if kind == "signal":
            assert fields[1] == [signal.SIGPIPE]
            break
    connection.exit(13)
    assert process.communicate(timeout=LIMIT)[1] == b"" and process.returncode == 141


def test_a_full_disk_at_stdout_leaves_the_job_and_says_how_to_go_on(start, agentd):
    with open("/dev/full", "w") as full:
        process = start("srun", "-p", "3", "true", stdout=full)
    connection = agentd.accept()
    connection.accept_job()
    connection.output(1, 0, b"x\n")
    err = process.communicate(timeout=LIMIT)[1]
    assert err == b"srun: stdout: No space left on device; job n1.7 goes on: srun --attach n1.7\n"
    assert process.returncode == 1


def test_json_summaries(start, agentd, tmp_path):
    for args, where in [(["--json"], None),
                        ([f"--json={tmp_path}/out.json"], tmp_path / "out.json")]:
        process = start("srun", "-p", "3", *args, "true")
        connection = agentd.accept()
        connection.accept_job()
        connection.exit(summary='{"id":"n1.7","exit":0}')
        out, err = process.communicate(timeout=LIMIT)
        assert (out == b"" and
                json.loads(where.read_text() if where else err) == {"id": "n1.7", "exit": 0})
    process = start("srun", "-p", "3", "--json=/nowhere/out.json", "true")
    assert (process.communicate(timeout=LIMIT)[1] ==
            b"srun: /nowhere/out.json: No such file or directory\n")
    assert process.returncode == 1


def test_a_log_has_each_step_with_its_time(start, agentd, tmp_path):
    (tmp_path / "log").write_text("of before\n")
    process = start("srun", "-p", "3", "--log", tmp_path / "log", "true")
    connection = agentd.accept()
    connection.accept_job()
    connection.send("notice", {1: COMMENT, 2: "a better\nbid"})
    connection.send("notice", {1: FROZEN, 2: "frozen on n2"})
    connection.exit(status=3 << 8)
    assert process.communicate(timeout=LIMIT)[0] == b"" and process.returncode == 3
    first, *lines = (tmp_path / "log").read_text().splitlines()
    assert first == "of before" and all(
        re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} job n1\.7 ", line) for line in lines)
    assert [line[24:] for line in lines] == ["job n1.7 submitted", "job n1.7 started on n2 at 24.5",
                                             "job n1.7 a better bid", "job n1.7 frozen on n2",
                                             "job n1.7 finished, exit status 3"]
    process = start("srun", "-p", "3", "--log", "/nowhere/log", "true")
    assert (process.communicate(timeout=LIMIT)[1] ==
            b"srun: /nowhere/log: No such file or directory\n" and process.returncode == 1)


@pytest.mark.parametrize("args, printed",
                         [(["-d"], b"n1.7\n"), (["-d", "--json"], b'{"id":"n1.7"}\n')])
def test_a_detached_submission_prints_the_id(start, agentd, args, printed):
    process = start("srun", *args, "-p", "3", "true")
    submit = agentd.accept().accept_job()
    assert 4 not in submit
    assert process.communicate(timeout=LIMIT) == (printed, b"") and process.returncode == 0


def test_terms_of_a_running_job_change_and_a_bare_number_is_a_job_of_the_node(start, agentd):
    process = start("srun", "-J", "7", "-p", "50", "-m", "10")
    connection = agentd.accept()
    connection.welcome("node-x")
    change = connection.expect("change")
    assert decode(change[1][0]) == {1: [b"node-x"], 2: [7]} and change[2] == [1 | 4]
    assert decode(change[3][0])[1] == [50_000_000] and decode(change[3][0])[3] == [10]
    connection.send("ok")
    assert process.wait(LIMIT) == 0
    process = start("srun", "-J", "n2.9", "-p", "50")
    connection = agentd.accept()
    connection.welcome()
    connection.expect("change")
    connection.send("error", {1: "no job n2.9 on this node"})
    assert (process.communicate(timeout=LIMIT)[1] == b"srun: no job n2.9 on this node\n" and
            process.returncode == 1)


def test_attach_goes_on_where_the_job_is(start, agentd):
    process = start("srun", "--attach", "n1.7", stdin=subprocess.PIPE)
    connection = agentd.accept()
    connection.welcome()
    attach = connection.expect("attach")
    assert 2 not in attach
    connection.send("attached", {1: {1: "n1", 2: 7}, 2: RUNNING, 4: 100, 5: 50, 6: 0})
    connection.output(1, 50, b"late\n")
    process.stdin.write(b"in")
    process.stdin.flush()
    given = connection.expect("input")
    assert given[1] == [100] and given[2] == [b"in"]
    connection.exit()
    assert process.communicate(timeout=LIMIT) == (b"late\n", b"") and process.returncode == 0


def test_garbage_from_the_daemon_is_one_line(start, agentd):
    process = start("srun", "-p", "3", "true")
    connection = agentd.accept()
    connection.expect("hello")
    connection.sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert (process.communicate(timeout=LIMIT)[1] ==
            b"srun: the daemon: this is not souk's protocol\n")
    assert process.returncode == 1


def test_a_daemon_of_another_version_is_named(start, agentd):
    process = start("srun", "-p", "3", "true")
    connection = agentd.accept()
    connection.expect("hello")
    connection.send("welcome", {1: 9, 2: "n1"})
    assert (b"speaks version 9 of souk's protocol" in process.communicate(timeout=LIMIT)[1] and
            process.returncode == 1)


def test_closed_standard_descriptors_do_no_harm(start, agentd):
    def close():
        for fd in (0, 1, 2):
            os.close(fd)
    process = start("srun", "-p", "3", "true", preexec_fn=close)
    connection = agentd.accept()
    connection.accept_job()
    connection.exit(5 << 8)
    assert process.wait(LIMIT) == 5


def test_a_closed_stdout_is_a_failure_if_the_job_writes_there(start, agentd):
    process = start("srun", "-p", "3", "true", preexec_fn=lambda: os.close(1))
    connection = agentd.accept()
    connection.accept_job()
    connection.output(1, 0, b"lost\n")
    assert (process.communicate(timeout=LIMIT)[1] ==
            b"srun: stdout: Bad file descriptor; job n1.7 goes on: srun --attach n1.7\n")
    assert process.returncode == 1


QUOTE = {"runs": True, "bid": 40, "node": "n2", "speed": 80, "price": 12.5, "others_first": True,
         "displaced": 1, "winning_bid": 12.5, "cost_now": 31.25, "span_now_s": 9000,
         "budget_lasts_s": 28800, "history_s": 86400, "place_share": 0.934, "frozen_chance": 0.002,
         "expected_cost": 33, "expected_span_s": 9120, "in_time_chance": 0.5}


def test_a_quote_asks_the_market_and_submits_nothing(start, agentd):
    args = ["--quote", "-p", "40", "-b", "100", "-c", "2", "-m", "64", "-f", "3", "--runtime", "2h"]
    for more, quoted in [
            ([], QUOTE), (["--json"], QUOTE),
            (["no-such-program"], {"runs": False, "bid": 40, "why": "outbid", "history_s": 0})]:
        process = start("srun", *args, *more)
        connection = agentd.accept()
        connection.welcome()
        request = connection.expect("ctl_request")
        assert request[3] == [b"quote"]
        assert sorted(a.decode() for a in request[4]) == ["budget=100", "cpus=2",
                                                          "finish_ns=10800000000000", "memory=64",
                                                          "price=40", "runtime_ns=7200000000000"]
        connection.send("ctl_reply", {1: request[1][0], 2: True, 4: json.dumps(quoted)})
        out, err = process.communicate(timeout=LIMIT)
        assert (process.returncode, err) == (0, b"")
        if more == ["--json"]:
            assert json.loads(out) == QUOTE
            continue
        lines = dict(line.strip().split(":", 1) for line in out.decode().splitlines())
        lines = {key: value.strip() for key, value in lines.items()}
        if not quoted["runs"]:
            assert lines == {"Now": "waits: outbid", "At once for": "no bid", "Prices of": "0.0s"}
            continue
        assert lines["Now"] == "runs on n2 (speed 80) at 12.5 per CPU-hour, in place of 1 job"
        assert (lines["At once for"] == "a bid of 12.5" and
                lines["Cost"] == "31.25, at the price now")
        assert (lines["Finish"].startswith("2h30m, at 20") and
                lines["Budget lasts"].startswith("8h00m"))
        assert (lines["a place"].startswith("93%") and
                lines["frozen"].startswith("less than 1%") and lines["in time"] == "50%")


def test_a_quote_for_several_jobs_says_how_many_run_where_and_what_all_cost(start, agentd):
    places = [{"node": "n2", "speed": 80, "price": 12.5, "jobs": 1},
              {"node": "n3", "speed": 60, "price": 7, "jobs": 2}]
    some = {"runs": False, "bid": 40, "running": 3, "rate": 26.5, "places": places, "displaced": 2,
            "others_first": True, "why": "outbid; 41 would win a place", "winning_bid": 44,
            "history_s": 86400, "place_share": 1}
    process = start("srun", "--quote", "-n", "4", "-p", "40")
    connection = agentd.accept()
    connection.welcome()
    request = connection.expect("ctl_request")
    assert b"jobs=4" in request[4] and b"price=40" in request[4]
    connection.send("ctl_reply", {1: request[1][0], 2: True, 4: json.dumps(some)})
    out, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, err) == (0, b"")
    lines = dict(line.strip().split(":", 1) for line in out.decode().splitlines())
    lines = {key: value.strip() for key, value in lines.items()}
    assert lines == {
        "Now": "3 of 4 jobs run, in place of 2 jobs; another waits: outbid; 41 would win a place",
        "1 job": "n2 (speed 80) at 12.5 per CPU-hour",
        "2 jobs": "n3 (speed 60) at 7 per CPU-hour",
        "All an hour": "26.5", "All for": "a bid of 44", "Prices of": "24h00m, for one of them",
        "a place": "100% of the time, at this bid"}


def test_a_quote_that_cannot_be_given_is_one_line_and_exit_1(start, agentd):
    process = start("srun", "--quote", "-p", "40", "true")
    connection = agentd.accept()
    connection.welcome()
    request = connection.expect("ctl_request")
    connection.send("ctl_reply", {1: request[1][0],
                                  3: "this node has no connection to the market at m:1 (refused)"})
    assert process.communicate(timeout=LIMIT) == (
        b"", b"srun: this node has no connection to the market at m:1 (refused)\n")
    assert process.returncode == 1
