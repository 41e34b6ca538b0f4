# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs that one component of a job runs in others (srun --exec, souk-exec), Open MPI's launcher
over that (srun --mpi), and MPICH's."""
import json
import shutil
import subprocess

import pytest
from conftest import BIN, gang, until

# A program of MPI without its headers: sums its ranks ROUNDS times. With two files it makes the
# first after some of them, and goes on until the second is there, as rank 0 sees.
HELLO = """
import ctypes, os, sys, time
mpi = ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)
def known(name):
    return ctypes.byref(ctypes.c_byte.in_dll(mpi, name))
world = known("ompi_mpi_comm_world")
rank, size = ctypes.c_int(), ctypes.c_int()
mpi.MPI_Init(None, None)
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
mpi.MPI_Comm_size(world, ctypes.byref(size))
def summed(number):
    own, total = ctypes.c_int(number), ctypes.c_int()
    mpi.MPI_Allreduce(ctypes.byref(own), ctypes.byref(total), 1, known("ompi_mpi_int"),
                      known("ompi_mpi_op_sum"), world)
    return total.value
sums, n, files, goes_on = set(), 0, sys.argv[2:] if rank.value == 0 else [], True
while goes_on:
    sums.add(summed(rank.value))
    n += 1
    if n == 20 and files:
        open(files[0], "w").close()
    goes_on = n < int(sys.argv[1]) or summed(bool(files and not os.path.exists(files[1]))) > 0
    time.sleep(0.01)
line = ["rank", rank.value, "of", size.value, "in", os.environ["SOUK_COMPONENT"], *sums]
os.write(1, (" ".join(map(str, line)) + "\\n").encode())  # in one piece
mpi.MPI_Finalize()
"""

# The same with MPICH, whose handles are numbers. Its MPI_Finalize over UCX waits for answers of
# ranks that wait for the launcher already, and answer nobody (4.0.2; what they do not read lies in
# their sockets). So the ranks meet at the launcher, each still answers, and end without it.
END_MPICH = """
import select
launcher = int(os.environ["PMI_FD"])
os.write(launcher, b"cmd=barrier_in\\n")
while not select.select([launcher], [], [], 0.001)[0]:
    mpi.MPI_Iprobe(-2, -1, world, ctypes.byref(ctypes.c_int()), ctypes.c_void_p(1))
os.read(launcher, 100)
os.write(launcher, b"cmd=finalize\\n")
os.read(launcher, 100)
os._exit(0)
"""
HELLO_MPICH = HELLO.replace("libmpi.so.40", "libmpich.so.12").replace(
    "return ctypes.byref(ctypes.c_byte.in_dll(mpi, name))",
    "return {'ompi_mpi_comm_world': 0x44000000, 'ompi_mpi_int': 0x4c000405,"
    " 'ompi_mpi_op_sum': 0x58000003}[name]").replace("mpi.MPI_Finalize()\n", END_MPICH)


def run(market, *args, timeout=40, **options):
    return subprocess.run([f"{BIN}/srun", "-p", "40", *args], env=market.env, text=True,
                          capture_output=True, timeout=timeout, check=False, **options)


def test_a_program_runs_in_another_component_with_its_input_output_and_status(market):
    done = run(market, "-N", "3", "--exec", "sh", "-c",
               f"echo in | {BIN}/souk-exec 1 sh -c 'cat; echo $SOUK_COMPONENT in $PWD; exit 7';"
               f" echo status $?; {BIN}/souk-exec c2 sh -c 'echo err >&2; kill -9 $$';"
               f" echo status $?; {BIN}/souk-exec --shell 2 echo '$SOUK_COMPONENT' '&&' echo b;"
               f" {BIN}/souk-exec 1 /no/such; echo status $?; {BIN}/souk-exec 7 true;"
               f" echo status $?; {BIN}/souk-exec c0 sh -c 'echo in $PWD; exit 3'; echo status $?;"
               f" {BIN}/souk-exec 0 /no/such; echo status $?", cwd="/usr")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "in", "1 in /usr", "status 7", "status 137", "2", "b", "status 127", "status 255",
        "in /usr", "status 3", "status 127"]
    assert "err" in done.stderr.splitlines()
    said = [json.loads(line)["error"]["code"] for line in done.stderr.splitlines()
            if line.startswith('{"error"')]
    assert said == ["ENOENT", "not_found", "ENOENT"], done.stderr
    jobs = gang(market, done.stderr.split()[2].rstrip(":"))
    until("all have ended", lambda: all(
        j["status"] == "finish" for j in gang(market, jobs[0]["id"])))


def test_who_does_not_know_the_jobs_secret_runs_nothing(market):
    done = run(market, "-N", "2", "--exec", "sh", "-c",
               f"SOUK_EXEC=${{SOUK_EXEC%%:*}}:{'0' * 64} {BIN}/souk-exec 1 echo ran; echo $?;"
               f" SOUK_EXEC= {BIN}/souk-exec 1 echo ran; echo $?")
    assert done.stdout.split() == ["255", "255"]
    said = [json.loads(line)["error"]["code"] for line in done.stderr.splitlines()
            if line.startswith('{"error"')]
    assert said == ["not_allowed", "not_possible"], done.stderr


# A stranger who reaches the components' network: listens where a component should, and writes what
# it hears to a file; passes on what two components say, and writes that down; or connects to a
# component, says what it likes, and prints what it hears. Arguments: which; a file, or the port to
# connect to; the port to listen on; of who passes on the port behind.
STRANGER = """
import os, select, socket, sys
if sys.argv[1] == "connect":
    for said in (b"", bytes(64), b"0" * 64 + b"\\x01\\0\\0\\0\\x0d/\\0touch\\0/ran\\0",
                 b"\\x16\\x03\\x01\\0\\x05hello"):
        peer = socket.create_connection(("c1", int(sys.argv[2])))
        peer.sendall(said)
        peer.shutdown(socket.SHUT_WR)
        heard = b""
        try:
            while part := peer.recv(4096): heard += part
        except ConnectionResetError: pass
        print(sum(word in heard for word in (b"ran", b"secret", b"souk")), flush=True)
    sys.exit()
door = socket.create_server(("", int(sys.argv[3])))
print("listens", flush=True)
while True:
    peer, behind = door.accept()[0], None
    if sys.argv[1] == "pass":
        behind = socket.create_connection(("127.0.0.1", int(sys.argv[4])))
    else: peer.sendall(b"n" * 32)
    ends = [peer, behind] if behind else [peer]
    while ends:
        for end in select.select(ends, [], [], 5)[0]:
            heard = end.recv(65536)
            with open(sys.argv[2], "ab") as f: f.write(heard)
            if not heard: ends = []
            elif behind: (behind if end is peer else peer).sendall(heard)
            else: peer.sendall(heard)
    for end in (peer, behind): end and end.close()
"""


def among_strangers(market, tmp_path, act, script):
    """Runs `script` in the first of two components, with one of the second as $1 who does `act` at
    port 19999 and writes to `heard`."""
    (tmp_path / "stranger.py").write_text(STRANGER)
    stranger = f"/usr/bin/python3 {tmp_path}/stranger.py"
    return run(market, "-N", "2", "--exec", "sh", "-c",
               f"{BIN}/souk-exec 1 {stranger} {act} {tmp_path}/heard 19999 ${{SOUK_EXEC%%:*}}"
               f" >{tmp_path}/listens & until [ -s {tmp_path}/listens ]; do :; done;"
               f" there=19999:${{SOUK_EXEC#*:}}; {script};"
               f" until [ -s {tmp_path}/heard ]; do :; done; kill $!; wait")


def test_who_listens_in_place_of_a_component_hears_nothing(market, tmp_path):
    done = among_strangers(market, tmp_path, "listen",
                           f"SOUK_EXEC=$there {BIN}/souk-exec 1 echo open sesame; echo $?")
    assert done.stdout.split() == ["255"], done.stderr
    said = [json.loads(line)["error"] for line in done.stderr.splitlines()
            if line.startswith('{"error"')]
    assert [e["code"] for e in said] == ["not_allowed"], done.stderr
    heard = (tmp_path / "heard").read_bytes()
    assert heard and b"sesame" not in heard and b"echo" not in heard


def test_who_passes_on_what_components_say_reads_neither_command_nor_output(market, tmp_path):
    done = among_strangers(
        market, tmp_path, "pass",
        f"echo swordfish | SOUK_EXEC=$there {BIN}/souk-exec 1 sh -c 'cat; echo open sesame'")
    assert done.stdout.splitlines() == ["swordfish", "open sesame"], done.stderr
    heard = (tmp_path / "heard").read_bytes()
    assert len(heard) > 200
    assert not any(word in heard for word in (b"sesame", b"swordfish", b"cat;"))


def test_who_connects_to_a_component_without_the_secret_gets_nothing(market, tmp_path):
    (tmp_path / "stranger.py").write_text(STRANGER)
    done = run(market, "-N", "2", "--exec", "sh", "-c",
               f"{BIN}/souk-exec 1 true; echo $?;"
               f" /usr/bin/python3 {tmp_path}/stranger.py connect ${{SOUK_EXEC%%:*}};"
               f" {BIN}/souk-exec 1 sh -c 'test -e /ran; echo $?'")
    assert done.stdout.split() == ["0", "0", "0", "0", "0", "1"], done.stderr


def test_much_goes_through_whole_and_a_reader_that_is_gone_ends_the_program(market):
    done = run(market, "-N", "2", "--exec", "sh", "-c",
               f"seq 300000 | {BIN}/souk-exec 1 cat | md5sum; seq 300000 | md5sum;"
               f" {BIN}/souk-exec 1 yes | head -n 1")
    lines = done.stdout.splitlines()
    assert lines[0] == lines[1] and lines[2] == "y", done.stderr


@pytest.fixture
def mpi(market, tmp_path):
    """Arguments of srun for a program of MPI."""
    if not shutil.which("mpirun"):
        pytest.skip("Open MPI is not here")
    market.env.update({"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
    (tmp_path / "hello.py").write_text(HELLO)
    return ["-N", "3", "--mpi", "/usr/bin/python3", tmp_path / "hello.py"]


RANKS = [f"rank {n} of 3 in {n} 3" for n in range(3)]


def test_a_program_of_open_mpi_runs_in_all_components(market, mpi):
    done = run(market, *mpi, "1")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == RANKS


@pytest.fixture
def mpich(market, tmp_path):
    """The arguments that run the program under MPICH: its launcher Hydra with souk-exec in place of
    rsh."""
    if not shutil.which("mpiexec.mpich"):
        pytest.skip("MPICH is not here")
    (tmp_path / "hello.py").write_text(HELLO_MPICH)
    return ["-N", "3", "--exec", "env", "HYDRA_LAUNCHER=rsh",
            f"HYDRA_LAUNCHER_EXEC={BIN}/souk-exec", "HYDRA_LAUNCHER_EXTRA_ARGS=--shell",
            "mpiexec.mpich", "-localhost", "c0", "-hosts", "c0,c1,c2", "-genvlist", "PATH",
            "-n", "3", "/usr/bin/python3", tmp_path / "hello.py"]


def test_a_program_of_mpich_runs_in_all_components(market, mpich):
    done = run(market, *mpich, "1")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == RANKS


def test_a_program_of_open_mpi_goes_on_when_a_component_moves(wide, mpi, tmp_path):
    check_goes_on(wide, mpi, tmp_path)


def test_a_program_of_mpich_goes_on_when_a_component_moves(wide, mpich, tmp_path):
    check_goes_on(wide, mpich, tmp_path)


def check_goes_on(wide, mpi, tmp_path):
    begun, enough = tmp_path / "begun", tmp_path / "enough"
    srun = subprocess.Popen([f"{BIN}/srun", "-p", "40", *mpi, "400", begun, enough], env=wide.env,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        first = srun.stderr.readline().split()[2].rstrip(":")
        until("it computes", begun.exists)
        for job in gang(wide, first):
            to = next(n for n in wide.nodes() if n != job["where"])
            wide.tool("marketctl", "--hold", "move", job["id"], to)
        until("all have moved", lambda: sum(j["migrations"] for j in gang(wide, first)) >= 3)
        enough.touch()
        out, err = srun.communicate(timeout=100)
        assert srun.returncode == 0, err
        assert sorted(out.splitlines()) == RANKS
    finally:
        srun.kill()
        srun.wait()
