/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The credentials with which a restoring CRIU uses the job's paths: criu_user.c. */
#pragma once

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { images_fd = 200 }; /* checkpoint/launch.hpp */

/* From here on a path is looked up, made or removed as the job's user; the calls nest. Nothing
 * changes in a dump, and for a job of root. */
void as_user(void);
void as_agent(void);
/* ... as him in all, and not for his paths alone: with no capability. They do not nest. */
void be_user(void);
void be_root(void);
/* Whether what is restored has a network of its own, which it may change. */
bool has_own_network(void);
/* criu_rights.c: before CRIU does anything for a plain user; when the kernel has given root's back;
 * a raw socket for us; bind(2) and connect(2) as that user. */
struct sockaddr;
void lay_rights_aside(void);
void keep_rights_aside(void);
int raw_socket(int family, int protocol);
int bind_plainly(int fd, const struct sockaddr* address, unsigned length);
int connect_plainly(int fd, const struct sockaddr* address, unsigned length);
/* A name of CRIU's own, which only root uses. */
bool is_crius_own(const char* path);
/* Whether what is restored must be a user's; who he is. */
bool must_be_users(void);
uid_t user_id(void);
bool is_users_group(gid_t group);
/* criu_let_go.c: before this ptrace(2), whose `data` it may change; -1: it must not be (errno). */
long before_ptrace(int request, pid_t thread, void** data);
/* ... what is dumped goes on no more, whatever becomes of CRIU. */
void die_with_criu(void);
/* ... whether that one is a thread of that process, or its first. */
bool is_thread_of(pid_t process, pid_t thread);
/* ... the process of that thread; 0: it has ended. */
pid_t process_of(pid_t thread);
/* ... the beginning of a small file of a thread below /proc, until the next is asked for; NULL: it
 * cannot be read. */
const char* text_of(pid_t thread, const char* name);
/* ... all that this CRIU holds. */
const pid_t* held_threads(size_t* count);
/* criu_calls.c: whether a handler is to run before that thread goes on: to its program the call was
 * interrupted. criu_waits.c: before the first thread is stopped, and when all are; whether these
 * registers, of a thread that is dumped, have its call begin anew with what is left of its span;
 * of one that
 * goes on here, the same; before the first one goes on. */
struct user_regs_struct;
bool handler_waits(pid_t thread);
void look_at_waits(void);
void shorten_waits(void);
bool begins_with_rest(pid_t thread, struct user_regs_struct* r);
bool goes_on_with_rest(pid_t thread, struct user_regs_struct* r);
void keep_limits(void);
/* criu_filters.c: whether each of these threads, which are held, is kept from the system calls that
 * this node wants no job to make. False: one is not, and that was told. */
bool are_calls_limited(const pid_t* threads, size_t count);
/* criu_attributes.c: before a restore lets the first thread go. False: it must not (refuse). */
bool before_all_go(void);
/* ... before CRIU makes a process by clone3(2). */
struct clone_args;
void keep_exit_signal(struct clone_args* how);
/* criu_inject.c: what that system call, its number first, says (-errno) in a thread that is held.
 */
long call_in(pid_t thread, const long words[7]);
/* ... its real ids; false: it has ended. */
bool ids_of(pid_t thread, uid_t* uid, gid_t* gid);
/* criu_program.c, criu_seals.c: of a file that CRIU has opened, which is returned. */
int program_with_path(int directory, const char* name, int fd);
int watch_smaps(int directory, const char* name, int fd);
/* criu_known_files.c: reads the list of the image, in a restore, before CRIU closes the image;
 * tells whether a dump has given a file that name, for a restore; finds another one in the same
 * directory of the file whose name is deleted (false: there is none). */
void know_files(void);
bool is_name_of_dump(const char* path);
bool find_other_name(int directory, const char* deleted, char other[4096]);
/* ... an image that CRIU has opened, which is returned. */
int image_of_files(const char* name, int fd);
/* ... which process that directory is of; 0: of none. */
pid_t process_at(int directory);
/* ... of what CRIU has read there; returns `n`. */
ssize_t look_at_read(int fd, const void* bytes, ssize_t n);
void note_memory(const pid_t* processes, size_t count);
/* Whether the seals of the image can be set. False: it was told why not. */
bool can_seal(void);
bool restore_seals(void);
/* criu_limits.c. False: one has reached a limit, and that was told. */
bool lift_limits(const pid_t* processes, size_t count);
void put_limits_back(pid_t process); /* 0: of all */
void end_guard(void);                /* before CRIU ends the processes */
int before_limits(int directory, const char* name, int fd);
/* criu_eventfds.c: text that CRIU has read, whose length is returned; flags that CRIU sets. */
ssize_t mark_semaphore(char* text, ssize_t length, size_t room);
bool make_semaphore(int fd, long flags, int* done);
long told_flags(int fd, long flags);
/* criu_landlock.c. False: one is not, and that was told. */
bool is_free_of_landlock(const pid_t* threads, size_t count);
/* criu_mappings.c. False: one has mappings that cannot be made again, or waits for files by
 * io_submit(2), and that was told. */
bool has_usual_mappings(const pid_t* processes, size_t count);
/* criu_tiles.c: a dump notes which may use the tiles of the processor, and a restore has them ask
 * for that again. False: it must not be, and that was told. */
bool note_tiles(const pid_t* threads, size_t count);
bool give_tiles(void);
/* criu_fifos.c. False: a job that is frozen to disk has one, and that was told. */
bool has_no_fifo_of_others(const pid_t* processes, size_t count);
/* criu_shared.c. False: a thread shares less than CRIU knows, and that was told. */
bool shares_as_usual(const pid_t* threads, size_t count);
/* ... with these bytes in its memory, to which argument `at` points; whether it has a place for
 * calls: if not, they say -ENOSYS. */
long call_with(pid_t thread, const long words[7], int at, const void* bytes, size_t size);
bool can_call(pid_t thread);
/* ... that the call writes what it says into. */
long call_and_read(pid_t thread, const long words[7], int at, void* bytes, size_t size);
/* criu_semaphores.c. False: it was told why not. */
bool dump_semaphores(const pid_t* threads, size_t count);
bool restore_semaphores(pid_t root);
/* A file of the image; one that is made is root's alone. */
int open_image(const char* name, int flags);
/* criu_descriptors.c: before the first thread goes; whether this CRIU holds a process; a
 * descriptor of CRIU's own for an open file of one; -1: it does not hold it, or that has none. */
void set_sockets(void);
bool is_held(pid_t process);
int file_of(pid_t process, int fd);
/* criu_user.c: memory of zeros that all processes of this CRIU share; NULL: it dumps, or there is
 * none. To be called as it begins. */
void* shared_in_restore(size_t bytes);
/* criu_user.c: a line of CRIU's log, from which agentd takes why a dump or a restore is refused. */
__attribute__((format(printf, 1, 2))) void refuse(const char* why, ...);
/* criu_epolls.c: a list beside the image, which this dump begins anew. */
int append_to_image(const char* name);
/* ... whether a process of the job has the same open file as this descriptor of CRIU's. */
bool is_open_in_job(int fd);
/* criu_in_flight.c: of an option that CRIU has asked of a socket; tells that it holds back what is
 * to be sent, and says so. */
bool holds_back(int fd, int level, int name, const void* value);
/* criu_epolls.c: of /proc/PID/fdinfo what CRIU is to see; before the first thread goes. */
int shown_fdinfo(int directory, const char* path, int info);
void watch_again(void);
/* criu_inotify.c: before the first thread goes. */
void tell_of_lost_notices(void);
/* In a restore, before CRIU closes the image. */
void know_notices(void);
/* criu_cut_off.c: before the first thread goes, when nothing may fail any more. */
void speak_to_others(void);
/* ... that of a segment between these addresses of IPv4 or IPv6 (RFC 9293, 3.1). */
uint16_t tcp_checksum(const void* local, const void* remote, size_t address_bytes,
                      const void* segment, size_t bytes);
/* criu_epolls.c: what CRIU looks at now; refuses it: what there is, and when it can move. */
void looked_at(pid_t* process, int* fd);
void refuse_of(const char* what, const char* when);
/* criu_urgent.c: of a connection, how many bytes wait that CRIU is to take (-1: errno); with
 * speak_to_others. */
int waiting_before_mark(int fd, int* waiting);
void say_urgent_again(void);
/* criu_asked.c: before CRIU says a word; false: it must not (errno). */
bool before_word(const void* word, size_t n);
/* criu_locks.c: when a dump is complete (false: it must not be, errno), and before CRIU hears the
 * word that ends what it has dumped; in a process that it has made, before the image is closed
 * there; fcntl(2) for a lock; before the first thread goes on (false: none may). */
bool note_locks(void);
void before_end(void);
void locks_of_process(void);
int set_by_criu(int fd, int command, struct flock* range);
bool hand_over_locks(void);
/* criu_kept_files.c: when a dump is complete; in a restore, before files are opened. */
void keep_files(void);
void make_files_again(void);
/* criu_trial.c: whether it restores for trial alone; a path that is the job's own socket then,
 * whose file stays as it is; bind(2) and connect(2) to the name of such a file (false: it is none);
 * the end of a call to which interfaces of others count; before the first socket. */
bool is_trial(void);
bool is_spared(const char* path);
bool bind_for_trial(int fd, const struct sockaddr* address, unsigned length, int* done);
bool connect_for_trial(int fd, const struct sockaddr* address, unsigned length, int* done);
int passed_over(int done);
void open_trial_network(void);
/* criu_asked.c: a number in the wire format of protocol buffers; false: there is none. */
struct bytes {
    const unsigned char *at, *end;
};
bool take_number(struct bytes* b, uint64_t* value);
/* ... the next member of a message; false: there is none, or it is none. */
struct member {
    uint64_t number, value;   /* the value, or how many bytes it has */
    const unsigned char* tag; /* where it begins */
    bool has_bytes;
    struct bytes inner; /* of one that has bytes */
};
bool next_member(struct bytes* b, struct member* m);
/* As unlinkat(2): of the job's path, or of the copy that stands in for it. */
int unlink_of_job(int directory, const char* path, int flags);
