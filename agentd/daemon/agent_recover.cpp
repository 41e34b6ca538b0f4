// SPDX-License-Identifier: GPL-2.0-or-later
// Agent: finding again what the daemon before left, and removing what nobody knows.
#include <algorithm>
#include <filesystem>

#include "agentd/daemon/agent.hpp"
#include "agentd/store/records.hpp"
#include "kernel/base/number.hpp"

namespace souk {
namespace {

constexpr Nanos group_limit = Nanos::from_s(2);

}  // namespace

Status Agent::recover_home() {
    if (!config_.home.address_known) {
        TRY_ASSIGN(const auto address, state_->db().get("address", "own"));
        if (address) home_.own_address(*address);  // as it was told last
    }
    TRY_ASSIGN(const auto stored, state_->db().db().load("home"));
    for (const auto& row : stored) {
        auto job = wire::unpack<HomeJob>(row.value);
        if (!job) return wrap("state of job " + row.key, job.error());
        home_.load(std::move(*job));
    }
    home_step([](Home& h, home::Outputs& out) { h.restarted(Loop::now(), out); });
    for (const NodeName& node : home_.guests_needed()) {
        const auto peer = home_.peer_of(node);
        if (node != config_.node && peer) peers_->need(*peer);
    }
    // This node as its own guest is always there.
    home_step([&](Home& h, home::Outputs& out) { h.guest_up(config_.node, Loop::now(), out); });
    for (const auto& [seq, job] : home_.jobs()) {
        if (job.phase == JobPhase::finished)
            finish_terminals(job.id);
        else
            terminals_->splice(job);
    }
    return {};
}

Status Agent::recover_guests() {
    TRY_ASSIGN(const auto stored, state_->db().db().load("guest"));
    std::set<std::string> known;
    for (const auto& row : stored) {
        auto job = wire::unpack<GuestJob>(row.value);
        if (!job) return wrap("state of guest " + row.key, job.error());
        known.insert(job->key.text());
        auto& c = cells_[job->key] = std::make_unique<Cell>(site_, *job);
        const Guest::Found found = c->adopt();
        log_.info("found", {{"JOB", job->key.id.text()},
                            {"EPOCH", job->key.epoch.n},
                            {"capsule", found.capsule_alive ? "alive" : "gone"},
                            {"job", found.exited           ? "exited"
                                    : found.job_alive      ? "alive"
                                    : found.image_complete ? "frozen"
                                                           : "gone"}});
        guest_step([&](Guest& g, guest::Outputs& out) { g.recovered(*job, found, out); });
    }
    TRY(remove_strays(std::move(known)));
    remove_old_groups();
    return {};
}

// What was made before its record was, or removed after it: nobody knows it.
Status Agent::remove_strays(std::set<std::string> known) {
    for (const char* base : {"/guests", "/images", "/ram"}) {
        TRY_ASSIGN(const auto names, list_dir(AT_FDCWD, config_.state + base));
        for (std::string name : names) {
            if (name.ends_with(".part")) name.resize(name.size() - 5);
            if (known.contains(name)) continue;
            const size_t dot = name.rfind('.');
            const auto id = dot == std::string::npos ? Result<JobId>(fail(""))
                                                     : parse_job_id(name.substr(0, dot));
            if (!id) {
                std::error_code ignored;
                std::filesystem::remove_all(config_.state + base + "/" + name, ignored);
                continue;
            }
            GuestJob stray;
            const auto epoch = leading_number<uint64_t>(std::string_view(name).substr(dot + 1));
            stray.key = {*id, Epoch{epoch.value_or(0)}};
            // what it may have is not known: it is looked for in every hierarchy of a limit
            stray.memory_mb = 1;
            auto& c = cells_[stray.key] = std::make_unique<Cell>(site_, stray);
            (void)c->adopt();
            guest_.stray(stray.key);
            c->remove();
            known.insert(name);
        }
    }
    return {};
}

// Groups of capsules that ended while nobody looked.
void Agent::remove_old_groups() {
    if (!share_) return;
    std::vector<std::string> in_use;
    for (const auto& [key, c] : cells_)
        if (c->has_capsule()) in_use.push_back(c->cgroup_name());
    if (auto removed = share_->capsules().remove_others(in_use, group_limit); !removed)
        log_.warning("cannot remove a control group", {{"WHY", removed.error()}});
}

}  // namespace souk
