// SPDX-License-Identifier: GPL-2.0-or-later
// What a running agentd takes of a new configuration.
#include "agentd/daemon/agent.hpp"

namespace souk {

std::span<const std::string_view> Agent::reloaded() {
    static constexpr std::string_view keys[] = {
        "awake_for_moves",
        "check_ahead",
        "cpu_weight",
        "cpus",
        "disk_mb_per_s",
        "empty_s",
        "files",
        "files_tmp",
        "frames",
        "frames_warning_s",
        "frames_zone",
        "free_cpu_ms",
        "free_memory_s",
        "leave_mb_per_s",
        "local_paths",
        "memory_default_mb",
        "memory_mb",
        "near_group",
        "near_mbit_per_s",
        "near_round_trip_us",
        "on_market",
        "owner_away_s",
        "owner_cpu_percent",
        "owner_free_mb",
        "owner_input",
        "owner_leave_s",
        "owner_network_mb_per_s",
        "owner_pressure_ms",
        "owner_programs",
        "owner_return",
        "owner_sessions",
        "owner_stop_s",
        "owner_wait_ms",
        "owners",
        "pids_max",
        "price",
        "price_curve",
        "share",
        "shared_files",
        "speed",
        "swap_mb",
        "wake",
    };
    return keys;
}

// The offer is made anew, as at a start: what pvdctl has set still holds over it.
Status Agent::reload(const Config& config) {
    TRY_ASSIGN(Provider provider, offer_->made_of(config));
    // The file may say something else now. Which file it is, souk-root knows from its start.
    TRY(guests_->reload_users(config_));
    config_.owners = config.owners;
    config_.files = config.files;
    config_.shared_files = config.shared_files;
    config_.files_tmp = config.files_tmp;
    config_.local_paths = config.local_paths;
    config_.price = config.price;
    config_.speed = config.speed;
    config_.cpus = config.cpus;
    config_.memory_mb = config.memory_mb;
    config_.frames = config.frames;
    config_.frames_zone = config.frames_zone;
    config_.frames_warning = config.frames_warning;
    config_.price_curve = config.price_curve;
    config_.share = config.share;
    config_.on_market = config.on_market;
    config_.cpu_weight = config.cpu_weight;
    config_.pids_max = config.pids_max;
    config_.swap_mb = config.swap_mb;
    config_.disk_mb_per_s = config.disk_mb_per_s;
    config_.home.memory_default_mb = config.home.memory_default_mb;
    config_.home.wake = config.home.wake;
    home_->step([&](Home& h, home::Outputs&) { h.configured(config_.home); });
    config_.leave_mb_per_s = config.leave_mb_per_s;
    config_.owner_free_mb = config.owner_free_mb;
    config_.presence = config.presence;
    config_.owner_cpu_percent = config.owner_cpu_percent;
    config_.owner_wait = config.owner_wait;
    config_.owner_network_mb_per_s = config.owner_network_mb_per_s;
    config_.owner_signs = config.owner_signs;
    config_.promise = config.promise;
    config_.awake_for_moves = config.awake_for_moves;
    config_.check_precopy = config.check_precopy;
    guests_->configured();
    offer_->replace(std::move(provider));
    offer_->step([this](Provider& p, provider::Outputs& out) {
        p.set_here(presence_->is_here(), out);
        p.set_resting(presence_->why_paused(), out);
        p.set_leaving(presence_->why_away(OwnerUse::Rung::leaving), out);
        p.started(offer_->wall_now(), out);
        p.market_up(out);
    });
    offer_->arm();
    presence_->configured();
    return {};
}

}  // namespace souk
