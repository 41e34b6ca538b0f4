// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/guest_jobs.hpp"

#include <algorithm>
#include <utility>

#include "kernel/base/check.hpp"

namespace souk {

using namespace guest;
using What = Do::What;

namespace {

constexpr size_t failed_of_home_max = 256, failed_max = 4'096;

}  // namespace

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

Entry& GuestJobs::add_failed(const GuestKey& key, Entry e) {
    uncount_failed(key);
    make_room_for_failed(key.id.home);
    failed_[key.id.home].push_back(key);
    ++failed_count_;
    return jobs_.insert_or_assign(key, std::move(e)).first->second;
}

// The home that has the most makes room for others.
void GuestJobs::make_room_for_failed(const NodeName& home) {
    const auto own = failed_.find(home);
    const bool is_own = own != failed_.end() && own->second.size() >= failed_of_home_max;
    if (!is_own && failed_count_ < failed_max) return;
    const auto most =
        std::ranges::max_element(failed_, {}, [](const auto& f) { return f.second.size(); });
    forget((is_own ? own : most)->second.front());
}

void GuestJobs::uncount_failed(const GuestKey& key) {
    const auto of = failed_.find(key.id.home);
    if (of == failed_.end()) return;
    failed_count_ -= std::erase(of->second, key);
    if (of->second.empty()) failed_.erase(of);
}

void GuestJobs::forget(GuestKey key) {
    uncount_failed(key);
    jobs_.erase(key);
}

Entry& GuestJobs::add_anew(const GuestKey& key) {
    uncount_failed(key);
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
    uncount_failed(it->first);
    jobs_.erase(it);
}

void GuestJobs::forget_failed(const NodeName& home) {
    const auto of = failed_.find(home);
    if (of == failed_.end()) return;
    for (const GuestKey& key : of->second) jobs_.erase(key);
    failed_count_ -= of->second.size();
    failed_.erase(of);
}

void GuestJobs::remove_aside(const GuestKey& key, Outputs& out) {
    aside_.erase(key);
    is_going(key);
    out.push_back(Do{What::remove, key, {}, {}, 0, false});
    out.push_back(Erase{key});
}

}  // namespace souk
