// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/money_replies.hpp"

#include <algorithm>
#include <charconv>

#include "kernel/base/fields.hpp"
#include "kernel/base/json.hpp"
#include "kernel/base/number.hpp"
#include "kernel/base/setting.hpp"
#include "market/daemon/user_replies.hpp"

namespace souk {
namespace {

using market::Holder;
using market::Market;
using market::MoneyOrder;
using market::Receipt;
using market::root_uid;

constexpr size_t note_bytes_max = 200, money_page_entries_max = 500;

Result<std::string> note_of(const std::string& text) {
    const bool plain = std::none_of(text.begin(), text.end(), [](char c) {
        return static_cast<unsigned char>(c) < ' ' || c == '\x7f';
    });
    if (!plain || text.size() > note_bytes_max)
        return fail("a note is one line of at most " + std::to_string(note_bytes_max) + " bytes");
    return text;
}

// As it was named, or as it is known.
Status name_user(const Market& market, const std::string& who, uint32_t& uid, std::string& name) {
    TRY_ASSIGN(uid, user_of(market, who));
    name = name_of(market, uid);
    if (name.empty()) name = "user " + std::to_string(uid);
    return {};
}

// deposit USER AMOUNT NOTE, withdraw USER AMOUNT NOTE, transfer FROM-or-"-" TO AMOUNT NOTE, payout
// NODE AMOUNT-or-all USER-or-"-" NOTE
Result<MoneyOrder> order_of(const Market& market, const std::string& verb,
                            const std::vector<std::string>& args, uint32_t uid) {
    if (uid != root_uid && verb != "transfer")
        return fail(CauseCode::not_allowed, "only root may do that with money that is not its own");
    const bool two = verb == "transfer" || verb == "payout";
    if (args.size() != (two ? 4 : 3))
        return fail(verb + " takes " + (two ? "4" : "3") + " arguments, not " +
                    std::to_string(args.size()));
    MoneyOrder o;
    const std::string& amount = verb == "transfer" ? args[2] : args[1];
    TRY_ASSIGN(o.note, note_of(args.back()));
    if (verb == "payout") {
        o.kind = Receipt::Kind::payout;
        o.node = args[0];
        if (!market.ledger().accounts().contains(Holder::provider(o.node)))
            return fail(CauseCode::not_found, "node " + o.node + " has earned nothing here");
        o.outside = args[2] == "-";
        if (!o.outside) TRY(name_user(market, args[2], o.uid, o.user));
        if (amount == "all") o.amount = market.ledger().balance(Holder::provider(o.node));
    } else if (verb == "transfer") {
        o.kind = Receipt::Kind::transfer;
        TRY(name_user(market, args[0] == "-" ? std::to_string(uid) : args[0], o.uid, o.user));
        TRY(name_user(market, args[1], o.other, o.other_user));
    } else {
        o.kind = verb == "deposit" ? Receipt::Kind::deposit : Receipt::Kind::withdrawal;
        TRY(name_user(market, args[0], o.uid, o.user));
    }
    if (verb == "payout" && amount == "all") return o;
    auto money = parse_money(amount);
    if (!money) return wrap(verb, money.error());
    o.amount = *money;
    return o;
}

Result<Holder> holder_of(const Market& market, const std::string& who, uint32_t uid) {
    Holder holder = Holder::user(uid);
    if (who == "market") {
        holder = Holder{};
    } else if (who == "outside") {
        holder = Holder::outside();
    } else if (market.ledger().accounts().contains(Holder::provider(who))) {
        holder = Holder::provider(who);
    } else if (who != "-") {
        TRY_ASSIGN(const uint32_t of, user_of(market, who));
        holder = Holder::user(of);
    }
    const bool may =
        holder.kind == Holder::Kind::user ? market.may_look_at(holder.uid, uid) : uid == root_uid;
    if (!may)
        return fail(CauseCode::not_allowed, "only root may see the account of " + holder.text());
    return holder;
}

// The other side of an entry.
std::string other_side(const Receipt& r, const Holder& holder) {
    if (r.kind == Receipt::Kind::transfer)
        return holder == Holder::user(r.uid) ? r.other_user : r.user;
    if (holder.kind == Holder::Kind::user) return r.node.empty() ? "outside" : r.node;
    return r.user.empty() ? "outside" : r.user;
}

void write_entry(JsonWriter& w, const Receipt& r, const Holder& holder, Money amount,
                 Money balance) {
    w.begin_object().field("receipt", r.seq).field("at_unix_s", r.to.seconds());
    w.field("kind", to_string(r.kind)).field("amount", amount).field("balance", balance);
    if (!r.job.home.empty()) w.field("job", r.job.text());
    w.field("with", other_side(r, holder));
    if (!r.note.empty()) w.field("note", r.note);
    w.end_object();
}

// The mark at which a statement goes on: behind which receipt, how many more, and the balance
// before it.
struct Mark {
    uint64_t before = uint64_t{1} << 62, left = UINT64_MAX;
    Money balance;
    std::string text() const {
        return std::to_string(before) + "/" + std::to_string(left) + "/" +
               std::to_string(balance.micro);
    }
};

Result<Mark> parse_mark(const std::string& after) {
    Mark mark;
    const char* at = after.data();
    const char* const end = at + after.size();
    const auto number = [&](auto& to) {
        const auto [p, wrong] = std::from_chars(at, end, to);
        at = p == end ? p : p + 1;
        return wrong == std::errc();
    };
    // It comes back from whoever asks, who may have changed it.
    if (number(mark.before) && number(mark.left) && number(mark.balance.micro) && at == end &&
        mark.balance.micro <= rule::amount_micro_max &&
        mark.balance.micro >= -rule::amount_micro_max)
        return mark;
    return fail("'" + after + "' is not where a statement goes on");
}

}  // namespace

Result<std::string> move_money_reply(Market& market, const std::string& verb,
                                     const std::vector<std::string>& args, uint32_t uid,
                                     Nanos now) {
    TRY_ASSIGN(const MoneyOrder order, order_of(market, verb, args, uid));
    TRY_ASSIGN(const Money rest, market.move_money(order, uid, now));
    const bool payout = order.kind == Receipt::Kind::payout;
    JsonWriter w;
    w.begin_object().field("kind", to_string(order.kind)).field("amount", order.amount);
    w.field("account", payout ? order.node : order.user).field("balance", rest);
    const std::string whose = payout ? "node " + order.node : "the account of " + order.user;
    w.field("message", format_money(order.amount) + ": " + to_string(order.kind) + "; " + whose +
                           " has " + format_money(rest));
    w.end_object();
    return w.take();
}

Result<std::string> statement_reply(const Market& market, const ReceiptBook& book,
                                    const std::vector<std::string>& args, const std::string& after,
                                    uint32_t uid, std::string& next) {
    ReceiptBook::Filter filter;
    Mark mark;
    uint64_t part = money_page_entries_max;
    TRY_ASSIGN(filter.holder, holder_of(market, args.empty() ? "-" : args[0], uid));
    for (size_t i = 1; i < args.size(); ++i) {
        const auto [key, value] = parse_setting(args[i]);
        const auto n = whole_number<uint64_t>(value);
        if ((key != "since" && key != "limit" && key != "page") || !n)
            return fail("statement: '" + args[i] + "' is no since=UNIX_SECONDS, limit=N or page=N");
        if (key == "page") part = std::clamp<uint64_t>(*n, 1, money_page_entries_max);
        if (key == "limit") mark.left = *n;
        if (key == "since")
            filter.since = Nanos::from_s(
                static_cast<int64_t>(std::min<uint64_t>(*n, INT64_MAX / 2'000'000'000)));
    }
    if (after.empty()) {
        TRY_ASSIGN(mark.balance, book.balance(*filter.holder));
    } else {
        TRY_ASSIGN(mark, parse_mark(after));
    }
    TRY_ASSIGN(const auto page, book.page(filter, mark.before, std::min(mark.left, part)));
    JsonWriter w;
    w.begin_array();
    for (const auto& entry : page.entries) {
        Money amount;
        for (const market::Posting& p : market::postings(entry.receipt))
            if (p.holder == *filter.holder) amount += p.amount;
        write_entry(w, entry.receipt, *filter.holder, amount, mark.balance);
        mark.balance -= amount;
    }
    mark.left -= std::min<uint64_t>(mark.left, page.entries.size());
    if (page.before && mark.left > 0) {
        mark.before = *page.before;
        next = mark.text();
    }
    return w.end_array().take();
}

}  // namespace souk
