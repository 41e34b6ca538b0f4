// SPDX-License-Identifier: GPL-2.0-or-later
// The journal works on a store that fails when it is told to. These tests check which records are
// durable before a message leaves, which record wins, what a failed commit holds back, and when the
// reserve of room goes and comes.
#include "kernel/base/journal.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <map>

#include "kernel/base/rng.hpp"
#include "kernel/sys/store/journal_db.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;

namespace {

struct Store final : Journal::Store {
    std::map<RecordName, std::string> rows;
    int fails = 0;         // so many commits, from now on
    bool reserve = false;  // there is one; giving it up ends the trouble
    bool room = true;      // for a new one
    int commits = 0;
    Status commit(const Changes& changes) override {
        if (fails > 0) {
            --fails;
            return tl::unexpected(Error{ENOSPC, "no room"});
        }
        ++commits;
        for (const auto& [name, value] : changes) {
            if (value)
                rows[name] = *value;
            else
                rows.erase(name);
        }
        return {};
    }
    bool give_room() override {
        if (!reserve) return false;
        reserve = false;
        fails = 0;
        return true;
    }
    bool take_room() override { return reserve = room; }
    bool traces = false, may_scrub = true;
    int scrubs = 0;
    bool leaves_traces() const override { return traces; }
    bool scrub() override {
        ++scrubs;
        return may_scrub;
    }
    std::string row(const char* kind, const char* key) const {
        const auto it = rows.find({kind, key});
        return it == rows.end() ? "none" : it->second;
    }
};

// A daemon that notes each message that it lets go, together with the records that were durable
// then.
struct Daemon {
    Store store;
    Journal journal{store};
    Nanos now = Nanos::from_s(100);
    std::string said;

    void put(const char* key, const char* value, Durable when = Durable::now) {
        journal.put("job", key, value, when);
    }
    void say(const std::string& word) {
        journal.then([this, word] { said += word + " "; });
    }
    std::string row(const char* key) const { return store.row("job", key); }
    Journal::Flushed flush() {
        Journal::Flushed flushed = journal.flush(now);
        for (const Journal::Call& call : flushed.calls) call();
        return flushed;
    }
    // The end of an iteration, if anything is due; whether it was.
    bool end() {
        const bool due = journal.due();
        if (due) (void)flush();
        return due;
    }
    void tick(Nanos after) {
        now += after;
        journal.tick(now);
        (void)end();
    }
};

constexpr Nanos s = Nanos::from_s(1), ms = Nanos::from_ms(1);

}  // namespace

START_TEST(what_a_step_says_leaves_in_order_when_its_records_are_durable) {
    Daemon d;
    ck_assert(!d.journal.due());
    d.put("1", "a");
    std::string seen;
    d.journal.then([&] { seen = d.row("1") + d.row("2"); });
    d.say("one");
    d.put("2", "b");
    d.say("two");
    ck_assert_text(d.row("1"), "none");
    ck_assert_text(d.said, "");
    ck_assert(d.end());
    ck_assert_text(seen, "ab");
    ck_assert_text(d.said, "one two ");
    ck_assert_int_eq(d.store.commits, 1);
    ck_assert(!d.journal.due() && d.journal.next() == Nanos::never());
}
END_TEST

START_TEST(without_a_record_that_is_due_words_leave_without_a_commit) {
    Daemon d;
    d.say("hello");
    ck_assert(d.end());
    d.put("1", "a", Durable::later);
    d.say("again");
    ck_assert(d.end());
    ck_assert_text(d.said, "hello again ");
    ck_assert_int_eq(d.store.commits, 0);
}
END_TEST

START_TEST(what_is_said_by_what_left_waits_for_its_own_commit) {
    Daemon d;
    d.put("1", "a");
    d.journal.then([&] {
        d.put("2", "b");
        d.say("then");
    });
    (void)d.flush();
    ck_assert_text(d.said, "");
    ck_assert_text(d.row("2"), "none");
    ck_assert(d.end());
    ck_assert_text(d.said, "then ");
    ck_assert_text(d.row("2"), "b");
}
END_TEST

START_TEST(the_newest_record_of_a_name_wins_however_urgent_each_is) {
    const Durable all[] = {Durable::now, Durable::soon, Durable::later};
    for (const Durable first : all)
        for (const Durable second : all) {
            Daemon d;
            d.put("1", "old", first);
            d.put("1", "new", second);
            ck_assert_text(d.journal.noted("job", "1")->value(), "new");
            (void)d.end();
            ck_assert(d.row("1") != "old" || second == Durable::soon);
            d.tick({});
            d.tick(s);
            ck_assert_text(d.row("1"), "new");
            ck_assert(!d.journal.has_changes() && d.journal.next() == Nanos::never());
        }
}
END_TEST

START_TEST(an_erase_takes_away_what_was_put_before_it_and_nothing_after_it) {
    const Durable all[] = {Durable::now, Durable::soon, Durable::later};
    for (const Durable before : all)
        for (const Durable after : all) {
            Daemon d;
            d.put("1", "there");
            (void)d.end();
            d.put("1", "a", before);
            d.put("2", "b", before);
            d.journal.erase("job", "1");
            d.journal.erase("job", "2");
            ck_assert(!d.journal.noted("job", "1")->has_value());
            d.put("2", "c", after);
            (void)d.end();
            d.tick({});
            d.tick(s);
            ck_assert_text(d.row("1"), "none");
            ck_assert_text(d.row("2"), "c");
        }
}
END_TEST

START_TEST(a_soon_record_is_committed_when_what_its_step_said_has_left) {
    Daemon d;
    d.put("1", "a", Durable::soon);
    d.say("word");
    ck_assert(d.end());
    ck_assert_text(d.said, "word ");
    ck_assert_int_eq(d.store.commits, 0);
    ck_assert(d.journal.next() == d.now);
    d.tick({});
    ck_assert_text(d.row("1"), "a");
    ck_assert(d.journal.next() == Nanos::never());
}
END_TEST

START_TEST(of_two_soon_records_only_the_newer_may_be_lost) {
    Daemon d;
    d.put("1", "a", Durable::soon);
    d.put("2", "x", Durable::soon);
    d.put("1", "b", Durable::soon);
    d.say("word");
    std::string seen;
    d.journal.then([&] { seen = d.row("1") + " " + d.row("2"); });
    ck_assert(d.end());
    ck_assert_text(seen, "a none");
    d.tick({});
    ck_assert_text(d.row("1") + d.row("2"), "bx");
    ck_assert_int_eq(d.store.commits, 2);
}
END_TEST

START_TEST(a_record_that_replaces_a_soon_one_is_not_later_than_that) {
    Daemon d;
    d.put("1", "a", Durable::soon);
    d.put("1", "b", Durable::later);
    (void)d.end();
    d.tick({});
    ck_assert_text(d.row("1"), "b");
}
END_TEST

START_TEST(a_later_record_goes_with_the_next_commit_and_within_a_second) {
    Daemon d;
    d.put("1", "a", Durable::later);
    (void)d.end();
    ck_assert(d.journal.next() == d.now + s);
    d.tick(ms);
    ck_assert_text(d.row("1"), "none");
    d.put("2", "b", Durable::later);  // does not wait longer for that
    (void)d.end();
    d.tick(Nanos::from_ms(999));
    ck_assert_text(d.row("1") + d.row("2"), "ab");
    ck_assert_int_eq(d.store.commits, 1);

    d.put("3", "c", Durable::later);
    (void)d.end();
    d.put("4", "d");
    (void)d.end();
    ck_assert_text(d.row("3") + d.row("4"), "cd");
    ck_assert_int_eq(d.store.commits, 2);
    ck_assert(d.journal.next() == Nanos::never());
}
END_TEST

START_TEST(words_after_erases_wait_for_those_and_others_do_not) {
    Daemon d;
    d.put("1", "a");
    (void)d.end();
    d.journal.after_erases([&] { d.said += "none "; });  // there is none: as all words
    (void)d.end();
    ck_assert_text(d.said, "none ");
    d.journal.erase("job", "1");
    ck_assert(d.journal.erases_wait());
    std::string seen;
    d.journal.after_erases([&] {
        seen = d.row("1");
        d.said += "gone ";
    });
    d.say("word");
    (void)d.end();
    ck_assert_text(d.said, "none word ");
    ck_assert_text(d.row("1"), "a");
    d.say("last");
    d.journal.erase("job", "2", Durable::now);  // brings the other along
    (void)d.end();
    ck_assert_text(d.said, "none word gone last ");
    ck_assert_text(seen, "none");
    ck_assert(!d.journal.erases_wait());
}
END_TEST

START_TEST(a_commit_that_fails_lets_nothing_go_until_one_succeeds) {
    Daemon d;
    d.put("0", "old");
    d.journal.erase("job", "9");
    d.journal.after_erases([&] { d.said += "erased "; });
    d.say("one");
    d.store.fails = 3;
    const Journal::Flushed flushed = d.flush();
    ck_assert(!flushed.committed && flushed.calls.empty() && !flushed.gave_room);
    ck_assert_text(flushed.committed.error().message, "no room");
    ck_assert(d.journal.holds() && !d.journal.due());
    ck_assert(d.journal.next() == d.now + s);

    // Meanwhile new records are noted and wait with the rest, however urgent they are.
    d.put("0", "new");
    d.put("1", "a", Durable::soon);
    d.put("1", "b", Durable::soon);
    d.put("2", "c", Durable::later);
    d.say("two");
    ck_assert(!d.end());
    d.tick(Nanos::from_ms(500));
    ck_assert_int_eq(d.store.fails, 2);
    d.tick(Nanos::from_ms(500));
    d.tick(s);
    ck_assert_int_eq(d.store.fails, 0);
    ck_assert(d.journal.holds() && d.said.empty() && d.store.rows.empty());

    d.tick(s);
    ck_assert(!d.journal.holds());
    ck_assert_text(d.said, "erased one two ");
    ck_assert_text(d.row("0") + d.row("1") + d.row("2"), "newac");
    ck_assert_int_eq(d.store.commits, 1);
    d.tick({});
    ck_assert_text(d.row("1"), "b");
    ck_assert(d.journal.next() == Nanos::never());
}
END_TEST

START_TEST(whoever_flushes_while_it_holds_tries_again) {
    Daemon d;
    d.put("1", "a");
    d.say("word");
    d.store.fails = 2;
    (void)d.flush();
    d.now += Nanos::from_ms(300);
    (void)d.flush();
    ck_assert(d.journal.holds() && d.journal.next() == d.now + s);
    (void)d.flush();
    ck_assert(!d.journal.holds());
    ck_assert_text(d.said, "word ");
}
END_TEST

START_TEST(the_reserve_is_given_up_once_and_taken_again_when_there_is_room) {
    Daemon d;
    d.journal.take_room(d.now);
    ck_assert(d.store.reserve && d.journal.next() == Nanos::never());
    d.store.room = false;
    d.store.fails = 5;
    d.put("1", "a");
    d.say("word");
    const Journal::Flushed flushed = d.flush();
    ck_assert(flushed.committed.has_value() && flushed.gave_room);
    ck_assert_text(d.said, "word ");
    ck_assert_text(d.row("1"), "a");
    ck_assert(d.journal.next() == d.now + Nanos::from_s(10));

    d.store.fails = 1;  // and none is left
    d.put("1", "b");
    ck_assert(!d.flush().committed);
    d.tick(s);
    ck_assert_text(d.row("1"), "b");

    d.tick(Nanos::from_s(9));
    ck_assert(!d.store.reserve && d.journal.next() == d.now + Nanos::from_s(10));
    d.store.room = true;
    d.tick(Nanos::from_s(10));
    ck_assert(d.store.reserve && d.journal.next() == Nanos::never());
}
END_TEST

START_TEST(a_reserve_that_is_not_enough_lets_nothing_go) {
    struct Small final : Journal::Store {
        int given = 0;
        Status commit(const Changes&) override { return tl::unexpected(Error{ENOSPC, "no room"}); }
        bool give_room() override { return given++ == 0; }
        bool take_room() override { return false; }
    } small;
    Journal journal(small);
    journal.put("job", "1", "a", Durable::now);
    journal.then([] { ck_abort_msg("it left"); });
    const Journal::Flushed flushed = journal.flush({});
    ck_assert(!flushed.committed && flushed.gave_room && flushed.calls.empty());
    ck_assert(journal.holds() && journal.has_changes());
}
END_TEST

START_TEST(of_what_is_erased_no_traces_are_left_after_ten_seconds) {
    Daemon d;
    d.put("1", "a");
    (void)d.flush();
    ck_assert(d.journal.next() == Nanos::never());
    d.store.traces = true;
    d.put("1", "b");
    (void)d.flush();
    ck_assert(d.journal.next() == Nanos::never());  // nothing was erased
    const Nanos first = d.now + Nanos::from_s(10);
    for (int i = 0; i < 9; ++i) {
        d.journal.erase("job", "1", Durable::now);
        (void)d.flush();
        ck_assert(d.journal.next() == first);  // one for all of them
        d.tick(s);
    }
    ck_assert_int_eq(d.store.scrubs, 0);
    d.store.may_scrub = false;
    d.tick(s);
    ck_assert_int_eq(d.store.scrubs, 1);
    ck_assert(d.journal.next() == d.now + Nanos::from_s(10));
    d.store.may_scrub = true;
    d.tick(Nanos::from_s(10));
    ck_assert_int_eq(d.store.scrubs, 2);
    ck_assert(d.journal.next() == Nanos::never());
}
END_TEST

START_TEST(the_end_commits_what_could_wait_and_says_nothing) {
    Daemon d;
    d.put("1", "a", Durable::soon);
    d.put("2", "b", Durable::later);
    d.say("word");
    ck_assert(d.journal.finish().has_value());
    ck_assert_text(d.row("1") + d.row("2"), "ab");
    ck_assert_text(d.said, "");
}
END_TEST

// Records are put and erased, and messages are sent, while commits fail at random. When a message
// leaves, the records that it relies on are on disk. Messages keep their order, and after a second
// without faults everything is there.
START_TEST(whatever_happens_no_word_leaves_before_what_it_relies_on) {
    for (uint64_t seed = 1; seed <= 300; ++seed) {
        Rng rng(seed);
        Daemon d;
        d.store.room = rng.chance(0.5);
        d.journal.take_room(d.now);
        std::map<std::string, std::optional<uint64_t>> newest;
        std::map<std::string, uint64_t> durable_at_least;  // of `now`, when a word was handed over
        uint64_t n = 0, heard = 0, words = 0;
        const auto have = [&](const std::string& key) {
            const std::string row = d.row(key.c_str());
            return row == "none" ? 0 : std::stoull(row);
        };
        for (int i = 0; i < 200; ++i) {
            const std::string key(1, static_cast<char>('a' + rng.below(3)));
            const uint64_t what = rng.below(10);
            if (what < 5) {
                const auto when = static_cast<Durable>(rng.below(3));
                newest[key] = ++n;
                d.put(key.c_str(), std::to_string(n).c_str(), when);
                if (when == Durable::now) durable_at_least[key] = n;
            } else if (what == 5) {
                newest[key] = std::nullopt;
                durable_at_least.erase(key);
                d.journal.erase("job", key, rng.chance(0.5) ? Durable::now : Durable::later);
            } else if (what < 8) {
                d.journal.then([&, word = ++words, relies = durable_at_least] {
                    ck_assert_uint_eq(++heard, word);
                    // erased since, or newer since: only an older one may not stand there
                    for (const auto& [on, least] : relies)
                        ck_assert(have(on) >= least || have(on) == 0);
                    for (const auto& [on, least] : relies)
                        if (newest[on] && durable_at_least.contains(on))
                            ck_assert(have(on) >= least);
                });
            } else if (what == 8) {
                d.store.fails = static_cast<int>(rng.below(4));
            } else {
                d.tick(rng.chance(0.5) ? Nanos{} : Nanos::from_ms(rng.between(0, 1500)));
            }
            if (rng.chance(0.4)) (void)d.end();
        }
        d.store.fails = 0;
        for (int i = 0; i < 5; ++i) d.tick(s);
        ck_assert_uint_eq(heard, words);
        ck_assert(!d.journal.has_changes());
        for (const auto& [key, value] : newest) ck_assert_uint_eq(have(key), value.value_or(0));
    }
}
END_TEST

START_TEST(on_a_database_records_are_read_through_what_waits) {
    const unit::TempDir dir;
    const std::string reserve = dir.path + "/reserve";
    {
        auto db = StateDb::open(dir.path, 1);
        ck_assert(db.has_value());
        JournalDb state(std::move(*db), reserve);
        state.journal().take_room({});
        ck_assert_int_eq(::access(reserve.c_str(), F_OK), 0);
        state.put("job", "1", "a");
        ck_assert_text(state.get("job", "1").value().value_or("none"), "a");
        ck_assert(state.db().load("job").value().empty());
        ck_assert(state.journal().flush({}).committed.has_value());
        ck_assert_uint_eq(state.db().load("job").value().size(), 1);
        ck_assert_uint_eq(state.db().commits(), 1);
        state.erase("job", "1");
        ck_assert(!state.get("job", "1").value().has_value());
        state.journal().put("job", "2", "b", Durable::soon);
        ck_assert_text(state.get("job", "2").value().value_or("none"), "b");
        ck_assert(state.journal().finish().has_value());
    }
    auto db = StateDb::open(dir.path, 1);
    ck_assert(db.has_value() && !db->get("job", "1").value().has_value());
    ck_assert_text(db->get("job", "2").value().value_or("none"), "b");
    ck_assert(JournalDb::give_up(reserve) && !JournalDb::give_up(reserve) &&
              !JournalDb::give_up(""));
}
END_TEST

// A daemon reads a record that begins well.
Status begins_well(const StateDb::Row& row) {
    if (row.value.starts_with("good")) return {};
    return souk::fail("it begins badly");
}

START_TEST(a_record_that_cannot_be_read_is_set_aside_and_tried_again) {
    const unit::TempDir dir;
    const auto start = [&](const auto& f) {
        auto db = StateDb::open(dir.path, 1);
        ck_assert(db.has_value());
        JournalDb state(std::move(*db));
        f(state);
        ck_assert(state.journal().finish().has_value());
    };
    std::vector<std::string> read;
    const auto note = [&](const StateDb::Row& row) -> Status {
        TRY(begins_well(row));
        read.push_back(row.key);
        return {};
    };
    const std::string list = dir.path + "/aside.txt";
    start([](JournalDb& state) {
        state.put("job", "1", "good one");
        state.put("job", "2", "a bad one");
        state.put("node", "2", "a bad one, too");
    });
    start([&](JournalDb& state) {
        ck_assert(state.read_all("job", note).has_value());
        ck_assert(read == std::vector<std::string>{"1"});
        ck_assert(state.is_aside("job", "2") && !state.is_aside("job", "1"));
        ck_assert_text(read_file(AT_FDCWD, list).value(), "job 2: it begins badly\n");
    });
    start([&](JournalDb& state) {  // it is kept, and is no record of its kind
        ck_assert(!state.get("job", "2").value().has_value());
        ck_assert_text(state.get("aside", "job 2").value().value_or(""), "a bad one");
        ck_assert(state.read_all("job", note).has_value());
        ck_assert(state.read_all("node", note).has_value());
        ck_assert_uint_eq(state.set_aside().size(), 2);
        state.forget_aside("node", "2");
        ck_assert(!state.get("aside", "node 2").value().has_value());
    });
    start([&](JournalDb& state) {  // a version that can read it
        read.clear();
        const auto any = [&](const StateDb::Row& row) -> Status {
            read.push_back(row.key);
            return {};
        };
        ck_assert(state.read_all("job", any).has_value());
        ck_assert((read == std::vector<std::string>{"1", "2"}));
        ck_assert(state.set_aside().empty());
        ck_assert_int_ne(::access(list.c_str(), F_OK), 0);
    });
    start([&](JournalDb& state) {
        ck_assert_text(state.get("job", "2").value().value_or(""), "a bad one");
        ck_assert(!state.get("aside", "job 2").value().has_value());
    });
}
END_TEST

START_TEST(a_record_whose_place_a_newer_one_has_is_kept_for_people_alone) {
    const unit::TempDir dir;
    const std::string list = dir.path + "/aside.txt";
    for (const char* step : {"bad one", "good one", "good one", "bad one, too"}) {
        auto db = StateDb::open(dir.path, 1);
        ck_assert(db.has_value());
        JournalDb state(std::move(*db));
        ck_assert(state.read_all("job", begins_well).has_value());
        const bool was_good = state.get("job", "1").value().has_value();
        ck_assert(state.set_aside().empty() || !was_good);
        if (was_good)
            ck_assert_text(read_file(AT_FDCWD, list).value(),
                           "job 1: a newer record has its place\n");
        state.put("job", "1", step);
        ck_assert(state.journal().finish().has_value());
    }
    auto db = StateDb::open(dir.path, 1);
    ck_assert(db.has_value());
    JournalDb state(std::move(*db));
    ck_assert(state.read_all("job", begins_well).has_value());
    ck_assert(state.is_aside("job", "1"));
    ck_assert_text(read_file(AT_FDCWD, list).value(), "job 1: it begins badly\n");
    ck_assert(state.journal().finish().has_value());
}
END_TEST

UNIT_SUITE(journal, a_record_that_cannot_be_read_is_set_aside_and_tried_again,
           a_record_whose_place_a_newer_one_has_is_kept_for_people_alone,
           what_a_step_says_leaves_in_order_when_its_records_are_durable,
           without_a_record_that_is_due_words_leave_without_a_commit,
           what_is_said_by_what_left_waits_for_its_own_commit,
           the_newest_record_of_a_name_wins_however_urgent_each_is,
           an_erase_takes_away_what_was_put_before_it_and_nothing_after_it,
           a_soon_record_is_committed_when_what_its_step_said_has_left,
           of_two_soon_records_only_the_newer_may_be_lost,
           a_record_that_replaces_a_soon_one_is_not_later_than_that,
           a_later_record_goes_with_the_next_commit_and_within_a_second,
           words_after_erases_wait_for_those_and_others_do_not,
           a_commit_that_fails_lets_nothing_go_until_one_succeeds,
           whoever_flushes_while_it_holds_tries_again,
           the_reserve_is_given_up_once_and_taken_again_when_there_is_room,
           a_reserve_that_is_not_enough_lets_nothing_go,
           of_what_is_erased_no_traces_are_left_after_ten_seconds,
           the_end_commits_what_could_wait_and_says_nothing,
           whatever_happens_no_word_leaves_before_what_it_relies_on,
           on_a_database_records_are_read_through_what_waits);
