// SPDX-License-Identifier: GPL-2.0-or-later
// Lists the files of a job: what each process has open, mapped and runs, and its directories, as
// the kernel identifies them. The list is taken while a dump has stopped the job, and compared
// while a restore is held, before anything of the job runs: CRIU opens files by their names, and
// somebody may have put another file there.
//
// These must be the same:
//   on one kernel     device and inode, where the file system keeps inode numbers; else the path
//   on another        device means nothing there. On a network file system of the same server the
//                     inode; else nothing (criu_user.c: the job's user could open the file)
//   in the capsule's own file systems (/dev/shm)   that it is in one of them
//   a file of the job's home (srun --files=home)   the path, and the inode at home; of a directory
//                     of the node that lies over the home's tree, as any other of the node; of what
//                     its home has put back (srun --files-snapshot) the path
//   a device          its number
//   what the capsule lays over files of the kernel (/proc/cpuinfo)   nothing
// Deleted files come from the image; pipes, sockets and the files of /proc are of the capsule.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/result.hpp"
#include "kernel/sys/process/process_files.hpp"

namespace souk {

inline constexpr const char* open_files_name = "souk-files";
inline constexpr const char* put_back_name = "souk-put-back";

struct OpenFile {
    pid_t pid = 0;      // inside
    std::string place;  // "fd 3", "exe", "cwd", "root"; of a mapping "map"
    std::string path;
    std::string type, source;  // of its file system
    uint64_t device = 0, inode = 0, rdev = 0;
    uint32_t kind = 0;      // S_IFMT of its mode
    bool capsules = false;  // its file system is in no other mount namespace than the job's
    bool operator==(const OpenFile&) const = default;
};

// All files of one look, and the kernel where it was: files of two can be compared.
struct OpenFiles {
    std::string boot;  // of the kernel: boot_id
    std::vector<OpenFile> files;

    std::string encode() const;
    static Result<OpenFiles> decode(std::string_view text);
};

// Makes the list from a look with `states` and `mapped`; `with_deleted`: also of files without a
// name. `laid` names directories of the node that
// lie over a home's tree. The list has no files that the comparison leaves out. Making it asks no
// file server.
Result<OpenFiles> open_files_in(const std::vector<SeenProcess>& look, const PidsInside& pids,
                                const std::vector<std::string>& laid, bool with_deleted = false);
Result<OpenFiles> open_files_of(const PidsInside& pids, const std::vector<std::string>& laid = {},
                                const LookAt& look = look_from_here, bool with_deleted = false);
// Takes files off the list that are closed by now. While CRIU dumps, its code in a process has its
// log open there, under a number that was free; it is closed when the dump is held. A file that is
// still open is the job's. `pids` as they were at the look.
Status leave_out_closed(OpenFiles& files, const PidsInside& pids,
                        const LookAt& look = look_from_here);
// Fails unless each file of the dump is the same after the restore, and no other is mapped. The
// error names the file, and what it was and is. `put_back` is the directory below which files of
// the home are as they were, whichever inodes they have; empty: none. Pure.
Status same_files(const OpenFiles& dumped, const OpenFiles& restored,
                  const std::string& put_back = {});

// The list lies in an image. An image without a list is refused: each has one, be it the empty list
// of a node that does not know which processes are the job's. Those of `pids` are looked at that
// the image names, because CRIU is among them, and has many files of its own.
Status save_open_files(int image, const OpenFiles& files);
// A checkpoint goes with a snapshot of that directory of the home, which is put back before a thaw.
Status save_put_back(int image, const std::string& directory);
Status check_open_files(int image, PidsInside pids, const std::vector<std::string>& laid = {},
                        const LookAt& look = look_from_here);

}  // namespace souk
