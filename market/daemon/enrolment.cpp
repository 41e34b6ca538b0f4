// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/enrolment.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "kernel/base/ids.hpp"
#include "kernel/base/json.hpp"
#include "kernel/base/number.hpp"
#include "kernel/trust/openssl.hpp"
#include "kernel/trust/ticket_list.hpp"

namespace souk {
namespace {

constexpr const char *kind_token = "join-token", *kind_member = "member", *kind_root = "root";
constexpr size_t tokens_max = 10'000, members_max = 1'000'000;
constexpr int64_t token_seconds_max = 86'400 * 7, operator_days_max = 366;
constexpr std::optional<int64_t> operator_days = 30;
// A token that is over is shown for a day.
constexpr Nanos token_remembered = Nanos::from_s(86'400);

int64_t unix_s(Nanos time) { return time.ns / 1'000'000'000; }

}  // namespace

Result<std::unique_ptr<Enrolment>> Enrolment::open(JournalDb& state, const std::string& dir,
                                                   const trust::Identity& identity) {
    TRY_ASSIGN(trust::Authority issuing, trust::load_issuing(dir));
    std::unique_ptr<Enrolment> e(new Enrolment(state, dir, std::move(issuing), identity.root));
    TRY(e->load());
    return e;
}

// Certificates of another authority, from the time before this one, count for nothing.
Status Enrolment::forget_others() {
    for (const char* kind : {kind_token, kind_member}) {
        std::vector<std::string> keys;  // also of those that were set aside
        TRY(state_.read_all(kind, [&](const StateDb::Row& row) -> Status {
            keys.push_back(row.key);
            return {};
        }));
        for (const std::string& key : keys) state_.erase(kind, key);
    }
    state_.put(kind_root, "digest", root_);
    return sign_list();
}

Status Enrolment::load() {
    TRY_ASSIGN(const auto known, state_.get(kind_root, "digest"));
    // A text that is no digest is damaged, and says nothing of another authority.
    const bool others = !known || (trust::is_digest(*known) && *known != root_);
    if (others) return forget_others();
    if (*known != root_) state_.put(kind_root, "digest", root_);
    TRY(state_.read_all(kind_token, [this](const StateDb::Row& row) -> Status {
        TRY_ASSIGN(auto record, wire::unpack<trust::TokenRecord>(row.value));
        tokens_.emplace(row.key, std::move(record));
        return {};
    }));
    TRY(state_.read_all(kind_member, [this](const StateDb::Row& row) -> Status {
        TRY_ASSIGN(Member member, wire::unpack<Member>(row.value));
        if (member.key != row.key) return fail("it is of another key");
        if (member.revoked) revoked_.keys.emplace(member.key, member.name);
        members_.emplace(row.key, std::move(member));
        return {};
    }));
    // Whether it was revoked is not known, so it is; who had it joins once more.
    for (const JournalDb::SetAside& a : state_.set_aside())
        if (a.kind == kind_member && trust::is_digest(a.key))
            revoked_.keys.emplace(a.key, "unknown");
    return sign_list();
}

// Nobody's key is taken off the list, so that their number only grows.
Status Enrolment::sign_list() {
    revoked_.number = revoked_.keys.size();
    TRY_ASSIGN(signed_list_, trust::sign(revoked_, issuing_.key));
    return {};
}

Result<bool> Enrolment::list_tickets(const std::string& keys, Nanos now) {
    const bool begins = ticket_list_.empty();
    TRY_ASSIGN(std::string list, trust::keep_ticket_list(dir_, keys, issuing_.key, now, begins));
    return std::exchange(ticket_list_, list) != list;
}

void Enrolment::keep(const Member& member) {
    state_.put(kind_member, member.key, wire::pack(member));
    members_.insert_or_assign(member.key, member);
    vouched_.reset();
}

const Member* Enrolment::holder_of(const std::string& name) const {
    for (const auto& [key, member] : members_)
        if (member.name == name && !member.revoked) return &member;
    return nullptr;
}

// ---- certificates

Result<wire::Certified> Enrolment::certify(const trust::Request& request, trust::Roles roles,
                                           const std::string& scope, Nanos now, Nanos life) {
    const std::string key = request.key.digest();
    if (revoked_.has(key))
        return fail(CauseCode::not_allowed, "this key was revoked; a new one is wanted");
    if (members_.size() >= members_max)
        return fail(CauseCode::too_many, "too many keys are certified");
    TRY_ASSIGN(const auto own,
               trust::issue(issuing_, request.key, {request.name, roles, scope}, now, life));
    const auto before = members_.find(key);
    const Nanos joined = before == members_.end() ? now : before->second.joined;
    const std::string users = before == members_.end() ? "" : before->second.users;
    const bool came = before != members_.end() && before->second.came;
    keep({key, request.name, roles, joined, own.ends(), false, users, scope, came});
    return wire::Certified{trust::pem_of({own, issuing_.certificate}), signed_list_, ticket_list_};
}

Result<wire::Certified> Enrolment::join(const NodeName& name, const wire::Join& join, Nanos now) {
    const auto token = tokens_.find(join.token);
    if (token == tokens_.end()) return fail(CauseCode::not_found, "the market knows no such token");
    TRY(trust::may_join(token->second, join.secret, name, now));
    TRY_ASSIGN(const trust::Request request, trust::parse_request(join.request));
    if (request.name != name)
        return fail(CauseCode::not_allowed, "the request is for another name than the joiner's");
    // A pattern is no licence to take another node's place.
    if (const Member* holder = holder_of(name); holder && holder->key != request.key.digest())
        return fail(CauseCode::not_possible,
                    "there is a " + name +
                        " already, with another key: if it is gone, `souk node "
                        "revoke " +
                        name + "` first");
    TRY_ASSIGN(wire::Certified certified,
               certify(request, token->second.roles, token->second.realm, now));
    speaks_for(request.key.digest(), token->second.users);
    token->second.used_by = name;
    state_.put(kind_token, token->first, wire::pack(token->second));
    return certified;
}

void Enrolment::speaks_for(const std::string& key, const std::string& users) {
    Member member = members_.at(key);
    member.users = users;
    keep(member);
}

std::string Enrolment::users_of(const std::string& key) const {
    const auto it = members_.find(key);
    return it == members_.end() ? "" : it->second.users;
}

bool Enrolment::may_vouch(const std::string& key, uint32_t uid) const {
    const auto it = members_.find(key);
    if (it == members_.end()) return true;
    const Vouched& known = vouched();
    if (const auto users = known.of.find(key); users != known.of.end())
        return users->second && users->second->has(uid);
    if (!it->second.scope.empty()) return false;  // of another realm: not of ours
    const auto after = known.others.upper_bound(uid);
    return after == known.others.begin() || std::prev(after)->second < uid;
}

// Whoever was revoked has named nobody.
const Enrolment::Vouched& Enrolment::vouched() const {
    if (vouched_) return *vouched_;
    vouched_.emplace();
    std::vector<std::pair<uint32_t, uint32_t>> others;
    for (const auto& [key, member] : members_) {
        if (member.revoked || member.users.empty()) continue;
        auto users = trust::VouchedUsers::parse(member.users);
        auto& its = vouched_->of[key];
        if (!users) continue;
        Vouched::Realm& realm = vouched_->realms[member.scope];
        for (const auto& [name, uid] : users->names()) {
            realm.numbers.emplace(name, uid);
            realm.names.emplace(uid, name);
        }
        if (!member.scope.empty())
            others.insert(others.end(), users->ranges().begin(), users->ranges().end());
        its = std::move(*users);
    }
    std::ranges::sort(others);
    uint32_t first = 0, last = 0;
    for (const auto& [from, to] : others) {
        if (vouched_->others.empty() || from > last) first = from, last = to;
        last = std::max(last, to);
        vouched_->others[first] = last;
    }
    return *vouched_;
}

bool Enrolment::may_name(const std::string& key, uint32_t uid, const std::string& name) const {
    const auto it = members_.find(key);
    if (it == members_.end()) return true;
    const Member& home = it->second;
    if (const auto its = vouched().realms.find(home.scope); its != vouched().realms.end()) {
        const auto number = its->second.numbers.find(name);
        if (number != its->second.numbers.end()) return number->second == uid;
        if (its->second.names.contains(uid)) return false;
    }
    return !home.scope.empty() || home.users.empty();
}

bool Enrolment::is_of_another(const std::string& key, uint32_t uid, const std::string& name) const {
    const auto home = members_.find(key);
    if (home == members_.end()) return false;
    const auto its = vouched().realms.find(home->second.scope);
    if (its == vouched().realms.end()) return false;
    const auto number = its->second.numbers.find(name);
    return number != its->second.numbers.end() && number->second != uid;
}

// A name and a number are each other's in a realm, by all tokens that are good or were used.
Status Enrolment::names_fit(const std::string& realm, const trust::VouchedUsers& users) const {
    const auto fits = [&](const std::string& name, uint32_t uid) -> Status {
        for (const auto& [his, number] : users.names())
            if ((his == name) != (number == uid))
                return fail(name + " is user " + std::to_string(uid) + " of " + realm_text(realm) +
                            " already");
        return {};
    };
    if (const auto its = vouched().realms.find(realm); its != vouched().realms.end())
        for (const auto& [name, uid] : its->second.numbers) TRY(fits(name, uid));
    for (const auto& [id, token] : tokens_)
        if (token.realm == realm && token.used_by.empty())
            if (const auto others = trust::VouchedUsers::parse(token.users))
                for (const auto& [name, uid] : others->names()) TRY(fits(name, uid));
    return {};
}

void Enrolment::met(const trust::Peer& who, Nanos now) {
    const auto known = members_.find(who.key);
    if (known == members_.end() && members_.size() >= members_max) return;
    Member member = known != members_.end()
                        ? known->second
                        : Member{who.key, who.subject.name, who.subject.roles, now, who.ends, false,
                                 {},      who.subject.scope};
    if (std::exchange(member.came, true)) return;
    keep(member);
}

// A node that joins while others may lack theirs goes on without its own; so to have one is no
// reason. Its first connection with it is.
Status Enrolment::may_lack(const NodeName& name) const {
    bool was_revoked = false;
    for (const auto& [key, member] : members_) {
        if (member.name != name) continue;
        if (!member.revoked && !member.came) return {};
        if (!member.revoked)
            return fail(CauseCode::not_allowed,
                        name + " has come with its certificate before, and may not come without");
        was_revoked = true;
    }
    return was_revoked ? fail(CauseCode::not_allowed,
                              "the certificate of " + name +
                                  " was revoked: it joins anew (souk setup node --join)")
                       : Status{};
}

Result<wire::Certified> Enrolment::renew(const trust::Peer& who, const wire::Renew& renew,
                                         Nanos now) {
    TRY_ASSIGN(const trust::Request request, trust::parse_request(renew.request));
    if (request.name != who.subject.name || request.key.digest() != who.key)
        return fail(CauseCode::not_allowed,
                    "a certificate is renewed for the same name and the same key");
    return certify(request, who.subject.roles, who.subject.scope, now);
}

Result<std::vector<trust::Certificate>> Enrolment::renew_own(const trust::Identity& own,
                                                             Nanos now) const {
    TRY_ASSIGN(const trust::Subject subject, own.own().subject());
    TRY_ASSIGN(auto next, trust::issue(issuing_, own.key, subject, now));
    return std::vector{std::move(next), issuing_.certificate};
}

// ---- what root asks

bool Enrolment::takes(const std::string& verb) {
    constexpr std::string_view verbs[] = {"token-create", "token-list",  "token-withdraw",
                                          "node-list",    "node-revoke", "operator-add"};
    return std::find(std::begin(verbs), std::end(verbs), verb) != std::end(verbs);
}

Result<std::string> Enrolment::answer(const std::string& verb, const std::vector<std::string>& args,
                                      Nanos now) {
    if (verb == "token-create") return create_token(args, now);
    if (verb == "token-list") return list_tokens(now);
    if (verb == "token-withdraw") return withdraw_token(args);
    if (verb == "node-list") return list_members(now);
    if (verb == "node-revoke") return revoke(args);
    return add_operator(args, now);
}

Result<std::string> Enrolment::create_token(const std::vector<std::string>& args, Nanos now) {
    if (args.size() < 3 || args.size() > 5)
        return fail("token-create takes names, roles, seconds, perhaps a realm and users");
    const std::string users = args.size() > 4 ? args[4] : "";
    const auto names = trust::VouchedUsers::parse(users);
    if (!names) return fail("--users: " + names.error().message);
    const std::string realm = args.size() > 3 ? args[3] : "";
    if (!realm.empty() && !valid_site_name(realm))
        return fail("a realm has letters, digits, '.', '_' or '-', 64 at most");
    TRY_ASSIGN(const trust::Roles roles, trust::parse_node_roles(args[1]));
    const auto seconds = whole_number<int64_t>(args[2]);
    if (!seconds || *seconds < 1 || *seconds > token_seconds_max)
        return fail("a token is good for 1 second to 7 days");
    for (auto it = tokens_.begin(); it != tokens_.end();)
        if (it->second.ends + token_remembered < now) {
            state_.erase(kind_token, it->first);
            it = tokens_.erase(it);
        } else {
            ++it;
        }
    if (tokens_.size() >= tokens_max)
        return fail(CauseCode::too_many, "too many tokens: withdraw some");
    TRY_ASSIGN(auto made, trust::make_token(root_, args[0], roles, now, Nanos::from_s(*seconds)));
    made.record.realm = realm == site_ ? "" : realm;
    made.record.users = users;
    TRY(names_fit(made.record.realm, *names));
    // Its users pay from accounts by number: those of this market's own users are not theirs.
    if (!made.record.realm.empty() && users.empty())
        return fail(
            "a node of another realm speaks for users of its own numbers: --users "
            "20000-29999");
    tokens_.emplace(made.record.id, made.record);
    state_.put(kind_token, made.record.id, wire::pack(made.record));
    JsonWriter j;
    j.begin_object().field("token", made.token.text()).field("id", made.record.id);
    j.field("names", made.record.names).field("roles", trust::text_of(roles));
    j.field("realm", realm.empty() ? site_ : realm)
        .field("ends_unix_s", unix_s(made.record.ends))
        .end_object();
    return j.take();
}

Result<std::string> Enrolment::withdraw_token(const std::vector<std::string>& args) {
    if (args.size() != 1) return fail("token-withdraw takes a token's id");
    if (tokens_.erase(args[0]) == 0)
        return fail(CauseCode::not_found, "there is no token " + args[0]);
    state_.erase(kind_token, args[0]);
    JsonWriter j;
    j.begin_object().field("id", args[0]).end_object();
    return j.take();
}

std::string Enrolment::list_tokens(Nanos now) const {
    JsonWriter j;
    j.begin_array();
    for (const auto& [id, t] : tokens_) {
        j.begin_object().field("id", id).field("names", t.names);
        j.field("roles", trust::text_of(t.roles)).field("realm", realm_text(t.realm));
        j.field("ends_unix_s", unix_s(t.ends));
        j.field("state", !t.used_by.empty() ? "used" : now >= t.ends ? "over" : "good");
        j.field("used_by", t.used_by).end_object();
    }
    j.end_array();
    return j.take();
}

std::string Enrolment::list_members(Nanos now) const {
    JsonWriter j;
    j.begin_array();
    for (const auto& [key, m] : members_) {
        j.begin_object().field("name", m.name).field("roles", trust::text_of(m.roles));
        if (m.roles.within(trust::node_roles)) j.field("realm", realm_text(m.scope));
        if (m.roles == trust::only(trust::Role::owner)) j.field("owns", m.scope);
        j.field("joined_unix_s", unix_s(m.joined)).field("ends_unix_s", unix_s(m.ends));
        j.field("state", m.revoked ? "revoked" : now >= m.ends ? "over" : "good");
        j.field("key", key).end_object();
    }
    j.end_array();
    return j.take();
}

Result<std::string> Enrolment::revoke(const std::vector<std::string>& args) {
    if (args.size() != 1) return fail("node-revoke takes a name");
    const Member* const holder = holder_of(args[0]);
    if (!holder)
        return fail(CauseCode::not_found, "nobody of the name " + args[0] + " has a certificate");
    Member member = *holder;
    member.revoked = true;
    auto before = revoked_;
    revoked_.keys.emplace(member.key, member.name);
    if (Status listed = sign_list(); !listed) {
        revoked_ = std::move(before);
        return tl::unexpected(listed.error());
    }
    keep(member);
    JsonWriter j;
    j.begin_object().field("name", member.name).field("key", member.key).end_object();
    return j.take();
}

Result<std::string> Enrolment::add_operator(const std::vector<std::string>& args, Nanos now) {
    if (args.size() != 1 && args.size() != 3)
        return fail("operator-add takes a request, and perhaps a node and days");
    const std::string owns = args.size() == 3 && args[1] != "-" ? args[1] : "";
    const auto days = args.size() == 3 ? whole_number<int64_t>(args[2]) : operator_days;
    if (!days || *days < 1 || *days > operator_days_max)
        return fail("an operator's certificate is good for 1 to 366 days");
    if (!owns.empty() && !valid_node_name(owns)) return fail("'" + owns + "' is no node's name");
    TRY_ASSIGN(const std::string bytes, trust::from_hex(args[0]));
    TRY_ASSIGN(const trust::Request request, trust::parse_request(bytes));
    if (const Member* holder = holder_of(request.name);
        holder && holder->key != request.key.digest())
        return fail(CauseCode::not_possible,
                    "there is a " + request.name + " already, with another key");
    const auto role = owns.empty() ? trust::Role::operator_ : trust::Role::owner;
    TRY_ASSIGN(const auto certified,
               certify(request, trust::only(role), owns, now, Nanos::from_s(*days * 86'400)));
    JsonWriter j;
    j.begin_object().field("name", request.name).field("chain", certified.chain);
    j.field("root", root_pem_).field("revoked", signed_list_).end_object();
    return j.take();
}

}  // namespace souk
