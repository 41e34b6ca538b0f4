// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/ledger.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>

#include "kernel/base/cause.hpp"
#include "kernel/base/number.hpp"

namespace souk::market {
namespace {

constexpr size_t fields_of_movement = 18, note_bytes_max = 200;
constexpr size_t fields = 20, fields_without_files = 17, fields_without_reason = 16,
                 fields_without_decisions = 14;
constexpr const char* bad_count = "it does not have 14, 16, 17 or 20 fields";

bool is_code(std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    });
}

bool plain(std::string_view text) {
    return std::none_of(text.begin(), text.end(),
                        [](char c) { return static_cast<unsigned char>(c) < ' '; });
}

template <class T>
bool number(std::string_view text, T& to) {
    const auto found = whole_number<T>(text);
    to = found.value_or(T{});
    return found && std::to_string(*found) == text;
}

std::optional<Receipt::Kind> kind_of(std::string_view text) {
    for (int k = int{1}; k <= static_cast<int>(Receipt::Kind::settlement); ++k)
        if (const auto kind = static_cast<Receipt::Kind>(k); text == to_string(kind)) return kind;
    return std::nullopt;
}

// Parses what follows the amounts of a receipt that moves money.
Status parse_movement(std::span<const std::string_view> f, Receipt& r) {
    if (!number(f[0], r.other) || !number(f[2], r.by) || f[3].size() > note_bytes_max)
        return fail("it does not say for whom");
    r.other_user = f[1];
    r.note = f[3];
    return {};
}

}  // namespace

std::string Holder::text() const {
    switch (kind) {
        case Kind::market: return "market";
        case Kind::user: return "user " + std::to_string(uid);
        case Kind::node: return "node " + node;
        case Kind::outside: return "outside";
    }
    return {};
}

std::string receipt_text(const Receipt& r) {
    std::string text;
    const auto put = [&text](const std::string& field) {
        text += (text.empty() ? "" : "\t") + field;
    };
    put(std::to_string(r.seq));
    put(to_string(r.kind));
    put(r.job.home.empty() ? "-" : r.job.text());
    put(std::to_string(r.uid));
    put(plain(r.user) ? r.user : "?");
    put(r.node.empty() ? "-" : r.node);
    for (const int64_t n : {r.from.ns, r.to.ns, r.run.ns, r.cpu.ns, r.price.micro, int64_t{r.cpus},
                            r.paid.micro, r.earned.micro})
        put(std::to_string(n));
    if (r.moves()) {
        put(std::to_string(r.other));
        put(plain(r.other_user) ? r.other_user : "?");
        put(std::to_string(r.by));
        put(plain(r.note) ? r.note.substr(0, note_bytes_max) : "?");
        return text;
    }
    if (r.decided_to > 0 || !r.reason.empty() || r.has_files())
        for (const uint64_t n : {r.decided_from, r.decided_to}) put(std::to_string(n));
    if (!r.reason.empty() || r.has_files()) put(r.reason.empty() ? "-" : r.reason);
    if (r.has_files())
        for (const uint64_t n : {r.files_out, r.files_in, r.files_requests}) put(std::to_string(n));
    return text;
}

Result<Receipt> parse_receipt(std::string_view text) {
    std::array<std::string_view, fields> f;
    std::string_view rest = text;
    size_t count = 0;
    for (bool more = true; more; ++count) {
        if (count == fields) return fail(bad_count);
        const size_t tab = rest.find('\t');
        f[count] = rest.substr(0, tab);
        more = tab != std::string_view::npos;
        if (more) rest.remove_prefix(tab + 1);
    }
    const auto kind = kind_of(count > 1 ? f[1] : "");
    if (!kind) return fail("it has no known kind");
    Receipt r;
    r.kind = *kind;
    if (r.moves() ? count != fields_of_movement
                  : count != fields && count != fields_without_files &&
                        count != fields_without_reason && count != fields_without_decisions)
        return fail(bad_count);
    if (f[2] != "-") {
        TRY_ASSIGN(r.job, parse_job_id(f[2]));
    }
    r.user = f[4];
    if (f[5] != "-") {
        if (!valid_full_node_name(f[5])) return fail("it has no node name");
        r.node = f[5];
    }
    if (!number(f[0], r.seq) || !number(f[3], r.uid) || !number(f[6], r.from.ns) ||
        !number(f[7], r.to.ns) || !number(f[8], r.run.ns) || !number(f[9], r.cpu.ns) ||
        !number(f[10], r.price.micro) || !number(f[11], r.cpus) || !number(f[12], r.paid.micro) ||
        !number(f[13], r.earned.micro))
        return fail("it has a field that is no number");
    if (r.moves()) {
        TRY(parse_movement(std::span(f).subspan(fields_without_decisions, 4), r));
        return r;
    }
    const bool decided = count >= fields_without_reason, served = count == fields;
    const bool reasoned = served ? f[16] != "-" : count == fields_without_files;
    if (decided && (!number(f[14], r.decided_from) || !number(f[15], r.decided_to) ||
                    (r.decided_to == 0 && !reasoned && !served)))
        return fail("it has a decision that is no number");
    if (reasoned && !is_code(f[16])) return fail("it has a reason that is no code");
    if (reasoned) r.reason = f[16];
    if (served && (!number(f[17], r.files_out) || !number(f[18], r.files_in) ||
                   !number(f[19], r.files_requests) || !r.has_files()))
        return fail("it has a count of files that is no number");
    return r;
}

void Tab::add(Money at_price, Nanos span, Money cost, Nanos now) {
    if (empty()) {
        from = std::max(to, now - std::max(span, Nanos{}));
        price = at_price;
    } else if (at_price != price && run.ns + span.ns > 0 && run.ns >= 0) {
        const __int128 weighted = static_cast<__int128>(price.micro) * run.ns +
                                  static_cast<__int128>(at_price.micro) * span.ns;
        price.micro = static_cast<int64_t>(std::max<__int128>(0, weighted) / (run.ns + span.ns));
    }
    to = std::max(from, now);
    run += span;
    amount += cost;
}

Money room_for_use(Money own, Money paid) {
    constexpr Money shared = Money::units(500'000'000'000), all = Money::units(900'000'000'000),
                    little = Money::units(1'000'000);
    const Money half{(shared - paid - own).micro / 2};
    return std::max(Money{}, std::min(all - paid, std::max(half, little - own)));
}

AccountRecord& Ledger::account(const Holder& holder) {
    changed_.insert(holder);
    AccountRecord& record = accounts_[holder];
    record.holder = holder;
    return record;
}

std::vector<Posting> postings(const Receipt& r) {
    std::vector<Posting> all;
    if (r.paid.micro != 0 || !r.job.home.empty())
        all.push_back({Holder::user(r.uid), Money{-r.paid.micro}});
    if (!r.node.empty()) all.push_back({Holder::provider(r.node), r.earned});
    if (r.kind == Receipt::Kind::transfer)
        all.push_back({Holder::user(r.other), r.paid});
    else if (r.paid != r.earned)
        all.push_back({r.moves() ? Holder::outside() : Holder{}, r.paid - r.earned});
    return all;
}

const Receipt& Ledger::post(Receipt receipt) {
    receipt.seq = ++last_;
    for (const Posting& p : postings(receipt)) {
        AccountRecord& record = account(p.holder);
        record.balance += p.amount;
        if (receipt.moves()) record.moved += p.amount;
        if (p.holder == Holder::user(receipt.uid)) record.name = receipt.user;
    }
    if (receipt.kind == Receipt::Kind::transfer)
        account(Holder::user(receipt.other)).name = receipt.other_user;
    if (!receipt.moves() && (receipt.paid.micro != 0 || !receipt.job.home.empty())) {
        AccountRecord& user = account(Holder::user(receipt.uid));
        if (std::exchange(user.day, day_) != day_) user.day_paid = {};
        if (receipt.kind == Receipt::Kind::use) user.day_paid += receipt.paid;
        user.used += receipt.paid;
    }
    posted_.push_back(std::move(receipt));
    return posted_.back();
}

std::vector<AccountRecord> Ledger::take_changed() {
    std::vector<AccountRecord> records;
    for (const Holder& holder : std::exchange(changed_, {}))
        records.push_back(accounts_.at(holder));
    return records;
}

void Ledger::set_day(int64_t day, bool same) {
    for (auto& [holder, record] : accounts_)
        if (same && record.day >= 0 && record.day == day_) {
            record.day = day;
            changed_.insert(holder);
        }
    day_ = day;
}

Money Ledger::paid_today(uint32_t uid) const {
    const auto it = accounts_.find(Holder::user(uid));
    return it == accounts_.end() || it->second.day != day_ ? Money{} : it->second.day_paid;
}

Money Ledger::balance(const Holder& holder) const {
    const auto it = accounts_.find(holder);
    return it == accounts_.end() ? Money{} : it->second.balance;
}

Money Ledger::by_use(const Holder& holder) const {
    const auto it = accounts_.find(holder);
    return it == accounts_.end() ? Money{} : it->second.balance - it->second.moved;
}

void Ledger::grant(uint32_t uid, Money ends) {
    AccountRecord& user = account(Holder::user(uid));
    user.granted = ends;
    user.used = {};
}

// Use since the grant is taken from the allowance first; credit is none of it.
Money Ledger::left_of_grant(uint32_t uid) const {
    const auto it = accounts_.find(Holder::user(uid));
    if (it == accounts_.end()) return {};
    const AccountRecord& user = it->second;
    return std::max(Money{}, std::min(user.granted - user.used, user.balance));
}

Money Ledger::sum() const {
    Money sum;
    for (const auto& [holder, record] : accounts_) sum += record.balance;
    return sum;
}

Status LedgerCheck::add(const Receipt& r, bool of_job) {
    if (r.seq != receipts_ + 1)
        return fail(CauseCode::unsound, "receipt " + std::to_string(receipts_ + 1) +
                                            " is missing: " + std::to_string(r.seq) + " follows " +
                                            std::to_string(receipts_));
    ++receipts_;
    if (!r.moves()) {
        paid_ += r.paid;
        earned_ += r.earned;
    }
    for (const Posting& p : postings(r)) balances_[p.holder] += p.amount;
    if (of_job && !r.moves()) by_job_[r.job] += r.paid;
    return {};
}

Status LedgerCheck::same_balances(const std::map<Holder, AccountRecord>& accounts) const {
    const auto differ = [](const Holder& holder, Money record, Money receipts) {
        return fail(CauseCode::unsound, "the account of " + holder.text() + " says " +
                                            format_money(record) + ", its receipts " +
                                            format_money(receipts));
    };
    for (const auto& [holder, record] : accounts) {
        const auto sum = balances_.find(holder);
        const Money receipts = sum == balances_.end() ? Money{} : sum->second;
        if (record.balance != receipts) return differ(holder, record.balance, receipts);
    }
    for (const auto& [holder, sum] : balances_)
        if (sum.micro != 0 && !accounts.contains(holder)) return differ(holder, {}, sum);
    return {};
}

Status LedgerCheck::same_cost(const JobId& job, Money cost, const Tab& tab) const {
    const auto sum = by_job_.find(job);
    const Money receipts = (sum == by_job_.end() ? Money{} : sum->second) + tab.amount;
    if (receipts == cost) return {};
    return fail(CauseCode::unsound, "job " + job.text() + " has cost " + format_money(cost) +
                                        ", its receipts and what is open say " +
                                        format_money(receipts));
}

}  // namespace souk::market
