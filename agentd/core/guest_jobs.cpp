// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/guest_jobs.hpp"

#include <utility>

#include "kernel/base/check.hpp"

namespace souk {

using namespace guest;
using What = Do::What;

Entry* GuestJobs::find(const GuestKey& key) {
    const auto it = jobs_.find(key);
    return it == jobs_.end() ? nullptr : &it->second;
}

const Entry* GuestJobs::find(const GuestKey& key) const {
    const auto it = jobs_.find(key);
    return it == jobs_.end() ? nullptr : &it->second;
}

Entry& GuestJobs::add(const GuestKey& key, Entry e) {
    return jobs_.emplace(key, std::move(e)).first->second;
}

Entry& GuestJobs::add_anew(const GuestKey& key) {
    return jobs_.insert_or_assign(key, Entry{}).first->second;
}

void GuestJobs::remove(const Entry& e, Outputs& out) {
    e.effect(What::remove, out);
    out.push_back(Erase{e.job.key});
    is_going(e.job.key);
}

void GuestJobs::erase(const GuestKey& key, Outputs& out) {
    const auto it = jobs_.find(key);
    MUST(it != jobs_.end());
    remove(it->second, out);
    jobs_.erase(it);
}

void GuestJobs::forget_failed(const NodeName& home) {
    std::erase_if(jobs_, [&](const auto& j) {
        return j.first.id.home == home && std::holds_alternative<state::Failed>(j.second.state);
    });
}

void GuestJobs::remove_aside(const GuestKey& key, Outputs& out) {
    aside_.erase(key);
    is_going(key);
    out.push_back(Do{What::remove, key, {}, {}, 0, false});
    out.push_back(Erase{key});
}

}  // namespace souk
