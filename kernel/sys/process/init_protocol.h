// SPDX-License-Identifier: GPL-2.0-or-later
// agentd and souk-init (PID 1 of a capsule) talk with these plain C structs: one struct souk_msg
// and at most SOUK_DATA_MAX bytes after it in one SEQPACKET record, host byte order (both ends are
// on one machine). RESIDUE and `exit`, the two files that souk-init writes, are laid out here too;
// RESIDUE travels to another machine of the same kind.
//
// Bytes have absolute offsets per stream since the job began, over all its capsules. souk-init
// keeps output until it is acknowledged and takes input only up to the limit that it announced, so
// a connection may be cut and made again anywhere.
#pragma once

#include <stdint.h>

enum {
    SOUK_INIT_VERSION = 1,
    SOUK_DATA_MAX = 64 * 1024,  // bytes after a souk_msg
    // unacknowledged bytes per stream; then the job's pipe is read no further
    SOUK_OUTPUT_WINDOW = 256 * 1024,
    SOUK_INPUT_WINDOW = 64 * 1024,    // bytes taken and not yet written to the job
    SOUK_SPEC_MAX = 8 * 1024 * 1024,  // a whole launch specification
    SOUK_RESIDUE_MAX = 64 * 1024 * 1024,
    SOUK_WHAT_MAX = 256,  // text of a failure
    SOUK_FDS_MAX = 3,
    SOUK_KEPT_MAX = 4096,
    SOUK_STREAMS = 2,  // outputs: 1 stdout (or the terminal), 2 stderr
};
// oom_score_adj of every process of a job: where the machine has no memory left, the kernel ends
// one of them before any other.
#define SOUK_OOM_FIRST 1000
// A capsule whose root is its home's has /dev/fuse under this number, and the requests of the
// clients under the next. The root is at this path, as PID 1 and CRIU see it.
#define SOUK_FILES_FD 5
#define SOUK_FILES_ROOT "/run/souk-root"

#define SOUK_RESIDUE_NAME "souk-residue"
#define SOUK_SHM_NAME "souk-shm"
#define SOUK_RUN_NAME "souk-run"
#define SOUK_TMP_NAME "souk-tmp"  // there: the job has a /tmp of its own
#define SOUK_AFFINITY_NAME "souk-affinity"
#define SOUK_NETWORK_NAME "souk-network"
#define SOUK_ATTRIBUTES_NAME "souk-attributes"
#define SOUK_NOTIFIED_NAME "souk-notified"
#define SOUK_CUT_OFF_NAME "souk-cut-off"
#define SOUK_OPTIONS_NAME "souk-options"  // socket_options.h
#define SOUK_CTL_NAME "ctl.sock"
#define SOUK_EXIT_NAME "exit"
#define SOUK_LOG_NAME "init.log"
#define SOUK_LAPSED_NAME "lapsed"  // there: the job's group was frozen because its lease was over
#define SOUK_PAUSED_NAME "paused"  // or for the owner of the node

// Field use is written beside each type; fields not named are 0. "+x" is what follows the struct.
enum souk_type {
    // agentd to souk-init
    // offset, limit: stdout / stderr is safe before there and resent from there. The
    // first record of a connection
    SOUK_HELLO = 1,
    // + fd: launch specification (souk_spec); + fd, if given: the job's own cgroup v2
    // group, so that freezing the job leaves souk-init awake; value = 1: + fd, the last one: the
    // filter of its system calls (struct sock_filter[]). Answer: STARTED or EXEC_FAILED. stream =
    // 1:
    // up to its program, which waits for RELEASE. Answer: HELD or EXEC_FAILED
    SOUK_START,
    SOUK_ACK,  // stream, offset: everything before offset is safe
    // offset +bytes; bytes before what was taken and after the limit are ignored
    SOUK_INPUT,
    SOUK_INPUT_EOF,  // offset: input ends there
    SOUK_WINCH,      // stream = rows, value = columns
    SOUK_SIGNAL,     // value = signal, stream = enum souk_target
    // value: 0 beside a running job, 1 before a restore. Raises ns_last_pid. Answer:
    // HELPERS_READY
    SOUK_HELPERS_ENTER,
    SOUK_HELPERS_LEAVE,  // puts it back
    SOUK_DRAIN,          // + fd: image directory; only while the job is frozen. Answer: DRAINED
    SOUK_UNDRAIN,        // the dump is off: input goes back, the job is watched as before
    // value = 1 terminal, 0 pipes: makes the ends of a job to be restored. Answer: PREPARED
    SOUK_PREPARE,
    SOUK_LOAD,  // + fd: image directory, before the restore. Answer: LOADED
    // the restore is over: ns_last_pid as it was, copies of the job's ends closed.
    // Answer: STARTED
    SOUK_RESTORED,
    // + fd: held open until LET_GO, whatever becomes of agentd: a userfaultfd, without
    // which memory that has not come yet would read as zeros
    SOUK_KEEP,
    SOUK_LET_GO,  // closes all that is kept
    SOUK_QUIT,    // end, and with it whatever is left in the namespace
    // offset: until then (CLOCK_BOOTTIME, ns) the job may run; + fd: the file that freezes its
    // group +what to write there. Replaces the one before
    SOUK_LEASE,
    SOUK_RELEASE,  // what is HELD runs. Answer: STARTED or EXEC_FAILED
    // souk-init to agentd
    SOUK_WELCOME = 64,  // + souk_welcome: answer to HELLO
    // value = pid of the root inside; stream = 1: with the terminal offset, limit = RDEV, DEV
    SOUK_STARTED,
    // value = errno +text: what failed; stream = 1: the program itself (no other node
    // would mend it)
    SOUK_EXEC_FAILED,
    SOUK_OUTPUT,         // stream, offset +bytes
    SOUK_OUTPUT_EOF,     // stream, offset: the stream ends there
    SOUK_INPUT_TAKEN,    // offset: taken so far; limit: may be sent up to there
    SOUK_EXITED,         // + souk_exit; the output may still follow
    SOUK_STOPPED,        // value = signal that stopped the root, 0 = it goes on
    SOUK_HELPERS_READY,  // value = errno +text
    // value = errno (0 done) +text; then souk-residue (and souk-shm) are in the directory
    SOUK_DRAINED,
    // value = errno +text, or fds: the job's stdin, stdout, stderr; or its terminal
    SOUK_PREPARED,
    SOUK_LOADED,  // value = errno +text, or +souk_residue
    SOUK_FAILED,  // value = errno +text: the capsule could not be set up; souk-init ends
    // after a WELCOME: offset of the last LEASE, if there was one. value = 1: at that one it has
    // just stopped the job
    SOUK_LEASED,
    SOUK_HELD,  // value = pid of the root inside: it stands before its program
};

// SOUK_NETWORK_NAME, of a job with a network of its own: the text of each of these, or nothing.
#define SOUK_NETWORK_SETTINGS \
    { "/proc/sys/net/ipv4/ping_group_range", "/proc/sys/net/ipv4/ip_unprivileged_port_start" }
enum { SOUK_NETWORK_VALUES = 2, SOUK_NETWORK_VALUE_MAX = 64 };

// SOUK_ATTRIBUTES_NAME: one for each process that has other attributes than a new one. 0: as a new
// one has it.
struct souk_attributes {
    int32_t pid;
    uint32_t personality;  // personality(2)
    int32_t io_priority;   // ioprio_set(2)
    uint8_t has_core_filter;
    uint8_t exit_status;   // of one that has ended and was not asked for
    int16_t exit_signal;   // by which its end is told (clone(2)); 0: SIGCHLD, -1: by none
    uint64_t core_filter;  // /proc/PID/coredump_filter
    uint64_t timer_slack;  // ns
    // RLIMIT_CPU less what it has used, in seconds; its counter begins anew. Soft 0: it has none.
    uint64_t cpu_soft, cpu_hard;
};

// SOUK_NOTIFIED_NAME: one for each descriptor of an inotify.
struct souk_notified {
    int32_t pid, fd;
    int64_t seen, seen_ns;  // the wall clock when the job stood
    uint32_t waits, pad;    // notices waited there then
};

// SOUK_CUT_OFF_NAME, of a job with a network of its own: one for each connection over TCP that no
// process has open. An address of IPv4 is in its first four bytes; ports are numbers.
struct souk_cut_off {
    uint16_t family, local_port, remote_port, pad;
    unsigned char local[16], remote[16];
};

enum souk_target { SOUK_TO_FOREGROUND = 0, SOUK_TO_ROOT = 1, SOUK_TO_ALL = 2 };

enum souk_state {
    SOUK_FRESH = 0,  // nothing started yet
    SOUK_STARTING,   // forked, exec not yet seen
    SOUK_RUNNING,
    SOUK_DRAINED_STATE,   // frozen by a dump, or killed by it
    SOUK_PREPARED_STATE,  // ends made, waits for a restore
    SOUK_LOADED_STATE,    // residue loaded, waits for RESTORED
    SOUK_ENDED,           // exit record written
    SOUK_NOT_STARTED,     // EXEC_FAILED
    SOUK_HELD_STATE,      // forked, waits for RELEASE
};

struct souk_msg {
    uint16_t version, type;
    uint32_t length;  // of the record, with this
    uint32_t stream;
    int32_t value;
    uint64_t offset, limit;
};

struct souk_stream_state {
    uint64_t base, end;  // kept bytes: [base, end)
    uint32_t eof, pad;
};

struct souk_welcome {
    uint32_t state;
    int32_t root_pid;
    uint32_t tty, stopped;
    uint64_t tty_rdev, tty_dev;  // names the terminal for CRIU: tty[RDEV:DEV]
    uint64_t input_taken, input_limit;
    struct souk_stream_state out[SOUK_STREAMS];
};

// The exit record: DIR/exit, and payload of EXITED.
struct souk_exit {
    uint32_t magic, version;
    int32_t wait_status;
    uint32_t pad;
    uint64_t user_us, system_us, rss_max_kib, faults_minor, faults_major;
};
#define SOUK_EXIT_MAGIC 0x54495845u

struct souk_rlimit {
    int32_t resource;
    uint32_t pad;
    uint64_t soft, hard;
};

// Launch specification: this, souk_rlimit[rlimits], uint32_t[groups], then NUL-ended strings: path,
// cwd, argv, env.
struct souk_spec {
    uint32_t magic, version, length;
    uint32_t tty, durable;  // durable: the exit record is fsynced
    uint32_t uid, gid, umask;
    uint32_t rows, cols;
    uint32_t rlimits, groups, argc, envc;
};
#define SOUK_SPEC_MAGIC 0x43455053u

// Residue: this, then input_len, out[0].end - out[0].base, out[1]..., typed_len bytes.
struct souk_residue {
    uint32_t magic, version;
    int32_t root_pid, last_pid;
    uint32_t tty, uid, gid, durable;
    uint64_t pipe_inode[3];            // without tty: names the old pipes for CRIU: pipe:[INODE]
    uint64_t tty_rdev, tty_dev;        // with tty
    uint64_t input_offset, input_len;  // not yet read by the job
    uint64_t input_eof_at;             // UINT64_MAX = input goes on
    struct souk_stream_state out[SOUK_STREAMS];
    // terminal: typed ahead, already through the line discipline (part of no offset above)
    uint32_t typed_len;
    uint32_t typed_canonical;
};
#define SOUK_RESIDUE_MAGIC 0x44495352u

// The header of a record of `length` bytes, or NULL if it is none.
static inline const struct souk_msg* souk_msg_check(const void* record, uint64_t length) {
    const struct souk_msg* m = (const struct souk_msg*)record;
    if (length < sizeof *m || length > sizeof *m + SOUK_DATA_MAX) return 0;
    if (m->version != SOUK_INIT_VERSION || m->length != length) return 0;
    return m;
}
