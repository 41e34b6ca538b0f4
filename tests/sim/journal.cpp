// SPDX-License-Identifier: GPL-2.0-or-later
// The journal of a simulated daemon, which is the real one, and what falls on it: see cluster.hpp.
#include "agentd/store/records.hpp"
#include "kernel/base/check.hpp"
#include "tests/sim/cluster.hpp"

namespace souk::sim {

namespace {

template <class Record>
Record read(const std::string& value) {
    auto record = wire::unpack<Record>(value);
    MUST(record.has_value());
    return std::move(*record);
}

}  // namespace

void Cluster::open_journal(Node& n) {
    n.disk.lies = mutation_ == Mutation::full_disk_lies;
    n.disk.forgets = mutation_ == Mutation::disk_forgets;
    n.disk.full = now_ < n.full_until;
    n.disk.on_row = [this, &n](const RecordName& name, const std::string& value) {
        became_durable(n, name, value);
    };
    n.journal = std::make_unique<Journal>(n.disk);
    n.journal->take_room(now_);
    n.flush_set = false;
    n.journal_at = Nanos::never();
}

// Tells the world that a record is on disk: from now on a restart finds it.
void Cluster::became_durable(Node& n, const RecordName& name, const std::string& value) {
    if (name.first == "home") {
        const auto job = read<HomeJob>(value);
        if (const auto back = n.back_when_durable.extract(job.id))
            world_.stands_at(job.id, back.mapped(), now_);
        if (job.splice.due) goes_back(job);
    }
    if (name.first != "guest") return;
    const auto here = world_.capsules.on(n.name);
    if (std::ranges::none_of(here, [](const auto& c) { return c.second.filling; })) return;
    const auto job = read<GuestJob>(value);
    if (job.state == GuestState::held || job.state == GuestState::running)
        world_.whole({n.name, job.key}, now_);
}

void Cluster::let_go(Node& n, Call call) {
    if (mutation_ == Mutation::send_before_persist) return call();
    n.journal->then(std::move(call));
}

// The end of the iteration comes at once, or after more has come in; what a record waits for that
// is due `soon` has left a moment later.
void Cluster::arm(Node& n) {
    if (!n.up) return;
    if (n.journal->due() && !std::exchange(n.flush_set, true))
        after(fault(0.1) ? ms(0, 5) : Nanos{}, [this, name = n.name, life = n.life] {
            Node& on = node(name);
            if (on.up && on.life == life) flush(on);
        });
    const Nanos next = n.journal->next();
    if (next == Nanos::never() || next == n.journal_at) return;
    n.journal_at = next;
    const Nanos delay = next > now_ ? next - now_ : ms(0, 5);
    after(delay, [this, name = n.name, life = n.life, next] {
        Node& on = node(name);
        if (!on.up || on.life != life || on.journal_at != next) return;
        on.journal_at = Nanos::never();
        on.disk.full = now_ < on.full_until;
        on.journal->tick(now_);
        arm(on);
    });
}

void Cluster::flush(Node& n) {
    n.flush_set = false;
    if (fault(crash_chance_)) return crash(n);
    const bool commits = n.journal->has_changes();
    n.disk.full = now_ < n.full_until;
    const Journal::Flushed flushed = n.journal->flush(now_);
    if (!flushed.committed) say(n.name, " cannot commit: ", flushed.committed.error().message);
    if (commits && fault(crash_chance_)) return crash(n);
    arm(n);
    for (const uint64_t life = n.life; const Call& call : flushed.calls) {
        if (fault(crash_chance_)) return crash(n);
        call();
        if (!n.up || n.life != life || !world_.failure.empty()) return;
    }
}

std::map<GuestKey, GuestJob> Cluster::guest_records(const Node& n) {
    std::map<GuestKey, GuestJob> records;
    for (GuestJob& job : n.disk.load<GuestJob>("guest", read<GuestJob>))
        records.emplace(job.key, std::move(job));
    return records;
}

std::vector<HomeJob> Cluster::home_records(const Node& n) {
    return n.disk.load<HomeJob>("home", read<HomeJob>);
}

std::optional<HomeJob> Cluster::home_record(const Node& n, const JobId& id) {
    const auto row = n.disk.rows.find({"home", std::to_string(id.seq)});
    if (row == n.disk.rows.end()) return std::nullopt;
    return read<HomeJob>(row->second);
}

}  // namespace souk::sim
