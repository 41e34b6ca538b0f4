// SPDX-License-Identifier: GPL-2.0-or-later
// GatewayDesk: who is brought to whom by this node, a gateway (docs/sites.md). A node that others
// do not reach offers itself here, over a connection that it keeps. Who wants to reach it asks. The
// node is called, opens a connection back, and then the asker one of his own: the two are one
// relay. Each of the two connections begins with a pass that its end got for this one link.
//
// The desk connects only to nodes that have offered themselves, by the name that their certificate
// says, and they are of this site. It asks the gateway of another site for nodes of its own site
// alone, and what comes from another site goes to nodes here alone: so nothing goes in circles.
//
// All is bounded: links in all, of an asker, of another site, to one node, and those that are not
// complete yet, which end after `patience`.
//
// Pure: connections and sockets are numbers, passes and the time come in. Owned by Gateway.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/cause.hpp"
#include "kernel/base/ids.hpp"
#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"

namespace souk {

class GatewayDesk {
  public:
    struct Bounds {
        size_t all = 1024;           // links
        size_t sites = 512;          // of askers of all other sites
        size_t site = 256;           // of those of one other site, and their connections
        size_t asker = 128;          // of one asker
        size_t node = 256;           // to one node
        size_t site_node = 128;      // to one node, of one other site
        size_t pair = 64;            // to one node, of one asker
        size_t incomplete = 16;      // of one asker, that wait for one of the two ends
        size_t burst = 64;           // questions of one asker at once,
        int64_t per_s = 16;          // and then in a second
        size_t connections = 4'096;  // of nodes to this gateway
        bool onward = false;         // it asks gateways of other sites
    };
    static constexpr Nanos patience = Nanos::from_s(5);  // for each of the two ends

    struct Answer {
        uint64_t connection = 0, number = 0;
        std::string pass;
        Cause why;
        bool operator==(const Answer&) const = default;
    };
    struct Call {
        uint64_t connection = 0;
        std::string pass;
        bool operator==(const Call&) const = default;
    };
    // The gateway of another site is to be asked for that node.
    struct Onward {
        uint64_t link = 0;
        std::string gateway;
        NodeName node;
        bool operator==(const Onward&) const = default;
    };
    struct Join {
        uint64_t link = 0, called = 0, asked = 0;  // the link, and its two sockets
        bool operator==(const Join&) const = default;
    };
    struct Outputs {
        std::vector<Answer> answers;
        std::vector<Call> calls;
        std::vector<Onward> onward;
        std::vector<Join> joins;
        std::vector<uint64_t> closed;    // sockets that nobody waits for
        std::vector<uint64_t> given_up;  // links whose question to another gateway counts no more
    };
    struct Asked {
        uint64_t number = 0;  // of the asker's
        NodeName node;
        std::string onward;
        std::string called_pass, asked_pass;
    };
    struct Figures {
        size_t offers = 0, connections = 0, links = 0, relays = 0;
        uint64_t relayed = 0, refused = 0;  // since it began
    };

    explicit GatewayDesk(Bounds bounds) : bounds_(bounds) {}

    // A node has come, over a connection of that number; `site` is empty for this one. Errors: too
    // many have.
    Status met(uint64_t connection, const NodeName& name, const std::string& site);
    void gone(uint64_t connection, Outputs& out);
    // The node at that connection may be reached from now on. Errors: it is of another site.
    Status offered(uint64_t connection);
    void asked(uint64_t connection, const Asked& asked, Nanos now, Outputs& out);
    // Somebody has connected, and begins with that pass.
    void came(uint64_t socket, std::string_view pass, Nanos now, Outputs& out);
    // The other gateway has connected this one with the node, or says why not.
    void fetched(uint64_t link, uint64_t socket, Nanos now, Outputs& out);
    void not_fetched(uint64_t link, const Cause& why, Outputs& out);
    // The relay of that link is over.
    void ended(uint64_t link) { links_.erase(link); }
    // Ends what has waited too long.
    void look(Nanos now, Outputs& out);

    // The relays to and from the node at that connection, whose key counts no more.
    std::vector<uint64_t> relays_of(uint64_t connection) const;

    bool is_waiting() const;  // something has a limit
    Figures figures() const;

  private:
    struct Met {
        NodeName name;
        std::string site;
        bool offers = false;
        Nanos free_at = {};  // when its next question is within the rate
    };
    enum class Stage : uint8_t {
        called,    // the node is to connect
        answered,  // it has, and the asker is to
        joined
    };
    struct Link {
        Stage stage = Stage::called;
        uint64_t asker = 0, number = 0;  // connection and question
        uint64_t to = 0;                 // the called node's connection; 0: another gateway's
        NodeName asker_name, node;
        std::string asker_site;
        std::string called_pass, asked_pass;
        uint64_t socket = 0;  // of the called node
        Nanos until;
    };

    Status may_ask(Met& who, const Asked& asked, Nanos now) const;
    Status has_room(const Met& who, const NodeName& node) const;
    Result<uint64_t> who_offers(const NodeName& node) const;
    static void is_here(Link& link, uint64_t socket, Nanos now, Outputs& out);
    void give_up(uint64_t number, const Link& link, const Cause& why, Outputs& out);
    template <class Is>
    size_t count(const Is& is) const;

    const Bounds bounds_;
    std::map<uint64_t, Met> met_;
    std::map<NodeName, uint64_t> offers_;  // the newest connection of each
    std::map<uint64_t, Link> links_;
    uint64_t next_link_ = 1, relayed_ = 0, refused_ = 0;
};

}  // namespace souk
