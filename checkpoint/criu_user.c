// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into a CRIU that restores, so that the paths of a job give nobody what its user may not
// have.
//
// CRIU opens the job's files by their names, as root, and follows symbolic links. Whoever can
// change a directory of such a name between a dump and a restore would get the file of his choice
// opened by root; so would a node that sends a forged image. Here each path of the job is used with
// the file system credentials of the job's user (SOUK_AS: UID:GID:GROUP,GROUP...). What is CRIU's
// own (images, /proc, /run/criu.*) stays root's.
//
// Three kinds of files need more than their user may do at once:
//   own files      that the user has since closed to himself (mode 0444, open for writing): the
//                  owner could open them by chmod(2)
//   /proc/PID      of a process of the job, which still runs as root while it is restored
//   deleted files  in a directory that the user may not write to, such as a library that was
//                  replaced: their copies lie in the capsule's own /run instead
#define _GNU_SOURCE
#include "checkpoint/criu_user.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

enum { groups_max = 1024 };
#define COPIES "/run/souk-deleted"

static bool known;      // there is a user to act as
static bool unchecked;  // what is restored need not be his: a test of what CRIU does with files
static uid_t uid;
static gid_t gid;
static gid_t groups[groups_max], own_groups[groups_max];
static int group_count, own_count;
static int depth, dumpable;
static pid_t criu;
static struct stat top;  // the root directory

static void give_up(const char* what) {
    static const char name[] = "souk: cannot act as the job's user: ";
    (void)!syscall(SYS_write, 2, name, sizeof name - 1);
    (void)!syscall(SYS_write, 2, what, strlen(what));
    abort();
}

__attribute__((constructor)) static void loaded(void) {
    const char* at = getenv("SOUK_AS");
    if (at == NULL) return;
    char* end;
    unchecked = *at == '!';
    uid = (uid_t)strtoul(at + unchecked, &end, 10);
    if (*end != ':') give_up("SOUK_AS");
    gid = (gid_t)strtoul(end + 1, &end, 10);
    while ((*end == ':' || *end == ',') && end[1] != 0) {
        if (group_count == groups_max) give_up("too many groups");
        groups[group_count++] = (gid_t)strtoul(end + 1, &end, 10);
    }
    own_count = getgroups(groups_max, own_groups);
    if (own_count < 0 || stat("/", &top) != 0) give_up("its own groups");
    criu = getpid();
    known = uid != 0;
    if (must_be_users()) lay_rights_aside();
}

int open_image(const char* name, int flags) {
    return (int)syscall(SYS_openat, images_fd, name, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
}

void refuse(const char* why, ...) {
    char text[512];
    va_list values;
    va_start(values, why);
    const int n = vsnprintf(text, sizeof text, why, values);
    va_end(values);
    const int log = open_image(getenv("SOUK_DUMP") != NULL ? "dump.log" : "restore.log",
                               O_WRONLY | O_CREAT | O_APPEND);
    if (log < 0) return;
    dprintf(log, "Error (souk): %.*s\n", n, text);
    close(log);
}

// Changes the ids of this thread alone, by raw system calls. That suffices, because each of CRIU's
// processes has one thread; the C library would change the ids of all threads.
static void become(uid_t user, gid_t group, int count, const gid_t* list) {
    const int error = errno;
    const bool to_root = user == 0;
    if (to_root) syscall(SYS_setfsuid, user);  // first: it gives the capabilities back
    if (syscall(SYS_setgroups, (size_t)count, list) != 0) give_up("setgroups");
    syscall(SYS_setfsgid, group);
    if (!to_root) syscall(SYS_setfsuid, user);
    if ((uid_t)syscall(SYS_setfsuid, -1) != user || (gid_t)syscall(SYS_setfsgid, -1) != group)
        give_up("setfsuid");
    errno = error;
}

void as_user(void) {
    if (!known || depth++ > 0) return;
    dumpable = prctl(PR_GET_DUMPABLE);
    become(uid, gid, group_count, groups);
}

void as_agent(void) {
    if (!known || --depth > 0) return;
    become(0, 0, own_count, own_groups);
    if (must_be_users()) keep_rights_aside();
    // setfsuid(2) has taken it, and /proc/self would be closed
    if (dumpable == 1) prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}

void be_user(void) {
    const int error = errno;
    dumpable = prctl(PR_GET_DUMPABLE);
    if (syscall(SYS_setgroups, (size_t)group_count, groups) != 0 ||
        syscall(SYS_setresgid, -1, gid, -1) != 0 || syscall(SYS_setresuid, -1, uid, -1) != 0)
        give_up("setresuid");
    errno = error;
}

void be_root(void) {
    const int error = errno;
    if (syscall(SYS_setresuid, -1, 0, -1) != 0 || syscall(SYS_setresgid, -1, 0, -1) != 0 ||
        syscall(SYS_setgroups, (size_t)own_count, own_groups) != 0)
        give_up("setresuid back");
    if (must_be_users()) keep_rights_aside();
    if (dumpable == 1) prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    errno = error;
}

bool must_be_users(void) { return known && !unchecked; }
bool has_own_network(void) { return getenv("SOUK_NETWORK") != NULL; }
uid_t user_id(void) { return uid; }
bool is_users_group(gid_t group) {
    if (group == gid) return true;
    for (int i = 0; i < group_count; ++i)
        if (groups[i] == group) return true;
    return false;
}

static bool begins(const char* path, const char* with) {
    return strncmp(path, with, strlen(with)) == 0;
}

// A name out of an image that begins as CRIU's own may lead elsewhere.
static bool goes_up(const char* path) {
    for (const char* at = path; (at = strstr(at, "..")) != NULL; at += 2)
        if ((at == path || at[-1] == '/') && (at[2] == 0 || at[2] == '/')) return true;
    return false;
}

// Tells whether CRIU makes or changes the path for itself. In /proc it does so by its own
// descriptors alone, and with nothing below them, because below the descriptor of a directory a
// path would lead anywhere.
bool is_crius_own(const char* path) {
    static const char descriptor[] = "/proc/self/fd/", temporary[] = "/run/criu.";
    if (!known) return true;
    if (begins(path, temporary)) return strchr(path + sizeof temporary - 1, '/') == NULL;
    if (!begins(path, descriptor)) return false;
    const char* const number = path + sizeof descriptor - 1;
    return *number != 0 && number[strspn(number, "0123456789")] == 0;
}

// A link of /proc that leads to a directory, and a name below that.
static bool leads_out(const char* path) {
    static const char* const links[] = {"/root/", "/cwd/", "/fd/", "/map_files/"};
    for (size_t i = 0; i < sizeof links / sizeof *links; ++i) {
        const char* at = strstr(path, links[i]);
        if (at != NULL && i > 1) at = strchr(at + strlen(links[i]), '/');
        if (at != NULL) return true;
    }
    return false;
}

// CRIU reads below /proc for itself, and writes there to files of the processes that it makes.
static bool is_opened_by_criu(const char* path) {
    return is_crius_own(path) || strcmp(path, "/proc") == 0 ||
           (begins(path, "/proc/") && !goes_up(path) && !leads_out(path));
}

// -------------------------------------------------------------------------------------------------
// deleted files whose directory is not the user's to write to

// A number for the path (FNV-1a). Callers pass paths with and without the first slash, so it does
// not depend on that.
static uint64_t number_of(const char* path) {
    uint64_t number = 14695981039346656037U;
    while (*path == '/') ++path;
    for (; *path != 0; ++path) number = (number ^ (unsigned char)*path) * 1099511628211U;
    return number;
}

// Returns the path of the copy of the file at `path`.
static const char* copy_of(const char* path) {
    static char name[64];
    snprintf(name, sizeof name, COPIES "/%016llx", (unsigned long long)number_of(path));
    return name;
}

static bool has_copy(const char* path) {
    const int error = errno;
    const bool there = known && syscall(SYS_faccessat, AT_FDCWD, copy_of(path), F_OK) == 0;
    errno = error;
    return there;
}

static int make_copy(const char* path, int flags, mode_t mode) {
    if (syscall(SYS_mkdirat, AT_FDCWD, COPIES, 0700) != 0 && errno != EEXIST) return -1;
    return (int)syscall(SYS_openat, AT_FDCWD, copy_of(path), flags | O_NOFOLLOW, mode & 0777);
}

// -------------------------------------------------------------------------------------------------
// opening

static int plain_open(int directory, const char* path, int flags, mode_t mode) {
    return (int)syscall(SYS_openat, directory, path, flags, mode);
}

// Tells whether the path (below /) is in /proc and of a process of the job. PID 1 and CRIU are none
// of these. Files through which a process's memory is written are refused, because another CRIU
// could be changed by them.
static bool is_of_a_process(const char* path) {
    static const char* const memory[] = {"mem", "pagemap", "clear_refs"};
    char* end;
    if (!begins(path, "proc/") || goes_up(path)) return false;
    const char* const last = strrchr(path, '/') + 1;
    for (size_t i = 0; i < sizeof memory / sizeof *memory; ++i)
        if (strcmp(last, memory[i]) == 0) return false;
    const long pid = strtol(path + 5, &end, 10);
    return end > path + 5 && (*end == '/' || *end == 0) && pid > 1 && pid != criu;
}

static int open_of_process(int directory, const char* path, int flags) {
    struct open_how how = {.flags = (uint64_t)(flags & ~(O_CREAT | O_EXCL | O_TRUNC)),
                           .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH};
    return (int)syscall(SYS_openat2, directory, path, &how, sizeof how);
}

// The user found it, and may not open it as it was open.
static int open_own(int directory, const char* path, int flags) {
    char link[40];
    struct stat st;
    as_user();
    const int found = plain_open(directory, path, O_PATH | (flags & (O_NOFOLLOW | O_CLOEXEC)), 0);
    as_agent();
    if (found < 0) return -1;
    int fd = -1;
    if (fstat(found, &st) != 0) {
        close(found);
        return -1;
    }
    // A process may be in a directory, or above it, without the right to read it.
    if (S_ISDIR(st.st_mode) && (flags & O_ACCMODE) == O_RDONLY) return found;
    errno = EACCES;
    if (S_ISREG(st.st_mode) && st.st_uid == uid) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", found);
        fd = plain_open(AT_FDCWD, link, flags & ~(O_NOFOLLOW | O_CREAT | O_EXCL | O_TRUNC), 0);
    }
    const int error = errno;
    close(found);
    errno = error;
    return fd;
}

static int open_of_job(int directory, const char* path, int flags, mode_t mode) {
    if (has_copy(path)) return plain_open(AT_FDCWD, copy_of(path), flags & ~O_CREAT, 0);
    as_user();
    int fd = plain_open(directory, path, flags, mode);
    as_agent();
    if (fd >= 0 || (errno != EACCES && errno != EPERM && errno != EROFS)) return fd;
    if ((flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL)) return make_copy(path, flags, mode);
    if (is_of_a_process(path)) return open_of_process(directory, path, flags);
    return open_own(directory, path, flags);
}

// CRIU opens the job's files below the root directory, which it holds open.
static bool is_top(int directory) {
    struct stat st;
    const int error = errno;
    const bool is =
        fstat(directory, &st) == 0 && st.st_ino == top.st_ino && st.st_dev == top.st_dev;
    errno = error;
    return is;
}

static mode_t mode_of(int flags, va_list rest) {
    return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(rest, mode_t) : 0;
}

// Images of mounts and networks. A job is in its capsule's, which are CRIU's own, so no image of
// ours has any. One that has would have CRIU, as root, mount what it says, and run tar, ip and sh
// for it (criu/mount.c, filesystems.c, net.c). To CRIU a file that is missing is an empty one.
static bool is_of_namespaces(const char* path) {
    static const char* const names[] = {"mountpoints-", "tmpfs-",    "binfmt-",    "autofs-",
                                        "netns-",       "netdev-",   "ifaddr-",    "route",
                                        "rule-",        "iptables-", "ip6tables-", "nftables-"};
    for (size_t i = 0; i < sizeof names / sizeof *names; ++i)
        if (begins(path, names[i])) return true;
    return false;
}

int openat64(int directory, const char* path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    const mode_t mode = mode_of(flags, rest);
    va_end(rest);
    if (begins(path, "fdinfo/"))
        return shown_fdinfo(directory, path, plain_open(directory, path, flags, mode));
    // A name of the job's may begin with one slash more than CRIU leaves out.
    const bool of_criu = directory == AT_FDCWD ? path[0] != '/' || is_opened_by_criu(path)
                                               : !is_top(directory) && path[0] != '/';
    if (!known || of_criu) {
        if (known && is_of_namespaces(path)) {
            errno = ENOENT;
            return -1;
        }
        // Records of this node say whose login the job comes from, and no image does.
        if (must_be_users() && strcmp(path, "loginuid") == 0 && (flags & O_ACCMODE) != O_RDONLY)
            return plain_open(AT_FDCWD, "/dev/null", flags, mode);
        const int fd = before_limits(directory, path, plain_open(directory, path, flags, mode));
        return program_with_path(directory, path,
                                 watch_smaps(directory, path, image_of_files(path, fd)));
    }
    return open_of_job(directory, path, flags, mode);
}

// With O_CREAT and an absolute path, or with O_PATH, CRIU opens deleted files of the job or files
// of its own (it opens its log by a short name). Files of the job are opened as the job's user. We
// refuse the network's devices, because CRIU would change them as root.
int open64(const char* path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    const mode_t mode = mode_of(flags, rest);
    va_end(rest);
    if (must_be_users() && begins(path, "/dev/net/")) {
        errno = EPERM;
        return -1;
    }
    const bool makes = (flags & O_CREAT) != 0, finds = (flags & O_PATH) != 0;
    if (path[0] != '/' || (makes ? is_crius_own(path) : !finds || is_opened_by_criu(path)))
        return plain_open(AT_FDCWD, path, flags, mode);
    return open_of_job(AT_FDCWD, path, flags, mode);
}

// A CRIU that was compiled with _FORTIFY_SOURCE calls these, without a mode.
int __openat64_2(int directory, const char* path, int flags) {
    return openat64(directory, path, flags);
}
int __open64_2(const char* path, int flags) { return open64(path, flags); }

// A group of fanotify that root has made sees what its reader may not open (CRIU
// criu/fsnotify.c makes one as an image says).
int fanotify_init(unsigned flags, unsigned events) {
    if (must_be_users()) {
        errno = EPERM;
        return -1;
    }
    return (int)syscall(SYS_fanotify_init, flags, events);
}

// -------------------------------------------------------------------------------------------------
// making, changing and removing

#define AS_USER(path, call)                  \
    do {                                     \
        if (is_crius_own(path)) return call; \
        as_user();                           \
        const int done = (int)(call);        \
        as_agent();                          \
        return done;                         \
    } while (0)

int linkat(int from_dir, const char* from, int to_dir, const char* to, int flags) {
    if (has_copy(from)) {
        char source[64];
        snprintf(source, sizeof source, "%s", copy_of(from));
        return (int)syscall(SYS_linkat, AT_FDCWD, source, AT_FDCWD, copy_of(to), 0);
    }
    char other[PATH_MAX];
    if (is_name_of_dump(from) && faccessat(from_dir, from, F_OK, AT_SYMLINK_NOFOLLOW) != 0 &&
        find_other_name(to_dir, to, other))
        from = other, from_dir = to_dir;
    AS_USER(from, syscall(SYS_linkat, from_dir, from, to_dir, to, flags));
}

int unlink_of_job(int directory, const char* path, int flags) {
    if (has_copy(path)) return (int)syscall(SYS_unlinkat, AT_FDCWD, copy_of(path), 0);
    if (is_name_of_dump(path) && faccessat(directory, path, F_OK, AT_SYMLINK_NOFOLLOW) != 0)
        return 0;  // a job that went on has it no more
    AS_USER(path, syscall(SYS_unlinkat, directory, path, flags));
}

// CRIU makes a directory that the job has open and that was deleted once more, under its name, sets
// whose it is, and removes it again. It takes one that stands there by now for its own
// (criu/util.c, mkdirpat). All its processes share what was there before.
enum { names_max = 4096 };
struct names {
    unsigned count;
    uint64_t all[names_max];
};
/* asked: of those made, which were not made for the sake of one in them */
static struct { struct names made, found, asked; } * directories;

__attribute__((constructor)) static void share_directories(void) {
    if (getenv("SOUK_AS") != NULL) directories = shared_in_restore(sizeof *directories);
}

void* shared_in_restore(size_t bytes) {
    if (getenv("SOUK_DUMP") != NULL) return NULL;
    void* const room = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return room == MAP_FAILED ? NULL : room;
}

static bool has_name(const struct names* names, uint64_t name) {
    for (unsigned i = 0; i < names->count && i < names_max; ++i)
        if (names->all[i] == name) return true;
    return false;
}

static void add_name(struct names* names, uint64_t name) {
    const unsigned at = __atomic_fetch_add(&names->count, 1, __ATOMIC_RELAXED);
    if (at < names_max) names->all[at] = name;
}

static bool was_there_before(const char* path) {
    return directories != NULL &&
           (directories->found.count > names_max || has_name(&directories->found, number_of(path)));
}

static bool was_made(const char* path) {
    return directories != NULL && has_name(&directories->made, number_of(path));
}

// CRIU makes those above it again, too, if they are gone, and forgets them.
static void remove_made_above(const char* path) {
    char above[PATH_MAX];
    snprintf(above, sizeof above, "%s", path);
    for (char* slash; (slash = strrchr(above, '/')) != NULL;) {
        *slash = 0;
        if (!was_made(above) || has_name(&directories->asked, number_of(above)) ||
            unlink_of_job(AT_FDCWD, above, AT_REMOVEDIR) != 0)
            return;
    }
}

// A deleted file may have been the last one in a directory that CRIU has made for its sake.
int unlink(const char* path) {
    const int done = unlink_of_job(AT_FDCWD, path, 0);
    const int error = errno;
    if (done == 0) remove_made_above(path);
    errno = error;
    return done;
}

static void is_asked_no_more(const char* path) {
    const uint64_t name = number_of(path);
    for (unsigned i = 0; directories != NULL && i < directories->asked.count && i < names_max; ++i)
        if (directories->asked.all[i] == name) directories->asked.all[i] = 0;
}

// One that has another one in it goes with that.
int rmdir(const char* path) {
    const int done = unlink_of_job(AT_FDCWD, path, AT_REMOVEDIR);
    const int error = errno;
    is_asked_no_more(path);
    if (done == 0) remove_made_above(path);
    errno = error;
    return done != 0 && error == ENOTEMPTY && was_made(path) ? 0 : done;
}

// Memory that CRIU has just made, which is nobody's but its user's.
static bool is_new_memory(int fd) {
    static const char memory[] = "/memfd:";
    char link[40], target[sizeof memory] = "";
    struct stat st;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return syscall(SYS_readlinkat, AT_FDCWD, link, target, sizeof target - 1) ==
               (long)sizeof target - 1 &&
           strcmp(target, memory) == 0 && fstat(fd, &st) == 0 && st.st_nlink == 0 && st.st_uid == 0;
}

int fchownat(int directory, const char* path, uid_t to, gid_t group, int flags) {
    if (directory == AT_FDCWD && was_there_before(path)) {
        refuse("a directory that it has open was deleted, and another one has its name by now");
        errno = EEXIST;
        return -1;
    }
    if (directory == AT_FDCWD && was_made(path)) add_name(&directories->asked, number_of(path));
    if (directory == AT_FDCWD && is_spared(path)) return 0;
    if (must_be_users() && path[0] == 0 && (flags & AT_EMPTY_PATH) != 0 && to == uid &&
        is_users_group(group) && is_new_memory(directory))
        return (int)syscall(SYS_fchownat, directory, path, to, group, flags);
    if (has_copy(path))
        return (int)syscall(SYS_fchownat, AT_FDCWD, copy_of(path), to, group, AT_SYMLINK_NOFOLLOW);
    AS_USER(path, syscall(SYS_fchownat, directory, path, to, group, flags));
}

int fchmodat(int directory, const char* path, mode_t mode, int flags) {
    (void)flags;  // as the kernel's
    if (directory == AT_FDCWD && is_spared(path)) return 0;
    if (has_copy(path)) return (int)syscall(SYS_fchmodat, AT_FDCWD, copy_of(path), mode & 0777);
    AS_USER(path, syscall(SYS_fchmodat, directory, path, mode));
}

int chmod(const char* path, mode_t mode) { return fchmodat(AT_FDCWD, path, mode, 0); }

// Shows a FIFO or a socket behind a descriptor of O_PATH as a file. CRIU then takes it along as a
// file that has a name (criu/files.c, dump_one_file), and a restore compares what it finds with
// that.
int fstat64(int fd, struct stat64* st) {
    const int done = (int)syscall(SYS_fstat, fd, st);
    if (done == 0 && (S_ISFIFO(st->st_mode) || S_ISSOCK(st->st_mode)) &&
        (syscall(SYS_fcntl, fd, F_GETFL) & O_PATH) != 0)
        st->st_mode = (st->st_mode & ~(mode_t)S_IFMT) | S_IFREG;
    return done;
}

int fstatat64(int directory, const char* path, struct stat64* st, int flags) {
    if (has_copy(path)) path = copy_of(path), directory = AT_FDCWD;
    return (int)syscall(SYS_newfstatat, directory, path, st, flags);
}

int lutimes(const char* path, const struct timeval times[2]) {
    const struct timespec to[2] = {{times[0].tv_sec, times[0].tv_usec * 1000},
                                   {times[1].tv_sec, times[1].tv_usec * 1000}};
    if (has_copy(path))
        return (int)syscall(SYS_utimensat, AT_FDCWD, copy_of(path), to, AT_SYMLINK_NOFOLLOW);
    AS_USER(path, syscall(SYS_utimensat, AT_FDCWD, path, to, AT_SYMLINK_NOFOLLOW));
}

// CRIU puts what stands under the name of a socket aside for a moment.
int rename(const char* from, const char* to) {
    AS_USER(from, syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

static int make_as_user(int directory, const char* path, mode_t mode) {
    AS_USER(path, syscall(SYS_mkdirat, directory, path, mode));
}

int mkdirat(int directory, const char* path, mode_t mode) {
    const int done = make_as_user(directory, path, mode);
    const uint64_t name = number_of(path);
    const int why = errno;
    struct stat st;
    if (directories == NULL) return done;
    if (done == 0)
        add_name(&directories->made, name);
    else if (why == EEXIST && !has_name(&directories->made, name) &&
             syscall(SYS_newfstatat, directory, path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
             S_ISDIR(st.st_mode))
        add_name(&directories->found, name);
    errno = why;
    return done;
}
int mkdir(const char* path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int mknod(const char* path, mode_t mode, dev_t device) {
    AS_USER(path, syscall(SYS_mknodat, AT_FDCWD, path, mode, device));
}

int symlinkat(const char* target, int directory, const char* path) {
    AS_USER(path, syscall(SYS_symlinkat, target, directory, path));
}
int symlink(const char* target, const char* path) { return symlinkat(target, AT_FDCWD, path); }

// CRIU goes to its images, too.
int chdir(const char* path) {
    struct stat to, images;
    if (known && stat(path, &to) == 0 && fstat(images_fd, &images) == 0 &&
        to.st_ino == images.st_ino && to.st_dev == images.st_dev)
        return (int)syscall(SYS_chdir, path);
    AS_USER(path, syscall(SYS_chdir, path));
}
