// SPDX-License-Identifier: GPL-2.0-or-later
// Market, ninth part: projects (users.hpp). A job that names one is charged to it while its user is
// a member; a job whose user is none waits, or is frozen. See market.hpp.
#include <algorithm>

#include "market/core/market.hpp"

namespace souk::market {

Result<uint32_t> Market::set_member(const std::string& project, std::optional<uint32_t> member,
                                    bool comes, uint32_t uid, Nanos now) {
    heard(Input::set_limits, {}, {}, project);
    if (uid != root_uid)
        return fail(CauseCode::not_allowed, "only root may say who is of a project");
    if (!valid_project_name(project))
        return fail("'" + project + "' is no name of a project: a letter, then letters, digits, " +
                    "'-' and '_', " + "32 at most");
    if (member && is_project(*member)) return fail("a project is no member of another");
    const User* const known = book_.project(project);
    if (!known && !comes) return fail(CauseCode::not_found, "there is no project " + project);
    uint32_t number = project_first;
    if (known)
        number = known->record.uid;
    else
        while (book_.users().contains(number)) ++number;
    if (!is_project(number)) return fail(CauseCode::too_many, "there are too many projects");
    User& user = book_.user(number);
    user.record.name = project;
    std::vector<uint32_t>& members = user.record.members;
    if (member) {
        const bool is_one = user.record.has_member(*member);
        const auto at = std::ranges::lower_bound(members, *member);
        if (!comes && !is_one)
            return fail(CauseCode::not_found,
                        "user " + std::to_string(*member) + " is no member of project " + project);
        if (comes && members.size() >= members_max)
            return fail(CauseCode::too_many, "project " + project + " has " +
                                                 std::to_string(members_max) + " members already");
        if (comes && !is_one) members.insert(at, *member);
        if (!comes) members.erase(at);
    }
    if (options_.metered && !user.funds) open_account(user);
    book_.save_user(number);
    for (auto& [id, job] : book_.jobs()) {
        if (job.phase() == JobPhase::finished || job.record.report.terms.project != project)
            continue;
        choose_payer(job, now);
        touch(job);
    }
    dirty_ = true;
    return number;
}

bool Market::may_look_at(uint32_t account, uint32_t uid) const {
    if (uid == root_uid || account == uid) return true;
    const auto known = book_.users().find(account);
    return known != book_.users().end() && known->second.record.has_member(uid);
}

// A job goes from its user to its project, or from one project to another, and never back: what it
// still runs until it is frozen, when its user has left the project, is the project's.
void Market::choose_payer(Job& job, Nanos now) {
    const uint32_t number = book_.project_for(job.record.report);
    User& before = *job.user;
    if (number == 0 || number == before.record.uid) return;
    User& project = book_.user(number);
    if (job.run_since != Nanos::never()) account_until(job, run_time(job, now), now);
    close_tab(job, now);
    admission_.unlist(job);
    const auto changed = [&](const User& user) {
        days_.changed(user.record.uid);
        admission_.changed(user.record.uid);
    };
    if (before.claiming.erase(job.id()) > 0) {
        before.cpus -= job.claim_cpus;
        project.claiming.insert(job.id());
        project.cpus += job.claim_cpus;
    }
    job.user = &project;
    job.record.payer = number;
    if (options_.metered && !project.funds) open_account(project);
    changed(before);
    changed(project);
    book_.save(job);
    touch(job);
    set_alarm(job);
    notes_.of(job);
}

}  // namespace souk::market
