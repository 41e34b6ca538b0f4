// SPDX-License-Identifier: GPL-2.0-or-later
// For whom a souk-web speaks: tokens that are good once, sessions, and who may begin one.
#include "market/core/web_sessions.hpp"

#include "tests/unit/unit.hpp"

using namespace souk;
using namespace souk::market;

namespace {

using Speaker = WebSessions::Speaker;

const Speaker ann{1000, ""}, bob{1001, ""}, root{0, ""}, shared{900, ""};
constexpr Nanos start = Nanos::from_s(100);

struct World {
    WebSessions all;
    int count = 0;
    std::string secret() { return "secret" + std::to_string(++count); }
    std::string token(const Speaker& of, Nanos now = start) {
        std::string made = secret();
        return all.add_token(made, of, now) ? made : "no token";
    }
    // The user of the session, or why there is none.
    std::string exchange(const std::string& token, const Speaker& web,
                         std::optional<uint32_t> may_serve = {}, Nanos now = start) {
        const std::string session = secret();
        const auto uid = all.exchange(token, session, web, may_serve, now);
        if (!uid) return uid.error().message;
        last = session;
        return "user " + std::to_string(*uid);
    }
    std::string user(const Speaker& web, Nanos now = start) {
        const auto uid = all.user_of(last, web, now);
        return uid ? "user " + std::to_string(*uid) : uid.error().message;
    }
    std::string last;
};

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

START_TEST(a_token_is_good_once_and_for_two_minutes) {
    World w;
    const std::string token = w.token(ann);
    ck_assert_text(w.exchange(token, ann), "user 1000");
    ck_assert_text(w.user(ann), "user 1000");
    ck_assert(has(w.exchange(token, ann), "not good"));
    const Nanos late = start + web_token_life;
    ck_assert(has(w.exchange(w.token(ann), ann, {}, late), "not good"));
    ck_assert_text(w.exchange(w.token(ann), ann, {}, late - Nanos::from_ms(1)), "user 1000");
    ck_assert(has(w.exchange("", ann), "not good"));
}
END_TEST

START_TEST(a_souk_web_serves_its_own_user_unless_it_is_roots_or_the_configured_one) {
    World w;
    ck_assert(has(w.exchange(w.token(ann), bob), "may not serve others"));
    ck_assert(has(w.exchange(w.token(root), bob), "may not serve others"));
    ck_assert(has(w.exchange(w.token(ann), shared, 901), "may not serve others"));
    // who is refused has used it up
    const std::string token = w.token(ann);
    ck_assert(has(w.exchange(token, bob), "may not serve others"));
    ck_assert(has(w.exchange(token, ann), "not good"));
    ck_assert_text(w.exchange(w.token(ann), root), "user 1000");
    ck_assert_text(w.exchange(w.token(bob), shared, 900), "user 1001");
    ck_assert_text(w.exchange(w.token(root), shared, 900), "user 0");
    // The account of that number on another host is another one.
    ck_assert(has(w.exchange(w.token(ann), {900, "node n2"}, 900), "may not serve others"));
    ck_assert_text(w.exchange(w.token(ann), {1000, "node n2"}), "user 1000");
}
END_TEST

START_TEST(a_session_is_of_the_souk_web_that_began_it_until_it_ends) {
    World w;
    ck_assert_text(w.exchange(w.token(ann), ann), "user 1000");
    for (const Speaker& other : {bob, root, Speaker{1000, "node n2"}})
        ck_assert(has(w.user(other), "not logged in any more"));
    w.all.end(w.last, bob);
    ck_assert_text(w.user(ann, start + web_session_life - Nanos::from_ms(1)), "user 1000");
    ck_assert(has(w.user(ann, start + web_session_life), "not logged in any more"));
    w.all.end(w.last, ann);
    ck_assert(has(w.user(ann), "not logged in any more"));
}
END_TEST

START_TEST(wrong_tokens_are_few_in_a_minute_and_others_are_not_kept_waiting) {
    World w;
    for (int i = 0; i < 10; ++i) ck_assert(has(w.exchange("guess", bob), "not good"));
    ck_assert(has(w.exchange(w.token(bob), bob), "too many wrong tokens; try again in 60 s"));
    ck_assert_text(w.exchange(w.token(ann), ann), "user 1000");
    ck_assert_text(w.exchange(w.token(bob), bob, {}, start + Nanos::from_s(60)), "user 1001");
}
END_TEST

START_TEST(a_users_seventeenth_session_ends_his_first_one_and_there_is_a_bound_for_all) {
    World w;
    ck_assert_text(w.exchange(w.token(ann), ann), "user 1000");
    const std::string first = w.last;
    for (int i = 1; i <= 16; ++i) {
        const Nanos now = start + Nanos::from_s(i);
        ck_assert_text(w.exchange(w.token(ann, now), ann, {}, now), "user 1000");
    }
    ck_assert(!w.all.user_of(first, ann, start));
    ck_assert_text(w.user(ann), "user 1000");
    int refused = 0;
    for (uint32_t uid = 2'000; uid < 6'200; ++uid)
        refused += !w.all.add_token(w.secret(), {uid, ""}, start).has_value();
    ck_assert_int_ge(refused, 76);
}
END_TEST

START_TEST(a_page_asks_what_it_shows_and_orders_one_job_about) {
    for (const char* verb :
         {"status", "list-jobs", "job", "why", "story", "receipts", "prices", "statement"})
        ck_assert(web_may_ask(verb, {}));
    for (const char* verb : {"cancel", "freeze", "move", "thaw", "hold", "release"}) {
        ck_assert(web_may_ask(verb, {"n1.7"}));
        ck_assert(!web_may_ask(verb, {"all"}));
        ck_assert(!web_may_ask(verb, {}));
    }
    ck_assert(web_may_ask("move", {"n1.7", "n2", "once"}));
    for (const char* verb : {"cancel", "hold", "release"})
        ck_assert(!web_may_ask(verb, {"n1.7", "n1.8"}));
    for (const char* verb : {"set", "user-limit", "node", "node-forget", "backup", "token-create",
                             "decisions", "dump", "web", "web-token", "ledger-verify", "await", ""})
        ck_assert_msg(!web_may_ask(verb, {"n1.7"}), "%s", verb);
}
END_TEST

START_TEST(a_node_that_speaks_for_many_users_leaves_the_others_theirs) {
    World w;
    const std::string ours = w.token(ann);
    const std::string theirs = w.token({1000, "node n2"});
    for (uint32_t uid = 0; uid < 5'000; ++uid) w.token({uid, "node evil"});
    for (int i = 0; i < 40; ++i) w.token({1000, "node evil"});  // in the name of another's user
    ck_assert(w.token(bob) != "no token" && w.token({1001, "node n2"}) != "no token");
    for (uint32_t uid = 0; uid < 5'000; ++uid) w.exchange("wrong", {uid, "node evil"});
    ck_assert(has(w.exchange("wrong", {7, "node n2"}), "not good"));
    ck_assert_text(w.exchange(ours, ann), "user 1000");
    ck_assert_text(w.exchange(theirs, {1000, "node n2"}), "user 1000");
}
END_TEST

UNIT_SUITE(web_sessions, a_token_is_good_once_and_for_two_minutes,
           a_souk_web_serves_its_own_user_unless_it_is_roots_or_the_configured_one,
           a_session_is_of_the_souk_web_that_began_it_until_it_ends,
           wrong_tokens_are_few_in_a_minute_and_others_are_not_kept_waiting,
           a_users_seventeenth_session_ends_his_first_one_and_there_is_a_bound_for_all,
           a_page_asks_what_it_shows_and_orders_one_job_about,
           a_node_that_speaks_for_many_users_leaves_the_others_theirs);
