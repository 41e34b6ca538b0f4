// SPDX-License-Identifier: GPL-2.0-or-later
// HomeRig lets a test drive one machine of a Home by hand, without the others. It has a job and the
// time, and shows the outputs as a line of text.
#pragma once

#include <string>

#include "agentd/core/home_turn.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {

inline const JobId id{"n1", 1};

// P: persist (p: not at once); verb node.epoch; !: order failed; reports and tells are left out.
inline std::string outputs_text(const home::Outputs& out) {
    std::string s;
    const auto add = [&](const std::string& part) { s += (s.empty() ? "" : " ") + part; };
    for (const auto& o : out) {
        if (const auto* p = std::get_if<home::Persist>(&o))
            add(p->when == Durable::now ? "P" : "p");
        if (std::holds_alternative<home::Erase>(o)) add("E");
        if (const auto* g = std::get_if<home::ToGuest>(&o))
            add(std::string(to_string(g->command.verb)) + " " + g->peer.node + "." +
                std::to_string(g->command.epoch.n) + (g->command.stand ? "/stand" : ""));
        if (const auto* m = std::get_if<home::ToMarketMsg>(&o))
            if (const auto* f = std::get_if<OrderFailed>(&m->message)) add("!" + f->node);
    }
    return s;
}

// Reports no more than which job it is.
struct BareReporter final : JobReporter {
    JobReport report_of(const HomeJob& job, Nanos) const override {
        JobReport r;
        r.id = job.id;
        return r;
    }
    bool is_superseded(const HomeJob&) const override { return false; }
};

struct HomeRig {
    Nanos now = Nanos::from_s(1'000);
    NodeName node = "n1";
    BareReporter reporter;
    home::Outputs out;

    // Begins the next step.
    HomeTurn turn() {
        out.clear();
        return {now, now, node, 7, reporter, out};
    }
    std::string text() const { return outputs_text(out); }
    // All sentences that the last step said to people, one after another.
    std::string said() const {
        std::string s;
        for (const auto& o : out)
            if (const auto* t = std::get_if<home::Tell>(&o)) s += t->text + "\n";
        return s;
    }
    int reports() const {
        int n = 0;
        for (const auto& o : out)
            if (const auto* m = std::get_if<home::ToMarketMsg>(&o))
                n += std::holds_alternative<JobReport>(m->message);
        return n;
    }

    // n1.1, which waits.
    static HomeJob waiting() {
        HomeJob job;
        job.id = id;
        job.spec.launch.argv = {"/bin/job"};
        job.terms.max_price = Money::units(1);
        return job;
    }
    // A job that runs on n2 under epoch 1, from now on.
    HomeJob running() const {
        HomeJob job = waiting();
        job.phase = JobPhase::running;
        job.at = {"n2", "n2:1"};
        job.epoch = job.last_epoch = {1};
        job.running_since = now;
        job.boot = 7;
        job.places = {"n2"};
        return job;
    }
    static Order to(const char* where, uint64_t seq = 1) {
        Order o;
        o.id = id;
        o.seq = seq;
        o.node = where;
        o.address = std::string(where) + ":1";
        return o;
    }
    static GuestEvent event(GuestState state, uint64_t epoch = 1, const char* why = "") {
        GuestEvent e;
        e.id = id;
        e.epoch = {epoch};
        e.state = state;
        e.why = why;
        return e;
    }
};

template <class T>
bool is(const HomeNext& next) {
    return std::holds_alternative<T>(next);
}

}  // namespace souk::unit
