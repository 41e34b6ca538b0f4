// SPDX-License-Identifier: GPL-2.0-or-later
// Reason: why a job does not run, why it is where it is, or why a node takes none. It is a code
// that programs compare, figures, and one line for people that the table below makes of both.
// Every place that says why (marketctl, srun, JSON, notes to homes) shows the same Reason. Codes
// are stable: one is added at the end and never renamed or numbered anew. docs/reasons.md lists
// them; tests/tools/test_reasons.py compares that page with the table. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernel/base/cause.hpp"
#include "kernel/base/money.hpp"
#include "kernel/base/time.hpp"

namespace souk {
class JsonWriter;
}

namespace souk::market {

enum class ReasonCode : uint16_t {
    none = 0,
    said,  // words that are no code's: another version's, or a program's
    // a job waits for a place
    outbid,
    displaced,
    turn_of_other,
    below_reserve,
    below_every_reserve,
    pace_below_every_reserve,
    no_place_worth_it,
    no_provider,
    too_many_cpus,
    too_much_memory,
    no_node_has_both,
    program_lacking,
    node_refused,
    memory_held,
    no_room,
    room_on_node,
    room_of_user,
    provider_gone,
    provider_smaller,
    barred,
    stopped_here,
    // a limit stops it
    user_jobs,
    user_cpus,
    user_day,
    budget_used,
    // somebody's word
    cancelling,
    cancel_later,
    held_frozen,
    being_held_frozen,
    held_on,
    held_for,
    moved_by_hand,
    frozen_by_hand,
    thawed_by_hand,
    hold_lost,
    // a node is away
    home_away,
    home_silent,
    node_away,
    node_keeps,
    image_away,
    stands_away,
    market_starting,
    // it cannot leave, or an order failed
    cannot_leave,
    order_failed,
    // why it is where it is
    placed,
    faster,
    lower_reserve,
    worth_more,
    balanced,
    lowest_load,
    adopted,
    makes_room,
    pinned_on,
    pinned_frozen,
    // a node takes none
    node_off,
    node_lost,
    node_disconnected,
    node_unable,
    node_full,
    node_open,
    // beside another reason
    cannot_move,
    by_yesterday,
    ended,
    runs,
    waits_for_job,
    near_files,
    paused_by_owner,
    closes_soon,
    account_empty,
    deadline_unsure,
    // jobs of several components
    components_coming,
    components_refused,
    components_too_large,
    // its project (srun --project)
    no_project,
    // jobs of several components and the nodes that they ask for
    component_node_unknown,
    component_node_small,
    components_few_nodes,
    components_not_near,
    components_never_fit,
    // it stands in memory
    stands_here,
    memory_wanted,
    stood_enough,
    memory_less,
    place_elsewhere,
    image_waits,  // beside another reason
    // its home alone says that it is there
    place_unbacked,
    // it is not let in
    book_full,
    // srun --needs
    needs_nowhere,
    // its user's word
    held_by_user,
    // a component waits for its node
    component_node_away,
    // a place that is sold ahead (srun --start, --for), and jobs inside one (--in)
    reserved_from,
    reserved_until,
    place_not_sold,
    place_dear,
    place_lost,
    inside_waits,
    inside_full,
    inside_gone,
    // srun --resource
    resource_nowhere,
    licences_few,
    resource_taken,
    resource_stands,
    // srun -f --promise
    promised,
    promise_late,
    promise_unknown,
    promise_budget,
    promise_broken,
    resource_devices,
    at_site,       // another site has it
    account_full,  // the books hold no more use by its user
    user_hours,    // it is outside of its user's hours
    // moves between sites (srun --sites)
    site_gain,
    site_no_gain,
    site_refused,
    site_rests,
    site_owes,  // its site owes as much as it may
    // the submit filter (docs/filters.md)
    filter_asked,
    filter_silent,
    filter_refused,
};

// The figures that a reason may carry. The kind of a figure says how it is written: text as it is,
// money in units, a count, a Unix time in seconds.
enum class Figure : uint16_t {
    none = 0,
    job,         // text: the other job
    node,        // text: the node it is about
    other,       // text: another node
    home,        // text: the job's home
    user,        // text: a user
    cause,       // text: what failed or is missing
    before,      // text: the reason that holds beside it
    phase,       // text: how it stands there
    bid,         // money: from this bid on it starts
    own,         // money: what it bids
    price,       // money: the bid of the other job
    reserve,     // money: what the node's owner asks
    least,       // money: the least reserve of those that are large enough
    limit,       // money: the limit of a day, or the budget
    speed,       // count: of the node
    slower,      // count: the speed that it had
    cpus,        // count: that it needs
    mb,          // count: megabytes that it needs
    most,        // count: what there is at most
    count,       // count: of jobs or CPUs
    opens,       // time: when the node is on the market again
    about,       // time: an estimate
    standing,    // text: how a node that has what is needed stands: "off", "disconnected"
    cause_code,  // text: the code of `cause` (kernel/base/cause.hpp)
    chance,      // count: in percent
    counts,      // money: what the bid of the other job counts as, since it has waited
};

struct ReasonFigure {
    Figure what = Figure::none;
    int64_t number = 0;
    std::string text;
    bool operator==(const ReasonFigure&) const = default;
};

// As it is stored.
struct ReasonRecord {
    ReasonCode code = ReasonCode::none;
    std::vector<ReasonFigure> figures;
    bool operator==(const ReasonRecord&) const = default;
};

struct Reason : ReasonRecord {
    Reason() = default;
    Reason(ReasonCode c) { code = c; }  // NOLINT: a code is a reason
    explicit Reason(ReasonRecord record) : ReasonRecord(std::move(record)) {}
    static Reason said(std::string text);

    // Sets one; an empty text sets none.
    Reason with(Figure what, std::string text) &&;
    Reason with(Figure what, const char* text) && {
        return std::move(*this).with(what, std::string(text));
    }
    // Its text, and its code as Figure::cause_code.
    Reason with(Figure what, const souk::Cause& cause) &&;
    Reason with(Figure what, Money amount) &&;
    Reason with(Figure what, int64_t number) &&;
    void drop(Figure what);
    std::optional<Money> amount(Figure what) const;  // nullopt: it has none

    bool empty() const { return code == ReasonCode::none; }
    void clear() { *this = {}; }
    std::string text() const;  // empty of none and of a code that this version does not know
    bool operator==(const Reason&) const = default;
};

enum class FigureKind : uint8_t { text, money, count, time };
struct FigureWords {
    Figure what;
    std::string_view name;
    FigureKind kind;
};
struct ReasonWords {
    ReasonCode code;
    std::string_view name;
    // {figure} stands for its value; what stands in [] is left out when a figure in it is not known
    std::string_view text;
    std::string_view means;  // for docs/reasons.md: when it is so, and what helps
};
std::span<const ReasonWords> reason_table();
std::span<const FigureWords> figure_table();
// "unknown" of a code that this version does not know.
std::string_view to_string(ReasonCode code);
std::string_view to_string(Figure figure);
bool is_known(ReasonCode code);

// Keys and values of an open JSON object: code, text, and the figures by their names.
void write_reason(JsonWriter& j, const Reason& reason);

}  // namespace souk::market
