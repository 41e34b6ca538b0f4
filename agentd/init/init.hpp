// SPDX-License-Identifier: GPL-2.0-or-later
// souk-init: PID 1 of a capsule. A small static program that outlives agentd: it starts the job or
// receives a restored one, owns its pipes or its terminal, reaps, writes the exit record, and
// serves one agentd connection at a time. Plain C inside: no exception, no destructor, no library
// but libc. Everything it would tell is kept as state and told again after a reconnect, so a lost
// connection loses nothing.
//
// Needs of the kernel: 5.9 (close_range). Everything here is one thread and one poll loop.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "kernel/sys/process/init_protocol.h"
#include "kernel/sys/process/init_spec.hpp"

namespace souk::init {

// A byte queue at absolute offsets: holds [base, base + len). Memory is taken by the page when
// used.
struct Queue {
    char* data;
    size_t cap, head, len;
    uint64_t base;
};

bool queue_open(Queue* q, size_t cap, uint64_t base);
// Makes room for `extra` more bytes.
bool queue_grow(Queue* q, size_t extra);
void queue_put(Queue* q, const char* bytes, size_t n);
void queue_drop(Queue* q, size_t n);
// The longest piece from offset `from` that lies in one part; its length in *n.
const char* queue_at(const Queue* q, uint64_t from, size_t* n);

struct Output {
    Queue kept;
    int fd;         // our end, or -1
    uint64_t sent;  // told to the present connection
    bool eof, eof_told;
};

struct Input {
    Queue wait;       // taken, not yet written to the job
    int fd;           // our end, or -1; the terminal's master with a terminal
    int kept_read;    // a second description of the job's end (pipes)
    uint64_t eof_at;  // UINT64_MAX while input goes on
    bool told;        // taken and limit were told
};

// Keeps the answer to the last question until the socket takes it.
struct Answer {
    bool waits;
    souk_type type;
    int32_t failed;  // errno, 0 = done
    size_t n;
    char bytes[SOUK_WHAT_MAX];  // what failed, or a residue's header
};

static_assert(sizeof(souk_residue) <= SOUK_WHAT_MAX);

struct Init {
    int dir, listen, conn, child_signals, exec_pipe;
    int gate;  // of what is held before its program: a byte there lets it run; else -1
    // a mount of the capsule's POSIX message queues, once somebody has looked; else -1
    int queues;
    uint64_t* mounts;  // what note_mounts() has found; null: too many
    size_t mount_count;
    bool own_net, own_run, private_tmp;
    bool files;                // the job's root is SOUK_FILES_ROOT
    bool served;               // ... and SOUK_FILES_FD is its device
    int lease_timer, freezer;  // freezer: the file that stops the job, -1 without a lease
    uint64_t lease_until;      // 0: no lease
    uint64_t lease_stopped;    // the deadline at which it stopped the job, until that is told
    bool lease_told;
    char freezer_word[16];
    souk_state state;
    bool tty, durable, stopped, stop_told, started_told, failure_told, exit_told, greeted,
        welcome_told, held_told;
    bool children_left;
    bool blocked;  // a record waits for the socket
    Answer answer;
    pid_t root;
    int master, slave;  // terminal
    uint64_t tty_rdev, tty_dev;
    int job_end[3];  // copies of the job's ends between PREPARE and RESTORED, else -1
    uint64_t pipe_inode[3];
    uint32_t uid, gid;
    // A capsule may be for one user alone (CapsuleOptions::user); these name him.
    bool of_one;
    uint32_t of_uid, of_gid, of_group_count;
    uint32_t* of_groups;
    Input in;
    Output out[SOUK_STREAMS];
    // of the last HELLO: what is safe with agentd is not sent again
    uint64_t safe_from[SOUK_STREAMS];
    int affinity;  // file of the image, between LOAD and RESTORED, else -1
    int last_pid;  // to be written back, 0 = nothing
    bool root_dead;
    int root_status, stop_signal;
    struct rusage root_usage;
    souk_exit exit;
    int failure_code;
    bool failure_program;
    char failure[SOUK_WHAT_MAX];
};

extern Init g;

// util.cpp
void say(const char* what, int code);  // one line into DIR/init.log
// Creates a file to be written, in a directory of agentd's, who need not be root, so it follows no
// link there. -1: errno says why not.
int create_at(int dir, const char* name, int more);
bool write_all(int fd, const void* data, size_t n);
bool read_all(int fd, void* data, size_t n);
long read_number(const char* path);              // -errno
int write_number(const char* path, long value);  // errno
void set_nonblocking(int fd);

constexpr size_t overs_max = 32, hidden_max = 64;

// setup.cpp: namespaces are fresh; mounts, network, control socket. What fails ends the program.
struct Wishes {
    // of the node's network, for one of its own; null: it shares the node's
    const char* ping_groups = nullptr;
    const char* run_keep = "";  // names below /run that the job sees, too, parted by spaces
    bool private_tmp = false;
    bool files = false;   // the job's root is its home's (SOUK_FILES_FD)
    bool checks = false;  // ... and this kernel checks who may do what there
    bool tree = false;    // the same at home: this node's tree
    // Directories of this node that lie over that root.
    const char* over[overs_max] = {};
    size_t overs = 0;
    const char* hide[hidden_max] = {};  // directories that are empty for it
    size_t hidden = 0;
    bool hosts = false;  // the file `hosts` beside the control socket is its /etc/hosts
};
void set_up(const Wishes& wishes);
const char* mount_tmp();  // a /tmp of its own. Null, or what failed (errno set)
void make_run_user(uint32_t uid, uint32_t gid);  // /run/user/UID
// groups.cpp: after /proc is mounted. What fails is told in DIR/init.log, and the job sees the
// groups as this node names them.
void set_up_groups();
// Sends one record outside of the ordinary flow; false if it did not fit.
bool send_record(souk_type type, uint32_t stream, int32_t value, uint64_t offset, uint64_t limit,
                 const void* bytes, size_t n, const int* fds = nullptr, int nfds = 0);

// job.cpp
// cgroup: the job's own group, or -1; filter: of its system calls, or -1
// hold: it waits before its program for release_job().
void start_job(int spec_fd, int cgroup, int filter, bool hold);
void release_job();
void on_exec_pipe();
void on_child();     // reaps
void finish_root();  // the root is dead and not by a dump: ends the job
bool stop_orphaned(pid_t group);
void send_signal(int number, uint32_t target);
// Tells whether a process is the job's: its ancestors are here. CRIU and other helpers come from
// outside.
bool of_the_job(int pid);

// stdio.cpp
// null, or what failed (errno set); the job's ends go to g.job_end
const char* make_pipes();
const char* make_terminal(int rows, int cols);
void close_job_ends();
void read_output(Output* o, bool all);  // until full (unless all), empty or ended
bool input_waits();                     // for the job's end to take it
void write_input();
void check_ends();  // streams that can give nothing more
// Copies what the frozen job has not yet read, which also stays where it is. False if it could not
// be had (errno).
bool copy_pipe_input(Queue* unread);
bool copy_typed_ahead(Queue* typed, bool* canonical);
bool put_typed_ahead(const Queue* typed, bool canonical);

// move.cpp; each answers by itself
void drain(int image_dir);
void undrain();
void prepare(bool tty);
void load(int image_dir);
void restored();
void begin_pids();  // before the first process of a fresh job
void helpers_enter(bool restore);
void helpers_leave();

// shm.cpp: the private /dev/shm, and /tmp if it is private, to and from a file each. Null, or what
// failed (errno set).
const char* shm_save(int image_dir);
const char* shm_load(int image_dir);

// lease.cpp
void keep_lease(uint64_t until, int freezer, const char* word, size_t n);
void on_lease_timer();

// kernel_state.cpp: what CRIU leaves out. Null, or what failed or cannot move (errno set).
const char* find_what_stays();
void note_mounts();                       // all that souk-init mounts is there
const char* network_save(int image_dir);  // CRIU puts them back: checkpoint/criu_sockets.c
void set_ping_groups(const char* groups);

// attributes.cpp, with the CPU affinity
const char* attributes_save(int image_dir);  // null, or what failed (errno set)
void affinity_restore(int file);

// serve.cpp
void on_connect();
void on_record();
void send_from(Output* o, uint64_t safe);
void flush();  // tells what there is to tell, as far as the socket takes it

}  // namespace souk::init
