// SPDX-License-Identifier: GPL-2.0-or-later
// CRIU gives the processes of an image what this reads there: the credentials and limits in its
// core-TID.img, the kinds of what they have open, the namespaces that they are in. A restore gives
// them as root, so an image is looked at before CRIU sees it; and one that was just made is
// compared with what the kernel says of the frozen processes, since CRIU reads credentials in
// memory that another process of the same user can write to. Whoever reads the bytes of images
// (core_parse.cpp) has no rights, and is not believed alone: see restored.hpp.
//
// Formats: CRIU images/core.proto, creds.proto, ghost-file.proto, fdinfo.proto, regfile.proto,
// fs.proto, inventory.proto. A field that may stand once and stands twice is refused: CRIU's reader
// and this one might take different ones.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/launch.hpp"
#include "kernel/base/result.hpp"

namespace souk {

// The kernel keeps these for each thread, so there is one of this for each thread of an image.
struct Credentials {
    std::array<uint32_t, 4> uids{}, gids{};  // real, effective, saved, of files
    std::vector<uint32_t> groups;            // sorted
    // inheritable, permitted, effective, bounding, ambient
    std::array<uint64_t, 5> capabilities{};
    bool no_new_privs = false;
    uint32_t seccomp = 0;  // its mode: 0 none, 1 strict, 2 filters
    bool operator==(const Credentials&) const = default;
};

struct CoreImage {
    bool alive = false;  // else a process that has ended and was not waited for
    bool has_credentials = false;
    Credentials credentials;
    bool realtime = false;  // its thread has a real-time policy
    uint32_t priority = 0;  // of that policy
    int32_t nice = 0;
    bool operator==(const CoreImage&) const = default;
};

// The numbers that an image gives the namespaces of a process, or of the CRIU that made it: pid,
// net, mnt, user, cgroup; 0: none. (Of IPC and UTS a job has its own, which a restore makes anew.)
struct ImageNamespaces {
    std::array<uint32_t, 5> ids{};
    bool operator==(const ImageNamespaces&) const = default;
};

// The kinds of the entries of a files.img: bit N for kind N (CRIU images/fdinfo.proto, fd_types).
// Sorted: the numbers of files that are a root directory of jobs: the capsule's, or its home's.
struct EntryKinds {
    uint64_t bits = 0;
    std::vector<uint32_t> roots;
    bool operator==(const EntryKinds&) const = default;
};

// A fs-PID.img names the file that is the root directory of its process. This is the number of that
// file.
struct FsRoot {
    uint32_t file = 0;
    bool operator==(const FsRoot&) const = default;
};

// This is what an image says, as a process without rights has read it (agentd/inspect), because the
// bytes may come from a hostile node.
struct ImageFacts {
    struct Ghost {  // a deleted file
        std::string name;
        uint32_t mode = 0;
        uint64_t bytes = 0;  // of its image, by the file system
    };
    std::map<pid_t, CoreImage> cores;  // by thread, as numbered inside
    std::vector<Ghost> ghosts;
    EntryKinds kinds;
    std::map<std::string, ImageNamespaces> namespaces;  // by the name of that file
    std::map<std::string, FsRoot> roots;                // by the name of that file
};

// Parses a whole core-TID.img. Pure; call it only where there are no rights to lose
// (agentd/inspect).
Result<CoreImage> parse_core(std::string_view image);
// Returns the mode of the deleted file whose ghost-file-N.img begins with these bytes. Pure; call
// it only where there are no rights to lose.
Result<uint32_t> parse_ghost(std::string_view image);
// These take a whole files.img, ids-PID.img, inventory.img or fs-PID.img. Pure; call them only
// where there are no rights to lose.
Result<EntryKinds> parse_entry_kinds(std::string_view image);
Result<ImageNamespaces> parse_ids(std::string_view image);
Result<ImageNamespaces> parse_inventory(std::string_view image);
Result<FsRoot> parse_fs(std::string_view image);
// TID of "core-TID.img".
std::optional<pid_t> core_number(std::string_view name);

// Parses the text of a /proc/PID/task/TID/status. Pure.
Result<Credentials> parse_status(std::string_view status);
// Fails if a job of that user may not have these credentials. A job of root may have any. Pure.
Status fits_user(const CoreImage& core, const CriuUser& user);
// Fails if a deleted file of that mode may not be made: it is a device, or has a set-ID bit. Pure.
Status fits_ghost(uint32_t mode);
// Fails if a plain user cannot have made all that. Such a user makes files, pipes, fifos,
// terminals, sockets other than packet ones, memory and descriptors for events. Pure.
Status fits_kinds(const EntryKinds& kinds);

// Fails if the job could not have set its priority itself within the limits of this node
// (RLIMIT_RTPRIO, RLIMIT_NICE; a limit that is not there allows any). Pure.
Status fits_limits(const CoreImage& core, const std::map<int, uint64_t>& limits_max);
// Checks an image before CRIU sees it: its credentials, priorities, deleted files and kinds, and
// that all processes are in the namespaces in which CRIU was and have a root directory of jobs.
// deleted_bytes_max is that of CriuTool, limits_max the `limits` of RestoredJob. Pure.
Status check_credentials(const ImageFacts& image, const CriuUser& user, uint64_t deleted_bytes_max,
                         const std::map<int, uint64_t>& limits_max);
// Fails if the kernel says otherwise of the frozen processes. `pids` as of pids_inside.
Status compare_credentials(const ImageFacts& image, const std::map<pid_t, pid_t>& pids);

}  // namespace souk
