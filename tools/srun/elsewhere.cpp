// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/srun/elsewhere.hpp"

namespace souk::tools {
namespace {

struct Elsewhere {
    std::string_view option, letter, here;
};

constexpr std::string_view no_limit =
    "jobs have no time limit, as they are moved and frozen, not ended; --runtime TIME is for "
    "--quote "
    "and -s deadline";
constexpr std::string_view of_components = "a job of N components is -N N; the CPUs of each are -c";
constexpr std::string_view no_devices = "there are no GPUs or other devices to ask for";
constexpr std::string_view no_partition =
    "there are no partitions; -p is the price (--max-price), and -c and -m are what a job needs";
constexpr std::string_view one_node =
    "-N N --ordered NODE:CPUS,... names nodes; one job goes "
    "where its bid wins";

constexpr Elsewhere slurm_options[] = {
    {"--time", "-t", no_limit},
    {"--time-min", "", no_limit},
    {"--mem", "", "the memory of a job is -m SIZE"},
    {"--mem-per-cpu", "", "the memory of a job is -m SIZE, for all its CPUs"},
    {"--ntasks", "", of_components},
    {"--nodes", "", of_components},
    {"--ntasks-per-node", "", "-N N --spread=M puts at most M components on one node"},
    {"--cpus-per-task", "", "the CPUs of a job are -c CPUS"},
    {"--gres", "", no_devices},
    {"--gpus", "-G", no_devices},
    {"--gpus-per-node", "", no_devices},
    {"--constraint", "-C", no_devices},
    {"--dependency", "",
     "--after ID begins when that job has ended, --after ID:ok if it ended well"},
    {"--job-name", "", "--name NAME names a job; -J ID changes one"},
    {"--partition", "", no_partition},
    {"--qos", "", no_partition},
    {"--account", "-A", "--project PROJECT has a project pay"},
    {"--nodelist", "-w", one_node},
    {"--exclude", "-x", one_node},
    {"--exclusive", "", "-c CPUS asks for as many as the machine has"},
    {"--requeue", "", "--restart begins a job anew whose node is lost"},
    {"--no-requeue", "", "a job whose node is lost is begun anew with --restart alone"},
    {"--test-only", "", "--quote says where it would run and for how much"},
    {"--wrap", "", "sh -c 'COMMANDS' as the program"},
    {"--pty", "", "srun on a terminal is the job's terminal already"},
    {"--chdir", "-D", "a job begins in the directory in which srun runs"},
    {"--export", "", "a job has the environment of srun"},
    {"--begin", "", "there is no time to begin at; a lower price (-p) waits for a cheap hour"},
    {"--hold", "-H", "marketctl freeze ID --hold holds a job"},
    {"--mail-type", "", "no mail is sent; --wait ends as the job does"},
    {"--mail-user", "", "no mail is sent; --wait ends as the job does"},
    {"--signal", "", "--grace TIME is how long a cancelled job has after SIGTERM"},
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
