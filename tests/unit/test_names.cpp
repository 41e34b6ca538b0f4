// SPDX-License-Identifier: GPL-2.0-or-later
// The one vocabulary: each enum of the cores has a name for each of its values, and no name twice.
// (That none is missing, the compiler sees: each table is a switch without a default.)
#include <set>
#include <utility>
#include <variant>

#include "agentd/core/guest.hpp"
#include "agentd/core/home.hpp"
#include "agentd/core/provider.hpp"
#include "market/core/market.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;

namespace {

// Names are lower case words that stand in a log line without quotes.
void name_is_new(const std::string& name, std::set<std::string>& seen) {
    ck_assert_msg(!name.empty() &&
                      name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_-") == std::string::npos,
                  "%s", name.c_str());
    ck_assert_msg(seen.insert(name).second, "%s twice", name.c_str());
}

// All names from `first` to `last`.
template <class Enum>
size_t names(Enum first, Enum last) {
    std::set<std::string> seen;
    for (int v = static_cast<int>(first); v <= static_cast<int>(last); ++v)
        name_is_new(to_string(static_cast<Enum>(v)), seen);
    return seen.size();
}

template <size_t... Index>
size_t motion_names(std::index_sequence<Index...>) {
    std::set<std::string> seen;
    (name_is_new(guest::to_string(guest::Motion(std::in_place_index<Index>)), seen), ...);
    return seen.size();
}

}  // namespace

START_TEST(every_value_of_the_nodes_machines_has_a_name_of_its_own) {
    using What = guest::Do::What;
    ck_assert_uint_eq(names(What::create_capsule, What::stand), 23);
    ck_assert_text(to_string(What::keep_lease), "keep_lease");
    ck_assert_uint_eq(names(GuestVerb::query, GuestVerb::checkpoint), 15);
    ck_assert_uint_eq(names(ComponentClass::required, ComponentClass::optional), 3);
    ck_assert_uint_eq(names(GuestState::unknown, GuestState::filling), 14);
    ck_assert_uint_eq(names(MoveStep::none, MoveStep::release), 5);
    ck_assert_uint_eq(names(CutStep::none, CutStep::held), 4);
    ck_assert_uint_eq(names(home::Tell::What::started, home::Tell::What::warning), 8);
    ck_assert_uint_eq(names(guest::Ending::to_frozen, guest::Ending::to_dropped), 4);
    ck_assert_uint_eq(names(guest::Want::run, guest::Want::cut), 8);
    ck_assert_uint_eq(motion_names(std::make_index_sequence<std::variant_size_v<guest::Motion>>{}),
                      8);
    ck_assert_uint_eq(names(guest::Save::none, guest::Save::sending), 3);
    ck_assert_uint_eq(names(Durable::now, Durable::later), 3);
    ck_assert_uint_eq(names(StoryStep::What::submitted, StoryStep::What::finished), 13);
    ck_assert_uint_eq(names(guest::Input::recovered, guest::Input::movable), 39);
    ck_assert_uint_eq(names(home::Input::restarted, home::Input::tick), 18);
    ck_assert_uint_eq(names(provider::Input::started, provider::Input::set_here), 23);
    ck_assert_text(to_string(guest::Output{guest::Erase{}}), "erase");
    ck_assert_text(to_string(home::Output{home::GoneBack{}}), "gone_back");
}
END_TEST

START_TEST(every_value_of_the_market_has_a_name_of_its_own) {
    ck_assert_uint_eq(names(JobPhase::waiting, JobPhase::finished), 8);
    ck_assert_uint_eq(names(Order::Kind::run, Order::Kind::give_up), 4);
    ck_assert_uint_eq(names(market::Hold::none, market::Hold::by_user), 5);
    ck_assert_uint_eq(names(market::Job::Held::none, market::Job::Held::cpus), 3);
    ck_assert_uint_eq(names(market::JobState::waiting, market::JobState::frozen), 3);
    ck_assert_uint_eq(names(market::Pin::free, market::Pin::frozen), 3);
    ck_assert_uint_eq(names(market::ChangeKind::start, market::ChangeKind::thaw), 4);
    ck_assert_uint_eq(names(market::Cause::placed, market::Cause::near_files), 13);
    ck_assert_uint_eq(names(market::Receipt::Kind::use, market::Receipt::Kind::settlement), 11);
    ck_assert_uint_eq(names(market::PromiseEnd::none, market::PromiseEnd::cannot_move), 9);
    ck_assert_uint_eq(names(market::Input::started, market::Input::filtered), 24);
    ck_assert_text(to_string(market::StoreOp{market::ErasePrice{}}), "erase_price");
    ck_assert_text(to_string(market::StoreOp{market::EraseNode{}}), "erase_node");
    ck_assert_uint_eq(names(MoveForm::stop_and_copy, MoveForm::post_copy), 3);
    ck_assert_uint_eq(names(MovePolicy::automatic, MovePolicy::fast), 3);
    ck_assert_uint_eq(names(NetMode::host, NetMode::own), 2);
    ck_assert_uint_eq(names(FilesMode::local, FilesMode::home), 2);
    ck_assert_uint_eq(names(TcpPolicy::close, TcpPolicy::keep), 3);
}
END_TEST

UNIT_SUITE(names, every_value_of_the_nodes_machines_has_a_name_of_its_own,
           every_value_of_the_market_has_a_name_of_its_own);
