// SPDX-License-Identifier: GPL-2.0-or-later
// Files of a job that other machines see too (NFS and the like). What a job has written to them may
// still lie in this machine's memory; the kernel sends it on a close or an fsync. A job that is
// stopped here and goes on elsewhere does neither, so who moves it must, before the other copy
// reads.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/net/tcp_repair.hpp"

namespace souk {

// This tells how safe a job's writes are: with the machine that serves its files, or on that
// machine's disk as well.
enum class AtHome : uint8_t { written, synced };

// Tells from the kernel's name of a file system's type whether other machines serve it. A FUSE file
// system may be served so, so it counts. Pure.
bool is_network_filesystem(std::string_view type);
// Tells whether other machines see the locks of such a file system as well. The locks of most FUSE
// file systems belong to the mount.
bool is_locked_by_server(std::string_view type);
// Returns the devices of such mounts, from the text of a /proc/PID/mountinfo. Pure.
std::set<dev_t> network_devices(const std::string& mountinfo,
                                bool (*is_network)(std::string_view) = is_network_filesystem);
using FileKeys = std::set<std::pair<dev_t, uint64_t>>;  // device and inode
// Copies the descriptors that these processes (numbers as seen here) have open for writing on those
// devices. Asks no file server. `among`: copies only those of these files; null: all. `take` copies
// one of a process's descriptors.
std::vector<Fd> written_files(
    const std::vector<pid_t>& pids, const std::set<dev_t>& devices, const FileKeys* among = nullptr,
    const std::function<Result<Fd>(const Pidfd&, int)>& take = take_descriptor);

// Files on those devices that these processes have mapped shared: what they have written there the
// kernel may hold, whatever was synced.
FileKeys shared_mappings(const std::vector<pid_t>& pids, const std::set<dev_t>& devices);
// Adds the files that the text of a /proc/PID/maps names. Pure.
void add_shared_mappings(const std::string& maps, const std::set<dev_t>& devices, FileKeys& to);

// Tells souk-files sync, a process of its own, which of them to sync, as text. Pure.
struct SyncWords {
    std::set<dev_t> devices;
    std::vector<pid_t> pids;
    bool mapped_alone = false;  // what of them is mapped: all else is synced
};
std::string sync_words(const SyncWords& words);
Result<SyncWords> parse_sync_words(std::string_view text);

}  // namespace souk
