// SPDX-License-Identifier: GPL-2.0-or-later
// Capsule: the namespaces that a job lives in, and their PID 1 (souk-init), which outlives agentd.
// A Capsule is only a handle: dropping it ends nothing. spawn makes one, reconnect finds one again
// after a restart of agentd.
//
// Needs Linux 5.8 (clone3, pidfd, setns by pidfd) and root. What fails: clone3 (limits, rights), a
// cgroup that refuses the process, a capsule that is gone. Failures inside the new process arrive
// as InitEventKind::failed.
#pragma once

#include <csignal>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernel/base/launch.hpp"
#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/process/process.hpp"
#include "kernel/sys/process/program.hpp"

namespace souk {

struct CapsuleOptions {
    std::string init_path;  // souk-init
    // the capsule's state directory: 0700, empty or of an ended capsule
    int dir = -1;
    bool own_net = false;      // a network namespace of its own, with loopback up
    bool private_tmp = false;  // a /tmp of its own
    // A /dev/fuse and the requests of its clients (agentd/files/slots.hpp): the job's root is what
    // they serve. -1: it is the node's.
    int fuse = -1, slots = -1;
    // The job may have processes of several users (it is root's): the kernel checks their rights.
    bool check_access = false;
    // The job's root is this node's tree, as its home serves it elsewhere: this node is its home.
    bool home_tree = false;
    // With `fuse` or `home_tree`: these directories of this node lie over that root, each in its
    // place.
    std::vector<std::string> laid_over;
    bool hosts = false;               // the file `hosts` of its directory is its /etc/hosts
    std::string run_keep;             // names below /run that its job sees, parted by spaces
    std::vector<std::string> hidden;  // directories that are empty in it, where they are
    int cgroup = -1;                  // directory fd of a cgroup v2 group; -1 = stay
    std::vector<int> cgroup_v1;       // open cgroup.procs files of v1 groups
    // The only one whom its job may be begun as; not known: whom souk-init is told.
    RunsAs user;
};

// Directories of a capsule that others look into.
enum class CapsuleDirectory : uint8_t { proc = 1, run = 2 };
using OpenInside = std::function<Result<Fd>(const Pidfd& init, CapsuleDirectory which)>;
// Connects to a running souk-init through its capsule's directory; souk-init lets in root alone.
// Fails if another process listens there under that name.
Result<Fd> connect_to_init(const Pidfd& init, int dir);
using ConnectToInit = std::function<Result<Fd>(const Pidfd& init, int dir)>;
// Returns for whom a capsule was made, as souk-init was started with it; nobody but root can change
// that. The result is empty if it is not known: the capsule is nobody's, or its maker is of an
// older version. ESRCH: it has ended.
Result<RunsAs> capsule_user(const Pidfd& init);
// Opens a directory of the capsule that this souk-init stands for. Needs the right to trace
// souk-init.
Result<Fd> open_capsule_directory(const Pidfd& init, CapsuleDirectory which);

class Capsule {
  public:
    Capsule() = default;
    // A daemon calls this at its start, before it opens many files; spawn is quicker then.
    static Status prepare();
    // Does not wait for souk-init; its first words come over the connection.
    static Result<Capsule> spawn(const CapsuleOptions& options);
    // Wraps a capsule that another process has made for this one.
    Capsule(ProcessId id, Pidfd pidfd, Fd connection)
        : id_(id), pidfd_(std::move(pidfd)), connection_(std::move(connection)) {}
    // ESRCH if that process is gone (then its exit record, if it wrote one, is in the directory).
    static Result<Capsule> reconnect(int dir, ProcessId init,
                                     const ConnectToInit& connect = connect_to_init);

    ProcessId id() const { return id_; }
    const Pidfd& pidfd() const { return pidfd_; }
    // The connection to souk-init, once: for a CapsuleClient.
    Fd take_connection() { return std::move(connection_); }
    // Kills every process of the capsule. The pidfd becomes readable when all of them are gone.
    void kill() const { end_(pidfd_); }
    // Opens a path as the capsule sees it. Needs the right to trace souk-init.
    Result<Fd> open_inside(const std::string& path, int flags) const;
    // Sets who opens the capsule's directories for this process, and who kills the capsule.
    void reached_by(OpenInside open, EndProgram end) {
        open_ = std::move(open);
        end_ = std::move(end);
    }
    Result<Fd> directory(CapsuleDirectory which) const;

  private:
    ProcessId id_;
    Pidfd pidfd_;
    Fd connection_;
    OpenInside open_ = open_capsule_directory;
    EndProgram end_ = kill_program;
};

// The exit record in a state directory. ENOENT if the job wrote none.
Result<std::string> read_exit_record(int dir);

struct CapsuleProcess {
    pid_t pid = 0, parent = 0;  // as seen inside
    char state = '?';
    std::string name;
    int threads = 0;
    uint64_t reserved_bytes = 0;  // of its address space
    uint64_t resident_pages = 0;
    pid_t session = 0;  // the process that leads it; 0: not known here
};
Result<std::vector<CapsuleProcess>> capsule_processes(const Capsule& capsule);
Result<std::vector<CapsuleProcess>> capsule_processes(int proc);
// Fails unless everything in the capsule is below the job's root, but PID 1 and what came from
// outside, and in a session that CRIU can make again. The error names a process that is not: it
// would be left behind, or not restored. Pure.
Status check_movable(const std::vector<CapsuleProcess>& processes, pid_t root);

}  // namespace souk
