// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/site_entries.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "kernel/base/cause.hpp"
#include "kernel/base/fields.hpp"
#include "kernel/base/number.hpp"
#include "kernel/base/text.hpp"
#include "kernel/base/units.hpp"

namespace souk::market {
namespace {

constexpr size_t site_entry_fields = 11, mark_bytes_max = 100;

std::string full_name(const std::string& name, std::string_view own) {
    if (name.empty()) return "-";
    return of_site(name).site.empty() ? std::string(own) + ":" + name : name;
}

template <class T>
bool reads(std::string_view text, T& to, int64_t least, int64_t most) {
    const auto found = whole_number<T>(text);
    to = found.value_or(T{});
    if constexpr (std::is_signed_v<T>)
        return found && *found >= least && *found <= most;
    else
        return found && *found <= static_cast<uint64_t>(most);
}

bool is_word(std::string_view text) {
    return !text.empty() && text.size() <= 40 &&
           std::ranges::all_of(text, [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
}

Money add_within(Money sum, Money more) {
    return Money{
        std::clamp(sum.micro + more.micro, -rule::amount_micro_max, rule::amount_micro_max)};
}

// Whether the other's number of a stay is this site's, but for what messages take: by this site's
// own run time and price, so that a claim does not widen what is let pass.
bool is_near(int64_t own, int64_t claimed, Nanos run) {
    using Wide = __int128;
    const Wide size = own < 0 ? -Wide{own} : Wide{own};
    const Wide apart = own < claimed ? Wide{claimed} - own : Wide{own} - claimed;
    if (apart * 1'000 <= size * SiteComparison::tolerance_permille) return true;
    return run.ns > 0 && apart * run.ns <= size * SiteComparison::tolerance.ns;
}

}  // namespace

std::optional<SiteEntry> site_entry(const Receipt& r, std::string_view own, std::string_view other,
                                    uint32_t account) {
    const auto is_theirs = [&](const Holder& h) {
        return h == Holder::user(account) ||
               (h.kind == Holder::Kind::node && of_site(h.node).site == other);
    };
    Money came;  // on its side
    bool any = false;
    for (const Posting& p : postings(r))
        if (is_theirs(p.holder)) {
            came += p.amount;
            any = true;
        }
    if (!any) return std::nullopt;
    SiteEntry e;
    e.kind = to_string(r.kind);
    if (!r.job.home.empty())
        e.job = full_name(r.job.home, own) + "." + std::to_string(r.job.seq);
    else
        e.job = "-";
    e.node = full_name(r.node, own);
    e.from = r.from;
    e.to = r.to;
    e.run = r.run;
    // A job owes, whatever is taken back of it later; a movement is owed by who has got it.
    const bool it_owes = r.moves() ? came.micro < 0 : of_site(e.job).site == other;
    e.owes = it_owes ? other : own;
    e.amount = it_owes ? Money{-came.micro} : came;
    return e;
}

std::string site_entry_text(const SiteEntry& e) {
    std::string text = std::to_string(e.number);
    for (const std::string& field :
         {e.kind, e.job, e.node, std::to_string(e.from.ns), std::to_string(e.to.ns),
          std::to_string(e.run.ns), std::to_string(e.amount.micro), e.owes, std::to_string(e.id),
          e.mark})
        text += "\t" + field;
    return text;
}

Result<SiteEntry> parse_site_entry(std::string_view text) {
    std::array<std::string_view, site_entry_fields> f;
    std::string_view rest = text;
    for (size_t i = 0; i < f.size(); ++i) {
        const size_t tab = rest.find('\t');
        if ((tab == rest.npos) != (i + 1 == f.size()))
            return fail("an entry does not have " + std::to_string(f.size()) + " fields");
        f[i] = rest.substr(0, tab);
        rest.remove_prefix(tab == rest.npos ? rest.size() : tab + 1);
    }
    SiteEntry e;
    e.kind = f[1];
    e.job = f[2];
    e.node = f[3];
    e.owes = f[8];
    e.mark = f[10];
    const bool named = is_word(f[1]) && (f[2] == "-" || parse_job_id(f[2])) &&
                       (f[3] == "-" || valid_full_node_name(f[3])) && valid_site_name(f[8]) &&
                       !f[10].empty() && f[10].size() <= mark_bytes_max &&
                       std::ranges::all_of(f[10], [](char c) { return c > ' ' && c <= '~'; });
    if (!named) return fail("an entry has a name that is none");
    if (!reads(f[0], e.number, 0, INT64_MAX) || !reads(f[4], e.from.ns, 0, rule::time_ns_max) ||
        !reads(f[5], e.to.ns, 0, rule::time_ns_max) ||
        !reads(f[6], e.run.ns, -rule::span_ns_max, rule::span_ns_max) ||
        !reads(f[7], e.amount.micro, -rule::amount_micro_max, rule::amount_micro_max) ||
        !reads(f[9], e.id, 0, INT64_MAX))
        return fail("an entry has a number that is none");
    return e;
}

std::string next_site_hash(const std::string& head, std::string_view text, SiteHash hash) {
    const std::string before = head.empty() ? std::string(ReceiptMark::hash_digits, '0') : head;
    return hash(before + " " + std::string(text));
}

Result<SiteEntry> SiteBookReader::read(std::string_view text) {
    auto entry = parse_site_entry(text);
    if (!entry)
        return fail(CauseCode::unsound, "the book of site " + site_ + ", behind entry " +
                                            std::to_string(newest_.seq) + ": " +
                                            entry.error().message);
    if (entry->number != newest_.seq + 1)
        return fail(CauseCode::unsound, "the book of site " + site_ + ": entry " +
                                            std::to_string(newest_.seq + 1) + " is missing");
    newest_ = {entry->number, next_site_hash(newest_.head, text, hash_)};
    const auto expected = expected_.find(newest_.seq);
    if (expected != expected_.end() && expected->second != newest_.head && other_ == 0)
        other_ = newest_.seq;
    return entry;
}

std::optional<uint64_t> SiteBookReader::lacks() const {
    if (other_ > 0) return other_;
    const auto more = expected_.upper_bound(newest_.seq);
    return more == expected_.end() ? std::nullopt : std::optional(more->first);
}

void SiteComparison::Side::add(const Side& other) {
    run.ns = std::clamp(run.ns + other.run.ns, -rule::span_ns_max, rule::span_ns_max);
    amount = add_within(amount, other.amount);
}

void SiteComparison::Side::add(const SiteEntry& e) {
    is = true;
    to = std::max(to, e.to);
    run.ns = std::clamp(run.ns + e.run.ns, -rule::span_ns_max, rule::span_ns_max);
    amount = add_within(amount, e.amount);
}

SiteComparison::Key SiteComparison::key_of(const SiteEntry& e) {
    const bool settles = e.kind == to_string(Receipt::Kind::settlement);
    const bool uses = e.kind == to_string(Receipt::Kind::use);
    // One operator's movement by hand is in one book only.
    const std::string more = uses ? "" : settles ? std::to_string(e.id) : std::to_string(e.number);
    return {uses ? "" : e.kind, e.job, e.node, e.owes + "\t" + more};
}

// The other owes so much more by it.
Money SiteComparison::sign(const SiteEntry& e) const {
    return e.owes == own_ ? Money{-e.amount.micro} : e.amount;
}

void SiteComparison::add_own(const SiteEntry& e) {
    stays_[key_of(e)].own.add(e);
    here_ = add_within(here_, sign(e));
}

Status SiteComparison::add_theirs(const SiteEntry& e) {
    if (e.owes != own_ && e.owes != other_)
        return fail(CauseCode::unsound, "site " + other_ + " names a debt of site " + e.owes +
                                            " in its entry " + std::to_string(e.number));
    Both& both = stays_[key_of(e)];
    if (!both.own.is && !both.theirs.is && ++unknown_ > unknown_max)
        return fail(CauseCode::too_many, "site " + other_ + " names more than " +
                                             std::to_string(unknown_max) +
                                             " stays that are not in this site's book");
    both.theirs.add(e);
    there_ = add_within(there_, sign(e));
    return {};
}

bool SiteComparison::is_open(const Key& key, const Both& both) const {
    if (!std::get<0>(key).empty()) return false;
    if (open_.contains(std::get<1>(key))) return true;
    if (both.own.is) return both.own.to >= open_from_;
    return both.theirs.to >= open_from_ && both.theirs.to <= until_;
}

// Each stay may differ by what messages take. Many that differ so to one side are no accident.
std::optional<std::string> SiteComparison::difference_of_all() const {
    for (const std::string& debtor : {own_, other_}) {
        Side own, theirs;
        for (const auto& [key, both] : stays_) {
            const auto& [kind, job, node, owes] = key;
            if (!kind.empty() || owes.substr(0, owes.find('\t')) != debtor) continue;
            own.add(both.own);
            theirs.add(both.theirs);
        }
        if (is_near(own.amount.micro, theirs.amount.micro, own.run)) continue;
        return "all stays that site " + debtor + " owes: " + format_money(own.amount) + " here, " +
               format_money(theirs.amount) + " there, in small parts";
    }
    return std::nullopt;
}

std::optional<std::string> SiteComparison::difference(const Key& key, const Both& both) const {
    const auto& [kind, job, node, owes] = key;
    const Side &a = both.own, &b = both.theirs;
    std::string what;
    if (kind.empty())
        what = "job " + job + " at " + node + ": ";
    else
        what = kind + (job == "-" ? "" : " for job " + job) + (node == "-" ? "" : " at " + node) +
               ", owed by site " + owes.substr(0, owes.find('\t')) + ": ";
    const auto span = [](const Side& s) { return " for " + span_text(s.run); };
    const bool stay = kind.empty();
    if (!b.is)
        return what + format_money(a.amount) + (stay ? span(a) : "") + " here, missing there";
    if (!a.is)
        return what + "missing here, " + format_money(b.amount) + (stay ? span(b) : "") + " there" +
               (b.to > until_ ? ", at a time that is yet to come" : "");
    if (!stay && a.amount == b.amount) return std::nullopt;
    if (stay && !is_near(a.run.ns, b.run.ns, a.run))
        return what + span_text(a.run) + " here, " + span_text(b.run) + " there";
    if (stay && is_near(a.amount.micro, b.amount.micro, a.run)) return std::nullopt;
    return what + format_money(a.amount) + " here, " + format_money(b.amount) + " there";
}

SiteComparison::Summary SiteComparison::summary() const {
    Summary s;
    s.here = here_;
    s.there = there_;
    for (const auto& [key, both] : stays_) {
        if (std::get<0>(key).empty()) ++s.stays;
        if (is_open(key, both)) {
            ++s.open;
            continue;
        }
        auto line = difference(key, both);
        if (!line) continue;
        if (s.differences.size() < lines_max)
            s.differences.push_back(std::move(*line));
        else
            ++s.more;
    }
    if (s.open == 0 && s.differences.empty())
        if (auto line = difference_of_all()) s.differences.push_back(std::move(*line));
    return s;
}

}  // namespace souk::market
