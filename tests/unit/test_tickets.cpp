// SPDX-License-Identifier: GPL-2.0-or-later
// Tickets: who signs them and how long a key does, which ones a guest takes and for what, and what
// becomes of the job when one is refused.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agentd/daemon/ticket_desk.hpp"
#include "kernel/sys/host/fd.hpp"
#include "market/core/orders.hpp"
#include "market/wire/codec.hpp"
#include "tests/unit/guest_bench.hpp"
#include "tests/unit/temp_dir.hpp"

namespace souk::unit {
namespace {

using trust::TicketKeys;
using trust::TicketRing;

constexpr Nanos noon = Nanos::from_s(1'800'000'000), hour = Nanos::from_s(3'600);

constexpr Nanos hours(int64_t n) { return Nanos::from_s(n * 3'600); }
constexpr Nanos days(int64_t n) { return hours(n * 24); }

#define ck_ticket_refused(result, part)                                                       \
    do {                                                                                      \
        const auto& refused_ = (result);                                                      \
        ck_assert_msg(!refused_, "%s is taken", #result);                                     \
        ck_assert_msg(refused_.error().message.find(part) != std::string::npos,               \
                      "'%s' does not say '%s'", refused_.error().message.c_str(), part);      \
        ck_assert_msg(refused_.error().message.find('\n') == std::string::npos, "two lines"); \
    } while (0)

// ---- keys

START_TEST(what_the_ring_seals_its_nodes_open) {
    const TempDir dir;
    const auto ring = TicketRing::open(dir.path, noon);
    ck_assert(ring.has_value());
    const auto keys = TicketKeys::parse(*ring->public_text());
    ck_assert(keys && keys->size() == 1);
    const std::string sealed = *ring->seal("an order", noon);
    const auto body = keys->open(sealed);
    ck_assert(body && *body == "an order");
    for (size_t i = 0; i < sealed.size(); ++i) {
        std::string forged = sealed;
        forged[i] = static_cast<char>(forged[i] ^ 1);
        ck_assert_msg(!keys->open(forged), "byte %zu does not count", i);
        ck_assert_msg(!keys->open(sealed.substr(0, i)), "%zu bytes are enough", i);
    }
    ck_ticket_refused(keys->open(sealed + "."), "has not signed");
    ck_ticket_refused(TicketKeys{}.open(sealed), "has not been told");
    const TempDir other;
    const auto foreign = TicketRing::open(other.path, noon);
    ck_ticket_refused(keys->open(*foreign->seal("an order", noon)), "does not use");
}
END_TEST

START_TEST(a_ring_is_private_and_read_again) {
    const TempDir dir;
    const std::string path = dir.path + "/ticket.keys";
    const std::string text = *TicketRing::open(dir.path, noon)->public_text();
    struct stat s {};
    ck_assert(::stat(path.c_str(), &s) == 0 && (s.st_mode & 0777) == 0600);
    ck_assert_text(*TicketRing::open(dir.path, noon + days(1))->public_text(), text);
    ck_assert(::chmod(path.c_str(), 0644) == 0);
    ck_ticket_refused(TicketRing::open(dir.path, noon), "chmod 600");
    for (const char* bad : {"", "souk ticket keys 1\n", "souk ticket keys 1\nkey 00 1\n",
                            "souk ticket keys 1\nkey zz", "souk ticket keys 2\n"}) {
        ck_assert(replace_file(path, bad, 0600, false).has_value());
        ck_ticket_refused(TicketRing::open(dir.path, noon), "ticket keys");
    }
}
END_TEST

START_TEST(a_key_is_known_a_day_before_it_signs_and_a_day_after) {
    const TempDir dir;
    auto ring = TicketRing::open(dir.path, noon);
    const std::string first = *ring->public_text();
    ck_assert(!*ring->turn(noon + days(28)));
    Nanos now = noon + days(29);
    ck_assert(*ring->turn(now));
    const auto both = TicketKeys::parse(*ring->public_text());
    ck_assert(both->size() == 2);
    // the old one still signs, so that who has not heard of the new one yet can read it
    ck_assert(TicketKeys::parse(first)->open(*ring->seal("x", now + hours(23))).has_value());
    now += days(1);
    const std::string sealed = *ring->seal("x", now);
    ck_ticket_refused(TicketKeys::parse(first)->open(sealed), "does not use");
    ck_assert(both->open(sealed).has_value());
    ck_assert(!*ring->turn(now + hours(23)));
    ck_assert(*ring->turn(now + days(1)));
    ck_assert(TicketKeys::parse(*ring->public_text())->size() == 1);
    // after a rest of a year there are still keys that nodes know before they sign
    const auto before = TicketKeys::parse(*ring->public_text());
    ck_assert(*ring->turn(now + days(365)));
    ck_assert(before->open(*ring->seal("x", now + days(365))).has_value());
    ck_assert_text(*TicketRing::open(dir.path, now)->public_text(), *ring->public_text());
}
END_TEST

START_TEST(a_node_keeps_the_keys_that_it_was_told) {
    const TempDir dir, market;
    const auto ring = TicketRing::open(market.path, noon);
    auto desk = TicketDesk::open(dir.path);
    ck_assert(desk.has_value());
    GuestCommand c;
    Ticket ticket;
    ticket.id = guests::job;
    ticket.destination = "n2";
    ticket.keys = {std::string(64, 'a'), std::string(64, 'b')};
    ticket.issued = noon;
    c.ticket = *ring->seal(wire::pack(ticket), noon);
    const trust::Revocations nobody, b{1, {{std::string(64, 'b'), "n2"}}};
    ck_assert(!desk->warrant(c, nobody, {}, noon).ticket.has_value());
    const trust::Key authority = *trust::Key::make();
    ck_assert(desk->told({*ring->public_text(), noon, ""}, authority, Nanos::from_s(5), noon - hour)
                  .has_value());
    ck_assert(desk->behind() == hour);
    const Warrant w = desk->warrant(c, nobody, Nanos::from_s(8), noon + days(30));
    ck_assert(w.ticket == ticket);
    ck_assert(w.now == noon + Nanos::from_s(3));  // by the market's clock, whatever its own shows
    const Warrant revoked = desk->warrant(c, b, {}, noon);
    ck_assert(!revoked.ticket && revoked.trouble == "the ticket names n2, whose key was revoked");
    // the market is away, and the daemon was started again
    const auto again = TicketDesk::open(dir.path);
    const Warrant alone = again->warrant(c, nobody, Nanos::from_s(8), noon + days(1));
    ck_assert(alone.ticket == ticket && alone.now == noon + days(1));
    ck_ticket_refused(desk->told({"key 0\n", noon, ""}, authority, {}, noon), "ticket keys");
    ck_assert(desk->warrant(c, nobody, {}, noon).ticket.has_value());
    ck_assert(replace_file(dir.path + "/ticket-keys", "nonsense\n", 0644, false).has_value());
    ck_ticket_refused(TicketDesk::open(dir.path), "ticket-keys");
}
END_TEST

// ---- the signed list

// A node, and the market that has signed lists for it.
struct Listed {
    const TempDir dir, market;
    trust::Key authority = *trust::Key::make();
    TicketRing ring = *TicketRing::open(market.path, noon);
    TicketDesk desk = *TicketDesk::open(dir.path);

    std::string list(Nanos now) const {
        return *trust::keep_ticket_list(market.path, *ring.public_text(), authority, now);
    }
    wire::TicketKeys word(const std::string& list) const {
        return {*ring.public_text(), noon, list};
    }
    Status told(const std::string& list) { return desk.told(word(list), authority, {}, noon); }
    bool opens(const TicketRing& by, const TicketDesk& at) const {
        GuestCommand c;
        Ticket ticket;
        ticket.id = guests::job;
        ticket.destination = "n2";
        ticket.issued = noon;
        c.ticket = *by.seal(wire::pack(ticket), noon);
        return at.warrant(c, {}, {}, noon).ticket.has_value();
    }
};

START_TEST(a_list_of_ticket_keys_is_the_authority_s_word_alone) {
    Listed m;
    const TempDir other;
    const auto forged = TicketRing::open(other.path, noon);
    const std::string good = m.list(noon);
    ck_ticket_refused(
        m.told(*trust::sign({UINT64_MAX, *forged->public_text()}, *trust::Key::make())),
        "has not signed");
    for (size_t at = 0; at < good.size(); ++at) {
        std::string damaged = good;
        damaged[at] = static_cast<char>(damaged[at] ^ 1);
        ck_assert(!trust::parse_ticket_list(damaged, m.authority));
        ck_assert(!trust::parse_ticket_list(good.substr(0, at), m.authority));
    }
    ck_assert(!trust::parse_ticket_list(good + "key", m.authority));
    // of the same authority, and another kind of list
    ck_ticket_refused(m.told(*trust::sign(trust::Revocations{7, {}}, m.authority)), "no list");
    ck_assert(m.told(good).has_value() && m.opens(m.ring, m.desk));
    ck_assert(!m.opens(*forged, m.desk));
    // what is told beside it is not read
    wire::TicketKeys both = m.word(good);
    both.keys = *forged->public_text();
    ck_assert(m.desk.told(both, m.authority, {}, noon).has_value());
    ck_assert(!m.opens(*forged, m.desk) && m.opens(m.ring, m.desk));
}
END_TEST

START_TEST(an_older_list_of_ticket_keys_is_not_taken) {
    Listed m;
    const std::string first = m.list(noon);
    ck_assert(m.told(first).has_value());
    ck_assert_text(m.list(noon + days(1)), first);  // no change, no other list
    ck_assert(*m.ring.turn(noon + days(29)));
    const std::string second = m.list(noon + days(29));
    ck_assert(m.told(second).has_value() && m.told(second).has_value());
    ck_ticket_refused(m.told(first), "has taken another one");
    const auto of_second = *trust::parse_ticket_list(second, m.authority);
    ck_ticket_refused(m.told(*trust::sign({of_second.number, ""}, m.authority)), "another one");
    // the market's clock is set back; all of its tickets are ended; its authority is another one
    ck_assert(*m.ring.turn(noon + days(31)));
    ck_assert(m.told(m.list(noon - days(9))).has_value());
    ck_assert(::unlink((m.market.path + "/ticket.keys").c_str()) == 0);
    m.ring = *TicketRing::open(m.market.path, noon);
    ck_assert(m.told(m.list(noon)).has_value() && m.opens(m.ring, m.desk));
    const std::string of_before = m.list(noon);
    m.authority = *trust::Key::make();
    ck_assert(m.list(noon) != of_before);
    ck_assert(m.told(m.list(noon)).has_value());
    ck_ticket_refused(m.told(of_before), "has not signed");
}
END_TEST

// Its keys are those of before, and its nodes have seen later ones.
START_TEST(a_market_that_was_put_back_from_a_backup_is_believed_when_it_is_started) {
    Listed m;
    const std::string first = m.list(noon);
    ck_assert(m.told(first).has_value());
    const std::string keys = *read_file(AT_FDCWD, m.market.path + "/ticket.keys");
    ck_assert(::unlink((m.market.path + "/ticket.keys").c_str()) == 0);
    m.ring = *TicketRing::open(m.market.path, noon + days(1));
    ck_assert(m.told(m.list(noon + days(1))).has_value());
    ck_assert(replace_file(m.market.path + "/ticket.keys", keys, 0600, false).has_value());
    ck_assert(replace_file(m.market.path + "/ticket.list", first, 0644, false).has_value());
    m.ring = *TicketRing::open(m.market.path, noon + days(2));
    ck_ticket_refused(m.told(m.list(noon + days(2))), "has taken another one");
    const auto begins = [&](Nanos now) {
        return trust::keep_ticket_list(m.market.path, *m.ring.public_text(), m.authority, now,
                                       true);
    };
    const std::string anew = *begins(noon + days(2));
    ck_assert(m.told(anew).has_value() && m.opens(m.ring, m.desk));
    ck_assert_text(m.list(noon + days(3)), anew);
    // a clock that was set back; no room: it goes on with what lies there
    ck_assert(m.told(*begins(noon)).has_value());
    const std::string last = m.list(noon);
    ck_assert(::mkdir((m.market.path + "/ticket.list.new").c_str(), 0700) == 0);
    ck_assert_text(*begins(noon + days(4)), last);
}
END_TEST

START_TEST(a_market_that_signs_its_list_is_not_believed_without) {
    Listed m;
    const std::string keys = *m.ring.public_text();
    // one of the version before, until it is replaced
    ck_assert(m.told("").has_value() && m.opens(m.ring, m.desk));
    ck_assert(m.opens(m.ring, *TicketDesk::open(m.dir.path)));
    ck_assert(m.told(m.list(noon)).has_value());
    ck_ticket_refused(m.told(""), "is not signed");
    auto again = TicketDesk::open(m.dir.path);
    ck_assert(m.opens(m.ring, *again));
    ck_ticket_refused(again->told({keys, noon, ""}, m.authority, {}, noon), "is not signed");
    ck_assert(replace_file(m.dir.path + "/ticket-list", "nonsense\n", 0644, false).has_value());
    ck_ticket_refused(TicketDesk::open(m.dir.path), "ticket-list");
}
END_TEST

// ---- what an order allows

START_TEST(an_order_s_ticket_names_both_ends_unless_all_is_at_home) {
    market::Job job;
    JobReport& r = job.record.report;
    r.id = guests::job;
    r.uid = 1000;
    r.user = "ann";
    r.terms.cpus = 2;
    r.terms.memory_mb = 300;
    Order order;
    order.id = guests::job;
    order.seq = 7;
    order.node = "n2";
    order.address = "n2:1";
    auto t = market::Orders::ticket(job, order);
    ck_assert(t && t->id == guests::job && t->number == 7 && t->uid == 1000 && t->user == "ann");
    ck_assert(t->source.empty() && t->destination == "n2" && t->address == "n2:1");
    ck_assert(t->cpus == 2 && t->memory_mb == 300);
    r.phase = JobPhase::running;
    r.where = "n3";
    ck_assert_text(market::Orders::ticket(job, order)->source, "n3");
    order.node = "n1";  // home, from another node
    ck_assert_text(market::Orders::ticket(job, order)->destination, "n1");
    r.where = "n1";
    ck_assert(!market::Orders::ticket(job, order));
    order.node = "n2";
    order.kind = Order::Kind::suspend;
    ck_assert(!market::Orders::ticket(job, order));
}
END_TEST

// ---- what a guest takes

// The guest n2, and what its homes show.
struct Desk {
    GuestTickets tickets{"n2", TicketRule::required};
    Ticket ticket;
    GuestCommand command;
    Warrant warrant;

    explicit Desk(GuestVerb verb = GuestVerb::prepare) {
        ticket.id = command.id = guests::job;
        ticket.number = 5;
        ticket.uid = warrant.uid = 1000;
        ticket.source = verb == GuestVerb::ship ? "n2" : "n3";
        ticket.destination = verb == GuestVerb::ship ? "n3" : "n2";
        ticket.address = "there:1";
        ticket.cpus = 2;
        ticket.memory_mb = 200;
        ticket.issued = noon;
        ticket.expires = noon + ticket_life;
        warrant.now = noon;
        command.verb = verb;
        command.epoch = {1};
        command.new_epoch = {2};
        command.dest = "n3";
        command.dest_address = "elsewhere:1";
        command.cpus = 64;
    }
    Status admit(const char* from = "n1") {
        warrant.ticket = ticket;
        return tickets.admit(from, command, warrant);
    }
};

START_TEST(a_ticket_says_what_the_capsule_gets_and_who_may_send) {
    Desk start(GuestVerb::start), prepare, ship(GuestVerb::ship);
    ck_assert(start.admit() && start.command.cpus == 2 && start.command.memory_mb == 200);
    ck_assert(prepare.admit() && prepare.command.source == "n3");
    ck_assert(ship.admit() && ship.command.dest_address == "there:1");
}
END_TEST

START_TEST(a_ticket_is_refused_for_anything_else) {
    const auto refused = [](GuestVerb verb, const char* part, auto change) {
        Desk d(verb);
        change(d);
        ck_ticket_refused(d.admit(), part);
        ck_assert_uint_eq(d.tickets.mark(), 0);
    };
    for (const GuestVerb verb :
         {GuestVerb::start, GuestVerb::prepare, GuestVerb::keep, GuestVerb::ship}) {
        refused(verb, "is for job n1.2", [](Desk& d) { d.ticket.id.seq = 2; });
        refused(verb, "is for job n9.1", [](Desk& d) { d.ticket.id.home = "n9"; });
        refused(verb, "has expired",
                [](Desk& d) { d.warrant.now = noon + ticket_life + ticket_slack; });
        refused(verb, "the clocks of",
                [](Desk& d) { d.warrant.now = noon - ticket_slack - Nanos{1}; });
    }
    for (const GuestVerb verb : {GuestVerb::start, GuestVerb::prepare, GuestVerb::keep}) {
        refused(verb, "is for node n4", [](Desk& d) { d.ticket.destination = "n4"; });
        refused(verb, "of user 1000, not of user 0", [](Desk& d) { d.warrant.uid = 0; });
        refused(verb, "gives its job no address, not 10.0.0.7", [](Desk& d) {
            d.ticket.names_address = true;
            d.command.spec.address = {0x0a000007};
        });
        Desk older(verb);  // a market of the version before does not say
        older.command.spec.address = {0x0a000007};
        ck_assert(older.admit().has_value());
    }
    refused(GuestVerb::prepare, "a job that begins", [](Desk& d) { d.ticket.source.clear(); });
    refused(GuestVerb::ship, "not for a job on n2", [](Desk& d) { d.ticket.source = "n4"; });
    refused(GuestVerb::ship, "a move to n3, not to n4", [](Desk& d) { d.command.dest = "n4"; });
    refused(GuestVerb::checkpoint, "job's home alone", [](Desk&) {});
}
END_TEST

START_TEST(clocks_may_differ_by_five_minutes) {
    Desk early, late;
    early.warrant.now = noon - ticket_slack;
    ck_assert(early.admit().has_value());
    late.warrant.now = noon + ticket_life + ticket_slack - Nanos{1};
    ck_assert(late.admit().has_value());
}
END_TEST

START_TEST(a_ticket_is_good_once) {
    Desk d;
    ck_assert(d.admit().has_value());
    ck_assert_uint_eq(d.tickets.mark(), 5);
    ck_ticket_refused(d.admit(), "has been used");
    d.command.epoch = {3};
    ck_ticket_refused(d.admit(), "has been used");
    d.ticket.number = 4;
    ck_ticket_refused(d.admit(), "a newer ticket");
    d.ticket.number = 6;
    ck_assert(d.admit().has_value());
    // another job's number may be smaller
    d.ticket.id.seq = d.command.id.seq = 2;
    d.ticket.number = 3;
    ck_assert(d.admit().has_value());
    Desk ship(GuestVerb::ship);
    ck_assert(ship.admit() && ship.admit());  // the same image once more
    ship.command.new_epoch = {3};
    ck_ticket_refused(ship.admit(), "has been used");
}
END_TEST

START_TEST(after_a_restart_no_ticket_of_before_counts) {
    Desk d;
    d.tickets.restored(5);
    ck_ticket_refused(d.admit(), "from before n2's agentd was started");
    d.ticket.number = 6;
    ck_assert(d.admit().has_value());
    ck_assert_uint_eq(d.tickets.mark(), 6);
}
END_TEST

START_TEST(what_was_used_is_forgotten_when_its_time_is_over) {
    Desk d;
    for (uint64_t n = 1; n <= 1000; ++n) {
        d.ticket.id.seq = d.command.id.seq = d.ticket.number = n;
        d.ticket.issued = d.warrant.now = noon + Nanos::from_s(static_cast<int64_t>(n) * 60);
        d.ticket.expires = d.ticket.issued + ticket_life;
        ck_assert(d.admit().has_value());
    }
    // one that is still good is still known
    d.ticket.id.seq = d.command.id.seq = d.ticket.number = 999;
    ck_ticket_refused(d.admit(), "has been used");
}
END_TEST

START_TEST(who_needs_no_ticket_is_asked_for_none) {
    Desk d;
    GuestTickets none{"n2", TicketRule::none}, accepted{"n2", TicketRule::accepted};
    const Warrant nothing;
    Warrant bad;
    bad.trouble = "the market has not signed this ticket";
    ck_assert(d.tickets.admit("n2", d.command, nothing).has_value());  // its own home
    ck_assert(none.admit("n1", d.command, bad).has_value());
    ck_assert(accepted.admit("n1", d.command, nothing).has_value());
    ck_ticket_refused(accepted.admit("n1", d.command, bad), "has not signed");
    ck_ticket_refused(d.tickets.admit("n1", d.command, nothing), "shows none");
    ck_ticket_refused(d.tickets.admit("n1", d.command, bad), "has not signed");
    for (const GuestVerb verb :
         {GuestVerb::query, GuestVerb::prepare_dump, GuestVerb::freeze, GuestVerb::commit,
          GuestVerb::resume, GuestVerb::release, GuestVerb::restore_here, GuestVerb::drop,
          GuestVerb::kill, GuestVerb::signal}) {
        d.command.verb = verb;
        ck_assert(d.tickets.admit("n1", d.command, nothing).has_value());
    }
    d.command.verb = GuestVerb::checkpoint;
    d.command.dest = "n1";
    ck_assert(d.tickets.admit("n1", d.command, nothing).has_value());
}
END_TEST

// ---- a guest that asks for them

struct Asking : guests::Bench {
    Desk desk{GuestVerb::start};
    Asking() { g = Guest(16, true, {}, {"n2", TicketRule::required}); }
    Asking& show(GuestVerb verb, uint64_t epoch, bool with_ticket = true) {
        Desk d(verb);
        d.ticket.number = desk.ticket.number++;
        if (with_ticket) d.warrant.ticket = d.ticket;
        d.command.epoch = {epoch};
        d.command.new_epoch = {epoch + 1};
        out.clear();
        g.command("n1", d.command, out, d.warrant);
        return *this;
    }
    bool audited(bool good) const {
        for (const auto& o : out)
            if (const auto* a = std::get_if<guest::Audit>(&o)) return a->why.empty() == good;
        return false;
    }
    std::optional<uint64_t> kept() const {
        for (const auto& o : out)
            if (const auto* m = std::get_if<guest::KeepMark>(&o)) return m->mark;
        return std::nullopt;
    }
};

START_TEST(a_start_without_a_ticket_fails_with_the_reason) {
    Asking a;
    a.show(GuestVerb::start, 1, false);
    ck_assert(a.audited(false) && !a.kept());
    ck_assert(a.text().find(">failed(n2 wants the market's ticket") != std::string::npos);
    a.show(GuestVerb::start, 2);
    ck_assert(a.audited(true) && a.kept() == 6u);
    ck_assert(a.text().find("create_capsule") != std::string::npos);
    // the same again, as a home does that has not heard the answer: nothing new is asked for
    a.show(GuestVerb::start, 2, false);
    ck_assert(a.text().find(">starting") != std::string::npos);
}
END_TEST

START_TEST(a_ship_without_a_ticket_leaves_the_job_running) {
    Asking a;
    a.show(GuestVerb::start, 1);
    a.ended(guest::CapsuleReady{}).ended(guest::JobStarted{});
    a.show(GuestVerb::prepare_dump, 1, false).criu_ready();
    ck_assert(a.state() == GuestState::dump_ready);
    a.show(GuestVerb::ship, 1, false);
    ck_assert(a.audited(false));
    ck_assert(a.text().find("undo_dump") != std::string::npos);
    a.undone();
    ck_assert(a.text().find(">running(n2 wants the market's ticket") != std::string::npos);
    a.show(GuestVerb::query, 1, false);
    ck_assert_text(a.text(), ">running");  // the reason was of that move
    a.show(GuestVerb::prepare_dump, 1, false).criu_ready();
    a.show(GuestVerb::ship, 1);
    ck_assert(a.text().find("send_precopy") != std::string::npos);
}
END_TEST

START_TEST(a_frozen_image_goes_nowhere_without_a_ticket) {
    Asking a;
    a.recovered(GuestState::frozen, false, {.image_complete = true});
    a.show(GuestVerb::ship, 1, false);
    ck_assert(a.text().find(">frozen(n2 wants the market's ticket") != std::string::npos);
    a.show(GuestVerb::query, 1, false);
    ck_assert_text(a.text(), ">frozen");
    a.show(GuestVerb::ship, 1);
    ck_assert(a.text().find("ship") != std::string::npos && a.audited(true));
    // To its home without, and to nobody else.
    Asking b;
    b.recovered(GuestState::frozen, false, {.image_complete = true});
    b.show(GuestVerb::checkpoint, 1);  // to n3
    ck_assert(b.text().find(">frozen(a checkpoint goes") != std::string::npos);
    GuestCommand home;
    home.id = guests::job;
    home.epoch = {1};
    home.verb = GuestVerb::checkpoint;
    home.new_epoch = {2};
    home.dest = "n1";
    b.out.clear();
    b.g.command("n1", home, b.out);
    ck_assert_text(b.text(), "ship");
}
END_TEST

START_TEST(a_checkpoint_goes_to_nobody_but_the_home) {
    Asking a;
    a.show(GuestVerb::start, 1);
    a.ended(guest::CapsuleReady{}).ended(guest::JobStarted{});
    a.show(GuestVerb::checkpoint, 1);  // to n3
    ck_assert(a.text().find(">running(a checkpoint goes") != std::string::npos);
    ck_assert(a.text().find("ready_criu") == std::string::npos);
}
END_TEST

START_TEST(an_image_comes_from_the_ticket_s_source_alone) {
    Asking a;
    a.show(GuestVerb::prepare, 1);
    a.ended(guest::CapsuleReady{}).criu_ready();
    ck_assert(a.g.takes_image_from(guests::key, "n3"));
    ck_assert(!a.g.takes_image_from(guests::key, "n4"));
    ck_assert(!a.g.takes_image_from({guests::job, {9}}, "n3"));
    // without tickets from whom its home says
    guests::Bench b;
    GuestCommand keep;
    keep.id = guests::job;
    keep.epoch = {1};
    keep.verb = GuestVerb::keep;
    keep.source = "n7";
    b.g.command("n1", keep, b.out);
    b.ended(guest::CapsuleReady{});
    ck_assert(b.g.takes_image_from(guests::key, "n7"));
    ck_assert(!b.g.takes_image_from(guests::key, "n3"));
}
END_TEST

UNIT_SUITE(
    tickets, what_the_ring_seals_its_nodes_open, a_ring_is_private_and_read_again,
    a_key_is_known_a_day_before_it_signs_and_a_day_after, a_node_keeps_the_keys_that_it_was_told,
    a_list_of_ticket_keys_is_the_authority_s_word_alone, an_older_list_of_ticket_keys_is_not_taken,
    a_market_that_was_put_back_from_a_backup_is_believed_when_it_is_started,
    a_market_that_signs_its_list_is_not_believed_without,
    an_order_s_ticket_names_both_ends_unless_all_is_at_home,
    a_ticket_says_what_the_capsule_gets_and_who_may_send, a_ticket_is_refused_for_anything_else,
    clocks_may_differ_by_five_minutes, a_ticket_is_good_once,
    after_a_restart_no_ticket_of_before_counts, what_was_used_is_forgotten_when_its_time_is_over,
    who_needs_no_ticket_is_asked_for_none, a_start_without_a_ticket_fails_with_the_reason,
    a_ship_without_a_ticket_leaves_the_job_running, a_frozen_image_goes_nowhere_without_a_ticket,
    a_checkpoint_goes_to_nobody_but_the_home, an_image_comes_from_the_ticket_s_source_alone);

}  // namespace
}  // namespace souk::unit
