// SPDX-License-Identifier: GPL-2.0-or-later
// The command line asks srun for this.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "agentd/wire/messages.hpp"
#include "kernel/base/time.hpp"
#include "tools/common/args.hpp"
#include "tools/srun/components.hpp"
#include "tools/srun/status.hpp"

namespace souk::tools {

inline constexpr const char* srun = "srun";

struct SrunOptions {
    enum class Mode { submit, change, attach, quote, check, wait } mode = Mode::submit;
    uint32_t given = 0;  // of the terms: wire::Change::Field
    JobTerms terms;
    std::string name, job, node, socket;
    MovePolicy move = MovePolicy::automatic;
    TcpPolicy tcp = TcpPolicy::close;
    NetMode net = NetMode::host;
    std::optional<FilesWish> files;
    std::vector<std::string> local_paths;
    FilesTmp tmp = FilesTmp::home;
    bool files_snapshot = false;
    Nanos checkpoint_every;          // 0: as the node is configured
    Nanos grace;                     // 0: as the node is configured; 1 ms: none
    JobTries tries;                  // --retries, --retry-on
    std::vector<std::string> needs;  // --needs, --nodes, --exclude
    bool restart = false, must_migrate = false;
    bool form_given = false, tcp_given = false;  // one of these; tcp
    bool hangup_kills = false;
    // not given: a line where stderr is a terminal
    std::optional<StatusMode> status;
    std::string out_file, err_file;     // empty: srun's own; %j is the job's id
    bool wait = false;                  // --wait: until the job has ended
    std::vector<std::string> wait_for;  // jobs that are there already
    std::string notify;                 // --notify: what runs here when the job has ended
    bool detach = false, json = false, quiet = false, verbose = false;
    std::string log_file;   // empty: none
    std::string json_file;  // empty: stderr (an attached job) or stdout
    std::string after;      // --after: jobs, and how they have to end
    bool singleton = false;
    Nanos begin;                  // --begin: Unix time; 0: none
    std::vector<uint32_t> array;  // its indexes; empty: one job
    uint32_t at_once = 0;         // of these; 0: any number
    JobId array_id;               // its first job, once that is known
    int32_t components = 0;       // -N; 0: it is a job of its own
    // Which options have said how large its components are (layout_options.hpp), and what -N said.
    uint32_t sizes_said = 0;
    int32_t components_said = 0;
    // --components FILE: what each is; empty: all as the command line says
    std::vector<ComponentPlan> plan;
    // --spread, --pack: how they are to lie; 0: any number of them on one node
    int32_t spread = 0;
    bool pack = false;
    // --near, and its bounds; 0: none
    bool near = false;
    int64_t near_trip_us = 0, near_mbit = 0;
    bool labels = false;  // -l
    // --stdin: which component reads srun's: its number or label, all or none; empty: the first
    std::string input;
    int32_t reader = 0;  // as a number; that of components: all, below 0: none
    // --exec: the first component's program may begin others in the rest, by souk-exec; --mpi: it
    // is mpirun, which does so
    bool exec = false, mpi = false;
    bool net_given = false;
    Nanos check_for = Nanos::from_s(2);  // --check
    int32_t jobs = 1;                    // --quote
    Nanos patience = Nanos::from_s(300);
    std::span<char*> program;
};

// Parses as parse() does; on `failed` it has said why.
Parsed parse_srun(int argc, char** argv, SrunOptions& options);

}  // namespace souk::tools
