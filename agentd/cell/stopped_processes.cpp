// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/cell/stopped_processes.hpp"

#include <algorithm>
#include <utility>

#include "agentd/core/files_choice.hpp"
#include "checkpoint/expected_files.hpp"
#include "checkpoint/frozen_memory.hpp"

namespace souk {

LookAt StoppedProcesses::looker() const {
    return [this](const PidsInside& pids, const LookFor& what) {
        std::vector<pid_t> inside;
        for (const auto& [number, here] : pids) inside.push_back(number);
        return site_.reach.look(capsule_->pidfd(), inside, what);
    };
}

// CRIU's code in a process adds mappings to it, and memory that is not there is none.
LookAt StoppedProcesses::looker_at_dump() const {
    return [this](const PidsInside& pids, const LookFor& what) -> Result<std::vector<SeenProcess>> {
        std::vector<SeenProcess> all;
        for (const auto& [inside, here] : pids) {
            const auto known = std::ranges::find(taken_.look, inside, &SeenProcess::pid);
            const auto stands = stopped_.find(inside);
            if (known == taken_.look.end() || stands == stopped_.end() || stands->second != here)
                break;
            all.push_back(*known);
        }
        if (all.size() == pids.size()) return all;
        return looker()(pids, what);
    };
}

std::vector<Fd> StoppedProcesses::open(const std::vector<pid_t>& pids, ProcessFile file) const {
    const auto& known = file == ProcessFile::page_map ? taken_.page_maps : taken_.memories;
    std::vector<Fd> all;
    for (const pid_t pid : pids) {
        const auto at =
            static_cast<size_t>(std::ranges::find(taken_.pids, pid) - taken_.pids.begin());
        if (at >= known.size() || !known[at]) break;
        if (auto copy = duplicate(known[at].get())) all.push_back(std::move(*copy));
    }
    return all.size() == pids.size() ? std::move(all) : site_.reach.open(pids, file);
}

OpenProcessFiles StoppedProcesses::opener() const {
    return [this](const std::vector<pid_t>& pids, ProcessFile file) { return open(pids, file); };
}

const std::string& StoppedProcesses::expect_files() {
    expected_.clear();
    if (job_.spec.files != FilesMode::home || !groups_.there()) return expected_;
    if (const auto all = groups_.pids()) expected_ = expected_files(pids_inside(*all), looker());
    return expected_;
}

// CRIU's own code in the job is in a file without a name, which a look leaves out. CRIU's log is
// left out when it is closed.
void StoppedProcesses::take(bool live) {
    files_.reset();
    taken_ = {};
    if (!groups_.there()) return;  // without control groups the job's processes are not known
    const auto all = groups_.pids();
    if (!all) return;  // that is told when the dump is held
    stopped_ = pids_inside(*all);
    if (live) {
        taken_.page_maps = site_.reach.open(*all, ProcessFile::page_map);
        taken_.memories = site_.reach.open(*all, ProcessFile::memory);
        taken_.pids = *all;
    }
    auto look = looker()(stopped_, {.states = true, .mapped = true, .maps = live});
    if (!look) return;
    if (auto files = open_files_in(*look, stopped_, laid_over(job_.spec)))
        files_ = std::move(*files);
    if (live) taken_.look = std::move(*look);
}

Status StoppedProcesses::save(int image, const ImageFacts& facts) {
    // Without control groups it is not known which files are the job's.
    if (!groups_.there()) return save_open_files(image, {});
    const bool forgeable = job_.spec.launch.uid != 0;
    PidsInside inside;
    if (forgeable || !files_) {
        TRY_ASSIGN(const auto all, groups_.pids());
        inside = pids_inside(all);
    }
    if (forgeable) {
        TRY(compare_credentials(facts, inside));
        TRY(fits_kinds(facts.kinds));  // else no node would restore it
    }
    if (files_) {
        TRY(leave_out_closed(*files_, stopped_, looker()));
    } else {
        TRY_ASSIGN(files_, open_files_of(inside, laid_over(job_.spec), looker()));
    }
    save_expected_files(image, expected_);
    return save_open_files(image, *std::exchange(files_, std::nullopt));
}

Status StoppedProcesses::nobody_is_shut_in() const {
    if (!site_.shut_in || !groups_.there()) return {};
    const auto all = groups_.pids();
    const auto shut_in = site_.shut_in();
    if (!all || !shut_in || shut_in->empty()) return {};
    for (const auto& [inside, here] : pids_inside(*all))
        if (shut_in->contains(here))
            return fail_because(CauseCode::dump_refused,
                                {{"text", "cannot move: process " + std::to_string(inside) +
                                              " has shut itself in with Landlock, which would be "
                                              "open elsewhere"}});
    return {};
}

void StoppedProcesses::memory_is_known() {
    taken_.page_maps.clear();
    taken_.look.clear();
}

}  // namespace souk
