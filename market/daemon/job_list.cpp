// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/job_list.hpp"

#include <algorithm>
#include <array>

#include "kernel/base/number.hpp"
#include "kernel/base/setting.hpp"
#include "kernel/wire/messages.hpp"
#include "market/daemon/job_groups.hpp"

namespace souk {
namespace {

using market::Job;
using market::JobRecord;
using market::Market;

constexpr uint64_t finished_shown = 1'000;  // without a state, the newest so many
constexpr size_t looked_at_max = 4'096, piece = 256;

enum class State : uint8_t { recent, live, wait, run, suspend, finish, all };
constexpr std::array<std::string_view, 7> state_names = {"",        "live",   "wait", "run",
                                                         "suspend", "finish", "all"};

struct Query {
    State state = State::recent;
    std::string user, node, array, group;
    bool folded = false;
    Nanos since;                   // that ended then or later, Unix time
    std::optional<uint64_t> left;  // that are still to be listed; nothing: all
    uint64_t page = UINT64_MAX;    // at most so many in one part
    std::string after;

    bool lets(const JobRecord& record) const {
        const JobReport& r = record.report;
        if (record.finish_seq > 0 && record.ended < since) return false;
        const auto& ran = r.places;
        if (!node.empty() && std::find(ran.begin(), ran.end(), node) == ran.end()) return false;
        if (!array.empty() && array != r.array) return false;
        if (!group.empty() && group != r.array && group != r.gang) return false;
        if (!user.empty() && user != r.user && user != std::to_string(r.uid)) return false;
        const bool finished = r.phase == JobPhase::finished;
        switch (state) {
            case State::recent:
            case State::all: return true;
            case State::live: return !finished;
            case State::wait: return r.phase == JobPhase::waiting;
            case State::run: return r.phase == JobPhase::running;
            case State::suspend: return r.phase == JobPhase::frozen;
            case State::finish: return finished;
        }
        return false;
    }
};

Result<uint64_t> whole(const std::string& key, std::string_view text) {
    if (const auto n = whole_number<uint64_t>(text)) return *n;
    return fail(key + ": '" + std::string(text) + "' is not a whole number");
}

Result<Query> parse(const std::vector<std::string>& filters, const std::string& after) {
    Query q;
    for (const std::string& word : filters) {
        const auto [key, value] = parse_setting(word);
        if (key == "state") {
            const auto at = std::find(state_names.begin() + 1, state_names.end(), value);
            if (at == state_names.end())
                return fail("'" + value +
                            "' is no state: it is one of live, wait, run, suspend, finish and all");
            q.state = static_cast<State>(at - state_names.begin());
        } else if (key == "user") {
            q.user = value;
        } else if (key == "node") {
            q.node = value;
        } else if (key == "array") {
            q.array = value;
        } else if (key == "group") {
            q.group = value;
        } else if (word == "fold=yes") {
            q.folded = true;
        } else if (key == "since") {
            TRY_ASSIGN(const uint64_t seconds, whole(key, value));
            q.since = Nanos::from_s(
                static_cast<int64_t>(std::min<uint64_t>(seconds, INT64_MAX / 2'000'000'000)));
        } else if (key == "limit") {
            TRY_ASSIGN(q.left, whole(key, value));
        } else if (key == "page") {
            TRY_ASSIGN(q.page, whole(key, value));
            if (q.page == 0) return fail("page: a part has one job at least");
        } else {
            return fail("list-jobs: '" + word +
                        "' is none of state, user, node, array, group, since, limit, page and "
                        "fold=yes");
        }
    }
    const size_t slash = after.find('/');
    q.after = after.substr(0, slash);
    if (slash != std::string::npos) {
        TRY_ASSIGN(q.left, whole("after", after.substr(slash + 1)));
    }
    return q;
}

// One part of an answer.
class Part {
  public:
    Part(Query& q, const WriteJob& write) : q_(q), write_(write) { w_.begin_array(); }
    bool full() const {
        return w_.bytes() >= wire::json_part_bytes || looked_at_ >= looked_at_max ||
               taken_ >= q_.page || q_.left == uint64_t{0};
    }
    void look() { ++looked_at_; }
    void take(const Job& job) {
        if (q_.left == uint64_t{0} || !q_.lets(job.record)) return;
        if (q_.left) --*q_.left;
        ++taken_;
        write_(w_, job);
    }
    // `at`: what it ended with, if there may be more.
    std::string end(const std::string& at, std::string& next) {
        w_.end_array();
        if (!at.empty() && q_.left != uint64_t{0})
            next = at + (q_.left ? "/" + std::to_string(*q_.left) : "");
        return w_.take();
    }

  private:
    Query& q_;
    const WriteJob& write_;
    JsonWriter w_;
    size_t looked_at_ = 0;
    uint64_t taken_ = 0;
};

Result<std::string> newest_first(Query& q, const FinishedJobs& finished, const WriteJob& write,
                                 std::string& next) {
    uint64_t before = UINT64_MAX;
    if (!q.after.empty()) {
        TRY_ASSIGN(before, whole("after", q.after));
    }
    Part part(q, write);
    while (!part.full()) {
        TRY_ASSIGN(auto records, finished.before(before, piece));
        if (records.empty()) return part.end({}, next);
        for (JobRecord& r : records) {
            if (part.full()) break;
            before = r.finish_seq;
            // They are in the order in which they ended (but for clocks that were set).
            if (r.ended < q.since - Nanos::from_s(86'400)) return part.end({}, next);
            part.look();
            part.take(finished_job(std::move(r)));
        }
    }
    return part.end(std::to_string(before), next);
}

// With a limit or by pages: the live ones first, by when they were submitted, then those that are
// finished, as they ended; both the newest first. Where it goes on: "live TIME ID" after that one,
// "done SEQ" below that number.
struct Place {
    bool live = true;
    std::optional<std::pair<Nanos, JobId>> after;
    uint64_t before = UINT64_MAX;
};

Result<Place> place_of(const std::string& text) {
    Place p;
    if (text.empty()) return p;
    const size_t blank = text.find(' '), second = text.find(' ', blank + 1);
    p.live = text.starts_with("live ");
    if (!p.live && !text.starts_with("done "))
        return fail("'" + text + "' is not where a list of jobs goes on");
    if (!p.live) {
        TRY_ASSIGN(p.before, whole("after", std::string_view(text).substr(blank + 1)));
        return p;
    }
    if (second == std::string::npos)
        return fail("'" + text + "' is not where a list of jobs goes on");
    TRY_ASSIGN(const uint64_t at,
               whole("after", std::string_view(text).substr(blank + 1, second - blank - 1)));
    TRY_ASSIGN(const JobId id, parse_job_id(text.substr(second + 1)));
    p.after = {Nanos{static_cast<int64_t>(at)}, id};
    return p;
}

Result<std::string> newest(Query& q, const Market& market, const FinishedJobs& finished,
                           const WriteJob& write, std::string& next) {
    TRY_ASSIGN(Place place, place_of(q.after));
    Part part(q, write);
    if (place.live) {
        using Key = std::pair<Nanos, JobId>;
        const auto key = [](const Job& job) { return Key{job.record.report.submitted, job.id()}; };
        std::vector<const Job*> some;
        for (const auto& [id, job] : market.jobs())
            if (job.record.finish_seq == 0 && q.lets(job.record) &&
                (!place.after || key(job) < *place.after))
                some.push_back(&job);
        const size_t wanted =
            std::min<uint64_t>({some.size(), q.left.value_or(UINT64_MAX), q.page, looked_at_max});
        std::partial_sort(some.begin(), some.begin() + static_cast<ptrdiff_t>(wanted), some.end(),
                          [&](const Job* a, const Job* b) { return key(*b) < key(*a); });
        for (size_t i = 0; i < wanted && !part.full(); ++i) {
            part.take(*some[i]);
            place.after = key(*some[i]);
        }
        const bool more = part.full() || wanted < some.size();
        if (more && !place.after) return part.end({}, next);  // none was asked for
        if (more)
            return part.end(
                "live " + std::to_string(place.after->first.ns) + " " + place.after->second.text(),
                next);
    }
    if (q.state != State::recent && q.state != State::all) return part.end({}, next);
    const uint64_t least = q.state == State::all || finished.newest() < finished_shown
                               ? 0
                               : finished.newest() - finished_shown + 1;
    while (!part.full()) {
        TRY_ASSIGN(auto records, finished.before(place.before, piece));
        for (JobRecord& r : records) {
            if (part.full()) break;
            if (r.finish_seq < least) return part.end({}, next);
            place.before = r.finish_seq;
            part.look();
            part.take(finished_job(std::move(r)));
        }
        if (records.empty()) return part.end({}, next);
    }
    return part.end("done " + std::to_string(place.before), next);
}

// Two sorted lists as one. A job that the machine knows is shown as it is there.
Result<std::string> by_id(Query& q, const Market& market, const FinishedJobs& finished,
                          const WriteJob& write, std::string& next) {
    JobId at;
    if (!q.after.empty()) {
        TRY_ASSIGN(at, parse_job_id(q.after));
    }
    const bool stored_too = q.state == State::recent || q.state == State::all;
    const uint64_t from = q.state == State::all || finished.newest() < finished_shown
                              ? 0
                              : finished.newest() - finished_shown + 1;
    std::vector<FinishedJobs::Entry> entries;
    size_t entry = 0;
    bool no_more = !stored_too;
    auto job = q.after.empty() ? market.jobs().begin() : market.jobs().upper_bound(at);
    Part part(q, write);
    while (!part.full()) {
        if (entry == entries.size() && !no_more) {
            TRY_ASSIGN(entries, finished.after(at, piece));
            entry = 0;
            no_more = entries.empty();
        }
        const bool known = job != market.jobs().end(), stored = entry < entries.size();
        if (!known && !stored) return part.end({}, next);
        if (known && (!stored || job->first <= entries[entry].first)) {
            at = job->first;
            entry += stored && entries[entry].first == at;
            if (job->second.record.finish_seq == 0 ||
                (stored_too && job->second.record.finish_seq >= from))
                part.take(job->second);
            ++job;
        } else {
            at = entries[entry].first;
            part.look();
            if (entries[entry++].second < from) continue;
            TRY_ASSIGN(auto record, finished.find(at));
            if (record) part.take(finished_job(std::move(*record)));
        }
    }
    return part.end(at.text(), next);
}

}  // namespace

Job finished_job(JobRecord record) {
    Job job;
    job.record = std::move(record);
    job.run_base = job.record.billed;
    return job;
}

Status must_live(const Market& market, const FinishedJobs& finished, const JobId& id) {
    if (market.find(id)) return {};
    TRY_ASSIGN(const auto record, finished.find(id));
    if (record) return fail("job " + id.text() + " is finished");
    return fail(CauseCode::not_found, "no such job: " + id.text());
}

Result<std::string> list_jobs_reply(const Market& market, const FinishedJobs& finished,
                                    const std::vector<std::string>& filters,
                                    const std::string& after, const JobAsker& asker,
                                    const WriteJob& write, std::string& next) {
    TRY_ASSIGN(Query q, parse(filters, after));
    if (q.folded) {
        if (q.state == State::finish || q.state == State::all || q.left)
            return fail("list-jobs: fold=yes is for live jobs, without a limit");
        const auto lets = [&q](const JobRecord& record) { return q.lets(record); };
        const auto page = static_cast<size_t>(std::min<uint64_t>(q.page, looked_at_max));
        return folded_jobs_reply(market, lets, page, after, asker, write, next);
    }
    if (q.state == State::finish) return newest_first(q, finished, write, next);
    if (q.left || q.page != UINT64_MAX) return newest(q, market, finished, write, next);
    return by_id(q, market, finished, write, next);
}

}  // namespace souk
