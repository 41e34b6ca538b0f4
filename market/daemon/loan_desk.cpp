// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/loan_desk.hpp"

#include "market/core/site_names.hpp"
#include "market/wire/site_codec.hpp"

namespace souk {
namespace {

SiteNote refusal(JobId id, const Error& why, uint64_t number) {
    SiteNote note;
    note.note.id = std::move(id);
    note.no = why;
    note.number = number;
    return note;
}

}  // namespace

LoanDesk::LoanDesk(Log& log, market::Market& market, MarketRecords& records, Sites& sites,
                   Connections& connections, ArrivalDesk& arrivals, StepTaker& steps)
    : log_(log),
      market_(market),
      records_(records),
      sites_(sites),
      connections_(connections),
      arrivals_(arrivals),
      steps_(steps) {}

void LoanDesk::site_up(const std::string& site) {
    market_.site_up(site, Loop::now());
    steps_.wake();
}

void LoanDesk::site_down(const std::string& site) {
    market_.site_down(site, Loop::now());
    steps_.wake();
}

bool LoanDesk::takes(wire::FrameType type) {
    return type == wire::frame::site_job || type == wire::frame::site_failed ||
           type == wire::frame::site_order || type == wire::frame::site_note;
}

Status LoanDesk::heard(uint64_t number, const Connection& c, const wire::Frame& f) {
    if (!sites_.charge_word(c.node))
        return fail(CauseCode::too_many, "site " + c.node + " says too much of its jobs");
    steps_.wake();
    if (f.type == wire::frame::site_job) return heard_job(number, c.node, f);
    if (f.type == wire::frame::site_order) return heard_order(number, c.node, f);
    const SiteBorder border{c.node, sites_.name()};
    if (f.type == wire::frame::site_failed) {
        TRY_ASSIGN(SiteFailed word, wire::unpack<SiteFailed>(f.body));
        TRY(border.hear(word.failed));
        (void)market_.site_failed(c.node, word.failed, Loop::now());  // of none that is here
        return {};
    }
    TRY_ASSIGN(SiteNote word, wire::unpack<SiteNote>(f.body));
    TRY(border.hear(word.note.id.home));
    market_.site_note(c.node, word, Loop::now());
    return {};
}

Status LoanDesk::heard_job(uint64_t number, const std::string& site, const wire::Frame& f) {
    TRY_ASSIGN(SiteJob word, wire::unpack<SiteJob>(f.body));
    TRY(SiteBorder({site, sites_.name()}).hear(word));
    const JobId& id = word.report.id;
    // A job whose record is set aside would be a new job, and pay once more.
    if (records_.state().is_aside(kind_job, id.text())) return {};
    TRY(records_.recall(id));
    const auto waits = arriving_.find({site, id});
    if (waits != arriving_.end()) {
        waits->second = {number, std::move(word)};
        return {};
    }
    const bool comes = !market_.find(id) || market_.comes_again(word);
    if (!comes || word.report.phase == JobPhase::finished || of_site(id.home).site != site)
        return take_job(number, site, word, {});
    arrives(number, site, word);
    return {};
}

// Each job that comes is asked about by the names of its own site, as when an offer was asked for.
void LoanDesk::arrives(uint64_t number, const std::string& site, const SiteJob& word) {
    const JobReport& r = word.report;
    const JobId there{NodeName(of_site(r.id.home).rest), r.id.seq};
    const std::pair key{site, r.id};
    arriving_[key] = {number, word};
    const program_words::Guest guest{site, there, r.user, told_to_sites(r.terms), word.token};
    arrivals_.ask(guest, [this, key, guest](const Result<market::SiteGuests::Leave>& leave) {
        const auto node = arriving_.extract(key);
        if (!node) return;
        const auto& [connection, newest] = node.mapped();
        const JobReport& now = newest.report;
        // The job that comes must be as it was asked about.
        const bool is_same = now.user == guest.user && told_to_sites(now.terms) == guest.terms &&
                             newest.token == guest.token;
        if (!is_same && now.phase != JobPhase::finished)
            return arrives(connection, key.first, newest);
        // Its record may have been set aside while the programs were asked.
        if (records_.state().is_aside(kind_job, now.id.text())) return;
        if (!records_.recall(now.id)) return;
        if (leave || now.phase == JobPhase::finished)
            (void)take_job(connection, key.first, newest,
                           leave ? *leave : market::SiteGuests::Leave{});
        else
            refuse(connection, key.first, newest, leave.error());
        steps_.wake();
    });
}

Status LoanDesk::take_job(uint64_t number, const std::string& site, const SiteJob& word,
                          market::SiteGuests::Leave leave) {
    const JobId& id = word.report.id;
    auto who = sites_.guest_site(site);
    if (!who) return {};  // it is no peer any more
    who->leave = std::move(leave);
    // Whether a job that runs there could come is asked of a copy of the market.
    const bool comes = !market_.find(id) || market_.comes_again(word);
    const bool asks = word.report.phase == JobPhase::frozen && comes;
    const Status taken =
        asks && !sites_.charge(site, Sites::plan_cost, market_.jobs().size())
            ? fail(CauseCode::too_many, "your site asks too much: again in a moment")
            : market_.site_job(*who, word, Loop::now());
    if (!taken) refuse(number, site, word, taken.error());
    return {};
}

void LoanDesk::refuse(uint64_t number, const std::string& site, const SiteJob& word,
                      const Error& why) {
    const JobId& id = word.report.id;
    log_.limited("guest " + site, Loop::now(), Level::info, "a job of another site is not taken",
                 {{"JOB", id.text()}, {"site", site}, {"WHY", why}});
    records_.state().journal().then(
        [this, number, no = refusal(id, why, word.number)] { connections_.send(number, no); });
}

Status LoanDesk::heard_order(uint64_t number, const std::string& site, const wire::Frame& f) {
    TRY_ASSIGN(SiteOrder word, wire::unpack<SiteOrder>(f.body));
    TRY(SiteBorder({site, sites_.name()}).hear(word.order));
    const Status passed = market_.site_order(site, word.order, Loop::now(), word.number);
    if (passed) return {};
    log_.limited("order " + site, Loop::now(), Level::info, "an order of another site is refused",
                 {{"JOB", word.order.id.text()}, {"site", site}, {"WHY", passed.error()}});
    SiteFailed failed;
    failed.failed.id = word.order.id;
    failed.failed.seq = word.order.seq;
    failed.failed.node = word.order.node;
    failed.failed.why = passed.error();
    records_.state().journal().then([this, number, failed] { connections_.send(number, failed); });
    return {};
}

void LoanDesk::tell() {
    market::LentJobs& lent = market_.lent();
    auto words = lent.take_words();
    auto failures = lent.take_failures();
    if (words.empty() && failures.empty()) return;
    records_.state().journal().then(
        [this, words = std::move(words), failures = std::move(failures)] {
            for (const auto& failure : failures) say(failure.site, SiteFailed{failure.failed});
            for (const auto& word : words) say(word.site, word.word);
        });
}

void LoanDesk::send(const market::Send& message) {
    const std::string site(of_site(message.node).site);
    if (const auto* order = std::get_if<Order>(&message.message))
        say(site, SiteOrder{*order, message.number});
    else if (const auto* note = std::get_if<JobNote>(&message.message))
        say(site, SiteNote{*note, {}, message.number});
}

// A market of a version before would end the connection at such a word.
template <class T>
void LoanDesk::say(const std::string& site, const T& word) {
    if (sites_.lends(site)) sites_.send(site, word);
}

}  // namespace souk
