// SPDX-License-Identifier: GPL-2.0-or-later
// The lists of fields (kernel/base/fields.hpp) of messages.hpp.
#pragma once

#include "kernel/base/value_fields.hpp"
#include "market/core/messages.hpp"
#include "market/core/needs.hpp"
#include "market/core/site_news.hpp"
#include "market/core/site_offer.hpp"
#include "market/core/site_settlement.hpp"
#include "market/core/site_terms.hpp"
#include "market/core/ticket.hpp"
#include "market/core/types.hpp"

namespace souk {

// The newest of a job's places.
inline constexpr Rule places_rule = rule::at_most(1000, rule::node, true);
// A ticket and its signature (kernel/trust/ticket_key.hpp), or nothing.
inline constexpr Rule sealed_ticket_rule = rule::text(TextRule::bytes, 4096);
inline constexpr Rule phase_rule = rule::one_of(JobPhase::waiting, JobPhase::finished);

SOUK_FIELDS(RunLimits,  //
            field("time_limit", &RunLimits::run, rule::span),
            field("time_speed", &RunLimits::at_speed, rule::between(0, market::speed_max)),
            field("cpu_limit", &RunLimits::cpu, rule::span),
            field("warn_signal", &RunLimits::signal, rule::between(0, 64)),
            field("warn_before", &RunLimits::before, rule::span));

SOUK_FIELDS(Booking,  //
            field("book_start", &Booking::start, rule::time),
            field("book_span", &Booking::span, rule::span), field("book_early", &Booking::early),
            field("book_holds", &Booking::holds), field("within", &Booking::within, rule::name),
            field("promise", &Booking::promise));

SOUK_FIELDS(SiteWish, field("sites", &SiteWish::names, rule::text(TextRule::line, 2048)),
            field("sites_cheapest", &SiteWish::cheapest), field("sites_stay", &SiteWish::stays),
            field("sites_within", &SiteWish::within, rule::price));

SOUK_FIELDS(JobTerms, field("max_price", &JobTerms::max_price, rule::between(1, money_max.micro)),
            field("budget", &JobTerms::budget, rule::price),
            field("memory_mb", &JobTerms::memory_mb, rule::megabytes),
            field("cpus", &JobTerms::cpus, rule::cpus),
            field("finish", &JobTerms::finish, rule::span),
            field("strategy", &JobTerms::strategy, rule::text(TextRule::strategy)),
            field("pace", &JobTerms::pace),
            field("memory_by_default", &JobTerms::memory_by_default),
            field("runtime", &JobTerms::runtime, rule::span),
            field("project", &JobTerms::project, rule::text(TextRule::label, 64)),
            flat(&JobTerms::limits),
            field("needs", &JobTerms::needs, rule::text(TextRule::line, market::Needs::text_max)),
            flat(&JobTerms::booking),
            field("resources", &JobTerms::resources, rule::text(TextRule::line, resource_text_max)),
            flat(&JobTerms::sites));

SOUK_FIELDS(LastMove,  //
            field("forecast", &LastMove::forecast),
            field("last_pause", &LastMove::pause, rule::span),
            field("last_total", &LastMove::total, rule::span));

SOUK_FIELDS(JobStats,  //
            field("freezes", &JobStats::freezes), field("thaws", &JobStats::thaws),
            field("migrations", &JobStats::migrations),
            field("failed_moves", &JobStats::failed_moves),
            field("run_time", &JobStats::run_time, rule::span),
            field("longest_pause", &JobStats::longest_pause, rule::span),
            field("image_bytes", &JobStats::image_bytes, rule::bytes), flat(&JobStats::last_move),
            field("resumes", &JobStats::resumes),
            field("cpu_time", &JobStats::cpu_time, rule::span),
            field("memory_peak", &JobStats::memory_peak, rule::bytes),
            field("failed_tries", &JobStats::failed_tries));

SOUK_FIELDS(FilesUse,  //
            field("served", &FilesUse::served),
            field("out_bytes", &FilesUse::out_bytes, rule::count),
            field("in_bytes", &FilesUse::in_bytes, rule::count),
            field("requests", &FilesUse::requests, rule::count), field("waits", &FilesUse::waits),
            field("bytes_per_s", &FilesUse::bytes_per_s, rule::count),
            field("requests_per_s", &FilesUse::requests_per_s, rule::count),
            field("round_trip", &FilesUse::round_trip, rule::span),
            field("known", &FilesUse::known, rule::count));

SOUK_FIELDS(
    JobReport,  //
    field("id", &JobReport::id), field("terms", &JobReport::terms, rule::required),
    field("uid", &JobReport::uid), field("user", &JobReport::user, rule::name),
    field("name", &JobReport::name, rule::name), field("command", &JobReport::command),
    field("submitted", &JobReport::submitted, rule::time),
    field("phase", &JobReport::phase, phase_rule),
    field("where", &JobReport::where, rule::node_or_none),
    field("to", &JobReport::to, rule::node_or_none), field("epoch", &JobReport::epoch, rule::count),
    field("order_seq", &JobReport::order_seq, rule::count), field("comment", &JobReport::comment),
    part("comment_code", &JobReport::comment, &Cause::code, cause_rule),
    field("stands", &JobReport::stands), field("cannot_move", &JobReport::cannot_move),
    part("cannot_move_code", &JobReport::cannot_move, &Cause::code, cause_rule),
    field("in_place", &JobReport::in_place), field("address", &JobReport::address),
    field("pid", &JobReport::pid, rule::between(0, INT32_MAX)),
    field("checkpoint_node", &JobReport::checkpoint_node, rule::node_or_none),
    field("checkpoint_taken", &JobReport::checkpoint_taken, rule::time),
    field("checkpoint_bytes", &JobReport::checkpoint_bytes, rule::bytes),
    field("checkpoint_trouble", &JobReport::checkpoint_trouble), field("stats", &JobReport::stats),
    field("stay_run", &JobReport::stay_run, rule::known_span),
    field("alone", &JobReport::alone, rule::span), field("places", &JobReport::places, places_rule),
    field("lacking", &JobReport::lacking, places_rule),
    field("no_user", &JobReport::no_user, places_rule),
    field("why_no_user", &JobReport::why_no_user), field("cancelled", &JobReport::cancelled),
    field("wait_status", &JobReport::wait_status), field("why", &JobReport::why),
    part("why_code", &JobReport::why, &Cause::code, cause_rule),
    field("ended", &JobReport::ended, rule::time), field("array", &JobReport::array, rule::name),
    field("array_index", &JobReport::array_index),
    field("waits_for", &JobReport::waits_for, rule::name),
    field("files", &JobReport::files, rule::unless_same), field("paused", &JobReport::paused),
    part("paused_code", &JobReport::paused, &Cause::code, cause_rule),
    field("gang", &JobReport::gang, rule::name), field("component", &JobReport::component),
    field("components", &JobReport::components), field("optional", &JobReport::optional),
    field("only_node", &JobReport::only_node, rule::node_or_none),
    field("spread", &JobReport::spread), field("pack", &JobReport::pack),
    field("near", &JobReport::near),
    field("near_trip_us", &JobReport::near_trip_us, rule::between(0, market::near_most)),
    field("near_mbit", &JobReport::near_mbit, rule::between(0, market::near_most)),
    field("uid_there", &JobReport::uid_there), field("image_stays", &JobReport::image_stays),
    part("image_stays_code", &JobReport::image_stays, &Cause::code, cause_rule));

SOUK_FIELDS(JobUse,  //
            field("id", &JobUse::id), field("epoch", &JobUse::epoch, rule::count),
            field("run", &JobUse::run, rule::span), field("cpu", &JobUse::cpu, rule::span),
            field("ended", &JobUse::ended));
SOUK_FIELDS(JobSend,  //
            field("id", &JobSend::id), field("epoch", &JobSend::epoch, rule::count),
            field("to", &JobSend::to, rule::node),
            field("sent_bytes", &JobSend::sent_bytes, rule::bytes),
            field("total_bytes", &JobSend::total_bytes, rule::bytes),
            field("span", &JobSend::span, rule::span));
SOUK_FIELDS(UseReport,  //
            field("jobs", &UseReport::jobs, rule::at_most(1024)),
            field("sends", &UseReport::sends, rule::at_most(1024)));

SOUK_FIELDS(OpenHours,  //
            field("from_s", &OpenHours::from_s, rule::between(0, OpenHours::week_s - 1)),
            field("to_s", &OpenHours::to_s, rule::between(1, 2 * OpenHours::week_s)),
            field("price", &OpenHours::price, rule::price));

SOUK_FIELDS(ResourceOffer,  //
            field("name", &ResourceOffer::name, rule::name),
            field("count", &ResourceOffer::count, rule::between(0, market::NamedAmount::count_max)),
            field("reserve", &ResourceOffer::reserve, rule::price),
            field("device", &ResourceOffer::device));

SOUK_FIELDS(
    ProviderReport,  //
    field("node", &ProviderReport::node, rule::node),
    field("on_market", &ProviderReport::on_market),
    field("reserve", &ProviderReport::reserve, rule::price),
    field("speed", &ProviderReport::speed, rule::between(1, 1'000'000)),
    field("cpus", &ProviderReport::cpus, rule::cpus),
    field("memory_mb", &ProviderReport::memory_mb, rule::megabytes),
    field("free_mb", &ProviderReport::free_mb, rule::megabytes),
    field("load_permille", &ProviderReport::load_permille, rule::between(0, 1'000'000'000)),
    field("wait_permille", &ProviderReport::wait_permille, rule::between(0, 1'000'000'000)),
    field("load_source", &ProviderReport::load_source, rule::name), flat(&ProviderReport::machine),
    field("cannot", &ProviderReport::cannot), field("restriction", &ProviderReport::restriction),
    field("opens", &ProviderReport::opens, rule::time),
    field("version", &ProviderReport::version, rule::name), field("holds", &ProviderReport::holds),
    field("has_memory_pressure", &ProviderReport::has_memory_pressure),
    field("memory_pressure_permille", &ProviderReport::memory_pressure_permille,
          rule::between(0, 1'000)),
    field("near_group", &ProviderReport::near_group, rule::name),
    field("near_trip_us", &ProviderReport::near_trip_us, rule::between(0, market::near_most)),
    field("near_mbit", &ProviderReport::near_mbit, rule::between(0, market::near_most)),
    field("attributes", &ProviderReport::attributes,
          rule::at_most(ProviderReport::attributes_max,
                        rule::text(TextRule::line, ProviderReport::attribute_bytes_max))),
    field("hours", &ProviderReport::hours, rule::at_most(ProviderReport::hours_max)),
    field("resources", &ProviderReport::resources, rule::at_most(resources_max)));

SOUK_FIELDS(Order, field("id", &Order::id),  //
            field("seq", &Order::seq, rule::count),
            field("kind", &Order::kind, rule::one_of(Order::Kind::run, Order::Kind::give_up)),
            field("node", &Order::node, rule::node_or_none),
            field("address", &Order::address, rule::address),
            field("price", &Order::price, rule::price),
            field("speed", &Order::speed, rule::between(0, market::speed_max)),
            field("books", &Order::books), field("reason", &Order::reason),
            field("ticket", &Order::ticket, sealed_ticket_rule), field("hold", &Order::hold),
            field("layouts", &Order::layouts), field("near", &Order::near),
            field("stand", &Order::stand), field("asks", &Order::asks),
            field("resources", &Order::resources, rule::text(TextRule::line, resource_text_max)),
            field("source_ticket", &Order::source_ticket, sealed_ticket_rule));

// A digest of a key, in hexadecimal digits.
inline constexpr Rule ticket_keys_rule = rule::at_most(3, rule::text(TextRule::bytes, 64));

SOUK_FIELDS(Ticket, field("id", &Ticket::id), field("number", &Ticket::number, rule::count),
            field("uid", &Ticket::uid), field("user", &Ticket::user, rule::name),
            field("source", &Ticket::source, rule::node_or_none),
            field("destination", &Ticket::destination, rule::node),
            field("address", &Ticket::address, rule::address),
            field("cpus", &Ticket::cpus, rule::cpus),
            field("memory_mb", &Ticket::memory_mb, rule::megabytes),
            field("keys", &Ticket::keys, ticket_keys_rule),
            field("issued", &Ticket::issued, rule::time),
            field("expires", &Ticket::expires, rule::time),
            field("realm", &Ticket::realm, rule::name), field("job_address", &Ticket::job_address),
            field("names_address", &Ticket::names_address),
            field("resources", &Ticket::resources, rule::text(TextRule::line, resource_text_max)),
            field("account", &Ticket::account, rule::name));

SOUK_FIELDS(OrderFailed, field("id", &OrderFailed::id),
            field("seq", &OrderFailed::seq, rule::count),
            field("node", &OrderFailed::node, rule::node_or_none), field("why", &OrderFailed::why),
            part("why_code", &OrderFailed::why, &Cause::code, cause_rule));

SOUK_FIELDS(JobNote, field("id", &JobNote::id),  //
            field("price", &JobNote::price, rule::price),
            field("cost", &JobNote::cost, rule::amount), field("comment", &JobNote::comment),
            field("settled", &JobNote::settled),
            field("day_limit", &JobNote::day_limit, rule::amount),
            field("day_left", &JobNote::day_left, rule::amount),
            field("day_cost", &JobNote::day_cost, rule::amount),
            field("code", &JobNote::code, rule::name),
            field("place_ends", &JobNote::place_ends, rule::time));

SOUK_FIELDS(ProviderNote,  //
            field("current_price", &ProviderNote::current_price, rule::amount),
            field("next_price", &ProviderNote::next_price, rule::amount),
            field("earned", &ProviderNote::earned, rule::amount),
            field("guests", &ProviderNote::guests, rule::between(0, INT32_MAX)),
            field("of_market", &ProviderNote::of_market, rule::at_most(resources_max, rule::name)));

SOUK_FIELDS(Peer, field("node", &Peer::node, rule::node_or_none),
            field("address", &Peer::address, rule::address));

SOUK_FIELDS(Directory, field("peers", &Directory::peers, rule::at_most(4096)));

SOUK_FIELDS(NodeLost, field("node", &NodeLost::node, rule::node));

inline constexpr Rule site_names_rule =
    rule::at_most(SiteTerms::names_max, rule::text(TextRule::label, SiteTerms::name_bytes_max));
SOUK_FIELDS(SiteTerms,  //
            field("most_cpus", &SiteTerms::most_cpus, rule::between(0, rule::cpus_max)),
            field("users", &SiteTerms::users, site_names_rule),
            field("projects", &SiteTerms::projects, site_names_rule),
            field("hours", &SiteTerms::hours,
                  rule::text(TextRule::line, SiteTerms::hours_bytes_max)),
            field("least", &SiteTerms::least, rule::price),
            optional("credit", &SiteTerms::credit, "given", 1, rule::price));

SOUK_FIELDS(SitePart, field("cpus", &SitePart::cpus, rule::cpus),
            field("memory_mb", &SitePart::memory_mb, rule::megabytes));

SOUK_FIELDS(SiteRoom, field("cpus", &SiteRoom::cpus, rule::cpus),
            field("memory_mb", &SiteRoom::memory_mb, rule::megabytes),
            field("price", &SiteRoom::price, rule::price),
            field("speed", &SiteRoom::speed, rule::between(0, market::speed_max)),
            field("starts_in", &SiteRoom::starts_in, rule::span));

SOUK_FIELDS(SiteAsk, field("number", &SiteAsk::number), field("job", &SiteAsk::job),
            field("user", &SiteAsk::user, rule::text(TextRule::label, rule::name_bytes_max)),
            field("terms", &SiteAsk::terms, rule::required),
            field("hold", &SiteAsk::hold, rule::span),
            field("token", &SiteAsk::token, rule::text(TextRule::line, site_token_max)),
            field("parts", &SiteAsk::parts, rule::at_most(site_parts_max)));

SOUK_FIELDS(SiteOffer, field("number", &SiteOffer::number), field("why", &SiteOffer::why),
            part("why_code", &SiteOffer::why, &Cause::code, cause_rule),
            field("price", &SiteOffer::price, rule::price),
            field("speed", &SiteOffer::speed, rule::between(0, market::speed_max)),
            field("starts_in", &SiteOffer::starts_in, rule::span),
            field("held_for", &SiteOffer::held_for, rule::span),
            field("rooms", &SiteOffer::rooms, rule::at_most(site_rooms_max)));

SOUK_FIELDS(SiteJob, field("report", &SiteJob::report, rule::required),
            field("to", &SiteJob::to, rule::node_or_none),
            field("address", &SiteJob::address, rule::address),
            field("number", &SiteJob::number, rule::count),
            field("token", &SiteJob::token, rule::text(TextRule::line, site_token_max)));

SOUK_FIELDS(SiteFailed, field("failed", &SiteFailed::failed, rule::required));

SOUK_FIELDS(SiteOrder, field("order", &SiteOrder::order, rule::required),
            field("number", &SiteOrder::number, rule::count));

SOUK_FIELDS(SiteNote, field("note", &SiteNote::note, rule::required), field("no", &SiteNote::no),
            part("no_code", &SiteNote::no, &Cause::code, cause_rule),
            field("number", &SiteNote::number, rule::count));

// A hash of SHA-256, or nothing.
inline constexpr Rule site_head_rule = rule::text(TextRule::line, 64);
inline constexpr Rule site_note_rule = rule::text(TextRule::line, settlement_note_bytes_max);
SOUK_FIELDS(SiteStatement, field("id", &SiteStatement::id, rule::count),
            field("amount", &SiteStatement::amount, rule::amount),
            field("note", &SiteStatement::note, site_note_rule),
            field("withdrawn", &SiteStatement::withdrawn));

SOUK_FIELDS(SiteAccount, field("entries", &SiteAccount::entries, rule::count),
            field("head", &SiteAccount::head, site_head_rule),
            field("owed", &SiteAccount::owed, rule::balance),
            field("states", &SiteAccount::states, rule::unless_same),
            field("answered", &SiteAccount::answered, rule::count),
            field("confirmed", &SiteAccount::confirmed));

SOUK_FIELDS(NodeWord, field("node", &NodeWord::node, rule::node),
            field("cpus", &NodeWord::cpus, rule::cpus),
            field("speed", &NodeWord::speed, rule::between(0, market::speed_max)),
            field("memory_mb", &NodeWord::memory_mb, rule::megabytes),
            field("free_mb", &NodeWord::free_mb, rule::megabytes),
            field("load_permille", &NodeWord::load_permille, rule::between(0, 1'000'000'000)),
            field("price", &NodeWord::price, rule::price));

SOUK_FIELDS(SiteWord, field("site", &SiteWord::site, rule::name),
            field("root", &SiteWord::root, rule::text(TextRule::line, 64)),
            field("at", &SiteWord::at, rule::time), field("nodes", &SiteWord::nodes),
            field("cpus", &SiteWord::cpus, rule::count), field("waiting", &SiteWord::waiting),
            field("running", &SiteWord::running),
            field("some", &SiteWord::some, rule::at_most(SiteWord::nodes_max)));

SOUK_FIELDS(SiteWords, field("words", &SiteWords::words, rule::at_most(SiteWords::words_max)));

SOUK_FIELDS(SiteSettlement, field("ours", &SiteSettlement::ours, rule::unless_same),
            field("theirs", &SiteSettlement::theirs, rule::unless_same),
            field("last", &SiteSettlement::last, rule::count),
            field("answered", &SiteSettlement::answered, rule::count),
            field("confirmed", &SiteSettlement::confirmed),
            field("entries", &SiteSettlement::entries, rule::count),
            field("head", &SiteSettlement::head, site_head_rule));

}  // namespace souk
