# SPDX-License-Identifier: GPL-2.0-or-later
"""srun --components FILE: what becomes of each form of it, and what is refused."""
import pytest

from fake import LIMIT
from protobuf import decode

TOML = """
[names]
DIR = "/tmp"
X = "$(DIR)/x"

[[component]]
label = "master"
program = "/bin/echo"
arguments = ["$(X)", 3]
cpus = 2

[[component]]
count = 2
label = "w"
class = "optional"
program = "sh"
memory = "64M"
environment = { NAME = "a b", OTHER = "$(X)" }
directory = "$(DIR)"
"""
REQUEST = """+ (* two components *)
( &(label="master") (Count=2) (jobtype=mpi)
   (executable=/bin/echo) (arguments= $(X) 3) (subjobStartType=strict-barrier)
   (rslSubstitution=(DIR /tmp) (X $(DIR)/x)) )
( &(label='w-0') (subjob_start_type=no-barrier) (memory>=64) (executable=sh)
   (environment=(NAME "a b") (OTHER "/t"#mp/x)) (directory=/tmp) )
( &(label=w-1) (subjobStartType=no-barrier) (memory=64M) (executable=sh) (directory=/tmp)
   (environment=(NAME 'a b') (OTHER /tmp/x)) )
"""


def texts(fields, number):
    return [text.decode() for text in fields.get(number, [])]


def submitted(start, agentd, *args, sent=None):
    """The requests of srun -d for three components."""
    process = start("srun", "-p", "40", "-d", *args)
    connection = agentd.accept()
    connection.welcome()
    requests = []
    for number in range(3):
        submit = connection.expect("submit")
        if sent is not None:
            sent.append(submit)
        requests.append((decode(submit[1][0]), decode(submit[2][0]), decode(submit[7][0])))
        connection.send("submitted", {1: {1: "n1", 2: 7 + number}, 3: True, 4: True, 5: True})
    out, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, out, err) == (0, b"n1.7\n", b"")
    return requests


@pytest.mark.parametrize("text", [TOML, REQUEST], ids=["toml", "request"])
def test_each_component_is_submitted_as_the_file_has_it(start, agentd, tmp_path, text):
    (tmp_path / "job").write_text(text)
    requests = submitted(start, agentd, "-b", "8", "-m", "32", "-N", tmp_path / "job")
    specs, terms, groups = zip(*requests)
    assert texts(specs[0], 1) == ["/bin/echo", "/tmp/x", "3"]
    assert [t[4] for t in terms] == [[2], [1], [1]]
    assert [t[3] for t in terms] == [[32], [64], [64]]
    # by CPUs
    assert [t[2] for t in terms] == [[4_000_000], [2_000_000], [2_000_000]]
    assert [g.get(12, [0]) for g in groups] == [[0], [2], [2]]
    assert [g[8] for g in groups] == [[3]] * 3
    for spec in specs[1:]:
        assert texts(spec, 1) == ["sh"] and texts(spec, 4) == ["/tmp"]
        assert {"NAME=a b", "OTHER=/tmp/x", "SOUK_NAMES=master,w-0,w-1"} <= set(texts(spec, 3))


def test_a_request_names_nodes_by_contacts_and_files_for_its_output(start, agentd, tmp_path):
    """An ordered request as DCS has it; the second file lies beside the directory."""
    (tmp_path / "job").write_text(f"""+
( &(resourceManagerContact="fs0.site.org:2119/jobmanager-pbs") (label="a") (count=8)
   (executable=/bin/echo) (stdout={tmp_path}/a.out) (stderr={tmp_path}/a.err) )
( &(resourceManagerContact="fs3") (label="b") (count=8) (directory={tmp_path})
   (executable=/bin/echo) (stdout=b.out) )
( &(label="c") (executable=/bin/echo) )
""")
    sent = []
    submitted(start, agentd, "-o", tmp_path / "rest", "-N", tmp_path / "job", sent=sent)
    groups = [decode(one[7][0]) for one in sent]
    assert [texts(g, 13) for g in groups] == [["fs0"], ["fs3"], []]
    assert [texts(one, 8) for one in sent] == [[f"{tmp_path}/a.out"], [f"{tmp_path}/b.out"],
                                               [f"{tmp_path}/rest"]]
    assert [texts(one, 9) for one in sent] == [[f"{tmp_path}/a.err"], [], []]


@pytest.mark.parametrize("args", [["--ordered", "n1:1,n2:1,n3:1", "-N", "3"],
                                  ["-N", "3", "--ordered", "n1,n2,n3"]])
def test_a_number_of_components_may_stand_beside_as_many_nodes(start, agentd, args):
    sent = []
    submitted(start, agentd, *args, "/bin/echo", sent=sent)
    assert [texts(decode(one[7][0]), 13) for one in sent] == [["n1"], ["n2"], ["n3"]]


def test_what_the_file_does_not_say_is_as_on_the_command_line(start, agentd, tmp_path):
    (tmp_path / "job").write_text(
        "[[component]]\n[[component]]\narguments = [\"b\"]\n[[component]]\nprogram = \"true\"\n")
    specs, terms, _ = zip(*submitted(start, agentd, "-c", "3", "-N", tmp_path / "job",
                                     "/bin/echo", "a"))
    assert [texts(s, 1) for s in specs] == [["/bin/echo", "a"], ["/bin/echo", "b"], ["true"]]
    assert [t[4] for t in terms] == [[3]] * 3


@pytest.mark.parametrize("text,said", [
    ("", "it has no component"),
    ("[[component]]\n[[component]]\nclass = 'vital'\n",
     ":3: component 1: class: 'vital' is none of required, interactive and optional"),
    ("[[component]]\nclass = 'optional'\n", ":1: the first component is optional: it must be "),
    ("[[component]]\nlabel='a'\n[[component]]\nlabel='a'\n",
     ":3: the label 'a' is that of another component, "),
    ("[[component]]\nlabel='c7'\n", "'c7' is a name that is taken"),
    ("[[component]]\nlabel='a b'\n", "'a b' is no name of a host"),
    ("[[component]]\ncount=10000\n", ":1: a job has at most 1024 components, these are 10000"),
    ("[[component]]\ncpus=0\n", ":2: component 0: cpus: '0' is no whole number from 1 to 65536"),
    ("[[component]]\nmemory='much'\n", ":2: component 0: memory: "),
    ("[[component]]\nspeed=3\n", ":2: component 0: 'speed' is none of label, count, class, "),
    ("[[component]]\nplace='n1'\n", "place: is a contact of a manager of one cluster; say node = "),
    ("[[component]]\ndirectory='x'\n", "'x' is no absolute path"),
    ("[[component]]\nenvironment={'A=B'='1'}\n", "'A=B' is no name of a variable"),
    ("[[component]]\narguments='a'\n", "arguments: needs a list of texts"),
    ("[names]\nA='$(B)'\nB='$(A)'\n[[component]]\nprogram='$(A)'\n",
     ":5: component 0: program: names go round in a circle: A -> B -> A"),
    ("[names]\nA='x'\n[[component]]\nprogram='$(C)'\n", "the name 'C' stands for nothing"),
    ("[names]\n" + "".join(f"A{i}='$(A{i + 1})$(A{i + 1})'\n" for i in range(40)) +
     "A40=''\n[[component]]\nprogram='$(A0)'\n", "its names stand for too many others"),
    ("[component]\n", ":1: 'component' is none of [names], [job] and [[component]]"),
    ("[[component]]\ncpus = \n", ":2: "),
    ("+( &(executable=a) ", ":1: a ) is missing at the end"),
    ("+(\n|(executable=a))", ":2: a choice (|) has no meaning here: submit one of its requests"),
    ("+( &(executable=a)(queue=x) )", ":1: 'queue' has no meaning here"),
    ("+( &(executable=a)(count>3) )", ":1: count: '>' has no meaning here: write count=..."),
    ("+( &(executable=\"a) )", ":1: a text in quotes does not end"),
    ("+( &(executable=a)(resourceManagerContact=\"fs 0\") )",
     "component 0: contact: 'fs 0': 'fs 0' is no name of a node"),
    ("+( &(executable=a)(stdout=\"\") )", ":1: component 0: output: is empty"),
    ("+( &(executable=$(A))(rslSubstitution=(A $(B))(B $(A))) )",
     "names go round in a circle: A -> B -> A"),
    ("+( &(arguments=" + "(" * 1000 + ") )", "parentheses lie too deep"),
    ("&(executable=a) x", ":1: 'x' is no request"),
])
def test_what_cannot_be_components_is_one_line(tool, tmp_path, text, said):
    (tmp_path / "job").write_text(text)
    status, out, err = tool("srun", "-p", "40", "-N", tmp_path / "job", "true")
    assert (status, out) == (2, "") and err.startswith("srun: ")
    assert said in err and str(tmp_path / "job") in err and len(err.splitlines()) == 1, err


def test_a_file_that_is_not_there_or_too_long_and_a_program_that_is_missing(tool, tmp_path):
    assert "No such file" in tool("srun", "-p", "40", "-N", tmp_path / "none", "true")[2]
    (tmp_path / "long").write_bytes(b"#" * (1 << 20) + b"\n")
    assert "has more than 1 MiB" in tool("srun", "-p", "40", "-N", tmp_path / "long", "true")[2]
    (tmp_path / "job").write_text("[[component]]\nprogram='true'\n[[component]]\n")
    assert tool("srun", "-p", "40", "-N", tmp_path / "job") == (
        2, "", "srun: the program to run is missing (see srun --help)\n")


def test_a_program_or_a_directory_that_is_not_here_is_said_before_anything_is_submitted(
        start, agentd, tmp_path):
    for given, said in (("program='/no/such'", ":1: /no/such: No such file or directory"),
                        ("program='true'\ndirectory='/no/such'",
                         ":1: the working directory /no/such: No such file or directory")):
        (tmp_path / "job").write_text(f"[[component]]\n{given}\n")
        process = start("srun", "-p", "40", "-N", tmp_path / "job")
        agentd.accept()
        _, err = process.communicate(timeout=LIMIT)
        assert process.returncode == 1 and said in err.decode()


def test_an_agentd_that_knows_no_classes_is_not_given_any(start, agentd, tmp_path):
    (tmp_path / "job").write_text("[[component]]\n[[component]]\nclass='optional'\n")
    process = start("srun", "-p", "40", "-d", "-N", tmp_path / "job", "true")
    connection = agentd.accept()
    connection.welcome()
    for number in (7, 8):
        connection.expect("submit")
        connection.send("submitted", {1: {1: "n1", 2: number}, 3: True})
    assert connection.expect("attach")[1]
    connection.send("attached", {1: {1: "n1", 2: 7}, 2: 1})
    assert connection.expect("signal")[1] == [15]
    connection.close()
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 1 and b"is of an older version" in err


@pytest.mark.parametrize("args,said", [
    (["-N", "2", "--stdin", "2"], "--stdin: there is no component '2'"),
    (["-N", "2", "--stdin", "x"], "--stdin: there is no component 'x'"),
    (["--stdin", "all"], "--stdin is for --components"),
    (["--flexible", "8:9"], "--flexible"), (["--flexible", "0"], "--flexible"),
    (["--flexible", "2000"], "2000 components are more than 1024: give a greater MIN"),
    (["--total", "2", "--flexible", "2"], "--total and --flexible exclude each other: --total N"),
    (["-N", "2", "--ordered", "n1:1"], "-N says 2 components and --ordered 1: leave -N out, or"),
    (["--ordered", "n1:1", "-N", "2"], "-N says 2 components and --ordered 1: leave -N out, or"),
    (["--ordered", "n1:1", "--total", "2"], "--ordered says the size and the node of each"),
    (["-N", "4", "--flexible", "8"], "--flexible makes as many components as it needs: "),
    (["--flexible", "8", "-c", "2"], "write --flexible N:MIN in place of -c"),
    (["-c", "2", "--total", "8"], "--total N is one component of N CPUs: leave -c out"),
    (["-N", "3", "--total", "8"], "--total N is one component of N CPUs: leave -N out, or"),
    (["--total", "0"], "--total"), (["-N", "10000"], "--components"), (["-N", "0"], "--components"),
])
def test_what_the_options_of_several_components_cannot_be_is_one_line(tool, args, said):
    status, out, err = tool("srun", "-p", "40", *args, "true")
    assert (status, out) == (2, "") and said in err and len(err.splitlines()) == 1, err


TIMES = """
[job]
start = "2h"
for = "30m"

[[component]]
time = "10m"

[[component]]
cpu_time = 5
"""
TIMES_REQUEST = """+ ( &(startTime=2h) (duration=30) (maxWallTime=10) )
  ( &(duration=30) (maxCpuTime=5) )
"""


@pytest.mark.parametrize("text", [TIMES, TIMES_REQUEST], ids=["toml", "request"])
def test_a_file_says_limits_of_components_and_when_the_whole_job_is_to_run(
        start, agentd, tmp_path, text):
    file = tmp_path / "job"
    file.write_text(text)
    process = start("srun", "-p", "40", "-d", "--components", str(file), "true")
    connection = agentd.accept()
    connection.welcome()
    terms = []
    for number in range(2):
        submit = connection.expect("submit")
        terms.append(decode(submit[2][0]))
        connection.send("submitted", {1: {1: "n1", 2: 7 + number}, 3: True, 4: True, 5: True})
    out, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, out, err) == (0, b"n1.7\n", b"")
    minute = 60 * 10**9
    time_limit, cpu_limit, book_start, book_span = 11, 13, 17, 18  # of JobTerms in market.proto
    assert [one[book_span] for one in terms] == [[30 * minute]] * 2
    assert all(one[book_start][0] > 0 for one in terms)
    assert terms[0][time_limit] == [10 * minute] and time_limit not in terms[1]
    assert terms[1][cpu_limit] == [5 * minute] and cpu_limit not in terms[0]


@pytest.mark.parametrize("text, said", [
    ('[job]\nstart = "9 o\'clock"\n[[component]]\n', "start: '9 o'clock'"),
    ('[job]\nlength = "2h"\n[[component]]\n', "'length' is none of start, for, finish"),
    ('[job]\npromise = "often"\n[[component]]\n', "promise: 'often'"),
    ("+ (&(duration=30)) (&(duration=40))", "all requests say the same"),
])
def test_words_of_the_whole_job_that_make_no_sense_are_refused_in_one_line(
        start, tmp_path, text, said):
    file = tmp_path / "job"
    file.write_text(text)
    process = start("srun", "-p", "40", "-d", "--components", str(file), "true")
    out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 2 and out == b""
    assert said in err.decode() and err.count(b"\n") == 1, err
