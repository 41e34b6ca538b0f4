// SPDX-License-Identifier: GPL-2.0-or-later
// The umask of who makes a file. The kernel where the job runs leaves it to the home
// (FUSE_DONT_MASK), whose kernel puts it aside in a directory that has a default access control
// list. In the stream the mode has always been masked, so that a server that knows nothing of this
// makes no file that others may read; what the umask took off stands in the upper half of `umask`.
#pragma once

#include <linux/fuse.h>
#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernel/sys/host/bytes.hpp"

namespace souk::files {

inline constexpr uint32_t umask_bits = 0777;
inline constexpr uint32_t umask_is_split = 1U << 31;  // in `umask`: what it took off is told, too
inline constexpr uint32_t umask_taken_shift = 16;

// Masks the mode of a request that makes something, in place. Other requests stay as they are, and
// masking a request again changes nothing. Pure.
inline void mask_mode(uint8_t* request, size_t bytes) {
    fuse_in_header head{};
    if (bytes < sizeof head) return;
    std::memcpy(&head, request, sizeof head);
    size_t mode_at = 0, umask_at = 0, least = 0;
    const auto lies = [&](size_t mode, size_t umask, size_t all) {
        mode_at = sizeof head + mode, umask_at = sizeof head + umask, least = sizeof head + all;
    };
    switch (head.opcode) {
        case FUSE_MKNOD:
            lies(offsetof(fuse_mknod_in, mode), offsetof(fuse_mknod_in, umask),
                 sizeof(fuse_mknod_in));
            break;
        case FUSE_MKDIR:
            lies(offsetof(fuse_mkdir_in, mode), offsetof(fuse_mkdir_in, umask),
                 sizeof(fuse_mkdir_in));
            break;
        case FUSE_CREATE:
        case FUSE_TMPFILE:
            lies(offsetof(fuse_create_in, mode), offsetof(fuse_create_in, umask),
                 sizeof(fuse_create_in));
            break;
        default: return;
    }
    if (bytes < least) return;
    uint32_t mode = 0, umask = 0;
    std::memcpy(&mode, request + mode_at, sizeof mode);
    std::memcpy(&umask, request + umask_at, sizeof umask);
    if ((umask & umask_is_split) != 0) return;
    umask &= umask_bits;
    const uint32_t taken = mode & umask;
    mode &= ~umask;
    umask |= umask_is_split | taken << umask_taken_shift;
    std::memcpy(request + mode_at, &mode, sizeof mode);
    std::memcpy(request + umask_at, &umask, sizeof umask);
}

// The mode that the program asked for, with all of 07777 that is left of it.
inline uint32_t mode_asked(uint32_t mode, uint32_t umask) {
    const uint32_t taken =
        (umask & umask_is_split) != 0 ? umask >> umask_taken_shift & umask_bits : 0;
    return (mode | taken) & 07777;
}

// While this lives the process makes files with that umask, and with 0 after it. For a process of
// one thread.
class Umask {
  public:
    explicit Umask(uint32_t umask) { ::umask(umask & umask_bits); }
    Umask(const Umask&) = delete;
    Umask& operator=(const Umask&) = delete;
    ~Umask() { ::umask(0); }
};

}  // namespace souk::files
