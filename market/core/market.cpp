// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/market.hpp"

#include <algorithm>
#include <utility>

#include "kernel/base/check.hpp"
#include "kernel/base/json.hpp"
#include "market/core/market_audit.hpp"
#include "market/core/quoter.hpp"

namespace souk::market {

Market::Market(MarketOptions options)
    : context_{std::move(options), {}},
      book_(
          {context_.options.jobs_max, context_.options.nodes_max, context_.options.finished_recent,
           context_.options.jobs_home_max, context_.options.jobs_user_max},
          &ledger_),
      places_(book_),
      orders_({context_.options.order_patience, context_.options.doubt_patience,
               context_.options.forgotten_patience, context_.options.backoff_min,
               context_.options.backoff_max}),
      work_(notes_),
      filter_(context_, book_, notes_, work_),
      alarms_(context_, book_, orders_),
      rooms_(book_, places_, days_, admission_, work_),
      waits_(context_, book_, solver_, alarms_),
      gangs_(book_, places_, work_),
      billing_(context_, book_, ledger_, days_, notes_, alarms_),
      funds_(context_, book_, ledger_, days_, admission_, billing_, alarms_, notes_, work_),
      bids_(context_, book_, solver_, settling_, billing_, notes_, work_),
      prices_(context_, book_, ledger_, solver_, billing_),
      allocation_(context_, book_, places_, solver_, admission_, waits_, equals_, gangs_, prices_,
                  notes_, work_, run_times_, lent_),
      suspended_(book_, solver_, allocation_, alarms_),
      reports_(context_, book_, solver_, orders_, notes_, rooms_, alarms_, waits_, billing_, funds_,
               bids_, suspended_, work_, filter_),
      explain_(context_, book_, places_, solver_, allocation_, equals_, gangs_, bids_, prices_,
               settling_, notes_),
      lent_(context_, book_, orders_, rooms_, alarms_, billing_, notes_, work_),
      placement_(context_, book_, places_, solver_, orders_, rooms_, alarms_, allocation_, gangs_,
                 suspended_, explain_, reports_, settling_, lent_, work_),
      guests_(book_),
      credit_(book_, ledger_, work_),
      moves_(context_, solver_, run_times_, lent_),
      reservations_(context_, book_, places_, solver_, bids_, gangs_, settling_, rooms_, work_,
                    run_times_),
      offers_(context_, book_, guests_, credit_, reservations_),
      gang_loans_(book_, gangs_, allocation_, lent_),
      operators_(context_, trace_, book_, places_, solver_, notes_, billing_, funds_, allocation_,
                 gangs_, explain_, reports_, settling_, lent_, work_, filter_) {
    const Status taken = solver_.set_options(context_.options.solver);
    MUST(taken);  // the caller checks them with Solver::set_options before
    places_.resources().set_licences(context_.options.resources);
}

Result<std::string> Market::set_option(const std::string& what, const std::string& value,
                                       const std::string& why, uint32_t uid, Nanos now) {
    trace_.heard(Input::set_option, {}, {}, what + "=" + value);
    if (uid != 0) return fail(CauseCode::not_allowed, "only root may set how the market decides");
    TRY(Solver::can_set(what));
    const SolverOption* const option = find_solver_option(what);
    const std::string name = option ? std::string(option->name) : what;
    std::vector<SolverSetting> settings = book_.meta().settings;
    std::erase_if(settings, [&](const SolverSetting& s) { return s.what == name; });
    const bool back = value == "default";
    if (!back) settings.push_back({name, value, why, uid, context_.unix(now)});
    TRY_ASSIGN(const SolverOptions options, options_with(settings));
    const bool moves_cost = solver_.options().horizon.ns > 0;
    const bool may_stand_less = options.stand_max < solver_.options().stand_max;
    const Nanos ageing = solver_.ageing();
    const bool looked_ahead = solver_.looks_ahead();
    TRY(solver_.set_options(options));
    if (solver_.ageing() != ageing || solver_.looks_ahead() != looked_ahead)
        for (auto& [id, job] : book_.jobs())
            if (job.phase() != JobPhase::finished) work_.touch(job);
    if (may_stand_less) suspended_.bound();
    if (moves_cost != (options.horizon.ns > 0)) touch_files_served();
    gangs_.wake_unplaced();  // another algorithm may place them
    book_.meta().settings = std::move(settings);
    book_.save_meta();
    work_.decide();
    return name + " is " + Solver::get(options, name) + " now" + (back ? ", as configured" : "");
}

// The solver is told what files take only while it has a horizon.
void Market::touch_files_served() {
    for (auto& [id, job] : book_.jobs())
        if (job.record.report.files->served && job.phase() != JobPhase::finished) work_.touch(job);
}

// A setting goes before the configuration.
Result<SolverOptions> Market::options_with(const std::vector<SolverSetting>& settings) const {
    SolverOptions options = context_.options.solver;
    for (const SolverSetting& s : settings) TRY(Solver::set(options, s.what, s.value));
    return options;
}

void Market::load(MetaRecord meta) {
    // Settings that this program does not know, or takes no more, are left out.
    std::erase_if(meta.settings, [&](const SolverSetting& s) {
        return !options_with({s}) || !Solver().set_options(*options_with({s}));
    });
    if (const auto options = options_with(meta.settings);
        !options || !solver_.set_options(*options))
        meta.settings.clear();
    book_.load(std::move(meta));
    orders_.begin_at(book_.meta().seq_limit);
    ledger_.set_last(book_.meta().receipts);
}

void Market::load(JobRecord record) {
    const Job& job = book_.load(std::move(record));
    orders_.used(job.record.report.order_seq);
    if (job.record.order) orders_.used(job.record.order->seq);
}

void Market::recall(JobRecord record) {
    trace_.heard(Input::recall, record.report.id);
    const Job* const job = book_.recall(std::move(record));
    if (job) orders_.used(job->record.report.order_seq);
}

void Market::load(NodeRecord record) {
    Node& node = book_.load(std::move(record));
    (void)places_.take_machine(node);
}

void Market::started(Nanos now) {
    trace_.heard(Input::started);
    ledger_.set_day(book_.meta().day, false);
    billing_.open_ledger();
    book_.meta().seq_limit = std::max(book_.meta().seq_limit, orders_.next_seq());
    for (Job* const job : book_.begin()) {
        book_.number(*job);
        filter_.resume(*job);
        reports_.resume(*job, now);
        reservations_.note(*job);
        lent_.resume(*job, now);
        gang_loans_.note(*job);
    }
    reservations_.resume();
    billing_.count_use();
    for (auto& [name, node] : book_.nodes()) {
        node.lost_at = now;
        work_.touch(node);
    }
    funds_.count_days();
    funds_.open_accounts();
    // A market without a past waits for nobody.
    if (!book_.jobs().empty() || !book_.nodes().empty())
        settling_.begin(now + context_.options.settle);
    else
        book_.meta().arrivals = true;
}

Status Market::agent_connected(const NodeName& name, const std::string& address, Nanos now) {
    trace_.heard(Input::agent_connected, {}, name);
    TRY(book_.admits_node(name));
    Node& node = book_.node(name);
    if (node.connected) agent_lost(name, now);
    node.connected = true;
    node.said.clear();  // it tells of its copies anew
    places_.changed();
    places_.came_back(name);
    for (const NodeName& lost : places_.written_off()) notes_.lost(name, lost);
    if (node.record.address != address) {
        node.record.address = address;
        if (node.record.has_report) book_.save(node);
    }
    node.noted = {};
    node.noted_at = {INT64_MIN / 2};
    work_.touch(node);
    reservations_.changed();
    reports_.place_came(node, now);
    for (auto it = book_.jobs().lower_bound({name, 0});
         it != book_.jobs().end() && it->first.home == name; ++it)
        if (it->second.phase() != JobPhase::finished) reports_.home_came(it->second, now);
    return {};
}

void Market::agent_lost(const NodeName& name, Nanos now) {
    trace_.heard(Input::agent_lost, {}, name);
    const auto it = book_.nodes().find(name);
    if (it == book_.nodes().end() || !it->second.connected) return;
    Node& node = it->second;
    node.connected = false;
    reports_.connection_ended(name);
    reservations_.changed();
    places_.changed();
    node.lost_at = now;
    work_.touch(node);
    for (const auto& [id, job] : node.jobs) {
        work_.touch(*job);
        alarms_.set(*job);
    }
    for (auto job = book_.jobs().lower_bound({name, 0});
         job != book_.jobs().end() && job->first.home == name; ++job)
        if (job->second.phase() != JobPhase::finished) reports_.home_left(job->second);
}

Status Market::report(const NodeName& name, const ToMarket& message, Nanos now) {
    trace_.heard(name, message);
    const auto it = book_.nodes().find(name);
    if (it == book_.nodes().end() || !it->second.connected)
        return fail("node " + name + " is not connected");
    funds_.begin_day(now);
    if (const auto* job = std::get_if<JobReport>(&message)) {
        const Job* const before = book_.find(job->id);
        const bool had_ended = before && before->phase() == JobPhase::finished;
        TRY(reports_.take(name, *job, now));
        Job* const known = book_.find(job->id);
        if (!known) return {};
        lent_.reported(*known, now);
        gang_loans_.note(*known);
        reservations_.note(*known);
        if (!had_ended) run_times_.ended(known->record);
        return {};
    }
    if (const auto* failed = std::get_if<OrderFailed>(&message)) {
        Job* const job = book_.find(failed->id);
        if (job) lent_.failed(*job, *failed);
        TRY(reports_.order_failed(name, *failed, now));
        if (job) (void)lent_.settle(*job);
        if (job) gang_loans_.note(*job);
        return {};
    }
    const auto& r = std::get<ProviderReport>(message);
    if (r.node != name) return fail("node " + name + " reports as provider " + r.node);
    return provider_report(it->second, r, now);
}

Status Market::provider_report(Node& node, const ProviderReport& r, Nanos now) {
    for (const OpenHours& h : r.hours)
        if (!h.is_sound())
            return fail("node " + node.id() + " opens for " + std::to_string(h.to_s - h.from_s) +
                        " s of a week");
    const ProviderReport old = std::exchange(node.record.report, r);
    const bool first = !std::exchange(node.record.has_report, true);
    node.leaving_of = r.on_market ? 0 : std::max(node.leaving_of, Places::guests_left(node));
    // Figures that change by the second are shown, and decide nothing unless they change what fits.
    ProviderReport comparable = old;
    comparable.free_mb = r.free_mb;
    comparable.load_permille = r.load_permille;
    comparable.wait_permille = r.wait_permille;
    comparable.has_memory_pressure = r.has_memory_pressure;
    comparable.memory_pressure_permille = r.memory_pressure_permille;
    const bool terms_changed = first || !(comparable == r);
    // The memory that is free beside its jobs, in steps of 64 MB, so that small changes of the
    // owner's programs decide nothing.
    const int64_t beside = r.free_mb + node.used_mb;
    node.room_mb = r.free_mb <= 0 || beside >= r.memory_mb ? r.memory_mb : beside / 64 * 64;
    if (terms_changed) {
        book_.save(node);
        places_.changed();
        reservations_.changed();
    }
    if (terms_changed && places_.attributes_changed(old, node)) wide_.attributes();
    if (first || old.resources != r.resources) wide_.resources();
    wide_.machine(node, now);
    const auto known = solver_.provider(node.key);
    if (terms_changed || !known || known->memory_mb != Places::memory_of(node)) {
        work_.touch(node);
        for (const auto& [id, job] : node.jobs) work_.touch(*job);
    }
    return {};
}

void Market::end_settling(Nanos now) {
    const auto away = [](const Node& node) {
        return !node.connected &&
               (!node.jobs.empty() || (node.record.has_report && node.record.report.on_market));
    };
    const auto unreported = [](const Job& job) {
        const bool waits = job.phase() == JobPhase::waiting && !job.record.order;
        return job.phase() != JobPhase::finished && !job.reported && !waits;
    };
    if (!settling_.ends(now, book_.nodes(), away, book_.jobs(), unreported)) return;
    if (!std::exchange(book_.meta().arrivals, true)) book_.save_meta();
    work_.decide();
    reservations_.changed();
}

Nanos Market::next_call() const {
    if (work_.is_due() || allocation_.outside().is_adopted()) return {0};
    Nanos next = settling() ? settling_.end() : solver_.next_wake();
    next = std::min({next, alarms_.next(), days_.next(), explain_.next_call(), prices_.next_call(),
                     notes_.next(), reports_.next_ask(), reservations_.next(), lent_.next(),
                     gang_loans_.next(), credit_.next(), wide_.next()});
    if (!book_.nodes().empty()) next = std::min(next, bids_.next_sample());
    if (!admission_.limited().empty())
        next = std::min({next, admission_.next(), funds_.next_hours(),
                         Nanos{(book_.meta().day + 1) * day_ns} - context_.calendar});
    return next;
}

void Market::flush(Nanos now, Outputs& out) {
    for (const Job* const job : book_.store(out))
        if (trace_.is_on()) trace_.tell_state(*job);
    for (StoreOp& op : bids_.take_changed()) out.store.push_back(std::move(op));
    for (Receipt& receipt : ledger_.take_posted()) out.store.push_back(std::move(receipt));
    for (AccountRecord& account : ledger_.take_changed()) out.store.push_back(std::move(account));
    if (std::exchange(book_.meta().receipts, ledger_.last()) != ledger_.last()) {
        book_.save_meta();
        if (context_.log) book_.meta().decisions = context_.log->number();
    }
    book_.store_meta(orders_.next_seq(), out);
    notes_.send(explain_, book_.nodes(), now, out);
    lent_.number_stays(out.send);
    forget_finished();
}

// Finished jobs are known until they are stored and told, and some time longer.
void Market::forget_finished() {
    while (Job* const job = book_.one_too_many()) forget(*job);
}

void Market::forget(Job& job) {
    if (job.in_solver) solver_.remove_job(job.key);
    equals_.leave(job);
    work_.forget(job);
    book_.forget(job);
}

void Market::load(UserRecord record) { admission_.limits_changed(book_.load(std::move(record))); }

Result<std::string> Market::set_limits(uint32_t of, const std::string& name,
                                       const UserLimits& limits, uint32_t uid, Nanos now) {
    trace_.heard(Input::set_limits, {}, {}, name);
    return funds_.set_limits(of, name, limits, uid, now);
}

Result<uint32_t> Market::set_member(const std::string& project, std::optional<uint32_t> member,
                                    bool comes, uint32_t uid, Nanos now) {
    trace_.heard(Input::set_limits, {}, {}, project);
    return funds_.set_member(project, member, comes, uid, now);
}

Result<Money> Market::move_money(const MoneyOrder& order, uint32_t uid, Nanos now) {
    trace_.heard(Input::move_money, {}, order.node, order.user);
    credit_.changed();
    return funds_.move_money(order, uid, now);
}

Status Market::settle_site(uint32_t account, const std::string& site, Money paid,
                           const std::string& note, uint32_t uid, Nanos now) {
    trace_.heard(Input::move_money, {}, {}, site);
    TRY(funds_.settle_site(account, site, paid, note, uid, now));
    credit_.changed();
    return {};
}

Result<Money> Market::promise_missed(const NodeName& node, const JobId& id,
                                     const std::string& promise, Nanos now) {
    trace_.heard(Input::move_money, id, node, promise);
    return funds_.promise_missed(node, id, promise, now);
}

Status Market::adopt(const std::vector<Solver::Assignment>& allocation, Nanos now) {
    trace_.heard(Input::adopt);
    return allocation_.adopt(allocation, now);
}

void Market::use_own() {
    trace_.heard(Input::use_own);
    allocation_.use_own();
}

std::string Market::audit() const { return MarketAudit(book_, ledger_, places_).run(); }

Quoter Market::quoter() const {
    const auto why = [this](const Job& job, const Solver& s) {
        return explain_.why_waiting(job, s);
    };
    return Quoter({book_, places_, solver_, admission_, allocation_, bids_.history(),
                   context_.calendar, settling(), why});
}

Result<Quote> Market::quote(const QuoteRequest& request, Nanos now) const {
    TRY_ASSIGN(Quote quote, quoter().of(request, now));
    if (request.terms.booking->promise) quote.promise = promise_of(request, now);
    return quote;
}

Result<Quote> Market::quote_that_runs(const QuoteRequest& request, Nanos now) const {
    TRY_ASSIGN(Quote quote, this->quote(request, now));
    if (!quote.runs) return fail(CauseCode::not_possible, quote.why);
    return quote;
}

Result<Quote::Place> Market::place_at_home(const Job& job, Nanos now) const {
    QuoteRequest request;
    request.home = job.id().home;
    request.uid = job.user->record.uid;
    request.terms = job.record.report.terms;
    TRY_ASSIGN(const Quote quote, quote_that_runs(request, now));
    return quote.places.front();
}

SiteOffer Market::offer(const SiteGuests::Site& site, const SiteAsk& ask, Nanos now) {
    return offers_.of(quoter(), site, ask, now);
}

Result<std::vector<SiteRoom>> Market::rooms_at_home(const Job& job, Nanos now) const {
    QuoteRequest request;
    request.home = job.id().home;
    request.uid = job.user->record.uid;
    request.terms = job.record.report.terms;
    return offers_.rooms(quoter(), request, gang_loans_.parts_of(job), now);
}

Status Market::lend_gang(const JobId& id, const std::vector<GangLoans::Part>& parts, Nanos now) {
    trace_.heard(Input::lend, id);
    Job* const job = book_.find(id);
    if (!job) return fail(CauseCode::not_found, "no such job: " + id.text());
    return gang_loans_.lend(*job, parts, now);
}

// -------------------------------------------------------------------------------------------------
// jobs at other sites, and of other sites

Status Market::lend(const JobId& id, const std::string& site, Nanos now) {
    trace_.heard(Input::lend, id, {}, site);
    Job* const job = book_.find(id);
    if (!job) return fail(CauseCode::not_found, "no such job: " + id.text());
    return lent_.lend(*job, site, now);
}

Status Market::move_for_gain(const JobId& id, const std::string& site, const SiteOffer& offer,
                             Nanos now, bool by_program) {
    trace_.heard(Input::lend, id, {}, site);
    Job* const job = book_.find(id);
    if (!job) return fail(CauseCode::not_found, "no such job: " + id.text());
    return moves_.go(*job, site, offer, now, by_program);
}

Status Market::move_home(const JobId& id, const Quote::Place& place, Nanos now, bool by_program) {
    trace_.heard(Input::lend, id, place.node, {});
    Job* const job = book_.find(id);
    if (!job) return fail(CauseCode::not_found, "no such job: " + id.text());
    return moves_.go_home(*job, place, now, by_program);
}

void Market::say_of_sites(const JobId& id, const Reason& word) {
    if (Job* const job = book_.find(id)) job->site_word = word;
}

void Market::filtered(const JobId& id, const Result<FilterWord>& word) {
    trace_.heard(Input::filtered, id, {}, word ? to_string(word->state) : word.error().message);
    Job* const job = book_.find(id);
    if (!job || job->phase() == JobPhase::finished) return;
    const bool is_new =
        word ? filter_.answered(*job, *word) : filter_.silent(*job, word.error().message);
    if (is_new) reservations_.note(*job);
}

Status Market::site_order(const std::string& site, const Order& order, Nanos now, uint64_t number) {
    trace_.heard(Input::site_order, order.id, order.node, site);
    Job* const job = book_.find(order.id);
    if (!job) return fail(CauseCode::not_found, "there is no such job");
    TRY(lent_.may_order(*job, site, order, number));
    const Node* const to = book_.find_node(order.node);
    if (const NodeName* const back = lent_.comes_back(*job); back && to && *back == order.node)
        if (!places_.may_run_at(*job, *to) || !places_.fits(*job, *to) ||
            (lent_.wants_home(*job) && allocation_.target_of(*job) != to))
            return fail(CauseCode::not_possible, "its place at its own site is not clear");
    if (order.kind == Order::Kind::run && !to) {
        TRY(guests_.has_room_for_node(site));
        TRY(agent_connected(order.node, order.address, now));
    }
    lent_.pass(*job, order, now);
    return {};
}

void Market::site_note(const std::string& site, const SiteNote& note, Nanos now) {
    trace_.heard(Input::site_note, note.note.id, {}, site);
    if (Job* const job = book_.find(note.note.id)) lent_.heard(*job, site, note, now);
}

// A node of that site is named, which may be new.
Status Market::meet_node(const std::string& site, const NodeName& node, Nanos now) {
    if (of_site(node).site != site || book_.find_node(node)) return {};
    TRY(guests_.has_room_for_node(site));
    return agent_connected(node, {}, now);
}

Status Market::site_job(const SiteGuests::Site& site, const SiteJob& word, Nanos now) {
    const JobReport& report = word.report;
    const JobId short_id{NodeName(of_site(report.id.home).rest), report.id.seq};
    const KeptOffers::Key kept{site.name, short_id};
    const Job* const known = book_.find(report.id);
    if (known && word.number != 0 && word.number < known->record.loan->number)
        return {};  // a late word of a stay before
    const Job* const before = guests_.comes_again(word);
    if (before && (before->in_solver || before->is_listed || before->touched != 0))
        return fail(CauseCode::too_many, "its stay before is not closed yet: again in a moment");
    const bool comes = before || !book_.find(report.id);
    TRY_ASSIGN(JobReport heard,
               guests_.heard(site, report, reservations_.cpus_offered(kept, now), comes));
    if (comes) {
        if (const auto why = credit_.why_not(site.name, now); !why.empty())
            return fail(why.code, why);
        credit_.changed();
    }
    // One that runs elsewhere is taken only if it has a place at once, or it would lose its turn to
    // come.
    if (heard.phase == JobPhase::frozen && comes)
        TRY(OffersToPeers::quote(quoter(), heard.terms, now));
    reservations_.drop_offered(kept);
    // Its account here is of this stay alone: that of the one before is among the finished ones.
    if (before) forget(*book_.find(report.id));
    const Node* const home = book_.find_node(report.id.home);
    if (!home || !home->connected) TRY(agent_connected(report.id.home, {}, now));
    // It comes from there, or goes there. One that is here is heard without room for a node, too:
    // then it is at its home, which is as far from here.
    if (Status met = meet_node(site.name, heard.where, now); !met) {
        if (!book_.find(report.id)) return met;
        heard.where = report.id.home;
    }
    const bool goes = of_site(word.to).site == site.name && meet_node(site.name, word.to, now);
    TRY(this->report(report.id.home, heard, now));
    Job* const job = book_.find(report.id);
    if (job && job->record.loan->number != word.number) {
        job->record.loan.edit().number = word.number;
        book_.save(*job);
    }
    if (!job || job->phase() == JobPhase::finished) return {};
    if (job->record.payee.empty()) bill::begin_tab(*job);
    if (comes && (!word.token.empty() || !site.leave.account.empty())) {
        FilterWord& said = job->record.filter.edit();
        said.token = word.token;
        said.account = site.leave.account;
        book_.save(*job);
    }
    if (job->phase() == JobPhase::running && !job->record.report.only_node->empty()) {
        job->record.report.only_node = NodeName();  // it has come
        work_.touch(*job);
        book_.save(*job);
    }
    if (goes) lent_.send_back(*job, book_.node(word.to), word.address, now);
    return {};
}

Status Market::site_failed(const std::string& site, const OrderFailed& failed, Nanos now) {
    if (of_site(failed.id.home).site != site)
        return fail(CauseCode::not_allowed, "that is no job of site " + site);
    return report(failed.id.home, failed, now);
}

void Market::site_up(const std::string& site, Nanos now) {
    for (const NodeName& name : guests_.nodes_of(site)) {
        const Node& node = book_.node(name);
        if (!node.connected) (void)agent_connected(name, node.record.address, now);
    }
    lent_.tell_all(site);
}

void Market::site_down(const std::string& site, Nanos now) {
    for (const NodeName& name : guests_.nodes_of(site)) agent_lost(name, now);
}

Quote::Promise Market::promise_of(const QuoteRequest& request, Nanos now) const {
    User user;
    user.record.uid = request.uid;
    if (const auto known = book_.users().find(request.uid); known != book_.users().end())
        user = known->second;
    const std::vector<Job> guests = guests_of(request, user, UINT64_MAX >> 4, context_.unix(now));
    std::vector<const Job*> all;
    for (const Job& guest : guests)
        if (!is_optional(guest)) all.push_back(&guest);
    const PromiseOffer offer = promise_offer(all, now);
    Quote::Promise p;
    p.can = offer.node != nullptr;
    p.deadline = Promises::wanted(*all.front());
    p.learned = offer.learned;
    if (offer.node) {
        p.latest_start = offer.span.start;
        for (const PlacePick& pick : offer.picks) ++p.nodes[pick.node->id()];
        p.price = offer.price;
        p.cost_most = offer.cost_most;
    } else {
        p.why = offer.why.text();
        p.code = to_string(offer.why.code);
        p.price_for_it = offer.price_for_it;
        p.earliest = offer.earliest;
    }
    return p;
}

void Market::solve(Nanos now, Outputs& out) {
    const size_t stored = out.store.size(), sent = out.send.size();
    solve_now(now, out);
    if (trace_.is_on()) trace_.tell_outputs(out, stored, sent);
}

// An order changes what the solver is to know, so it decides again, within bounds. More is left for
// the next call.
void Market::decide(Nanos now, Outputs& out) {
    constexpr int rounds_max = 4;
    OutsideSolver& outside = allocation_.outside();
    bool wake = !settling() && (solver_.next_wake() <= now || admission_.next() <= now);
    for (int round = 0; round < rounds_max && (work_.is_due() || wake || outside.is_adopted());
         ++round) {
        const bool changed = work_.is_due() || wake;
        work_.taken_up();
        wake = false;
        outside.take_adopted();
        reservations_.look(now);
        allocation_.sync_nodes();
        allocation_.sync_jobs(now);
        explain_.changed();
        if (settling()) continue;
        if (!outside.decides()) {
            allocation_.decide(now, true);
        } else if (allocation_.decide(now, false); work_.is_due()) {
            // once more, and then the program is asked
        } else if (changed && outside.wants_question()) {
            out.ask_solver = true;
        }
        if (context_.log) context_.log->decided(*this, context_.unix(now));
        placement_.place(now, out);
        prices_.changed();
        prices_.refresh(now);
    }
}

void Market::solve_now(Nanos now, Outputs& out) {
    funds_.begin_day(now);
    funds_.end_days(now);
    funds_.look_at_hours(now);
    credit_.look(now);
    while (Job* const job = alarms_.take_due(now)) reports_.alarm(*job, now);
    end_settling(now);
    places_.resources().forget_names();
    wide_.look(now);
    reservations_.look(now);
    lent_.look(now);
    gang_loans_.look(now);
    // They have numbers already, and go before those that are given now.
    for (Send& send : lent_.take_orders()) out.send.push_back(std::move(send));
    // Once a minute, with the prices.
    if (reports_.lacking() > 0 && now >= bids_.next_sample()) reports_.try_lacking();
    decide(now, out);
    if (out.ask_solver) allocation_.outside().asked(allocation_.problem());
    for (const JobId& id : reservations_.take_missed())
        funds_.deadline_missed(*book_.find(id), now);
    prices_.refresh(now);
    explain_.refresh_comments(now);
    funds_.reckon_days(now);
    reports_.ask_again(now, out);
    if (billing_.has_turned()) work_.decide();
    if (bids_.sample(now) && !allocation_.outside().decides()) prices_.lower_held(now);
    flush(now, out);
}

void Market::describe(Nanos now, JsonWriter& j) const {
    j.field("jobs", book_.jobs().size())
        .field("nodes", book_.nodes().size())
        .field("users", book_.users().size());
    j.field("next_order", orders_.next_seq())
        .field("settling", settling())
        .field("external_solver", allocation_.outside().is_used())
        .field("asking", allocation_.outside().is_asked());
    j.field("solver", solver_.options().algorithm).field("pricing", solver_.options().pricing);
    j.field("pending", work_.is_placing())
        .field("alarms", alarms_.size())
        .field("lacking", reports_.lacking());
    if (const Nanos next = next_call(); next != Nanos::never())
        j.field("next_call_s", std::max(Nanos{}, next - now).seconds());
}

}  // namespace souk::market
