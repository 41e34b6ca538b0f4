// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/reason.hpp"

#include <algorithm>
#include <array>

#include "kernel/base/json.hpp"

namespace souk::market {
namespace {

using enum ReasonCode;

constexpr auto reason_words = std::to_array<ReasonWords>({
    {none, "none", "", "nothing keeps it: it runs"},
    {said, "said", "{cause}", "words of another version or of a program, which no code has"},

    {outbid, "outbid", "outbid[ by jobs of its own user, {user}]; {bid} would win a place",
     "higher bids have every place that it could have; it starts from `bid` on. With `user` that "
     "bid may take the place of another job of this user: it starts by itself when one ends"},
    {displaced, "displaced",
     "displaced by job {job} at {price}[, which counts as {counts} after its wait]"
     "[; {bid} would win it back]",
     "a higher bid took its place, or one that has waited (ageing_s of marketd.conf); it starts "
     "from `bid` on"},
    {turn_of_other, "turn_of_other", "the turn of job {job} by its user's share",
     "proportional_share: another user has its turn"},
    {below_reserve, "below_reserve",
     "its bid {own} is below the reserve of {node}, {reserve}[; {bid} would win it back]",
     "the owner of its node asks more than it bids; it starts from `bid` on"},
    {below_every_reserve, "below_every_reserve",
     "its price {own} is below every reservation price; {least} is the least[; {bid} would win a "
     "place]",
     "no owner whose node is large enough takes so little; it starts from `least` on, or from "
     "`bid` "
     "on if that is told"},
    {pace_below_every_reserve, "pace_below_every_reserve",
     "its bid of now, {own} is below every reservation price; {least} is the least[; {bid} would "
     "win a place]",
     "its strategy (srun -s) bids less than its maximum price: pace, what the rest of its budget "
     "lasts for until its time; patient, the usual price; deadline, what is enough to be in time"},
    {no_place_worth_it, "no_place_worth_it",
     "no place is worth its price to it now[; {bid} would win it back]",
     "welfare: every place costs more than it is worth to the job; it starts from `bid` on"},
    {no_provider, "no_provider", "no provider is on the market",
     "no node takes jobs now; it starts when an owner offers one"},
    {too_many_cpus, "too_many_cpus",
     "needs {cpus} CPUs; no provider has more than {most}[; {node} has them and is {standing}][ "
     "until {opens}]",
     "no node on the market has so many; ask for less (srun -c), or wait for `node`"},
    {too_much_memory, "too_much_memory",
     "needs {mb} MB; no provider offers more than {most}[; {node} has them and is {standing}][ "
     "until {opens}]",
     "no node on the market offers so much; ask for less (srun -m), or wait for `node`"},
    {no_node_has_both, "no_node_has_both",
     "no provider has both {cpus} CPUs and {mb} MB[; {node} has them and is {standing}][ until "
     "{opens}]",
     "some node has the CPUs and some the memory, and none both"},
    {program_lacking, "program_lacking",
     "waits for a node that has its program: {cause} cannot execute it",
     "the nodes that could take it lack its program"},
    {node_refused, "node_refused", "{node} could not take it: {cause}; tried again later",
     "a start or a move to `node` failed a moment ago; the market tries again with longer pauses"},
    {memory_held, "memory_held",
     "waits for memory on {node}: job {job} cannot move, and holds it there",
     "the memory that it needs is held by a job that cannot be moved"},
    {no_room, "no_room", "waits for room", "every place is taken by what no bid can displace"},
    {room_on_node, "room_on_node", "waits for room on {node}[ ({before})]",
     "its place is decided; who is there still has to leave"},
    {room_of_user, "room_of_user", "waits until another job of its user has stopped",
     "its user's limit of jobs or CPUs is used by a job that is about to stop"},
    {provider_gone, "provider_gone", "{node} has left the market[; {bid} would win it back]",
     "the owner took its node back; it starts elsewhere from `bid` on"},
    {provider_smaller, "provider_smaller",
     "{node} offers less than its guests need[; {bid} would win it back]",
     "the owner offers less memory or fewer CPUs than before"},
    {barred, "barred", "it may not run on {node} for now[; {bid} would win it back]",
     "it may not be there now: an order failed, or the machine is another one"},
    {stopped_here, "stopped_here", "stopped on {node} ({cause}); {before}",
     "it cannot be dumped, so it stands where it is, with its memory"},

    {user_jobs, "user_jobs", "{user} may run {count} at once",
     "a limit of its user (marketctl user show)"},
    {user_cpus, "user_cpus", "{user} may use {count} at once; it needs {cpus}",
     "a limit of its user (marketctl user show)"},
    {user_day, "user_day",
     "{user} has spent the {limit} of this day (UTC); it goes on tomorrow, or with a higher limit",
     "its user's limit of a day is spent"},
    {budget_used, "budget_used",
     "its budget of {limit} is used up; a larger one (srun -J {job} -b MORE) wakes it",
     "it has cost what it may cost in all"},

    {cancelling, "cancelling", "is being cancelled", "its user or an operator cancelled it"},
    {cancel_later, "cancel_later", "cancelled as soon as {home} is back",
     "it is cancelled, and its home is not connected"},
    {held_frozen, "held_frozen", "held frozen by the operator",
     "marketctl freeze --hold; marketctl release ends it"},
    {being_held_frozen, "being_held_frozen",
     "runs on {node}, and is to be frozen and held by the operator",
     "marketctl freeze --hold, and it is not frozen yet"},
    {held_on, "held_on", "held on {node} by the operator",
     "marketctl move --hold; marketctl release ends it"},
    {held_for, "held_for", "held for {node} by the operator[, which {cause}]",
     "marketctl move --hold to a node that cannot take it now"},
    {moved_by_hand, "moved_by_hand", "moved by the operator", "marketctl move"},
    {frozen_by_hand, "frozen_by_hand", "frozen by the operator", "marketctl freeze"},
    {thawed_by_hand, "thawed_by_hand", "thawed by the operator", "marketctl thaw"},
    {hold_lost, "hold_lost", "was held on {node}, which is lost",
     "marketctl node lost of the node that it was held on"},

    {home_away, "home_away", "its home node {home} is not connected[; it stays on {node}]",
     "only its home can start, move or freeze it"},
    {home_silent, "home_silent", "its home node {home} has not reported it yet",
     "its home has just connected"},
    {node_away, "node_away", "{node} is not connected; it stays there",
     "the node that it runs on is not heard from"},
    {node_keeps, "node_keeps", "{node} takes nobody new ({cause}); it stays there",
     "its node can neither take nor move jobs now"},
    {image_away, "image_away", "its image is on {node}, which is not connected",
     "it is frozen on a node that is not connected"},
    {stands_away, "stands_away", "it stands on {node}, which is not connected",
     "it is stopped in memory on a node that is not connected"},
    {market_starting, "market_starting", "the market has just started and waits for its nodes",
     "some seconds after marketd has started"},

    {cannot_leave, "cannot_leave", "cannot leave {node}: {cause}; tried again later",
     "a freeze or a move failed a moment ago; the market tries again with longer pauses"},
    {order_failed, "order_failed", "{cause}", "the last order failed; it goes on where it is"},

    {placed, "placed", "its bid {own} takes {node}[ (reserve {reserve})]", "its bid won a place"},
    {faster, "faster", "{node} runs at speed {speed}, {other} at {slower}",
     "a faster place came within its reach"},
    {lower_reserve, "lower_reserve", "{node} has a lower reserve than {other}",
     "a place as fast came within its reach, whose owner asks less"},
    {worth_more, "worth_more", "{node} is worth more to it than {other} at the prices now",
     "welfare: another place is worth more to it, less its price"},
    {balanced, "balanced", "{node} has a lower load than {other}",
     "balance: the load is lower there"},
    {lowest_load, "lowest_load", "{node} has the lowest load that it can have",
     "balance: a place for a job that did not run"},
    {adopted, "adopted", "decided by the external solver", "solver_program decides"},
    {makes_room, "makes_room", "makes room for job {job} on its way to {node}",
     "jobs that want each other's places go by way of a freeze of the lesser one"},
    {pinned_on, "pinned_on", "held on {node}", "an order that is under way keeps it there"},
    {pinned_frozen, "pinned_frozen", "held frozen", "an order or a limit keeps it frozen"},

    {node_off, "node_off", "is not on the market[ until {opens}]",
     "its owner does not offer it now (pvdctl market on, or its time frames)"},
    {node_lost, "node_lost", "is not heard from, and counts as lost",
     "it was not connected for longer than the grace"},
    {node_disconnected, "node_disconnected", "is not connected", "it has no connection now"},
    {node_unable, "node_unable", "cannot take jobs: {cause}",
     "its agentd found what keeps it from running jobs (souk doctor)"},
    {node_full, "node_full",
     "is full: {count} of its {cpus} CPUs are taken[; a bid of {bid} takes one]",
     "guests have every CPU; a job of one CPU gets one from `bid` on"},
    {node_open, "node_open", "takes jobs from a bid of {bid} on", "it has room"},

    {cannot_move, "cannot_move", "{cause}",
     "what it holds cannot go along in a dump: it is neither moved nor frozen to disk"},
    {by_yesterday, "by_yesterday", "by the prices of a day ago it would start at about {about}",
     "an estimate: when a job of one CPU with its bid would have got a place a day before"},
    {ended, "ended", "has ended[: {cause}]", "nothing more happens to it"},
    {runs, "runs", "runs on {node}", "nothing is in its way"},
    {waits_for_job, "waits_for_job", "waits for {cause}",
     "srun --after, or the %N of srun --array: its home lets it begin when others have ended"},
    {near_files, "near_files", "{node} has its files, which {other} reads over the network",
     "what its files take through the network costs more than a faster place gains"},
    {paused_by_owner, "paused_by_owner", "is stopped on {node} for now: {cause}",
     "the owner of its node uses it, or has paused its guests (pvdctl pause): it costs nothing, "
     "and goes on when he is away"},
    {closes_soon, "closes_soon", "{node} leaves the market at {opens}; then it moves or is frozen",
     "the owner of its node wants users to be told so long before a time frame ends (pvdctl frames "
     "warning)"},
    {account_empty, "account_empty", "the account of {user} is empty",
     "the market is metered (metered of marketd.conf): it goes on with the next allowance, or a "
     "deposit (marketctl deposit)"},
    {deadline_unsure, "deadline_unsure",
     "by the prices of the last day its chance to be done by its time is {chance} %[; it runs on "
     "{node}]",
     "srun -s deadline: no bid up to its maximum price makes it 95 % sure; a higher price or more "
     "time (srun -J ID -p PRICE, -f TIME) does"},
    {components_coming, "components_coming",
     "waits until the market knows all components of the job, {count} of them",
     "a job of several components is placed as one: its home reports them one after the other"},
    {components_refused, "components_refused", "is not placed: {cause}",
     "only greedy_migration places jobs of several components (marketctl set solver "
     "greedy_migration), and no `solver_program` does"},
    {components_too_large, "components_too_large",
     "its components need {cpus} CPUs at once; all nodes on the market have {most}",
     "a job of several components runs with all of them or not at all"},
    {no_project, "no_project", "may not spend for project {cause}",
     "srun --project: there is no such project in the market, or the job's user is no member of it "
     "(marketctl project add)"},
    {component_node_unknown, "component_node_unknown",
     "component {count} is for node {node}, which the market does not know",
     "srun --ordered, or `node` of a component: it waits until a node of this name joins"},
    {component_node_small, "component_node_small",
     "the components for node {node} never fit there: {cpus} CPUs and {mb} MB",
     "srun --ordered, or `node` of a component: the node has less"},
    {components_few_nodes, "components_few_nodes",
     "its components need {count} nodes; {most} on the market can take one",
     "srun --spread: only so many may be on one node, and there are too few"},
    {components_not_near, "components_not_near",
     "its components fit on the nodes, but not on nodes that are near each other as it asks",
     "srun --near: no group of nodes (`near_group` of agentd's configuration) with the round trip "
     "and bandwidth asked for holds them all, even if it were empty"},
    {components_never_fit, "components_never_fit",
     "its components fit into the CPUs and memory of all nodes, but not on the nodes one by one",
     "no way to put them on the nodes of the market is found, even if all were empty: ask for "
     "smaller components"},
    {stands_here, "stands_here", "stands in memory on {node}, and goes on there at once",
     "a job that loses its place first only stops (stand_max_s of marketd.conf): it costs nothing, "
     "and goes on in milliseconds when its bid wins there again"},
    {memory_wanted, "memory_wanted", "job {job} needs the memory in which it stood on {node}",
     "it stood in memory, and goes to disk for a job that has a place there"},
    {stood_enough, "stood_enough", "stood long enough on {node}",
     "it stood in memory, and goes to disk: by what became of others, its bid will not win soon, "
     "or stand_max_s of marketd.conf has passed"},
    {memory_less, "memory_less", "node {node} does not offer the memory any more in which it stood",
     "the owner lends less memory (pvdctl share, memory_mb): what stood there goes to disk"},
    {place_elsewhere, "place_elsewhere", "has won a place on {node}, and goes there over the disk",
     "it stood in memory on another node; what stands goes to disk first, and thaws where its "
     "place is"},
    {image_waits, "image_waits", "{cause}",
     "the owner of the node where it is frozen wants its image gone, and it did not get to its "
     "home: that tries again after up to 5 min"},
    {place_unbacked, "place_unbacked",
     "its home says that it is on {node}, where this market has not ordered it and {node} does not "
     "say that it has it",
     "the market has lost its records, or the home says what is not so: the job is left where it "
     "is, takes no room and pays nothing until `node` confirms it; after a minute its home is told "
     "to freeze it"},
    {book_full, "book_full", "the market does not take it yet: {cause}; its home is asked again",
     "the market has as many jobs as it may, in all (jobs_max of marketd.conf), of that home "
     "(jobs_home_max) or of that user (jobs_user_max), as `marketctl limits` shows; or another "
     "job has its address (--net=own)"},
    {needs_nowhere, "needs_nowhere", "no node of this market is {cause}",
     "srun --needs, --nodes or --exclude: `marketctl list-providers --needs EXPRESSION` shows who "
     "fits, and with --json what each node is; the job waits until one is"},
    {held_by_user, "held_by_user", "its user holds it back",
     "marketctl hold, or freeze --hold, by its own user; `marketctl release ID` lets it go on"},
    {component_node_away, "component_node_away",
     "the components for node {node} wait for it: it is {standing}[ until {opens}]",
     "srun --ordered, or `node` of a component: the node has the room by its last report, and "
     "takes no jobs now"},

    {reserved_from, "reserved_from", "its place on {node} is reserved from {opens} on, at {price}",
     "srun --start: it begins then; `marketctl reservations` shows it"},
    {reserved_until, "reserved_until", "its place on {node} is reserved until {opens}",
     "its place is its own until then, whatever others bid; then the market's price holds"},
    {place_not_sold, "place_not_sold",
     "no node has room for all of the time that it asks for[; the earliest that has: {about}]",
     "srun --start, --for: others have reserved it, or owners are off the market then; "
     "`srun -J ID --start` asks for another time"},
    {place_dear, "place_dear", "a place for that time costs {least}, more than its price {own}",
     "srun --start, --for: the place is sold as soon as its maximum price is enough"},
    {place_lost, "place_lost",
     "the node that was reserved for it is gone, and no other has room for that time",
     "its owner took it back; the job competes with its bid until a node has room"},
    {inside_waits, "inside_waits", "waits until {job} runs, inside whose place it is to run",
     "srun --in: the place is not there yet, or is frozen"},
    {inside_full, "inside_full", "waits for room inside {job}",
     "srun --in: other jobs use what that place has"},
    {inside_gone, "inside_gone", "{job}, inside whose place it is to run, is gone",
     "srun --in: it has ended, or is not its user's; cancel the job, or submit it anew"},
    {resource_nowhere, "resource_nowhere", "no node of this market has {cause}",
     "srun --resource: no connected node has so many of it; ask for less, or wait for such a node"},
    {licences_few, "licences_few", "the market has {most} in all, and it asks for {cause}",
     "srun --resource: `resources` of marketd.conf says how many there are"},
    {resource_taken, "resource_taken",
     "waits for {cause}[ on {node}][, which job {job} has at {price}][; {bid} would win it]",
     "srun --resource: others have what it asks for; `job` pays least of them. It starts from "
     "`bid` "
     "on, or when one of them ends. Without `bid` no bid does it, as for what a job has that "
     "cannot "
     "move"},
    {resource_stands, "resource_stands", "goes to disk, so that others on {node} get what it has",
     "a job that stands in memory would keep its named resources (srun --resource)"},
    {promised, "promised",
     "its deadline {about} is promised: from {opens} on at the latest it has a place on {node} at "
     "{price}",
     "srun -f --promise: until then it runs where its bid has a place; the start moves later as it "
     "runs"},
    {promise_late, "promise_late",
     "its deadline cannot be promised[; the earliest that can: {about}]",
     "srun -f --promise: no node has room for all that it needs until then; `srun -J ID -f` asks "
     "for another deadline"},
    {promise_unknown, "promise_unknown",
     "its deadline cannot be promised: nothing says how long it runs",
     "srun -f --promise: say --time or --runtime; after three runs of the program to its end it is "
     "learned"},
    {promise_budget, "promise_budget",
     "its deadline cannot be promised: the place costs {least}, more than is left of its budget "
     "{limit}",
     "srun -f --promise: it must be able to pay for the whole place"},
    {promise_broken, "promise_broken",
     "its deadline was promised, and missed: {cause}[; {bid} would win a place]",
     "srun -f --promise: `marketctl statement` shows what its user got back; it goes on for its "
     "bid"},
    {resource_devices, "resource_devices",
     "has begun, and {cause} is a device wherever there is enough of it",
     "srun --resource: a job gets devices only when it begins, as nothing can tell a job that "
     "comes back which ones it has; it goes on where the owner offers a count"},
    {at_site, "at_site", "site {cause} has it",
     "srun --sites: it was given to that site, which says where it runs; it comes home when that "
     "site wants its place back"},
    {account_full, "account_full", "the books hold no more use by {user}",
     "it has paid, or owes, about as much as all others may yet: 250 billion at most "
     "(docs/ledger.md)"},
    {user_hours, "user_hours", "{user} may run jobs {cause} alone, by the market's clock",
     "the hours of its user or project (marketctl user show); it goes on when they begin"},
    {site_gain, "site_gain", "moved for a gain: {cause}",
     "srun --sites: it has gone, or is about to go, to another site or home, as the gain is more "
     "than the move costs (docs/sites.md)"},
    {site_no_gain, "site_no_gain", "no other site is worth a move: {cause}",
     "srun --sites: they are asked again after a while; marketctl offers has what each answered"},
    {site_refused, "site_refused", "a move between sites came to nothing: {cause}",
     "srun --sites: it stays where it is, and that site is asked again after a pause"},
    {site_rests, "site_rests", "no other site is asked before {opens}",
     "srun --sites: it has moved between sites often, or its last stay there was short or came to "
     "nothing"},
    {site_owes, "site_owes", "site {cause} owes as much as it may",
     "the credit in that peer's terms (souk peer terms); its jobs go home, and come again when it "
     "has paid (souk peer settle)"},
    {filter_asked, "filter_asked", "the submit filter is asked about it",
     "it is a new job, and the operator's filter says first whether it may run (docs/filters.md)"},
    {filter_silent, "filter_silent", "the submit filter gives no answer: {cause}",
     "it is asked again after pauses of 5 s to 5 minutes; the operator mends submit_filter, or "
     "lets the job pass (marketctl release)"},
    {filter_refused, "filter_refused", "the submit filter refuses it: {cause}",
     "srun -J changes what it asks for, and the filter is asked anew; an operator lets it pass "
     "(marketctl release)"},
});

constexpr auto figures_known = std::to_array<FigureWords>({
    {Figure::none, "", FigureKind::text},
    {Figure::job, "job", FigureKind::text},
    {Figure::node, "node", FigureKind::text},
    {Figure::other, "other", FigureKind::text},
    {Figure::home, "home", FigureKind::text},
    {Figure::user, "user", FigureKind::text},
    {Figure::cause, "cause", FigureKind::text},
    {Figure::before, "before", FigureKind::text},
    {Figure::phase, "phase", FigureKind::text},
    {Figure::bid, "bid", FigureKind::money},
    {Figure::own, "own", FigureKind::money},
    {Figure::price, "price", FigureKind::money},
    {Figure::reserve, "reserve", FigureKind::money},
    {Figure::least, "least", FigureKind::money},
    {Figure::limit, "limit", FigureKind::money},
    {Figure::speed, "speed", FigureKind::count},
    {Figure::slower, "slower", FigureKind::count},
    {Figure::cpus, "cpus", FigureKind::count},
    {Figure::mb, "mb", FigureKind::count},
    {Figure::most, "most", FigureKind::count},
    {Figure::count, "count", FigureKind::text},
    {Figure::opens, "opens", FigureKind::time},
    {Figure::about, "about", FigureKind::time},
    {Figure::standing, "standing", FigureKind::text},
    {Figure::cause_code, "cause_code", FigureKind::text},
    {Figure::chance, "chance", FigureKind::count},
    {Figure::counts, "counts", FigureKind::money},
});

constexpr bool in_order() {
    for (size_t i = 0; i < reason_words.size(); ++i)
        if (reason_words[i].code != static_cast<ReasonCode>(i)) return false;
    for (size_t i = 0; i < figures_known.size(); ++i)
        if (figures_known[i].what != static_cast<Figure>(i)) return false;
    return true;
}
static_assert(in_order() && reason_words.back().code == filter_refused,
              "a code or a figure has no line");

std::string two(int64_t n) {
    return {static_cast<char>('0' + n / 10), static_cast<char>('0' + n % 10)};
}

// "2026-11-23 18:00 UTC", by the civil calendar (days since 1970-01-01; eras of 400 years).
std::string utc(int64_t unix_s) {
    const int64_t days = unix_s / 86'400, second = unix_s % 86'400, z = days + 719'468;
    const int64_t era = z / 146'097, of_era = z % 146'097;
    const int64_t year_of_era =
        (of_era - of_era / 1'460 + of_era / 36'524 - of_era / 146'096) / 365;
    const int64_t day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    const int64_t shifted = (5 * day_of_year + 2) / 153;
    const int64_t day = day_of_year - (153 * shifted + 2) / 5 + 1;
    const int64_t month = shifted < 10 ? shifted + 3 : shifted - 9;
    const int64_t year = year_of_era + era * 400 + (month <= 2);
    return std::to_string(year) + "-" + two(month) + "-" + two(day) + " " + two(second / 3'600) +
           ":" + two(second / 60 % 60) + " UTC";
}

std::optional<std::string> value_of(const Reason& reason, std::string_view name) {
    for (const ReasonFigure& f : reason.figures) {
        if (to_string(f.what) != name) continue;
        switch (figures_known[static_cast<size_t>(f.what)].kind) {
            case FigureKind::text: return f.text;
            case FigureKind::money: return format_money(Money{f.number});
            case FigureKind::count: return std::to_string(f.number);
            case FigureKind::time: return utc(f.number);
        }
    }
    return {};
}

}  // namespace

std::span<const ReasonWords> reason_table() { return reason_words; }
std::span<const FigureWords> figure_table() { return figures_known; }

bool is_known(ReasonCode code) { return static_cast<size_t>(code) < reason_words.size(); }

std::string_view to_string(ReasonCode code) {
    return is_known(code) ? reason_words[static_cast<size_t>(code)].name : "unknown";
}

std::string_view to_string(Figure figure) {
    const auto i = static_cast<size_t>(figure);
    return i < figures_known.size() ? figures_known[i].name : "";
}

Reason Reason::said(std::string text) {
    return text.empty() ? Reason() : Reason(ReasonCode::said).with(Figure::cause, std::move(text));
}

void Reason::drop(Figure what) {
    std::erase_if(figures, [&](const ReasonFigure& f) { return f.what == what; });
}

std::optional<Money> Reason::amount(Figure what) const {
    for (const ReasonFigure& f : figures)
        if (f.what == what) return Money{f.number};
    return {};
}

Reason Reason::with(Figure what, std::string text) && {
    drop(what);
    if (!text.empty()) figures.push_back({what, 0, std::move(text)});
    return std::move(*this);
}

Reason Reason::with(Figure what, const souk::Cause& cause) && {
    Reason reason = std::move(*this).with(what, static_cast<const std::string&>(cause));
    const bool known = cause.code != CauseCode::none;
    return std::move(reason).with(Figure::cause_code,
                                  std::string(known ? souk::to_string(cause.code) : ""));
}

Reason Reason::with(Figure what, Money amount) && {
    drop(what);
    figures.push_back({what, amount.micro, {}});
    return std::move(*this);
}

Reason Reason::with(Figure what, int64_t number) && {
    drop(what);
    figures.push_back({what, number, {}});
    return std::move(*this);
}

std::string Reason::text() const {
    if (!is_known(code)) return {};
    return fill_words(reason_words[static_cast<size_t>(code)].text,
                      [this](std::string_view name) { return value_of(*this, name); });
}

void write_reason(JsonWriter& j, const Reason& reason) {
    j.field("code", std::string(to_string(reason.code))).field("text", reason.text());
    for (const ReasonFigure& f : reason.figures) {
        const std::string_view name = to_string(f.what);
        if (name.empty()) continue;
        switch (figures_known[static_cast<size_t>(f.what)].kind) {
            case FigureKind::text: j.field(name, f.text); break;
            case FigureKind::money: j.field(name, Money{f.number}); break;
            case FigureKind::count:
            case FigureKind::time: j.field(name, f.number); break;
        }
    }
}

}  // namespace souk::market
