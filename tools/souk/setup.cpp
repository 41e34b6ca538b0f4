// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/souk/setup.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "kernel/base/cause.hpp"
#include "kernel/base/ids.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/host/installation.hpp"
#include "kernel/sys/host/moment.hpp"
#include "kernel/sys/net/socket.hpp"
#include "kernel/sys/net/srv.hpp"
#include "kernel/trust/openssl.hpp"
#include "tools/common/ask.hpp"
#include "tools/common/paths.hpp"
#include "tools/common/table.hpp"
#include "tools/common/typed_options.hpp"
#include "tools/souk/changes.hpp"
#include "tools/souk/configured.hpp"
#include "tools/souk/identities.hpp"
#include "tools/souk/invite.hpp"
#include "tools/souk/join.hpp"
#include "tools/souk/questions.hpp"
#include "tools/souk/setup_addresses.hpp"
#include "tools/souk/verbs.hpp"

namespace souk {
namespace {

using nlohmann::json;

// The command line gives these.
struct Words {
    std::string identity, config, root_key = "/root/souk-root.key", token, name, market;
    std::string roles = "home,provider", id, out, socket, realm, owns, users, nodes;
    AddressPlan addresses;
    int64_t minutes = 60, days = 30, insecure_s = 0;
    bool as_json = false, no_restart = false;
    bool asked = false;   // a person answers: before anything is changed he is asked once more
    bool client = false;  // a node that is not offered
    bool relay = false;   // a gateway
    std::string gateway;  // of this node
};

// Restarts the daemon under systemd, so that it uses the change at once; jobs outlive their daemon.
// A daemon that did not run because it lacked what setup made begins to run, unless its unit is
// disabled. Returns whether it runs now.
bool restart(const std::string& unit, bool wanted) {
    const bool systemd = ::access("/run/systemd/system", F_OK) == 0;
    const std::string command = "systemctl restart " + unit;
    const std::string lets =
        "systemctl is-enabled -q " + unit + " || systemctl is-active -q " + unit;
    if (wanted && systemd && std::system(lets.c_str()) == 0) {
        // systemd may have given the unit up after a few starts.
        (void)!std::system(("systemctl reset-failed " + unit).c_str());
        if (std::system(command.c_str()) == 0) return true;
    }
    std::printf("start the daemon anew, for it to take this: %s\n", command.c_str());
    return false;
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

// Writes the line for each daemon's configuration: until then it works without certificates.
std::string until_line(Nanos until) { return "insecure_until = " + moment_text(until) + "\n"; }

Status setup_market(const Words& w) {
    const std::string config = w.config.empty() ? "/etc/souk/marketd.conf" : w.config;
    const std::string dir =
        w.identity.empty() ? identity_dir(config_text(config), "marketd") : w.identity;
    TRY_ASSIGN(const auto there, trust::load_identity(dir));
    if (there)
        return fail(CauseCode::not_possible, "this market has its certificates already, in " + dir +
                                                 " (root " + there->root.digest() + ")");
    // Check this first: a root whose key is lost certifies no successor.
    if (::access(w.root_key.c_str(), F_OK) == 0)
        return fail(CauseCode::not_possible,
                    w.root_key + " is there already: it may be another market's root key");
    const std::string name = w.name.empty() ? "souk" : w.name;
    TRY(names_of(w.nodes));
    const std::string more =
        w.insecure_s > 0 ? until_line(unix_now() + Nanos::from_s(w.insecure_s)) : "";
    const Rewrite rewrite = secured(config, more);
    TRY(announce(w.asked, !w.no_restart,
                 {"make the keys and certificates of market " + name + " in " + dir,
                  "write the key of its root to " + w.root_key},
                 rewrite, more, "souk-marketd"));
    TRY_ASSIGN(const auto root, make_market_identity(dir, name));
    TRY(give_to_owner_of_parent(dir));
    TRY(root.key.save(w.root_key));
    TRY(write(rewrite));
    std::printf(
        "the market's certificates are in %s; its root is %s\n"
        "the root's key is %s: move it to a place that is on no network, it is needed "
        "once in five years\n",
        dir.c_str(), root.certificate.digest().c_str(), w.root_key.c_str());
    const bool runs = restart("souk-marketd", !w.no_restart);
    if (!w.nodes.empty() && runs)
        return invite([&] { return wire::find_market(w.socket, ""); }, w.nodes,
                      configured(config_text(config), "listen"));
    std::puts(
        "each node joins with: souk token create NAME, and there: souk setup node --join "
        "TOKEN --market HOST:PORT");
    if (!w.nodes.empty()) return fail("no tokens were made: marketd does not run");
    return {};
}

// The next issuing authority, below the same root: nodes renew with it, and none joins anew.
Status setup_authority(const Words& w) {
    const std::string config = w.config.empty() ? "/etc/souk/marketd.conf" : w.config;
    const std::string dir =
        w.identity.empty() ? identity_dir(config_text(config), "marketd") : w.identity;
    TRY_ASSIGN(const auto there, trust::load_identity(dir));
    if (!there)
        return fail(CauseCode::not_found, "there is no market in " + dir + " (souk setup market)");
    TRY_ASSIGN(const trust::Authority before, trust::load_issuing(dir));
    auto key = trust::Key::load(w.root_key);
    if (!key) return wrap("the root's key", key.error());
    TRY_ASSIGN(const trust::Key of_root, there->root.key());
    if (key->digest() != of_root.digest())
        return fail(CauseCode::not_possible,
                    w.root_key + " is the key of another root than this market's");
    const Nanos now = unix_now();
    TRY_ASSIGN(const auto next, trust::make_issuing({*key, there->root}, there->root.site(), now));
    TRY_ASSIGN(const trust::Subject itself, there->own().subject());
    TRY_ASSIGN(const auto own, trust::issue(next, there->key, itself, now));
    for (const char* file : {"/issuing.key", "/issuing.pem"})
        if (::rename((dir + file).c_str(), (dir + file + ".before").c_str()) != 0)
            return fail_errno("keep " + dir + file, errno);
    (void)::unlink((dir + "/revoked").c_str());  // of the one before; marketd keeps its own
    TRY(trust::save_issuing(dir, next));
    TRY(trust::save_chain(dir, {own, next.certificate}));
    TRY(give_to_owner_of_parent(dir));
    std::printf("the market's next issuing authority is good until %s; each node renews with it\n",
                trust::date_text(next.certificate.ends()).c_str());
    restart("souk-marketd", !w.no_restart);
    return {};
}

std::string host_name() {
    char host[256] = {};
    ::gethostname(host, sizeof host - 1);
    return std::string(host).substr(0, std::string_view(host).find('.'));
}

// Returns the market's address: as the command line says, as the configuration says, or as DNS
// says. A person is asked last.
Result<std::string> market_place(const Words& w, const std::string& known) {
    if (!w.market.empty()) return w.market;
    if (!known.empty()) return known;
    const auto found = find_service(market_service);
    if (found) {
        std::printf("the market is at %s, as DNS says\n", found->c_str());
        return *found;
    }
    if (w.asked) return ask_person("Where is the market, HOST:PORT", "");
    return fail(CauseCode::invalid,
                "where is the market? --market HOST:PORT, or `market` in agentd's configuration (" +
                    found.error().message + ")");
}

// A node that was none before also gets options that a new node should have, and that an older one
// may not expect: jobs whose files come along.
Status setup_node(const Words& w) {
    const std::string config = w.config.empty() ? "/etc/souk/agentd.conf" : w.config;
    const std::string text = config_text(config);
    JoinPlan plan;
    TRY_ASSIGN(plan.token, trust::parse_token(w.token));
    const std::string known_name = configured(text, "node"),
                      known_market = configured(text, "market");
    plan.name = !w.name.empty() ? w.name : !known_name.empty() ? known_name : host_name();
    if (w.asked && w.name.empty() && known_name.empty()) {
        TRY_ASSIGN(plan.name, ask_person("The name of this node in the market", plan.name));
    }
    if (!valid_node_name(plan.name))
        return fail(CauseCode::invalid,
                    "'" + plan.name + "' is no node name: give one with --name");
    TRY_ASSIGN(plan.market, market_place(w, known_market));
    TRY(Address::check_host_port(plan.market));
    if (!known_name.empty() && known_name != plan.name)
        return fail(config + " says that this node is " + known_name);
    plan.identity = w.identity.empty() ? identity_dir(text, "agentd") : w.identity;
    std::string more;
    if (known_name.empty()) more += "node = \"" + plan.name + "\"\n";
    if (known_market.empty()) more += "market = \"" + plan.market + "\"\n";
    if (known_name.empty() && !says(text, "files")) more += "files = \"auto\"\n";
    if (w.client && !says(text, "on_market")) more += "on_market = false\n";
    if (w.relay && !says(text, "relay")) more += "relay = true\n";
    if (!w.gateway.empty()) {
        TRY(Address::check_host_port(w.gateway));
        if (says(text, "gateway")) return fail(config + " names a gateway already");
        more += "gateway = \"" + w.gateway + "\"\n";
    }
    const Rewrite rewrite = secured(config, more);
    TRY(announce(w.asked, !w.no_restart,
                 {"make a key in " + plan.identity + ", and have the market at " + plan.market +
                  " certify it for node " + plan.name},
                 rewrite, more, "souk-agentd"));
    TRY_ASSIGN(const Nanos insecure_until, join(plan));
    // souk-root finds at its next start which market that is.
    const std::string said = configured(text, "state"), usual = "/var/lib/souk/agentd";
    (void)::unlink((beside_state(said.empty() ? usual : said) + kept_market).c_str());
    const bool waits = insecure_until > unix_now();
    TRY(write(waits ? secured(config, more + until_line(insecure_until)) : rewrite));
    std::printf("this machine is node %s of the market at %s; its certificate is in %s\n",
                plan.name.c_str(), plan.market.c_str(), plan.identity.c_str());
    if (waits)
        std::printf(
            "the nodes of this market talk without certificates until %s; this one takes its own "
            "then, as all do\n",
            trust::date_text(insecure_until).c_str());
    restart("souk-agentd", !w.no_restart);
    return {};
}

// The address by which this machine reaches a market of its own that listens there.
std::string from_here(const std::string& listen) {
    constexpr std::string_view all = "0.0.0.0:";
    if (listen.empty()) return "127.0.0.1:7070";
    return listen.starts_with(all) ? "127.0.0.1:" + listen.substr(all.size()) : listen;
}

// A market and a node of it on this machine, which is a site of its own. The authority is here, so
// the node needs no token.
Status setup_site(const Words& w) {
    const std::string dir = w.config.empty() ? "/etc/souk" : w.config;
    const std::string config = dir + "/agentd.conf", text = config_text(config);
    Words market = w;
    market.config = dir + "/marketd.conf";
    market.name = w.name.empty() ? host_name() : w.name;
    if (!valid_site_name(market.name))
        return fail(CauseCode::invalid, "'" + market.name.substr(0, 100) +
                                            "' is no name of a site: give one with "
                                            "--name");
    const std::string known = configured(text, "node"), node = known.empty() ? host_name() : known;
    if (!valid_node_name(node))
        return fail(CauseCode::invalid, "'" + node + "' is no node name: say `node` in " + config);
    const std::string place = configured(text, "market"), identity = identity_dir(text, "agentd");
    TRY_ASSIGN(const auto there, trust::load_identity(identity));
    if (there || !place.empty())
        return fail(CauseCode::not_possible,
                    "this machine is a node already" + (place.empty() ? "" : " of " + place));
    const std::string market_text = config_text(market.config);
    TRY(setup_market(market));
    TRY(make_node_identity(identity, node, identity_dir(market_text, "marketd")));
    TRY(give_to_owner_of_parent(identity));
    std::string more = "market = \"" + from_here(configured(market_text, "listen")) + "\"\n";
    if (known.empty()) more += "node = \"" + node + "\"\n";
    if (!says(text, "files")) more += "files = \"auto\"\n";
    TRY(write(secured(config, more)));
    std::printf(
        "this machine is site %s, and its node %s; for a peer: souk peer card --address "
        "HOST:PORT, as others reach its market\n",
        market.name.c_str(), node.c_str());
    restart("souk-agentd", !w.no_restart);
    return {};
}

// Addresses of jobs. At a terminal it asks for what is not said.
Status setup_addresses(const Words& w) {
    const std::string config = w.config.empty() ? "/etc/souk/agentd.conf" : w.config;
    std::string text = config_text(config);
    const std::string known = configured(text, "node");
    AddressPlan plan = w.addresses;
    // A word that is not given stays as it was.
    const AddressPlan usual;
    const auto keep = [&](std::string& word, const std::string& unsaid, const char* key) {
        if (const std::string had = configured(text, key); word == unsaid && !had.empty())
            word = had;
    };
    keep(plan.network, usual.network, "job_network");
    keep(plan.bridge, usual.bridge, "job_bridge");
    keep(plan.gateway, usual.gateway, "job_gateway");
    const bool asks = plan.addresses.empty() && somebody_is_there();
    keep(plan.addresses, usual.addresses, "job_addresses");
    if (asks) {
        TRY_ASSIGN(plan.network, ask_person("The network of jobs, of all nodes", plan.network));
        TRY_ASSIGN(plan.bridge, ask_person("The bridge of this machine to it", plan.bridge));
    }
    if (plan.addresses.empty())
        plan.addresses = addresses_by_name(plan.network, known.empty() ? host_name() : known);
    if (asks) {
        TRY_ASSIGN(plan.addresses,
                   ask_person("The part of it that is this node's alone", plan.addresses));
    }
    TRY_ASSIGN(const std::string more, address_lines(plan, "/sys/class/net"));
    Rewrite rewrite{config, text, {}};
    for (const char* key : {"job_network", "job_bridge", "job_addresses", "job_gateway"})
        text = without_key(text, key);
    while (text.ends_with('\n')) text.pop_back();
    if (!text.empty()) text += '\n';
    rewrite.after = text + more;
    TRY(announce(asks, !w.no_restart, {}, rewrite, more, "souk-agentd"));
    TRY(write(rewrite));
    restart("souk-agentd", !w.no_restart);
    return {};
}

// Asks at a terminal for what the command line does not say.
Status ask_and_set_up(Words w, std::string kind) {
    if (kind.empty()) {
        TRY_ASSIGN(kind, ask_person("What is this machine to be: market, node (offers its CPUs) or "
                                    "client (submits jobs alone)",
                                    {"market", "node", "client"}, "node"));
        w.asked = true;
    }
    if (kind == "market") return setup_market(w);
    w.relay = kind == "gateway";
    w.client = kind == "client" || w.relay;
    if (w.token.empty()) {
        w.asked = true;
        std::puts("On the market's machine this makes a token: souk token create NAME");
        TRY_ASSIGN(w.token, ask_person("The token", ""));
    }
    return setup_node(w);
}

// ---- questions to the market

Result<json> ask_market(const Words& w, const std::string& verb,
                        const std::vector<std::string>& args) {
    const auto find = [&]() -> Result<std::string> { return wire::find_market(w.socket, ""); };
    TRY_ASSIGN(auto parts, tools::ask(find, verb, args, Nanos{}));
    TRY_ASSIGN(const std::string text, tools::joined(std::move(parts)));
    const tools::Json answer = tools::parse_json(text);
    if (answer.is_discarded()) return fail(verb + ": the market's answer is not JSON");
    return json(answer);  // its keys are in order when it is printed
}

std::string date_of(const json& row, const char* key) {
    return trust::date_text(Nanos::from_s(row.at(key).get<int64_t>()));
}

Status token_create(const Words& w) {
    TRY_ASSIGN(const json made,
               ask_market(w, "token-create",
                          {w.name, w.roles, std::to_string(w.minutes * 60), w.realm, w.users}));
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
        std::printf(
            "%-24s %-14s %-8s until %s  key %s%s\n", row.at("name").get<std::string>().c_str(),
            row.at("roles").get<std::string>().c_str(), row.at("state").get<std::string>().c_str(),
            date_of(row, "ends_unix_s").c_str(),
            row.at("key").get<std::string>().substr(0, 16).c_str(),
            row.contains("owns")    ? ("  of " + row.at("owns").get<std::string>()).c_str()
            : row.contains("realm") ? ("  realm " + row.at("realm").get<std::string>()).c_str()
                                    : "");
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
    if (!w.market.empty()) TRY(Address::check_host_port(w.market));
    TRY(trust::make_private_dir(dir));
    TRY_ASSIGN(const trust::Key key, trust::key_of(dir));
    TRY_ASSIGN(const std::string request, trust::make_request(key, w.name));
    TRY_ASSIGN(const json made, ask_market(w, "operator-add",
                                           {trust::hex(request), w.owns.empty() ? "-" : w.owns,
                                            std::to_string(w.days)}));
    const auto put = [&](const char* file, const std::string& text) {
        return replace_file(dir + file, text, 0644, true);
    };
    TRY(put("/certificate.pem", made.at("chain").get<std::string>()));
    TRY(put("/root.pem", made.at("root").get<std::string>()));
    TRY(put("/revoked", made.at("revoked").get<std::string>()));
    if (!w.market.empty()) TRY(put("/market", w.market + "\n"));
    std::printf("%s %s: key and certificate are in %s, good for %lld days\n",
                w.owns.empty() ? "operator" : ("owner of " + w.owns).c_str(), w.name.c_str(),
                dir.c_str(), static_cast<long long>(w.days));
    if (w.out.empty())
        std::puts(
            "on the machine of whoever that is, the directory belongs to "
            "~/.config/souk/operator (mode 0700)");
    return {};
}

int done(const Status& status) { return status ? 0 : complain(status.error()); }

using Rows = std::vector<tools::Option>;

tools::Option text_row(const char* name, std::string& to, const char* help) {
    return option(0, name, to, tools::any_text(), help);
}

tools::Option flag_row(const char* name, bool& to, const char* help) {
    return {0, name, nullptr, help, tools::set_flag(to)};
}

// Each form of setup takes these after its own options.
Rows with_daemon(Rows rows, Words& w, const char* name_help) {
    if (name_help) rows.push_back(text_row("name", w.name, name_help));
    rows.push_back(
        text_row("identity", w.identity, "directory; default: as the daemon is configured"));
    rows.push_back(text_row("config", w.config, "the daemon's configuration"));
    rows.push_back(flag_row("no-restart", w.no_restart, "leave the daemon as it runs"));
    return rows;
}

// Joins as a node or as a client; the token can be asked for at a terminal only.
tools::CommandLine joining(const char* tool, const char* summary, Words& w, const char* kind) {
    Rows rows = {text_row("join", w.token, "the token (souk token create); else it is asked for"),
                 text_row("market", w.market,
                          "HOST:PORT; default: that of agentd's configuration, or as DNS says")};
    if (kind != std::string_view("gateway"))
        rows.push_back(text_row("gateway", w.gateway,
                                "HOST:PORT by which others reach this node, who cannot connect to "
                                "it (none)"));
    const auto run = [&w, tool, kind] {
        if (w.token.empty() && !somebody_is_there())
            return complain_usage(tool, "--join is required");
        return done(ask_and_set_up(w, kind));
    };
    return {.tool = tool,
            .summary = summary,
            .options = with_daemon(std::move(rows), w, "the node's (this host's)"),
            .run = run};
}

tools::CommandLine setup_line(Words& w) {
    Rows market = {
        text_row("root-key", w.root_key, "file for the root's key (/root/souk-root.key)"),
        text_row("nodes", w.nodes,
                 "names of nodes, with commas: prints the line by which each of them joins"),
        option(0, "insecure-for", w.insecure_s, tools::seconds(0, 1'000'000'000),
               "a time such as 24h: nodes without certificates are taken for so long, and all take "
               "theirs at its end (none)")};
    Rows site = {text_row("name", w.name, "of the site among its peers (this host's)"),
                 text_row("config", w.config, "directory of both configurations (/etc/souk)"),
                 text_row("root-key", w.root_key, "file for the root's key (/root/souk-root.key)"),
                 flag_row("no-restart", w.no_restart, "leave the daemons as they run")};
    Rows addresses = {
        text_row("network", w.addresses.network, "of the jobs of all nodes (10.77.0.0/16)"),
        text_row("bridge", w.addresses.bridge, "of this machine, that reaches it (br-jobs)"),
        text_row("addresses", w.addresses.addresses,
                 "this node's part of it (by the number at the end of its name: 10.77.3.0/24)"),
        text_row("gateway", w.addresses.gateway, "the way out of it, for jobs (none)")};
    Rows authority = {text_row("root-key", w.root_key, "the root's key (/root/souk-root.key)")};
    return {.tool = "souk setup",
            .summary =
                "make this machine a market, or a node of one; alone it asks which, at a "
                "terminal",
            .commands = {{.tool = "souk setup market",
                          .summary = "a certificate authority for a market",
                          .options = with_daemon(std::move(market), w, "the market's"),
                          .run = [&w] { return done(setup_market(w)); }},
                         {.tool = "souk setup authority",
                          .summary = "a new issuing authority below the market's root",
                          .options = with_daemon(std::move(authority), w, nullptr),
                          .run = [&w] { return done(setup_authority(w)); }},
                         {.tool = "souk setup site",
                          .summary = "a market and a node of it, both on this machine",
                          .options = std::move(site),
                          .run = [&w] { return done(setup_site(w)); }},
                         {.tool = "souk setup addresses",
                          .summary = "addresses for jobs of several components and --net=own",
                          .options = with_daemon(std::move(addresses), w, nullptr),
                          .run = [&w] { return done(setup_addresses(w)); }},
                         joining("souk setup node", "join a market with a token", w, "node"),
                         joining("souk setup client", "join, and submit jobs alone: not offered", w,
                                 "client"),
                         joining("souk setup gateway",
                                 "join, and relay to nodes that others cannot connect to: not "
                                 "offered",
                                 w, "gateway")},
            .run = [&w] {
                if (somebody_is_there()) return done(ask_and_set_up(w, ""));
                return complain_usage("souk setup",
                                      "setup needs market, site, node, client or gateway: there "
                                      "is no terminal to ask");
            }};
}

tools::CommandLine token_line(Words& w) {
    const auto socket = text_row("socket", w.socket, "marketd's socket");
    const auto as_json = flag_row("json", w.as_json, "as JSON");
    const auto withdraw = [&w] {
        return done(ask_market(w, "token-withdraw", {w.id}).map([](auto&&) {}));
    };
    return {.tool = "souk token",
            .summary = "what lets a machine join, once",
            .commands = {
                {.tool = "souk token create",
                 .summary = "a token, on standard output",
                 .options = {text_row("roles", w.roles, "home, provider or both (home,provider)"),
                             option(0, "minutes", w.minutes, tools::whole(1, 10'080),
                                    "how long it is good (60)"),
                             text_row("realm", w.realm,
                                      "whose users the node speaks for (the market's own; "
                                      "docs/security.md)"),
                             text_row("users", w.users,
                                      "these users, such as 20000-29999,alice=4321 (all of the "
                                      "market's own realm; needed with --realm)"),
                             socket, as_json},
                 .arguments = {{"NAME", "of the node, or a pattern such as gpu-*",
                                tools::set_text(w.name)}},
                 .run = [&w] { return done(token_create(w)); }},
                {.tool = "souk token list",
                 .summary = "tokens, and what became of them",
                 .options = {socket, as_json},
                 .run = [&w] { return done(token_list(w)); }},
                {.tool = "souk token withdraw",
                 .summary = "a token is good no more",
                 .options = {socket},
                 .arguments = {{"ID", "", tools::set_text(w.id)}},
                 .run = withdraw}}};
}

tools::CommandLine node_line(Words& w) {
    const auto socket = text_row("socket", w.socket, "the daemon's socket");
    const auto revoke = [&w] {
        return done(ask_market(w, "node-revoke", {w.name}).map([](auto&&) {}));
    };
    return {.tool = "souk node",
            .summary = "who has a certificate",
            .commands = {{.tool = "souk node list",
                          .summary = "names, roles, until when, keys",
                          .options = {flag_row("json", w.as_json, "as JSON"), socket},
                          .run = [&w] { return done(node_list(w)); }},
                         {.tool = "souk node revoke",
                          .summary = "a node or operator counts no more, at once",
                          .options = {socket},
                          .arguments = {{"NAME", "", tools::set_text(w.name)}},
                          .run = revoke},
                         {.tool = "souk node renew",
                          .summary = "this node's certificate, before its time",
                          .options = {text_row("node", w.name, "of a market of souk up"), socket},
                          .run = [&w] { return done(node_renew(w)); }}}};
}

tools::CommandLine operator_line(Words& w) {
    return {.tool = "souk operator",
            .summary = "who may operate the market from elsewhere",
            .commands = {
                {.tool = "souk operator add",
                 .summary = "a key and a certificate for an operator",
                 .options = {text_row("out", w.out, "directory for them (/root/.souk/NAME)"),
                             text_row("owner", w.owns, "of that node's owner, and of nothing else"),
                             text_row("market", w.market,
                                      "HOST:PORT of the market, to be kept beside them"),
                             option(0, "days", w.days, tools::whole(1, 366),
                                    "how long the certificate is good (30)"),
                             text_row("socket", w.socket, "the daemon's socket")},
                 .arguments = {{"NAME", "", tools::set_text(w.name)}},
                 .run = [&w] { return done(operator_add(w)); }}}};
}

}  // namespace

bool is_trust_verb(std::string_view verb) {
    return verb == "setup" || verb == "token" || verb == "node" || verb == "operator";
}

int cmd_trust(int argc, char** argv) {
    Words w;
    for (const tools::CommandLine& line :
         {setup_line(w), token_line(w), node_line(w), operator_line(w)})
        if (line.tool == std::string("souk ") + argv[0]) return run_command(line, argc, argv);
    return 2;
}

}  // namespace souk
