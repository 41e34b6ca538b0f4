// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/srun/elsewhere.hpp"

namespace souk::tools {
namespace {

struct Elsewhere {
    std::string_view option, letter, here;
};

constexpr std::string_view of_components = "a job of N components is -N N; the CPUs of each are -c";
constexpr std::string_view devices =
    "--resource gpu=1 asks for devices of its node; --needs 'gpu.model = A100' chooses their kind";
constexpr std::string_view no_partition =
    "there are no partitions; -p is the price (--max-price), and -c and -m are what a job needs";

constexpr Elsewhere slurm_options[] = {
    {"--time-min", "", "-t TIME (--time) is the most that a job may run"},
    {"--mem", "", "the memory of a job is -m SIZE"},
    {"--mem-per-cpu", "", "the memory of a job is -m SIZE, for all its CPUs"},
    {"--ntasks", "", of_components},
    {"--ntasks-per-node", "", "-N N --spread=M puts at most M components on one node"},
    {"--cpus-per-task", "", "the CPUs of a job are -c CPUS"},
    {"--gres", "", devices},
    {"--gpus", "-G", devices},
    {"--gpus-per-node", "", devices},
    {"--licenses", "-L", "--resource NAME=COUNT asks for licences of the market"},
    {"--constraint", "-C", "--needs EXPRESSION says what its node must be"},
    {"--dependency", "",
     "--after ID begins when that job has ended, --after ID:ok if it ended well; --singleton"},
    {"--job-name", "", "--name NAME names a job; -J ID changes one"},
    {"--partition", "", no_partition},
    {"--qos", "", no_partition},
    {"--account", "-A", "--project PROJECT has a project pay"},
    {"--nodelist", "-w", "--nodes NODE,... names the nodes where it may run"},
    {"", "-x", "--exclude NODE,... names nodes where it may not run"},
    {"--exclusive", "", "-c CPUS asks for as many as the machine has"},
    {"--requeue", "", "--retries N runs a job again that fails; --restart one whose node is lost"},
    {"--no-requeue", "", "a job whose node is lost is begun anew with --restart alone"},
    {"--test-only", "", "--quote says where it would run and for how much"},
    {"--wrap", "", "sh -c 'COMMANDS' as the program"},
    {"--pty", "", "srun on a terminal is the job's terminal already"},
    {"--chdir", "-D", "a job begins in the directory in which srun runs"},
    {"--export", "", "a job has the environment of srun"},
    {"--reservation", "", "--start TIME --for TIME reserves a place; --in ID runs in one"},
    {"--hold", "-H", "marketctl hold ID holds a job"},
    {"--mail-type", "", "no mail is sent; --wait ends as the job does"},
    {"--mail-user", "", "no mail is sent; --wait ends as the job does"},
    {"--input", "-i", "a job's stdin is that of srun: < FILE"},
    {"--parsable", "", "--detach prints the id alone"},
};

}  // namespace

std::string slurm_option(std::string_view option) {
    for (const Elsewhere& e : slurm_options)
        if (option == e.option || (!e.letter.empty() && option == e.letter))
            return std::string(e.here);
    return {};
}

}  // namespace souk::tools
