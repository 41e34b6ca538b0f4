// SPDX-License-Identifier: GPL-2.0-or-later
// Whose files a job sees, as its home settles it when the job is submitted. Of `auto`: a job whose
// directory lies in one that the home shares with other nodes (shared_files of agentd's
// configuration) sees each node's own, and goes only where these are the same file systems; any
// other sees its home's, on a node with the same file systems straight from there. Pure.
#pragma once

#include "agentd/core/messages.hpp"

namespace souk {

// `said`: the submitter did; `in_shared`: its directory lies in a shared one; `tmp`: as the home is
// configured.
inline void choose_files(JobSpec& spec, bool said, const FilesWish& by_default, bool in_shared,
                         FilesTmp tmp = FilesTmp::home) {
    // An older srun does not say that it says so.
    if (!said && spec.files == FilesMode::local && !spec.files_auto) {
        spec.files = by_default.mode;
        spec.files_auto = by_default.is_auto;
    }
    if (spec.files_auto) spec.files = in_shared ? FilesMode::local : FilesMode::home;
    spec.file_systems.clear();
    const bool home = spec.files == FilesMode::home;
    if (!home && spec.files_auto) spec.local_paths.clear();  // it sees all of the node's
    if (spec.tmp == FilesTmp::own) return;
    const bool as_home = !home || (spec.tmp == FilesTmp::shared && tmp == FilesTmp::own);
    spec.tmp = as_home ? FilesTmp::home : tmp;
}

// A directory of the node that may lie over a home's, by its name: none that is the machine's
// anyway, or is said otherwise (files_tmp).
inline bool may_lie_over(std::string_view path) {
    const auto has = [&](std::string_view word) { return path.find(word) != path.npos; };
    const auto below = [&](std::string_view top) {
        return path.starts_with(top) && (path.size() == top.size() || path[top.size()] == '/');
    };
    if (path.size() < 2 || path[0] != '/' || path.back() == '/' || has("//") || has("/./") ||
        has("/../") || path.ends_with("/.") || path.ends_with("/.."))
        return false;
    for (const std::string_view top : {"/proc", "/sys", "/dev", "/run", "/tmp"})
        if (below(top)) return false;
    return true;
}

// Flags by which a node says what it knows. A node without them would show the job its home's
// directory, or take no snapshots of it, or leave locks of its home's files with the home, and not
// say so.
inline constexpr uint32_t knows_local_paths = 1, knows_files_snapshot = 2, knows_own_tmp = 4,
                          knows_home_locks = 8;

// Why such a node cannot have the job; nothing: it can.
inline Trouble not_known(const JobSpec& spec, uint32_t knows) {
    const bool home = spec.files == FilesMode::home;  // an older one knows `own` of these
    if (!home && spec.tmp == FilesTmp::own && (knows & knows_own_tmp) == 0)
        return because(CauseCode::not_carried_out,
                       {{"text",
                         "this node is of an older version, where a job has no /tmp of its own "
                         "(srun --tmp)"}});
    if (!home) return {};
    if (!spec.local_paths.empty() && (knows & knows_local_paths) == 0)
        return because(CauseCode::path_not_offered, {{"path", spec.local_paths.front()}});
    if (spec.files_snapshot && (knows & knows_files_snapshot) == 0)
        return because(CauseCode::not_carried_out,
                       {{"text",
                         "this node is of an older version, which takes no snapshots of a "
                         "job's files (srun --files-snapshot)"}});
    return {};
}

// The directories that lie over the tree of a job with its home's files.
inline std::vector<std::string> laid_over(const JobSpec& spec) {
    std::vector<std::string> all;
    if (spec.files != FilesMode::home) return all;
    all = spec.local_paths;
    if (spec.tmp != FilesTmp::home) all.emplace_back("/tmp");
    return all;
}

}  // namespace souk
