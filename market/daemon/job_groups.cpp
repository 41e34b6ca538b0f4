// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/job_groups.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "kernel/wire/messages.hpp"
#include "market/daemon/job_reply.hpp"

namespace souk {
namespace {

using market::Job;
using market::JobRecord;
using market::Market;

// The order of the list: by what the jobs do, then the newest first.
struct EntryKey {
    int rank = 0;
    int64_t submitted_ns = 0;
    JobId id;

    bool operator<(const EntryKey& o) const {
        return std::tie(rank, o.submitted_ns, o.id) < std::tie(o.rank, submitted_ns, id);
    }
    std::string text() const {
        return "fold " + std::to_string(rank) + " " + std::to_string(submitted_ns) + " " +
               id.text();
    }
};

Result<EntryKey> entry_key(const std::string& text) {
    const auto odd = [&] { return fail("'" + text + "' is not where a list of jobs goes on"); };
    constexpr std::string_view begin = "fold ";
    if (!text.starts_with(begin)) return odd();
    EntryKey key;
    const char *at = text.data() + begin.size(), *const end = text.data() + text.size();
    const auto rank = std::from_chars(at, end, key.rank);
    if (rank.ec != std::errc() || rank.ptr == end || *rank.ptr != ' ') return odd();
    const auto time = std::from_chars(rank.ptr + 1, end, key.submitted_ns);
    if (time.ec != std::errc() || time.ptr == end || *time.ptr != ' ') return odd();
    TRY_ASSIGN(key.id, parse_job_id(std::string(time.ptr + 1, end)));
    return key;
}

EntryKey entry_key_of(const Job& job) {
    int rank = 0;  // it runs, or something is being done with it
    if (job.phase() == JobPhase::waiting && !job.record.order) rank = 1;
    if (job.phase() == JobPhase::frozen) rank = 2;
    return {rank, job.record.report.submitted.ns, job.id()};
}

// Returns the first job of the array or gang of this job; empty: it is in none.
const std::string& group_of(const Job& job) {
    const JobReport& r = job.record.report;
    return r.array.empty() ? r.gang : r.array;
}

struct Entry {
    EntryKey key;
    std::vector<const Job*> jobs;

    void add(const Job& job) {
        key = jobs.empty() ? entry_key_of(job) : std::min(key, entry_key_of(job));
        jobs.push_back(&job);
    }
};

void write_group(JsonWriter& w, const Entry& entry, const JobAsker& asker, const WriteJob& write) {
    constexpr size_t nodes_named = 4;
    std::map<std::string, uint64_t> states;
    std::set<std::string> nodes;
    Money cost, least, most;
    Nanos run;
    const Job* first = nullptr;
    for (const Job* const job : entry.jobs) {
        ++states[status_of(*job)];
        cost += Market::cost(*job, asker.now);
        run += std::max(Market::run_time(*job, asker.now), job->record.report.stats.run_time);
        if (job->phase() == JobPhase::running) {
            least = nodes.empty() ? job->record.price : std::min(least, job->record.price);
            nodes.insert(job->record.report.where);
            most = std::max(most, job->record.price);
        } else if (!first) {
            first = job;
        }
    }
    const Job& shown = first ? *first : *entry.jobs.front();
    w.begin_object().field("group", group_of(shown));
    w.field("kind", shown.record.report.array.empty() ? "gang" : "array");
    w.field("jobs", entry.jobs.size()).key("states").begin_object();
    for (const auto& [state, count] : states) w.field(state.c_str(), count);
    w.end_object().field("cost", cost).field("runtime_s", run.seconds());
    if (!nodes.empty()) w.field("price_least", least).field("price_most", most);
    w.field("nodes", nodes.size()).key("where").begin_array();
    size_t named = 0;
    for (const std::string& node : nodes)
        if (named++ < nodes_named) w.value(node);
    w.end_array().key("first");
    write(w, shown);
    w.end_object();
}

}  // namespace

Result<std::string> folded_jobs_reply(const Market& market,
                                      const std::function<bool(const JobRecord&)>& lets,
                                      size_t page, const std::string& after, const JobAsker& asker,
                                      const WriteJob& write, std::string& next) {
    std::optional<EntryKey> from;
    if (!after.empty()) {
        TRY_ASSIGN(from, entry_key(after));
    }
    std::map<std::string, Entry> groups;
    std::vector<Entry> entries;
    for (const auto& [id, job] : market.jobs()) {
        if (job.record.finish_seq != 0 || !lets(job.record)) continue;
        const bool told = asker.uid == market::root_uid || asker.uid == job.record.report.uid;
        if (const std::string& group = group_of(job); told && !group.empty())
            groups[group].add(job);
        else
            entries.emplace_back().add(job);
    }
    for (auto& [id, group] : groups) entries.push_back(std::move(group));
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return a.key < b.key; });
    auto entry = entries.begin();
    if (from)
        entry = std::upper_bound(entries.begin(), entries.end(), *from,
                                 [](const EntryKey& k, const Entry& e) { return k < e.key; });
    JsonWriter w;
    w.begin_array();
    for (size_t taken = 0; entry != entries.end(); ++entry) {
        if (taken == page || w.bytes() >= wire::json_part_bytes) break;
        ++taken;
        if (entry->jobs.size() > 1)
            write_group(w, *entry, asker, write);
        else
            write(w, *entry->jobs.front());
    }
    if (entry != entries.end() && entry != entries.begin()) next = std::prev(entry)->key.text();
    return w.end_array().take();
}

}  // namespace souk
