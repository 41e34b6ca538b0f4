// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/places.hpp"

#include <algorithm>
#include <iterator>
#include <map>

#include "kernel/base/fnv.hpp"
#include "market/core/site_guests.hpp"

namespace souk::market {

bool Places::keeps_guests(const Node& node) {
    const ProviderReport& r = node.record.report;
    return !node.connected || !node.record.has_report || (r.on_market && !r.cannot.empty());
}

int32_t Places::guests_left(const Node& node) {
    int32_t left = 0;
    for (const auto& [id, job] : node.jobs) {
        const JobReport& r = job->record.report;
        const bool there = r.phase == JobPhase::running || r.phase == JobPhase::moving ||
                           r.phase == JobPhase::freezing || r.in_place;
        left += there && r.where == node.id();
    }
    return left;
}

int64_t Places::memory_of(const Node& node) {
    const int64_t offered = node.record.report.memory_mb;
    const int64_t used = node.used_mb - node.standing_mb;
    return std::max(std::min(offered, node.room_mb), std::min(offered, used));
}

bool Places::take_machine(Node& node) {
    const int old = node.machine;
    node.machine = machines_.take(node.record.report.machine);
    const bool same = machines_.take_the_same(old, node.machine);
    machines_.leave(old);
    return !same;
}

void Places::forget_machine(Node& node) { machines_.leave(std::exchange(node.machine, 0)); }

void Places::note_rooted(const Job& job) {
    if (is_rooted(job))
        rooted_.insert(job.id());
    else
        rooted_.erase(job.id());
}

bool Places::cannot_leave(const Job& job) const {
    const JobPhase phase = job.phase();
    if (phase != JobPhase::running && phase != JobPhase::frozen) return false;
    if (job.failed->stuck.active) return true;
    const Node* node = book_.find_node(job.record.report.where);
    return !node || (phase == JobPhase::running ? keeps_guests(*node) : !node->connected);
}

bool Places::lacks(const Job& job, const NodeName& name) {
    // A job that is there, in memory, has its program and its user.
    const JobReport& r = job.record.report;
    const bool in_memory = r.phase == JobPhase::running || r.phase == JobPhase::moving ||
                           r.phase == JobPhase::freezing || r.in_place;
    if (in_memory && r.where == name) return false;
    const auto in = [&](const std::vector<NodeName>& nodes) {
        return std::find(nodes.begin(), nodes.end(), name) != nodes.end();
    };
    return in(job.record.report.lacking) || in(job.record.report.no_user);
}

bool Places::no_node_is_left(const Job& job, Nanos now) const {
    constexpr Nanos away_max = Nanos::from_s(300);
    if (job.phase() != JobPhase::waiting || job.record.report.lacking.empty()) return false;
    return std::all_of(book_.nodes().begin(), book_.nodes().end(), [&](const auto& entry) {
        const auto& [name, node] = entry;
        const bool gone =
            !node.connected && (written_off_.contains(name) || now >= node.lost_at + away_max);
        return gone || lacks(job, name);
    });
}

NamedOffers Places::licences() const {
    std::vector<const Job*> rooted;
    if (resources_.licences().empty()) return {};
    for (const JobId& id : rooted_)
        if (const Job* const job = book_.find(id)) rooted.push_back(job);
    return resources_.left_by_rooted(rooted);
}

bool Places::could_have(const Job& job, const Node& node) const {
    const ResourceBook::Asked asked = resources_.asked(job.record.report.terms);
    if (!asked.any() || !job.rooted_on.empty()) return true;
    const auto holds = [](const NamedOffers& all, const NamedAmounts& needs) {
        return std::all_of(needs.begin(), needs.end(), [&](const NamedAmount& one) {
            const NamedOffer* const offer = find_named(all, one.name);
            return offer && offer->count >= one.count;
        });
    };
    return holds(resources_.left_by_rooted(node), asked.here) && holds(licences(), asked.licences);
}

std::string Places::untold_device(const Job& job, const Node& node) const {
    const JobReport& r = job.record.report;
    if (r.terms.resources.empty() || r.phase == JobPhase::waiting ||
        r.phase == JobPhase::starting || r.phase == JobPhase::finished)
        return {};
    const bool is_there = r.where == node.id() && (r.phase != JobPhase::frozen || r.in_place);
    return is_there ? std::string() : resources_.device(r.terms, node);
}

bool Places::fits(const Job& job, const Node& node, int32_t before) const {
    if (job.booked == Booked::inside) return true;
    const JobTerms& t = job.record.report.terms;
    const int64_t jobs = int64_t{before} + 1;
    // with its memory
    const bool stands_there =
        (is_rooted(job) || stands(job)) && job.record.report.where == node.id();
    return node.used_cpus + t.cpus * jobs <= node.record.report.cpus &&
           (stands_there || node.used_mb + t.memory_mb * jobs <= memory_of(node)) &&
           resources_.has_room(job, node, before);
}

bool Places::may_run_at(const Job& job, const NodeName& name) const {
    const Node* node = book_.find_node(name);
    return node && may_run_at(job, *node);
}

bool Places::may_run_at(const Job& job, const Node& node) const {
    return usable(node) && may_run_later(job, node) && could_have(job, node) &&
           !resources_.is_kept(job, node);
}

bool Places::may_run_later(const Job& job, const Node& node) const {
    return !is_barred(job, node) && (meets_needs(job, node) || is_rooted(job)) &&
           (!resources_.lacks(job.record.report.terms, node) || is_rooted(job)) &&
           untold_device(job, node).empty() && holds_for(job, node) &&
           machine_takes(job, node).has_value();
}

bool Places::is_barred(const Job& job, const Node& node) {
    const auto bar = job.failed->bars.find(node.id());
    return lacks(job, node.id()) || (bar != job.failed->bars.end() && bar->second.active);
}

// A component begins where it can be held until all are ready.
bool Places::holds_for(const Job& job, const Node& node) {
    return job.record.report.gang.empty() || job.phase() != JobPhase::waiting ||
           node.record.report.holds;
}

std::vector<ProviderKey> Places::barred(const Job& job) const {
    std::vector<ProviderKey> keys;
    for (const auto& [name, bar] : job.failed->bars)
        if (bar.active && !lacks(job, name))
            if (const Node* node = book_.find_node(name)) keys.push_back(node->key);
    for (const auto* nodes : {&job.record.report.lacking, &job.record.report.no_user})
        for (const NodeName& name : *nodes)
            if (const Node* node = book_.find_node(name)) keys.push_back(node->key);
    if (!job.record.report.gang.empty())
        for (const auto& [name, node] : book_.nodes())
            if (!holds_for(job, node)) keys.push_back(node.key);
    // A job of another site that comes for one node.
    if (const NodeName& only = *job.record.report.only_node; is_of_site(job.id()) && !only.empty())
        for (const auto& [name, node] : book_.nodes())
            if (name != only) keys.push_back(node.key);
    // A job that cannot leave stays where it is, whatever that node has become.
    if (const std::string& needs = needs_of(job); !needs.empty() && !is_rooted(job))
        for (const auto& [name, node] : book_.nodes())
            if (!needs_.fits(needs, node)) keys.push_back(node.key);
    if (!job.record.report.terms.resources.empty() && !is_rooted(job))
        for (const auto& [name, node] : book_.nodes())
            if (!untold_device(job, node).empty() || resources_.is_kept(job, node))
                keys.push_back(node.key);
    const Node* at = book_.find_node(job.record.report.where);
    if (at && is_rooted(job)) {
        if (!job.record.report.gang.empty()) return keys;  // JobDemand::only says so
        for (const auto& [name, node] : book_.nodes())
            if (&node != at) keys.push_back(node.key);
        return keys;
    }
    if (!at || machines_.fits_all(at->machine)) return keys;
    for (const auto& [name, node] : book_.nodes())
        if (!machines_.fits(node.machine, at->machine)) keys.push_back(node.key);
    return keys;
}

// Finds the first part of what a job needs that this node is not.
std::string Places::failing_part(const std::string& needs, const Node& node) const {
    const Needs* const read = needs_.read(needs);
    if (!read) return needs;
    const std::vector<std::string> parts = read->parts();
    for (size_t i = 0; i < parts.size(); ++i)
        if (!read->part_holds(
                i, [&](std::string_view name) { return attribute_of(node.record.report, name); }))
            return parts[i];
    return needs;
}

const Reason& Places::why_nobody_fits(const std::string& needs) const {
    const auto known = nobody_.find(needs);
    if (known != nobody_.end()) return known->second;
    if (nobody_.size() >= 4'096) nobody_.clear();
    return nobody_[needs] = reckon_nobody(needs);
}

Reason Places::reckon_nobody(const std::string& text) const {
    if (text.empty()) return {};
    std::vector<const Node*> asked;
    for (const auto& [name, node] : book_.nodes()) {
        if (!node.connected || !node.record.has_report) continue;
        if (needs_.fits(text, node)) return {};
        asked.push_back(&node);
    }
    if (asked.empty()) return ReasonCode::no_provider;
    const Needs* const read = needs_.read(text);
    if (!read) return Reason(ReasonCode::needs_nowhere).with(Figure::cause, text);
    const std::vector<std::string> parts = read->parts();
    const auto holds = [&](size_t part, const Node* node) {
        return read->part_holds(
            part, [&](std::string_view name) { return attribute_of(node->record.report, name); });
    };
    for (size_t i = 0; i < parts.size(); ++i)
        if (std::none_of(asked.begin(), asked.end(),
                         [&](const Node* node) { return holds(i, node); }))
            return Reason(ReasonCode::needs_nowhere).with(Figure::cause, parts[i]);
    return Reason(ReasonCode::needs_nowhere).with(Figure::cause, text + ", all at once");
}

Status Places::machine_takes(const Job& job, const Node& node) const {
    const Node* at = book_.find_node(job.record.report.where);
    if (!at || machines_.fits(node.machine, at->machine)) return {};
    return can_take(node.record.report.machine, at->record.report.machine);
}

std::string Places::why_not_at(const Job& job, const NodeName& name) const {
    const Node* const node = book_.find_node(name);
    if (!node || !node->connected) return "is not connected";
    const ProviderReport& r = node->record.report;
    if (!node->record.has_report || !r.on_market) return "is not on the market";
    if (!r.cannot.empty()) return "takes nobody new (" + r.cannot + ")";
    if (const auto takes = machine_takes(job, *node); !takes)
        return "cannot take it (" + takes.error().message + ")";
    if (const std::string& needs = needs_of(job); !needs_.fits(needs, *node))
        return "is not what it needs (" + failing_part(needs, *node) + ")";
    if (const auto lacking = resources_.lacks(job.record.report.terms, *node))
        return "does not have " + resources_text({*lacking});
    if (const std::string device = untold_device(job, *node); !device.empty())
        return "has " + device + " as a device, which a job gets only when it begins";
    if (!could_have(job, *node)) return "cannot give it what jobs keep that cannot move";
    if (resources_.is_kept(job, *node)) return "keeps what it asks for, which is sold ahead";
    if (!holds_for(job, *node))
        return "is of a version that does not start jobs of several components";
    const auto bar = job.failed->bars.find(name);
    if (bar != job.failed->bars.end() && bar->second.active)
        return "could not take it: " + bar->second.why + "; tried again later";
    return {};
}

Result<const Node*> Places::destination(const Job& job, const NodeName& name) const {
    const Node* node = book_.find_node(name);
    if (!node) return fail(CauseCode::not_found, "no such node: " + name);
    const ProviderReport& r = node->record.report;
    const JobTerms& t = job.record.report.terms;
    if (!node->connected) return fail("node " + name + " is not connected");
    if (!node->record.has_report || !r.on_market)
        return fail("node " + name + " is not on the market");
    if (!r.cannot.empty()) return fail("node " + name + " cannot take a job: " + r.cannot);
    if (auto fitting = machine_takes(job, *node); !fitting)
        return fail("node " + name + " cannot take it: " + fitting.error().message);
    if (!needs_.fits(needs_of(job), *node))
        return fail("node " + name + " is not what the job needs (" +
                    failing_part(needs_of(job), *node) + ")");
    if (const auto lacking = resources_.lacks(t, *node))
        return fail("node " + name + " does not have " + resources_text({*lacking}));
    if (const std::string device = untold_device(job, *node); !device.empty())
        return fail("node " + name + " has " + device +
                    " as a device, which a job gets only when it begins");
    if (!could_have(job, *node))
        return fail("node " + name + " cannot give it " + *t.resources +
                    ": jobs keep some of it that cannot move");
    if (resources_.is_kept(job, *node))
        return fail("node " + name + " keeps " + *t.resources + " for others, to whom it is sold");
    if (t.cpus > r.cpus)
        return fail("node " + name + " has " + std::to_string(r.cpus) + " CPUs; job " +
                    job.id().text() + " needs " + std::to_string(t.cpus));
    if (t.memory_mb > r.memory_mb)
        return fail("node " + name + " offers " + std::to_string(r.memory_mb) + " MB; job " +
                    job.id().text() + " needs " + std::to_string(t.memory_mb));
    if (r.reserve > t.max_price)
        return fail("node " + name + " asks " + format_money(r.reserve) + "; job " +
                    job.id().text() + " pays at most " + format_money(t.max_price));
    return node;
}

const Supply& Places::supply() const {
    if (supply_) return *supply_;
    supply_.emplace();
    for (const auto& [name, node] : book_.nodes()) {
        const ProviderReport& r = node.record.report;
        if (usable(node)) supply_->add({r.cpus, r.memory_mb, r.reserve});
    }
    return *supply_;
}

namespace {

// Adds which node it is, how it stands, and when it opens if that is known.
Reason with_standing(Reason reason, const Node& node) {
    const ProviderReport& r = node.record.report;
    const bool off = node.connected && !r.on_market;
    reason = std::move(reason)
                 .with(Figure::node, node.id())
                 .with(Figure::standing, !node.connected ? "not connected"
                                         : off           ? "off"
                                                         : "unable to take jobs");
    if (off && r.opens.ns > 0)
        return std::move(reason).with(Figure::opens, r.opens.ns / 1'000'000'000);
    return reason;
}

}  // namespace

// Adds which nodes have what the job needs and do not offer it now.
Reason Places::with_absent(Reason reason, const JobTerms& t) const {
    const auto holds = [](const Node& node, int32_t cpus, int64_t mb) {
        return node.record.report.cpus >= cpus && node.record.report.memory_mb >= mb;
    };
    if (!absent_) {
        absent_.emplace();
        for (const auto& [name, node] : book_.nodes()) {
            const ProviderReport& r = node.record.report;
            if (usable(node) || !node.record.has_report || written_off_.contains(name)) continue;
            const auto surpassed = [&](const Node* known) {
                return holds(*known, r.cpus, r.memory_mb);
            };
            if (std::any_of(absent_->begin(), absent_->end(), surpassed)) continue;
            std::erase_if(*absent_, [&, &one = node](const Node* known) {
                const ProviderReport& k = known->record.report;
                return holds(one, k.cpus, k.memory_mb);
            });
            absent_->push_back(&node);
        }
    }
    for (const Node* node : *absent_)
        if (holds(*node, t.cpus, t.memory_mb)) return with_standing(std::move(reason), *node);
    return reason;
}

// Wherever there is enough of what it asks for, that is a device, and it has begun.
Reason Places::why_devices_alone(const Job& job) const {
    std::string device;
    if (job.record.report.terms.resources.empty()) return {};
    for (const auto& [name, node] : book_.nodes()) {
        if (!usable(node) || resources_.lacks(job.record.report.terms, node)) continue;
        std::string one = untold_device(job, node);
        if (one.empty()) return {};
        device = std::move(one);
    }
    if (device.empty()) return {};
    return Reason(ReasonCode::resource_devices).with(Figure::cause, device);
}

Reason Places::why_no_provider(const Job& job) const {
    const JobTerms& t = job.record.report.terms;
    if (const Reason& nobody = why_nobody_fits(needs_of(job)); !nobody.empty()) return nobody;
    if (Reason nowhere = resources_.why_nowhere(t); !nowhere.empty()) return nowhere;
    if (Reason devices = why_devices_alone(job); !devices.empty()) return devices;
    const Supply& all = supply();
    const auto least_reserve = all.least_reserve(t.cpus, t.memory_mb);
    if (least_reserve && *least_reserve <= job.bid) return {};
    if (all.empty()) return ReasonCode::no_provider;
    const int64_t cpus = all.most_cpus(), memory = all.most_memory_mb();
    if (t.cpus > cpus)
        return with_absent(Reason(ReasonCode::too_many_cpus)
                               .with(Figure::cpus, int64_t{t.cpus})
                               .with(Figure::most, cpus),
                           t);
    if (t.memory_mb > memory)
        return with_absent(Reason(ReasonCode::too_much_memory)
                               .with(Figure::mb, t.memory_mb)
                               .with(Figure::most, memory),
                           t);
    if (!least_reserve)
        return with_absent(Reason(ReasonCode::no_node_has_both)
                               .with(Figure::cpus, int64_t{t.cpus})
                               .with(Figure::mb, t.memory_mb),
                           t);
    return Reason(job.bid < t.max_price ? ReasonCode::pace_below_every_reserve
                                        : ReasonCode::below_every_reserve)
        .with(Figure::own, job.bid)
        .with(Figure::least, *least_reserve);
}

GangLayout layout_of(const JobReport& r) {
    return {r.spread, r.pack, r.near, r.near_trip_us, r.near_mbit};
}

// A group is known by a digest of its name: an owner who could make another name of the same digest
// could as well say that name.
void set_near(ProviderSpec& spec, const ProviderReport& r) {
    spec.network =
        r.near_group.empty() ? 0 : fnv1a_64(r.near_group) % ProviderSpec::network_max + 1;
    spec.trip_us = r.near_trip_us;
    spec.mbit = r.near_mbit;
}

Reason Places::why_never(const GangShape& shape) const {
    if (!never_ || never_->first != shape) never_ = std::pair(shape, reckon_never(shape));
    return never_->second;
}

Reason Places::reckon_never(const GangShape& shape) const {
    int64_t cpus = 0, most = 0, hosts = 0;
    std::map<uint64_t, std::pair<int64_t, int64_t>> named;  // by node: CPUs, MB
    NetworkPacking packing(shape.needs, shape.layout);
    GangLayout anywhere = shape.layout;
    anywhere.near = false;
    NetworkPacking apart(shape.needs, anywhere);
    for (const NetworkPacking::Need& need : shape.needs) {
        cpus += need.cpus;
        if (need.machine == 0) continue;
        named[need.machine].first += need.cpus;
        named[need.machine].second += need.memory_mb;
    }
    for (const auto& [name, node] : book_.nodes()) {
        if (!usable(node)) continue;
        const int64_t has = node.record.report.cpus, mb = memory_of(node);
        most += has;
        hosts += has >= packing.least().cpus && mb >= packing.least().memory_mb;
        if (const auto wants = named.find(node.key.n);
            wants != named.end() && wants->second.first <= has && wants->second.second <= mb)
            named.erase(wants);
        ProviderSpec spec;
        set_near(spec, node.record.report);
        if (!packing.packed())
            packing.add(has, mb, node.key.n, 0, network_of(spec, node.key, shape.layout));
        if (!apart.packed()) apart.add(has, mb, node.key.n, 0, 0);
    }
    // A node that takes no jobs now has room for them later, as far as its last report says.
    for (const auto& [key, wants] : named) {
        const Node* const node = book_.node_of(ProviderKey{key});
        if (!node || usable(*node) || !node->record.has_report) continue;
        const ProviderReport& r = node->record.report;
        if (wants.first <= r.cpus && wants.second <= r.memory_mb)
            return with_standing(ReasonCode::component_node_away, *node);
    }
    if (cpus > most)
        return Reason(ReasonCode::components_too_large)
            .with(Figure::cpus, cpus)
            .with(Figure::most, most);
    if (!named.empty()) {
        const Node* const node = book_.node_of(ProviderKey{named.begin()->first});
        return Reason(ReasonCode::component_node_small)
            .with(Figure::node, node ? node->id() : "?")
            .with(Figure::cpus, named.begin()->second.first)
            .with(Figure::mb, named.begin()->second.second);
    }
    const int64_t each = shape.layout.most_on_one, all = std::ssize(shape.needs);
    if (each > 0 && (all + each - 1) / each > hosts)
        return Reason(ReasonCode::components_few_nodes)
            .with(Figure::count, std::to_string((all + each - 1) / each))
            .with(Figure::most, hosts);
    if (!packing.packed() && apart.packed()) return Reason(ReasonCode::components_not_near);
    return packing.packed() ? Reason() : Reason(ReasonCode::components_never_fit);
}

Reason Places::memory_held_on(const JobTerms& t) const {
    for (const JobId& id : rooted_) {
        const Node* node = book_.find_node(book_.jobs().at(id).rooted_on);
        if (!node || !usable(*node) || t.cpus > node->record.report.cpus) continue;
        const int64_t memory = memory_of(*node);
        if (t.memory_mb > memory || t.memory_mb <= memory - node->rooted_mb) continue;
        return Reason(ReasonCode::memory_held)
            .with(Figure::node, node->id())
            .with(Figure::job, id.text());
    }
    return {};
}

bool Places::supply_is_right() const {
    if (!supply_) return true;
    const Supply known = *supply_;
    supply_.reset();
    return supply() == known;
}

}  // namespace souk::market
