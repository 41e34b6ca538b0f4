// SPDX-License-Identifier: GPL-2.0-or-later
// QuoteDesk: whose quote is reckoned next, and how many may wait.
#include "market/wire/quote_desk.hpp"

#include "tests/unit/unit.hpp"

using namespace souk;

namespace {

struct Desk {
    QuoteDesk desk;
    Nanos now = Nanos::from_s(1);
    Nanos each = Nanos::from_ms(2);  // so long takes one
    std::string order;

    bool ask(const NodeName& from, uint32_t uid, uint64_t connection = 1) {
        wire::CtlRequest request;
        request.uid = uid;
        return desk.take({connection, from, request}).has_value();
    }
    bool step() {
        return desk.answer(
            [this](const QuoteDesk::Asked& one) {
                order += one.from + std::to_string(one.request.uid) + " ";
                now = now + each;
            },
            [this] { return now; });
    }
};

}  // namespace

START_TEST(a_step_reckons_for_a_few_milliseconds_and_for_all_in_turn) {
    Desk d;
    for (int i = 0; i < 20; ++i) d.ask("n1", 7);
    d.ask("n1", 8);
    d.ask("", 7);
    ck_assert(d.step());
    ck_assert_text(d.order, "7 n17 n18 ");
    d.order.clear();
    ck_assert(d.step());
    ck_assert_text(d.order, "n17 n17 n17 ");
    d.each = Nanos::from_s(1);  // one at least
    d.order.clear();
    ck_assert(d.step());
    ck_assert_text(d.order, "n17 ");
    d.each = Nanos{};
    ck_assert(!d.step());
    ck_assert(!d.step());
}
END_TEST

START_TEST(one_user_or_node_that_asks_for_many_leaves_the_others_theirs) {
    Desk d;
    size_t had = 0;
    for (int i = 0; i < 1'000; ++i) had += d.ask("n1", 7, static_cast<uint64_t>(i));
    ck_assert_uint_eq(had, QuoteDesk::user_most);
    ck_assert(d.ask("n1", 8) && d.ask("n2", 7));
    for (uint32_t uid = 100; uid < 1'100; ++uid) had += d.ask("n1", uid);
    ck_assert_uint_eq(had + 1, QuoteDesk::node_most);
    ck_assert(d.ask("n2", 8) && d.ask("", 9));
    while (d.step()) {
    }
    ck_assert(d.ask("n1", 7));
}
END_TEST

UNIT_SUITE(quote_desk, a_step_reckons_for_a_few_milliseconds_and_for_all_in_turn,
           one_user_or_node_that_asks_for_many_leaves_the_others_theirs);
