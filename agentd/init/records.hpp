// SPDX-License-Identifier: GPL-2.0-or-later
// Files beside the image of a job's processes, one record after another.
#pragma once

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "agentd/init/init.hpp"

namespace souk::init {

// Calls `visit` for each number that names an entry of the directory; stops when it returns false.
template <class Visit>
bool each_number(const char* path, Visit visit) {
    DIR* dir = opendir(path);
    if (!dir) return true;  // the process has just ended
    bool good = true;
    while (struct dirent* entry = good ? readdir(dir) : nullptr)
        if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9') good = visit(atoi(entry->d_name));
    closedir(dir);
    return good;
}

// A file of the image that is made when the first record comes.
struct Records {
    int image_dir;
    const char* name;
    int fd = -1;

    bool add(const void* record, size_t n) {
        if (fd < 0) fd = create_at(image_dir, name, O_TRUNC);
        return fd >= 0 && write_all(fd, record, n);
    }
    ~Records() {
        const int code = errno;
        if (fd >= 0) close(fd);
        errno = code;
    }
};

// descriptors.cpp: of one dump.
struct Descriptors {
    struct Kind {
        int family, type, protocol;
        int fresh;  // a new socket of it
    };
    Records options, notified;
    Kind kinds[16] = {};
    int kind_count = 0;
    int groups = -1;  // how many the devices are in; -1: nobody has looked

    explicit Descriptors(int image_dir);
    ~Descriptors();
    bool save(int pid);  // false: errno
};

}  // namespace souk::init
