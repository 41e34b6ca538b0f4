// SPDX-License-Identifier: GPL-2.0-or-later
// Codec: each message of random valid fields comes back equal; each byte changed or cut off gives
// an error or another valid message, never a crash; each field's bound is refused with its name.
#include "tests/unit/wire_samples.hpp"
// after the above: check.h defines `fail` as a macro
#include "tests/unit/unit.hpp"

namespace {

using namespace souk;
using namespace souk::wire;

template <class T>
void round_trip(const char* name, Rng& rng) {
    for (int i = 0; i < 60; ++i) {
        const T message = unit::sample<T>(rng);
        const std::string bytes = pack(message);
        const auto back = unpack<T>(bytes);
        ck_assert_msg(back.has_value(), "%s: %s", name, back ? "" : back.error().message.c_str());
        ck_assert_msg(*back == message, "%s came back different", name);
        ck_assert_msg(agent_words(frame_type<T>) == 0 || bytes.size() <= agent_words(frame_type<T>),
                      "%s is longer than its frame may be", name);
    }
}

template <class T>
void damage(const char* name, Rng& rng) {
    for (int i = 0; i < 60; ++i) {
        std::string bytes = pack(unit::sample<T>(rng));
        if (bytes.empty()) return;
        if (rng.chance(0.3)) bytes.resize(rng.below(bytes.size()));
        for (uint64_t n = rng.below(4); n > 0 && !bytes.empty(); --n)
            bytes[rng.below(bytes.size())] = static_cast<char>(rng.next());
        const auto message = unpack<T>(bytes);
        if (!message) {
            ck_assert_msg(message.error().message.find('\n') == std::string::npos,
                          "%s: error of two lines", name);
            continue;
        }
        const std::string again = pack(*message);
        const auto twice = unpack<T>(again);
        ck_assert_msg(twice.has_value(), "%s: accepted once, refused again", name);
        ck_assert_msg(pack(*twice) == again, "%s: changes each time it passes", name);
    }
}

template <class T>
std::string refused(const T& message) {
    const auto back = unpack<T>(pack(message));
    return back ? "accepted" : back.error().message;
}

JobSpec tiny_spec() {
    JobSpec spec;
    spec.launch.argv = {"true"};
    spec.launch.path = "/bin/true";
    spec.launch.cwd = "/";
    return spec;
}

Submit tiny_submit() {
    Submit submit;
    submit.spec = tiny_spec();
    submit.terms.max_price = Money::units(1);
    return submit;
}

START_TEST(every_message_comes_back_as_it_was) {
    Rng rng(1);
#define X(T, ...) round_trip<T>(#T, rng);
    SOUK_COMMON_WORDS(X)
    SOUK_MARKET_WORDS(X)
    SOUK_SITE_WORDS(X)
    SOUK_AGENT_WORDS(X)
#undef X
    round_trip<HomeJob>("HomeJob", rng);
    round_trip<GuestJob>("GuestJob", rng);
    round_trip<Ticket>("Ticket", rng);
}
END_TEST

START_TEST(damaged_bytes_are_refused_or_stay_what_they_became) {
    Rng rng(2);
#define X(T, ...) damage<T>(#T, rng);
    SOUK_COMMON_WORDS(X)
    SOUK_MARKET_WORDS(X)
    SOUK_SITE_WORDS(X)
    SOUK_AGENT_WORDS(X)
#undef X
    damage<HomeJob>("HomeJob", rng);
    damage<GuestJob>("GuestJob", rng);
    damage<Ticket>("Ticket", rng);
}
END_TEST

START_TEST(prices_counts_and_enums_out_of_range_are_named) {
    Submit s = tiny_submit();
    s.terms.max_price = {0};
    ck_assert_text(refused(s), "Submit: max_price: 0 is not in 1 to 1000000000000000");
    s = tiny_submit();
    s.terms.budget = {-1};
    ck_assert_text(refused(s), "Submit: budget: -1 is not in 0 to 1000000000000000");
    s = tiny_submit();
    s.terms.cpus = 0;
    ck_assert_text(refused(s), "Submit: cpus: 0 is not in 1 to 65536");
    s = tiny_submit();
    s.terms.strategy = "it's";
    ck_assert_text(refused(s), "Submit: strategy: at most 31 characters and no quote");
    JobReport r;
    r.id = {"n1", 1};
    r.terms.max_price = {1};
    r.phase = static_cast<JobPhase>(9);
    ck_assert_text(refused(r), "JobReport: phase: 9 is not in 1 to 8");
    r.phase = JobPhase::running;
    r.where = "N1";
    ck_assert_text(refused(r), "JobReport: where: not a node name");
    ck_assert_text(refused(wire::Signal{0}), "Signal: number: 0 is not in 1 to 64");
    ck_assert_text(refused(Change{{"n1", 1}, 131072, {}}),
                   "Change: fields: 131072 is not in 1 to 131071");
    ck_assert_text(refused(Expel{{"n1", 0}, {1}}),
                   "Expel: id: 0 is not in 1 to 4611686018427387904");
}
END_TEST

START_TEST(a_spec_is_refused_beyond_its_bounds) {
    Submit s = tiny_submit();
    s.spec.launch.env.assign(3, std::string(200 * 1024, 'x'));
    ck_assert(refused(s).starts_with("Submit: env: arguments and environment have "));
    s = tiny_submit();
    s.spec.launch.argv.clear();
    ck_assert_text(refused(s), "Submit: argv: empty");
    s = tiny_submit();
    s.spec.launch.path = "bin/true";
    ck_assert_text(refused(s), "Submit: path: not absolute");
    s = tiny_submit();
    s.spec.launch.argv.push_back(std::string("a\0b", 3));
    ck_assert_text(refused(s), "Submit: argv: a NUL byte inside");
    s = tiny_submit();
    s.spec.launch.rlimits = {{0, 2, 1}};
    ck_assert_text(refused(s), "Submit: rlimits: a soft limit above its hard one");
}
END_TEST

START_TEST(commands_carry_what_their_verb_needs) {
    GuestCommand c;
    c.id = {"n1", 1};
    c.epoch = {3};
    c.verb = GuestVerb::start;
    ck_assert_text(refused(c), "GuestCommand: spec: missing");
    c.verb = GuestVerb::ship;
    ck_assert_text(refused(c), "GuestCommand: dest: missing");
    c.verb = GuestVerb::restore_here;
    c.new_epoch = {3};
    ck_assert_text(refused(c), "GuestCommand: new_epoch: not newer than the epoch");
    c.verb = GuestVerb::query;
    ck_assert_text(refused(c), "accepted");
    Order o;
    o.id = {"n1", 1};
    o.node = "n2";
    ck_assert_text(refused(o), "Order: address: missing");
    o.address = "10.0.0.2:0";
    ck_assert_text(
        refused(o),
        "Order: address: not an address: host:port is wanted, or host:port via host:port");
}
END_TEST

START_TEST(lines_for_people_are_cleaned_and_cut_between_characters) {
    ErrorText e{
        "a\x1b[31mred\nline\xc2\x9b"
        "2J"};
    auto back = unpack<ErrorText>(pack(e));
    ck_assert(back.has_value());
    ck_assert_text(back->text, "a [31mred line  2J");
    e.text = std::string(1023, 'x') + "\xc3\xa9";
    back = unpack<ErrorText>(pack(e));
    ck_assert(back.has_value());
    ck_assert_text(back->text, std::string(1023, 'x'));
}
END_TEST

START_TEST(a_few_bytes_cannot_ask_for_much_memory) {
    // Two bytes for each empty peer: the structs that they would need pass the bound, so it ends
    // before the check.
    std::string bytes;
    for (int i = 0; i < 500'000; ++i) bytes += std::string("\x0a\x00", 2);
    const auto message = unpack<Directory>(bytes);
    ck_assert(!message.has_value());
    ck_assert_text(message.error().message,
                   "Directory: these 1000000 bytes are not such a message");
}
END_TEST

START_TEST(a_record_with_fields_of_a_later_program_is_read) {
    HomeJob job;
    job.id = {"n1", 7};
    job.spec = tiny_spec();
    job.terms.max_price = {1};
    const std::string whole = pack(job);
    // field 999, of a later program
    auto back = unpack<HomeJob>(whole + std::string("\xba\x3e\x03new", 6));
    ck_assert(back.has_value());
    ck_assert(*back == job);
}
END_TEST

START_TEST(the_places_that_a_job_saw_last_are_kept) {
    JobReport r;
    r.id = {"n1", 1};
    r.terms.max_price = {1};
    r.places.assign(1500, "old");
    r.places.back() = "new";
    const auto back = unpack<JobReport>(pack(r));
    ck_assert(back.has_value());
    ck_assert_int_eq(back->places.size(), 1000);
    ck_assert_text(back->places.back(), "new");
}
END_TEST

START_TEST(a_change_replaces_what_it_names_alone) {
    JobTerms terms{Money::units(5), Money::units(9), 100, 2, {}, "x", false, false, {}, {}};
    Change change{{"n1", 1}, Change::max_price | Change::memory_mb, {}};
    change.terms.max_price = Money::units(7);
    change.terms.memory_mb = 50;
    const auto back = unpack<Change>(pack(change));
    ck_assert(back.has_value());
    const JobTerms wanted{Money::units(7), Money::units(9), 50, 2, {}, "x", false, false, {}, {}};
    ck_assert(changed(terms, *back) == wanted);
}
END_TEST

START_TEST(unions_go_by_their_frame_type) {
    Rng rng(3);
    const ToMarket up = unit::sample<OrderFailed>(rng);
    ck_assert(type_of(up) == frame::order_failed);
    const auto up_back = unpack_to_market(type_of(up), pack(up));
    ck_assert(up_back.has_value() && *up_back == up);
    const FromMarket down = unit::sample<Order>(rng);
    const auto down_back = unpack_from_market(type_of(down), pack(down));
    ck_assert(down_back.has_value() && *down_back == down);
    ck_assert(!unpack_from_market(frame::hello, "").has_value());
}
END_TEST

}  // namespace

UNIT_SUITE(codec, every_message_comes_back_as_it_was,
           damaged_bytes_are_refused_or_stay_what_they_became,
           prices_counts_and_enums_out_of_range_are_named, a_spec_is_refused_beyond_its_bounds,
           commands_carry_what_their_verb_needs,
           lines_for_people_are_cleaned_and_cut_between_characters,
           a_few_bytes_cannot_ask_for_much_memory, a_record_with_fields_of_a_later_program_is_read,
           the_places_that_a_job_saw_last_are_kept, a_change_replaces_what_it_names_alone,
           unions_go_by_their_frame_type);
