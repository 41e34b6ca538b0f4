// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/marketctl/peer_books.hpp"

#include <time.h>

#include <algorithm>
#include <exception>
#include <fstream>
#include <functional>
#include <utility>

#include "kernel/base/cause.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/store/sha256.hpp"
#include "market/core/site_entries.hpp"
#include "tools/marketctl/everywhere.hpp"

namespace souk::tools {
namespace {

using market::SiteBookReader;
using market::SiteComparison;
using market::SiteEntry;

constexpr Nanos page_limit = Nanos::from_s(30), books_limit = Nanos::from_s(600),
                again_pause = Nanos::from_ms(500), clock_slack = Nanos::from_s(60);
constexpr uint64_t new_most = 1'000;  // entries that come while two books are read

// Hands on each page of a book, the first one first.
using OnPage = std::function<Status(const std::string& text)>;

// Asks for all pages. A market that is asked too much at once is asked again after a pause.
Status each_page(const AskPart& ask, const std::string& verb, const std::vector<std::string>& args,
                 const OnPage& on_page) {
    const Nanos until = monotonic_now() + books_limit;
    for (std::string after;;) {
        if (monotonic_now() > until)
            return fail(CauseCode::away, "the books were not read to their ends within 10 minutes");
        auto part = ask(verb, args, after, page_limit);
        if (!part && part.error().cause == CauseCode::too_many) {
            const timespec pause = {0, static_cast<long>(again_pause.ns)};
            ::nanosleep(&pause, nullptr);
            continue;
        }
        if (!part) return tl::unexpected(std::move(part).error());
        TRY(on_page(part->json));
        if (part->next.empty()) return {};
        after = std::move(part->next);
    }
}

Status each_line(const std::string& file, const OnPage& on_page) {
    std::ifstream in(file);
    if (!in) return fail_errno(file, errno);
    size_t lines = 0;
    for (std::string line; std::getline(in, line); ++lines) TRY(on_page(line));
    return lines > 0 ? Status{} : fail(file + " is empty: marketctl ledger export makes it");
}

// Both books, as they are read.
struct Books {
    struct Own {
        std::string head;
        Nanos to;
    };
    std::string own, other;
    std::vector<Own> entries;
    SiteBookReader ours, theirs;
    SiteComparison comparison;
    uint64_t unknown_mark = 0;
    // A file was made then, by its word, and not before that.
    Nanos made = Nanos::never(), made_least;
    bool is_first = true;

    Books(std::string o, std::string t)
        : own(o),
          other(t),
          ours(o, sha256_hex),
          theirs(t, sha256_hex),
          comparison(std::move(o), std::move(t)) {}

    void take_first(const Json& page) {
        if (!std::exchange(is_first, false)) return;
        if (const auto told = parse_receipt_mark(page.value("told", ""))) theirs.expect(*told);
        for (const Json& job : page.value("open", Json::array()))
            if (job.is_string()) comparison.leave_open(job.get<std::string>());
        // If there are more than it can name, what is new is left out.
        leave_open_from(page, page.value("open_more", false) ? Nanos::from_s(7'200) : Nanos{});
    }
    // A page of a file. What is newer than the file is not compared, so it may not be older than
    // what it has.
    void take_time(const Json& page) {
        const double at = page.value("at_unix_s", 0.0);
        made = std::min(made, Nanos::from_s(at > 0 && at < 4e9 ? static_cast<int64_t>(at) : 0));
        leave_open_from(page, clock_slack);
    }
    Status check_time(const std::string& file) const {
        if (made + clock_slack >= made_least && made.ns > 0) return {};
        return fail(CauseCode::unsound, file + " says that it was made before the newest of what " +
                                            "it has: export it anew");
    }
    // An entry that comes from then on may be in one of the books only.
    void leave_open_from(const Json& page, Nanos slack) {
        const double at = page.value("at_unix_s", 0.0);
        if (at > 0 && at < 4e9)
            comparison.leave_open_from(Nanos::from_s(static_cast<int64_t>(at)) - slack);
    }
    Status take_own(const std::string& text) {
        TRY_ASSIGN(const SiteEntry entry, ours.read(text));
        entries.push_back({ours.newest().head, entry.to});
        if (const auto mark = parse_receipt_mark(entry.mark)) theirs.expect(*mark);
        comparison.add_own(entry);
        return {};
    }
    Status take_theirs(const std::string& text) {
        TRY_ASSIGN(const SiteEntry entry, theirs.read(text));
        const auto mark = parse_receipt_mark(entry.mark);
        // It may have heard of some that were entered since this book was read.
        const bool is_ours =
            !mark || (mark->seq > 0 && mark->seq <= entries.size() + new_most &&
                      (mark->seq > entries.size() || entries[mark->seq - 1].head == mark->head));
        if (!is_ours && unknown_mark == 0) unknown_mark = entry.number;
        made_least = std::max(made_least, entry.to);
        if (mark && is_ours && mark->seq <= entries.size())
            made_least = std::max(made_least, entries[mark->seq - 1].to);
        return comparison.add_theirs(entry);
    }
    std::vector<std::string> chains() const {
        std::vector<std::string> lines;
        if (const auto lacks = theirs.lacks())
            lines.push_back("site " + other + " has changed or dropped entries that it had told " +
                            "of: up to its entry " + std::to_string(*lacks));
        if (unknown_mark > 0)
            lines.push_back("site " + other + " names an entry of site " + own +
                            " that is not there, in its entry " + std::to_string(unknown_mark));
        return lines;
    }
};

Status take_entries(const Json& page, const std::function<Status(const std::string&)>& take) {
    const auto entries = page.find("entries");
    if (!page.is_object() || entries == page.end() || !entries->is_array())
        return fail(CauseCode::invalid, "a page of a book has no entries");
    for (const Json& entry : *entries) {
        if (!entry.is_string()) return fail(CauseCode::invalid, "an entry is no text");
        TRY(take(entry.get<std::string>()));
    }
    return {};
}

Status read_books(const AskPart& ask, const std::string& file, Books& books) {
    const auto own = [&](const std::string& text) -> Status {
        TRY_ASSIGN(const Json page, read_claim(text));
        books.take_first(page);
        return take_entries(page, [&](const std::string& e) { return books.take_own(e); });
    };
    const auto theirs = [&](const std::string& text) -> Status {
        TRY_ASSIGN(const Json page, read_claim(text));
        // A file is of another time than the own book.
        if (!file.empty() && page.is_object()) {
            if (page.value("site", "") != books.other || page.value("peer", "") != books.own)
                return fail(CauseCode::invalid, file + " is not the book of site " + books.other +
                                                    " with site " + books.own);
            books.take_time(page);
        }
        return take_entries(page, [&](const std::string& e) { return books.take_theirs(e); });
    };
    TRY(each_page(ask, "site-entries", {books.other}, own));
    books.comparison.expect_until(unix_now() + books_limit);
    if (file.empty()) return each_page(ask, "at", {books.other, "site-entries"}, theirs);
    TRY(each_line(file, theirs));
    return books.check_time(file);
}

std::string shown_text(const Books& books, const SiteComparison::Summary& s,
                       const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    if (s.more > 0) text += "and " + std::to_string(s.more) + " more differences\n";
    const auto owes = [&](Money owed) {
        return owed < Money{} ? "site " + books.own + " owes " + format_money(Money{} - owed)
                              : "site " + books.other + " owes " + format_money(owed);
    };
    text += "entries: " + std::to_string(books.ours.newest().seq) + " here, " +
            std::to_string(books.theirs.newest().seq) +
            " there; stays: " + std::to_string(s.stays) + ", of which " + std::to_string(s.open) +
            " are open\n";
    return text + "by these entries " + owes(s.here) + " by this book, " + owes(s.there) +
           " by the other";
}

Result<CtlShown> compared(const AskPart& ask, const std::string& site, const std::string& file,
                          bool json) try {
    TRY_ASSIGN(const ListPart known, ask("peer-list", {}, "", page_limit));
    TRY_ASSIGN(const Json peers, read_claim(known.json));
    Books books(peers.value("site", ""), site);
    TRY(read_books(ask, file, books));
    const SiteComparison::Summary s = books.comparison.summary();
    std::vector<std::string> lines = books.chains();
    lines.insert(lines.end(), s.differences.begin(), s.differences.end());
    CtlShown shown;
    if (json) {
        Json all = {{"site", books.own},
                    {"peer", site},
                    {"entries", books.ours.newest().seq},
                    {"entries_there", books.theirs.newest().seq},
                    {"stays", s.stays},
                    {"open", s.open},
                    {"owes", Json::parse(format_money(s.here))},
                    {"owes_there", Json::parse(format_money(s.there))},
                    {"differences", lines},
                    {"more", s.more}};
        shown.text = all.dump();
    } else {
        shown.text = shown_text(books, s, lines);
    }
    if (const size_t count = lines.size() + s.more; count > 0)
        shown.verdict = fail(CauseCode::unsound, "the books of sites " + books.own + " and " +
                                                     site + " differ in " + std::to_string(count) +
                                                     (count == 1 ? " place" : " places"));
    return shown;
} catch (const std::exception& e) {
    return fail(CauseCode::invalid, "a book cannot be read: " + std::string(e.what()));
}

Result<CtlShown> exported(const AskPart& ask, const std::string& site) {
    CtlShown shown;
    TRY(each_page(ask, "site-entries", {site}, [&](const std::string& text) -> Status {
        shown.text += (shown.text.empty() ? "" : "\n") + text;
        return {};
    }));
    return shown;
}

}  // namespace

Result<CtlQuestion> books_question(std::span<char*> words, const std::string& site,
                                   const std::string& file) {
    CtlQuestion question;
    question.verb = books_verb;
    const std::string_view word = words.empty() ? "" : words[0];
    if (word == "export") {
        if (words.size() != 2 || !(site + file).empty())
            return fail("ledger export takes a site: ledger export SITE");
        question.asks = [of = std::string(words[1])](const AskPart& ask, Nanos, bool) {
            return exported(ask, of);
        };
        return question;
    }
    if (word != "verify" || words.size() != 1 || site.empty())
        return fail("ledger: verify [--peer SITE [--file FILE]], or export SITE");
    question.asks = [site, file](const AskPart& ask, Nanos, bool json) {
        return compared(ask, site, file, json);
    };
    return question;
}

}  // namespace souk::tools
