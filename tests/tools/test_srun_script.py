# SPDX-License-Identifier: GPL-2.0-or-later
"""srun with what users of other schedulers reach for: job scripts, output in files, one status
line; against a scripted agentd."""
import os
import pty
import re

import pytest

from fake import COMMENT, FROZEN, LIMIT, MOVED, RUNNING, STARTED, WAITING, read_until
from protobuf import decode, encode


def script(path, *lines):
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o755)
    return str(path)


def test_a_job_script_has_options_and_the_command_line_goes_before_them(start, agentd, tmp_path):
    job = script(tmp_path / "job.sh", "#!/bin/sh", "# a remark", "#SOUK -p 12.5 -c 2",
                 "#SOUK --name 'night run' -m 2G", "#SOUKED -c 9", "echo", "#SOUK -c 7")
    process = start("srun", "-c", "4", job, "argument", cwd=tmp_path)
    connection = agentd.accept()
    submit = connection.accept_job()
    terms = decode(submit[2][0])
    assert (terms[1], terms[3], terms[4]) == ([12_500_000], [2048], [4])
    assert submit[3] == [b"night run"]
    assert decode(submit[1][0])[1] == [job.encode(), b"argument"]
    connection.exit(0)
    assert process.wait(LIMIT) == 0


@pytest.mark.parametrize("line, words", [
    ("#SOUK --bogus", "job.sh line 2: unknown or ambiguous option '--bogus'"),
    ("#SOUK -p 3 --memory lots", "job.sh line 2: --memory: "),
    ("#SOUK -p 3 --time 4x", "job.sh line 2: --time: '4x' is no time"),
    ("#SOUK -p 3 --name 'x", "line 2: a quote (') does not end"),
    ("#SOUK -p 3 xz", "job.sh line 2: 'xz' of a #SOUK line is not an option"),
    ("#SOUK -c 2", "--max-price is missing")])
def test_a_mistake_in_a_job_script_is_one_line_and_exit_2(tool, tmp_path, line, words):
    status, out, err = tool("srun", script(tmp_path / "job.sh", "#!/bin/sh", line))
    assert (status, out) == (2, "")
    assert err.startswith("srun: ") and words in err and err.count("\n") == 1


def test_lines_for_slurm_are_named_as_not_read(start, agentd, tmp_path):
    job = script(tmp_path / "job.sh", "#!/bin/sh", "# a remark", "#SBATCH -n 4", "#SBATCH -c 2")
    told = f"srun: {job} line 3: #SBATCH lines are not read"
    for words, said in [([job], told), (["-q", job], "")]:
        process = start("srun", "-p", "3", *words, text=True)
        connection = agentd.accept()
        connection.accept_job()
        connection.exit(0)
        err = process.communicate(timeout=LIMIT)[1]
        assert err.startswith(said) and err.count("\n") == (1 if said else 0), err


@pytest.mark.parametrize("words, said", [
    (["--time-min=4"], "unknown or ambiguous option '--time-min=4': -t TIME (--time) is the most"),
    (["--time=4:0x"], "'4:0x' is no time such as 2:30:00"),
    (["--time=1h@0"], "'0' is not a whole number from 1 to 16383"),
    (["--signal=USR9@5m"], "'USR9' is no signal, such as USR1"),
    (["-p", "1", "--signal=USR1", "true"], "--signal needs --time"),
    (["-p", "1", "--retry-on=1", "true"], "--retry-on needs --retries"),
    (["--retry-on=0"], "'0' is none of an exit status (1 to 255), signal and node"),
    (["--gres=gpu:1"], "--resource gpu=1 asks for devices"),
    (["--mem-per-cpu=2G"], "-m SIZE"),
    (["--dependency=afterok:1"], "--after ID:ok"), (["-n", "4"], "-N N"),
    (["--ntasks=4"], "-N N"), (["--checkpoint-evry=3"], "did you mean '--checkpoint-every'?"),
    (["-o", "out.%q"], "--output: '%q' is none of %j (the job's id), %a (its index in an array)"),
    (["-e", "err.%y"], "--error: '%y' is none of"), (["-C", "gpu"], "--needs EXPRESSION"),
    (["-w", "n1"], "--nodes NODE,..."), (["-x", "n1"], "--exclude NODE,..."),
    (["--nodes=4"], "a job of N components is -N N"), (["--nodes=n1,"], "'' is not a node name"),
    (["--needs=gpu and"], "at 8: the name of an attribute is wanted, and it ends there")])
def test_options_of_slurm_are_named_here(tool, words, said):
    status, out, err = tool("srun", "-p", "3", *words, "true")
    assert (status, out, err.count("\n")) == (2, "", 1) and said in err, err


@pytest.mark.parametrize("name", ["gone/out.%j", "gone/out", "."])
def test_a_file_that_cannot_be_written_is_said_before_there_is_a_job(start, agentd, tmp_path,
                                                                     name):
    process = start("srun", "-p", "3", "--array", "1-50", "-d", "-o", name, "true", cwd=tmp_path)
    err = process.communicate(timeout=LIMIT)[1].decode()
    assert process.returncode == 1 and err.startswith(f"srun: {name}: "), err
    assert not agentd.connections  # nobody was asked


def test_a_program_without_such_lines_is_only_run(tool, tmp_path):
    (tmp_path / "data").write_text("#SOUK -p 3\n")  # not a script
    assert "--max-price is missing" in tool("srun", str(tmp_path / "data"))[2]


def test_output_goes_into_files_named_by_the_jobs_id(start, agentd, tmp_path):
    process = start("srun", "-p", "3", "-o", "out.%j", "-e", "err.%j", "true", cwd=tmp_path)
    connection = agentd.accept()
    connection.accept_job()
    connection.output(1, 0, b"one\n")
    connection.output(2, 0, b"two\n")
    connection.exit(0)
    assert process.wait(LIMIT) == 0
    assert (tmp_path / "out.n1.7").read_bytes() == b"one\n"
    assert (tmp_path / "err.n1.7").read_bytes() == b"two\n"


def test_a_file_that_cannot_be_written_leaves_the_job_and_says_so(start, agentd, tmp_path):
    (tmp_path / "out.n1.7").mkdir()  # which nobody can know before
    process = start("srun", "-p", "3", "-o", "out.%j", "true", cwd=tmp_path)
    agentd.accept().accept_job(running=False)
    err = process.communicate(timeout=LIMIT)[1].decode()
    assert process.returncode == 1 and err.count("\n") == 1
    assert "out.n1.7: Is a directory; job n1.7 goes on: srun --attach n1.7" in err


def test_the_status_is_a_line_that_is_written_anew_and_goes_away(start, agentd):
    terminal, slave = pty.openpty()
    process = start("srun", "-p", "3", "--status=line", "true", stderr=slave,
                    env={**os.environ, "TERM": "xterm"})
    os.close(slave)
    connection = agentd.accept()
    connection.accept_job(running=False,
                          then=[("notice", {1: COMMENT, 2: "outbid; 41 would win a place"})])
    shown = read_until(terminal, b"a place")
    connection.send("notice", {1: STARTED, 2: "started on n2"})
    shown += read_until(terminal, b"on n2")
    # (After a second it is written once more.)
    assert re.fullmatch(rb"\rsrun: n1\.7: outbid; 41 would win a place"
                        rb"(\r\x1b\[K\rsrun: n1\.7: outbid; 41 would win a place)*"
                        rb"\r\x1b\[K\rsrun: n1\.7: started on n2", shown), shown
    connection.exit(0)
    assert process.wait(LIMIT) == 0
    assert read_until(terminal, b"\x1b[K") == b"\r\x1b[K"
    os.close(terminal)


def test_the_status_as_a_log_is_a_line_each_and_never_is_nothing(start, agentd):
    for how, said in [("log", b"srun: n1.7: outbid\nsrun: n1.7: started on n2\n"), ("never", b"")]:
        process = start("srun", "-p", "3", "--status", how, "true")
        connection = agentd.accept()
        connection.accept_job(running=False, then=[
            ("notice", {1: COMMENT, 2: "outbid"}), ("notice", {1: STARTED, 2: "started on n2"})])
        connection.exit(0)
        ended = b"srun: n1.7: has ended, exit status 0\n" if how == "log" else b""
        assert process.communicate(timeout=LIMIT)[1] == said + ended


def test_the_status_says_price_and_cost_and_where_the_job_went(start, agentd):
    terminal, slave = pty.openpty()
    process = start("srun", "-p", "13", "--status=line", "true", stderr=slave,
                    env={**os.environ, "TERM": "xterm"})
    os.close(slave)
    connection = agentd.accept()
    connection.accept_job(running=False, then=[("meter", {1: WAITING, 5: 1})])
    read_until(terminal, b"srun: n1.7 waits ")
    connection.send("meter", {1: RUNNING, 2: "n2", 3: 12_400_000, 4: 31_250, 5: 4})
    read_until(terminal, b"srun: n1.7 on n2 at 12.4 per CPU-hour on 4 CPUs, 0.0313 so far")
    connection.send("notice", {1: MOVED, 2: "moved from n2 to n3, pause 84.0 ms"})
    connection.send("meter", {1: RUNNING, 2: "n3", 3: 3_600_000_000, 4: 31_250, 5: 1, 6: True})
    read_until(terminal, b"n1.7 on n3 at 3600 per CPU-hour, ")
    # It costs 1 a second now, which the line follows by itself.
    assert any(re.search(rb" [1-9][\d.]* so far", read_until(terminal, b" so far"))
               for _ in range(60))
    connection.output(1, 0, b"one\n")  # not on this terminal
    connection.send("meter", {1: 6, 2: "n3", 4: 2_000_000, 5: 1})
    connection.send("notice", {1: FROZEN, 2: "frozen on n3"})
    read_until(terminal, b"n1.7 frozen on n3 for ")
    connection.exit(0)
    assert process.wait(LIMIT) == 0
    os.close(terminal)


def test_the_log_of_the_status_has_price_and_cost(start, agentd):
    process = start("srun", "-p", "13", "--status=log", "true")
    connection = agentd.accept()
    connection.accept_job(running=False, then=[
        ("meter", {1: RUNNING, 2: "n2", 3: 12_000_000, 4: 31_250, 5: 1}),
        ("meter", {1: RUNNING, 2: "n2", 3: 13_000_000, 4: 31_250, 5: 1}),  # within the same minute
        ("notice", {1: MOVED, 2: "moved from n1 to n2"})])
    connection.exit(0, summary='{"id":"n1.7","cost":0.03125}')
    assert process.communicate(timeout=LIMIT)[1].decode().splitlines() == [
        "srun: n1.7: 12 per CPU-hour, 0.0313 so far",
        "srun: n1.7: moved from n1 to n2; 13 per CPU-hour, 0.0313 so far",
        "srun: n1.7: has ended, exit status 0, 0.0313 in all"]


@pytest.mark.parametrize("terminal,how", [(True, "-q --status=log"), (True, "--status=never"),
                                          (False, "--status=line"), (False, "-q")])
def test_quiet_and_never_say_nothing_and_no_line_goes_into_a_file(start, agentd, terminal, how,
                                                                  tmp_path):
    ours, theirs = pty.openpty() if terminal else os.pipe()
    process = start("srun", "-p", "13", *how.split(), "true", stderr=theirs,
                    env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    connection = agentd.accept()
    connection.accept_job(running=False, then=[
        ("meter", {1: RUNNING, 2: "n2", 3: 12_000_000, 5: 1}),
        ("notice", {1: MOVED, 2: "moved from n1 to n2"})])
    connection.exit(0)
    assert process.wait(LIMIT) == 0
    assert read_until(ours, None) == b""
    os.close(ours)


def test_waiting_for_a_job_takes_none_of_its_output_and_ends_as_it_does(start, agentd, tmp_path):
    process = start("srun", "-p", "3", "--wait", "-o", "out.%j", "true", cwd=tmp_path)
    first = agentd.accept()
    first.welcome()
    submit = first.expect("submit")
    assert submit[8] == [b"out.%j"] and 4 not in submit  # its home writes the file
    first.send("submitted", {1: {1: "n1", 2: 7}})
    for lost in (True, False):
        connection = agentd.accept()
        connection.welcome()
        assert connection.expect("attach") == {1: [encode({1: "n1", 2: 7})], 5: [1]}
        connection.send("attached", {1: {1: "n1", 2: 7}, 2: RUNNING})
        connection.send("meter", {1: RUNNING, 5: 1})
        if lost:
            connection.close()
    connection.exit(5 << 8)
    assert process.communicate(timeout=LIMIT) == (b"n1.7\n", b"") and process.returncode == 5
    assert (tmp_path / "out.n1.7").exists()


def test_waiting_for_jobs_that_are_there_gives_the_greatest_status(start, agentd):
    process = start("srun", "--wait=n1.7,n1.8")
    for name in (b"n1.7", b"n1.8"):  # is it an array?
        connection = agentd.accept()
        connection.welcome()
        request = connection.expect("ctl_request")
        assert (request[3], request[4]) == ([b"job"], [name])
        connection.send("ctl_reply", {1: request[1][0], 2: True, 4: b'{"id": "%s"}' % name})
    for seq, status in ((7, 2 << 8), (8, 0)):
        connection = agentd.accept()
        connection.welcome()
        assert decode(connection.expect("attach")[1][0]) == {1: [b"n1"], 2: [seq]}
        connection.send("attached", {1: {1: "n1", 2: seq}, 2: RUNNING})
        connection.exit(status)
    assert process.communicate(timeout=LIMIT) == (b"", b"") and process.returncode == 2


def submissions(agentd, n):
    """Takes so many on one connection, as jobs n1.7 and following."""
    connection = agentd.accept()
    connection.welcome()
    taken = []
    for i in range(n):
        taken.append(connection.expect("submit"))
        connection.send("submitted", {1: {1: "n1", 2: 7 + i}})
    return connection, taken


def test_an_array_is_one_id_and_its_jobs_know_their_index(start, agentd):
    process = start("srun", "-p", "3", "--array", "3,5-6%2", "--detach", "true")
    _, taken = submissions(agentd, 3)
    assert process.communicate(timeout=LIMIT) == (b"n1.7\n", b"") and process.returncode == 0
    groups = [decode(submit[7][0]) for submit in taken]
    assert groups == [{4: [1], 5: [3], 6: [2]}, {3: [7], 5: [5], 6: [2]}, {3: [7], 5: [6], 6: [2]}]
    assert len({submit[5][0] for submit in taken}) == 3  # a token each


def test_an_array_that_is_not_detached_ends_with_the_greatest_status(start, agentd, tmp_path):
    process = start("srun", "-p", "3", "--array", "1-2", "-o", "out.%j.%a", "true", cwd=tmp_path)
    submissions(agentd, 2)
    for seq, status in [(7, 3 << 8), (8, 0)]:
        connection = agentd.accept()
        connection.welcome()
        assert decode(connection.expect("attach")[1][0]) == {1: [b"n1"], 2: [seq]}
        connection.send("attached", {1: {1: "n1", 2: seq}, 2: 3})
        connection.output(1, 0, b"of %d\n" % seq)
        connection.exit(status)
    assert process.wait(LIMIT) == 3
    assert [(tmp_path / f"out.n1.{n}").read_text() for n in ("7.1", "8.2")] == ["of 7\n", "of 8\n"]


def test_a_job_can_wait_for_another_of_the_node(start, agentd):
    process = start("srun", "-p", "3", "--after", "n1.4:ok", "--detach", "true")
    _, taken = submissions(agentd, 1)
    assert decode(taken[0][7][0]) == {1: [4], 2: [1]}
    assert process.communicate(timeout=LIMIT)[0] == b"n1.7\n"
    process = start("srun", "-p", "3", "--after", "n2.4", "--detach", "true")
    agentd.accept().welcome()
    err = process.communicate(timeout=LIMIT)[1]
    assert b"--after: job n2.4 was submitted on another node" in err
    assert process.returncode == 1


@pytest.mark.parametrize("text, words", [
    ("", "is no list of indexes"), ("5-1", "is no list of indexes"), ("1,,2", "is no list"),
    ("1-3%0", "has no number above 0 after %"), ("1-3%", "has no number above 0 after %"),
    ("1,2,1", "has an index twice"), ("1-10001", "has more than 10000 indexes"),
    ("1000001", "has an index above 1000000")])
def test_a_list_of_indexes_that_is_none_is_one_line(tool, text, words):
    status, _, err = tool("srun", "-p", "3", "--array", text, "true")
    assert status == 2 and words in err and err.count("\n") == 1
