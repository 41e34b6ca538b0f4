// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/who/who.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "kernel/base/protobuf_fields.hpp"
#include "kernel/sys/host/accounts.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/host/installation.hpp"
#include "kernel/sys/process/bounded_work.hpp"
#include "kernel/sys/process/process_files.hpp"
#include "kernel/trust/revocations.hpp"
#include "kernel/trust/ticket_list.hpp"
#include "kernel/trust/verify.hpp"

namespace souk::who {
namespace {

constexpr size_t file_bytes_max = 64 << 10;
constexpr const char* kept_list = "/ticket-list.seen";
// The clocks of market and node may be apart, which agentd looks at; an old ticket is none all the
// same.
constexpr Nanos clocks_apart_max = Nanos::from_s(86'400);
// A look-up of accounts may ask a network. agentd waits for 30 s, and ends if it has no answer.
constexpr Nanos accounts_limit = Nanos::from_s(10), accounts_rest = Nanos::from_s(30);

// Root's, for nobody else to look into; and not where somebody else could put another one.
Status make_directory(const std::string& path) {
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
        return fail_errno("create " + path, errno);
    struct stat own {
    }, above{};
    const std::string parent = path.substr(0, path.rfind('/') + 1);
    if (::lstat(path.c_str(), &own) != 0 || ::stat(parent.c_str(), &above) != 0)
        return fail_errno(path, errno);
    constexpr mode_t others = S_IWGRP | S_IWOTH;
    if (!S_ISDIR(own.st_mode) || own.st_uid != 0 || (own.st_mode & others) != 0)
        return fail(path + " is not root's directory");
    if (above.st_uid != 0 || ((above.st_mode & others) != 0 && (above.st_mode & S_ISVTX) == 0))
        return fail(path +
                    " lies in a directory that is not root's alone: give that to root, or have "
                    "`state` elsewhere");
    return {};
}

// Reads a file of agentd's, who may have put anything there.
Result<std::string> read_plain(const std::string& path) {
    TRY_ASSIGN(const Fd file, open_at(AT_FDCWD, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK));
    struct stat st {};
    if (::fstat(file.get(), &st) != 0) return fail_errno(path, errno);
    if (!S_ISREG(st.st_mode)) return fail(path + " is no file");
    return read_whole(file.get(), path, file_bytes_max);
}

Result<trust::Certificate> one_certificate(std::string_view pem) {
    TRY_ASSIGN(auto chain, trust::parse_chain(pem));
    return std::move(chain.front());
}

}  // namespace

Who Who::believing() {
    Rules rules;
    rules.any = true;
    return Who(std::move(rules));
}

Result<Who> Who::open(Rules rules) {
    Who who(std::move(rules));
    TRY(make_directory(who.rules_.kept));
    if (auto opened = who.open_users(); !opened)
        return wrap(who.rules_.kept + "/users", opened.error());
    if (!who.rules_.any) TRY(who.open_market());
    return who;
}

Status Who::open_users() {
    const auto text = read_file(AT_FDCWD, rules_.kept + "/users", KnownUsers::bytes_max);
    if (!text && text.error().code != ENOENT) return tl::unexpected(text.error());
    adopts_ = !text;
    if (!text) return {};
    TRY_ASSIGN(users_, KnownUsers::parse(*text));
    return {};
}

// Opens the certificate of the market that this node has joined: the first one that was found
// there.
Status Who::open_market() {
    const std::string kept = rules_.kept + kept_market, found = rules_.identity + "/root.pem";
    const auto now = read_plain(found);
    auto known = read_file(AT_FDCWD, kept, file_bytes_max);
    if (!known && known.error().code != ENOENT) return tl::unexpected(known.error());
    if (!now) return {};  // it has joined none yet, and agentd says so
    auto market = one_certificate(*now);
    if (!market) return wrap(found, market.error());
    if (!known) {
        // The list is of the market before; or this market has lost its numbers, and the node's
        // owner knows of that.
        const std::string seen = rules_.kept + kept_list;
        if (::unlink(seen.c_str()) != 0 && errno != ENOENT) return fail_errno(seen, errno);
        TRY(replace_file(kept, *now, 0600, true));
        known = *now;
    }
    auto was = one_certificate(*known);
    if (!was) return wrap(kept, was.error());
    if (was->digest() != market->digest())
        return fail("this node was of another market until now: " + found +
                    " is not what it began with. Who has joined another one removes " + kept);
    market_ = std::move(*was);
    TRY(open_seen());
    // Read the keys before anything comes in from the network. There may be none yet, or the
    // certificate may have ended.
    (void)read_keys();
    return {};
}

Status Who::open_seen() {
    const std::string path = rules_.kept + kept_list;
    const auto text = read_file(AT_FDCWD, path, SeenList::bytes_max);
    if (!text) return text.error().code == ENOENT ? Status{} : tl::unexpected(text.error());
    auto seen = SeenList::parse(*text);
    if (!seen) return wrap(path, seen.error());
    seen_ = std::move(*seen);
    return {};
}

Status Who::save() const { return replace_file(rules_.kept + "/users", users_.text(), 0600, true); }

Status Who::connected(const RunsAs& user) {
    if (rules_.any) return {};
    unsaved_ = users_.add(user) || unsaved_;
    if (!unsaved_) return {};
    TRY(save());
    unsaved_ = false;
    return {};
}

Status Who::adopt(const std::vector<RunsAs>& users, bool more) {
    if (rules_.any || !adopts_) return {};
    for (const RunsAs& one : users) users_.add(one);
    if (more) return {};
    TRY(save());
    adopts_ = false;
    return {};
}

Status Who::may_own(const RunsAs& as) const {
    if (as.uid == 0 && !is_root_let())
        return fail("root has no jobs on this machine (root_jobs of agentd's configuration)");
    return rules_.any ? Status{} : users_.check(as);
}

void Who::is_here(const RunsAs& as) {
    if (as.known)
        here_.add(as);
    else
        older_ = true;
}

Status Who::may_serve(const RunsAs& as) const {
    if (rules_.any || here_.check(as)) return {};
    if (older_ && as.uid >= std::max(rules_.id_min, 1U)) return {};
    return may_own(as);
}

// -------------------------------------------------------------------------------------------------
// other homes

Status Who::read_keys() {
    if (!market_) return fail("this node has joined no market");
    TRY_ASSIGN(std::string chain, read_plain(rules_.identity + "/certificate.pem"));
    TRY_ASSIGN(std::string list, read_plain(rules_.identity + "/ticket-list"));
    if (chain == chain_ && list == list_) return {};
    TRY_ASSIGN(const auto certificates, trust::parse_chain(chain));
    if (certificates.size() != 2) return fail("not this node's certificate and its authority's");
    TRY(trust::verify(certificates, *market_, {}, unix_now()));
    TRY_ASSIGN(const trust::Key issuer, certificates[1].key());
    TRY_ASSIGN(const trust::TicketList told, trust::parse_ticket_list(list, issuer));
    TRY_ASSIGN(auto keys, trust::TicketKeys::parse(told.keys));
    TRY(believe(told));
    keys_ = std::move(keys);
    chain_ = std::move(chain);
    list_ = std::move(list);
    return {};
}

// Believes a list only when it is on the disk: after a restart an older list would be believed
// otherwise.
Status Who::believe(const trust::TicketList& list) {
    SeenList next = SeenList::of(market_->digest(), list);
    if (seen_ == next) return {};
    if (seen_) TRY(seen_->check(next));
    TRY(replace_file(rules_.kept + kept_list, next.text(), 0600, true));
    seen_ = std::move(next);
    return {};
}

// Reads the map again if it has been changed, because agentd reads it again too (SIGHUP).
Status Who::read_map() {
    std::string text;
    if (!rules_.map.empty()) {
        TRY_ASSIGN(text, read_file(AT_FDCWD, rules_.map, UserMap::bytes_max));
    }
    if (map_ && text == map_text_) return {};
    const std::string realm = market_ ? market_->site() : "souk";
    TRY_ASSIGN(map_, UserMap::parse(text, {realm, rules_.id_min, rules_.groups}));
    map_text_ = std::move(text);
    return {};
}

// Reads the few fields that count here of the market's message (Ticket of
// market/wire/market.proto). It is read by hand, so that root needs no codec of all messages.
Result<Principal> Who::principal_of(std::string_view sealed) {
    if (auto read = read_keys(); !read) return wrap("the market's ticket keys", read.error());
    TRY_ASSIGN(const std::string_view body, keys_.open(sealed));
    Principal who;
    std::string destination;
    Nanos expires;
    ProtobufFields f(body);
    while (f.next()) {
        if (f.number == 3) who.uid = static_cast<uint32_t>(f.value);
        if (f.number == 4) who.user = f.inner;
        if (f.number == 6) destination = f.inner;
        if (f.number == 12) expires = {static_cast<int64_t>(f.value)};
        if (f.number == 13) who.realm = f.inner;
        if (f.number == 17) who.account = f.inner;
    }
    if (!f.good) return fail("no ticket");
    if (destination != rules_.node) return fail("the ticket is for node " + destination);
    if (expires + clocks_apart_max < unix_now()) return fail("the ticket has expired");
    return who;
}

Status Who::may_come(const RunsAs& as, std::string_view sealed) {
    if (rules_.any) return {};
    if (auto read = read_map(); !read) return wrap("user_map", read.error());
    Principal who;
    if (sealed.empty() && rules_.accepts) {
        who.uid = as.uid;
    } else {
        TRY_ASSIGN(who, principal_of(sealed));
    }
    // The ticket does not say in which of his groups the job has run.
    who.gid = as.gid;
    who.groups = as.groups;
    return comes(who, as);
}

Status Who::comes(const Principal& who, const RunsAs& as) {
    if (monotonic_now() < accounts_rest_) return fail(accounts_silent);
    Status here = done_within(accounts_limit, [&] {
        const SystemAccounts accounts(std::nullopt);
        auto found = accounts.told([&] { return map_->comes(who, as, accounts); });
        return found ? found->map([](const RunsAs&) {}) : Status(tl::unexpected(found.error()));
    });
    if (here || here.error().code != ETIMEDOUT) return here;
    accounts_rest_ = monotonic_now() + accounts_rest;
    return fail(accounts_silent);
}

}  // namespace souk::who
