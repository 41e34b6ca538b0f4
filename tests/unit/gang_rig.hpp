// SPDX-License-Identifier: GPL-2.0-or-later
// A home with one job of several components, told what the market and the nodes say.
#pragma once

#include <string>

#include "agentd/core/home.hpp"
#include "tests/unit/home_rig.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {

struct Gang {
    Home h{"n1", {}};
    home::Outputs out;
    Nanos now = Nanos::from_s(1'000);
    uint64_t order_seq = 0;

    static Submission component(uint32_t i, uint32_t of, uint64_t first = 1) {
        Submission s;
        s.spec.launch.argv = {"/bin/job"};
        s.terms.max_price = Money::units(1);
        s.group.components = of;
        s.group.component = i;
        s.group.gang = i == 0 ? 0 : first;
        return s;
    }
    std::string refused(Submission s) {
        const auto taken = h.submit(std::move(s), now, out);
        return taken ? "" : taken.error().message;
    }
    // Components n1.1 to n1.N.
    Gang& submit(uint32_t of) {
        out.clear();
        for (uint32_t i = 0; i < of; ++i) ck_assert_text(refused(component(i, of)), "");
        return *this;
    }
    Gang& run(uint64_t seq, const char* node, bool hold = true) {
        Order o;
        o.id = {"n1", seq};
        o.seq = ++order_seq;
        o.node = node;
        o.address = std::string(node) + ":1";
        o.hold = o.layouts = hold;
        out.clear();
        h.order(o, now, out);
        return *this;
    }
    Gang& said(uint64_t seq, const char* node, uint64_t epoch, GuestState state, int32_t status = 0,
               const char* why = "") {
        GuestEvent e;
        e.id = {"n1", seq};
        e.epoch = {epoch};
        e.state = state;
        e.wait_status = status;
        e.why = why;
        out.clear();
        h.guest_event(node, e, now, out);
        return *this;
    }
    Gang& all_run(uint32_t of) {
        submit(of);
        for (uint32_t i = 1; i <= of; ++i) run(i, "n2");
        for (uint32_t i = 1; i <= of; ++i) said(i, "n2", 1, GuestState::held);
        for (uint32_t i = 1; i <= of; ++i) said(i, "n2", 1, GuestState::running);
        return *this;
    }
    const HomeJob& job(uint64_t seq) const { return *h.find({"n1", seq}); }
    std::string text() const { return outputs_text(out); }
    std::string phases(uint32_t of) const {
        std::string s;
        for (uint32_t i = 1; i <= of; ++i)
            s += (i > 1 ? " " : "") + std::string(to_string(job(i).phase));
        return s;
    }
    JobReport reported(uint64_t seq) const {
        JobReport found;
        for (const auto& o : out)
            if (const auto* m = std::get_if<home::ToMarketMsg>(&o))
                if (const auto* r = std::get_if<JobReport>(&m->message); r && r->id.seq == seq)
                    found = *r;
        return found;
    }
    // The home after a crash: a new one that reads back what was persisted.
    Gang again(uint32_t of) const {
        Gang g;
        g.order_seq = order_seq;
        for (uint32_t i = 1; i <= of; ++i) g.h.load(job(i));
        g.h.restarted(g.now, g.out);
        return g;
    }
};

// Components n1.1 to n1.N, each on a node of its own from n2 on. `Self` says which cut one is
// dumped for: Epoch cut_of(uint64_t seq) const.
template <class Self>
struct Apart : Gang {
    uint32_t of = 0;
    bool leased = false;      // as its node says
    int32_t wait_status = 0;  // of those that exit

    static std::string node(uint64_t seq) { return "n" + std::to_string(seq + 1); }
    // The components have been submitted. Starts them and lets them run.
    Self& start(uint32_t components) {
        of = components;
        for (uint32_t i = 1; i <= of; ++i) run(i, node(i).c_str());
        return all(GuestState::held).all(GuestState::running);
    }
    Self& run(uint64_t seq, const char* where) {
        Gang::run(seq, where);
        return self();
    }
    Self& suspend(uint64_t seq) {
        Order o;
        o.id = {"n1", seq};
        o.seq = ++order_seq;
        o.kind = Order::Kind::suspend;
        out.clear();
        h.order(o, now, out);
        return self();
    }
    // The node where the component is reports this state to the home.
    Self& says(uint64_t seq, GuestState state, const char* why = "") {
        GuestEvent e;
        e.id = {"n1", seq};
        e.epoch = job(seq).epoch;
        e.state = state;
        e.why = why;
        e.image_bytes = 1 << 20;
        e.leased = leased;
        if (state == GuestState::exited) e.wait_status = wait_status;
        e.all_stand = state == GuestState::dumping;
        if (state == GuestState::shipped) e.held_for = self().cut_of(seq);
        out.clear();
        h.guest_event(job(seq).at.node, e, now, out);
        return self();
    }
    Self& all(GuestState state) {
        for (uint32_t i = 1; i <= of; ++i) says(i, state);
        return self();
    }
    // The candidate reports this state to the home.
    Self& there(uint64_t seq, GuestState state, const char* why = "") {
        said(seq, job(seq).to.node.c_str(), job(seq).to_epoch.n, state, 0, why);
        return self();
    }
    Self& after_ms(int64_t ms) {
        now += Nanos::from_ms(ms);
        out.clear();
        (void)h.tick(now, out);
        return self();
    }
    // The nodes to which this command goes; * marks a command for a cut.
    std::string words(GuestVerb verb) const {
        std::string s;
        for (const auto& o : out)
            if (const auto* g = std::get_if<home::ToGuest>(&o); g && g->command.verb == verb)
                s += (s.empty() ? "" : " ") + g->peer.node +
                     (g->command.cut != Cut::none ? "*" : "");
        return s;
    }

  private:
    Self& self() { return static_cast<Self&>(*this); }
};

}  // namespace souk::unit
