// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/trust/subject.hpp"

#include "kernel/base/ids.hpp"
#include "kernel/base/text.hpp"

namespace souk::trust {
namespace {

struct Word {
    Role role;
    const char* text;
};
constexpr Word words[] = {{Role::home, "home"},     {Role::provider, "provider"},
                          {Role::market, "market"}, {Role::operator_, "operator"},
                          {Role::owner, "owner"},   {Role::site, "site"}};

bool is_node(Roles roles) { return roles.bits != 0 && roles.within(node_roles); }

Result<Role> role_named(std::string_view text) {
    for (const Word& w : words)
        if (text == w.text) return w.role;
    return fail("'" + std::string(text.substr(0, 40)) + "' is no role");
}

}  // namespace

std::string text_of(Roles roles) {
    std::string text;
    for (const Word& w : words)
        if (roles.has(w.role)) text += (text.empty() ? "" : ",") + std::string(w.text);
    return text;
}

Result<Roles> parse_node_roles(std::string_view text) {
    Roles roles;
    while (true) {
        const size_t comma = text.find(',');
        TRY_ASSIGN(const Role role, role_named(text.substr(0, comma)));
        roles.bits |= static_cast<uint32_t>(role);
        if (comma == text.npos) break;
        text.remove_prefix(comma + 1);
    }
    if (!is_node(roles)) return fail("a node is home, provider or both (home,provider)");
    return roles;
}

Status check(const Subject& subject) {
    if (!valid_node_name(subject.name))
        return fail("'" + blank_controls(subject.name.substr(0, 40)) +
                    "' is no name (a letter, then letters, digits or -; 32 at most)");
    if (!is_node(subject.roles) && subject.roles != only(Role::market) &&
        subject.roles != only(Role::operator_) && subject.roles != only(Role::owner))
        return fail("nobody is '" + text_of(subject.roles) + "' at once");
    if (subject.roles == only(Role::owner) && !valid_node_name(subject.scope))
        return fail("the certificate of an owner names no node");
    if (is_node(subject.roles) && !subject.scope.empty() && !valid_site_name(subject.scope))
        return fail("'" + blank_controls(subject.scope.substr(0, 40)) +
                    "' is no realm (letters, digits, '.', '_' or '-'; 64 at most)");
    if (!is_node(subject.roles) && subject.roles != only(Role::owner) && !subject.scope.empty())
        return fail("a certificate of a realm that is of no node");
    return {};
}

std::vector<std::string> uris_of(const Subject& subject) {
    const std::string kind = is_node(subject.roles) ? "node" : text_of(subject.roles);
    std::vector<std::string> uris{"souk:" + kind + "/" + subject.name};
    if (is_node(subject.roles))
        for (const Word& w : words)
            if (subject.roles.has(w.role)) uris.push_back(std::string("souk:role/") + w.text);
    if (!subject.scope.empty())
        uris.push_back((is_node(subject.roles) ? "souk:realm/" : "souk:owns/") + subject.scope);
    return uris;
}

Result<Subject> subject_of(const std::vector<std::string>& uris) {
    Subject s;
    bool node = false;
    std::string_view scope;
    for (const std::string_view uri : uris) {
        const size_t slash = uri.find('/');
        if (!uri.starts_with("souk:") || slash == uri.npos)
            return fail("a certificate with a name that is not souk's");
        const std::string_view kind = uri.substr(5, slash - 5), value = uri.substr(slash + 1);
        if (kind == "role") {
            TRY_ASSIGN(const Role role, role_named(value));
            if (!only(role).within(node_roles)) return fail("a certificate with a role of no node");
            s.roles.bits |= static_cast<uint32_t>(role);
            continue;
        }
        if (kind == "realm" || kind == "owns") {
            if (!scope.empty()) return fail("a certificate of two realms or nodes");
            scope = kind;
            s.scope = value;
            continue;
        }
        if (!s.name.empty()) return fail("a certificate with two names");
        s.name = value;
        if (kind == "node") {
            node = true;
            continue;
        }
        TRY_ASSIGN(const Role role, role_named(kind));
        if (only(role).within(node_roles))
            return fail("a certificate with an unknown kind of name");
        s.roles.bits |= static_cast<uint32_t>(role);
    }
    if (node && !is_node(s.roles)) return fail("a node's certificate without its roles");
    if (!scope.empty() && node != (scope == "realm"))
        return fail("a certificate of a realm that is of no node, or of a node's node");
    TRY(check(s));
    return s;
}

}  // namespace souk::trust
