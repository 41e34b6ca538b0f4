// SPDX-License-Identifier: GPL-2.0-or-later
// The private /dev/shm and /run, and a private /tmp, to and from a file each: CRIU takes what is
// open or mapped there as files that exist on both sides. Format: records {ShmEntry, name, then for
// a file pieces {offset, length, bytes} ended by a piece of length 0}; a directory's entries follow
// it and end with kind 0. Holes stay holes, and a file with several names is one file: CRIU gives
// one whose first name is gone, as that of sem_open(3) is, another one for the time of its dump.
// Sockets are left to CRIU. Nothing that is mounted in one of them goes along.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agentd/init/init.hpp"

namespace souk::init {
namespace {
struct ShmEntry {
    uint32_t kind;  // 0 end of directory, else S_IFREG, S_IFDIR, S_IFLNK, S_IFIFO, or another_name
    uint32_t mode, uid, gid;
    uint64_t size;  // of a link, or another name: length of its target, which follows the name
    int64_t mtime_s, mtime_ns;
    uint32_t name_len, pad;
};
struct ShmPiece {
    uint64_t offset, length;
};
constexpr int depth_max = 64;
constexpr uint32_t another_name = 1;  // its target is the first one, below the top directory
constexpr size_t target_max = 4096, path_max = (depth_max + 1) * 256;

// A file that has several names, and the first of them.
struct Named {
    ino_t inode;
    char path[];
};

int by_inode(const void* a, const void* b) {
    const ino_t one = static_cast<const Named*>(a)->inode,
                other = static_cast<const Named*>(b)->inode;
    return one < other ? -1 : one > other;
}

struct Names {
    dev_t device = 0;  // of the top directory
    bool of_run = false;
    void* known = nullptr;  // tsearch(3)
    char path[path_max] = {};
    size_t length = 0;  // of the directory's

    // Returns the first name of the file if it has come before, "" if this is the first; null:
    // errno.
    const char* first_of(ino_t inode, const char* name) {
        const size_t bytes = sizeof(Named) + length + strlen(name) + 1;
        auto* const one = static_cast<Named*>(malloc(bytes));
        if (!one) return nullptr;
        one->inode = inode;
        memcpy(one->path, path, length);
        memcpy(one->path + length, name, strlen(name) + 1);
        Named** const found = static_cast<Named**>(tsearch(one, &known, by_inode));
        if (!found) return free(one), nullptr;
        if (*found == one) return "";
        free(one);
        if (strlen((*found)->path) >= target_max) return errno = ENAMETOOLONG, nullptr;
        return (*found)->path;
    }
    void enter(const char* name) {
        const size_t n = strlen(name);
        memcpy(path + length, name, n);
        path[length + n] = '/';
        length += n + 1;
    }
    ~Names() {
        while (known) {
            Named* const one = *static_cast<Named**>(known);
            tdelete(one, &known, by_inode);
            free(one);
        }
    }
};

bool copy_bytes(int out, int in, off_t* in_offset, uint64_t n) {
    while (n > 0) {
        const ssize_t done =
            sendfile(out, in, in_offset, n > (64 << 20) ? (64 << 20) : static_cast<size_t>(n));
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) {
            if (done == 0) errno = EIO;
            return false;
        }
        n -= static_cast<uint64_t>(done);
    }
    return true;
}

bool save_pieces(int out, int file, off_t size) {
    ShmPiece piece = {};
    for (off_t at = 0; at < size;) {
        const off_t data = lseek(file, at, SEEK_DATA);
        if (data < 0) {
            if (errno == ENXIO) break;  // a hole up to the end
            return false;
        }
        const off_t hole = lseek(file, data, SEEK_HOLE);
        if (hole < 0) return false;
        piece = {static_cast<uint64_t>(data), static_cast<uint64_t>(hole - data)};
        off_t from = data;
        if (!write_all(out, &piece, sizeof piece) || !copy_bytes(out, file, &from, piece.length))
            return false;
        at = hole;
    }
    piece = {};
    return write_all(out, &piece, sizeof piece);
}

bool save_dir(int out, int dir_fd, int depth, Names* names, bool* any);

// Each capsule has these below its /run: of souk-init (setup.cpp), and of CRIU, also of a restore
// before. The home's tree is not even asked what it is: its home may not answer.
bool is_of_capsule(const char* name, const Names& names) {
    if (!names.of_run || names.length > 0) return false;
    return strcmp(name, "criu.kdat") == 0 || strncmp(name, "souk-", 5) == 0 ||
           strncmp(name, "souk.", 5) == 0;
}

// A /run without more than such directories need not go along.
bool is_in_each_run(const char* name, const Names& names) {
    if (!names.of_run) return false;
    if (names.length == 5) return memcmp(names.path, "user/", 5) == 0;
    return names.length == 0 &&
           (strcmp(name, "lock") == 0 || strcmp(name, "user") == 0 || strcmp(name, "systemd") == 0);
}

bool save_entry(int out, int dir, const char* name, int depth, Names* names, bool* any) {
    struct stat st;
    if (is_of_capsule(name, *names)) return true;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0) return false;
    if (st.st_dev != names->device) return true;
    const uint32_t kind = st.st_mode & S_IFMT;
    if (kind != S_IFREG && kind != S_IFDIR && kind != S_IFLNK && kind != S_IFIFO) return true;
    char target[target_max];
    ssize_t target_len = 0;
    if (kind == S_IFLNK && (target_len = readlinkat(dir, name, target, sizeof target)) < 0)
        return false;
    ShmEntry e = {};
    e.kind = kind;
    e.mode = st.st_mode & 07777;
    e.uid = st.st_uid;
    e.gid = st.st_gid;
    e.size =
        kind == S_IFLNK ? static_cast<uint64_t>(target_len) : static_cast<uint64_t>(st.st_size);
    e.mtime_s = st.st_mtim.tv_sec;
    e.mtime_ns = st.st_mtim.tv_nsec;
    e.name_len = static_cast<uint32_t>(strlen(name));
    if (kind != S_IFDIR || !is_in_each_run(name, *names)) *any = true;
    if (kind != S_IFDIR && st.st_nlink > 1) {
        const char* const first = names->first_of(st.st_ino, name);
        if (!first) return false;
        e.size = strlen(first);
        if (*first) {
            e.kind = another_name;
            return write_all(out, &e, sizeof e) && write_all(out, name, e.name_len) &&
                   write_all(out, first, e.size);
        }
        e.size =
            kind == S_IFLNK ? static_cast<uint64_t>(target_len) : static_cast<uint64_t>(st.st_size);
    }
    if (!write_all(out, &e, sizeof e) || !write_all(out, name, e.name_len)) return false;
    if (kind == S_IFLNK) return write_all(out, target, static_cast<size_t>(target_len));
    if (kind == S_IFIFO) return true;
    const int fd =
        openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | (kind == S_IFDIR ? O_DIRECTORY : 0));
    if (fd < 0) return false;
    if (kind == S_IFDIR) {
        const size_t before = names->length;
        names->enter(name);
        const bool saved = save_dir(out, fd, depth + 1, names, any);
        names->length = before;
        return saved;
    }
    const bool good = save_pieces(out, fd, st.st_size);
    close(fd);
    return good;
}

// Closes `dir_fd`.
bool save_dir(int out, int dir_fd, int depth, Names* names, bool* any) {
    DIR* dir = depth < depth_max ? fdopendir(dir_fd) : nullptr;
    if (!dir) {
        close(dir_fd);
        errno = ELOOP;
        return false;
    }
    bool good = true;
    while (struct dirent* entry = good ? readdir(dir) : nullptr) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        good = save_entry(out, dirfd(dir), entry->d_name, depth, names, any);
    }
    closedir(dir);
    const ShmEntry end = {};
    return good && write_all(out, &end, sizeof end);
}

bool load_pieces(int in, int file, uint64_t size) {
    if (ftruncate(file, static_cast<off_t>(size)) != 0) return false;
    for (;;) {
        ShmPiece piece;
        if (!read_all(in, &piece, sizeof piece)) return false;
        if (piece.length == 0) return true;
        if (piece.offset > size || piece.length > size - piece.offset) return errno = EINVAL, false;
        if (lseek(file, static_cast<off_t>(piece.offset), SEEK_SET) < 0 ||
            !copy_bytes(file, in, nullptr, piece.length))
            return false;
    }
}

bool load_dir(int in, int top, int dir, int depth);

bool load_entry(int in, int top, int dir, const ShmEntry& e, int depth) {
    char name[256] = {}, target[target_max + 1] = {};
    errno = EINVAL;
    if (e.name_len == 0 || e.name_len > 255 || !read_all(in, name, e.name_len)) return false;
    errno = EINVAL;
    if (strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) return false;
    bool good = false;
    int fd = -1;
    if (e.kind == another_name)
        return e.size < sizeof target && read_all(in, target, e.size) &&
               linkat(top, target, dir, name, 0) == 0;
    if (e.kind == S_IFLNK) {
        good = e.size < sizeof target && read_all(in, target, e.size) &&
               symlinkat(target, dir, name) == 0;
    } else if (e.kind == S_IFIFO) {
        good = mkfifoat(dir, name, 0600) == 0;
    } else if (e.kind == S_IFDIR) {
        // Some of /run is there already.
        good = depth < depth_max && (mkdirat(dir, name, 0700) == 0 || errno == EEXIST) &&
               (fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) >= 0 &&
               load_dir(in, top, fd, depth + 1);
    } else if (e.kind == S_IFREG) {
        fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        good = fd >= 0 && load_pieces(in, fd, e.size);
    }
    if (fd >= 0) close(fd);
    if (!good || fchownat(dir, name, e.uid, e.gid, AT_SYMLINK_NOFOLLOW) != 0) return false;
    if (e.kind != S_IFLNK && fchmodat(dir, name, e.mode, 0) != 0) return false;
    const struct timespec times[2] = {{0, UTIME_OMIT}, {e.mtime_s, e.mtime_ns}};
    return utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW) == 0;
}

bool load_dir(int in, int top, int dir, int depth) {
    for (;;) {
        ShmEntry e;
        if (!read_all(in, &e, sizeof e)) return false;
        if (e.kind == 0) return true;
        if (!load_entry(in, top, dir, e, depth)) return false;
    }
}

// `always`: also an empty one, which says that it is private.
bool save_tree(int image_dir, const char* path, const char* name, bool always) {
    const int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) return false;
    const int out = create_at(image_dir, name, O_TRUNC);
    if (out < 0) {
        close(dir);
        return false;
    }
    bool any = false;
    struct stat st;
    Names names;
    names.of_run = strcmp(path, "/run") == 0;
    if (fstat(dir, &st) != 0) return false;
    names.device = st.st_dev;
    const bool good = save_dir(out, dir, 0, &names, &any);
    const int code = errno;
    close(out);
    if ((!any && !always) || !good) unlinkat(image_dir, name, 0);
    errno = code;
    return good;
}

bool load_tree(int in, const char* path) {
    const int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool good = dir >= 0 && load_dir(in, dir, dir, 0);
    const int code = errno;
    close(in);
    if (dir >= 0) close(dir);
    errno = code;
    return good;
}
// Returns false, with the reason in errno, if there is a copy that cannot be loaded.
bool load_copy(int image_dir, const char* path, const char* name) {
    const int copy = openat(image_dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return copy < 0 ? errno == ENOENT : load_tree(copy, path);
}
}  // namespace

const char* shm_save(int image_dir) {
    if (!save_tree(image_dir, "/dev/shm", SOUK_SHM_NAME, false)) return "copy /dev/shm";
    if (g.own_run && !save_tree(image_dir, "/run", SOUK_RUN_NAME, false)) return "copy /run";
    if (g.private_tmp && !save_tree(image_dir, "/tmp", SOUK_TMP_NAME, true)) return "copy /tmp";
    return nullptr;
}

const char* shm_load(int image_dir) {
    if (!load_copy(image_dir, "/dev/shm", SOUK_SHM_NAME)) return "fill /dev/shm";
    if (!load_copy(image_dir, "/run", SOUK_RUN_NAME)) return "fill /run";
    if (faccessat(image_dir, SOUK_TMP_NAME, F_OK, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? nullptr : "open the copy of /tmp";
    if (!g.private_tmp)
        if (const char* failed = mount_tmp()) return failed;
    note_mounts();
    return load_copy(image_dir, "/tmp", SOUK_TMP_NAME) ? nullptr : "fill /tmp";
}

}  // namespace souk::init
