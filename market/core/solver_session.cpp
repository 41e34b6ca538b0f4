// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/solver_session.hpp"

namespace souk::market {

namespace {
template <class... F>
struct Visitor : F... {
    using F::operator()...;
};
template <class... F>
Visitor(F...) -> Visitor<F...>;

std::string id_text(uint64_t n) { return std::to_string(n); }
}  // namespace

Status SolverSession::known(JobKey id) const {
    if (!jobs_.contains(id)) return fail("no job " + id_text(id.n));
    return {};
}

Status SolverSession::known(ProviderKey id) const {
    if (!providers_.contains(id)) return fail("no provider " + id_text(id.n));
    return {};
}

void SolverSession::list_jobs(std::string& out) const {
    for (const auto& [id, user] : jobs_) {
        const JobDemand j = *solver_.job(id);
        const auto going = under_way_.find(id);
        std::string state = j.state == JobState::waiting   ? "waiting"
                            : j.state == JobState::running ? "running"
                                                           : "frozen";
        if (going != under_way_.end() && going->second != ChangeKind::start)
            state = going->second == ChangeKind::freeze ? "freezing"
                    : going->second == ChangeKind::thaw ? "thawing"
                                                        : "moving";
        out += id_text(id.n) + " " + std::to_string(user) + " " + state + " " +
               format_money(j.value) + " " + std::to_string(j.memory_mb) + " " +
               std::to_string(j.cpus) + " " +
               id_text(j.state == JobState::running ? j.place.n : 0) + "\n";
    }
}

void SolverSession::list_providers(std::string& out) const {
    for (const auto& [id, start] : providers_) {
        const ProviderSpec p = *solver_.provider(id);
        out += id_text(id.n) + " " + format_money(p.reserve) + " " + std::to_string(p.memory_mb) +
               " " + std::to_string(p.cpus) + " " + std::to_string(p.speed);
        for (const JobKey job : solver_.guests(id)) out += " " + id_text(job.n);
        out += "\n";
    }
}

namespace {
// A single job and a component say these alike: `terms` of the bid, `size` of what it needs.
template <class Terms, class Size>
JobDemand spec_of(const Terms& terms, const Size& size) {
    JobDemand s;
    s.value = terms.value;
    s.memory_mb = size.memory_mb;
    s.cpus = size.cpus;
    s.user = terms.user;
    s.arrival = Nanos::from_s(terms.start_s);
    return s;
}
}  // namespace

Status SolverSession::add_gang(const command::AddGang& a) {
    std::vector<JobDemand> components;
    size_t required = 0;
    for (const command::AddGang::Part& part : a.parts) {
        components.insert(components.end(), static_cast<size_t>(part.count), spec_of(a, part));
        for (size_t i = components.size() - static_cast<size_t>(part.count); i < components.size();
             ++i)
            components[i].only = part.only;
        if (!part.optional) required = components.size();
    }
    TRY(solver_.add_gang(a.id, components, required, a.layout));
    for (size_t i = 0; i < components.size(); ++i) jobs_[{a.id.n + i}] = a.user;
    return {};
}

// Long: one case for each command of the protocol.
Status SolverSession::carry_out(const Command& command, std::string& out) {
    using namespace command;
    const Visitor visitor{
        [&](const Info&) -> Status {
            out += "solver " + solver_.options().algorithm + " jobs " +
                   std::to_string(solver_.jobs()) + " providers " +
                   std::to_string(solver_.providers()) + " time " + std::to_string(time_s_) + "\n";
            return {};
        },
        [&](const AddJob& a) -> Status {
            if (!solver_.add_job(a.id, spec_of(a, a)))
                return fail("job " + id_text(a.id.n) +
                            (jobs_.contains(a.id) ? " is there already"
                                                  : ": the number is that of a component"));
            jobs_[a.id] = a.user;
            return {};
        },
        [&](const AddGang& a) -> Status { return add_gang(a); },
        [&](const DeleteJob& c) -> Status {
            TRY(known(c.id));
            solver_.remove_job(c.id);
            jobs_.erase(c.id);
            pending_.erase(c.id);
            under_way_.erase(c.id);
            return {};
        },
        [&](const UpdateJob& c) -> Status {
            TRY(known(c.id));
            solver_.change_value(c.id, c.value);
            return {};
        },
        [&](const MoveDone& c) -> Status {
            TRY(known(c.id));
            const auto going = under_way_.find(c.id);
            if (going == under_way_.end() || going->second == ChangeKind::freeze)
                return fail("job " + id_text(c.id.n) + " is not on its way anywhere");
            under_way_.erase(going);
            return {};
        },
        [&](const FreezeDone& c) -> Status {
            TRY(known(c.id));
            const auto going = under_way_.find(c.id);
            if (going == under_way_.end() || going->second != ChangeKind::freeze)
                return fail("job " + id_text(c.id.n) + " is not being frozen");
            under_way_.erase(going);
            return {};
        },
        [&](const PlaceJob& c) -> Status {
            TRY(known(c.id));
            if (!c.frozen) TRY(known(c.provider));
            JobDemand s = *solver_.job(c.id);
            s.state = c.frozen ? JobState::frozen : JobState::running;
            s.place = c.provider;
            solver_.change_job(c.id, s);
            return {};
        },
        [&](const AddProvider& a) -> Status {
            ProviderSpec p;
            p.reserve = a.reserve;
            p.memory_mb = a.memory_mb;
            p.cpus = a.cpus;
            p.speed = a.speed;
            p.network = a.network;
            p.trip_us = a.trip_us;
            p.mbit = a.mbit;
            if (!solver_.add_provider(a.id, p))
                return fail("provider " + id_text(a.id.n) + " is there already");
            providers_[a.id] = a.start_s;
            return {};
        },
        [&](const DeleteProvider& c) -> Status {
            TRY(known(c.id));
            solver_.remove_provider(c.id);
            providers_.erase(c.id);
            return {};
        },
        [&](const UpdateProvider& c) -> Status {
            TRY(known(c.id));
            ProviderSpec p = *solver_.provider(c.id);
            p.reserve = c.reserve;
            solver_.change_provider(c.id, p);
            return {};
        },
        [&](const Time& c) -> Status {
            if (c.s < time_s_) return fail("it is " + std::to_string(time_s_) + " already");
            time_s_ = c.s;
            return {};
        },
        [&](const Go&) -> Status {
            for (const Change& c : solver_.solve(Nanos::from_s(time_s_))) {
                pending_[c.job] = c.to;
                under_way_[c.job] = c.kind;
            }
            return {};
        },
        [&](const Alloc&) -> Status {
            for (const auto& [job, to] : pending_) out += format_alloc_line({job, to}) + "\n";
            pending_.clear();
            return {};
        },
        [&](const Payments&) -> Status {
            for (const Payment& p : solver_.payments())
                out += format_payment_line({p.job, p.price}) + "\n";
            return {};
        },
        [&](const ListJobs&) -> Status { return list_jobs(out), Status{}; },
        [&](const ListProviders&) -> Status { return list_providers(out), Status{}; },
        [&](const Reset&) -> Status {
            const SolverOptions options = solver_.options();
            *this = SolverSession{};
            return solver_.set_options(options);
        },
        [&](const Set& c) -> Status {
            SolverOptions options = solver_.options();
            TRY(Solver::set(options, c.what, c.value));
            return solver_.set_options(options);
        },
        [&](const Exit&) -> Status {
            ended_ = true;
            return {};
        },
    };
    return std::visit(visitor, command);
}

std::string SolverSession::take(std::string_view line) {
    const size_t first = line.find_first_not_of(" \t\r");
    if (first == line.npos || line[first] == '#') return {};
    std::string out;
    const auto command = parse_command(line);
    if (!command) return "error: " + command.error().message + "\n";
    if (const auto done = carry_out(*command, out); !done)
        return "error: " + done.error().message + "\n";
    return out;
}

}  // namespace souk::market
