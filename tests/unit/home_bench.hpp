// SPDX-License-Identifier: GPL-2.0-or-later
// Bench: a Home machine that a test drives by hand, and what comes out of it as a line of text.
#pragma once

#include <cerrno>
#include <set>
#include <vector>

#include "agentd/core/home.hpp"
#include "tests/unit/home_rig.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {

struct Bench {
    Home h{"n1", limits()};
    home::Outputs out;
    Nanos now;
    uint64_t seq = 0;
    std::string reason;  // of orders

    static Home::Limits limits() {
        Home::Limits l;
        l.finished_max = 2;
        return l;
    }
    Bench& submit() {
        out.clear();
        Submission s;
        s.spec.launch.argv = {"/bin/job"};
        s.terms.max_price = Money::units(1);
        ck_assert(h.submit(s, now, out).has_value());
        return *this;
    }
    Bench& order(Order::Kind kind, const char* node = "", bool stand = false) {
        Order o;
        o.id = id;
        o.seq = ++seq;
        o.kind = kind;
        o.node = node;
        o.address = std::string(node) + ":1";
        o.stand = stand;
        o.reason = reason;
        out.clear();
        h.order(o, now, out);
        return *this;
    }
    Bench& run_on(const char* node) { return order(Order::Kind::run, node); }
    Bench& suspend() { return order(Order::Kind::suspend); }
    Bench& stop() { return order(Order::Kind::suspend, "", true); }
    Bench& event(const char* node, uint64_t epoch, GuestState state, const char* why = "",
                 int32_t status = 0) {
        GuestEvent e;
        e.id = id;
        e.epoch = {epoch};
        e.state = state;
        e.why = why;
        e.wait_status = status;
        out.clear();
        h.guest_event(node, e, now, out);
        return *this;
    }
    // It is stopped where it is.
    Bench& in_place(const char* node, uint64_t epoch, const char* cannot_move = "a queue is open") {
        GuestEvent e;
        e.id = id;
        e.epoch = {epoch};
        e.state = GuestState::dumping;
        e.in_place = true;
        e.why = e.cannot_move = cannot_move;
        out.clear();
        h.guest_event(node, e, now, out);
        return *this;
    }
    // The source on n2 has run until it ended there.
    Bench& went_on(GuestState state, const char* why, int32_t status = 0) {
        GuestEvent e;
        e.id = id;
        e.epoch = {1};
        e.state = state;
        e.why = why;
        e.wait_status = status;
        e.went_on = true;
        out.clear();
        h.guest_event("n2", e, now, out);
        return *this;
    }
    // The source says that it stands for the move to that epoch.
    Bench& held_for(uint64_t epoch) {
        GuestEvent e;
        e.id = id;
        e.epoch = {1};
        e.state = GuestState::dumping;
        e.held_for = {epoch};
        out.clear();
        h.guest_event("n2", e, now, out);
        return *this;
    }
    Bench& up(const char* node) {
        out.clear();
        h.guest_up(node, now, out);
        return *this;
    }
    Bench& wait(Nanos span) {
        now += span;
        out.clear();
        (void)h.tick(now, out);
        return *this;
    }
    Bench& running() { return submit().run_on("n2").event("n2", 1, GuestState::running); }
    Bench& frozen() { return running().suspend().event("n2", 1, GuestState::frozen); }
    // From n2 (1) to n3 (2), ordered to ship.
    Bench& shipping() {
        running().run_on("n3").event("n2", 1, GuestState::dump_ready);
        return event("n3", 2, GuestState::prepared);
    }
    Bench& committed() {
        return shipping().event("n2", 1, GuestState::shipped).event("n3", 2, GuestState::held);
    }
    Bench& cancel() {
        out.clear();
        ck_assert(h.cancel(id, now, out).has_value());
        return *this;
    }
    // As after a crash: what was persisted last, read back.
    Bench again() const {
        Bench b;
        b.now = now;
        b.seq = seq;
        b.h.set_unix_time(now);
        b.h.load(*h.find(id));
        b.h.restarted(now, b.out);
        return b;
    }
    const HomeJob& job() const { return *h.find(id); }
    // To the market, in the last step; null: none.
    const JobReport* reported() const {
        for (const auto& o : out)
            if (const auto* m = std::get_if<home::ToMarketMsg>(&o))
                if (const auto* r = std::get_if<JobReport>(&m->message)) return r;
        return nullptr;
    }

    std::string text() const { return outputs_text(out); }
};

}  // namespace souk::unit
