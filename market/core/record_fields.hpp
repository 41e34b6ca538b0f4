// SPDX-License-Identifier: GPL-2.0-or-later
// The lists of fields (kernel/base/fields.hpp) of the records that a Market keeps.
#pragma once

#include "market/core/market.hpp"
#include "market/core/message_fields.hpp"

namespace souk {

namespace market {
inline constexpr int64_t days_max = 1'000'000;
inline constexpr int32_t history_minutes_max = 44'640;
inline constexpr Rule promise_rule = rule::one_of(PromiseEnd::none, PromiseEnd::cannot_move);
inline constexpr Rule day_rule = rule::plus(1, rule::between(0, days_max));
}  // namespace market

SOUK_FIELDS(market::Tab,  //
            field("from", &market::Tab::from, rule::time),
            field("to", &market::Tab::to, rule::time),
            field("run", &market::Tab::run, rule::balance),
            field("price", &market::Tab::price, rule::price),
            field("amount", &market::Tab::amount, rule::balance),
            field("cpu", &market::Tab::cpu, rule::span), field("decided", &market::Tab::decided),
            field("files_out", &market::Tab::files_out, rule::count),
            field("files_in", &market::Tab::files_in, rule::count),
            field("files_requests", &market::Tab::files_requests, rule::count));

SOUK_FIELDS(market::Account,  //
            field("cost", &market::Account::amount, rule::amount),
            field("rest", &market::Account::rest, rule::between(0, market::hour_ns - 1)));

// A later version may have more codes and figures: they are kept, and said by `comment`.
SOUK_FIELDS(market::ReasonFigure,
            field("what", &market::ReasonFigure::what, rule::between(0, UINT16_MAX)),
            field("number", &market::ReasonFigure::number),
            field("text", &market::ReasonFigure::text));

SOUK_FIELDS(market::ReasonRecord,
            field("code", &market::ReasonRecord::code, rule::between(0, UINT16_MAX)),
            field("figures", &market::ReasonRecord::figures, rule::at_most(16)));

SOUK_FIELDS(market::Stay,  //
            field("node", &market::Stay::node, rule::node_or_none),
            field("epoch", &market::Stay::epoch, rule::count),
            field("run", &market::Stay::run, rule::span),
            field("cost", &market::Stay::cost, rule::balance),
            field("measured", &market::Stay::measured, rule::known_span),
            field("measured_all", &market::Stay::measured_all), field("over", &market::Stay::over),
            field("refunded", &market::Stay::refunded));

SOUK_FIELDS(
    market::Contract,  //
    field("start", &market::Contract::start, rule::time),
    field("end", &market::Contract::end, rule::time),
    field("node", &market::Contract::node, rule::node_or_none),
    field("price", &market::Contract::price, rule::price),
    field("cpus", &market::Contract::cpus, rule::cpus),
    field("memory_mb", &market::Contract::memory_mb, rule::megabytes),
    field("places_lost", &market::Contract::places_lost),
    field("sold", &market::Contract::sold, rule::time), field("over", &market::Contract::over),
    field("resources", &market::Contract::resources, rule::text(TextRule::line, resource_text_max)),
    field("needs", &market::Contract::needs, rule::text(TextRule::line, market::Needs::text_max)));

SOUK_FIELDS(market::Promised,  //
            field("deadline", &market::Promised::deadline, rule::time),
            field("work", &market::Promised::work, rule::span),
            field("price", &market::Promised::price, rule::price),
            field("learned", &market::Promised::learned),
            field("end", &market::Promised::end, market::promise_rule),
            field("keeps", &market::Promised::keeps, market::promise_rule),
            field("held_on", &market::Promised::held_on, rule::node_or_none),
            field("held_cost", &market::Promised::held_cost, rule::balance),
            field("back_from", &market::Promised::back_from, rule::node_or_none),
            field("back", &market::Promised::back, rule::price),
            field("counted", &market::Promised::counted, rule::price));

SOUK_FIELDS(market::SiteVisit, field("site", &market::SiteVisit::site, rule::name),
            field("left", &market::SiteVisit::left, rule::time),
            field("again", &market::SiteVisit::again, rule::time),
            field("tries", &market::SiteVisit::tries),
            field("owed", &market::SiteVisit::owed, rule::count),
            field("run", &market::SiteVisit::run, rule::span));

SOUK_FIELDS(market::Loan, field("site", &market::Loan::site, rule::name),
            field("over", &market::Loan::over), field("seq", &market::Loan::seq, rule::count),
            field("its_seq", &market::Loan::its_seq, rule::count),
            field("run", &market::Loan::run, rule::span),
            field("recalled", &market::Loan::recalled), field("asked", &market::Loan::asked),
            field("price", &market::Loan::price, rule::price),
            field("priced", &market::Loan::priced),
            field("number", &market::Loan::number, rule::count),
            field("by_markets", &market::Loan::by_markets),
            field("came", &market::Loan::came, rule::time),
            field("speed", &market::Loan::speed, rule::between(0, market::speed_max)),
            field("trips", &market::Loan::trips, rule::time),
            field("visits", &market::Loan::visits, rule::at_most(market::Loan::visits_max)));

SOUK_FIELDS(
    market::FilterWord,  //
    field("state", &market::FilterWord::state,
          rule::one_of(market::FilterWord::State::none, market::FilterWord::State::refused)),
    field("why", &market::FilterWord::why,
          rule::text(TextRule::line, market::FilterWord::why_bytes_max)),
    field("token", &market::FilterWord::token,
          rule::text(TextRule::line, market::FilterWord::token_bytes_max)),
    field("bars", &market::FilterWord::bars, rule::text(TextRule::line, 1'100)),
    field("needs", &market::FilterWord::needs, rule::text(TextRule::line, market::Needs::text_max)),
    field("hold", &market::FilterWord::hold),
    field("account", &market::FilterWord::account, rule::name));

SOUK_FIELDS(market::JobRecord,  //
            packed("report", &market::JobRecord::report), flat(&market::JobRecord::account),
            field("tab", &market::JobRecord::tab, rule::unless_same),
            field("billed", &market::JobRecord::billed, rule::span),
            field("skew", &market::JobRecord::skew, rule::span),
            field("price", &market::JobRecord::price, rule::price),
            field("payee", &market::JobRecord::payee, rule::node_or_none),
            packed("order", &market::JobRecord::order),
            field("hold", &market::JobRecord::hold,
                  rule::one_of(market::Hold::none, market::Hold::by_user)),
            field("hold_node", &market::JobRecord::hold_node, rule::node_or_none),
            field("cancel", &market::JobRecord::cancel),
            field("out_of_budget", &market::JobRecord::out_of_budget),
            field("finish_seq", &market::JobRecord::finish_seq, rule::count),
            field("ended", &market::JobRecord::ended, rule::time),
            field("comment", &market::JobRecord::comment),
            field("reason", &market::JobRecord::reason, rule::unless_same),
            field("stays", &market::JobRecord::stays, rule::at_most(64, {}, true)),
            field("ran_since", &market::JobRecord::ran_since, rule::time),
            field("done", &market::JobRecord::done, rule::span),
            field("payer", &market::JobRecord::payer),
            field("waited", &market::JobRecord::waited, rule::span),
            field("waits_since", &market::JobRecord::waits_since, rule::time),
            field("unbacked", &market::JobRecord::unbacked),
            field("contract", &market::JobRecord::contract, rule::unless_same),
            field("promised", &market::JobRecord::promised, rule::unless_same),
            field("given", &market::JobRecord::given),
            field("loan", &market::JobRecord::loan, rule::unless_same),
            field("arrived", &market::JobRecord::arrived, rule::time),
            field("filter", &market::JobRecord::filter, rule::unless_same));

SOUK_FIELDS(market::NodeRecord,  //
            field("node", &market::NodeRecord::node, rule::node),
            field("address", &market::NodeRecord::address, rule::address),
            packed_if(&market::NodeRecord::has_report, "report", &market::NodeRecord::report),
            // what is taken back may be more than was earned
            field("earned", &market::NodeRecord::earned, rule::balance),
            field("differences", &market::NodeRecord::differences),
            field("different", &market::NodeRecord::different, rule::span));

SOUK_FIELDS(market::Holder,  //
            field("kind", &market::Holder::kind,
                  rule::one_of(market::Holder::Kind::market, market::Holder::Kind::outside)),
            field("uid", &market::Holder::uid),
            field("node", &market::Holder::node, rule::node_or_none));

SOUK_FIELDS(market::AccountRecord,  //
            flat(&market::AccountRecord::holder),
            field("name", &market::AccountRecord::name, rule::name),
            field("balance", &market::AccountRecord::balance, rule::balance),
            field("day", &market::AccountRecord::day, market::day_rule),
            field("day_paid", &market::AccountRecord::day_paid, rule::balance),
            field("moved", &market::AccountRecord::moved, rule::balance),
            field("granted", &market::AccountRecord::granted, rule::amount),
            field("used", &market::AccountRecord::used, rule::balance));

SOUK_FIELDS(market::UserLimits,  //
            optional("spend_per_day", &market::UserLimits::spend_per_day, "given", 1, rule::price),
            optional("jobs", &market::UserLimits::jobs, "given", 2, rule::between(0, INT32_MAX)),
            optional("cpus", &market::UserLimits::cpus, "given", 4, rule::between(0, INT32_MAX)),
            optional("credit", &market::UserLimits::credit, "given", 8, rule::price),
            optional("allowance", &market::UserLimits::allowance, "given", 16, rule::price),
            field("every", &market::UserLimits::every,
                  rule::one_of(market::Every::day, market::Every::month)),
            field("expires", &market::UserLimits::expires),
            field("hours", &market::UserLimits::hours,
                  rule::text(TextRule::line, market::UserLimits::hours_bytes_max)),
            optional("reserve", &market::UserLimits::reserve, "given", 32,
                     rule::between(0, INT32_MAX)));

SOUK_FIELDS(market::UserRecord,  //
            field("uid", &market::UserRecord::uid),
            field("name", &market::UserRecord::name, rule::name), flat(&market::UserRecord::limits),
            field("ended_day", &market::UserRecord::ended_day, market::day_rule),
            field("granted", &market::UserRecord::granted, market::day_rule),
            field("members", &market::UserRecord::members, rule::at_most(market::members_max)));

SOUK_FIELDS(market::PriceRecord::Speed,
            field("speed", &market::PriceRecord::Speed::speed, rule::between(1, market::speed_max)),
            field("minutes", &market::PriceRecord::Speed::minutes,
                  rule::between(1, market::history_minutes_max)),
            field("price", &market::PriceRecord::Speed::price, rule::price));

SOUK_FIELDS(
    market::PriceRecord,  //
    field("minute", &market::PriceRecord::minute, rule::between(0, market::days_max * 1'440)),
    field("minutes", &market::PriceRecord::minutes, rule::between(1, market::history_minutes_max)),
    field("closed", &market::PriceRecord::closed, rule::between(0, market::history_minutes_max)),
    field("least", &market::PriceRecord::least, rule::price),
    field("low", &market::PriceRecord::low, rule::price),
    field("high", &market::PriceRecord::high, rule::price),
    field("speeds", &market::PriceRecord::speeds, rule::at_most(market::PriceHistory::speeds_max)));

SOUK_FIELDS(market::SolverSetting,  //
            field("what", &market::SolverSetting::what, rule::name),
            field("value", &market::SolverSetting::value, rule::name),
            field("why", &market::SolverSetting::why, rule::text(TextRule::line, 512)),
            field("uid", &market::SolverSetting::uid),
            field("at", &market::SolverSetting::at, rule::between(0, INT64_MAX)));

SOUK_FIELDS(market::MetaRecord,  //
            field("seq_limit", &market::MetaRecord::seq_limit, rule::count),
            field("finish_seq", &market::MetaRecord::finish_seq, rule::count),
            field("retired", &market::MetaRecord::retired, rule::amount),
            field("ledger", &market::MetaRecord::ledger),
            field("receipts", &market::MetaRecord::receipts, rule::count),
            field("day", &market::MetaRecord::day, market::day_rule),
            field("finished_retired", &market::MetaRecord::finished_retired),
            field("settings", &market::MetaRecord::settings, rule::at_most(64)),
            field("decisions", &market::MetaRecord::decisions),
            field("arrivals", &market::MetaRecord::arrivals));

}  // namespace souk
