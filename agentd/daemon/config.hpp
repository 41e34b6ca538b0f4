// SPDX-License-Identifier: GPL-2.0-or-later
// agentd's configuration: a TOML file read once into one const struct. An unknown key or a value
// out of range is an error that names file, line and key. `agentd --check-config` stops after it.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "agentd/core/guest.hpp"
#include "agentd/core/guest_devices.hpp"
#include "agentd/core/home.hpp"
#include "agentd/core/owner_returns.hpp"
#include "agentd/core/owner_use.hpp"
#include "agentd/core/provider.hpp"
#include "agentd/daemon/owner_signs.hpp"
#include "kernel/base/result.hpp"
#include "kernel/sys/host/config_text.hpp"
#include "kernel/sys/net/job_port.hpp"

namespace souk {

struct Config {
    NodeName node;                        // default: this host's name, up to the first dot
    std::string listen = "0.0.0.0:7071";  // where other agentds connect
    std::string metrics;                  // host:port of its figures; empty: none
    std::string status_file;              // how it is, for scripts; empty: none
    Nanos status_every = Nanos::from_s(5);
    std::string address;  // what they are told, a NodeAddress; default: listen
    // host:port of the node by which those who do not reach this one do (docs/sites.md); empty:
    // none
    std::string gateway;
    bool relay = false;      // this node is a gateway
    bool relay_out = false;  // that also asks gateways of other sites
    std::string market;      // the market's host:port
    std::string socket = "/run/souk/agentd.sock";
    std::string state = "/var/lib/souk/agentd";
    std::string user = "_souk-agent";  // whom it becomes (agentd/root/own_user.hpp)
    // who this node is to others (kernel/trust/identity.hpp); default: STATE/identity
    std::string identity;
    // No certificates: whoever reaches a port may act as root on this node.
    bool insecure = false;
    // As if `insecure` until then (Unix time), and from then on with the certificate that it has.
    Nanos insecure_until;
    // A job of another home is not taken with a user or group below that: root and the system's
    // own are nobody's but this machine's. Not asked without certificates.
    uint32_t guest_uid_min = 1'000;
    bool root_jobs = false;  // jobs of root that begin here
    // Whether a home must show the market's ticket for what it brings here or takes from here.
    // Without certificates none is asked for.
    TicketRule tickets = TicketRule::required;
    // The file that maps users of other homes to users here, and the groups that jobs may be in
    // (agentd/core/user_map.hpp).
    std::string user_map;
    std::string guest_groups = "*";
    std::string owners;                // besides root (agentd/core/owner_names.hpp)
    std::string cgroup = "souk/node";  // below each hierarchy's root: ROOT/NODE
    int64_t cpu_weight = 100;          // of all jobs here, against the rest of the machine
    bool bpf = true;                   // what guests use is counted by the kernel's tracepoints
    // prefix of a private CRIU; "/": the system's; empty: whichever works (checkpoint/doctor.hpp)
    std::string criu;
    int64_t pids_max = 4096;    // processes and threads of one job; 0: no limit
    int64_t swap_mb = -1;       // of one job; below 0: any
    int64_t disk_mb_per_s = 0;  // of one job, of each disk; 0: no limit
    // A hard limit of a job that is not root's is no higher than this, whatever its user has at
    // home.
    int64_t rtprio_max = 0, nice_max = 0, nofile_max = 1 << 20, memlock_mb_max = 64;
    int64_t core_mb_max = 0;  // 0: no core, also not for a program that collects them
    // Whose jobs may not make every system call (kernel/sys/process/syscall_filter.hpp).
    enum class Filter : uint8_t { none, users, all } filter = Filter::users;
    bool job_io_uring = false;   // such jobs may use it
    int64_t deleted_mb = 64;     // of a file that a job has deleted and still has open, in an image
    int64_t contents_mb = 1024;  // of programs of other homes, on this node's disk; 0: none
    bool private_tmp = false;    // each job has a /tmp of its own here
    // Jobs of this home that do not say whose files they see (srun --files) see these. Below it the
    // directories that this node and others share (agentd/core/files_choice.hpp).
    FilesWish files;
    std::string shared_files;
    FilesTmp files_tmp = FilesTmp::home;  // of jobs of this home
    // Directories of this node that jobs of other homes may have over their home's files.
    std::vector<std::string> local_paths;
    std::string run_keep;             // names below /run that jobs see, parted by spaces
    std::vector<std::string> hidden;  // directories that are empty for jobs of other homes
    int64_t ram_mb = 0;               // for images on their way; 0: half of the machine's memory
    // For jobs with a network of their own (srun --net=own). network: where such a job is reached,
    // through this bridge of the namespace that the daemon is in; without it none comes here.
    // home.addresses: what this node gives to jobs that are submitted here; a part of the network
    // that no other node gives from.
    std::optional<JobNetwork> network;
    // idle processors do not sleep for some milliseconds of a move (kernel/sys/host/cpu_awake.hpp)
    bool awake_for_moves = true;
    // memory sent ahead of a move is compared with the frozen job's before it is used; costs pause
    bool check_precopy = false;
    // leave_s, immovable (stop or kill), immovable_s: of guests that are to leave
    OwnerPolicy policy;
    // While the owner uses the machine, guests that stand leave when less of its memory is free. 0:
    // they do not leave for that; default: a twentieth.
    int64_t owner_free_mb = -1;
    // The rate of disk and link for all that leaves while he uses it; 0: no limit (leave_pace.hpp).
    int64_t leave_mb_per_s = 50;
    // When the owner uses the machine, and what that does to guests.
    OwnerUsePolicy presence;
    int64_t owner_cpu_percent = 25;  // that his processes use of one CPU
    Nanos owner_wait = Nanos::from_ms(20);
    int64_t owner_network_mb_per_s = 0;  // that his processes send and receive; 0: not looked at
    OwnerSignsWish owner_signs;
    int64_t output_mb = 1024;       // of one job's stream that no terminal has written
    int64_t user_output_mb = 8192;  // of all jobs of one user
    // so much of the disk of the state is left free for the daemon; below 0: a twentieth of it, at
    // most 1 GB
    int64_t disk_reserve_mb = -1;
    int64_t disk_reserve_bytes() const { return disk_reserve_mb < 0 ? -1 : disk_reserve_mb << 20; }
    int64_t user_images_mb = -1;   // of one user on the disk; below 0: half of it
    int64_t user_connections = 0;  // of tools; 0: a quarter of all
    int64_t user_answers_mb = 64;  // that is held for one user's tools
    // The owner's first offer. pvdctl changes it, and what it changed is kept.
    Money price;
    int64_t speed = 0;      // 0: as measured
    int32_t cpus = 0;       // 0: all
    int64_t memory_mb = 0;  // 0: all
    // Nodes of one name are near each other; from here to any of them the longest round trip and
    // the least bandwidth, 0: not said.
    std::string near_group;
    int64_t near_round_trip_us = 0, near_mbit_per_s = 0;
    // Attributes that jobs may ask for beside those that are found
    // (kernel/sys/host/attributes.hpp), and programs to look for.
    std::map<std::string, std::string> attributes;
    std::vector<std::string> programs;
    std::vector<NodeResource> resources;  // named ones
    std::string frames = "always";
    // why pvdctl would refuse them (time_frames.hpp): an older version took them, so a daemon that
    // starts takes them, and whoever gives new ones is told
    std::string frames_trouble;
    std::string frames_zone, price_curve;
    std::string share;  // what guests get at most, and when (agentd/core/owner_share.hpp)
    Nanos frames_warning;
    Nanos shutdown_wait = Nanos::from_s(20);
    bool on_market = true;
    // also memory_default_mb: of jobs that do not say (srun -m), 0: no limit, default: half of what
    // is offered for each CPU, 1024 at most; checkpoint_every_s: of jobs that do not say, 0: never;
    // lease_s (agentd/core/lease.hpp), 0: none; wake (agentd/core/home_wakes.hpp);
    // budget_warn_permille, budget_warn_s: when a job's terminal hears of its budget's end;
    // cancel_grace_s (agentd/core/home_ends.hpp): of jobs that do not say
    Home::Limits home{.grace = Nanos::from_s(30)};
    OwnerPromise promise;  // when the owner comes back
};

// Reads files of the owner for this process. Without one the process reads them itself.
using ReadFile = std::function<Result<std::string>(const std::string& path)>;
// `effective`: what is in force, as TOML with where each value comes from.
Result<Config> load_config(const std::string& path, ConfigText* effective = nullptr,
                           const ReadFile& read = {});
// Whether root may have jobs that begin here.
inline bool takes_root_jobs(const Config& c) {
    return c.root_jobs || c.insecure || c.guest_uid_min == 0;
}
// Every key as JSON (kernel/sys/host/settings.hpp).
std::string config_reference();

}  // namespace souk
