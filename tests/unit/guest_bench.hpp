// SPDX-License-Identifier: GPL-2.0-or-later
// Bench: a Guest machine that a test drives by hand. Its outputs can be read as a line of text.
#pragma once

#include <csignal>
#include <vector>

#include "agentd/core/guest.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit::guests {

using What = guest::Do::What;

inline const JobId job{"n1", 1};
inline const GuestKey key{job, {1}};

struct Bench {
    Guest g;
    guest::Outputs out;

    Bench& command(GuestVerb verb, uint64_t epoch = 1, uint64_t new_epoch = 2,
                   int32_t signal = SIGTERM) {
        GuestCommand c;
        c.id = job;
        c.epoch = {epoch};
        c.verb = verb;
        c.new_epoch = {new_epoch};
        c.dest = "n2";
        c.signal = signal;
        c.to_all = true;
        out.clear();
        g.command("n1", c, out);
        return *this;
    }
    template <class F>
    Bench& end(F f) {
        out.clear();
        f(g, out);
        return *this;
    }
    Bench& ended(guest::Event event) {
        out.clear();
        g.ended(key, std::move(event), out);
        return *this;
    }
    Bench& running() {
        command(GuestVerb::start);
        ended(guest::CapsuleReady{});
        return ended(guest::JobStarted{});
    }
    Bench& criu_ready() { return ended(guest::CriuReady{}); }
    Bench& sent_precopy() { return ended(guest::SentPrecopy{}); }
    Bench& dump_held(bool fenced = false) { return ended(guest::DumpHeld{100, false, fenced}); }
    Bench& undone() { return ended(guest::DumpUndone{}); }
    Bench& gone() { return ended(guest::CapsuleGone{}); }
    Bench& exited(int32_t status, const char* why = "") {
        return ended(guest::Exited{status, why});
    }
    // A destination that holds what it restored.
    Bench& held() {
        command(GuestVerb::prepare);
        ended(guest::CapsuleReady{}).criu_ready();
        ended(guest::ImageReceived{100, MoveForm::stop_and_copy});
        return ended(guest::RestoreHeld{});
    }
    Bench& recovered(GuestState state, bool from_image, const Guest::Found& found) {
        GuestJob record;
        record.key = key;
        record.state = state;
        record.from_image = from_image;
        return end([&](Guest& m, guest::Outputs& o) { m.recovered(record, found, o); });
    }

    // Prints the outputs as a text: P:state (p: not at once), E (erase), >state (to the home node),
    // X (expel), and effects by name.
    std::string text() const {
        std::string s;
        for (const auto& o : out) {
            if (!s.empty()) s += ' ';
            if (const auto* p = std::get_if<guest::Persist>(&o))
                s += (p->when == Durable::now ? std::string("P:") : std::string("p:")) +
                     to_string(p->job.state);
            if (std::holds_alternative<guest::Erase>(o)) s += 'E';
            if (const auto* d = std::get_if<guest::Do>(&o))
                s += std::string(to_string(d->what)) + (d->to_disk ? "/disk" : "");
            if (const auto* t = std::get_if<guest::ToHome>(&o)) {
                const auto* e = std::get_if<GuestEvent>(&t->message);
                s += e ? std::string(">") + to_string(e->state) +
                             (e->why.empty() ? "" : "(" + e->why + ")")
                       : "X";
            }
        }
        return s;
    }
    GuestState state() const { return g.find(key) ? g.find(key)->state : GuestState::unknown; }
};

}  // namespace souk::unit::guests
