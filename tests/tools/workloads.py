# SPDX-License-Identifier: GPL-2.0-or-later
# The workloads of marketsim's tests.
PROVIDERS = "".join(f"{i} 0 -1 10 1000 1 100\n" for i in range(1, 6))
# The published job file, with the run time of job 3 that its results need (50).
JOBS = "".join(f"{i} 0 50 {25 - i} 100 1\n"
               for i in range(1, 6)) + "6 5 45 25 100 1\n7 10 40 26 100 1\n"


def swf(jobs):
    return "; MaxProcs: 16\n" + "".join(
        f"{i + 1} {submit} -1 {run} {procs} -1 -1 {procs} {2 * run} -1 1 {i % 3} -1 -1 -1 -1 -1 "
        f"-1\n"
        for i, (submit, run, procs) in enumerate(jobs))


TRACE = swf([(30 * i, 20 + 37 * i % 400, 1 + 5 * i % 16) for i in range(200)])
