// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/souk/setup.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <regex>

#include "kernel/base/ids.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/net/socket.hpp"
#include "kernel/trust/openssl.hpp"
#include "tools/common/ask.hpp"
#include "tools/common/cli_units.hpp"
#include "tools/common/paths.hpp"
#include "tools/souk/identities.hpp"
#include "tools/souk/join.hpp"
#include "tools/souk/verbs.hpp"

namespace souk {
namespace {

using nlohmann::json;

// What is given on the command line.
struct Words {
    std::string identity, config, root_key = "/root/souk-root.key", token, name, market, roles;
    std::string id, out, socket;
    int64_t minutes = 60;
    bool as_json = false, no_restart = false;
};

std::string lines_of(const std::string& path) {
    auto text = read_file(AT_FDCWD, path);
    return text ? *text : std::string();
}

// The value of a key of a daemon's configuration, if it is a text there.
std::string configured(const std::string& text, const std::string& key) {
    std::smatch found;
    const std::regex line("(^|\n)\\s*" + key + "\\s*=\\s*\"([^\"\n]*)\"");
    return std::regex_search(text, found, line) ? found[2].str() : std::string();
}

// From now on with certificates; `more`: lines that are not there yet.
Status secure_config(const std::string& path, const std::string& more) {
    const std::string before = lines_of(path);
    std::string text =
        std::regex_replace(before, std::regex("(^|\n)\\s*insecure\\s*=[^\n]*"), "$1");
    if (!more.empty() && !text.empty() && !text.ends_with('\n')) text += '\n';
    text += more;
    if (text == before) return {};
    TRY(trust::make_private_dir(path.substr(0, path.rfind('/'))));
    return replace_file(path, text, 0644, true);
}

// Under systemd the daemon takes it at once; jobs outlive their daemon.
void restart(const char* unit, bool wanted) {
    const bool systemd = ::access("/run/systemd/system", F_OK) == 0;
    const std::string command = std::string("systemctl try-restart ") + unit;
    if (!wanted || !systemd || std::system(command.c_str()) != 0)
        std::printf("start the daemon anew, for it to take this: %s\n", command.c_str());
}

// The daemon may run as another user, who owns its state: what lies there becomes that user's.
Status give_to_owner_of_parent(const std::string& dir) {
    struct stat parent {};
    const std::string above = dir.substr(0, dir.find_last_of('/'));
    if (::stat(above.c_str(), &parent) != 0) return fail_errno("look at " + above, errno);
    if (parent.st_uid == 0) return {};
    TRY_ASSIGN(const Fd opened, open_at(AT_FDCWD, dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    TRY_ASSIGN(const auto names, list_dir(AT_FDCWD, dir));
    for (const std::string& name : names)
        if (::fchownat(opened.get(), name.c_str(), parent.st_uid, parent.st_gid,
                       AT_SYMLINK_NOFOLLOW) != 0)
            return fail_errno("give " + dir + "/" + name + " to the owner of " + above, errno);
    if (::fchown(opened.get(), parent.st_uid, parent.st_gid) != 0)
        return fail_errno("give " + dir + " to the owner of " + above, errno);
    return {};
}

Status setup_market(const Words& w) {
    const std::string config = w.config.empty() ? "/etc/souk/marketd.conf" : w.config;
    std::string dir = w.identity;
    if (dir.empty()) dir = configured(lines_of(config), "identity");
    if (dir.empty()) {
        const std::string state = configured(lines_of(config), "state");
        dir = (state.empty() ? "/var/lib/souk/marketd" : state) + "/identity";
    }
    TRY_ASSIGN(const auto there, trust::load_identity(dir));
    if (there)
        return fail("this market has its certificates already, in " + dir + " (root " +
                    there->root.digest() + ")");
    // Before anything else: a root whose key is lost certifies no successor.
    if (::access(w.root_key.c_str(), F_OK) == 0)
        return fail(w.root_key + " is there already: it may be another market's root key");
    TRY_ASSIGN(const auto root, make_market_identity(dir, w.name.empty() ? "souk" : w.name));
    TRY(give_to_owner_of_parent(dir));
    TRY(root.key.save(w.root_key));
    TRY(secure_config(config, ""));
    std::printf(
        "the market's certificates are in %s; its root is %s\n"
        "the root's key is %s: move it to a place that is on no network, it is needed "
        "once in five years\n",
        dir.c_str(), root.certificate.digest().c_str(), w.root_key.c_str());
    restart("souk-marketd", !w.no_restart);
    std::puts(
        "each node joins with: souk token create NAME, and there: souk setup node --join "
        "TOKEN --market HOST:PORT");
    return {};
}

std::string host_name() {
    char host[256] = {};
    ::gethostname(host, sizeof host - 1);
    return std::string(host).substr(0, std::string_view(host).find('.'));
}

Status setup_node(const Words& w) {
    const std::string config = w.config.empty() ? "/etc/souk/agentd.conf" : w.config;
    const std::string text = lines_of(config);
    JoinPlan plan;
    TRY_ASSIGN(plan.token, trust::parse_token(w.token));
    const std::string known_name = configured(text, "node"),
                      known_market = configured(text, "market");
    plan.name = !w.name.empty() ? w.name : !known_name.empty() ? known_name : host_name();
    plan.market = !w.market.empty() ? w.market : known_market;
    if (!valid_node_name(plan.name))
        return fail("'" + plan.name + "' is no node name: give one with --name");
    if (plan.market.empty())
        return fail("where is the market? --market HOST:PORT, or `market` in " + config);
    TRY(Address::check_host_port(plan.market));
    if (!known_name.empty() && known_name != plan.name)
        return fail(config + " says that this node is " + known_name);
    plan.identity = w.identity.empty() ? configured(text, "identity") : w.identity;
    if (plan.identity.empty()) {
        const std::string state = configured(text, "state");
        plan.identity = (state.empty() ? "/var/lib/souk/agentd" : state) + "/identity";
    }
    TRY(join(plan));
    std::string more;
    if (known_name.empty()) more += "node = \"" + plan.name + "\"\n";
    if (known_market.empty()) more += "market = \"" + plan.market + "\"\n";
    TRY(secure_config(config, more));
    std::printf("this machine is node %s of the market at %s; its certificate is in %s\n",
                plan.name.c_str(), plan.market.c_str(), plan.identity.c_str());
    restart("souk-agentd", !w.no_restart);
    return {};
}

// ---- questions to the market

Result<json> ask_market(const Words& w, const std::string& verb,
                        const std::vector<std::string>& args) {
    const auto find = [&]() -> Result<std::string> { return wire::find_market(w.socket, ""); };
    TRY_ASSIGN(auto parts, tools::ask(find, verb, args, Nanos{}));
    TRY_ASSIGN(const std::string text, tools::joined(std::move(parts)));
    return json::parse(text);
}

std::string date_of(const json& row, const char* key) {
    return trust::date_text(Nanos::from_s(row.at(key).get<int64_t>()));
}

Status token_create(const Words& w) {
    TRY_ASSIGN(const json made,
               ask_market(w, "token-create", {w.name, w.roles, std::to_string(w.minutes * 60)}));
    if (w.as_json) return tools::print(made.dump());
    return tools::print(made.at("token").get<std::string>());
}

Status token_list(const Words& w) {
    TRY_ASSIGN(const json rows, ask_market(w, "token-list", {}));
    if (w.as_json) return tools::print(rows.dump());
    for (const json& row : rows)
        std::printf(
            "%-10s %-24s %-14s %-5s until %s%s%s\n", row.at("id").get<std::string>().c_str(),
            row.at("names").get<std::string>().c_str(), row.at("roles").get<std::string>().c_str(),
            row.at("state").get<std::string>().c_str(), date_of(row, "ends_unix_s").c_str(),
            row.at("used_by").get<std::string>().empty() ? "" : ", by ",
            row.at("used_by").get<std::string>().c_str());
    return {};
}

Status node_list(const Words& w) {
    TRY_ASSIGN(const json rows, ask_market(w, "node-list", {}));
    if (w.as_json) return tools::print(rows.dump());
    for (const json& row : rows)
        std::printf("%-24s %-14s %-8s until %s  key %s\n",
                    row.at("name").get<std::string>().c_str(),
                    row.at("roles").get<std::string>().c_str(),
                    row.at("state").get<std::string>().c_str(), date_of(row, "ends_unix_s").c_str(),
                    row.at("key").get<std::string>().substr(0, 16).c_str());
    return {};
}

Status node_renew(const Words& w) {
    const auto find = [&] { return wire::find_agentd(w.socket, w.name); };
    TRY_ASSIGN(auto parts, tools::ask(find, "provider-renew", {}, Nanos{}));
    std::puts("a new certificate is asked for; agentd's log says until when it is good");
    return {};
}

// The key is made here, and the certificate beside it.
Status operator_add(const Words& w) {
    const std::string dir = w.out.empty() ? "/root/.souk/" + w.name : w.out;
    TRY(trust::make_private_dir(dir));
    TRY_ASSIGN(const trust::Key key, trust::key_of(dir));
    TRY_ASSIGN(const std::string request, trust::make_request(key, w.name));
    TRY_ASSIGN(const json made, ask_market(w, "operator-add", {trust::hex(request)}));
    TRY(replace_file(dir + "/certificate.pem", made.at("chain").get<std::string>(), 0644, true));
    std::printf("operator %s: key and certificate are in %s\n", w.name.c_str(), dir.c_str());
    return {};
}

int done(const Status& status) { return status ? 0 : complain(status.error().message); }

struct Verb {
    CLI::App* app;
    Status (*run)(const Words&);
};

void add_setup(CLI::App& app, Words& w, std::vector<Verb>& verbs) {
    CLI::App* setup = app.add_subcommand("setup", "make this machine a market, or a node of one");
    setup->require_subcommand(1);
    CLI::App* market = setup->add_subcommand("market", "a certificate authority for a market");
    market->add_option("--root-key", w.root_key, "file for the root's key (/root/souk-root.key)");
    CLI::App* node = setup->add_subcommand("node", "join a market with a token");
    node->add_option("--join", w.token, "the token (souk token create)")->required();
    node->add_option("--market", w.market, "HOST:PORT; default: that of agentd's configuration");
    for (CLI::App* one : {market, node}) {
        one->add_option("--name", w.name,
                        one == node ? "the node's (this host's)" : "the market's");
        one->add_option("--identity", w.identity,
                        "directory; default: as the daemon is configured");
        one->add_option("--config", w.config, "the daemon's configuration");
        one->add_flag("--no-restart", w.no_restart, "leave the daemon as it runs");
    }
    verbs.push_back({market, setup_market});
    verbs.push_back({node, setup_node});
}

void add_tokens(CLI::App& app, Words& w, std::vector<Verb>& verbs) {
    CLI::App* token = app.add_subcommand("token", "what lets a machine join, once");
    token->require_subcommand(1);
    CLI::App* create = token->add_subcommand("create", "a token, on standard output");
    create->add_option("NAME", w.name, "of the node, or a pattern such as gpu-*")->required();
    create->add_option("--roles", w.roles, "home, provider or both (home,provider)")
        ->default_val("home,provider");
    create->add_option("--minutes", w.minutes, "how long it is good (60)")
        ->check(CLI::Range(1, 10'080));
    CLI::App* list = token->add_subcommand("list", "tokens, and what became of them");
    CLI::App* withdraw = token->add_subcommand("withdraw", "a token is good no more");
    withdraw->add_option("ID", w.id)->required();
    for (CLI::App* one : {create, list, withdraw})
        one->add_option("--socket", w.socket, "marketd's socket");
    for (CLI::App* one : {create, list}) one->add_flag("--json", w.as_json, "as JSON");
    verbs.push_back({create, token_create});
    verbs.push_back({list, token_list});
    verbs.push_back({withdraw, [](const Words& words) {
                         return ask_market(words, "token-withdraw", {words.id}).map([](auto&&) {});
                     }});
}

void add_members(CLI::App& app, Words& w, std::vector<Verb>& verbs) {
    CLI::App* node = app.add_subcommand("node", "who has a certificate");
    node->require_subcommand(1);
    CLI::App* list = node->add_subcommand("list", "names, roles, until when, keys");
    list->add_flag("--json", w.as_json, "as JSON");
    CLI::App* revoke = node->add_subcommand("revoke", "a node or operator counts no more, at once");
    revoke->add_option("NAME", w.name)->required();
    CLI::App* renew = node->add_subcommand("renew", "this node's certificate, before its time");
    renew->add_option("--node", w.name, "of a market of souk up");
    CLI::App* one = app.add_subcommand("operator", "who may operate the market from elsewhere");
    one->require_subcommand(1);
    CLI::App* add = one->add_subcommand("add", "a key and a certificate for an operator");
    add->add_option("NAME", w.name)->required();
    add->add_option("--out", w.out, "directory for them (/root/.souk/NAME)");
    for (CLI::App* each : {list, revoke, renew, add})
        each->add_option("--socket", w.socket, "the daemon's socket");
    verbs.push_back({list, node_list});
    verbs.push_back({revoke, [](const Words& words) {
                         return ask_market(words, "node-revoke", {words.name}).map([](auto&&) {});
                     }});
    verbs.push_back({renew, node_renew});
    verbs.push_back({add, operator_add});
}

}  // namespace

bool is_trust_verb(std::string_view verb) {
    return verb == "setup" || verb == "token" || verb == "node" || verb == "operator";
}

int cmd_trust(int argc, char** argv) {
    CLI::App app{
        "souk: who may take part in a market. Run it as root, on the machine that it is "
        "about; token, node list, node revoke and operator on the market's."};
    app.require_subcommand(1);
    Words w;
    std::vector<Verb> verbs;
    add_setup(app, w, verbs);
    add_tokens(app, w, verbs);
    add_members(app, w, verbs);
    try {
        app.parse(argc, argv);
    } catch (const CLI::CallForHelp& e) {
        return app.exit(e);
    } catch (const CLI::ParseError& e) {
        const std::string text = e.what();
        std::fprintf(stderr, "souk: %s (see souk %s --help)\n",
                     text.substr(0, text.find('\n')).c_str(), argv[1]);
        return 2;
    }
    for (const Verb& verb : verbs)
        if (*verb.app) return done(verb.run(w));
    return 2;
}

}  // namespace souk
