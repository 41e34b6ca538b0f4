// SPDX-License-Identifier: GPL-2.0-or-later
// SitePair: two markets whose words about jobs of one that run at the other are carried from one to
// the other, on virtual time (market/core/lent_jobs.hpp, site_guests.hpp).
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "market/core/site_names.hpp"
#include "tests/unit/site_words.hpp"

namespace souk::market {

// lab lends, uni takes. A job that lab's home has at uni comes home some time after it is frozen
// there, as HomeEvacuations has it.
struct SitePair {
    World lab, uni;
    SiteTerms terms;
    bool link = false;
    std::vector<std::function<void()>> to_lab, to_uni;  // under way
    std::map<JobId, Nanos> frozen_since;

    SitePair() {
        terms.most_cpus = 3;
        uni.elsewhere = [this](const Send& send) {
            if (of_site(send.node).site.empty()) return false;
            if (!link) return true;
            if (const auto* order = std::get_if<Order>(&send.message))
                to_lab.push_back([this, o = *order, n = send.number] { order_at_lab(o, n); });
            if (const auto* note = std::get_if<JobNote>(&send.message))
                to_lab.push_back([this, w = SiteNote{*note, {}, send.number}] { note_at_lab(w); });
            return true;
        };
        lab.elsewhere = [](const Send& send) { return !of_site(send.node).site.empty(); };
        lab.after_step = [this] { carry(); };
    }
    void carry() {
        for (auto& word : lab.market->lent().take_words())
            if (link) to_uni.push_back([this, w = word] { job_at_uni(w.word); });
        for (auto& failure : lab.market->lent().take_failures())
            if (link) to_uni.push_back([this, f = failure.failed] { failed_at_uni(f); });
    }
    void order_at_lab(Order o, uint64_t number) {
        ck_assert(SiteBorder({"uni", "lab"}).hear(o).has_value());
        const auto f = not_passed(lab, "uni", o, number);
        if (!f) return;
        to_uni.push_back([this, f] { failed_at_uni(*f); });
    }
    void note_at_lab(SiteNote note) {
        ck_assert(SiteBorder({"uni", "lab"}).hear(note.note.id.home).has_value());
        lab.market->site_note("uni", note, lab.now);
    }
    void job_at_uni(SiteJob word) {
        ck_assert(SiteBorder({"lab", "uni"}).hear(word).has_value());
        const auto no = refused(uni, {"lab", site_account(1), &terms, 12 * 60}, word);
        if (!no) return;
        to_lab.push_back([this, no] { note_at_lab(*no); });
    }
    void failed_at_uni(OrderFailed f) {
        ck_assert(SiteBorder({"lab", "uni"}).hear(f).has_value());
        if (uni.market->find(f.id) && uni.market->find_node(f.id.home)->connected)
            must(uni.market->site_failed("lab", f, uni.now));
    }
    void set_link(bool up) {
        if (link == up) return;
        link = up;
        to_lab.clear();
        to_uni.clear();
        if (up) {
            lab.market->site_up("uni", lab.now);
            uni.market->site_up("lab", uni.now);
        } else {
            lab.market->site_down("uni", lab.now);
            uni.market->site_down("lab", uni.now);
        }
    }
    static void restart(World& w) {
        w.restart();
        for (const auto& [name, p] : w.providers)
            if (of_site(name).site.empty()) w.connect(name);
    }
    void come_home() { bring_home(lab, frozen_since); }
    void step(Nanos span = Nanos::from_ms(200)) {
        for (auto& word : std::exchange(to_lab, {})) word();
        for (auto& word : std::exchange(to_uni, {})) word();
        come_home();
        lab.run_for(span);
        uni.now = std::max(uni.now, lab.now - span);
        uni.run_until(lab.now);
        int64_t cpus = 0;
        for (const auto& [id, job] : uni.market->jobs())
            if (is_of_site(id) && job.phase() != JobPhase::finished)
                cpus += job.record.report.terms.cpus;
        ck_assert_int_le(cpus, terms.most_cpus);
    }
    void run(Nanos span) {
        for (const Nanos end = lab.now + span; lab.now < end;) step();
    }
    // Each site has a node, uni's at that reserve, and they are connected.
    void open(int64_t reserve, int32_t cpus = 1) {
        lab.add_node("n1", 100, 1);
        uni.add_node("n1", 100, reserve, cpus);
        set_link(true);
        run(Nanos::from_s(4));
    }
    // A job of lab that waits there, as one that bids 100 has the node.
    JobId crowd_out(int64_t price, Nanos work = Nanos::never()) {
        lab.submit("n1", 100);
        run(Nanos::from_s(1));
        JobId id = lab.submit("n1", price, work);
        run(Nanos::from_s(1));
        return id;
    }
    const Loan& loan(const JobId& id) const { return *lab.market->find(id)->record.loan; }
    std::string at_uni(const JobId& id) const {
        const Job* const guest = uni.market->find({"lab:" + id.home, id.seq});
        return guest ? to_string(guest->phase()) : "unknown";
    }
    static Money charged(const World& w, const JobId& id, bool at_uni) {
        Money sum;
        for (const Receipt& r : w.receipts)
            if (r.job == id && r.kind == Receipt::Kind::use &&
                (of_site(r.node).site.empty() ? !at_uni : at_uni))
                sum += r.paid;
        return sum;
    }
};

}  // namespace souk::market
