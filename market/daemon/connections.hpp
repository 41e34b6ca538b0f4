// SPDX-License-Identifier: GPL-2.0-or-later
// Connections: the connections of marketd, by number, and which of them is which node's. It
// listens, takes in who may come as a stranger (kernel/sys/net/strangers.hpp), hands on what each
// says, and ends them. Whatever does not speak the protocol is told so in one line and closed; the
// log says it a few times a minute. Owned by Marketd, which says what each connection is.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "kernel/base/ids.hpp"
#include "kernel/sys/host/log.hpp"
#include "kernel/sys/loop/loop.hpp"
#include "kernel/sys/net/strangers.hpp"
#include "kernel/sys/net/user_share.hpp"
#include "kernel/wire/channel.hpp"
#include "kernel/wire/tls.hpp"
#include "market/daemon/config.hpp"
#include "market/wire/site_codec.hpp"

namespace souk {

struct Connection {
    // called: the market of another site, which this one has called, and which has not answered yet
    enum class Kind : uint8_t { greeting, agent, tool, joiner, called, site };
    std::unique_ptr<wire::Channel> channel;
    Kind kind = Kind::greeting;
    bool local = false;
    uint32_t uid = 0;        // local: whose it is
    UserShare::Place place;  // local: among the connections of that user
    std::string host;        // TCP: where it comes from
    std::string node;        // agent: its name; operator, site: that
    bool answers = false;    // agent: it can be asked
    bool tickets = false;    // agent: it knows ticket_keys
    bool sites = false;      // agent: it knows peer_sites; site: it takes jobs and lends them
    bool settles = false;    // site: it knows site_account
    bool has_news = false;   // site: it knows site_words
};

// An agent that listens on every address is where its connection comes from.
std::string reachable(const std::string& address, const std::string& peer_host);

class Connections {
  public:
    class Listener {
      public:
        // An error ends the connection with that word.
        virtual Status frame(uint64_t number, Connection& c, const wire::Frame& frame) = 0;
        // The connection of an agent has ended, and is known no more.
        virtual void agent_ended(const Connection& c, const Error& error) = 0;
        // So has one with another site.
        virtual void site_ended(uint64_t number, const Connection& c, const Error& error) = 0;

      protected:
        ~Listener() = default;
    };

    Connections(Loop& loop, Log& log, const MarketConfig& config, Listener& listener);

    // Errors: an address is in use or unusable. `tls` is null in an insecure market.
    Status listen(wire::Tls* tls);
    uint16_t port() const { return port_; }
    // In the time in which nodes get certificates, those without one are taken, too.
    bool takes_insecure() const;

    // Takes in a connection that this market has made, to that site, and returns its number.
    Result<uint64_t> add_called(Fd socket, const std::string& site,
                                std::unique_ptr<wire::Transport> transport);

    // The peer has said who it is; a joiner remains a stranger.
    void is_known(uint64_t number) { strangers_.gone(number); }
    void is_agent(uint64_t number, const NodeName& node) { agents_[node] = number; }

    const std::map<uint64_t, Connection>& all() const { return all_; }
    const std::map<NodeName, uint64_t>& agents() const { return agents_; }
    bool has(uint64_t number) const { return all_.contains(number); }
    const Connection& at(uint64_t number) const { return all_.at(number); }
    // Null: the node is not connected.
    Connection* agent(const NodeName& node);
    // So much may wait for the connection.
    size_t queue_bytes_max(const Connection& c) const;

    // A message that cannot be sent ends the connection. One that is gone gets nothing.
    template <class T>
    void send(uint64_t number, const T& message) {
        const auto it = all_.find(number);
        if (it == all_.end()) return;
        const Status sent = it->second.channel->send(wire::frame_type<T>, wire::pack(message));
        if (!sent) drop(number, sent.error());
    }
    // Ends a connection from this side, with a line for the other.
    void drop(uint64_t number, const Cause& why);
    void stop_listening();
    // The last words of all.
    void finish();

  private:
    void accept(Fd socket, bool local);
    Status open(uint64_t number, Connection c, Fd socket, wire::Side side,
                std::unique_ptr<wire::Transport> transport);
    bool take_local(Connection& c, int socket);
    bool take_stranger(uint64_t number, Connection& c, int socket);
    void refused(const std::string& key, std::string_view what, const std::string& why);
    void end_strangers();
    void frame(uint64_t number, const wire::Frame& frame);
    void closed(uint64_t number, const Error& error);

    Loop& loop_;
    Log& log_;
    const MarketConfig& config_;
    Listener& listener_;
    wire::Tls* tls_ = nullptr;
    UserShare tools_share_;
    std::map<uint64_t, Connection> all_;
    Strangers strangers_;
    Timer strangers_timer_;
    std::map<NodeName, uint64_t> agents_;
    uint64_t next_number_ = 1;
    uint16_t port_ = 0;
    souk::Listener agents_listener_, tools_listener_;
};

// Errors: a part of the path cannot be made.
Status make_directory(const std::string& path);

}  // namespace souk
