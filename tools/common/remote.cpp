// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/remote.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "agentd/wire/codec.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/net/socket.hpp"
#include "tools/common/link.hpp"
#include "tools/common/table.hpp"
#include "tools/common/talk.hpp"

namespace souk::tools {
namespace {

constexpr Nanos usual_limit = Nanos::from_s(40);
// pvdctl market off waits for guests to leave
constexpr Nanos leave_limit = Nanos::from_s(86'400);
constexpr size_t parts_max = 4096;

std::string environment(const char* name) {
    const char* value = std::getenv(name);
    return value ? value : "";
}

std::string first_line(const std::string& path) {
    const auto text = read_file(AT_FDCWD, path);
    return text ? text->substr(0, text->find('\n')) : std::string();
}

// Says whom to reach, and as whom that end must prove itself.
struct Place {
    std::string address;
    trust::Role role = trust::Role::market;
    std::string name;
};

// One question with all parts of its answer, or with one of them.
class Asking {
  public:
    explicit Asking(wire::CtlRequest request, bool one_part = false)
        : request_(std::move(request)), one_part_(one_part) {}

    Result<ListPart> part(wire::Tls& tls, const Place& place, Nanos limit) {
        TRY_ASSIGN(Answer parts, run(tls, place, limit));
        return ListPart{std::move(parts.back()), std::move(next_)};
    }

    Result<Answer> run(wire::Tls& tls, const Place& place, Nanos limit = usual_limit) {
        const bool waits = !request_.args.empty() && request_.args.back() == "wait";
        Talk what{place.address, place.role, place.name, wire::agent_words, {}, limit};
        if (waits) what.limit = leave_limit;
        what.keepalive = Nanos::from_s(10);
        const Status done = talk(
            tls, what, [this](wire::Channel& to, const wire::Frame& f) { return frame(to, f); });
        if (!done) return wrap(place.address, done.error());
        return std::move(parts_);
    }

  private:
    Result<bool> frame(wire::Channel& channel, const wire::Frame& f) {
        if (f.type == wire::frame::welcome) return ask(channel);
        if (f.type != wire::frame::ctl_reply) return fail("an unexpected answer from the daemon");
        TRY_ASSIGN(wire::CtlReply reply, wire::unpack<wire::CtlReply>(f.body));
        if (!reply.ok) return tl::unexpected(refusal(reply));
        if (!reply.json.empty() || reply.next.empty()) parts_.push_back(std::move(reply.json));
        if (one_part_) {
            next_ = std::move(reply.next);
            if (parts_.empty()) parts_.emplace_back();
            return true;
        }
        if (parts_.size() == parts_max) return fail("the daemon's answer has no end");
        if (reply.next.empty()) return true;
        request_.after = std::move(reply.next);
        ++request_.request;
        return ask(channel);
    }

    Result<bool> ask(wire::Channel& channel) {
        TRY(channel.send(wire::frame::ctl_request, wire::pack(request_)));
        return false;
    }

    wire::CtlRequest request_;
    const bool one_part_;
    std::string next_;
    Answer parts_;
};

Result<Answer> ask_at(const Remote& remote, const Place& place, const std::string& verb,
                      const std::vector<std::string>& args, Nanos patience) {
    TRY_ASSIGN(const auto tls, tls_of(remote));
    return ask_again(
        [&] {
            return Asking({1, 0, verb, args, {}}).run(*tls, place);
        },
        verb, patience);
}

}  // namespace

Result<std::shared_ptr<wire::Tls>> tls_of(const Remote& remote) {
    auto identity = trust::load_identity(remote.dir);
    if (!identity) return wrap(remote.dir, identity.error());
    if (!*identity)
        return fail(CauseCode::not_found, "there is no certificate in " + remote.dir +
                                              " (souk operator add, on the market's machine)");
    TRY_ASSIGN(auto tls, wire::Tls::open(std::move(**identity), {}));
    return std::shared_ptr<wire::Tls>(std::move(tls));
}

bool is_remote_asked(const std::string& market, const std::string& cert) {
    return !(market + cert + environment("SOUK_MARKET") + environment("SOUK_CERT")).empty();
}

Result<std::optional<Remote>> remote_of(const Where& where, const std::function<bool()>& is_here) {
    const bool asked = is_remote_asked(where.market, where.cert);
    const bool here = !where.socket.empty() || !where.node.empty();
    if (here && !(where.market + where.cert).empty())
        return fail(CauseCode::invalid,
                    "--node and --socket are of this host, --market and --cert of another one");
    if (here || (!asked && is_here())) return std::optional<Remote>();
    return find_remote(where.market, where.cert);
}

Result<std::optional<Remote>> find_remote(const std::string& market, const std::string& cert) {
    const std::string home = environment("HOME");
    const std::string usual = home.empty() ? "" : home + "/.config/souk/operator";
    Remote remote{market.empty() ? environment("SOUK_MARKET") : market,
                  cert.empty() ? environment("SOUK_CERT") : cert};
    const bool asked = !(remote.market + remote.dir).empty();
    if (remote.dir.empty()) remote.dir = usual;
    if (!asked && (remote.dir.empty() || access(remote.dir.c_str(), F_OK) != 0))
        return std::optional<Remote>();
    if (remote.dir.empty())
        return fail(CauseCode::invalid,
                    "with which certificate? --cert DIR, or $SOUK_CERT (souk operator add)");
    if (remote.market.empty()) remote.market = first_line(remote.dir + "/market");
    if (remote.market.empty())
        return fail(CauseCode::invalid,
                    "where is the market? --market HOST:PORT, or $SOUK_MARKET, or the file " +
                        remote.dir + "/market");
    TRY(Address::check_host_port(remote.market));
    return remote;
}

Result<Answer> ask_market_at(const Remote& remote, const std::string& verb,
                             const std::vector<std::string>& args, Nanos patience) {
    return ask_at(remote, {remote.market, trust::Role::market, ""}, verb, args, patience);
}

Result<ListPart> ask_market_part_at(const Remote& remote, const std::string& verb,
                                    const std::vector<std::string>& args, const std::string& after,
                                    Nanos limit) {
    TRY_ASSIGN(const auto tls, tls_of(remote));
    return Asking({1, 0, verb, args, after}, true)
        .part(*tls, {remote.market, trust::Role::market, ""}, limit);
}

Result<Answer> ask_node_at(const Remote& remote, const std::string& node, const std::string& verb,
                           const std::vector<std::string>& args, Nanos patience) {
    TRY_ASSIGN(auto parts, ask_market_at(remote, "list-providers", {}, patience));
    TRY_ASSIGN(const std::string text, joined(std::move(parts)));
    const Json rows = parse_json(text);
    if (!rows.is_array()) return fail("the market's answer is not a list");
    for (const Json& row : rows)
        if (row.value("node", "") == node) {
            const Place place{row.value("address", ""), trust::Role::provider, node};
            return ask_at(remote, place, verb, args, patience);
        }
    return fail(CauseCode::not_found, "the market at " + remote.market + " has no node " + node);
}

}  // namespace souk::tools
