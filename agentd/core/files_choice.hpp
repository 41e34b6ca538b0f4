// SPDX-License-Identifier: GPL-2.0-or-later
// Whose files a job sees, as its home settles it when the job is submitted. Of `auto`: a job whose
// directory lies in one that the home shares with other nodes (shared_files of agentd's
// configuration) sees each node's own, and goes only where these are the same file systems; any
// other sees its home's, on a node with the same file systems straight from there. Pure.
#pragma once

#include "agentd/core/messages.hpp"

namespace souk {

// `said`: the submitter did; `in_shared`: its directory lies in a shared one.
inline void choose_files(JobSpec& spec, bool said, const FilesWish& by_default, bool in_shared) {
    // An older srun does not say that it says so.
    if (!said && spec.files == FilesMode::local && !spec.files_auto) {
        spec.files = by_default.mode;
        spec.files_auto = by_default.is_auto;
    }
    if (spec.files_auto) spec.files = in_shared ? FilesMode::local : FilesMode::home;
    spec.file_systems.clear();
}

}  // namespace souk
