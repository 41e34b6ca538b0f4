// SPDX-License-Identifier: GPL-2.0-or-later
// Agent: finding again the jobs of this home that the daemon before left.
#include "agentd/daemon/agent.hpp"
#include "agentd/store/records.hpp"
#include "kernel/base/number.hpp"

namespace souk {

Status Agent::recover_home() {
    if (!config_.home.address_known) {
        TRY_ASSIGN(const auto address, state_->db().get("address", "own"));
        if (address) home_.own_address(*address);  // as it was told last
    }
    TRY(state_->read_all("home", [this](const StateDb::Row& row) -> Status {
        TRY_ASSIGN(HomeJob job, wire::unpack<HomeJob>(row.value));
        if (job.id != JobId{config_.node, whole_number<uint64_t>(row.key).value_or(0)})
            return fail("it is of job " + job.id.text());
        TRY(HomeRecords::sound(job));
        home_.load(std::move(job));
        return {};
    }));
    for (const JournalDb::SetAside& a : state_->db().set_aside())
        if (a.kind == "home") home_.set_aside(whole_number<uint64_t>(a.key).value_or(0));
    home_step([](Home& h, home::Outputs& out) { h.restarted(Loop::now(), out); });
    for (const NodeName& node : home_.guests_needed()) {
        const auto peer = home_.peer_of(node);
        if (node != config_.node && peer) peers_->need(*peer);
    }
    // This node as its own guest is always there.
    home_step([&](Home& h, home::Outputs& out) { h.guest_up(config_.node, Loop::now(), out); });
    files_->recovered(home_.jobs());
    snapshots_.recovered(home_.jobs());
    output_files_->recovered(home_.jobs());
    terminals_->recovered(home_.jobs());
    for (const auto& [seq, job] : home_.jobs()) {
        if (job.phase == JobPhase::finished)
            finish_terminals(job.id);
        else
            terminals_->splice(job);
    }
    return {};
}

}  // namespace souk
