// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/ledger_replies.hpp"

#include <algorithm>

#include "kernel/base/json.hpp"
#include "kernel/base/number.hpp"
#include "kernel/base/setting.hpp"
#include "kernel/wire/messages.hpp"
#include "market/core/bill.hpp"
#include "market/core/market_io.hpp"
#include "market/daemon/user_replies.hpp"

namespace souk {
namespace {

using market::Holder;
using market::Market;
using market::Receipt;
using market::root_uid;

constexpr size_t page_entries_max = 500;

template <class T>
Result<T> whole(const std::string& key, const std::string& text) {
    if (const auto value = whole_number<T>(text)) return *value;
    return fail(key + ": '" + text + "' is not a whole number");
}

void write_account(JsonWriter& w, const Holder& holder, const std::string& name, Money balance,
                   Money open) {
    w.begin_object();
    switch (holder.kind) {
        case Holder::Kind::market: w.field("account", "market"); break;
        case Holder::Kind::user:
            w.field("account", "user").field("uid", holder.uid).field("name", name);
            break;
        case Holder::Kind::node: w.field("account", "node").field("name", holder.node); break;
        case Holder::Kind::outside: w.field("account", "outside"); break;
    }
    w.field("balance", balance).field("open", open).end_object();
}

void write_receipt(JsonWriter& w, const ReceiptBook::Entry& e) {
    const Receipt& r = e.receipt;
    w.begin_object().field("receipt", r.seq).field("kind", to_string(r.kind));
    w.field("job", r.job.home.empty() ? "" : r.job.text())
        .field("uid", r.uid)
        .field("user", r.user);
    w.field("node", r.node)
        .field("from_unix_s", r.from.seconds())
        .field("to_unix_s", r.to.seconds());
    w.field("run_s", r.run.seconds())
        .field("cpu_s", r.cpu.seconds())
        .field("price", r.price)
        .field("cpus", r.cpus);
    w.field("paid", r.paid).field("earned", r.earned).field("hash", e.hash);
    if (r.decided_to > 0) w.field("decided_from", r.decided_from).field("decided_to", r.decided_to);
    if (!r.reason.empty()) w.field("reason", r.reason);
    if (r.moves()) w.field("by", r.by);
    if (r.kind == Receipt::Kind::transfer)
        w.field("other", r.other_user).field("other_uid", r.other);
    if (!r.note.empty()) w.field("note", r.note);
    if (r.has_files())
        w.field("files_sent_bytes", r.files_out)
            .field("files_received_bytes", r.files_in)
            .field("files_requests", r.files_requests);
    w.end_object();
}

struct LedgerQuery {
    ReceiptBook::Filter filter;
    uint64_t limit = UINT64_MAX;
    uint64_t page = page_entries_max;  // at most so many in one part
};

Result<LedgerQuery> parse_query(const Market& market, const std::vector<std::string>& filters,
                                uint32_t uid) {
    LedgerQuery q;
    for (const std::string& word : filters) {
        const auto [key, value] = parse_setting(word);
        if (key == "job") {
            TRY_ASSIGN(q.filter.job, parse_job_id(value));
        } else if (key == "user") {
            TRY_ASSIGN(q.filter.uid, user_of(market, value));
        } else if (key == "node") {
            if (!valid_node_name(value)) return fail("'" + value + "' is not a node name");
            q.filter.node = value;
        } else if (key == "since") {
            TRY_ASSIGN(const int64_t seconds, whole<int64_t>(key, value));
            q.filter.since =
                Nanos::from_s(std::clamp<int64_t>(seconds, 0, INT64_MAX / 2'000'000'000));
        } else if (key == "limit") {
            TRY_ASSIGN(q.limit, whole<uint64_t>(key, value));
        } else if (key == "page") {
            TRY_ASSIGN(const uint64_t page, whole<uint64_t>(key, value));
            q.page = std::clamp<uint64_t>(page, 1, page_entries_max);
        } else {
            return fail("receipts: '" + word +
                        "' is none of job, user, node, since, limit and page");
        }
    }
    if (uid == root_uid) return q;
    if (q.filter.uid && *q.filter.uid != uid)
        return fail(CauseCode::not_allowed, "only root may see the receipts of others");
    q.filter.uid = uid;
    return q;
}

}  // namespace

Result<std::string> account_reply(const Market& market, const std::string& who, uint32_t uid) {
    const auto& accounts = market.ledger().accounts();
    std::map<Holder, std::pair<std::string, Money>> wanted;  // name, what is open
    for (const auto& [holder, record] : accounts) wanted[holder].first = record.name;
    wanted[Holder{}];
    for (const auto& [id, job] : market.jobs()) {
        const market::JobRecord& r = job.record;
        auto& user = wanted[Holder::user(job.user->record.uid)];
        user.first = market::bill::payer_name(job);
        if (r.tab.empty()) continue;
        user.second -= r.tab.amount;
        wanted[Holder::provider(r.payee)].second += r.tab.amount;
    }
    for (const auto& [name, node] : market.nodes())
        if (node.record.has_report) wanted[Holder::provider(name)];
    std::erase_if(wanted, [&](const auto& entry) {
        const Holder& holder = entry.first;
        const bool is_user = holder.kind == Holder::Kind::user;
        if (who == "-") return uid != root_uid && !(is_user && holder.uid == uid);
        return !(holder.kind == Holder::Kind::market    ? who == "market"
                 : holder.kind == Holder::Kind::outside ? who == "outside"
                 : is_user ? who == entry.second.first || who == std::to_string(holder.uid)
                           : who == holder.node);
    });
    if (wanted.empty() && who != "-")
        return fail(CauseCode::not_found,
                    "no such account: " + who + " is no user and no node of this market");
    JsonWriter w;
    w.begin_array();
    for (const auto& [holder, entry] : wanted) {
        if (uid != root_uid && !(holder.kind == Holder::Kind::user && holder.uid == uid))
            return fail(CauseCode::not_allowed,
                        "only root may see the account of " + holder.text());
        write_account(w, holder, entry.first, market.ledger().balance(holder), entry.second);
        if (w.bytes() > wire::json_bytes_max - 4096)
            return fail("there are too many accounts for one answer: name one");
    }
    w.end_array();
    return w.take();
}

Result<std::string> receipts_reply(const Market& market, const ReceiptBook& book,
                                   const std::vector<std::string>& filters,
                                   const std::string& after, uint32_t uid, std::string& next) {
    TRY_ASSIGN(const LedgerQuery q, parse_query(market, filters, uid));
    uint64_t before = uint64_t{1} << 62, left = q.limit;
    if (const size_t slash = after.find('/'); !after.empty()) {
        if (slash == std::string::npos)
            return fail("'" + after + "' is not where a list of receipts goes on");
        TRY_ASSIGN(before, whole<uint64_t>("after", after.substr(0, slash)));
        TRY_ASSIGN(left, whole<uint64_t>("after", after.substr(slash + 1)));
    }
    TRY_ASSIGN(const auto page, book.page(q.filter, before, std::min<uint64_t>(left, q.page)));
    JsonWriter w;
    w.begin_array();
    for (const auto& entry : page.entries) write_receipt(w, entry);
    w.end_array();
    left -= std::min<uint64_t>(left, page.entries.size());
    if (page.before && left > 0) next = std::to_string(*page.before) + "/" + std::to_string(left);
    return w.take();
}

}  // namespace souk
