// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/owner_returns.hpp"

#include <algorithm>
#include <utility>

#include "kernel/base/check.hpp"
#include "kernel/base/json.hpp"

namespace souk {
namespace {

using Which = OwnerReturns::Which;

struct Part {
    Which which;
    Nanos OwnerReturn::*took;
    Nanos OwnerReturn::*promise;
    std::string OwnerReturn::*missed;
};
constexpr Part return_parts[] = {
    {Which::free_cpu, &OwnerReturn::free_cpu, &OwnerReturn::cpu_promise, &OwnerReturn::cpu_missed},
    {Which::free_memory, &OwnerReturn::free_memory, &OwnerReturn::memory_promise,
     &OwnerReturn::memory_missed},
    {Which::empty, &OwnerReturn::empty, &OwnerReturn::empty_promise, &OwnerReturn::empty_missed},
};

// To the microsecond.
double ms_of(Nanos span) {
    const int64_t us = span.ns / 1'000;
    return static_cast<double>(us) / 1e3;
}

// The least of which so many of a thousand are not greater.
Nanos quantile(const std::vector<Nanos>& sorted, size_t permille) {
    if (sorted.empty()) return Nanos{-1};
    const size_t rank = (sorted.size() * permille + 999) / 1'000;
    return sorted[std::max<size_t>(rank, 1) - 1];
}

void write_time(JsonWriter& j, const char* name, Nanos span) {
    if (span.ns >= 0) j.field(name, ms_of(span));
}

void write_return(JsonWriter& j, const OwnerReturn& r, bool open) {
    j.begin_object()
        .field("number", r.number)
        .field("began_unix_s", r.began.ns / 1'000'000'000)
        .field("cause", r.cause)
        .field("why", r.why)
        .field("guests", int64_t{r.guests})
        .field("memory_mb", r.memory_mb)
        .field("open", open);
    write_time(j, "free_cpu_ms", r.free_cpu);
    write_time(j, "stopped_ms", r.stopped);
    write_time(j, "free_memory_ms", r.free_memory);
    write_time(j, "empty_ms", r.empty);
    write_time(j, "away_ms", r.away);
    if (!r.share.empty()) j.field("share", r.share);
    j.key("missed").begin_array();
    for (const Part& part : return_parts)
        if (!(r.*part.missed).empty())
            j.begin_object()
                .field("promise", to_string(part.which))
                .field("promised_ms", ms_of(r.*part.promise))
                .field("why", r.*part.missed)
                .end_object();
    j.end_array().end_object();
}

}  // namespace

const char* to_string(OwnerReturns::Which which) {
    switch (which) {
        case Which::free_cpu: return "free_cpu";
        case Which::free_memory: return "free_memory";
        case Which::empty: return "empty";
    }
    MUST(false);
}

void OwnerReturns::load(OwnerReturn before) {
    all_.push_back(std::move(before));
    while (all_.size() > kept_max) all_.pop_front();
}

OwnerReturns::News OwnerReturns::keep(const OwnerReturn& before) {
    News news;
    if (all_.back() != before) news.kept = all_.back();
    for (; all_.size() > kept_max; all_.pop_front()) news.forgotten.push_back(all_.front().number);
    return news;
}

OwnerReturns::News OwnerReturns::began(Nanos now, Nanos unix_time, std::string cause,
                                       std::string why, const Guests& g) {
    OwnerReturn r;
    r.number = all_.empty() ? 1 : all_.back().number + 1;
    r.began = unix_time;
    r.cause = std::move(cause);
    r.why = std::move(why);
    r.guests = g.running;
    r.memory_mb = g.memory_mb;
    r.cpu_promise = promise_.free_cpu;
    r.memory_promise = promise_.free_memory;
    r.share = g.share;
    if (g.share.empty()) r.empty_promise = promise_.empty;
    all_.push_back(std::move(r));
    began_ = now;
    judge(now, g, false);
    return keep({});
}

// A time counts while it holds: what guests take again is not the owner's.
void OwnerReturns::judge(Nanos now, const Guests& g, bool ends) {
    OwnerReturn& r = all_.back();
    const Nanos took = now - began_;
    const auto reached = [&](Nanos& at, bool is) {
        if (is && at.ns < 0) at = took;
        if (!is && !ends) at = Nanos{-1};
    };
    reached(r.free_cpu, g.lowered || g.running == 0);
    reached(r.stopped, g.running == 0);
    reached(r.free_memory, g.in_memory == 0 || (!g.share.empty() && g.within_share));
    reached(r.empty, g.here == 0);
    for (const Part& part : return_parts) {
        const Nanos promise = r.*part.promise, at = r.*part.took;
        if (promise.ns <= 0 || !(r.*part.missed).empty()) continue;
        if ((at.ns >= 0 ? at : took) <= promise) continue;
        const std::string& why =
            part.which == Which::free_cpu && !g.trouble.empty() ? g.trouble : g.who;
        r.*part.missed = !why.empty() ? why : at.ns >= 0 ? "it took longer" : "guests are here";
    }
    if (ends) r.away = took;
}

OwnerReturns::News OwnerReturns::see(Nanos now, const Guests& g) {
    if (!open()) return {};
    const OwnerReturn before = all_.back();
    judge(now, g, false);
    return keep(before);
}

OwnerReturns::News OwnerReturns::ended(Nanos now, const Guests& g) {
    if (!open()) return {};
    const OwnerReturn before = all_.back();
    judge(now, g, true);
    began_ = Nanos::never();
    return keep(before);
}

Nanos OwnerReturns::due() const {
    Nanos due = Nanos::never();
    if (!open()) return due;
    const OwnerReturn& r = all_.back();
    for (const Part& part : return_parts)
        if ((r.*part.promise).ns > 0 && (r.*part.took).ns < 0 && (r.*part.missed).empty())
            due = std::min(due, began_ + r.*part.promise + Nanos{1});
    return due;
}

OwnerReturns::Figures OwnerReturns::figures(Which which) const {
    Figures figures;
    std::vector<Nanos> sorted;
    for (const Part& part : return_parts) {
        if (part.which != which) continue;
        for (const OwnerReturn& r : all_) {
            // It took no time if nobody was there: nothing was to be kept.
            const bool alone = r.guests == 0 && r.memory_mb == 0;
            if (alone && (r.*part.took).ns == 0) continue;
            if ((r.*part.took).ns >= 0) sorted.push_back(r.*part.took);
            figures.missed += !(r.*part.missed).empty();
        }
    }
    std::sort(sorted.begin(), sorted.end());
    figures.count = static_cast<uint32_t>(sorted.size());
    figures.p50 = quantile(sorted, 500);
    figures.p99 = quantile(sorted, 990);
    figures.p999 = quantile(sorted, 999);
    return figures;
}

void OwnerReturns::write(JsonWriter& j, size_t limit) const {
    const Nanos promised[] = {promise_.free_cpu, promise_.free_memory, promise_.empty};
    j.key("promises").begin_array();
    for (size_t i = 0; i < std::size(promised); ++i) {
        const Figures f = figures(return_parts[i].which);
        j.begin_object()
            .field("promise", to_string(return_parts[i].which))
            .field("count", int64_t{f.count})
            .field("missed", int64_t{f.missed});
        if (promised[i].ns > 0) j.field("promised_ms", ms_of(promised[i]));
        write_time(j, "p50_ms", f.p50);
        write_time(j, "p99_ms", f.p99);
        write_time(j, "p999_ms", f.p999);
        j.end_object();
    }
    j.end_array().key("returns").begin_array();
    for (auto r = all_.rbegin(); r != all_.rend() && limit-- > 0; ++r)
        write_return(j, *r, open() && r == all_.rbegin());
    j.end_array();
}

}  // namespace souk
