// SPDX-License-Identifier: GPL-2.0-or-later
// Sites: the markets of other sites that this one has as peers (docs/sites.md): their records, the
// connections with them, and what the two ask each other. An operator of each side has added the
// other's card; until both have, no connection comes about.
//
// The market calls each peer whose address it has, again and again with growing pauses, and takes
// the call of each. Either connection serves for the questions of both sides, so a peer that can
// call and cannot be called is a full one. What a peer says is a claim: it is asked for what
// anybody may see, for the tool that asked, and nothing of it enters the market's own state.
//
// With no peers nothing of this runs. Owned by Marketd.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernel/base/retry.hpp"
#include "kernel/sys/store/journal_db.hpp"
#include "market/core/site_guests.hpp"
#include "market/daemon/connections.hpp"
#include "market/daemon/relayed_questions.hpp"
#include "market/daemon/step_taker.hpp"
#include "market/store/trust_records.hpp"

namespace souk {

class JsonWriter;

// Marketd hears by this of peers that come and go.
class SiteListener {
  public:
    virtual ~SiteListener() = default;
    virtual void site_up(const std::string& site) = 0;
    virtual void site_down(const std::string& site) = 0;
    // Whether that user has money, or has had some, in this market. Errors: those of the database.
    virtual Result<bool> knows_account(uint32_t uid) const = 0;
    // The nodes of that site have so much in this market.
    virtual Money held_by_nodes(const std::string& site) const = 0;
    virtual bool knows_node(const std::string& name) const = 0;
    // There is that peer, or its terms have changed; or there is none of that name any more.
    virtual void peer_known(const SitePeer& peer) = 0;
    virtual void peer_gone(const std::string& site) = 0;
    // Writes keys and values of an open JSON object, for each of the peers in turn: what is between
    // the two sites. `money`: the asker may see that, too.
    virtual void describe_peer(const std::string& site, bool money, JsonWriter& j) = 0;
};

// Welcome::knows of a market, and Hello::knows: jobs may be given to it; it says and hears what the
// two owe each other, and what it has heard of others.
inline constexpr uint32_t knows_loans = 1, knows_accounts = 2, knows_news = 4;

class Sites {
  public:
    Sites(Loop& loop, Log& log, const MarketConfig& config, JournalDb& state,
          Connections& connections, ReplyQueue& replies, SiteListener& listener);

    // Reads which peers there are. `tls` is null in an insecure market, which has none. Errors: the
    // database, or the configured name is none.
    Status open(wire::Tls* tls);
    // Calls all of them; to be called when the market listens.
    void call_all();
    void close();
    const std::string& name() const { return name_; }

    // -- greetings: an error ends the connection with that word

    // A market has called that says it is a peer's.
    Status greet(uint64_t number, Connection& c, const wire::Hello& hello);
    // A peer that was called has answered.
    Status welcomed(uint64_t number, Connection& c, const wire::Frame& frame);
    void ended(uint64_t number, const Connection& c, const Error& error);

    // -- words

    // Deals with a tool's question that is about peers, or about what is of another site: it is
    // answered, passed on or refused then, and true is returned. Else the name of this site is
    // taken from its words, where it stands before a job.
    bool takes(uint64_t number, wire::CtlRequest& request);
    // A peer's question: whether it is answered here, with this site's name taken from it. Else it
    // is refused. `listed`: so many jobs and nodes a list walks over.
    bool admits(uint64_t number, const Connection& c, wire::CtlRequest& request, size_t listed);
    Status answered(const Connection& c, const wire::Frame& frame);
    // A peer says what it lets jobs from here do. It is shown to people, and is a claim.
    Status told_terms(const Connection& c, const wire::Frame& frame);

    // -- peers, for who deals with them (OfferDesk)

    // The names of those that are connected and to which a job with that wish may go, without those
    // that say that nothing may come.
    std::vector<std::string> that_let_come(const SiteWish& wish) const;
    // Says by what its jobs are here now; nullopt: it is no peer. Its terms are those of the peer,
    // as long as it is one.
    std::optional<market::SiteGuests::Site> guest_site(const std::string& site) const;
    // Tells an agent which sites are peers, whose nodes it is to know.
    void tell_agent(uint64_t number);
    // A plan, or an offer, which is a decision on a copy as well, counts as so many questions.
    static constexpr int64_t plan_cost = 16;
    // It is connected, and knows the words of market/daemon/loan_desk.hpp.
    bool lends(const std::string& site) const;
    // It is connected, and knows site_account.
    bool settles(const std::string& site) const;
    // Those that are connected and know site_words.
    std::vector<std::string> that_have_news() const;
    // The digest of the root of this site, and of a peer's.
    const std::string& root() const { return root_; }
    const std::string& root_of(const std::string& peer) const {
        return peers_.at(peer).record.root;
    }
    bool is_peer(const std::string& site) const { return peers_.contains(site); }
    // Counts what a peer wants of this market; `listed`: so many jobs and nodes are walked over.
    // False: it has wanted too much.
    bool charge(const std::string& site, int64_t questions, size_t listed);
    // The same for one word about a job.
    bool charge_word(const std::string& site);
    // The same for one word that says all of something anew, and is said at each connection: what
    // is asked meanwhile is no reason to end that.
    bool charge_level(const std::string& site);
    // To a peer that is connected.
    template <class T>
    void send(const std::string& site, const T& message) {
        if (const auto it = peers_.find(site); it != peers_.end() && it->second.connected())
            connections_.send(it->second.way(), message);
    }

  private:
    // A peer may use a burst of it at once, and goes on as time passes.
    struct Share {
        Nanos free_at{};
        bool take(Nanos cost, Nanos burst);
    };
    struct Peer {
        Peer(SitePeer r, RetryPause p) : record(std::move(r)), pause(p) {}
        SitePeer record;
        RetryPause pause;
        Connect connecting{};
        Timer retry{};
        // the connections with it, each only once both have said who they are
        std::optional<uint64_t> called{}, came{};
        Nanos called_at{};      // when it welcomed this market
        Nanos since{};          // Unix time: it is connected (or not) since then; 0: never yet
        std::string trouble{};  // why the last call came to nothing; empty: it did not
        std::optional<SiteTerms> told{};  // what it says that jobs from here may do there
        Share questions{}, words{}, levels{};
        uint64_t asked = 0, refused = 0;  // its questions here, since this process began
        uint64_t passed = 0;              // questions to it
        bool connected() const { return called || came; }
        uint64_t way() const { return called ? *called : *came; }
    };

    Result<std::string> answer(const wire::CtlRequest& request);
    Result<std::string> add(const std::vector<std::string>& args);
    Result<std::string> remove(const std::vector<std::string>& args);
    Result<std::string> set_terms(const std::vector<std::string>& args);
    std::string list(bool money) const;
    Status may_add(const std::string& name, const std::string& root) const;
    Status pass(uint64_t number, const std::string& site, const wire::CtlRequest& request);
    bool refuse(uint64_t number, const wire::CtlRequest& request, const Error& why);
    Result<std::string> foreign(wire::CtlRequest& request) const;
    Status read_destination(std::string& node, bool moves) const;
    Peer& known(const SitePeer& record);
    void tell_terms(const Peer& peer);
    void know();
    wire::PeerSites for_agents() const;
    Result<uint32_t> free_account() const;
    void call(const std::string& site);
    Status connected(Peer& peer, Result<Fd> socket);
    void call_later(Peer& peer, const std::string& why);
    void changed(Peer& peer, bool was_connected);

    Loop& loop_;
    Log& log_;
    const MarketConfig& config_;
    JournalDb& state_;
    Connections& connections_;
    ReplyQueue& replies_;
    SiteListener& listener_;
    wire::Tls* tls_ = nullptr;
    std::string name_, root_;
    std::map<std::string, Peer> peers_;
    RelayedQuestions relayed_;
    bool calls_ = false;
};

}  // namespace souk
