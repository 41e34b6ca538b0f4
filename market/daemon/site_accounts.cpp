// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/site_accounts.hpp"

#include <algorithm>

#include "kernel/base/json.hpp"
#include "kernel/base/number.hpp"
#include "kernel/sys/host/clock.hpp"
#include "market/wire/site_codec.hpp"

namespace souk {
namespace {

constexpr const char* kind_site_account = "site-account";
constexpr size_t entries_page_max = 500;
constexpr Nanos tell_pace = Nanos::from_s(1);

Status check_note(const std::string& note) {
    const bool plain = std::ranges::none_of(
        note, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; });
    if (plain && note.size() <= settlement_note_bytes_max) return {};
    return fail(CauseCode::invalid, "a note is one line of at most " +
                                        std::to_string(settlement_note_bytes_max) + " bytes");
}

void write_statement(JsonWriter& j, const char* key, const SiteStatement& s) {
    if (s.id == 0) return;
    j.key(key).begin_object().field("amount", s.amount);
    if (!s.note.empty()) j.field("note", s.note);
    if (s.withdrawn) j.field("withdrawn", true);
    j.end_object();
}

}  // namespace

Status SiteAccounts::open() {
    return records_.state().read_all(kind_site_account, [this](const StateDb::Row& row) -> Status {
        TRY_ASSIGN(stored_[row.key], wire::unpack<SiteSettlement>(row.value));
        return {};
    });
}

void SiteAccounts::opened() {
    for (const auto& [key, settlement] : std::exchange(stored_, {}))
        records_.state().erase(kind_site_account, key);
}

void SiteAccounts::close() { later_.cancel(); }

void SiteAccounts::peer_known(const SitePeer& record) {
    Peer& peer = peers_[record.name];
    const uint32_t account = market::site_account(record.account);
    market_.credit().know(record.name, account, record.terms.credit, record.nodes_had);
    steps_.wake();
    if (peer.account == account) return;
    peer = Peer{};
    peer.account = account;
    peer.number = record.account;
    if (auto stored = stored_.extract(std::to_string(record.account)); !stored.empty())
        peer.settlement = std::move(stored.mapped());
    else
        peer.settlement.answered = SiteSettlement::number_at(record.added), peer.is_changed = true;
    records_.sites().set_own(sites_.name());
    if (const Status known = records_.sites().know(record.name, account); !known)
        warnings_.add(
            "nothing is entered in the book with site " + record.name +
            " until the market is started again, as it cannot be read: " + known.error().message);
    const SiteSettlement& s = peer.settlement;
    if (s.entries > 0) records_.sites().heard(record.name, ReceiptMark{s.entries, s.head}.text());
}

void SiteAccounts::peer_gone(const std::string& site) {
    const auto it = peers_.find(site);
    if (it == peers_.end()) return;
    // Its account's number is given to no other, so its record would never be read again.
    records_.state().erase(kind_site_account, std::to_string(it->second.number));
    peers_.erase(it);
    market_.credit().forget(site);
    records_.sites().forget(site);
    steps_.wake();
}

void SiteAccounts::site_up(const std::string& site) {
    const auto it = peers_.find(site);
    if (it == peers_.end()) return;
    it->second.said.reset();
    it->second.is_due = true;
    steps_.wake();
}

void SiteAccounts::changed(Peer& peer) {
    peer.is_changed = peer.is_due = true;
    steps_.wake();
}

// ---- what people see

void SiteAccounts::count() {
    if (std::exchange(counted_at_, Loop::now()) == Loop::now()) return;
    counts_.clear();
    for (const auto& [id, job] : market_.jobs()) {
        if (job.phase() == JobPhase::finished) continue;
        if (const auto site = of_site(id.home).site; !site.empty()) {
            Counts& c = counts_[std::string(site)];
            ++c.guests;
            c.cpus += job.record.report.terms.cpus;
        } else if (market::is_lent(job)) {
            ++counts_[job.record.loan->site].lent;
        }
    }
}

void SiteAccounts::describe(const std::string& site, bool money, JsonWriter& j) {
    count();
    const Counts& c = counts_[site];
    j.field("guests", c.guests).field("guest_cpus", c.cpus).field("lent", c.lent);
    const auto it = peers_.find(site);
    if (!money || it == peers_.end()) return;
    const Peer& peer = it->second;
    j.field("owes", market_.credit().owed(site, Loop::now()));
    // It says what is owed to it; here a debt of the peer is above 0.
    if (peer.claim) j.field("owes_by_its_word", Money{-peer.claim->owed.micro});
    write_statement(j, "we_paid", peer.settlement.ours);
    write_statement(j, "it_paid", peer.settlement.theirs);
}

// ---- payments

wire::CtlReply SiteAccounts::settle(const wire::CtlRequest& request) {
    return wire::reply_to(request.request, settled(request));
}

Result<std::string> SiteAccounts::settled(const wire::CtlRequest& request) {
    const std::vector<std::string>& args = request.args;
    if (request.uid != market::root_uid)
        return fail(CauseCode::not_allowed, "only an operator may do that: root, on the market");
    if (args.size() < 2) return fail("peer-settle takes a site, and what became of a payment");
    const auto it = peers_.find(args[0]);
    if (it == peers_.end())
        return fail(CauseCode::not_found, "there is no peer " + args[0] + " (souk peer list)");
    Peer& peer = it->second;
    const std::string& verb = args[1];
    SiteSettlement next = peer.settlement;
    Money amount;
    if (args.size() > 2) {
        TRY_ASSIGN(amount, parse_money(args[2]));
    }
    std::string said;
    if (verb == "pay" && args.size() == 4) {
        TRY(check_note(args[3]));
        if (!sites_.settles(args[0]))
            return fail(CauseCode::away, "site " + args[0] +
                                             " is not connected, or of a version that knows no "
                                             "payments");
        TRY(next.state(amount, args[3], unix_now(), peer.claim ? peer.claim->answered : 0));
        said = "site " + args[0] + " is told that it was paid " + format_money(amount) +
               "; both books have it when its operator confirms that (souk peer status)";
    } else if (verb == "confirm" && args.size() == 3) {
        TRY_ASSIGN(const SiteSettlement::Booking booking, next.confirm(amount));
        TRY(book(args[0], peer, booking));
        said = "site " + args[0] + " has paid " + format_money(amount) +
               ": it is booked here, and "
               "there when it hears of it";
    } else if (verb == "refuse" && args.size() == 2) {
        TRY(next.refuse());
        said = "site " + args[0] + " is told that nothing has come";
    } else if (verb == "withdraw" && args.size() == 2) {
        TRY(next.withdraw());
        said = "our word is taken back when site " + args[0] +
               " has heard so, unless it has "
               "confirmed it before";
    } else {
        return fail("peer-settle: pay AMOUNT NOTE, confirm AMOUNT, refuse, or withdraw");
    }
    peer.settlement = std::move(next);
    changed(peer);
    log_.notice("a payment between sites",
                {{"site", args[0]}, {"STEP", verb}, {"amount", format_money(amount)}});
    JsonWriter j;
    j.begin_object().field("site", args[0]).field("message", said);
    write_statement(j, "we_paid", peer.settlement.ours);
    write_statement(j, "it_paid", peer.settlement.theirs);
    j.field("owes", market_.credit().owed(args[0], Loop::now()));
    return j.end_object().take();
}

Status SiteAccounts::book(const std::string& site, Peer& peer,
                          const SiteSettlement::Booking& booking) {
    TRY(market_.settle_site(peer.account, site, booking.paid, booking.note, market::root_uid,
                            Loop::now()));
    records_.sites().settles(site, booking.id);
    return {};
}

// ---- the level

Status SiteAccounts::heard(const Connection& c, const wire::Frame& f) {
    if (!sites_.charge_level(c.node))
        return fail(CauseCode::too_many, "it says too often what is owed");
    TRY_ASSIGN(SiteAccount word, wire::unpack<SiteAccount>(f.body));
    const auto it = peers_.find(c.node);
    if (it == peers_.end()) return {};
    Peer& peer = it->second;
    const SiteSettlement before = peer.settlement;
    if (!peer.settlement.takes_mark(word))
        log_.limited("book " + c.node, Loop::now(), Level::warning,
                     "the book of a peer is not the one that it has told of before",
                     {{"site", c.node}, {"do", "marketctl ledger verify --peer " + c.node}});
    else if (word.entries > 0)
        records_.sites().heard(c.node, ReceiptMark{word.entries, word.head}.text());
    take_answer(c.node, peer, word);
    if (const SiteStatement& s = peer.settlement.theirs; s.id != 0 && s.id != before.theirs.id)
        log_.limited("paid " + c.node, Loop::now(), Level::notice, "a peer says that it has paid",
                     {{"site", c.node},
                      {"amount", format_money(s.amount)},
                      {"do", "souk peer settle " + c.node + " --confirm AMOUNT, or --refuse"}});
    peer.claim = std::move(word);
    if (!(peer.settlement == before)) changed(peer);
    return {};
}

// It may have confirmed our statement. If that cannot be booked the statement stays, and is
// answered again when the two are connected anew.
void SiteAccounts::take_answer(const std::string& site, Peer& peer, const SiteAccount& word) {
    const SiteStatement ours = peer.settlement.ours;
    const bool is_passed = peer.settlement.is_passed(word);
    const auto booking = peer.settlement.heard(word);
    if (is_passed)
        log_.warning("a peer has answered a later payment than the open one, which is dropped",
                     {{"site", site},
                      {"amount", format_money(ours.amount)},
                      {"do", "marketctl ledger verify --peer " + site}});
    if (!booking) return;
    if (const Status booked = book(site, peer, *booking); !booked) {
        peer.settlement.ours = ours;
        return log_.limited("unbooked " + site, Loop::now(), Level::error,
                            "a payment that a peer confirms cannot be booked",
                            {{"site", site}, {"WHY", booked.error()}});
    }
    log_.notice("a peer confirms a payment",
                {{"site", site}, {"amount", format_money(ours.amount)}});
}

void SiteAccounts::look_at_guests(const std::string& site, Peer& peer) {
    const bool overstays = market_.credit().overstays(site, Loop::now());
    if (std::exchange(peer.overstays, overstays) == overstays || !overstays) return;
    log_.notice("a peer owes as much as it may, and its jobs do not go home",
                {{"site", site}, {"do", "pvdctl evict JOB, on its node"}});
}

void SiteAccounts::tell() {
    for (const std::string& site : records_.sites().take_changed())
        if (const auto it = peers_.find(site); it != peers_.end()) it->second.is_due = true;
    Nanos next = Nanos::never();
    for (auto& [site, peer] : peers_) {
        if (std::exchange(peer.is_changed, false))
            records_.state().put(kind_site_account, std::to_string(peer.number),
                                 wire::pack(peer.settlement));
        look_at_guests(site, peer);
        if (!peer.is_due || !sites_.settles(site)) continue;
        if (Loop::now() < peer.said_at + tell_pace) {
            next = std::min(next, peer.said_at + tell_pace);
            continue;
        }
        peer.is_due = false;
        SiteAccount word;
        const ReceiptMark newest = records_.sites().newest(site);
        word.entries = newest.seq;
        word.head = newest.head;
        word.owed = market_.credit().posted(site);
        peer.settlement.say(word);
        if (peer.said == word) continue;
        peer.said = word;
        peer.said_at = Loop::now();
        records_.state().journal().then([this, site = site, word] {
            if (sites_.settles(site)) sites_.send(site, word);
        });
    }
    if (next == Nanos::never())
        later_.cancel();
    else
        later_ = loop_.at(next, [this] { steps_.wake(); });
}

// ---- entries

wire::CtlReply SiteAccounts::entries(const wire::CtlRequest& request,
                                     const std::string& asker) const {
    std::string next;
    wire::CtlReply reply = wire::reply_to(request.request, page(request, asker, next));
    if (reply.ok) reply.next = std::move(next);
    return reply;
}

Result<std::string> SiteAccounts::page(const wire::CtlRequest& request, const std::string& asker,
                                       std::string& next) const {
    const bool own = asker.empty();
    if (own && request.uid != market::root_uid)
        return fail(CauseCode::not_allowed, "only root may see what sites owe each other");
    if (request.args.size() != (own ? 1 : 0))
        return fail(own ? "site-entries takes a site" : "a site sees what is between it and this");
    const std::string& site = own ? request.args[0] : asker;
    const auto it = peers_.find(site);
    if (it == peers_.end())
        return fail(CauseCode::not_found, "there is no peer " + site + " (souk peer list)");
    const auto after = request.after.empty() ? 0 : whole_number<uint64_t>(request.after);
    if (!after || *after > INT64_MAX)
        return fail("'" + request.after.substr(0, 40) + "' is not where the entries go on");
    TRY_ASSIGN(const auto texts, records_.sites().after(site, *after, entries_page_max));
    JsonWriter j;
    j.begin_object().field("site", sites_.name()).field("peer", site);
    j.field("at_unix_s", unix_now().seconds());
    if (own && request.after.empty()) {
        const SiteSettlement& s = it->second.settlement;
        if (s.entries > 0) j.field("told", ReceiptMark{s.entries, s.head}.text());
        write_open(site, j);
    }
    j.key("entries").begin_array();
    for (const std::string& text : texts) j.value(text);
    j.end_array();
    if (texts.size() == entries_page_max) next = std::to_string(*after + texts.size());
    return j.end_object().take();
}

// Names the jobs of which receipts may still come on either side.
void SiteAccounts::write_open(const std::string& site, JsonWriter& j) const {
    bool all = true;
    j.key("open").begin_array();
    for (const auto& [id, job] : market_.jobs()) {
        const bool guest = of_site(id.home).site == site && job.phase() != JobPhase::finished;
        if (!guest && job.record.loan->site != site) continue;
        if (j.bytes() > wire::json_part_bytes) {
            all = false;
            break;
        }
        j.value(guest ? id.text() : sites_.name() + ":" + id.text());
    }
    j.end_array();
    if (!all) j.field("open_more", true);
}

}  // namespace souk
